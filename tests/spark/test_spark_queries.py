"""The source in a real Spark: batch, stream to Parquet and to foreachBatch, options and
errors as users meet them."""

import json
from pathlib import Path

import pytest
from journals import A, B, C, open_journal, record
from pyspark.sql.functions import expr
from spark_help import start_query

from ringcast.journal.retention import Retention
from ringcast.journal.subscriptions import committed, subscriptions
from ringcast.spark import Journal, JournalReader, lag

pytestmark = pytest.mark.spark

KINDS = ("cluster string, sender string, seqno bigint, view_id bigint, sent_at timestamp, "
         "delivered_at timestamp, flags int, payload binary")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "journal")


@pytest.fixture
def journal(path):
    with open_journal(path, segment_rows=1000) as journal:
        for first in range(1, 3001, 500):
            record(journal, A, first, first + 499)
            journal.sync()
        record(journal, B, 11, 60, view_id=2)
        journal.sync()
        yield journal


def summary(frame):
    """Return for each sender: the number of rows, the lowest and the highest seqno, the
    number of distinct seqnos, and whether each payload is its seqno's own."""
    rows = frame.selectExpr(
        "sender", "seqno", "cast(cast(payload as string) as bigint) = seqno as own")
    found = rows.groupBy("sender").agg(
        *map(expr, ("count(*)", "min(seqno)", "max(seqno)", "count(distinct seqno)", "min(own)")))
    return {row.sender: tuple(row)[1:] for row in found.collect()}


def available_now(spark, path, out, **options):
    """Stream what is there to Parquet. Return the batches that had rows."""
    stream = spark.readStream.format("ringcast").options(**options).load(path)
    query = start_query(stream, "parquet", f"{out}.checkpoint", out)
    assert query.awaitTermination(60)
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def test_a_batch_needs_no_registration_and_has_every_row_once(spark, path, journal):
    frame = spark.read.format("ringcast").load(path)
    assert frame.schema.simpleString() == f"struct<{KINDS.replace(', ', ',').replace(' ', ':')}>"
    assert summary(frame) == {A: (3000, 1, 3000, 3000, True), B: (50, 11, 60, 50, True)}
    row = frame.where("seqno = 11 and view_id = 2").collect()[0]
    assert (row.cluster, row.sender, row.flags, bytes(row.payload)) == ("g", B, 0, b"11")
    times = frame.selectExpr("cast(min(sent_at) as string)", "cast(max(delivered_at) as string)")
    assert tuple(times.first()) == ("2023-11-14 22:13:20.123456", "2023-11-14 22:13:21.123456")


def test_a_users_schema_and_split_options_reach_the_reader(spark, path, journal):
    reader = spark.read.schema("payload binary, seqno bigint").format("ringcast")
    frame = reader.option("minPartitions", 4).load(path)
    assert frame.rdd.getNumPartitions() == 4
    total = 3000 * 3001 // 2 + 50 * 71 // 2
    assert frame.selectExpr("sum(seqno)", "count(payload)").first()[:] == (total, 3050)


@pytest.mark.parametrize("options, folder, sentence", [
    ({"nosuch": "1"}, "", "ringcast has no option 'nosuch' for a read; it knows .*failOnDataLoss"),
    ({}, "/nowhere", "There is no journal at"),
    ({"startingOffsets": json.dumps({C: 1})}, "", "beyond the end of the journal"),
])
def test_a_wrong_read_is_refused_in_our_words(spark, path, journal, options, folder, sentence):
    with pytest.raises(Exception, match=sentence):
        spark.read.format("ringcast").options(**options).load(path + folder).count()


