"""The audit of groups that did nothing wrong: live ones with loss, flags, fragments and
a view change; simulated ones with faults."""

import random
import threading

import pytest
from channels import PATIENCE, joined
from ports import free_port

from ringcast import Flag
from ringcast.audit.figures import figures
from ringcast.audit.verdict import audit
from ringcast.protocols.faults import Discard
from ringcast.sim.runs.plan import Settings, draw
from ringcast.sim.runs.run import Run
from ringcast.sim.trace import Trace
from ringcast.trace import PART

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # the fixtures audit some hundred traces

# incarnations are drawn by the seed
SEEDS = {"mcast-udp": range(10), "nakack2-tcp": range(20, 25), "nakack2-udp": range(40, 45)}
WORDS = 400


class Ear:
    """An on_message that knows when the last word of every sender has come."""

    def __init__(self, senders):
        self.missing = set(senders)
        self.done = threading.Event()

    def __call__(self, batch):
        if batch.payloads[-1] == b"last":
            self.missing.discard(batch.sender.name)
        if not self.missing:
            self.done.set()


def talk(directory, stack):
    """A, B and C say all kinds of things, C leaves, and the others go on."""
    ears = {name: Ear("AB") for name in "ABC"}
    lossy = "udp" in stack
    per_member = {name: {"on_message": ear, "faults": [Discard(0.1, random.Random(name))] if lossy
                         else []}
                  for name, ear in ears.items()}
    port = free_port()
    with joined("ABC", per_member, stack=stack, port=port, trace=str(directory),
                max_bundle_size=2000) as group:
        for number in range(WORDS):
            for channel in group:
                channel.send_many([b"x" * 50] * 20)
                channel.send(b"oob", flags=Flag.OOB)
                channel.send(b"not to me", flags=Flag.DONT_LOOPBACK)
                channel.send(b"perhaps", flags=Flag.NO_RELIABILITY)
                channel.send(b"to one", dest="AB"[number % 2])
            if number % 50 == 0:
                group[0].send(b"large" * 15_000)
                group[1].send(b"large" * 14_000, dest="A")
            if number == WORDS // 2:
                group.pop().close()
        for channel in group:
            channel.send(b"last")
        assert all(ears[name].done.wait(PATIENCE) for name in "AB")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Of several groups in one directory, to be audited together."""
    directory = tmp_path_factory.mktemp("traces")
    for stack in ("inproc", "mcast-udp", "nakack2-tcp"):
        talk(directory / stack, stack)
    return directory


@pytest.fixture(scope="module")
def result(spark, traces):
    return audit(spark, [traces])


@pytest.mark.udp
def test_live_groups_pass_with_loss_flags_fragments_and_a_view_change(result):
    groups = result[0].groups
    assert result[0].status == 0 and result[0].verdict.startswith("no promise was broken"), result[0].verdict
    assert len(groups.members) == 9 and all(member.is_closed for member in groups.members.values())
    assert any(sent.flags & PART for sent in groups.sent.values()) and any(got.flags & Flag.OOB
                                                                           for got in groups.got.values())
    assert any(stream.conn_id is not None for _, stream in groups.got) and len({row["view_id"] for row in result[0].views}) > 3


@pytest.mark.udp
def test_figures_of_live_groups_are_those_of_their_traces(result):
    audit_, rows = result
    numbers = figures(rows, audit_.groups)
    assert numbers.total("deliver") == audit_.groups.num_messages
    assert numbers.histogram().total() + rows.where("event = 'deliver' and sender = member").groupBy().sum("count").first()[0] == (
        audit_.groups.num_messages)
    median = numbers.percentile(0.5)
    exact = rows.where("event = 'deliver' and sender <> member").selectExpr("explode(array_repeat(wall - sent_at, int(count))) as d")
    assert median == pytest.approx(exact.approxQuantile("d", [0.5], 0)[0] / 1e9, rel=0.1)
    assert numbers.total("retransmit") > 0 and 0 < numbers.duration < 600
    assert sum(numbers.slowest.values()) == 0 or numbers.slowest_member()[0] in audit_.groups.members


def test_simulated_groups_pass_with_crashes_restarts_exclusions_and_seqnos_that_wrap(spark,
                                                                                     tmp_path):
    faults, offsets = set(), set()
    for stack, seeds in SEEDS.items():
        for seed in seeds:
            run = Run(draw(seed, Settings(stack=stack)))
            with Trace(run.cluster, tmp_path / stack / str(seed)):
                outcome = run.outcome()
            assert not outcome.check
            faults |= {action.what for action in run.actions}
            offsets |= {member.offset for member in run.cluster.incarnations.values()}
    assert {"crash", "restart", "exclude", "leave"} <= faults and {2**64 - 20, 2**63 - 20} <= offsets
    result, _ = audit(spark, [tmp_path], skew_ms=0)
    assert sum(map(len, SEEDS.values())) == 20
    assert result.status == 0 and not result.incomplete and not result.untraced, result.verdict
    assert not list(result.clocks.sentences())
    assert any(not member.is_closed for member in result.groups.members.values())
    assert all(-(2**40) < got.first <= got.last < 2**40 for got in result.groups.got.values()
               if got.first is not None)
