"""`ringcast audit`: its output, its exit status, its files."""

import json
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import plotly.graph_objects
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from processes import ringcast

from ringcast.audit.report import mark_views
from ringcast.cli import main
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace
from ringcast.trace.schema import SCHEMA, write


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["ringcast", "audit", *map(str, words)])
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(SystemExit) as ended:
            main()
        signal.signal(signal.SIGINT, handler)           # a command leaves one of its own
        return ended.value.code, *capsys.readouterr()
    return run


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trace")
    run = Run(draw(3, Settings(members=3, loss=0.2)))
    with Trace(run.cluster, directory):
        assert not run.outcome().check
    return directory


@pytest.mark.spark
def test_a_healthy_trace_passes_and_leaves_tables_and_a_page(spark, command, trace, tmp_path):
    """The page needs no network."""
    status, said, _ = command(trace, "--skew", "0", "--tables", tmp_path / "tables", "--report",
                              tmp_path / "page.html")
    assert status == 0 and said.startswith("no promise was broken in ")
    assert re.search(r"latency +p50 [\d.]+ (µs|ms), p90", said)
    names = {"violations", "unproven", "views", "members", "series", "latency", "acked"}
    tables = {name: parquet.read_table(tmp_path / "tables" / f"{name}.parquet") for name in names}
    assert tables["violations"].num_rows == 0 and tables["members"].num_rows >= 3
    assert tables["violations"].column_names[:2] == ["wall", "kind"]
    assert {"slot", "bucket", "messages"} <= set(tables["latency"].column_names)
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page) and "plotly" in page
    titles = "Latency over time", "Loss and repair", "Fill of the send windows", "p99"
    assert [title for title in titles if title not in page] == []
    assert "view " in page and "no promise was broken" in page


def test_the_names_of_views_that_follow_closely_do_not_lie_on_each_other():
    begin = {1: 0.0, 2: 0.1, 3: 0.3, 4: 2.5, 5: 2.6, 6: 9.5}        # seconds, of ten
    members = {"A": SimpleNamespace(name="A", views=[(at, view, ()) for view, at in begin.items()])}
    audit = SimpleNamespace(groups=SimpleNamespace(members=members), violations=[],
                            clocks=SimpleNamespace(true=lambda name, at: int(at * 1e9)))
    figure = plotly.graph_objects.Figure()
    mark_views(figure, audit, SimpleNamespace(begin=0, duration=10.0))
    assert len(figure.layout.shapes) == len(begin)
    named = [(each.text, each.xanchor) for each in figure.layout.annotations if each.text]
    assert named == [("view 1", "left"), ("view 4", "left"), ("view 6", "right")]


@pytest.mark.spark
def test_an_audit_as_json_is_one_object_with_figures_that_are_numbers(spark, command, trace,
                                                                      tmp_path):
    status, said, _ = command(trace, "--skew", "0", "--json", "--tables", tmp_path / "tables")
    known = json.loads(said)["audit"]           # one line, and nothing else
    assert status == known["status"] == 0 and known["violations"] == known["doubts"] == []
    assert known["verdict"].startswith("no promise was broken in ")
    assert 0 < known["latency_s"]["p50"] <= known["latency_s"]["p99"] < known["seconds"]
    assert sum(row["delivered"] for row in known["members"]) > 0
    assert (tmp_path / "tables" / "views.parquet").exists()


@pytest.mark.spark
def test_a_broken_promise_is_status_1_and_names_the_message(spark, command, trace, tmp_path):
    """One delivery is left out of a trace, and what follows is numbered anew."""
    victim = None
    for path in sorted(trace.glob("*/*.parquet")):
        rows = parquet.read_table(path).cast(SCHEMA).sort_by("ev").to_pylist()
        given = [row for row in rows if row["event"] == "deliver" and row["sender"] != row["member"]
                 and row["conn_id"] is None]
        if victim is None and len(given) > 2:
            victim = given[1]
            rows.remove(victim)
            rows = [row | {"ev": number} for number, row in enumerate(rows)]
        (tmp_path / path.parent.name).mkdir()
        write(arrow.Table.from_pylist(rows, SCHEMA), tmp_path / path.parent.name / path.name)
    status, said, _ = command(tmp_path, "--skew", "0", "--report", tmp_path / "page.html",
                              "--tables", tmp_path / "out")
    assert status == 1 and said.startswith("BROKEN: ")
    known = json.loads(command(tmp_path, "--skew", "0", "--json")[1])["audit"]
    assert known["status"] == 1 and known["violations"][0]["sender"] == victim["sender"]
    first = victim["first"]
    assert re.search(rf"message {first} of {victim['sender']} was ", said)
    violations = parquet.read_table(tmp_path / "out" / "violations.parquet")
    assert violations["position"].to_pylist()[0] == first
    assert f"message {first} of" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("words", "says"), [
    (["nothing/there"], "there is no nothing/there"),
    ([], "TRACE"),
    (["src", "--skew", "-1"], "--skew is -1"),
    (["."], ". holds no trace"),
    ([".", "--report", "no/such/page.html"], "--report no/such/page.html: No such file"),
])
def test_an_impossible_call_is_one_sentence_and_status_2(command, words, says, tmp_path,
                                                         monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, error = command(*words)
    assert status == 2 and says in error and "Traceback" not in error


def test_without_java_one_sentence_says_what_to_install(trace):
    code = ("import sys, ringcast.spark; from ringcast.cli import main; "
            "sys.modules['ringcast.spark.session']._candidates = lambda: iter(()); main()")
    run = subprocess.run([sys.executable, "-c", code, "audit", str(trace)], capture_output=True,
                         text=True)
    assert run.returncode == 2 and "Spark needs Java" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.spark
def test_a_setting_that_spark_reads_late_and_refuses_is_one_sentence_and_status_2(trace):
    """Status 1 would say that a promise was broken."""
    run = ringcast("audit", trace, "--conf", "spark.sql.shuffle.partitions=-3")
    assert run.returncode == 2, run.stderr
    assert "ringcast: Spark has failed: " in run.stderr and "; check --conf" in run.stderr
    assert "Traceback" not in run.stderr
