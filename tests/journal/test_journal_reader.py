"""A reader gets exactly its range, beside a writer that appends and seals, and never
beyond the digest."""

import shutil
import threading

import pytest
from hypothesis import given, settings, strategies as st
from journals import A, B, column, crash, open_journal, record, seqnos

from ringcast.errors import JournalError
from ringcast.journal.rows import ROWS
from ringcast.spark import JournalReader


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Record messages 11..60 of A without 31..35: sealed segments, a tail, batches of
    many sizes."""
    path = tmp_path_factory.mktemp("mixed") / "journal"
    journal = open_journal(path, segment_rows=9)
    first = 11
    for count in (1, 2, 5, 7, 3, 2):
        record(journal, A, first, first + count - 1)
        journal.sync()
        first += count
    assert first == 31
    journal.skip(A, 35)
    for count in (8, 4, 9, 4):
        record(journal, A, first + 5, first + 5 + count - 1)
        journal.sync()
        first += count
    crash(journal)
    assert [piece.sealed for piece in JournalReader(path).segments(A)][-2:] == [True, False]
    return path


@settings(max_examples=300, deadline=None)
@given(first=st.integers(0, 70), last=st.integers(0, 70))
def test_any_range_gives_exactly_its_messages(mixed, first, last):
    there = [*range(11, 31), *range(36, 61)]
    assert seqnos(mixed, A, first, last) == [seqno for seqno in there if first <= seqno <= last]


def test_a_projection_builds_only_its_columns_in_its_order(mixed):
    import pyarrow as pa

    schema = pa.schema([ROWS.field("payload"), ROWS.field("seqno")])
    [batch] = JournalReader(mixed).read(A, 40, 41, schema)
    assert batch.to_pylist() == [{"payload": b"40", "seqno": 40}, {"payload": b"41", "seqno": 41}]
    assert batch.schema == schema


def test_segments_name_their_messages_and_sizes(mixed):
    pieces = JournalReader(mixed).segments(A)
    held = [seqno for piece in pieces for seqno in range(piece.first, piece.last + 1)]
    assert held == [*range(11, 31), *range(36, 61)]
    assert all(piece.size > 0 for piece in pieces)
    assert JournalReader(mixed).segments(B) == []


def test_a_row_in_the_index_but_not_in_the_digest_is_not_shown(tmp_path):
    path = tmp_path / "journal"
    journal = open_journal(path)
    record(journal, A, 1, 3)
    journal.sync()
    confirmed = (path / "digest.json").read_bytes()
    record(journal, A, 4, 6)
    journal.sync()
    (path / "digest.json").write_bytes(confirmed)
    assert seqnos(path, A) == [1, 2, 3]
    assert [piece.last for piece in JournalReader(path).segments(A)] == [3]
    crash(journal)


def test_a_tail_sealed_between_listing_and_reading_is_still_read(tmp_path):
    path = tmp_path / "journal"
    journal = open_journal(path)
    for first in range(1, 31, 10):
        record(journal, A, first, first + 9)
        journal.sync()
    reader = JournalReader(path)
    batches = reader.read(A, 1, 30)
    got = next(batches).column("seqno").to_pylist()
    reader_before = reader.read(A, 1, 30)
    listed = reader._find(A, 1, 30)
    found = iter([listed])
    reader._find = lambda *span, real=reader._find: next(found, None) or real(*span)
    journal.close()  # seals, and removes the tail that both readers know of
    got += column(batches, "seqno")
    assert got == list(range(1, 31))
    assert sum(batch.num_rows for batch in reader_before) == 30


@pytest.mark.prove
def test_a_reader_beside_a_sealing_writer_sees_every_message_once(tmp_path):
    path = tmp_path / "journal"
    journal = open_journal(path, segment_rows=40)
    record(journal, A, 1, 1)
    journal.sync()
    done = threading.Event()

    def write():
        try:
            for first in range(2, 6000, 7):
                record(journal, A, first, first + 6)
                journal.sync()
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    try:
        while not done.is_set() or reads < 3:
            high = JournalReader(path).digest()[A]
            low = max(1, high - 300)
            assert seqnos(path, A, low, high) == list(range(low, high + 1))
            reads += 1
    finally:
        writer.join()
        journal.close()


def test_a_reader_gets_what_is_before_a_missing_segment_and_then_an_error(tmp_path):
    path = tmp_path / "journal"
    with open_journal(path, segment_rows=2) as journal:
        for first in (1, 3, 5):
            record(journal, A, first, first + 1)
            journal.sync()
    for file in path.glob(f"*/{3:020d}-*"):
        shutil.move(file, tmp_path)
    batches = JournalReader(path).read(A, 1, 6)
    assert next(batches).column("seqno").to_pylist() == [1, 2]
    with pytest.raises(JournalError, match="cannot give message 3"):
        next(batches)
    assert seqnos(path, A, 5, 6) == [5, 6]
