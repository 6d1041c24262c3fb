"""A stream over several journals of one group has each message once, waits for what a
recorder may still bring, and names what is lost."""

import json
import os
import shutil

import pytest
from hypothesis import given, strategies as st
from journals import A, B, column, crash, open_journal as open_one, record

from ringcast.errors import JournalError
from ringcast.journal.manifest import Extent
from ringcast.journal.merge import Journals, cover, journal_paths, merged
from ringcast.journal.rows import ROWS

TOP = 24


@st.composite
def extents(draw):
    """Draw an extent low..high with some lost, now and then with nothing left."""
    low = draw(st.integers(1, TOP))
    high = draw(st.integers(low - 1, TOP))
    edges = sorted(draw(st.sets(st.integers(low, max(low, high)), max_size=4)))
    lost = [(first, last) for first, last in zip(edges[::2], edges[1::2], strict=False)
            if last <= high]
    return Extent(low, high, lost, draw(st.integers(1, low)))


def holds(extent, seqno):
    is_lost = any(first <= seqno <= last for first, last in extent.lost)
    return extent.low <= seqno <= extent.high and not is_lost


journals = st.lists(st.tuples(extents(), st.booleans()), min_size=1, max_size=4)


@given(journals, st.integers(0, TOP))
def test_the_merged_extent_is_what_the_rule_gives_seqno_by_seqno(each, behind):
    found, retired = zip(*each, strict=True)
    union = merged(found, retired, behind)
    low, top = min(extent.low for extent in found), max(extent.high for extent in found)
    waits = [seqno for seqno in range(max(low, behind + 1), top + 1)
             if not any(holds(extent, seqno) for extent in found)
             and any(extent.high < seqno for extent, final in each if not final)]
    assert (union.low, union.start) == (low, min(extent.start for extent in found))
    assert union.high == (waits[0] - 1 if waits else top)
    for seqno in range(union.low, union.high + 1):
        assert holds(union, seqno) == any(holds(extent, seqno) for extent in found)
    assert union.lost == sorted(union.lost) and all(first <= last for first, last in union.lost)


@given(st.lists(st.none() | extents(), max_size=4), st.integers(1, TOP), st.integers(1, TOP))
def test_a_range_is_covered_once_by_journals_that_have_it(found, first, last):
    parts = list(cover(found, first, last))
    numbers = [seqno for part in parts for seqno in range(part.first, part.last + 1)]
    assert numbers == [seqno for seqno in range(first, last + 1)
                       if any(extent and holds(extent, seqno) for extent in found)]
    assert all(holds(found[part.journal], seqno) for part in parts
               for seqno in range(part.first, part.last + 1))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "journals"


def open_journal(folder, name, **options):
    (folder / name).mkdir(parents=True, exist_ok=True)
    return open_one(folder / name, **options)


def read(folder, sender, first=1, last=TOP, *, strict=False):
    """Return the seqnos that a stream over `folder` gets. Check each payload."""
    batches = list(Journals(folder).read(sender, first, last, ROWS, strict=strict))
    found = column(batches, "seqno")
    assert column(batches, "payload") == [b"%d" % seqno for seqno in found]
    return found


def test_two_recorders_of_the_same_messages_are_one_stream(folder):
    with (open_journal(folder, "r1", recorder="r1") as one,
          open_journal(folder, "r2", recorder="r2") as two):
        record(one, A, 1, 8)
        record(two, A, 3, 12)
        record(two, B, 1, 2)
        one.sync()
        two.sync()
        assert Journals(folder).extents() == {A: Extent(1, 12), B: Extent(1, 2)}
        assert read(folder, A) == list(range(1, 13))
        assert read(folder, A, 5, 6, strict=True) == [5, 6]
        assert read(folder, B) == [1, 2]


def test_a_stream_waits_at_a_gap_until_its_recorder_returns_or_is_retired(folder):
    one = open_journal(folder, "r1")
    record(one, A, 1, 5)
    one.sync()
    crash(one)
    with open_journal(folder, "r2") as two:
        record(two, A, 9, 12)  # this one joined while the other was dead
        two.sync()
        assert Journals(folder).extents() == {A: Extent(1, 5)}
        assert Journals(folder).reach() == {A: 12}
        with open_journal(folder, "r1") as one:
            one.retire()
        assert Journals(folder).extents() == {A: Extent(1, 12, [(6, 8)])}
        with open_journal(folder, "r1") as one:
            assert Journals(folder).extents() == {A: Extent(1, 12, [(6, 8)])}
            record(one, A, 6, 6)  # it came back after all
            one.sync()
            assert Journals(folder).extents() == {A: Extent(1, 6)}
            assert Journals(folder).extents(behind={A: 10}) == {A: Extent(1, 12, [(7, 8)])}
            record(one, A, 7, 7)
            one.skip(A, 10)
            assert Journals(folder).extents() == {A: Extent(1, 12, [(8, 8)])}
    assert read(folder, A) == [*range(1, 8), *range(9, 13)]
    with pytest.raises(JournalError, match=f"Message 8 of {A} was purged"):
        read(folder, A, strict=True)


