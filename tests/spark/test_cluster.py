"""Source, sink, audit and campaigns on a Spark cluster whose nodes reach each other by
a network, and lose executors.
"""

import json
import re
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from cluster import HOME, SMALL, Cluster, refusal

from ringcast.sim.runs.plan import Settings, draw
from ringcast.sim.runs.run import Run
from ringcast.sim.trace import Trace
from ringcast.spark import Journal

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(900)]

MESSAGES = 4000
TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs" / "spark.md"
ONE = ["--conf", "spark.executor.cores=2", "--conf", "spark.cores.max=2"]  # one executor
DEFAULTS = f"""
spark.master                             spark://198.18.0.1:7077
spark.driver.memory                      512m
spark.executor.memory                    512m
spark.driver.extraJavaOptions            {SMALL}
spark.executor.extraJavaOptions          {SMALL}
spark.sql.shuffle.partitions             2
spark.ui.enabled                         false
spark.ui.showConsoleProgress             false
spark.speculation                        true
spark.speculation.interval               100ms
spark.speculation.multiplier             1.1
spark.speculation.quantile               0.1
spark.eventLog.enabled                   true
spark.eventLog.compress                  false
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if refusal():
        pytest.skip(refusal())
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("conf", "events"):
        (folder / name).mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(
        f"{DEFAULTS}spark.eventLog.dir file://{folder}/events\n"
    )
    with Journal(folder / "j", group="g", fsync=False) as journal:
        for first in range(1, MESSAGES, 100):
            journal.append(
                "A#00000000000000a1",
                first,
                [b"%d" % seqno for seqno in range(first, first + 100)],
                view_id=1,
                sent_at=first,
                delivered_at=first,
            )
        journal.sync()
    with Cluster(folder) as cluster:
        yield cluster


def told(cluster):
    """Return how Spark is told of the cluster: by its file, and its Python by a
    variable."""
    return {
        "SPARK_CONF_DIR": str(cluster.folder / "conf"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{TESTS}:{TESTS / 'spark'}",
    }


def executors(cluster, name):
    """Return the nodes where the application of that name had executors, and its
    settings."""
    for log in sorted((cluster.folder / "events").rglob("*")):
        events = (
            [json.loads(line) for line in log.read_text().splitlines()]
            if log.is_file() and log.suffix != ".crc"
            else []
        )
        if any(event.get("App Name") == name for event in events):
            settings = next(
                event["Spark Properties"]
                for event in events
                if event["Event"] == "SparkListenerEnvironmentUpdate"
            )
            return [
                event["Executor Info"]["Host"]
                for event in events
                if event["Event"] == "SparkListenerExecutorAdded"
            ], settings
    raise AssertionError(f"{name} left no log")


def test_nothing_is_missing_or_twice_when_executors_die_and_copies_of_tasks_run(cluster):
    said = json.loads(
        cluster.run(
            sys.executable, TESTS / "spark" / "cluster_job.py", cluster.folder, **told(cluster)
        ).splitlines()[-1]
    )
    everything = list(range(1, MESSAGES + 1))
    assert said["master"] == cluster.master and said["speculation"] == "true"
    assert said["read"] == everything and said["read again"] == everything
    assert (
        said["batches"] == 2
        and len(said["sent"]) == MESSAGES
        and sorted(said["sent"]) == everything
    )
    assert (
        None not in said["killed"] and len(set(said["killed"])) == 2
    )  # the executors of a read and of a write
    nodes, _ = executors(cluster, "cluster test")
    assert (
        set(nodes) == {"198.18.0.2", "198.18.0.3"} and len(nodes) >= 4
    )  # two of them came in the place of the killed


def test_an_audit_runs_on_the_cluster_that_it_is_given(cluster):
    run = Run(draw(3, Settings(members=3, loss=0.2)))
    with Trace(run.cluster, cluster.folder / "trace"):
        assert not run.outcome().check
    output = ringcast(cluster, "audit", cluster.folder / "trace", "--skew", 0, *ONE)
    assert "no promise was broken" in output
    assert settings_of(cluster, "ringcast audit")["spark.cores.max"] == "2"


def test_a_campaign_runs_on_the_cluster_that_it_is_given(cluster):
    output = ringcast(
        cluster,
        "simulate",
        "--spark",
        "--seeds",
        2,
        "--loss",
        "0,0.05",
        "--members",
        2,
        "--duration",
        0.03,
        "--set",
        "capacity=16",
        "--set",
        "xmit_interval=3",
        "--results",
        cluster.folder / "results",
        *ONE,
    )
    assert "no promise was broken in 4 runs" in output
    assert settings_of(cluster, "ringcast campaign")["spark.speculation"] == "true"


def settings_of(cluster, name):
    """Return the settings of an application that ran on this cluster, with one
    executor."""
    nodes, settings = executors(cluster, name)
    assert len(nodes) == 1 and settings["spark.master"] == cluster.master
    return settings


def ringcast(cluster, *words):
    """Run a command with --master, where Spark was told another one."""
    variables = told(cluster) | {"MASTER": "local[1]"}
    conf = cluster.folder / "conf" / "spark-defaults.conf"
    other = cluster.folder / "other"
    other.mkdir(exist_ok=True)
    (other / "spark-defaults.conf").write_text(conf.read_text().replace(cluster.master, "local[1]"))
    code = "from ringcast.cli import main; main()"
    return cluster.run(
        sys.executable,
        "-c",
        code,
        *words,
        "--master",
        cluster.master,
        **variables | {"SPARK_CONF_DIR": str(other)},
    )


def test_the_spark_submit_line_of_the_docs_runs(cluster):
    """As it stands there, but for the addresses and the folders."""
    text = DOCS.read_text()
    job = re.search(r"```python\n(# flights_to_table.py\n.*?)```", text, re.DOTALL)[1]
    (line,) = re.findall(r"^    (spark-submit .*?[^\\])\n", text, re.DOTALL | re.MULTILINE)
    (cluster.folder / "flights_to_table.py").write_text(
        job.replace("/shared/", f"{cluster.folder}/shared/")
    )
    (cluster.folder / "shared").mkdir()
    (cluster.folder / "shared" / "journals").symlink_to(cluster.folder / "j")
    words = (
        line.replace("\\\n", " ")
        .replace("spark://master:7077", cluster.master)
        .replace("/opt/flights/bin/python", sys.executable)
    )
    environment = {"SPARK_CONF_DIR": str(cluster.folder / "conf"), "PATH": "/usr/bin:/bin"}
    cluster.run(
        "sh",
        "-c",
        words.replace("spark-submit", str(HOME / "bin" / "spark-submit"), 1),
        **environment,
    )
    written = (
        cluster.folder / "shared" / "flights" / "_spark_metadata"
    )  # the files that count: copies of tasks leave others
    files = [
        json.loads(line)["path"].removeprefix("file://")
        for batch in written.glob("[0-9]*")
        for line in batch.read_text().splitlines()[1:]
    ]
    seqnos = [seqno for file in files for seqno in parquet.read_table(file)["seqno"].to_pylist()]
    assert sorted(seqnos) == list(range(1, MESSAGES + 1))
    nodes, settings = executors(cluster, "flights to a table")
    assert len(nodes) == 2 and settings["spark.pyspark.python"] == sys.executable
