"""`ringcast perf --unicast` measures what it says, its checks find every difference,
and it ends whatever its members do."""

import gc
import json
import signal
from dataclasses import replace

import pytest
from perf_processes import FIGURES, left_over, perf, signal_member
from ports import free_port
from typer.testing import CliRunner

from ringcast.cli.app import app
from ringcast.cli.perf import (
    measure,
    run as perf_run,
    table as perf_table,
    unicast as perf_unicast,
)
from ringcast.cli.perf.command import UNICAST_STACKS
from ringcast.cli.perf.peers import ChannelPeer, Together
from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.round_trip import END, RoundTripPeer, RoundTripPlan, Talker, percentiles
from ringcast.cli.perf.run import RunError, run_once

COMMON = {"group": "test", "size": 20, "seconds": 0.1, "timeout": 10}
ROUND_TRIPS = RoundTripPlan(**COMMON)
TIMES = {"round_trips", "p50_us", "p99_us", "p999_us", "retransmitted", "discarded_datagrams",
         "cores", "cores_others"}




# -------------------------------------------------------------------------------------- the command


@pytest.mark.prove
@pytest.mark.udp
def test_json_has_every_figure_of_every_run(tmp_path):
    target = tmp_path / "perf.json"
    done = perf("--unicast", "--size", 300, "--seconds", 0.1, "--runs", 2, "--port", free_port(),
                "--json", target)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    document = json.loads(target.read_text())
    assert {"ringcast", "python", "system", "cores_available", "seconds", "runs", "seed",
            "options"} <= set(document)
    rows, round_trips = document["rows"], document["round_trips"]
    assert [row["title"] for row in rows] == [
        "300 B, unicast, 1 -> 1", "300 B, 1 -> 1", "300 B, unicast, 1 -> 1, inproc",
        "300 B, 1 -> 1, inproc"]
    assert [row["title"] for row in round_trips] == [
        "300 B, UDP", "300 B, bare UDP sockets", "300 B, inproc"]
    for row in rows:
        assert set(row) == FIGURES | {
            "title", "naive", "members", "senders", "batch", "rate", "size", "loss", "stack",
            "unicast", "to_multicast", "limit", "all_runs"}
        assert [set(run) for run in row["all_runs"]] == [FIGURES, FIGURES]
        assert row["delivered_per_second"] > 0
        assert (row["to_multicast"] is not None) == row["unicast"]
        assert list(row["cores"]) == (["S+R1"] if row["stack"] == "inproc" else ["S", "R1"])
    for row in round_trips:
        assert set(row) == TIMES | {"title", "over", "size", "loss", "to_bare", "all_runs"}
        assert [set(run) for run in row["all_runs"]] == [TIMES, TIMES]
        assert 0 < row["p50_us"] <= row["p99_us"] <= row["p999_us"] and row["round_trips"] >= 1
        assert (row["to_bare"] is None) == (row["over"] == "bare UDP sockets")
    assert all(row["title"] in done.stdout for row in rows + round_trips)


