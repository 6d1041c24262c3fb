"""What a campaign runs, its chunks, rows and answer: all that needs no Spark."""

import shlex
import signal
import threading
from contextlib import suppress

import msgspec
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from ringcast import ConfigError
from ringcast.campaign import report
from ringcast.campaign.jobs import CHUNK_SECONDS, LEAST_SECONDS, ChunkJob, RunQueue
from ringcast.campaign.points import Point, choose, groups
from ringcast.campaign.results import Results
from ringcast.campaign.runs import AXES, SCHEMA, plan, table_of
from ringcast.campaign.worker import attempt
from ringcast.sim.runs.run import Outcome, simulate
from ringcast.sim.runs.settings import Settings

SMALL = Settings(duration=0.02)


def small(count=1, **settings):
    return plan(msgspec.structs.replace(SMALL, **settings),
                {"loss": [0.01], "capacity": [64], "xmit_interval": [3]}, range(count))


def test_a_campaign_is_the_product_of_its_axes_for_each_seed():
    runs = plan(SMALL, {"loss": [0.0, 0.1], "members": [2, 3], "capacity": [8, 64],
                        "xmit_interval": [1, 5]}, range(7, 9))
    assert [run.seed for run in runs] == [7] * 16 + [8] * 16
    assert len({run.point for run in runs}) == 16 and len({run.name for run in runs}) == 32
    assert all(run.settings.steady == 0.0 for run in runs)
    default = plan(Settings(), {}, [1])
    assert {run.settings.options["capacity"] for run in default} == set(AXES["capacity"])
    assert len(default) == len({run.name for run in default})
    assert len(default) == len(plan(Settings(), {"loss": AXES["loss"] * 2}, [1]))


def test_a_run_has_one_name_however_it_is_written():
    name = small()[0].name
    assert name == small(steady=0.0, options={"capacity": "9"})[0].name
    tuned = small(options={"ack_threshold": "7"})[0].name
    assert name not in {small(steady=5.0)[0].name, small(2)[1].name, tuned}
    assert tuned == small(options={"ack_threshold": 7})[0].name


def test_another_version_is_another_run(monkeypatch):
    name = small()[0].name
    monkeypatch.setattr("ringcast.__version__", "9.9")
    assert small()[0].name != name and small()[0].row("ok")["version"] == "9.9"


@pytest.mark.parametrize(("fixed", "axes", "seeds", "says"), [
    (Settings(), {"members": [1]}, [1], "2 members or more"),
    (Settings(), {"loss": [1.5]}, [1], "probability"),
    (Settings(stack="nakack2-tcp"), {"loss": [0.1]}, [1], "lose nothing"),
    (Settings(), {}, [], "at least one"),
    (Settings(messages=5), {}, [1], "number of messages"),
    (Settings(options={"capacty": 3}), {}, [1], "capacity"),
])
def test_impossible_settings_are_refused_before_anything_runs(fixed, axes, seeds, says):
    with pytest.raises(ConfigError, match=says):
        plan(fixed, axes, seeds)


# --------------------------------------------------------------------------------------------- rows

def test_a_row_has_all_parameters_and_figures_of_its_run():
    run = small(loss=0.2, members=2)[0]                     # the axes have the last word
    assert len(SCHEMA.names) == len(set(SCHEMA.names))
    row = table_of([attempt(run, 60, 5, simulate)]).to_pylist()[0]
    outcome = simulate(run.seed, run.settings)
    measured = outcome.measured
    assert row["status"] == "ok" and row["fingerprint"] == outcome.fingerprint
    assert dict(row["counters"]) == outcome.counters
    parameters = [row[name] for name in ("seed", "loss", "members", "capacity", "xmit_interval")]
    assert parameters == [0, 0.01, 3, 64, 3.0]
    assert row["throughput"] == measured.throughput
    assert row["latency_p99"] == measured.percentile(0.99)
    assert {each["class"]: each["count"] for each in row["latency"]} == measured.latency
    assert set(row) == set(SCHEMA.names)
    assert shlex.split(row["replay"])[:4] == ["ringcast", "simulate", "--seed", "0"]


