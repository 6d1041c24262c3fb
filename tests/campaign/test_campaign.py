"""A campaign on Spark has the same results as runs without it, whatever runs and
workers do. With the command."""

import _thread
import os
import shlex
import sys
import time
from collections import Counter
from functools import partial

import msgspec
import pytest
from processes import ringcast
from pyspark import SparkContext

from ringcast.campaign import jobs, report
from ringcast.campaign.jobs import Campaign
from ringcast.campaign.points import points
from ringcast.campaign.results import Results
from ringcast.campaign.runs import plan
from ringcast.cli.simulate import campaign as command
from ringcast.errors import RingcastError
from ringcast.histogram import Histogram
from ringcast.sim.runs.run import simulate
from ringcast.sim.runs.settings import Settings

pytestmark = pytest.mark.spark
FIXED = Settings(duration=0.03)
AXES = {"loss": [0.0, 0.05], "capacity": [16, 64], "xmit_interval": [3.0]}
LIMIT = 15.0                            # seconds of a run; a healthy one takes a hundredth of it
ERROR, HANGS, DIES, IS_DEAF, STOPS = 100, 101, 102, 103, 104         # seeds that plant something


def planted(seed, settings):
    """Do what the seed says in a worker, or run the simulator. The workers get this
    function by value, as they cannot import it."""
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
        # in compiled code, with the interpreter's lock: no signal wakes it
        ctypes.PyDLL(None).sleep(600)
    if seed == 104:
        os.kill(os.getpid(), signal.SIGSTOP)
    return simulate(seed, settings)


def dies_once(mark, seed, settings):
    """Kill the worker, unless `mark` is there; else run the simulator."""
    import os
    import signal
    from pathlib import Path

    from ringcast.sim.runs.run import simulate

    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return simulate(seed, settings)


for function in (planted, dies_once):
    function.__module__ = "__main__"        # else the workers would try to import it


def runs_of(*seeds):
    return plan(FIXED, {"loss": [0.0], "capacity": [16], "xmit_interval": [3.0]}, seeds)


def rows_of(results, runs):
    return {row["run"]: row for row in results.rows_of(run.name for run in runs).to_pylist()}


def matches(row, outcome):
    """Say whether a row has the figures of a run's outcome."""
    measured = outcome.measured
    return (row["status"] == "ok" and row["fingerprint"] == outcome.fingerprint
            and dict(row["counters"]) == outcome.counters
            and row["throughput"] == measured.throughput
            and row["latency_max"] == measured.slowest)


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory):
    """Run a campaign to its end. Return its runs, and the folder with its rows."""
    folder, runs, told = tmp_path_factory.mktemp("results"), plan(FIXED, AXES, range(3)), []
    Campaign(spark, runs, Results(folder), on_rows=told.append).run()
    assert sum(map(len, told)) == len(runs) == 12
    return runs, folder


def test_the_results_are_those_of_the_simulator(whole):
    runs, folder = whole
    rows = rows_of(Results(folder), runs)
    for run in runs:
        assert matches(rows[run.name], simulate(run.seed, run.settings)), run


def test_the_replay_command_gives_the_same_run(whole):
    runs, folder = whole
    row = rows_of(Results(folder), runs)[runs[-1].name]
    run = ringcast(*shlex.split(row["replay"])[1:])
    assert run.returncode == 0, run.stderr
    assert f"{row['deliveries']} deliveries, {row['events']} events" in run.stdout
    assert f"fingerprint {row['fingerprint']:08x}" in run.stdout
    assert f"{row['throughput']:,.0f} messages/s" in run.stdout


