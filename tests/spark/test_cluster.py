"""Source, sink, audit and campaigns run on a Spark cluster whose nodes reach each other
by a network, and which loses executors."""

import json
import re
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from cluster import HOME, SMALL, Cluster, refusal
from journals import open_journal
from processes import RINGCAST

from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace

pytestmark = [pytest.mark.spark, pytest.mark.kill]

MESSAGES = 4000
TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs" / "spark.md"
ONE = ["--conf", "spark.executor.cores=2", "--conf", "spark.cores.max=2"]     # one executor
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
    defaults = f"{DEFAULTS}spark.eventLog.dir file://{folder}/events\n"
    (folder / "conf" / "spark-defaults.conf").write_text(defaults)
    with open_journal(folder / "j") as journal:
        for first in range(1, MESSAGES, 100):
            payloads = [b"%d" % seqno for seqno in range(first, first + 100)]
            journal.append("A#00000000000000a1", first, payloads, view_id=1, sent_at=first,
                           delivered_at=first)
        journal.sync()
    with Cluster(folder) as cluster:
        yield cluster


def variables_of(cluster):
    """Return the variables that tell Spark of the cluster's file, and its Python."""
    return {"SPARK_CONF_DIR": str(cluster.folder / "conf"), "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{TESTS}:{TESTS / 'spark'}"}


def executors(cluster, name):
    """Return the nodes of an application's executors, and its settings."""
    for log in sorted((cluster.folder / "events").rglob("*")):
        if log.is_dir() or log.suffix == ".crc":
            continue
        events = [json.loads(line) for line in log.read_text().splitlines()]
        if any(event.get("App Name") == name for event in events):
            settings = next(event["Spark Properties"] for event in events
                            if event["Event"] == "SparkListenerEnvironmentUpdate")
            nodes = [event["Executor Info"]["Host"] for event in events
                     if event["Event"] == "SparkListenerExecutorAdded"]
            return nodes, settings
    raise AssertionError(f"{name} left no log")


def test_no_message_is_lost_or_repeated_when_executors_die_and_copies_of_tasks_run(cluster):
    output = cluster.run(sys.executable, TESTS / "spark" / "cluster_job.py", cluster.folder,
                         **variables_of(cluster))
    said = json.loads(output.splitlines()[-1])
    everything = list(range(1, MESSAGES + 1))
    assert said["master"] == cluster.master and said["speculation"] == "true"
    assert said["read"] == everything and said["read again"] == everything
    assert said["batches"] == 2 and sorted(said["sent"]) == everything
    # the executors of a read and of a write, and two that replaced them
    assert None not in said["killed"] and len(set(said["killed"])) == 2
    nodes, _ = executors(cluster, "cluster test")
    assert set(nodes) == {"198.18.0.2", "198.18.0.3"} and len(nodes) >= 4


def test_an_audit_runs_on_the_cluster_of_the_option_master(cluster):
    run = Run(draw(3, Settings(members=3, loss=0.2)))
    with Trace(run.cluster, cluster.folder / "trace"):
        assert not run.outcome().check
    output = run_on(cluster, "audit", cluster.folder / "trace", "--skew", 0, *ONE)
    assert "no promise was broken" in output
    assert settings_of(cluster, "ringcast audit")["spark.cores.max"] == "2"


def test_a_campaign_runs_on_the_cluster_of_the_option_master(cluster):
    output = run_on(cluster, "simulate", "--spark", "--seeds", 2, "--loss", "0,0.05",
                    "--members", 2, "--duration", 0.03, "--set", "capacity=16",
                    "--set", "xmit_interval=3", "--results", cluster.folder / "results", *ONE)
    assert "no promise was broken in 4 runs" in output
    assert settings_of(cluster, "ringcast campaign")["spark.speculation"] == "true"


def settings_of(cluster, name):
    """Return the settings of an application that ran here with one executor."""
    nodes, settings = executors(cluster, name)
    assert len(nodes) == 1 and settings["spark.master"] == cluster.master
    return settings


def run_on(cluster, *words):
    """Run a command with --master, where Spark's own settings name another."""
    conf = cluster.folder / "conf" / "spark-defaults.conf"
    other = cluster.folder / "other"
    other.mkdir(exist_ok=True)
    (other / "spark-defaults.conf").write_text(conf.read_text().replace(cluster.master, "local[1]"))
    variables = variables_of(cluster) | {"MASTER": "local[1]", "SPARK_CONF_DIR": str(other)}
    return cluster.run(*RINGCAST, *words, "--master", cluster.master, **variables)


def test_the_spark_submit_line_of_the_docs_runs(cluster):
    """It runs as it is there, but for the addresses and the folders."""
    text = DOCS.read_text()
    job = re.search(r"```python\n(# flights_to_table.py\n.*?)```", text, re.DOTALL)[1]
    (line,) = re.findall(r"^    (spark-submit .*?[^\\])\n", text, re.DOTALL | re.MULTILINE)
    job = job.replace("/shared/", f"{cluster.folder}/shared/")
    (cluster.folder / "flights_to_table.py").write_text(job)
    (cluster.folder / "shared").mkdir()
    (cluster.folder / "shared" / "journals").symlink_to(cluster.folder / "j")
    for here, there in (("\\\n", " "), ("spark://master:7077", cluster.master),
                        ("/opt/flights/bin/python", sys.executable)):
        line = line.replace(here, there)
    command = line.replace("spark-submit", str(HOME / "bin" / "spark-submit"), 1)
    environment = {"SPARK_CONF_DIR": str(cluster.folder / "conf"), "PATH": "/usr/bin:/bin"}
    cluster.run("sh", "-c", command, **environment)
    # the files that count: copies of tasks leave others
    log = cluster.folder / "shared" / "flights" / "_spark_metadata"
    files = [json.loads(line)["path"].removeprefix("file://") for batch in log.glob("[0-9]*")
             for line in batch.read_text().splitlines()[1:]]
    seqnos = [seqno for file in files for seqno in parquet.read_table(file)["seqno"].to_pylist()]
    assert sorted(seqnos) == list(range(1, MESSAGES + 1))
    nodes, settings = executors(cluster, "flights to a table")
    assert len(nodes) == 2 and settings["spark.pyspark.python"] == sys.executable
