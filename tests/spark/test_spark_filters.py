"""Which rows pushed-down filters let through, which filters Spark keeps, and that the
other segments are not opened."""

from datetime import UTC, datetime, timedelta

import pytest
from journals import A, B, C, column, open_journal, record

pytest.importorskip("pyspark", reason="the source needs pyspark: pip install ringcast[spark]")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ringcast.errors import JournalError
from ringcast.spark.filters import EPOCH, Bounds
from ringcast.spark.options import BATCH_OPTIONS, ReadOptions
from ringcast.spark.source import FilteringReader, RingcastDataSource

HOUR = 3600 * 10**9
SENT, DELIVERED, SEQNO, SENDER = ("sent_at",), ("delivered_at",), ("seqno",), ("sender",)


def hour(number, second=0):
    return EPOCH + timedelta(hours=number, seconds=second)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Message n of A was sent at n o'clock, of B n seconds past midday, and delivered a
    second later. Two messages are in each segment."""
    path = tmp_path_factory.mktemp("filters") / "journal"
    with open_journal(path, segment_rows=2) as journal:
        for number in range(1, 11):
            record(journal, A, number, number, at=number * HOUR)
            record(journal, B, number, number, at=12 * HOUR + number * 10**9)
            journal.sync()
    return path


@pytest.fixture
def opened(monkeypatch):
    """Return a list that gets each segment that is opened."""
    names = []

    import ringcast.journal.reader as reader

    def noting(segment, *rest, real=reader.read_segment, **options):
        names.append((segment.path.parent.name[0], segment.first))
        return real(segment, *rest, **options)

    monkeypatch.setattr(reader, "read_segment", noting)
    return names


def reader(path, *filters, **options):
    source = RingcastDataSource({"path": str(path)})
    """Return a reader and the filters that it leaves to Spark."""
    reading = FilteringReader(ReadOptions({"path": str(path), **options}, BATCH_OPTIONS),
                              source.schema())
    return reading, list(reading.pushFilters(list(filters)))


def rows(reading):
    batches = [batch for part in reading.partitions() for batch in reading.read(part)]
    return list(zip(column(batches, "sender"), column(batches, "seqno"), strict=True))


everything = [(sender, number) for sender in (A, B) for number in range(1, 11)]


@pytest.mark.parametrize("wishes, left, expected, segments", [
    ([EqualTo(SENDER, A)], 0, [(A, n) for n in range(1, 11)], 5),
    ([In(SENDER, (B, C))], 0, [(B, n) for n in range(1, 11)], 5),
    ([EqualNullSafe(SENDER, C)], 0, [], 0),
    ([EqualTo(SENDER, A), In(SENDER, (B,))], 0, [], 0),
    ([EqualTo(SENDER, A), EqualTo(SEQNO, 7)], 0, [(A, 7)], 1),
    ([GreaterThan(SEQNO, 9), IsNotNull(SEQNO)], 0, [(A, 10), (B, 10)], 2),
    ([GreaterThanOrEqual(SEQNO, 9), LessThan(SEQNO, 10)], 0, [(A, 9), (B, 9)], 2),
    ([LessThanOrEqual(SEQNO, 1)], 0, [(A, 1), (B, 1)], 2),
    ([LessThan(SEQNO, -2**63)], 0, [], 0),
    ([In(SEQNO, (3, 5))], 1, [(s, n) for s in (A, B) for n in (3, 4, 5)], 4),
    ([EqualTo(SENDER, A), GreaterThanOrEqual(SENT, hour(9))], 1, [(A, 9), (A, 10)], 1),
    ([EqualTo(SENDER, A), LessThan(SENT, hour(3))], 1, [(A, 1), (A, 2)], 1),
    ([EqualTo(SENT, hour(12, 3))], 1, [(B, 3), (B, 4)], 1),
    ([GreaterThan(DELIVERED, hour(10)), LessThan(DELIVERED, hour(12, 2))], 2, [(A, 9), (A, 10)], 1),
    ([GreaterThan(SENT, hour(12)), LessThan(SENT, hour(11))], 2, [], 0),
    ([Not(EqualTo(SENDER, A)), StringStartsWith(SENDER, "A"), EqualTo(("payload",), b"1"),
      EqualTo(SENDER, 3), EqualTo(("a", "b"), 1)], 5, everything, 10),
])
def test_filters_let_rows_through_and_open_few_segments(path, opened, wishes, left, expected,
                                                        segments):
    reading, rest = reader(path, *wishes)
    assert len(rest) == left
    assert reading.partitions() or not expected
    assert opened == []             # the plan needs indexes alone
    assert rows(reading) == expected
    assert len(opened) == segments


def test_messages_that_a_filter_leaves_out_may_be_lost(tmp_path):
    with open_journal(tmp_path) as journal:
        journal.skip(A, 5)
        record(journal, A, 6, 8)
    with pytest.raises(JournalError, match=r"1..5 \(lost\)"):
        reader(tmp_path)[0].partitions()
    with pytest.raises(JournalError, match=r"5..5 \(lost\)"):
        reader(tmp_path, GreaterThan(SEQNO, 4))[0].partitions()
    assert rows(reader(tmp_path, GreaterThan(SEQNO, 6))[0]) == [(A, 7), (A, 8)]


def test_a_damaged_index_is_reported_and_not_taken_for_no_messages(tmp_path):
    with open_journal(tmp_path, segment_rows=2) as journal:
        for number in range(1, 7):
            record(journal, A, number, number, at=number * HOUR)
            journal.sync()
    [index] = tmp_path.glob(f"*/{3:020d}-*.idx")
    index.write_bytes(bytes(index.stat().st_size))
    early = reader(tmp_path, LessThan(SENT, hour(3)), LessThan(SEQNO, 3))[0]
    assert rows(early) == [(A, 1), (A, 2)]
    for wish in (GreaterThan(SENT, hour(5)), LessThan(SENT, hour(2))):
        with pytest.raises(JournalError, match="cannot give message 3"):
            rows(reader(tmp_path, wish)[0])


def test_a_worker_that_does_not_see_the_journal_says_so(path, tmp_path):
    reading, _ = reader(path)
    [part, *_] = reading.partitions()
    part.path = tmp_path / "elsewhere"
    with pytest.raises(JournalError, match="no journal at .* on this machine"):
        list(reading.read(part))


def test_times_without_a_zone_are_utc_and_other_values_are_left_to_spark():
    bounds = Bounds()
    nine = datetime(1970, 1, 1, 9, tzinfo=UTC).replace(tzinfo=None)
    assert not bounds.narrow(GreaterThan(SENT, nine))
    assert bounds._from["sent_at"] == 9 * 3600 * 10**6 + 1
    for left in (GreaterThan(SENT, 5), GreaterThan(SEQNO, 1.5), In(SEQNO, ())):
        assert not bounds.narrow(left)
    assert bounds._from == {"seqno": -(2**63) + 1, "sent_at": 9 * 3600 * 10**6 + 1,
                            "delivered_at": -(2**63) + 1}