def test_a_stream_to_parquet_takes_each_message_once_over_two_runs(spark, path, journal, tmp_path):
    out = str(tmp_path / "table")
    first = available_now(spark, path, out, maxOffsetsPerTrigger=1300)
    assert [progress["numInputRows"] for progress in first] == [1300, 1300, 450]
    assert json.loads(first[-1]["sources"][0]["endOffset"]) == {A: 3000, B: 60}
    assert available_now(spark, path, out) == []
    record(journal, A, 3001, 3100)
    record(journal, C, 1, 5)
    journal.sync()
    assert [progress["numInputRows"] for progress in available_now(spark, path, out)] == [105]
    table = summary(spark.read.parquet(out))
    assert table == {A: (3100, 1, 3100, 3100, True), B: (50, 11, 60, 50, True),
                     C: (5, 1, 5, 5, True)}


def test_a_batch_that_runs_again_has_the_same_rows_although_a_recorder_caught_up(spark, tmp_path):
    """The test removes a batch's commit from the checkpoint, as a crash between the
    sink and the commit leaves it."""
    folder, checkpoint, batches = tmp_path / "journals", tmp_path / "checkpoint", []

    def deliver(name, first, last, view_id):
        (folder / name).mkdir(parents=True, exist_ok=True)
        with Journal(folder / name, group="g", recorder=name, fsync=False) as journal:
            record(journal, A, first, last, view_id=view_id)

    def take(frame, number):
        batches.append((number, sorted(map(str, frame.collect()))))

    def run():
        stream = spark.readStream.format("ringcast").option("includeHeaders", True)
        writer = stream.load(str(folder)).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(60)

    deliver("r1", 1, 6, view_id=1)
    deliver("r2", 1, 10, view_id=2)
    run()
    deliver("r1", 7, 20, view_id=1)
    for file in checkpoint.glob("commits/*0*"):
        file.unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    run()
    assert [number for number, _ in batches] == [0, 0, 1]
    assert batches[1] == batches[0] and len(batches[0][1]) == 10 and len(batches[2][1]) == 10


def test_a_query_waits_for_enough_messages_and_reports_its_lag(spark, path, journal, tmp_path):
    """With both limits and Spark's own trigger 50 messages wait for 100."""
    stream = spark.readStream.format("ringcast").options(
        minOffsetsPerTrigger=100, maxOffsetsPerTrigger=1500, maxTriggerDelay="1h").load(path)
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    try:
        query.processAllAvailable()
        rows = [progress["numInputRows"] for progress in query.recentProgress
                if progress["numInputRows"]]
        assert rows == [1500, 1500]
        names = ("avgOffsetsBehindLatest", "maxOffsetsBehindLatest", "minOffsetsBehindLatest")
        assert lag(query.lastProgress) == dict(zip(names, (25.0, 50, 0), strict=True))
    finally:
        query.stop()


def test_a_stream_started_before_the_recorder_sees_its_first_message(spark, path, tmp_path):
    """The query runs over a directory that does not exist yet."""
    batches = {}

    def take(frame, number):
        rows = [(row.sender, row.seqno) for row in frame.collect()]
        if rows:                        # Spark runs its first batch even if it is empty
            batches[number] = rows

    writer = spark.readStream.format("ringcast").load(path).writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert batches == {}
        with open_journal(path) as journal:
            record(journal, B, 7, 8)
            journal.sync()
            query.processAllAvailable()
            record(journal, A, 1, 2)
            journal.sync()
            query.processAllAvailable()
        query.processAllAvailable()
        found = [sorted(rows) for _, rows in sorted(batches.items())]
        assert found == [[(B, 7), (B, 8)], [(A, 1), (A, 2)]]
    finally:
        query.stop()


def test_a_stream_stops_at_lost_messages_without_the_option(spark, path, journal, tmp_path):
    out = str(tmp_path / "table")
    journal.skip(A, 3010)
    record(journal, A, 3011, 3012)
    journal.sync()
    says = rf"{A} 3001..3010 \(lost\); set the option failOnDataLoss to false"
    with pytest.raises(Exception, match=says):
        available_now(spark, path, out)
    available_now(spark, path, out, failOnDataLoss="false")
    assert summary(spark.read.parquet(out))[A] == (3002, 1, 3012, 3002, True)


