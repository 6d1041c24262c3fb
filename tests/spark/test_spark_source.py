"""The source without Spark running: options, planning, offsets, tasks."""

import json
import pickle
import time

import pytest
from journals import A, B, C, column, open_journal, record
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampNTZType
from spark_help import batch, stream

from ringcast.errors import ConfigError, JournalError
from ringcast.journal.merge import Journals
from ringcast.journal.offsets import Copy, digest_of
from ringcast.journal.reader import JournalReader
from ringcast.journal.subscriptions import subscriptions
from ringcast.spark.source import PARTITION_ROWS, RingcastDataSource, Slice


def rows(reader, parts, *columns):
    """Return what the tasks yield, each from a reader of its own."""
    found = []
    for part in parts:
        worker, part = pickle.loads(pickle.dumps((reader, part)))
        batches = list(worker.read(part))
        found += zip(*(column(batches, name) for name in columns), strict=True)
    return found


def test_a_batch_reads_everything_durable_once(path, journal):
    record(journal, A, 11, 12)  # not synced
    reader = batch(path)
    expected = [(A, n) for n in range(1, 11)] + [(B, n) for n in range(5, 9)]
    assert rows(reader, reader.partitions(), "sender", "seqno") == expected


@pytest.mark.parametrize("option", ["nosuch", "maxOffsetsPerTrigger", "subscriptionName"])
def test_an_unknown_option_is_refused_with_the_known_ones(path, journal, option):
    says = (f"no option '{option}' for a (batch )?read; it knows "
            ".*failOnDataLoss, .*startingOffsets")
    with pytest.raises(ConfigError, match=says):
        batch(path, **{option: "1"})


def test_option_names_ignore_case(path, journal):
    assert stream(path, maxoffsetspertrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream(path).getDefaultReadLimit() == ReadAllAvailable()


@pytest.mark.parametrize("option, value", [
    ("failOnDataLoss", "maybe"), ("minPartitions", "0"), ("maxRecordsPerPartition", "-1"),
    ("maxOffsetsPerTrigger", "many"), ("startingOffsets", "soonest"),
    ("startingOffsets", '{"A": -1}'), ("startingOffsets", '{"A": "1"}'),
    ("startingTimestamp", "yesterday"), ("senders", "A,,B"), ("subscriptionName", "../../etc"),
    ("includeHeaders", "1"),
])
def test_a_value_outside_its_range_is_refused_by_name(path, journal, option, value):
    with pytest.raises(ConfigError, match=option.removesuffix("Name")):
        stream(path, **{option: value})


def test_a_read_without_a_path_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match="Name the journal"):
        stream("")


def test_a_batch_cannot_start_at_latest(path, journal):
    with pytest.raises(ConfigError, match="latest reads nothing in a batch"):
        batch(path, startingOffsets="latest")


def test_a_batch_starts_behind_a_json_digest(path, journal):
    reader = batch(path, startingOffsets=json.dumps({A: 8}))
    found = rows(reader, reader.partitions(), "sender", "seqno")
    assert found == [(A, 9), (A, 10), (B, 5), (B, 6), (B, 7), (B, 8)]


def test_a_batch_that_should_start_beyond_the_end_is_refused_without_the_option(path, journal):
    start = json.dumps({A: 11, C: 3})
    says = rf"beyond the end .*{A} 11..11 \(not recorded\), {C} 1..3"
    with pytest.raises(JournalError, match=says):
        batch(path, startingOffsets=start).partitions()
    reader = batch(path, startingOffsets=start, failOnDataLoss="false")
    assert rows(reader, reader.partitions(), "sender", "seqno") == [(B, 5), (B, 6), (B, 7), (B, 8)]


def test_messages_from_before_the_journal_are_missed_only_where_expected(path, journal):
    says = (rf"does not have all messages .*{B} 3..4 \(not recorded\); "
            "set the option failOnDataLoss")
    with pytest.raises(JournalError, match=says):
        batch(path, startingOffsets=json.dumps({B: 2})).partitions()


def test_lost_messages_fail_a_read_without_the_option(path, journal):
    journal.skip(A, 13)
    record(journal, A, 14, 14)
    journal.sync()
    with pytest.raises(JournalError, match=rf"{A} 11..13 \(lost\); set the option failOnDataLoss"):
        batch(path).partitions()
    reader = batch(path, failOnDataLoss="false")
    got = rows(reader, reader.partitions(), "sender", "seqno")
    assert [seqno for sender, seqno in got if sender == A] == [*range(1, 11), 14]
    moving = stream(path)
    with pytest.raises(JournalError, match="failOnDataLoss"):
        moving.partitions({A: 10, B: 8}, {A: 14, B: 8})
    behind = moving.partitions({A: 13, B: 8}, {A: 14, B: 8})
    assert rows(moving, behind, "seqno") == [(14,)]


