"""The log of segments makes planning and reading a few messages cost the same in a
journal of any length. It is only a hint: a journal is read without it."""

import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from journals import A, column, crash, open_journal, record, seqnos

from ringcast.journal.manifest import folder_name
from ringcast.spark import JournalReader


class Counter:
    """Notes which files are opened, stat'ed and listed. An interpreter never forgets an
    audit hook, so there is one counter for all tests."""

    def __init__(self):
        self.seen = None
        sys.addaudithook(self)

    def __call__(self, event, args):
        if self.seen is not None and event in ("open", "os.listdir", "os.scandir"):
            self.seen.append(event if event == "open" else f"list {Path(args[0]).name}")

    def events_of(self, call):
        self.seen, stat = [], os.stat

        def counted(*args, **options):
            self.seen.append("stat")
            return stat(*args, **options)

        os.stat = counted
        try:
            call()
            return sorted(self.seen)
        finally:
            self.seen, os.stat = None, stat


COUNTER = Counter()


def long_journal(path, segments):
    """Record two messages in each of the sealed segments, and one in the tail."""
    journal = open_journal(path, segment_rows=2)
    for first in range(1, 2 * segments, 2):
        record(journal, A, first, first + 1)
        journal.sync()
    record(journal, A, 2 * segments + 1, 2 * segments + 1)
    journal.sync()
    return journal


@pytest.fixture(params=["as written", "opened again", "purged"])
def two(request, tmp_path):
    """Return a short journal and a long one: their paths and last seqnos."""
    found = []
    for count in (20, 200):
        journal = long_journal(tmp_path / f"{count}", count)
        if request.param == "purged":
            journal.purge({A: 10})
        crash(journal)
        if request.param == "opened again":
            crash(open_journal(tmp_path / f"{count}", segment_rows=2))
        found.append((tmp_path / f"{count}", 2 * count + 1))
    return found


def test_planning_and_reading_a_micro_batch_cost_the_same_in_a_long_journal(two):
    pytest.importorskip("pyspark")
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from ringcast.spark.source import RingcastDataSource

    def costs(path, last):
        source = RingcastDataSource({"path": str(path)})
        reader = source.streamReader(source.schema())
        made = {}

        def plan():
            made["end"] = reader.latestOffset({A: last - 8}, ReadMaxRows(7))
            made["parts"] = reader.partitions({A: last - 8}, made["end"])

        def read():
            parts = pickle.loads(pickle.dumps(made["parts"]))
            made["rows"] = [seqno for part in parts for seqno in column(reader.read(part), "seqno")]

        plan()                                  # opens what is opened only once, such as modules
        counts = COUNTER.events_of(plan), COUNTER.events_of(read)
        assert made["rows"] == list(range(last - 7, last))
        return counts

    short, long = (costs(*each) for each in two)
    assert long == short
    planned, task = long
    assert not any(event.startswith("list") for event in planned + task)
    assert len(planned) < 40 and len(task) < 20


def test_a_range_costs_a_reader_the_same_in_a_long_journal(two):
    def costs(path, last):
        reader = JournalReader(path)
        assert seqnos(path, A, last - 5, last) == list(range(last - 5, last + 1))
        return [COUNTER.events_of(call) for call in (lambda: list(reader.read(A, 21, 24)),
                                                     lambda: reader.entries(A, 21, 24),
                                                     lambda: reader.segments(A, 21, 24),
                                                     lambda: reader.segments(A))]

    short, long = (costs(*each) for each in two)
    assert long == short
    assert not any(event.startswith("list") for events in long for event in events)


def read_ranges(path):
    """Return the segments and several short ranges, as JournalReader gives them."""
    pieces = [(piece.first, piece.last, piece.sealed) for piece in JournalReader(path).segments(A)]
    return pieces, [seqnos(path, A, first, first + 5) for first in range(1, 45, 3)]


def cut_off(log):
    log.write_bytes(log.read_bytes()[:-100])


def flip(log):
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)


def garbage(log):
    log.write_bytes(os.urandom(1000))


@pytest.mark.parametrize("harm", [os.remove, cut_off, flip, garbage])
def test_a_damaged_log_hides_no_message_and_the_next_writer_makes_it_again(tmp_path, harm):
    path = tmp_path / "journal"
    crash(long_journal(path, 20))
    before = read_ranges(path)
    harm(path / folder_name(A) / "segments.log")
    assert read_ranges(path) == before
    crash(open_journal(path))
    assert read_ranges(path) == before
    events = COUNTER.events_of(lambda: list(JournalReader(path).read(A, 5, 9)))
    assert not any(event.startswith("list") for event in events)


def test_the_log_of_another_group_is_ignored(tmp_path):
    path, other = tmp_path / "journal", tmp_path / "other"
    crash(long_journal(other, 20))
    with open_journal(path, group="h", segment_rows=5) as journal:
        for first in (1, 6, 11):
            record(journal, A, first, first + 4)
            journal.sync()
    shutil.copy(other / folder_name(A) / "segments.log", path / folder_name(A) / "segments.log")
    assert [piece[:2] for piece in JournalReader(path).segments(A)] == [(1, 5), (6, 10), (11, 15)]
    assert seqnos(path, A) == list(range(1, 16))


def test_a_purge_removes_its_segments_from_the_log(tmp_path):
    path = tmp_path / "journal"
    journal = long_journal(path, 20)
    log = path / folder_name(A) / "segments.log"
    size = log.stat().st_size
    journal.purge({A: 30})
    assert log.stat().st_size < size / 2
    assert [piece.first for piece in JournalReader(path).segments(A)] == [31, 33, 35, 37, 39, 41]
    record(journal, A, 42, 45)
    journal.sync()
    crash(journal)
    assert seqnos(path, A) == list(range(31, 46))
