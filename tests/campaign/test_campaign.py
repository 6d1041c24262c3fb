"""Campaigns on Spark: the same results as without it, whatever runs and workers do; and
the command."""

import _thread
import os
import shlex
import subprocess
import sys
import time

import msgspec
import pytest
from pyspark import SparkContext

from ringcast.campaign import jobs, report
from ringcast.campaign.jobs import Campaign
from ringcast.campaign.points import points
from ringcast.campaign.results import Results
from ringcast.campaign.runs import plan
from ringcast.cli import campaign as command
from ringcast.errors import RingcastError
from ringcast.histogram import Histogram
from ringcast.sim.runs.plan import Settings
from ringcast.sim.runs.run import simulate

pytestmark = pytest.mark.spark
FIXED = Settings(duration=0.03)
AXES = {"loss": [0.0, 0.05], "capacity": [16, 64], "xmit_interval": [3.0]}
LIMIT = 15.0                            # seconds of a run; a healthy one takes a hundredth of it
ERROR, HANGS, DIES, IS_DEAF, STOPS = 100, 101, 102, 103, 104         # seeds that plant something


def planted(seed, settings):
    """What goes wrong here goes wrong in a worker; the workers get this function by
    value, as they cannot import it."""
    import ctypes
    import os
    import signal

    from ringcast.sim.runs.run import simulate

    if seed == 100:
        raise ValueError("planted")
    if seed == 101:
        while True:
            signal.pause()
    if seed == 102:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 103:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        ctypes.PyDLL(None).sleep(600)  # in compiled code, with the interpreter's lock, and no
                                       # signal wakes it
    if seed == 104:
        os.kill(os.getpid(), signal.SIGSTOP)
    return simulate(seed, settings)


planted.__module__ = "__main__"             # else it is taken for something that can be imported


def runs_of(*seeds):
    return plan(FIXED, {"loss": [0.0], "capacity": [16], "xmit_interval": [3.0]}, seeds)


def rows_of(results, runs):
    return {row["run"]: row for row in results.rows_of(run.name for run in runs).to_pylist()}


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory):
    """A campaign that ran to its end: its runs, and the folder with its rows."""
    folder, runs, told = tmp_path_factory.mktemp("results"), plan(FIXED, AXES, range(3)), []
    Campaign(spark, runs, Results(folder), told=told.append).run()
    assert sum(map(len, told)) == len(runs) == 12
    return runs, folder


def test_the_results_are_those_of_the_simulator(whole):
    runs, folder = whole
    rows = rows_of(Results(folder), runs)
    for run in runs:
        outcome, row = simulate(run.seed, run.settings), rows[run.name]
        assert row["status"] == "ok" and row["fingerprint"] == outcome.fingerprint and dict(row["counters"]) == outcome.counters
        assert row["throughput"] == outcome.measured.throughput and row["latency_max"] == outcome.measured.slowest