def test_a_recorder_that_retires_during_a_read_loses_nothing(folder, monkeypatch):
    with open_journal(folder, "r1") as one, open_journal(folder, "r2") as two:
        one.skip(A, 5)
        record(one, A, 6, 9)
        one.sync()
        record(two, A, 1, 2)
        two.sync()
        journals = Journals(folder)

        def digests(real=journals._extents):
            found = real()
            record(two, A, 3, 5)
            two.retire()
            return found

        monkeypatch.setattr(journals, "_extents", digests)
        assert journals.extents()[A] == Extent(1, 2, [], 1)
        monkeypatch.undo()
        assert journals.extents()[A] == Extent(1, 9, [], 1)


def test_what_one_journal_has_purged_is_read_from_the_other_even_during_a_read(folder):
    with (open_journal(folder, "r1", segment_rows=2) as one,
          open_journal(folder, "r2", segment_rows=2) as two):
        for first in range(1, 12, 2):
            for journal in (one, two):
                record(journal, A, first, first + 1)
                journal.sync()
        one.purge({A: 4})
        two.purge({A: 2})
        assert Journals(folder).extents() == {A: Extent(3, 12)}
        assert read(folder, A, 3) == list(range(3, 13))
        batches = Journals(folder).read(A, 3, 12, ROWS, strict=True)
        found = next(batches).column("seqno").to_pylist()
        two.purge({A: 10})
        found += column(batches, "seqno")
        assert found == list(range(3, 13))


def test_what_is_damaged_in_one_is_read_from_the_other(folder):
    for name in ("r1", "r2"):
        with open_journal(folder, name) as journal:
            record(journal, A, 1, 9)
    [file] = (folder / "r1").glob("*/*.arrow")
    file.write_bytes(bytes(file.stat().st_size))
    assert read(folder, A, 1, 9, strict=True) == list(range(1, 10))
    [file] = (folder / "r2").glob("*/*.arrow")
    file.unlink()
    with pytest.raises(JournalError, match="damaged at seqnos 1..9"):
        read(folder, A)


def test_a_folder_is_distinguished_from_a_journal_and_from_other_things(folder, tmp_path):
    assert journal_paths(folder) == []
    folder.mkdir()
    assert journal_paths(folder) == []
    open_journal(folder, "r1").close()
    (folder / "r2").mkdir()  # its recorder is just starting
    (folder / "_notes").mkdir()
    (folder / ".cache").touch()
    assert journal_paths(folder) == [folder / "r1"]
    assert journal_paths(folder / "r1") == [folder / "r1"]
    open_journal(folder, "r3", group="h").close()
    with pytest.raises(JournalError, match="journals of the groups g, h"):
        Journals(folder)
    shutil.rmtree(folder / "r3")
    (folder / "r2" / "thesis.tex").touch()
    with pytest.raises(JournalError, match="r2 is not a journal"):
        journal_paths(folder)
    os.remove(folder / "r2" / "thesis.tex")
    (folder / "list.csv").touch()
    with pytest.raises(JournalError, match="journals is not a journal"):
        journal_paths(folder)
    with pytest.raises(JournalError, match="not a journal directory"):
        journal_paths(folder / "list.csv")


def test_a_stream_over_a_folder_repeats_nothing_when_journals_come_later(folder):
    pytest.importorskip("pyspark")
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from ringcast.spark.source import RingcastDataSource

    seen = []

    def step(offset):
        source = RingcastDataSource({"path": str(folder)})
        reader = source.streamReader(source.schema())
        end = reader.latestOffset(json.loads(offset), ReadAllAvailable())
        for part in reader.partitions(json.loads(offset), end):
            for batch in reader.read(part):
                seen.extend(batch.column("seqno").to_pylist())
        return json.dumps(end)

    one = open_journal(folder, "r1")
    offset = step("{}")
    record(one, A, 1, 5)
    one.sync()
    offset = step(offset)
    two = open_journal(folder, "r2")
    record(two, A, 3, 7)
    two.sync()
    offset = step(offset)
    crash(one)
    record(two, A, 8, 9)
    two.sync()
    offset = step(offset)
    with open_journal(folder, "r1") as one:
        assert one.digest == {A: 5}
        record(one, A, 6, 12)
        one.sync()
        offset = step(offset)
        assert step(offset) == offset
        assert json.loads(offset) == {A: 12, "read_from": {A: {"10-12": "r1"}}}
    two.close()
    assert seen == list(range(1, 13))