def test_a_missing_or_foreign_directory_is_one_sentence(path, tmp_path):
    with pytest.raises(JournalError, match="There is no journal at"):
        batch(path).partitions()
    path.mkdir()
    (path / "x.parquet").touch()
    for attempt in (lambda: batch(path).partitions(), lambda: stream(path).initialOffset()):
        with pytest.raises(JournalError, match="is not a journal"):
            attempt()


def test_a_users_schema_is_a_projection_exact_to_the_nullability(path, journal):
    schema = StructType().add("payload", "binary", False).add("seqno", "long")
    reader = batch(path, schema=schema)
    [part] = reader.partitions()
    [first, _] = reader.read(part)
    assert first.schema.names == ["payload", "seqno"]
    assert [field.nullable for field in first.schema] == [False, True]


@pytest.mark.parametrize("name, kind", [
    ("seqno", IntegerType()), ("seqnum", LongType()), ("sent_at", TimestampNTZType()),
    ("payload", StringType())])
def test_a_column_that_does_not_exist_in_that_type_is_refused(path, journal, name, kind):
    says = f"no column '{name} {kind.simpleString()}'; its columns are cluster string"
    with pytest.raises(ConfigError, match=says):
        batch(path, schema=StructType().add(name, kind))


def test_small_senders_share_one_task(path, journal):
    [part] = batch(path).partitions()
    assert part.copies == [Copy(A, 1, 10, ""), Copy(B, 5, 8, "")]


@pytest.mark.parametrize("options, sizes", [
    ({"minPartitions": "3"}, [5, 5, 4]), ({"maxRecordsPerPartition": "6"}, [6, 6, 2])])
def test_the_split_follows_its_options(path, journal, options, sizes):
    reader = batch(path, **options)
    parts = reader.partitions()
    assert [sum(copy.last - copy.first + 1 for copy in part.copies) for part in parts] == sizes
    assert len(rows(reader, parts, "seqno")) == 14


@pytest.mark.parametrize("rows, parts", [(14, 1), (13, 2), (5, 4), (4, 4), (1, 14)])
def test_a_few_partitions_are_a_power_of_two(path, journal, monkeypatch, rows, parts):
    """So no core idles during the last of them."""
    monkeypatch.setattr("ringcast.spark.source.PARTITION_ROWS", rows)
    assert len(batch(path).partitions()) == parts


def test_large_messages_make_smaller_partitions(path, journal, monkeypatch):
    monkeypatch.setattr("ringcast.spark.source.PARTITION_BYTES", 3000)
    journal.append(C, 1, [bytes(1000)] * 20, view_id=1, sent_at=1, delivered_at=1)
    journal.sync()
    reader = batch(path, startingOffsets=json.dumps({A: 10, B: 8}))
    copies = [part.copies for part in reader.partitions()]
    assert copies == [[Copy(C, n, n + 1, "")] for n in range(1, 21, 2)]
    assert PARTITION_ROWS > 20


def test_a_stream_starts_at_the_offsets_of_its_option(path, journal):
    assert stream(path).initialOffset() == {A: 0, B: 4}
    assert stream(path, startingOffsets="latest").initialOffset() == {A: 10, B: 8}
    assert stream(path, startingOffsets=json.dumps({B: 6, A: 3})).initialOffset() == {A: 3, B: 6}


def test_a_stream_steps_within_the_limit_and_ends_on_a_stable_text(path, journal):
    reader = stream(path, maxOffsetsPerTrigger="6")
    start = reader.initialOffset()
    seen = []
    for _ in range(3):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        got = rows(reader, reader.partitions(start, end), "sender", "seqno")
        assert len(got) <= 6
        seen += got
        start = end
    assert sorted(seen) == [(A, n) for n in range(1, 11)] + [(B, n) for n in range(5, 9)]
    assert json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())) == json.dumps(start)
    assert reader.partitions(start, start) == []
    assert reader.reportLatestOffset() == start


def test_read_all_available_overrules_the_option(path, journal):
    reader = stream(path, maxOffsetsPerTrigger="1")
    assert digest_of(reader.latestOffset({}, ReadAllAvailable())) == {A: 10, B: 8}


def test_a_replayed_batch_reads_the_same_messages_of_a_journal_that_grew(path, journal):
    reader = stream(path)
    before = rows(reader, reader.partitions({A: 2}, {A: 7, B: 6}), "sender", "seqno", "payload")
    record(journal, A, 11, 20)
    journal.close()
    reader = stream(path, minPartitions="3")
    after = rows(reader, reader.partitions({A: 2}, {A: 7, B: 6}), "sender", "seqno", "payload")
    assert after == before
    assert len(before) == 7