@pytest.fixture
def pushdown(spark):
    """Return what sets Spark's own switch for filters, and reset that at the end."""
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    assert before == "true"             # session() sets it
    yield lambda enabled: spark.conf.set(name, str(enabled).lower())
    spark.conf.set(name, before)


@pytest.mark.parametrize("wished", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_filters_give_the_same_rows_pushed_down_or_not(spark, path, journal, pushdown, wished,
                                                       enabled):
    pushdown(enabled)

    def some(filters):
        reader = spark.read.format("ringcast").option("filterPushdown", wished)
        return reader.load(path).where(filters)

    frame = some(f"sender = '{A}' and seqno between 1401 and 1500 "
                 "and sent_at < timestamp'2026-01-01T00:00:00Z'")
    assert frame.selectExpr("count(*)", "sum(seqno)").first()[:] == (100, 100 * 2901 // 2)
    journal.skip(A, 3005)
    if wished and enabled:             # the lost messages are not asked for
        assert some("seqno <= 3000").count() == 3050
    else:
        with pytest.raises(Exception, match=r"3001..3005 \(lost\)"):
            some("seqno <= 3000").count()


def test_one_frame_serves_queries_with_different_filters(spark, path, journal):
    """Spark keeps the plan of the last filter with the frame, so that without the
    option nothing may depend on it."""
    frame = spark.read.format("ringcast").load(path)
    few = frame.where("seqno = 20")
    assert (few.count(), frame.count()) == (2, 3050)
    assert few.union(frame.where("seqno < 11")).union(frame).count() == 2 + 10 + 3050


def test_a_users_java_options_are_kept_beside_ours(spark):
    options = spark.conf.get("spark.driver.extraJavaOptions").split()
    assert {"-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false",
            "-Dours=kept"} <= set(options)


def test_headers_come_in_kafkas_shape(spark, path, journal):
    frame = spark.read.format("ringcast").option("includeHeaders", "true").load(path)
    kind = frame.schema["headers"].dataType.simpleString()
    assert kind == "array<struct<key:string,value:binary>>"
    headers = frame.where("seqno = 20").selectExpr("explode(headers) as h")
    found = headers.selectExpr("h.key", "cast(h.value as string)").distinct()
    assert sorted(map(tuple, found.collect())) == [("journal", "journal"), ("recorder", "")]


def test_retention_removes_what_a_stream_committed_and_the_next_run_loses_nothing(
        spark, path, journal, tmp_path):
    """Spark commits a batch when it plans the next one, so that the last batch stays
    until the checkpoint is read."""
    out = str(tmp_path / "table")
    retention = Retention(subscriptions=("table",))
    assert retention.enforce(journal) == 0
    available_now(spark, path, out, maxOffsetsPerTrigger=1300, subscriptionName="table")
    assert subscriptions(tmp_path / "journal")["table"].digest == {A: 2550, B: 60}
    assert retention.enforce(journal) > 0
    assert [piece.first for piece in JournalReader(path).segments(A)] == [2001]
    # only what all of them have
    # both the subscription and the checkpoint must have committed a message
    last = [committed(Path(f"{out}.checkpoint"))]
    assert retention.enforce(journal, committed=last) == 0
    assert Retention().enforce(journal, committed=last) > 0
    assert journal.digest == {A: 3000, B: 60} and JournalReader(path).segments(A) == []
    record(journal, A, 3001, 3100)
    journal.sync()
    available_now(spark, path, out, subscriptionName="table")
    table = summary(spark.read.parquet(out))
    assert table == {A: (3100, 1, 3100, 3100, True), B: (50, 11, 60, 50, True)}
    with pytest.raises(Exception, match=rf"{A} 1..3000 \(purged\)"):
        available_now(spark, path, f"{out}.new", startingOffsets=json.dumps({A: 0, B: 60}))
