"""Options as Spark hands them over: Spark's own are ignored, wrong ones are refused in
one sentence, as early as Spark asks."""

import re
from pathlib import Path

import pytest
from journals import open_journal
from outboxes import served
from processes import PATIENCE
from pyspark.sql.types import StructType
from spark_help import start_query

from ringcast import ConfigError
from ringcast.spark.options import BATCH_OPTIONS, STREAM_OPTIONS
from ringcast.spark.sink import _BATCH_OPTIONS as WRITE_OPTIONS
from ringcast.spark.source import RingcastDataSource

PYSPARKS = ("Traceback", "UnboundLocalError", "another exception", "direct cause")


@pytest.fixture
def journal(tmp_path):
    with open_journal(tmp_path / "j") as journal:
        journal.append("A#00000000000000a1", 1, [b"x"], view_id=1, sent_at=1, delivered_at=2)
        journal.sync()
    return tmp_path / "j"


def start(frame, tmp_path, form="noop", *path, **options):
    return start_query(frame, form, tmp_path / "c", *path, **options)


def texts(spark, path):
    stream = spark.readStream.format("ringcast").load(str(path))
    return stream.selectExpr("CAST(payload AS STRING) AS payload")


def sentence(error):
    """Return what an error says. It must be our sentence, without a stack."""
    said = str(error.value)
    assert not [word for word in PYSPARKS if word in said], said
    return said.partition("ConfigError: ")[2]


def load(reader, path, options, schema=None):
    reader = reader.format("ringcast").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


@pytest.mark.spark
def test_a_query_with_a_name_writes_to_the_group(spark, journal, tmp_path):
    with served(tmp_path / "o") as (_, member):
        writer = texts(spark, journal).writeStream.format("ringcast").queryName("flights")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).outputMode("append")
        query = writer.trigger(availableNow=True).start(str(tmp_path / "o"))
        assert query.awaitTermination(PATIENCE) and query.name == "flights"
        assert member.got == [b"x"]


def test_options_that_spark_adds_are_ignored_by_a_writer_only(tmp_path):
    options = {"path": str(tmp_path), "queryname": "q", "checkpointlocation": "c",
               "__partition_columns": "[]"}
    column = StructType().add("payload", "string")
    assert RingcastDataSource(options).writer(column, False).options.path == tmp_path
    assert RingcastDataSource(options).streamWriter(column, False).options.path == tmp_path
    with pytest.raises(ConfigError, match="no option 'queryname' for a batch read"):
        RingcastDataSource(options).reader(column)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["read", "readStream"])
@pytest.mark.parametrize(("options", "says"), [
    ({"startingOffset": "earliest"},
     "no option 'startingoffset' for a read; it knows endingOffsets, "),
    ({"maxOffsetsPerTrigger": "many"},
     "maxOffsetsPerTrigger must be a whole number from 1, not 'many'."),
    ({"includeHeaders": "yes"}, "includeHeaders must be true or false, not 'yes'."),
    ({"startingOffsets": "{}x"}, "startingOffsets must be earliest, latest or a JSON digest"),
])
def test_load_refuses_a_wrong_option_in_one_sentence(spark, journal, kind, options, says):
    with pytest.raises(Exception, match="ConfigError: ") as error:
        load(getattr(spark, kind), journal, options)
    assert says in sentence(error)


@pytest.mark.spark
@pytest.mark.parametrize(("options", "schema", "says"), [
    ({"endingOffsets": "latest"}, None,
     "no option 'endingOffsets' for a stream; it knows failOnDataLoss, "),
    ({}, "seqno string", "no column 'seqno string'; its columns are cluster string, "),
    ({"includeHeaders": "yes"}, "seqno bigint",             # Spark loads it only now
     "includeHeaders must be true or false, not 'yes'."),
])
def test_what_only_a_stream_refuses_ends_its_query_with_one_sentence(
        spark, journal, tmp_path, options, schema, says):
    for _ in range(2):
        wrong = load(spark.readStream, journal, options, schema)
        with pytest.raises(Exception, match="ConfigError: ") as error:
            start(wrong, tmp_path).awaitTermination(PATIENCE)
        assert says in sentence(error)
        # the next one starts from a checkpoint
        start(texts(spark, journal), tmp_path).awaitTermination(PATIENCE)


@pytest.mark.spark
def test_a_wrong_option_of_the_sink_ends_its_first_batch_with_one_sentence(spark, journal,
                                                                           tmp_path):
    with pytest.raises(Exception, match="ConfigError: ") as error:
        query = start(texts(spark, journal), tmp_path, "ringcast", tmp_path / "o", ackTimeOut="1")
        query.awaitTermination(PATIENCE)
    assert "ackTimeout must be a whole number from 1 with a unit" in sentence(error)
    batch = spark.range(1).selectExpr("CAST(id AS STRING) AS payload")
    writer = batch.write.format("ringcast").mode("append").option("ackTimeouts", "1s")
    with pytest.raises(Exception, match="ConfigError: ") as error:
        writer.save(str(tmp_path / "o"))
    assert "no option 'acktimeouts' for a write; it knows ackTimeout, " in sentence(error)


@pytest.mark.spark
def test_several_paths_and_catalog_tables_are_refused_with_what_to_do(spark, journal, tmp_path):
    with pytest.raises(Exception, match="ConfigError: ") as error:
        spark.read.format("ringcast").load([str(journal), str(tmp_path)])
    assert "load takes one DIRECTORY" in sentence(error)
    with pytest.raises(Exception, match="ConfigError: ") as error:
        spark.sql(f"CREATE TABLE flights USING ringcast OPTIONS (path '{journal}')")
    assert "CREATE TEMPORARY VIEW" in sentence(error)
    spark.sql(f"CREATE TEMPORARY VIEW flights USING ringcast OPTIONS (path '{journal}')")
    assert spark.table("flights").count() == 1
    spark.catalog.dropTempView("flights")


def test_the_docs_have_all_options():
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    reading, writing = text.split("## Reading")[1].split("## Writing")
    for part, known in ((reading, {*BATCH_OPTIONS, *STREAM_OPTIONS} - {"path"}),
                        (writing.split("## ")[0], set(WRITE_OPTIONS))):
        rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == known
