"""A replayed micro-batch has the same rows: a row is a function of its offset, although
a recorder has caught up, was purged or is gone."""

import json
import pickle
import shutil

import pytest
from journals import A, B, crash, open_journal, payloads
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from spark_help import stream as stream_of

from ringcast.errors import JournalError
from ringcast.journal.subscriptions import subscriptions
from ringcast.spark.source import RingcastDataSource

SENT = 1_700_000_000_000_000_000
ALL = ReadAllAvailable()
MESSAGE = ["sender", "seqno", "sent_at", "flags", "payload"]      # the columns of the sender


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "journals"


def recorder(folder, name, **options):
    (folder / name).mkdir(parents=True, exist_ok=True)
    return open_journal(folder / name, recorder=name, **options)


def deliver(journal, sender, first, last):
    """Record the same messages, with a view and a time of this journal."""
    mine = sum(journal.path.name.encode())
    journal.append(sender, first, payloads(first, last), view_id=mine, sent_at=SENT,
                   delivered_at=SENT + mine * 10**6)
    journal.sync()


def stream(folder, columns=None, **options):
    """Return the reader of a stream with headers, of all columns or some."""
    schema = RingcastDataSource({"path": str(folder), "includeHeaders": "true"}).schema()
    if columns is not None:
        schema = StructType([schema[name] for name in columns])
    return stream_of(folder, schema, includeHeaders="true", **options)


def rows(reader, start, end):
    """Return what the tasks of a micro-batch give, each from a worker of its own. The
    offsets go through the checkpoint."""
    found = []
    for part in reader.partitions(*json.loads(json.dumps([start, end]))):
        worker, piece = pickle.loads(pickle.dumps((reader, part)))
        for batch in worker.read(piece):
            found += batch.to_pylist()
    return found


def recorders_of(found):
    return [each["value"].decode() for row in found for each in row["headers"]
            if each["key"] == "recorder"]


def seqnos(found):
    return [(row["sender"], row["seqno"]) for row in found]


def test_a_replay_gives_the_same_rows_when_another_recorder_has_caught_up(folder):
    with recorder(folder, "r1") as one, recorder(folder, "r2") as two:
        deliver(one, A, 1, 6)
        deliver(two, A, 1, 10)
        reader = stream(folder)
        end = reader.latestOffset({}, ALL)
        first = rows(reader, {}, end)
        assert recorders_of(first) == ["r2"] * 10
        deliver(one, A, 7, 20)
        deliver(one, B, 1, 5)
        assert rows(stream(folder), {}, end) == first


def test_a_replay_gives_the_same_rows_when_an_earlier_named_journal_appears(folder):
    with recorder(folder, "r2") as two:
        deliver(two, A, 1, 10)
        reader = stream(folder)
        end = reader.latestOffset({}, ALL)
        first = rows(reader, {}, end)
        with recorder(folder, "r1") as one:
            deliver(one, A, 1, 30)
            assert rows(stream(folder), {}, end) == first


def test_each_range_is_read_from_the_journal_that_the_offset_names(folder):
    """r1 lost 4..7 and r2 began with 3 when the batch was planned."""
    one, two = recorder(folder, "r1"), recorder(folder, "r2")
    deliver(one, A, 1, 3)
    one.skip(A, 7)
    deliver(two, A, 3, 8)
    deliver(one, A, 8, 12)
    reader = stream(folder)
    end = reader.latestOffset({A: 0}, ALL)
    first = rows(reader, {A: 0}, end)
    assert recorders_of(first) == ["r1"] * 3 + ["r2"] * 5 + ["r1"] * 4
    deliver(two, A, 9, 40)
    one.retire()
    crash(one)
    crash(two)
    assert rows(stream(folder), {A: 0}, end) == first


def test_a_step_of_a_stream_starts_where_the_last_one_ended_and_its_text_is_stable(folder):
    with recorder(folder, "r1") as one, recorder(folder, "r2") as two:
        deliver(one, A, 1, 6)
        deliver(two, A, 1, 10)
        reader = stream(folder)
        offset, seen = reader.initialOffset(), []
        for _ in range(4):
            end = reader.latestOffset(json.loads(json.dumps(offset)), ReadMaxRows(3))
            seen += rows(reader, offset, end)
            offset = end
        assert seqnos(seen) == [(A, seqno) for seqno in range(1, 11)]
        text = json.dumps(offset)
        assert json.dumps(stream(folder).latestOffset(json.loads(text), ALL)) == text
        deliver(two, A, 11, 12)
        later = reader.latestOffset(json.loads(text), ALL)
        assert seqnos(rows(reader, offset, later)) == [(A, 11), (A, 12)]


