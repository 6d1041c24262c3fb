"""`ringcast simulate`: its output, its exit status, its trace."""

import json
import re
import shlex
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as arrow
import pyarrow.compute as compute
import pyarrow.parquet as parquet
import pytest
from processes import RINGCAST, children, is_running, ringcast, wait_for

from ringcast.campaign.points import Point
from ringcast.cli.simulate import campaign, seeds as command
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.mixed import Mixed
from ringcast.sim.runs.run import Outcome, Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace
from ringcast.trace import VERSION, VERSION_KEY
from ringcast.trace.schema import SCHEMA


def test_seeds_run_on_all_cores_and_the_runs_are_summed_up():
    run = ringcast("simulate", "--seeds", "20", "--loss", "0.1", "--members", "3",
                   "--messages", "100")
    assert run.returncode == 0, run.stderr
    assert "no promise was broken in 20 runs" in run.stdout
    assert re.search(r"runs +20, of which 0 failed", run.stdout)
    assert re.search(r"on one core +[\d,]+ deliveries/s", run.stdout)


def test_workers_end_with_their_parent():
    run = subprocess.Popen([*RINGCAST, "simulate", "--seeds", "100000", "--workers", "2"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           start_new_session=True)
    try:
        wait_for(lambda: len(workers_of(run.pid)) == 2)
        workers = workers_of(run.pid)
    finally:
        run.kill()
        run.wait()
    wait_for(lambda: not any(is_running(worker) for worker in workers))


def workers_of(pid):
    """Return the children of a process that run something: not multiprocessing's
    tracker of resources."""
    found = []
    for child in children(pid):
        with suppress(OSError):                     # it may just have ended
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def test_one_seed_prints_its_plan_and_gives_the_same_run_each_time():
    first, second = (ringcast("simulate", "--seed", "7", "--crashes", "1", "--set", "capacity=5")
                     for _ in range(2))
    assert first.returncode == 0 and first.stdout == second.stdout
    assert all(word in first.stdout for word in ("capacity=5", "crash", "fingerprint"))


@pytest.mark.parametrize(("words", "says"), [
    (["--loss", "1.5"], "probability"),
    (["--seeds", "0"], "--seeds"),
    (["--workers", "-1"], "--workers"),
    (["--actions", "3"], "add --seed"),
    (["--set", "xmit_intervall=3"], "did you mean 'xmit_interval'"),
    (["--seed", "1", "--trace", "/proc/nowhere"], "cannot be written"),
    (["--set", "trace=x"], "give --trace DIR"),
    (["--stack", "inproc"], "no stack 'inproc' that connects processes"),
    (["--stack", "mcast-tcp", "--loss", "0.1"], "give breaks"),
    (["--breaks", "2"], "no connections that could break"),
    (["--loss", "0,0.1"], "add --spark"),
    (["--loss", "0;1"], "not a number"),
    (["--results", "rows"], "add --spark"),
    (["--mixed", "--steady", "0"], "leave out steady or mixed"),
    (["--mixed", "--spark"], "leave one of"),
    (["--audit", "--spark"], "leave one of"),
    (["--senders", "1"], "for a steady load"),
    (["--spark", "--seed", "1"], "leave one of"),
    (["--spark", "--members", "2,1"], "2 members or more"),
    (["--spark", "--set", "capacity=8,x"], "capacity"),
    (["--spark", "--limit", "0"], "--limit is 0"),
    (["--spark", "--limit", "nan"], "--limit is nan"),
    (["--spark", "--limit", "inf"], "at most a day"),
    (["--spark", "--report", "/nowhere/at/all.html"], "--report /nowhere/at/all.html: No such"),
    (["--spark", "--report", "."], "--report .: Is a directory"),
    (["--spark", "--results", "/proc/nowhere"], "cannot be kept"),
])
def test_an_impossible_option_is_one_sentence_and_status_2(words, says):
    run = ringcast("simulate", *words)
    assert run.returncode == 2 and says in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-udp", "nakack2-tcp"])
def test_every_stack_can_be_simulated(stack):
    run = ringcast("simulate", "--stack", stack, "--seeds", "6", "--messages", "50",
                   "--duration", "0.5")
    assert run.returncode == 0 and "no promise was broken in 6 runs" in run.stdout


def test_a_failure_is_listed_with_its_replay_and_status_1(monkeypatch, capsys):
    failed = Outcome(seed=5, check="gap", sentence="gap: somebody got it wrong", actions=9)
    shorter = Outcome(seed=5, check="gap", sentence="gap: shorter", actions=4)
    found = [failed, Outcome(seed=6, deliveries=99)]
    monkeypatch.setattr(command, "outcomes", lambda *_: (
        each for each in found))
    monkeypatch.setattr(command, "shortest_prefix", lambda seed, fixed, outcome, again: shorter)
    assert command.run_all(range(5, 7), Settings(loss=0.2, options={"capacity": "3"}), 1) == 1
    said = capsys.readouterr().out
    assert "FAILED  gap: shorter" in said
    assert "ringcast simulate --seed 5 --loss 0.2 --set capacity=3 --actions 4" in said
    assert "of which 1 failed and 0 had next to no traffic" in said


def test_as_json_there_is_a_line_for_each_failure_and_one_for_the_sum(monkeypatch, capsys):
    failed = Outcome(seed=5, check="gap", sentence="gap: somebody got it wrong", actions=9, cpu=0.5)
    monkeypatch.setattr(command, "outcomes", lambda *_: (
        each for each in [failed, Outcome(seed=6, deliveries=99, counters={"num_lost": 3})]))
    monkeypatch.setattr(command, "shortest_prefix", lambda seed, fixed, outcome, again: outcome)
    assert command.run_all(range(5, 7), Settings(loss=0.2), 1, as_json=True) == 1
    failure, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert failure == {"failure": {
        "seed": 5, "check": "gap", "sentence": "gap: somebody got it wrong",
        "replay": "ringcast simulate --seed 5 --loss 0.2 --actions 9"}}
    assert total["sum"] | {"runs": 2, "failed": 1, "deliveries": 99, "num_lost": 3,
                           "cpu": 0.5} == total["sum"]


def test_one_seed_as_json_is_what_its_text_says():
    words = ["simulate", "--seed", "7", "--crashes", "1", "--members", "3"]
    run = json.loads(ringcast(*words, "--json").stdout)["run"]
    said = ringcast(*words).stdout
    assert f"{run['deliveries']} deliveries, {run['events']} events" in said
    assert f"fingerprint {run['fingerprint']:08x}" in said
    assert (run["check"], run["replay"]) == ("", f"ringcast {shlex.join(words[:3])} --members 3 "
                                                 "--crashes 1")


def test_a_mixed_seed_is_repeated_by_the_command_that_it_names():
    """What is given is not drawn, also where it is the default."""
    given = ["--stack", "mcast-udp", "--no-sealed", "--messages", "40"]
    for seed in ("3", "5"):             # which draw another stack
        first = ringcast("simulate", "--seed", seed, "--mixed", *given).stdout
        named, rest = first.split("\n", 1)
        words = shlex.split(named.removeprefix("the same as "))
        assert "--mixed" not in words and "--sealed" not in words and "--stack" not in words
        assert ringcast(*words[1:]).stdout == rest


def test_many_mixed_seeds_run_side_by_side():
    run = ringcast("simulate", "--seeds", "6", "--mixed", "--messages", "20", "--unicast", "0")
    assert run.returncode == 0 and "no promise was broken in 6 runs" in run.stdout


def test_a_failure_of_a_mixed_seed_names_what_it_has_drawn(monkeypatch, capsys):
    monkeypatch.setattr(command, "outcomes", lambda *_: (
        each for each in [Outcome(seed=3, check="gap", sentence="gap", actions=9)]))
    monkeypatch.setattr(command, "shortest_prefix", lambda seed, fixed, outcome, again: outcome)
    assert command.run_all(range(3, 4), Mixed(), 1) == 1
    drawn = command.replay(3, Mixed().of_seed(3), 9)
    assert drawn in capsys.readouterr().out and "--members" in drawn


def test_a_campaign_as_json_has_its_settings_and_its_sum(capsys):
    point = Point(0.1, 8, 32_768, 3.0, 3, 3, 1e6, 1e6, 1e6, 0.5, 99.5, 0.1, 0.5)
    campaign.print_result([point], [{"status": "died", "error": "it died", "replay": "again"}])
    failure, setting, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert failure["failure"]["replay"] == "again"
    assert setting["setting"]["capacity"] == 32_768 and setting["setting"]["p99"] == 99.5
    assert total == {"sum": {"runs": 3, "failed": 1}}


def test_a_replay_command_means_the_same_settings():
    numbers = [name for name in Settings.__struct_fields__ if name not in ("options", "stack")]
    settings = Settings(**{**dict.fromkeys(numbers, 3), "loss": 0.25}, stack="mcast-tcp",
                        options={"capacity": "7", "xmit_interval": "2.5"})
    words = shlex.split(command.replay(11, settings, 2))
    assert words[:4] == ["ringcast", "simulate", "--seed", "11"]
    assert words[-2:] == ["--actions", "2"]
    given = dict(zip(words[4:-2:2], words[5:-2:2], strict=True))
    assert all(float(given["--" + name.replace("_", "-")]) == getattr(settings, name)
               for name in numbers)
    assert given["--stack"] == "mcast-tcp"
    help_text = ringcast("simulate", "--help").stdout
    assert [option for option in given if option not in help_text] == []


def test_many_runs_have_their_traces_in_folders_of_their_own(tmp_path):
    run = ringcast("simulate", "--seeds", "2", "--first", "3", "--members", "2", "--messages", "20",
                   "--trace", tmp_path)
    assert run.returncode == 0, run.stderr
    assert {trace.name for trace in tmp_path.iterdir()} == {"3", "4"}
    assert all([*trace.glob("*/*.parquet")] for trace in tmp_path.iterdir())


def test_a_trace_has_every_event_of_the_run(tmp_path):
    run = Run(draw(3, Settings(members=3, loss=0.2, leaves=0, crashes=0, slow=0, unicast=300)))
    with Trace(run.cluster, tmp_path) as trace:
        outcome = run.outcome()
    assert not outcome.check
    parts = [parquet.read_table(path) for path in sorted(tmp_path.glob("*/*.parquet"))]
    assert all(part.schema.names == SCHEMA.names and part.schema.metadata[VERSION_KEY] == VERSION
               for part in parts)
    table = arrow.concat_tables(parts, promote_options="permissive").unify_dictionaries()
    assert table.num_rows == trace.num_events
    count = Counter(table["event"].to_pylist())
    assert set(count) - {"blocked", "refuse", "start", "depart"} == {
        "send", "deliver", "ack", "xmit_req", "retransmit", "purge", "install", "view", "window",
        "close"}
    assert count["view"] == outcome.counters["num_views"]
    assert count["ack"] <= outcome.counters["acks_sent"] + outcome.counters["unicast_acks_sent"]

    def rows_of(event):
        return table.filter(compute.equal(table["event"], event))

    to_all = table.filter(compute.is_null(table["conn_id"]))
    to_one = table.filter(compute.is_valid(table["conn_id"]))

    def messages(event, rows=to_all):
        rows = rows.filter(compute.equal(rows["event"], event))
        return compute.sum(rows["count"]).as_py()

    incarnations = run.cluster.incarnations.values()
    assert messages("deliver") + messages("deliver", to_one) == outcome.deliveries
    assert messages("deliver", to_one) == outcome.counters["unicast_msgs_delivered"] > 0
    is_to_other = compute.not_equal(to_one["sender"].cast("string"), to_one["peer"].cast("string"))
    to_others = to_one.filter(is_to_other)
    assert messages("send", to_others) >= messages("deliver", to_others) > 0
    windows = [(member.multicast.send_window, member.offset) for member in incarnations]
    assert messages("send") == sum(window.sent - offset for window, offset in windows) % 2**64
    assert messages("retransmit") == outcome.counters["xmit_rsps_sent"]
    purged = sum((window.ring.low - offset) % 2**64 for window, offset in windows)
    assert messages("purge") == purged
    assert messages("xmit_req") == outcome.counters["num_missing_asked"]
    assert compute.min(table["wall"]).as_py() >= 0
    assert compute.max(table["wall"]).as_py() <= run.cluster.now
    delivered = to_all.filter(compute.equal(to_all["event"], "deliver"))
    assert compute.sum(delivered["nbytes"]).as_py() == sum(
        len(payload or b"") for member in incarnations for payloads in member.consumer.got.values()
        for payload in payloads)
    views = [tuple(map(str, view.members)) for member in incarnations for view in member.views]
    assert sorted(map(tuple, rows_of("view")["members"].to_pylist())) == sorted(views)
