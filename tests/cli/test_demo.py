"""The demo runs, and notices when its results differ from what was sent."""

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from processes import ringcast

from ringcast import Address, Batch, ConfigError
from ringcast.cli.demo import flights, members, report
from ringcast.cli.demo.members import DemoPlan, Outcome, Verifier
from ringcast.cli.demo.pipeline import rows_so_far
from ringcast.cli.demo.run import STALL_TIMEOUT, DemoError, DemoRun
from ringcast.journal.offsets import Copy, position

LATE = flights.announcements(1000)
PLAN = DemoPlan("demo-test", 2, 1000, 0.02, 1, {}, announcements=len(LATE))


def demo(*words, cwd=None):
    """Run the demo to its end; again if a Python of Spark's took more than the 10 s to
    start for which Spark waits, whatever its settings say."""
    for _ in range(3):
        run = ringcast("demo", *words, cwd=cwd)
        if not any(sign in run.stderr for sign in ("failed to connect back", "CANNOT_OPEN_SOCKET")):
            break
        shutil.rmtree(cwd / "kept", ignore_errors=True)
        (cwd / "demo.json").unlink(missing_ok=True)
    return run


class Judgement(NamedTuple):
    """Takes the place of what an audit found."""

    status: int
    verdict: str


def finished(tmp_path):
    """Return a run with the results of one without faults, without running it."""
    run = DemoRun(PLAN, tmp_path)
    run.outcomes = [
        Outcome("publisher-1", 500, PLAN.total), Outcome("publisher-2", 500, PLAN.total),
        Outcome("recorder", 0, PLAN.total), Outcome("spark", len(LATE))]
    run.announced = list(enumerate(LATE, 1))
    run.expected = flights.expected(PLAN.messages)
    run.computed = list(run.expected)
    run.streams = {"publisher-1#0000000000000001": (500, 500, 1, 500),
                   "publisher-2#0000000000000002": (500, 500, 1, 500)}
    return run


def test_a_run_without_faults_has_no_differences(tmp_path):
    assert finished(tmp_path).differences() == []


def test_the_document_has_what_differs_and_the_figures_of_all(tmp_path):
    run = finished(tmp_path)
    run.computed.pop()
    found = json.loads(json.dumps(report.as_object(run, run.differences())))
    assert "1 rows of the result differ" in found["differences"][0]
    assert len(found["delays"]) == len(run.expected) - 1
    assert sum(row["flights"] for row in found["delays"]) == 1000 - run.expected[-1][2]
    assert [each["sent"] for each in found["members"]] == [500, 500, 0, len(LATE)]
    assert found["streams"]["publisher-2#0000000000000002"] == {
        "rows": 500, "distinct": 500, "lowest": 1, "highest": 500}


def spoil_result(run):
    carrier, hour, count, *rest = run.computed[3]
    run.computed[3] = (carrier, hour, count + 1, *rest)


@pytest.mark.parametrize(("spoil", "says"), [
    (spoil_result, "2 rows of the result differ"),
    (lambda run: run.computed.pop(), "1 rows of the result differ"),
    (lambda run: run.computed.insert(0, run.computed[0]), "repeated"),
    (lambda run: setattr(run.outcomes[2], "delivered", 299),
     f"recorder got 299 messages, not {1000 + len(LATE)}"),
    (lambda run: setattr(run.outcomes[0], "unacked", 4),
     "4 messages of publisher-1 were not acknowledged"),
    (lambda run: run.outcomes[1].faults_found.append("after seqno 3 came 5"),
     "publisher-2: after seqno 3 came 5"),
    (lambda run: run.streams.update({"publisher-2#0000000000000002": (501, 500, 1, 500)}),
     "of publisher-2, which sent 500"),
    (lambda run: run.streams.pop("publisher-1#0000000000000001"), "None of publisher-1"),
    (lambda run: run.streams.update({"stranger#0000000000000003": (1, 1, 1, 1)}),
     "stranger, which sent nothing"),
    (lambda run: run.announced.pop(),
     f"{len(LATE) - 1} flights were announced and {len(LATE)} of the file are late"),
    (lambda run: run.announced.append((len(LATE), LATE[-1])), "each once"),
    (lambda run: run.announced.__setitem__(0, (1, "another")), "they differ in 2"),
    (lambda run: setattr(run, "audit", Judgement(1, "BROKEN: a message came twice")),
     "BROKEN: a message came twice"),
])
def test_every_difference_is_reported(tmp_path, spoil, says):
    run = finished(tmp_path)
    spoil(run)
    (difference,) = run.differences()
    assert says in difference


@pytest.mark.parametrize(("firsts", "found"), [
    ([1, 11, 21], 0), ([1, 21], 1), ([1, 11, 11], 1), ([11, 1], 2), ([2], 1),
], ids=["in order", "gap", "twice", "swapped", "late start"])
def test_the_verifier_detects_gaps_repeats_and_swaps(firsts, found):
    verifier = Verifier(30)
    for first in firsts:
        verifier(Batch(Address("A", 1), first, [b"x"] * 10))
    assert len(verifier.faults) == found


@pytest.mark.parametrize("copies", [[], [Copy("A", 1, 3, "")]])
@pytest.mark.parametrize("form", [json.dumps, dict])
def test_the_rows_of_a_query_are_counted_also_with_copies_in_its_offset(form, copies):
    offset = form(position({"A": 3, "B": 4}, copies))
    assert rows_so_far(SimpleNamespace(lastProgress={"sources": [{"endOffset": offset}]})) == 7