def planned_from_r1(folder):
    """Plan a micro-batch that names r1, while r2 has the same messages and more."""
    with recorder(folder, "r1", segment_rows=2) as one, recorder(folder, "r2") as two:
        deliver(one, A, 1, 6)
        end = stream(folder).latestOffset({A: 0}, ALL)
        first = rows(stream(folder), {A: 0}, end)
        deliver(two, A, 1, 10)
    return end, first


def purge(folder):
    with recorder(folder, "r1") as one:
        one.purge({A: 6})


def damage(folder):
    for file in (folder / "r1").glob("*/*.arrow"):
        file.write_bytes(bytes(file.stat().st_size))


def remove(folder):
    shutil.rmtree(folder / "r1")


@pytest.mark.parametrize("harm", [purge, damage, remove])
def test_other_rows_come_only_with_the_option_that_allows_them(folder, harm):
    end, first = planned_from_r1(folder)
    harm(folder)
    says = rf"journals/r1 .*message.* 1.* of {A}.*view_id.*failOnDataLoss"
    with pytest.raises(JournalError, match=says):
        rows(stream(folder), {A: 0}, end)
    other = rows(stream(folder, failOnDataLoss="false"), {A: 0}, end)
    assert seqnos(other) == seqnos(first) and recorders_of(other) == ["r2"] * 6


@pytest.mark.parametrize("harm", [purge, damage, remove])
def test_the_columns_of_the_sender_are_read_from_any_copy(folder, harm):
    end, _ = planned_from_r1(folder)
    before = rows(stream(folder, MESSAGE), {A: 0}, end)
    harm(folder)
    assert rows(stream(folder, MESSAGE), {A: 0}, end) == before
    assert len(before) == 6


def test_what_was_skipped_as_lost_stays_skipped(folder):
    one, two = recorder(folder, "r1"), recorder(folder, "r2")
    deliver(one, A, 1, 3)
    one.skip(A, 7)
    deliver(one, A, 8, 9)
    two.retire()
    relaxed = stream(folder, failOnDataLoss="false")
    end = relaxed.latestOffset({A: 0}, ALL)
    first = rows(relaxed, {A: 0}, end)
    assert seqnos(first) == [(A, seqno) for seqno in (1, 2, 3, 8, 9)]
    deliver(two, A, 1, 9)
    assert rows(stream(folder, failOnDataLoss="false"), {A: 0}, end) == first
    assert len(rows(stream(folder), {A: 0}, end)) == 9        # by default all are read


@pytest.mark.parametrize("name", ["", "r1"])
def test_a_new_sender_that_was_purged_before_the_replay_is_reported(folder, name):
    """The end of the batch has where the sender began, its start does not."""
    with recorder(folder, name, segment_rows=2) as journal:
        for first in (5, 7, 9):
            deliver(journal, A, first, first + 1)
        reader = stream(folder)
        end = reader.latestOffset({}, ALL)
        assert len(rows(reader, {}, end)) == 6
        journal.purge({A: 6})
        with pytest.raises(JournalError, match=rf"{A} 5..6 \(purged\)"):
            stream(folder).partitions({}, end)
        found = rows(stream(folder, failOnDataLoss="false"), {}, end)
        assert seqnos(found) == [(A, seqno) for seqno in range(7, 11)]


def test_an_offset_without_journals_is_still_read(folder):
    """Checkpoints of earlier versions have such offsets, and startingOffsets."""
    with recorder(folder, "r1") as one:
        deliver(one, A, 1, 6)
    assert seqnos(rows(stream(folder), {A: 2}, {A: 5})) == [(A, 3), (A, 4), (A, 5)]


def test_an_offset_of_a_checkpoint_is_a_starting_offset_and_a_subscription_is_its_digest(folder):
    with recorder(folder, "r1") as one:
        deliver(one, A, 1, 6)
        end = stream(folder).latestOffset({}, ReadMaxRows(4))
        assert end.keys() > {A}
        reader = stream(folder, startingOffsets=json.dumps(end), subscriptionName="table")
        assert reader.initialOffset() == {A: 4}
        reader.commit(end)
        assert subscriptions(one.path)["table"].digest == {A: 4}


def test_what_a_checkpoint_committed_is_its_digest(folder, tmp_path):
    from ringcast.journal.subscriptions import committed

    with recorder(folder, "r1") as one:
        deliver(one, A, 1, 6)
        end = stream(folder).latestOffset({}, ALL)
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(end)}"), ("commits", "v1\n{}")):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
        (tmp_path / "checkpoint" / name / "0").write_text(text)
    assert committed(tmp_path / "checkpoint") == {A: 6}