def test_available_now_ends_where_the_journal_ended_when_it_began(path, journal):
    reader = stream(path)
    reader.prepareForTriggerAvailableNow()
    record(journal, A, 11, 11)
    record(journal, C, 1, 1)
    journal.sync()
    assert digest_of(reader.latestOffset({A: 0}, ReadAllAvailable())) == {A: 10, B: 8}
    assert reader.latestOffset({A: 11, B: 4}, ReadAllAvailable()) == {A: 11, B: 8}


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_stream_waits_for_a_journal_and_for_senders_that_do_not_exist_yet(path, start):
    reader = stream(path, startingOffsets=start)
    offset = reader.initialOffset()
    assert offset == reader.latestOffset(offset, ReadAllAvailable()) == {}
    assert reader.reportLatestOffset() == {}
    path.mkdir()
    assert reader.latestOffset(offset, ReadAllAvailable()) == {}
    with open_journal(path) as journal:
        assert reader.latestOffset(offset, ReadAllAvailable()) == {}
        record(journal, B, 5, 6)
        journal.sync()
        end = reader.latestOffset(offset, ReadAllAvailable())
        assert digest_of(end) == {B: 6}
        assert rows(reader, reader.partitions(offset, end), "seqno") == [(5,), (6,)]


def test_a_stream_that_is_ahead_of_its_journal_stops_without_the_option(path, journal):
    with pytest.raises(JournalError, match=rf"read further than the journal .*{A} 11..12"):
        stream(path).latestOffset({A: 12, B: 5}, ReadAllAvailable())
    relaxed = stream(path, failOnDataLoss="false")
    assert relaxed.latestOffset({A: 12, B: 5}, ReadAllAvailable()) == {A: 12, B: 8}


def test_a_task_reads_only_its_slice(path, journal):
    reader = batch(path)
    piece = Slice(path, [Copy(A, 3, 4, ""), Copy(B, 8, 8, "")], [[(1, None)], []])
    assert rows(reader, [piece], "sender", "seqno") == [(A, 3), (A, 4), (B, 8)]


@pytest.mark.parametrize("end, expected", [
    ({A: 3}, [(A, 1), (A, 2), (A, 3)]), ({A: 1, B: 5}, [(A, 1), (B, 5)]), ({C: 0}, [])])
def test_a_batch_ends_at_a_digest_and_reads_no_other_senders(path, journal, end, expected):
    reader = batch(path, endingOffsets=json.dumps(end))
    assert rows(reader, reader.partitions(), "sender", "seqno") == expected


def test_a_batch_that_should_end_beyond_the_end_is_refused_without_the_option(path, journal):
    end = json.dumps({A: 12})
    says = rf"{A} 11..12 \(not recorded\); set the option failOnDataLoss"
    with pytest.raises(JournalError, match=says):
        batch(path, endingOffsets=end).partitions()
    reader = batch(path, endingOffsets=end, failOnDataLoss="false")
    assert len(rows(reader, reader.partitions(), "seqno")) == 10
    with pytest.raises(ConfigError, match="endingOffsets=earliest reads nothing"):
        batch(path, endingOffsets="earliest")


@pytest.mark.parametrize("wish, expected", [
    ("A", {A}), (A, {A}), ("B/ö , A", {A, B}), ("a", set()), ("A#1", set())])
def test_only_the_named_senders_or_incarnations_are_read(path, journal, wish, expected):
    if expected:
        reader = batch(path, senders=wish)
        assert {sender for sender, in rows(reader, reader.partitions(), "sender")} == expected
    moving = stream(path, senders=wish)
    start = moving.initialOffset()
    assert set(start) == set(moving.reportLatestOffset()) == expected
    parts = moving.partitions(start, moving.latestOffset(start, ReadAllAvailable()))
    assert {copy.sender for part in parts for copy in part.copies} == expected


@pytest.fixture
def hours(path):
    """Message n of A was sent at n o'clock, over two segments, B's all at noon."""
    with open_journal(path, segment_rows=6) as journal:
        for hour in range(1, 13):
            record(journal, A, hour, hour, at=hour * 3600 * 10**9)
            journal.sync()
        record(journal, B, 1, 3, at=12 * 3600 * 10**9)
    return path


@pytest.mark.parametrize("wish", [
    "1970-01-01T09:00:00Z", "1970-01-01 08:00:00.000001", "1970-01-01T11:00:00+02:00",
    str(9 * 3600_000)])
def test_a_start_in_time_is_each_senders_first_message_sent_then_or_later(hours, wish):
    assert stream(hours, startingTimestamp=wish).initialOffset() == {A: 8, B: 0}
    reader = batch(hours, startingTimestamp=wish, endingTimestamp="1970-01-01T11:30:00Z")
    assert rows(reader, reader.partitions(), "sender", "seqno") == [(A, 9), (A, 10), (A, 11)]