@pytest.mark.prove
@pytest.mark.udp
def test_rows_with_loss_are_complete_and_have_what_was_repeated():
    done = perf("--unicast", "--loss", 0.3, "--seconds", 0.3, "--runs", 1, "--size", 1000,
                "--xmit-interval", 2, "--port", free_port(), "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    for row in document["rows"] + document["round_trips"]:
        if row["title"] == "1,000 B, bare UDP sockets":
            assert row["loss"] == row["retransmitted"] == row["discarded_datagrams"] == 0
        else:
            assert row["title"].endswith("30 % lost"), row
            assert row["discarded_datagrams"] > 0 and row["retransmitted"] > 0, row


@pytest.mark.parametrize(("given", "throughput", "round_trips"), [
    ([], {"1,000 B", "100 B"}, {"100 B"}), (["--size", "7,8"], {"7 B", "8 B"}, {"7 B", "8 B"})])
def test_the_sizes_are_those_asked_for(given, throughput, round_trips, monkeypatch):
    plans = []
    monkeypatch.setattr(measure, "measure", lambda all_plans, runs: plans.extend(all_plans))
    monkeypatch.setattr(perf_unicast, "sections", lambda *_: {})
    assert CliRunner().invoke(app, ["perf", "--unicast", *given]).exit_code == 0
    sizes = {kind: {plan.title.split(" B")[0] + " B" for plan in plans if type(plan) is kind}
             for kind in (PerfPlan, RoundTripPlan)}
    assert sizes == {PerfPlan: throughput, RoundTripPlan: round_trips}


# -------------------------------------------------------------------------------------- the figures


def test_percentiles_are_nearest_ranks():
    assert percentiles([5000, 1000, 3000]) == {"round_trips": 3, "p50_us": 3, "p99_us": 5,
                                               "p999_us": 5}
    assert percentiles(range(1000, 1_001_000, 1000)) == {"round_trips": 1000, "p50_us": 500,
                                                         "p99_us": 990, "p999_us": 999}


def test_a_ratio_is_the_median_of_neighbours():
    ours, theirs = ([{"rate": rate} for rate in rates] for rates in ([10, 200, 3], [5, 400, 1]))
    assert perf_table.ratio("rate", ours, theirs) == 2


def test_rows_are_compared_with_multicast_and_with_bare_sockets():
    plans = perf_unicast.plans_of(UNICAST_STACKS, [100, 50], [100, 50], 0.1,
                                  {"group": "", "seconds": 1, "timeout": 1})
    results = [[{**dict.fromkeys(FIGURES | TIMES, 0), "cores": {},
                 "delivered_per_second": 1 << number, "p50_us": 1 << number}]
               for number, _ in enumerate(plans)]
    tables = {name: section.rows for name, section in perf_unicast.sections(plans, results).items()}
    assert [row["to_multicast"] for row in tables["rows"]] == [0.5, None] * 4
    assert [row["to_bare"] for row in tables["round_trips"]] == [0.5, None, 2] * 2


# --------------------------------------------------------------------------------- what is measured


@pytest.mark.parametrize("unicast", [True, False])
def test_a_row_sends_by_unicast_or_by_multicast_and_never_both(unicast):
    plan = PerfPlan(**COMMON, members=2, senders=1, stack="inproc", unicast=unicast)
    sender, receiver = ChannelPeer(plan, "S"), ChannelPeer(plan, "R1")
    pair = Together([sender, receiver])
    pair.join()
    sent = pair.work(0.01)
    pair.checkers[0].await_all(sent, 10)
    assert pair.await_acks(10) == 0 and pair.checkers[0].verdict(sent) == ""
    assert sender.channel.status().unicast.conns_opened == unicast
    assert sender.channel.status().multicast.hr == (0 if unicast else sent["S"])
    pair.close(10)


def test_members_of_inproc_share_a_process():
    plan = PerfPlan(**COMMON, members=2, senders=1, stack="inproc")
    assert plan.processes == ["S+R1"] and plan.sends("S+R1") and plan.receives("S+R1")
    assert replace(plan, stack="mcast-udp").processes == ["S", "R1"]
    assert replace(ROUND_TRIPS, stack="inproc").processes == ["A+B"]


class ScriptedTalker(Talker):
    """Hears what a test has given: (number, payload)."""

    def __init__(self, name, script, plan=ROUND_TRIPS):
        super().__init__(plan, name)
        self.script = iter(script)
        self.said = []
        self.collecting = None

    def send(self, payload):
        self.said.append(payload)

    def receive(self):
        self.collecting = gc.isenabled()
        return next(self.script)


def test_each_question_waits_for_its_answer_and_garbage_is_collected_at_the_end():
    answers = ROUND_TRIPS.payloads("B")
    talker = ScriptedTalker("A", [(1, answers[0]), (2, answers[1])])
    assert talker.work(0) == {"A": 2}                   # one to warm up, one that counts
    assert talker.said == [*ROUND_TRIPS.payloads("A")[:2], END]
    assert talker.figures()["round_trips"] == 1
    assert talker.collecting is False and gc.isenabled()
    assert talker.checker.verdict({"A": 2, "B": 2}) == ""


def test_the_first_member_asks_also_if_its_key_gives_its_name_a_prefix():
    plan = replace(ROUND_TRIPS, prefix="tower/")
    answers = plan.payloads("tower/B")
    talker = ScriptedTalker("tower/A", [(1, answers[0]), (2, answers[1])], plan)
    assert talker.work(0) == {"tower/A": 2} and talker.figures()["round_trips"] == 1


@pytest.mark.parametrize(("numbers", "said"), [
    ([1, 1], "B's message 1 was followed by 1: again"),
    ([1, 3], "B's message 1 was followed by 3: 1 missing")])
def test_an_answer_to_another_question_is_a_difference(numbers, said):
    answers = ROUND_TRIPS.payloads("B")
    talker = ScriptedTalker("A", [(number, answers[number - 1]) for number in numbers])
    talker.work(0)
    assert said in talker.checker.verdict({"A": 2, "B": 2})


def test_every_question_is_answered_until_the_end():
    questions = ROUND_TRIPS.payloads("A")
    talker = ScriptedTalker("B", [(1, questions[0]), (2, questions[1]), (3, END)])
    assert talker.work(0) == {"B": 2} and talker.said == ROUND_TRIPS.payloads("B")[:2]
    assert talker.checker.verdict({"A": 2, "B": 2}) == "" and not talker.figures()


@pytest.fixture
def peers():
    """Join two peers in one process. Yield the asking one, the answering one, both."""
    plan = replace(ROUND_TRIPS, stack="inproc")
    asking, answering = both = [RoundTripPeer(plan, name) for name in plan.names]
    pair = Together(both)
    pair.join()
    yield asking, answering, pair
    pair.close(10)


def test_only_a_message_that_its_receiver_finished_is_settled(peers):
    """The last answer is finished only because both continue to listen."""
    asking, answering, pair = peers
    asking.send(b"question")
    assert answering.receive() == (1, b"question")
    assert pair.await_acks(0.05) == 1
    answering.drain()
    assert pair.await_acks(10) == 0


def test_a_message_after_the_end_is_a_difference(peers):
    asking, answering, pair = peers
    answering.drain()
    asking.send(b"?")
    assert pair.await_acks(10) == 0
    assert "A's messages 1 to 1 do not have the payloads" in answering.checker.verdict({"A": 0})


# ------------------------------------------------------------------------- members that die or hang


@pytest.mark.prove
@pytest.mark.udp
@pytest.mark.kill
@pytest.mark.parametrize(("changes", "name"), [
    ({}, "A"), ({}, "B"), ({"bare": True}, "B"), ({"stack": "inproc"}, "A+B"),
], ids=["A", "B", "bare", "inproc"])
def test_a_killed_member_ends_the_run(changes, name):
    plan = replace(ROUND_TRIPS, seconds=30, options={"port": free_port()}, **changes)
    killer = signal_member(name, signal.SIGKILL, sending=60)
    with pytest.raises(RunError, match=r"[AB+]+ died while \w+ \(killed by SIGKILL\)"):
        run_once(plan)
    killer.join()
    assert not left_over(plan)


@pytest.mark.prove
@pytest.mark.udp
@pytest.mark.kill
def test_a_member_that_hangs_ends_the_run(monkeypatch):
    monkeypatch.setattr(perf_run, "GRACE", 2.0)
    plan = replace(ROUND_TRIPS, seconds=3, timeout=3, options={"port": free_port()})
    killer = signal_member("B", signal.SIGSTOP, sending=60)
    with pytest.raises(RunError, match=r"did not finish \w+"):
        run_once(plan)
    killer.join()
    assert not left_over(plan)