def test_a_campaign_continues_where_it_was_stopped(spark, whole, tmp_path):
    runs, folder = whole
    assert Campaign(spark, runs, Results(folder)).to_run == []
    parts = sorted(folder.glob("part-*.parquet"))
    (tmp_path / parts[0].name).write_bytes(parts[0].read_bytes())
    (tmp_path / ("part-0" + parts[1].name)).write_bytes(parts[1].read_bytes()[:-100])
    torn = Results(tmp_path)
    there = torn.done()
    again = Campaign(spark, runs, torn)
    assert 0 < len(there) < len(runs)
    assert {run.name for run in again.to_run} == {run.name for run in runs} - there
    again.run()
    kept, first = rows_of(Results(tmp_path), runs), rows_of(Results(folder), runs)
    assert kept.keys() == first.keys()
    assert all(kept[name]["fingerprint"] == first[name]["fingerprint"] for name in first)
    assert spark.read.parquet(str(folder)).count() == len(runs)


def test_the_figures_of_a_point_are_those_of_its_runs(spark, whole):
    runs, folder = whole
    table = Results(folder).rows_of(run.name for run in runs)
    rows = table.to_pylist()
    rows[0]["status"] = "broken"
    found = points(spark, type(table).from_pylist(rows, table.schema))
    points_of_axes = [(0.0, 16), (0.0, 64), (0.05, 16), (0.05, 64)]
    assert [(each.loss, each.capacity) for each in found] == points_of_axes
    for each in found:
        mine = [row for row in rows if (row["loss"], row["capacity"]) == (each.loss, each.capacity)]
        ok = [row for row in mine if row["status"] == "ok"]
        spoilt = rows[0] in mine
        assert each.runs == 3 and each.ok == len(ok) == 3 - spoilt
        assert each.throughput == pytest.approx(sum(row["throughput"] for row in ok) / len(ok))
        wire = sum(sum(dict(row["sent_bytes"]).values()) for row in ok)
        payload = sum(row["payload_bytes"] for row in ok)
        assert each.overhead == pytest.approx(wire / payload - 1)
        merged = Counter()
        for row in ok:
            merged.update({latency["class"]: latency["count"] for latency in row["latency"]})
        slowest = max(row["latency_max"] for row in ok)
        assert [each.p50, each.p99] == [min(Histogram(merged).percentile(share), slowest) / 1e6
                                        for share in (0.5, 0.99)]


def test_where_nothing_was_sent_there_are_no_figures(spark):
    runs = plan(Settings(duration=0.1, steady=0.3),
                {"loss": [0.0], "capacity": [16], "xmit_interval": [3.0]}, [1])
    results = Results()
    Campaign(spark, runs, results).run()
    (found,) = points(spark, results.rows_of(run.name for run in runs))
    assert (found.ok, found.p99, found.overhead) == (1, None, None)
    assert report.cells(found)[4] == "nothing was sent"


def test_whatever_one_run_does_the_others_have_their_rows(spark):
    """An error, a hang in Python, a hang in compiled code, a dead process and a stopped
    one each become a row that says so."""
    runs, results = runs_of(IS_DEAF, STOPS, HANGS, ERROR, DIES, *range(6)), Results()
    Campaign(spark, runs, results, limit=LIMIT, grace=5.0, simulate=planted).run()
    rows = {row["seed"]: row for row in rows_of(results, runs).values()}
    assert {seed: row["status"] for seed, row in rows.items()} == {
        ERROR: "error", HANGS: "timeout", DIES: "died", IS_DEAF: "timeout", STOPS: "timeout",
        **dict.fromkeys(range(6), "ok")}
    hangs, stops, deaf, dies = rows[HANGS], rows[STOPS], rows[IS_DEAF], rows[DIES]
    assert rows[ERROR]["error"] == "ValueError: planted"
    assert all("in planted" in row["traceback"] for row in (rows[ERROR], hangs, deaf))
    assert f"ended after {LIMIT:.0f} seconds" in hangs["error"]
    assert all("nor when it was told to" in row["error"] for row in (stops, deaf))
    assert "Python worker exited unexpectedly" in dies["traceback"]
    assert "\tat org.apache" not in dies["traceback"]
    assert all(shlex.split(row["replay"])[3] == str(row["seed"]) and row["version"]
               for row in rows.values())