def test_an_error_becomes_a_row_with_error_traceback_and_replay():
    def broken(seed, settings):
        raise ValueError("planted")

    run = small()[0]
    row = table_of([attempt(run, 60, 5, broken)]).to_pylist()[0]
    assert (row["status"], row["error"]) == ("error", "ValueError: planted")
    assert "in broken" in row["traceback"] and row["throughput"] is None
    assert row["capacity"] == 64 and row["version"] and "--set capacity=64" in row["replay"]


@pytest.mark.parametrize("check, status", [("gap", "broken"), ("error", "error"), ("", "ok")])
def test_a_broken_promise_is_distinguished_from_an_error(check, status):
    outcome = Outcome(seed=0, check=check, sentence="planted")
    assert attempt(small()[0], 60, 5, lambda seed, settings: outcome)["status"] == status


def test_a_run_that_hangs_is_ended_although_it_catches_the_first_exception():
    def hangs(seed, settings):
        with suppress(BaseException):
            threading.Event().wait(60)
        threading.Event().wait(60)

    before = signal.getsignal(signal.SIGALRM)
    row = attempt(small()[0], 0.2, 60, hangs)
    assert row["status"] == "timeout" and "0.2 seconds" in row["error"]
    assert "in hangs" in row["traceback"] and row["taken"] > 0.2
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_rows_are_read_again_and_torn_or_foreign_files_are_not(tmp_path):
    runs = small(3)
    rows = table_of([run.row("ok") for run in runs])
    Results(tmp_path).add(rows)
    whole, = tmp_path.glob("part-*.parquet")
    # of a driver that was killed
    (tmp_path / f".{whole.name}.tmp").write_bytes(whole.read_bytes()[:500])
    (tmp_path / "part-torn.parquet").write_bytes(whole.read_bytes()[:500])
    parquet.write_table(arrow.table({"run": ["abc"]}), tmp_path / "part-foreign.parquet")
    Results(tmp_path).add(rows.slice(0, 1))  # by two campaigns at a time
    again = Results(tmp_path)
    assert again.done() == {run.name for run in runs}
    strange = sorted(path.name for path in again.strange)
    assert strange == ["part-foreign.parquet", "part-torn.parquet"]
    assert sorted(again.rows_of([run.name for run in runs[:2]])["seed"].to_pylist()) == [0, 1]
    assert Results().rows_of(["none"]).num_rows == 0


