"""The audit passes groups that did nothing wrong: live ones with loss, flags, fragments
and a view change, and simulated ones with faults."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from channels import PATIENCE, joined
from ports import free_port
from processes import wait_for

from ringcast import Channel, Flag
from ringcast.audit.figures import figures
from ringcast.audit.verdict import audit
from ringcast.protocols.faults import Discard
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace
from ringcast.trace import PART

pytestmark = pytest.mark.spark

# The seed draws the incarnations, so no two runs have the same one.
SEEDS = {"mcast-udp": range(8), "nakack2-tcp": range(20, 25), "nakack2-udp": range(40, 45),
         "mcast-tcp": (9, 10)}
ROUNDS = 400


class EndDetector:
    """An on_message that knows when the last message of every sender has come."""

    def __init__(self, senders):
        self.missing = set(senders)
        self.done = threading.Event()

    def __call__(self, batch):
        if batch.payloads[-1] == b"last":
            self.missing.discard(batch.sender.name)
        if not self.missing:
            self.done.set()


def give_a_state(directory):
    """B comes later and is given A's state, and messages to it alone before. It holds
    back, and acknowledges, what A sends meanwhile."""
    given, is_held = {"A": [], "B": []}, threading.Event()

    def state():
        yield from [b"x" * 1000] * 200
        assert is_held.wait(30)

    def hold(a):
        wait_for(lambda: len(a.view) == 2)
        a.send_many([b"during"] * 20)
        wait_for(lambda: a.status().multicast.num_unacked == 0)
        is_held.set()

    def opened(name, **others):
        return Channel("state", name=name, on_message=lambda batch: given[name].extend(batch),
                       stack="inproc", trace=str(directory), on_state_request=state, on_state=list,
                       **others)

    with opened("A") as a, ThreadPoolExecutor() as pool:
        a.send_many([b"before"] * 20)
        held = pool.submit(hold, a)
        with opened("B", min_members=2) as b:
            held.result(30)
            a.send_many([b"after"] * 20)
            for _ in range(20):
                a.send(b"to B", dest="B")
                b.send(b"of B")
            wait_for(lambda: len(given["A"]) == len(given["B"]) == 80)


def test_a_state_that_was_given_is_no_violation(spark, tmp_path):
    give_a_state(tmp_path)
    result, _ = audit(spark, [tmp_path])
    assert not result.violations and not result.unproven
    assert result.groups.num_messages == 4 * 20 + 4 * 20


def exchange(directory, stack):
    """Let A, B and C send messages of all kinds, C leave, and the others go on."""
    ends = {name: EndDetector("AB") for name in "ABC"}
    per_member = {name: {"on_message": end} for name, end in ends.items()}
    if "udp" in stack:
        for name, options in per_member.items():
            options["faults"] = [Discard(0.1, random.Random(name))]
    port = free_port()
    with joined("ABC", per_member, stack=stack, port=port, trace=str(directory),
                max_bundle_size=2000) as group:
        for number in range(ROUNDS):
            for channel in group:
                channel.send_many([b"x" * 50] * 20)
                channel.send(b"oob", flags=Flag.OOB)
                channel.send(b"not to me", flags=Flag.DONT_LOOPBACK)
                channel.send(b"perhaps", flags=Flag.NO_RELIABILITY)
                channel.send(b"to one", dest="AB"[number % 2])
            if number % 50 == 0:
                group[0].send(b"large" * 15_000)
                group[1].send(b"large" * 14_000, dest="A")
            if number == ROUNDS // 2:
                group.pop().close()
        for channel in group:
            channel.send(b"last")
        assert all(ends[name].done.wait(PATIENCE) for name in "AB")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Record several groups in one directory."""
    directory = tmp_path_factory.mktemp("traces")
    for stack in ("inproc", "mcast-udp", "nakack2-tcp"):
        exchange(directory / stack, stack)
    return directory


@pytest.fixture(scope="module")
def result(spark, traces):
    return audit(spark, [traces])


@pytest.mark.udp
def test_live_groups_pass_with_loss_flags_fragments_and_a_view_change(result):
    audit_, groups = result[0], result[0].groups
    assert audit_.status == 0 and audit_.verdict.startswith("no promise was broken"), audit_.verdict
    assert len(groups.members) == 9 and all(member.is_closed for member in groups.members.values())
    assert any(sent.flags & PART for sent in groups.sent.values())
    assert any(got.flags & Flag.OOB for got in groups.got.values())
    assert any(stream.conn_id is not None for _, stream in groups.got)
    assert len({row["view_id"] for row in audit_.views}) > 3


@pytest.mark.udp
def test_figures_of_live_groups_are_those_of_their_traces(result):
    audit_, rows = result
    numbers = figures(rows, audit_.groups)
    assert numbers.total("deliver") == audit_.groups.num_messages
    own = rows.where("event = 'deliver' and sender = member").groupBy().sum("count").first()[0]
    assert numbers.histogram().total() + own == audit_.groups.num_messages
    median = numbers.percentile(0.5)
    delays = rows.where("event = 'deliver' and sender <> member").selectExpr(
        "explode(array_repeat(wall - sent_at, int(count))) as d")
    assert median == pytest.approx(delays.approxQuantile("d", [0.5], 0)[0] / 1e9, rel=0.1)
    assert numbers.total("retransmit") > 0 and 0 < numbers.duration < 600
    slowest = numbers.slowest_member() if sum(numbers.slowest.values()) else None
    assert slowest is None or slowest[0] in audit_.groups.members


def test_simulated_groups_with_faults_and_seqnos_that_wrap_pass(spark, tmp_path):
    faults, offsets, kinds, departed = set(), set(), set(), 0
    for stack, seeds in SEEDS.items():
        for seed in seeds:
            plan = draw(seed, Settings(stack=stack, duration=0.5))
            run = Run(plan)
            with Trace(run.cluster, tmp_path / stack / str(seed)):
                outcome = run.outcome()
            assert not outcome.check
            members = run.cluster.incarnations.values()
            faults |= {action.what for action in run.actions}
            offsets |= {member.offset for member in members}
            kinds |= {(start.durable, bool(start.replica)) for start in plan.starts.values()}
            departed += sum(len(view.departed) for member in members for view in member.views)
    assert {"crash", "crash at", "restart", "exclude", "leave"} <= faults and departed > 20
    assert {2**64 - 20, 2**63 - 20} <= offsets
    assert {is_durable for is_durable, _ in kinds} == {has_state for _, has_state in kinds} == {
        False, True}
    result, _ = audit(spark, [tmp_path], skew_ms=0)
    assert result.status == 0 and not result.incomplete and not result.untraced, result.verdict
    assert not list(result.clocks.sentences())
    assert any(not member.is_closed for member in result.groups.members.values())
    assert all(-(2**40) < got.first <= got.last < 2**40 for got in result.groups.got.values()
               if got.first is not None)
