"""The log of segments: planning and reading a few messages costs the same in a journal
of any length; and it is only a hint."""

import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from journals import A, crash, record, seqnos

from ringcast.journal.manifest import folder_name
from ringcast.spark import Journal, JournalReader


class Counter:
    """How many files were opened and directories listed; interpreters never forget an
    audit hook, so there is one for all."""

    def __init__(self):
        self.seen = None
        sys.addaudithook(self)

    def __call__(self, event, args):
        if self.seen is not None and event in ("open", "os.listdir", "os.scandir"):
            self.seen.append(event if event == "open" else f"list {Path(args[0]).name}")

    def of(self, what):
        self.seen, stat = [], os.stat

        def counted(*args, **options):
            self.seen.append("stat")
            return stat(*args, **options)

        os.stat = counted
        try:
            what()
            return sorted(self.seen)
        finally:
            self.seen, os.stat = None, stat


COUNTER = Counter()


def long_journal(path, segments):
    """Two messages in each sealed segment, and one in the tail."""
    journal = Journal(path, group="g", segment_rows=2, fsync=False)
    for first in range(1, 2 * segments, 2):
        record(journal, A, first, first + 1)
        journal.sync()
    record(journal, A, 2 * segments + 1, 2 * segments + 1)
    journal.sync()
    return journal


@pytest.fixture(params=["as written", "opened again", "purged"])
def two(request, tmp_path):
    """A short journal and a long one, and the last seqno of each."""
    found = []
    for count in (20, 200):
        journal = long_journal(tmp_path / f"{count}", count)
        if request.param == "purged":
            journal.purge({A: 10})
        crash(journal)
        if request.param == "opened again":
            journal = Journal(tmp_path / f"{count}", group="g", segment_rows=2, fsync=False)
            crash(journal)
        found.append((tmp_path / f"{count}", 2 * count + 1))
    return found


def test_planning_and_reading_a_micro_batch_cost_the_same_whatever_lies_before_it(two):
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
            made["rows"] = [seqno for part in pickle.loads(pickle.dumps(made["parts"]))
                            for batch in reader.read(part)
                            for seqno in batch.column("seqno").to_pylist()]

        plan()                                          # what is opened only once, such as modules
        counts = COUNTER.of(plan), COUNTER.of(read)
        assert made["rows"] == list(range(last - 7, last))
        return counts

    short, long = (costs(*each) for each in two)
    assert long == short
    planned, task = long
    assert {event for event in planned if event.startswith("list")} == set()
    assert {event for event in task if event.startswith("list")} == set()
    assert len(planned) < 40 and len(task) < 20


def test_a_readers_range_costs_the_same_whatever_lies_around_it(two):
    def costs(path, last):
        reader = JournalReader(path)
        assert seqnos(path, A, last - 5, last) == list(range(last - 5, last + 1))
        return [COUNTER.of(what) for what in (lambda: list(reader.read(A, 21, 24)),
                                              lambda: reader.entries(A, 21, 24),
                                              lambda: reader.segments(A, 21, 24),
                                              lambda: reader.segments(A))]

    short, long = (costs(*each) for each in two)
    assert long == short
    assert not any(event.startswith("list") for events in long for event in events)


def harmless(path):
    """What JournalReader gives of every range of a few."""
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
def test_whatever_becomes_of_the_log_every_message_is_there(tmp_path, harm):
    path = tmp_path / "journal"
    crash(long_journal(path, 20))
    before = harmless(path)
    harm(path / folder_name(A) / "segments.log")
    assert harmless(path) == before
    crash(Journal(path, group="g", fsync=False))                # its writer makes it anew
    assert harmless(path) == before
    assert not any(event.startswith("list")
                   for event in COUNTER.of(lambda: list(JournalReader(path).read(A, 5, 9))))


def test_the_log_of_another_group_is_not_believed(tmp_path):
    path, other = tmp_path / "journal", tmp_path / "other"
    crash(long_journal(other, 20))
    with Journal(path, group="h", segment_rows=5, fsync=False) as journal:
        for first in (1, 6, 11):
            record(journal, A, first, first + 4)
            journal.sync()
    shutil.copy(other / folder_name(A) / "segments.log", path / folder_name(A) / "segments.log")
    assert [piece[:2] for piece in JournalReader(path).segments(A)] == [(1, 5), (6, 10), (11, 15)]
    assert seqnos(path, A) == list(range(1, 16))


def test_a_purge_takes_what_it_removed_out_of_the_log(tmp_path):
    path = tmp_path / "journal"
    journal = long_journal(path, 20)
    size = (path / folder_name(A) / "segments.log").stat().st_size
    journal.purge({A: 30})
    assert (path / folder_name(A) / "segments.log").stat().st_size < size / 2
    assert [piece.first for piece in JournalReader(path).segments(A)] == [31, 33, 35, 37, 39, 41]
    record(journal, A, 42, 45)
    journal.sync()
    crash(journal)
    assert seqnos(path, A) == list(range(31, 46))