def test_the_replay_command_gives_the_same_run(whole):
    runs, folder = whole
    row = rows_of(Results(folder), runs)[runs[-1].name]
    run = subprocess.run([sys.executable, "-c", "from ringcast.cli import main; main()",
                          *shlex.split(row["replay"])[1:]],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert f"{row['deliveries']} deliveries, {row['events']} events" in run.stdout
    assert f"fingerprint {row['fingerprint']:08x}" in run.stdout and f"{row['throughput']:,.0f} messages/s" in run.stdout


def test_a_campaign_goes_on_where_it_was_stopped(spark, whole, tmp_path):
    runs, folder = whole
    assert Campaign(spark, runs, Results(folder)).to_run == []
    parts = sorted(folder.glob("part-*.parquet"))
    (tmp_path / parts[0].name).write_bytes(parts[0].read_bytes())
    (tmp_path / ("part-0" + parts[1].name)).write_bytes(parts[1].read_bytes()[:-100])
    torn = Results(tmp_path)
    there = torn.done()
    again = Campaign(spark, runs, torn)
    assert 0 < len(there) < len(runs) and {run.name for run in again.to_run} == {run.name for run in runs} - there
    again.run()
    kept, first = rows_of(Results(tmp_path), runs), rows_of(Results(folder), runs)
    assert kept.keys() == first.keys() and all(kept[name]["fingerprint"] == row["fingerprint"]
                                               for name, row in first.items())
    assert spark.read.parquet(str(folder)).count() == len(runs)


def test_the_figures_of_a_point_are_those_of_its_runs(spark, whole):
    runs, folder = whole
    table = Results(folder).rows_of(run.name for run in runs)
    rows = table.to_pylist()
    rows[0]["status"] = "broken"
    found = points(spark, type(table).from_pylist(rows, table.schema))
    assert [(each.loss, each.capacity) for each in found] == [(0.0, 16), (0.0, 64), (0.05, 16),
                                                              (0.05, 64)]
    for each in found:
        ok = [row for row in rows if (row["loss"], row["capacity"]) == (each.loss, each.capacity)
              and row["status"] == "ok"]
        spoilt = (rows[0]["loss"], rows[0]["capacity"]) == (each.loss, each.capacity)
        assert each.runs == 3 and each.ok == len(ok) == 3 - spoilt
        assert each.throughput == pytest.approx(sum(row["throughput"] for row in ok) / len(ok))
        wire, payload = (sum(sum(dict(row["sent_bytes"]).values()) for row in ok),
                         sum(row["payload_bytes"] for row in ok))
        assert each.overhead == pytest.approx(wire / payload - 1)
        merged = {}
        for row in ok:
            for latency in row["latency"]:
                merged[latency["class"]] = merged.get(latency["class"], 0) + latency["count"]
        slowest = max(row["latency_max"] for row in ok)
        assert [each.p50, each.p99] == [min(Histogram(merged).percentile(share), slowest) / 1e6
                                        for share in (0.5, 0.99)]


def test_where_nothing_was_sent_there_are_no_figures(spark):
    runs = plan(Settings(duration=0.1, steady=0.3),
                {"loss": [0.0], "capacity": [16], "xmit_interval": [3.0]}, [1])
    results = Results()
    Campaign(spark, runs, results).run()
    (found,) = points(spark, results.rows_of(run.name for run in runs))
    assert (found.ok, found.p99, found.overhead) == (1, None, None) and report.cells(found)[4] == "nothing was sent"


def test_whatever_a_run_does_the_others_have_their_rows(spark):
    """An error, a hang in Python, a hang in compiled code, a dead process, one that
    stands still: each is a row that says so."""
    runs, results = runs_of(IS_DEAF, STOPS, HANGS, ERROR, DIES, *range(6)), Results()
    Campaign(spark, runs, results, limit=LIMIT, grace=1.0, simulate=planted).run()
    rows = {row["seed"]: row for row in rows_of(results, runs).values()}
    assert {seed: row["status"] for seed, row in rows.items()} == {
        ERROR: "error", HANGS: "timeout", DIES: "died", IS_DEAF: "timeout", STOPS: "timeout",
        **dict.fromkeys(range(6), "ok")}
    assert rows[ERROR]["error"] == "ValueError: planted" and "in planted" in rows[ERROR][
        "traceback"]
    assert f"ended after {LIMIT:.0f} seconds" in rows[HANGS]["error"] and "in planted" in rows[HANGS]["traceback"]
    assert "nor when it was told to" in rows[STOPS]["error"]
    assert "nor when it was told to" in rows[IS_DEAF]["error"] and "in planted" in rows[IS_DEAF][
        "traceback"]
    assert "Python worker exited unexpectedly" in rows[DIES]["traceback"] and "\tat org.apache" not in rows[DIES]["traceback"]
    assert all(shlex.split(row["replay"])[3] == str(seed) and row["version"] for seed,
               row in rows.items())


def test_an_interrupt_ends_it_and_keeps_what_is_finished(spark, tmp_path):
    runs = runs_of(0, HANGS, 1)
    results = Results(tmp_path)

    def told(rows):
        if len(results.done()) == 2:
            _thread.interrupt_main()

    campaign = Campaign(spark, runs, results, simulate=planted, told=told)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        campaign.run()
    assert Results(tmp_path).done() == {runs[0].name, runs[2].name}
    assert time.monotonic() - began < 60            # and not the 300 seconds that a run may take


def test_what_is_no_runs_fault_ends_the_campaign(spark, monkeypatch):
    def full(rows):
        raise OSError(28, "No space left on device")

    results = Results()
    monkeypatch.setattr(results, "add", full)
    with pytest.raises(OSError, match="No space left"):
        Campaign(spark, runs_of(0, 1), results).run()

    def missing():
        raise ModuleNotFoundError("No module named 'ringcast'")

    class Unknown:
        """Something that a worker cannot unpickle."""

        def __reduce__(self):
            return missing, ()

    missing.__module__ = "__main__"
    with pytest.raises(RingcastError, match="(?s)could not run.*No module named"):
        Campaign(spark, runs_of(0), Results(), simulate=Unknown()).run()


# -------------------------------------------------------------------------------------- the command

class Lent:
    """The session of all tests, which nobody is to stop."""

    def __init__(self, spark):
        self._spark = spark

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def stop(self):
        pass


@pytest.fixture
def lent(spark, monkeypatch):
    monkeypatch.setattr(command, "started", lambda master, conf: Lent(spark))


def carry_out(results, seeds=range(2), **paths):
    axes = {name: list(values) for name, values in AXES.items()}
    return command.run(FIXED, axes, seeds, master="", results=results, limit=60.0,
                       report=paths.get("report"))


def test_the_command_answers_in_a_table_a_sentence_and_a_page(lent, whole, tmp_path, capsys):
    assert carry_out(whole[1], range(3), report=tmp_path / "page.html") == 0
    said = capsys.readouterr()
    assert "no promise was broken in 12 runs" in said.out and "For 0.05 loss and 3 members take a capacity of" in said.out
    assert "12/12" in said.err
    page = (tmp_path / "page.html").read_text()
    assert "For 0.05 loss and 3 members" in page and "<script src" not in page and page.count("Plotly.newPlot(") == 2


def test_a_run_that_failed_is_status_1_with_its_replay(lent, monkeypatch, capsys):
    class Planted(Campaign):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, simulate=planted, **keywords)

    monkeypatch.setattr(jobs, "Campaign", Planted)
    assert carry_out(None, [ERROR]) == 1
    said = capsys.readouterr()
    assert said.out.count("ERROR  ValueError: planted\n        ringcast simulate --seed 100") == 4
    assert "4 of 4 runs failed. Nothing was measured." in said.out and "replay: ringcast simulate --seed 100" in said.err