def test_results_below_a_file_are_a_mistake_of_the_caller(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept"):
        Results(tmp_path / "file")


# ------------------------------------------------------------------------------------------- chunks

def drain(queue, seconds):
    """Take chunks until the queue is empty. Each run takes `seconds`."""
    chunks = []
    while chunk := queue.take():
        chunks.append(chunk)
        for run in chunk:
            queue.add_duration(run, seconds)
    return chunks


def test_chunks_have_one_run_at_first_then_a_few_seconds_then_less():
    runs = small(1000)
    chunks = drain(RunQueue(runs, 2), 0.01)
    assert [run for chunk in chunks for run in chunk] == runs
    sizes = list(map(len, chunks))
    assert sizes[0] == 1 and LEAST_SECONDS < max(sizes) * 0.01 <= CHUNK_SECONDS
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert min(sizes[1:-1]) * 0.01 >= LEAST_SECONDS * 0.99
    assert max(map(len, drain(RunQueue(small(5000), 2), 0.01))) * 0.01 > CHUNK_SECONDS * 0.99
    assert set(map(len, drain(RunQueue(small(20), 2), 10.0))) == {1}


def test_the_run_that_a_dying_worker_named_is_alone_and_otherwise_the_chunk_is_cut():
    runs = small(20)
    queue = RunQueue([], 2)
    queue.put_back(runs, runs[7])
    assert queue.take() == [runs[7]] and list(queue.waiting) == runs[:7] + runs[8:]
    queue = RunQueue([], 2)
    queue.put_back(runs, None)
    parts = [queue.take() for _ in range(7)]
    assert sum(parts, []) == runs and max(map(len, parts)) == 3 and not queue.take()


def test_the_time_of_a_job_counts_from_when_a_core_works_on_it():
    job = ChunkJob("group", small(), 1.0, 0.0)
    assert not job.is_late() and job.seconds() == 0
    job.has_begun = True
    assert job.seconds() >= 0 and job.is_late() and job.is_cancelled


# ------------------------------------------------------------------------------------------- answer

def point(throughput, p99, overhead, capacity=64, xmit_interval=3.0, loss=0.0, members=3):
    p50, ok = (None, 0) if p99 is None else (p99 / 2, 2)
    return Point(loss, members, capacity, xmit_interval, 2, ok, throughput, throughput, throughput,
                 p50, p99, overhead, 1.0)


def test_the_choice_follows_its_rule():
    assert choose([point(None, None, None)]) is None
    best = point(970, 3.0, 0.2)
    # nearly the highest, and quicker
    assert choose([point(1000, 4.0, 0.1), best, point(500, 1.0, 0.1)]) is best
    # 11 times the shortest is not acceptable
    assert choose([point(1000, 11.0, 0.1), best, point(500, 1.0, 0.1)]) is best
    # nor is so much on the wire
    assert choose([point(2000, 2.0, 1.5), best, point(500, 1.0, 0.1)]) is best
    cheaper = best._replace(overhead=0.1, capacity=128)
    assert choose([best, best._replace(capacity=32), cheaper]).capacity == 128
    assert choose([best, best._replace(capacity=32), point(None, None, None)]).capacity == 32
    # overhead counts among the quick ones
    assert choose([point(900, 1.0, 5.0), point(1000, 20.0, 0.1)]).throughput == 900


def test_the_answer_is_a_sentence_and_a_row_for_each_loss_and_group_size():
    found = [point(1000, 1.0, 0.01), point(800, 2.0, 0.5, loss=0.05, capacity=1024),
             point(None, None, None, loss=0.1)]
    assert len(groups(found)) == 3
    assert report.verdict(found, 0).startswith(
        "For 0.05 loss and 3 members take a capacity of 1,024 and an xmit_interval of 3 ms "
        "(800 messages/s")
    assert report.verdict(found, 4).startswith("4 of 6 runs failed. For")
    assert report.verdict(found[2:], 2).endswith("Nothing was measured.")
    rows = report.recommendations(found)
    firsts = [row[:3] for row in rows]
    assert firsts == [("0", "3", "64"), ("0.05", "3", "1,024"), ("0.1", "3", "64")]
    assert rows[2][4] == "no run was ok" and {len(row) for row in rows} == {len(report.TITLES)}


def test_the_page_is_complete_and_needs_no_network(tmp_path):
    found = [point(1000 * capacity, interval, 0.1, capacity, interval, loss)
             for loss in (0.0, 0.1) for capacity in (8, 64) for interval in (1.0, 3.0)]
    found[0] = point(None, None, None, 8, 1.0)
    replay = "ringcast simulate --seed 3"
    failed = [("died", "its <process> died", replay)]
    report.write(tmp_path / "page.html", found, small()[0], failed)
    page = (tmp_path / "page.html").read_text()
    assert "<script src" not in page and "<link" not in page and "@import" not in page
    assert page.count("<h2>") == 3 and "its &lt;process&gt; died" in page and replay in page
    assert report.verdict(found, 1) in page and "1,000 bytes" in page
    assert "wires of 125 MB/s with a delay of 0.2 ms" in page
    figure = report.heat_maps(groups(found)[0])
    names = [trace.name for trace in figure.data]
    assert names == ["messages/s", "99 % within (ms)", "overhead (%)"]
    assert [list(row) for row in figure.data[0].z] == [[None, 8000], [64000, 64000]]
    assert list(figure.data[0].y) == ["8", "64"]
    assert {(shape.x0, shape.y0) for shape in figure.layout.shapes} == {(-0.5, 0.5)}  # 64 and 1 ms