def test_a_start_after_everything_is_the_end_and_two_starts_are_refused(hours):
    assert stream(hours, startingTimestamp="2026-01-01").initialOffset() == {A: 12, B: 3}
    says = "startingTimestamp and startingOffsets say the same thing twice"
    with pytest.raises(ConfigError, match=says):
        stream(hours, startingTimestamp="2026-01-01", startingOffsets="latest")


def test_a_stream_does_not_begin_in_the_future(hours):
    """It would read what is sent until then: an offset has seqnos and no time."""
    with pytest.raises(ConfigError, match="startingTimestamp is in the future"):
        stream(hours, startingTimestamp="2999-01-01").initialOffset()
    reader = stream(hours, startingTimestamp="2999-01-01")      # it ran before: as it went on
    assert reader.latestOffset({A: 3}, ReadAllAvailable())[A] == 12
    assert batch(hours, startingTimestamp="2999-01-01").partitions() == []
    soon = str(int(1000 * (time.time() + 5)))                   # by another clock
    assert stream(hours, startingTimestamp=soon).initialOffset() == {A: 12, B: 3}


@pytest.mark.parametrize("moment", ["copies", "stored"])
@pytest.mark.parametrize("low", [6, 12])
def test_a_start_in_time_is_found_while_retention_purges(hours, monkeypatch, moment, low):
    """The first segment, or all; it goes before or after it was chosen to be read."""
    owner = Journals if moment == "copies" else JournalReader
    look = getattr(owner, moment)

    def purge_and_look(*args, **kwargs):
        with open_journal(hours, segment_rows=6) as journal:
            journal.purge({A: low})
        return look(*args, **kwargs)

    monkeypatch.setattr(owner, moment, purge_and_look)
    start = stream(hours, startingTimestamp="1970-01-01T03:00:00Z").initialOffset()
    assert start == {A: low, B: 0}


def test_headers_name_the_recorder_and_the_journal_of_a_row(path):
    with open_journal(path, recorder="rec") as journal:
        record(journal, A, 1, 2)
    reader = batch(path, includeHeaders="true")
    headers = [{"key": "journal", "value": b"journal"}, {"key": "recorder", "value": b"rec"}]
    assert rows(reader, reader.partitions(), "seqno", "headers") == [(1, headers), (2, headers)]
    source = RingcastDataSource({"path": str(path), "includeheaders": "TRUE"})
    kind = source.schema()["headers"].dataType.simpleString()
    assert kind == "array<struct<key:string,value:binary>>"
    with pytest.raises(ConfigError, match="has no column 'headers"):
        batch(path, schema=source.schema())


def test_what_a_stream_commits_is_written_under_its_name(path, journal):
    stream(path).commit({A: 5})
    assert subscriptions(path) == {}
    stream(path, subscriptionName="table").commit({A: 5})
    stream(path, subscriptionName="table").commit({A: 7, B: 6})
    stream(path, subscriptionName="other").commit({A: 1})
    digests = {name: found.digest for name, found in subscriptions(path).items()}
    assert digests == {"table": {A: 7, B: 6}, "other": {A: 1}}


@pytest.fixture
def purged_in_the_middle(path, journal, monkeypatch):
    """Purge all of A after the driver has looked what is there, and before it plans."""
    choose = Journals.copies_again

    def purge_and_choose(*args, **kwargs):
        journal.purge({A: 10})
        return choose(*args, **kwargs)

    monkeypatch.setattr(Journals, "copies_again", purge_and_choose)


@pytest.mark.parametrize("plan", [
    lambda path, **options: batch(path, **options).partitions(),
    lambda path, **options: stream(path, **options).partitions({A: 3, B: 4}, {A: 10, B: 8})])
def test_messages_that_are_purged_while_the_driver_plans_are_reported(path, purged_in_the_middle,
                                                                      plan):
    with pytest.raises(JournalError, match=rf"{A} .*10 \(purged\)"):
        plan(path)
    parts = plan(path, failOnDataLoss="false")
    assert {copy.sender for part in parts for copy in part.copies} == {B}


def test_a_task_whose_messages_were_purged_meanwhile_fails_without_the_option(path, journal):
    reader, relaxed = batch(path), batch(path, failOnDataLoss="false")
    parts = reader.partitions()
    journal.purge({A: 10})
    says = f"Message 1 of {A} was purged .* set the option failOnDataLoss"
    with pytest.raises(JournalError, match=says):
        rows(reader, parts, "seqno")
    assert rows(relaxed, parts, "sender", "seqno") == [(B, 5), (B, 6), (B, 7), (B, 8)]
    with pytest.raises(JournalError, match=rf"{A} 1..10 \(purged\)"):
        stream(path).partitions({A: 0, B: 4}, {A: 10, B: 8})
    later = stream(path).partitions({A: 10, B: 4}, {A: 10, B: 8})
    assert rows(reader, later, "sender") == [(B,)] * 4
