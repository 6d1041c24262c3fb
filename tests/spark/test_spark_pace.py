"""When a stream plans a batch and what it reports: minOffsetsPerTrigger, lag, and
senders that have no messages."""

import json
import logging

import pytest
from journals import A, B, open_journal, record
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from spark_help import batch, stream

from ringcast.errors import ConfigError, JournalError
from ringcast.journal.offsets import digest_of
from ringcast.spark import lag


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr("ringcast.spark.source.monotonic", lambda: Clock.now)
    return Clock





def test_a_batch_waits_for_enough_messages_or_for_the_delay(path, journal, clock):
    reader = stream(path, minOffsetsPerTrigger="5", maxTriggerDelay="1m")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = {A: 8, B: 8}
    first = reader.latestOffset(start, limit)           # the first batch never waits, as Kafka's
    assert first == {A: 10, B: 8}
    record(journal, A, 11, 14)
    journal.sync()
    clock.now += 59.9
    assert reader.latestOffset(first, limit) is first           # four messages
    record(journal, B, 9, 9)
    journal.sync()
    second = reader.latestOffset(first, limit)                  # five, of two senders
    assert second == {A: 14, B: 9}
    record(journal, A, 15, 15)
    journal.sync()
    clock.now += 59.9
    assert reader.latestOffset(second, limit) is second
    clock.now += 0.2
    assert reader.latestOffset(second, limit) == {A: 15, B: 9}  # one, which has waited long enough


def test_the_default_delay_is_a_quarter_of_an_hour(path, journal, clock):
    reader = stream(path, minOffsetsPerTrigger="100")
    limit = reader.getDefaultReadLimit()
    done = reader.latestOffset({A: 0, B: 4}, limit)
    record(journal, A, 11, 14)
    journal.sync()
    clock.now += 899
    assert reader.latestOffset(done, limit) is done
    clock.now += 2
    assert reader.latestOffset(done, limit) == {A: 14, B: 8}


def test_a_least_and_a_most_number_of_messages_hold_together(path, journal, clock):
    reader = stream(path, minOffsetsPerTrigger="3", maxOffsetsPerTrigger="4")
    limit, seen, offset = reader.getDefaultReadLimit(), [], {A: 0, B: 4}
    for _ in range(5):
        offset = digest_of(reader.latestOffset(offset, limit))
        seen.append(sum(offset.values()) - 4)
    assert seen == [4, 8, 12, 12, 12]                           # two are left, and wait
    assert reader.latestOffset(offset, ReadAllAvailable()) == {A: 10, B: 8}
    assert stream(path, maxOffsetsPerTrigger="4").getDefaultReadLimit() == ReadMaxRows(4)


def test_available_now_does_not_wait_for_enough_messages(path, journal, clock):
    reader = stream(path, minOffsetsPerTrigger="100")
    limit = reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({A: 0, B: 4}, limit) == {A: 10, B: 8}
    assert reader.latestOffset({A: 9, B: 8}, limit) == {A: 10, B: 8}


@pytest.mark.parametrize("text, seconds", [
    ("15m", 900), ("2min", 120), ("90s", 90), ("1h", 3600), ("1d", 86400), ("500ms", 0.5),
    ("500us", 0.0005), ("250", 0.25), (" 3 S ", 3)])
def test_a_delay_has_the_units_of_spark(path, text, seconds):
    options = stream(path, minOffsetsPerTrigger="1", maxTriggerDelay=text).options
    assert options.max_trigger_delay == seconds


@pytest.mark.parametrize("options, sentence", [
    ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"},
     "maxTriggerDelay must be .* like 15m"),
    ({"maxTriggerDelay": "-1s", "minOffsetsPerTrigger": "1"}, "maxTriggerDelay must be"),
    ({"maxTriggerDelay": "5 weeks", "minOffsetsPerTrigger": "1"}, "maxTriggerDelay must be"),
    ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger must be a whole number"),
    ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
     "minOffsetsPerTrigger is 5 and maxOffsetsPerTrigger 4"),
    ({"maxTriggerDelay": "15m"}, "maxTriggerDelay .* minOffsetsPerTrigger"),
])
def test_an_impossible_pace_is_refused(path, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        stream(path, **options)


# ---------------------------------------------------------------------------------------------- lag


def progress(*sources):
    """Return what a query reports of sources: (end of batch, end of source)."""
    texts = [[offset if offset is None else json.dumps(offset) for offset in source]
             for source in sources]
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in texts]}


@pytest.mark.parametrize("given, expected", [
    (progress(({A: 10, B: 8}, {A: 16, B: 8})), (3.0, 6, 0)),
    (progress(({A: 10, "read_from": {A: {"1-10": "r1"}}}, {A: 10, B: 5})), (2.5, 5, 0)),  # B is new
    (progress(({A: 10}, {A: 8})), (0.0, 0, 0)),                # read further than the journal goes
    # a Kafka source beside it
    (progress(({"topic": {"0": 5}}, {"topic": {"0": 9}}), ({A: 1}, {A: 3})), (2.0, 2, 2)),
    (progress((None, {A: 3})), (3.0, 3, 3)),                   # before the first batch
])
def test_lag_has_the_figures_of_the_kafka_source(given, expected):
    names = ("avgOffsetsBehindLatest", "maxOffsetsBehindLatest", "minOffsetsBehindLatest")
    assert lag(given) == dict(zip(names, expected, strict=True))


@pytest.mark.parametrize("given", [
    progress(), progress((None, None)), progress(({"topic": {"0": 5}}, {"topic": {"0": 9}})),
    progress((7, 9)), progress(({A: 1}, None)), progress(({}, {}))])
def test_lag_is_unknown_where_no_source_of_ours_reports_offsets(given):
    assert lag(given) == {}


# ------------------------------------------------------------------------------------------ senders


@pytest.mark.parametrize("wish, missing", [("a", "a"), ("A#1,B/ö", "A#1"), ("A,C,D", "C, D")])
def test_a_batch_read_of_a_sender_without_messages_is_refused(path, journal, wish, missing):
    with pytest.raises(JournalError, match=rf"has no messages of {missing}, .*senders.* {A}, {B}"):
        batch(path, senders=wish).partitions()


def test_a_stream_waits_for_a_sender_and_says_so_once(path, journal, caplog):
    reader = stream(path, senders="A,C")
    with caplog.at_level(logging.WARNING, "ringcast"):
        offset = reader.latestOffset({}, ReadAllAvailable())
        reader.latestOffset(offset, ReadAllAvailable())
    assert digest_of(offset) == {A: 10}
    [said] = caplog.messages
    assert (f"has no messages of C yet, which the option senders names; it has those of {A}, {B}"
            in said)
    record(journal, "C#1", 1, 2)
    journal.sync()
    assert digest_of(reader.latestOffset(offset, ReadAllAvailable())) == {A: 10, "C#1": 2}


def test_a_stream_waits_for_a_journal_and_says_so_once(path, caplog):
    reader = stream(path, senders="A")
    with caplog.at_level(logging.WARNING, "ringcast"):
        for _ in range(2):
            assert reader.latestOffset({}, ReadAllAvailable()) == {}
        with open_journal(path) as journal:
            record(journal, B, 1, 2)
        reader.latestOffset({}, ReadAllAvailable())
    reasons = [message.partition(" yet")[0] for message in caplog.messages]
    assert reasons == [f"There is no journal at {path}", f"{path} has no messages of A"]