def test_a_run_that_was_alone_when_its_worker_was_killed_is_tried_once_more(spark, tmp_path):
    """The system kills workers that take too much memory, also those of good runs."""
    (run,), results = runs_of(0), Results()
    Campaign(spark, [run], results, simulate=partial(dies_once, str(tmp_path / "mark"))).run()
    assert (tmp_path / "mark").exists()
    assert rows_of(results, [run])[run.name]["status"] == "ok"


def test_an_interrupt_ends_a_campaign_and_keeps_finished_rows(spark, tmp_path):
    runs = runs_of(0, HANGS, 1)
    results = Results(tmp_path)

    def told(rows):
        if len(results.done()) == 2:
            _thread.interrupt_main()

    campaign = Campaign(spark, runs, results, simulate=planted, on_rows=told)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        campaign.run()
    assert Results(tmp_path).done() == {runs[0].name, runs[2].name}
    assert time.monotonic() - began < 60            # a run may take 300 seconds


def test_an_error_outside_the_runs_ends_the_campaign(spark, monkeypatch):
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
    """The session of all tests, which the command must not stop."""

    def __init__(self, spark):
        self._spark = spark

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def stop(self):
        pass


@pytest.fixture
def lent(spark, monkeypatch):
    monkeypatch.setattr(command, "start_spark", lambda master, conf: Lent(spark))


def run_command(results, seeds=range(2), **paths):
    axes = {name: list(values) for name, values in AXES.items()}
    return command.run(FIXED, axes, seeds, master="", results=results, limit=60.0,
                       report=paths.get("report"))


def test_the_command_answers_in_a_table_a_sentence_and_a_page(lent, whole, tmp_path, capsys):
    assert run_command(whole[1], range(3), report=tmp_path / "page.html") == 0
    said = capsys.readouterr()
    assert "no promise was broken in 12 runs" in said.out and "12/12" in said.err
    assert "For 0.05 loss and 3 members take a capacity of" in said.out
    page = (tmp_path / "page.html").read_text()
    assert "For 0.05 loss and 3 members" in page
    assert "<script src" not in page and page.count("Plotly.newPlot(") == 2


def test_a_run_that_failed_is_status_1_with_its_replay(lent, monkeypatch, capsys):
    class Planted(Campaign):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, simulate=planted, **keywords)

    monkeypatch.setattr(jobs, "Campaign", Planted)
    assert run_command(None, [ERROR]) == 1
    said = capsys.readouterr()
    assert said.out.count("ERROR  ValueError: planted\n        ringcast simulate --seed 100") == 4
    assert "4 of 4 runs failed. Nothing was measured." in said.out
    assert "replay: ringcast simulate --seed 100" in said.err


def test_an_interrupted_command_says_what_is_kept(lent, whole, monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_command(whole[1], range(4))
    assert f"interrupted: 12 of 16 runs are kept in {whole[1]}" in capsys.readouterr().out


def test_settings_become_axes():
    fixed, axes = command.split_axes(Settings(), {"capacity": "8,64", "ack_threshold": "5"},
                                     loss=(0.0, 0.1), members=None)
    assert fixed == Settings(options={"ack_threshold": "5"})
    assert axes == {"loss": [0.0, 0.1], "capacity": [8, 64]}
    [run] = plan(*command.split_axes(Settings(), {"xmit_interval": "2.5"}, members=(2,)), [1])[:1]
    assert run.settings.options["xmit_interval"] == 2.5 and run.settings.members == 2
    assert msgspec.json.encode(run)


def test_without_java_the_command_says_what_to_install(monkeypatch, tmp_path):
    def none():
        raise RingcastError("Spark needs Java 17 or later and none was found: install one")

    monkeypatch.setattr(sys.modules["ringcast.spark.session"], "find_java", none)
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    with pytest.raises(RingcastError, match="Spark needs Java 17"):
        command.run(FIXED, {}, [1], master="local[1]", results=tmp_path, report=None, limit=60.0)
