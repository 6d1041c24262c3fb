"""Options as Spark hands them over: its own are let by, wrong ones are told in one
sentence, as early as Spark asks us.
"""

import re
from pathlib import Path

import pytest
from outboxes import served
from processes import PATIENCE
from pyspark.sql.types import StructType

from ringcast import ConfigError
from ringcast.spark import Journal
from ringcast.spark.options import BATCH_OPTIONS, STREAM_OPTIONS
from ringcast.spark.sink import _BATCH_OPTIONS as WRITE_OPTIONS
from ringcast.spark.source import RingcastDataSource

PYSPARKS = ("Traceback", "UnboundLocalError", "another exception", "direct cause")


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "j", group="g", fsync=False) as journal:
        journal.append("A#00000000000000a1", 1, [b"x"], view_id=1, sent_at=1, delivered_at=2)
        journal.sync()
    return tmp_path / "j"


def start(frame, tmp_path, form="noop", **options):
    return (
        frame.writeStream.format(form)
        .option("checkpointLocation", str(tmp_path / "c"))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )


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
        frame = texts(spark, journal).writeStream.format("ringcast").queryName("flights")
        query = (
            frame.option("checkpointLocation", str(tmp_path / "c"))
            .outputMode("append")
            .trigger(availableNow=True)
            .start(str(tmp_path / "o"))
        )
        assert query.awaitTermination(PATIENCE) and query.name == "flights"
        assert member.got == [b"x"]


def test_what_spark_adds_to_options_is_let_by_on_its_side_only(tmp_path):
    options = {
        "path": str(tmp_path),
        "queryname": "q",
        "checkpointlocation": "c",
        "__partition_columns": "[]",
    }
    column = StructType().add("payload", "string")
    assert RingcastDataSource(options).writer(column, False).options.path == tmp_path
    assert RingcastDataSource(options).streamWriter(column, False).options.path == tmp_path
    with pytest.raises(ConfigError, match="no option 'queryname' for a batch read"):
        RingcastDataSource(options).reader(column)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["read", "readStream"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"startingOffset": "earliest"},
            "no option 'startingoffset' for a read; it knows endingOffsets, ",
        ),
        (
            {"maxOffsetsPerTrigger": "many"},
            "maxOffsetsPerTrigger must be a whole number from 1, not 'many'.",
        ),
        ({"includeHeaders": "yes"}, "includeHeaders must be true or false, not 'yes'."),
        ({"startingOffsets": "{}x"}, "startingOffsets must be earliest, latest or a JSON digest"),
    ],
)
def test_a_wrong_option_is_told_by_load_in_one_sentence(spark, journal, kind, options, says):
    with pytest.raises(Exception, match="ConfigError: ") as error:
        load(getattr(spark, kind), journal, options)
    assert says in sentence(error)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "schema", "says"),
    [
        (
            {"endingOffsets": "latest"},
            None,
            "no option 'endingOffsets' for a stream; it knows failOnDataLoss, ",
        ),
        ({}, "seqno string", "no column 'seqno string'; its columns are cluster string, "),
        (
            {"includeHeaders": "yes"},
            "seqno bigint",
            "includeHeaders must be true or false, not 'yes'.",
        ),  # Spark loads it only now
    ],
)
def test_what_only_a_stream_refuses_ends_its_query_with_one_sentence(
    spark, journal, tmp_path, options, schema, says
):
    for _ in range(2):
        with pytest.raises(Exception, match="ConfigError: ") as error:
            start(load(spark.readStream, journal, options, schema), tmp_path).awaitTermination(
                PATIENCE
            )
        assert says in sentence(error)
        start(texts(spark, journal), tmp_path).awaitTermination(
            PATIENCE
        )  # the next one starts from a checkpoint


@pytest.mark.spark
def test_a_wrong_option_of_the_sink_ends_its_first_batch_with_one_sentence(
    spark, journal, tmp_path
):
    with pytest.raises(Exception, match="ConfigError: ") as error:
        start(
            texts(spark, journal), tmp_path, "ringcast", path=str(tmp_path / "o"), ackTimeOut="1"
        ).awaitTermination(PATIENCE)
    assert "ackTimeout must be a whole number with a unit" in sentence(error)
    with pytest.raises(Exception, match="ConfigError: ") as error:
        batch = spark.range(1).selectExpr("CAST(id AS STRING) AS payload")
        batch.write.format("ringcast").mode("append").option("ackTimeouts", "1s").save(
            str(tmp_path / "o")
        )
    assert "no option 'acktimeouts' for a write; it knows ackTimeout, " in sentence(error)


@pytest.mark.spark
def test_several_paths_and_tables_of_the_catalog_are_told_as_that(spark, journal, tmp_path):
    with pytest.raises(Exception, match="ConfigError: ") as error:
        spark.read.format("ringcast").load([str(journal), str(tmp_path)])
    assert "load takes one DIRECTORY" in sentence(error)
    with pytest.raises(Exception, match="ConfigError: ") as error:
        spark.sql(f"CREATE TABLE flights USING ringcast OPTIONS (path '{journal}')")
    assert "CREATE TEMPORARY VIEW" in sentence(error)
    spark.sql(f"CREATE TEMPORARY VIEW flights USING ringcast OPTIONS (path '{journal}')")
    assert spark.table("flights").count() == 1
    spark.catalog.dropTempView("flights")


def test_the_docs_have_the_options_that_there_are():
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    reading, writing = text.split("## Reading")[1].split("## Writing")
    for part, known in (
        (reading, {*BATCH_OPTIONS, *STREAM_OPTIONS} - {"path"}),
        (writing.split("## ")[0], set(WRITE_OPTIONS)),
    ):
        rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == known