def test_an_interrupted_command_says_what_is_kept(lent, whole, monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "run", interrupted)
    assert carry_out(whole[1], range(4)) == command.INTERRUPTED
    assert f"interrupted: 12 of 16 runs are kept in {whole[1]}" in capsys.readouterr().out


def test_settings_become_axes():
    fixed, axes = command.order(Settings(), {"capacity": "8,64", "ack_threshold": "5"},
                                loss=(0.0, 0.1), members=None)
    assert fixed == Settings(options={"ack_threshold": "5"}) and axes == {"loss": [0.0, 0.1],
                                                                          "capacity": [8, 64]}
    run = plan(*command.order(Settings(), {"xmit_interval": "2.5"}, members=(2,)), [1])[0]
    assert run.settings.options["xmit_interval"] == 2.5 and run.settings.members == 2 and msgspec.json.encode(run)


def test_no_java_is_one_sentence(monkeypatch, tmp_path):
    def none():
        raise RingcastError("Spark needs Java 17 or later and none was found: install one")

    monkeypatch.setattr(sys.modules["ringcast.spark.session"], "find_java", none)
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    with pytest.raises(RingcastError, match="Spark needs Java 17"):
        command.run(FIXED, {}, [1], master="local[1]", results=tmp_path, report=None, limit=60.0)