def test_publishers_share_all_records_without_overlap():
    shares = [flights.share(number, 3, 1000) for number in range(3)]
    assert sorted(line for share in shares for line in share) == sorted(flights.lines()[:1000])
    assert len(flights.lines()) == 336_776


def test_the_expected_figures_are_those_of_a_loop_over_the_file():
    delays = {}
    for line in flights.lines()[:2000]:
        row = dict(zip(flights.COLUMNS, line.decode().split(","), strict=True))
        each = delays.setdefault((row["carrier"], int(row["hour"])), [])
        each.append(None if row["dep_delay"] == "NA" else int(row["dep_delay"]))
    rows = []
    for key, each in sorted(delays.items()):
        known = [delay for delay in each if delay is not None]
        rows.append((*key, len(each), len(known), sum(known) if known else None,
                     min(known, default=None), max(known, default=None)))
    assert flights.expected(2000) == rows


def test_without_its_data_the_demo_says_what_to_install(monkeypatch):
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    flights.lines.cache_clear()
    with pytest.raises(ConfigError, match="pip install"):
        flights.lines()


def wait_for(event):
    event.wait(60)


def test_members_that_do_not_end_show_where_they_are(tmp_path, capfd):
    run = finished(tmp_path)
    stuck = run.context.Process(target=members.run, args=(wait_for, run.announcer_may_go),
                                name="publisher-1", daemon=True)
    stuck.start()
    run.processes.append(stuck)
    run.outcomes.pop(0)
    run.samples.append(report.Sample(0, 9, 8, 7, 0))
    while not is_handled(stuck.pid, members.SHOW_STACKS):
        time.sleep(0.01)
    with run.killing(), pytest.raises(DemoError, match="3 of 4 members are done"):
        run.check_progress([], STALL_TIMEOUT + 1)
    shown = capfd.readouterr().err
    assert "publisher-1:" in shown and "in wait_for" in shown


def is_handled(pid, number):
    """Return whether a process has a handler of a signal, by the mask that the kernel
    shows."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1


@pytest.mark.spark
@pytest.mark.udp
def test_the_demo_runs_and_writes_its_report(tmp_path):
    run = demo("--messages", "9000", "--loss", "0.05", "--publishers", "2", "--keep", "kept",
               "--json", "demo.json", cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "No message was lost, duplicated or out of order" in run.stdout
    assert "all equal" in run.stdout and "9,000 messages sent" in run.stdout
    late = len(flights.announcements(9000))
    deliveries = f"{3 * (9000 + late):,}"
    assert f"{deliveries} delivered to 3 members" in run.stdout
    assert f"{late} late flights announced" in run.stdout
    assert f"no promise was broken in {deliveries} deliveries of 4 members" in run.stdout
    page = (tmp_path / "ringcast-demo.html").read_text()
    assert page.count("plotly-graph-div") >= 6
    assert "ringcast-demo.html" in run.stdout             # as it was typed
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept == {"journal", "table", "checkpoints", "outbox", "traces"}
    found = json.loads((tmp_path / "demo.json").read_text())
    assert found["differences"] == [] and found["audit"]["status"] == 0 and found["cores_available"]
    assert [(each["name"], each["sent"], each["delivered"]) for each in found["members"]] == [
        ("publisher-1", 4500, 9000 + late), ("publisher-2", 4500, 9000 + late),
        ("recorder", 0, 9000 + late), ("spark", late, 0)]
    assert all(each["status"]["num_discard"] > 0 for each in found["members"])
    assert [tuple(row.values()) for row in found["delays"]] == flights.expected(9000)
    assert found["progress"][-1]["in_table"] == found["messages"] == 9000


@pytest.mark.spark
@pytest.mark.udp
def test_the_demo_runs_over_connections_without_retransmission(tmp_path):
    run = demo("--stack", "nakack2-tcp", "--messages", "3000", "--publishers", "2",
               "--json", "-", cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert (found["stack"], found["loss"], found["differences"]) == ("nakack2-tcp", 0, [])
    assert "No message was lost, duplicated or out of order" in run.stderr
    assert "retransmitted" in run.stderr        # what was sent before all had the view
    assert "over nakack2-tcp" in (tmp_path / "ringcast-demo.html").read_text()


@pytest.mark.parametrize(("options", "says"), [
    (["--stack", "nakack2-tcp", "--loss", "0.1"], "would not send them again"),
    (["--stack", "nakack"], "no stack 'nakack' that connects processes; choose one of mcast-udp"),
    (["--stack", "inproc"], "that connects processes"),
    (["--loss", "2"], "--loss"),
    (["--publishers", "0"], "--publishers"),
    (["--messages", "400000"], "--messages"),
    (["--frobnicate"], "--frobnicate"),
    (["--keep", "."], "name a new directory"),
    (["--keep", "/proc/no/kept"], "--keep /proc/no/kept: No such file"),
    (["--json", "no/such/folder"], "--json no/such/folder: No such file"),
    (["--report", "no/such/folder"], "--report no/such/folder: No such file"),
    (["--report", "."], "--report .: Is a directory"),
    (["--json", "demo.json", "--keep", "."], "name a new directory"),
    (["--set", "prot=1"], "did you mean 'port'"),
])
def test_an_impossible_option_has_status_2(tmp_path, options, says):
    run = demo(*options, cwd=tmp_path)
    assert run.returncode == 2
    assert says in run.stderr
    assert list(Path(tmp_path).iterdir()) == []
