"""Spark's own settings win: they are read where spark-submit reads them. No Java runs
here, but for the tests that are marked."""

import pytest
from processes import ringcast
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ringcast import ConfigError
from ringcast.cli import main
from ringcast.spark.existing_conf import existing_conf


@pytest.fixture
def untold(monkeypatch, tmp_path):
    """Remove all settings of this process. Return an empty folder for Spark's files."""
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_without_settings_nothing_is_found(untold):
    assert existing_conf() == {}


def test_the_file_the_variables_and_the_arguments_of_spark_submit_are_read(untold, monkeypatch):
    (untold / "spark-defaults.conf").write_text(
        "# spark.master local\n\nspark.master            spark://file:7077\n"
        "  spark.a=1 2\nspark.b : x=y \nspark.empty\n")
    assert existing_conf() == {"spark.master": "spark://file:7077", "spark.a": "1 2",
                               "spark.b": "x=y", "spark.empty": ""}
    monkeypatch.setenv("MASTER", "spark://variable:7077")
    assert existing_conf()["spark.master"] == "spark://file:7077"        # as spark-submit has it
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", "--master spark://argument:7077 --name x --conf 'spark.b=1 = 2' "
        "-c spark.c=3 --conf=spark.d=4 pyspark-shell")
    assert existing_conf() == {"spark.master": "spark://argument:7077", "spark.a": "1 2",
                               "spark.b": "1 = 2", "spark.c": "3", "spark.d": "4",
                               "spark.empty": ""}


def test_another_file_replaces_the_usual_one(untold, monkeypatch, tmp_path):
    (untold / "spark-defaults.conf").write_text("spark.master spark://usual:7077\n")
    (tmp_path / "mine").write_text("spark.master spark://mine:7077\n")
    arguments = f"--properties-file={tmp_path / 'mine'} pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert existing_conf() == {"spark.master": "spark://mine:7077"}
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    monkeypatch.setenv("MASTER", "spark://variable:7077")
    (untold / "spark-defaults.conf").unlink()
    assert existing_conf() == {"spark.master": "spark://variable:7077"}


def test_arguments_that_are_quoted_wrongly_are_an_error(untold, monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name it's pyspark-shell")
    with pytest.raises(ConfigError, match="PYSPARK_SUBMIT_ARGS .*mend its quotes"):
        existing_conf()


@pytest.mark.spark
@pytest.mark.parametrize(("master", "reason"), [
    ("foo", "JAVA_GATEWAY_EXITED"), ("spark://host:x", "Invalid master URL: spark://host:x")])
def test_a_master_with_which_spark_does_not_start_is_one_sentence_and_status_2(master, reason):
    run = ringcast("simulate", "--spark", "--seeds", "1", "--master", master)
    said = run.stderr.splitlines()[-1]
    assert run.returncode == 2 and "Traceback" not in run.stderr
    assert said.startswith("ringcast: Spark does not start: ") and reason in said
    assert said.endswith("; check --master and --conf.")


@pytest.mark.parametrize(("words", "says"), [
    ("simulate --conf spark.a=1", "--conf is for a campaign; add --spark"),
    ("simulate --spark --conf spark.a",
     "--conf spark.a has no value; write --conf NAME=VALUE"),
    ("simulate --spark --master local --workers 2", "--workers is for this machine"),
    ("audit . --conf spark.a", "--conf spark.a has no value; write --conf NAME=VALUE"),
])
def test_impossible_settings_are_one_sentence_and_status_2(monkeypatch, capsys, words, says):
    monkeypatch.setattr("sys.argv", ["ringcast", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and says in capsys.readouterr().err


@pytest.mark.spark
def test_a_session_that_runs_keeps_its_settings(spark):
    from ringcast.spark import session

    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        again = session(conf={"spark.sql.shuffle.partitions": "3"})
        assert again is spark or again.sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.shuffle.partitions", "1")
