"""A journal keeps the order, repeats nothing, and shows what was synced."""

import json
import os
import shutil
import subprocess
import sys
import zlib
from array import array

import pyarrow as pa
import pytest
from journals import A, B, C, crash, open_journal, record, seqnos

from ringcast.errors import ClosedError, JournalError
from ringcast.journal.manifest import Extent
from ringcast.journal.rows import ROWS
from ringcast.spark import JournalReader


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def test_what_was_synced_is_read_back_with_every_column(path):
    with open_journal(path) as journal:
        assert record(journal, A, 1, 3, view_id=7) == 3
        assert journal.sync() == {A: 3}
        batch = pa.Table.from_batches(JournalReader(path).read(A, 2, 2)).to_pylist()
    assert len(batch) == 1
    row = batch[0]
    assert row.pop("sent_at").isoformat() == "2023-11-14T22:13:20.123456+00:00"
    assert row.pop("delivered_at").isoformat() == "2023-11-14T22:13:21.123456+00:00"
    assert row == {"cluster": "g", "sender": A, "seqno": 2, "view_id": 7, "flags": 0,
                   "payload": b"2"}


def test_many_appends_of_several_views_become_one_record_batch(path):
    with open_journal(path) as journal:
        for view_id in range(1, 6):
            record(journal, A, 2 * view_id - 1, 2 * view_id, view_id=view_id, at=view_id * 1000)
        journal.sync()
        [batch] = JournalReader(path).read(A, 1, 10)
    assert batch.column("view_id").to_pylist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert batch.column("sent_at").cast("int64").equals(batch.column("view_id"))


def test_every_message_keeps_its_own_time_of_sending_and_its_batchs_flags(path):
    sent = [5_000, 7_999, -6_000, 1_234_567_890_000_009]  # a remote member may say anything
    with open_journal(path) as journal:
        journal.append(A, 1, [b"1"], view_id=1, sent_at=1000, delivered_at=1)
        journal.sync()
        times = array("q", [1000, *sent])
        assert journal.append(A, 1, [b"%d" % n for n in range(1, 6)], view_id=1, sent_at=times,
                              delivered_at=9_999, flags=9) == 4
        table = pa.Table.from_batches(JournalReader(path).read(A, 1, 9))
    assert table.num_rows == 1  # the rest is not synced; now it is
    table = pa.Table.from_batches(JournalReader(path).read(A, 1, 9))
    assert table.column("sent_at").cast("int64").to_pylist() == [1, *(ns // 1000 for ns in sent)]
    assert table.column("delivered_at").cast("int64").to_pylist() == [0, 9, 9, 9, 9]
    assert table.column("flags").to_pylist() == [0, 9, 9, 9, 9]


def test_seqnos_that_are_no_messages_are_neither_rows_nor_missing(path):
    """A large message takes several seqnos and has the last of them: in the tail, after
    sealing, and after a restart."""
    there = [3, 4, 7, 8, 9, 20]
    with open_journal(path) as journal:
        for fragments, first, last in ((2, 3, 4), (2, 7, 9), (10, 20, 20)):
            messages = [b"%d" % seqno for seqno in range(first, last + 1)]
            journal.append(A, first, messages, view_id=1, sent_at=1, delivered_at=1,
                           fragment_seqnos=fragments)
            if fragments == 2:
                journal.sync()
        journal.sync()
        assert seqnos(path, A) == there
        with pytest.raises(JournalError, match="expected seqno 21"):
            journal.append(A, 23, [b"23"], view_id=1, sent_at=1, delivered_at=1, fragment_seqnos=1)
    assert JournalReader(path).extents() == {A: Extent(1, 20)}
    for first in range(1, 22):
        for last in range(first, 22):
            expected = [seqno for seqno in there if first <= seqno <= last]
            assert seqnos(path, A, first, last) == expected
    with open_journal(path) as journal:
        assert journal.append(A, 20, [b"20", b"21"], view_id=1, sent_at=1, delivered_at=1,
                              fragment_seqnos=10) == 1
        journal.append(A, 25, [b"25"], view_id=1, sent_at=1, delivered_at=1, fragment_seqnos=3)
        journal.sync()
        assert seqnos(path, A, 20) == [20, 21, 25]


def test_nothing_is_visible_before_a_sync_even_if_it_left_memory(path, monkeypatch):
    monkeypatch.setattr("ringcast.journal.writer.FLUSH_BYTES", 1)
    with open_journal(path) as journal:
        record(journal, A, 1, 3)
        journal.sync()
        record(journal, A, 4, 9)
        record(journal, B, 1, 2)
        assert journal.digest == {A: 3}
        assert JournalReader(path).digest() == {A: 3}
        assert seqnos(path, A) == [1, 2, 3]
        assert seqnos(path, B) == []


def test_a_new_sender_may_start_anywhere(path):
    with open_journal(path) as journal:
        record(journal, A, 500, 502)
        assert journal.sync() == {A: 502}
    assert seqnos(path, A) == [500, 501, 502]
    assert JournalReader(path).extents()[A].low == 500


@pytest.mark.parametrize("first, last", [(7, 8), (5, 9), (4, 4), (2, 8), (1, 5)])
def test_a_gap_or_an_overlap_with_what_is_not_durable_is_refused(path, first, last):
    with open_journal(path) as journal:
        record(journal, A, 1, 3)
        journal.sync()
        record(journal, A, 4, 5)
        with pytest.raises(JournalError, match="expected seqno 6"):
            record(journal, A, first, last)
        assert record(journal, A, 6, 6) == 1
        assert journal.sync() == {A: 6}
    assert seqnos(path, A) == [1, 2, 3, 4, 5, 6]


def test_the_recorder_of_a_journal_is_remembered(path):
    open_journal(path, recorder="r").close()
    assert JournalReader(path).recorder == "r"
    open_journal(path).close()
    assert JournalReader(path).recorder == "r"
    open_journal(path, recorder="s").close()
    assert JournalReader(path).recorder == "s"


@pytest.mark.parametrize("first, last, new", [(8, 9, 0), (8, 12, 0), (9, 14, 2)])
def test_messages_before_a_senders_start_are_skipped(path, first, last, new):
    with open_journal(path) as journal:
        record(journal, A, 10, 12)
        journal.sync()
        assert record(journal, A, first, last) == new
        assert journal.sync() == {A: 12 + new}
    assert seqnos(path, A) == [*range(10, 13 + new)]


@pytest.mark.parametrize("first, last, new", [(1, 3, 0), (3, 3, 0), (2, 5, 2), (4, 5, 2)])
def test_what_is_durable_already_is_never_written_twice(path, first, last, new):
    journal = open_journal(path)
    record(journal, A, 1, 3)
    journal.sync()
    crash(journal)
    with open_journal(path) as journal:
        assert record(journal, A, first, last) == new
        journal.sync()
    assert seqnos(path, A) == list(range(1, max(3, last) + 1))


def test_segments_are_sealed_when_full_and_any_arrow_tool_opens_them(path):
    with open_journal(path, segment_rows=4) as journal:
        for first in range(1, 10, 3):
            record(journal, A, first, first + 2)
            journal.sync()
        one, two = JournalReader(path).segments(A)
        assert (one.first, one.last, one.sealed) == (1, 6, True)
        assert (two.first, two.last, two.sealed) == (7, 9, False)
        assert seqnos(path, A) == list(range(1, 10))
    one, two = sorted(path.glob("*/*.arrow"))
    assert (one.stem, two.stem) == (f"{1:020d}-{6:020d}", f"{7:020d}-{9:020d}")
    assert pa.ipc.open_file(one).read_all().column("seqno").to_pylist() == [1, 2, 3, 4, 5, 6]
    assert not list(path.glob("*/*.arrows"))


def test_the_open_tail_is_an_arrow_stream(path):
    with open_journal(path) as journal:
        record(journal, A, 1, 4)
        journal.sync()
        [tail] = path.glob("*/*.arrows")
        table = pa.ipc.open_stream(tail).read_all()
    assert table.column("payload").to_pylist() == [b"1", b"2", b"3", b"4"]
    assert table.schema.metadata == {b"ringcast.group": b"g", b"ringcast.sender": A.encode()}


def test_a_segment_is_sealed_by_bytes_too(path):
    with open_journal(path, segment_bytes=1000) as journal:
        journal.append(A, 1, [b"x" * 2000], view_id=1, sent_at=1, delivered_at=1)
        journal.sync()
        assert [piece.sealed for piece in JournalReader(path).segments(A)] == [True]


def test_sealing_cuts_large_segments_into_batches_of_bounded_size(path, monkeypatch):
    monkeypatch.setattr("ringcast.journal.segments.SEALED_BATCH_ROWS", 10)
    with open_journal(path) as journal:
        record(journal, A, 1, 25)
    assert [batch.num_rows for batch in JournalReader(path).read(A, 1, 25)] == [10, 10, 5]
    assert seqnos(path, A, 8, 21) == list(range(8, 22))


def test_lost_messages_are_recorded_and_a_reader_skips_them(path):
    with open_journal(path) as journal:
        record(journal, A, 1, 3)
        journal.skip(A, 5)
        journal.skip(A, 8)
        with pytest.raises(JournalError, match="expected seqno 9"):
            record(journal, A, 10, 11)
        assert record(journal, A, 7, 10) == 2
        journal.skip(A, 9)  # nothing is missing there
        journal.skip(C, 4)
        assert journal.digest == {A: 10, C: 4}
    with open_journal(path) as journal:
        record(journal, A, 11, 11)
    extents = JournalReader(path).extents()
    assert (extents[A].lost, extents[C].lost) == ([(4, 8)], [(1, 4)])
    assert seqnos(path, A) == [1, 2, 3, 9, 10, 11]
    assert seqnos(path, A, 4, 9) == [9]
    assert seqnos(path, C) == []


def test_senders_with_names_that_no_file_could_have(path):
    names = ["../../x#00000000000000a1", "ö" * 300 + "#00000000000000a1",
             "ö" * 300 + "#00000000000000a2", ".#00000000000000a1"]
    with open_journal(path) as journal:
        for number, name in enumerate(names, 1):
            record(journal, name, number, number)
    assert [seqnos(path, name) for name in names] == [[1], [2], [3], [4]]
    assert sorted(JournalReader(path).digest()) == sorted(names)
    with open_journal(path) as journal:
        assert journal.digest == {name: number for number, name in enumerate(names, 1)}


def test_a_second_writer_is_refused_with_what_to_do(path):
    with open_journal(path):
        with pytest.raises(JournalError, match="close that journal first"):
            open_journal(path)
    open_journal(path).close()


def test_a_closed_journal_refuses_messages_and_may_be_closed_again(path):
    journal = open_journal(path)
    record(journal, A, 1, 1)
    journal.close()
    journal.close()
    with pytest.raises(ClosedError):
        record(journal, A, 2, 2)
    with pytest.raises(ClosedError):
        journal.sync()
    assert seqnos(path, A) == [1]


@pytest.mark.parametrize("arguments", [
    {"first_seqno": 0}, {"first_seqno": 2**63 - 1, "payloads": [b"", b""]}, {"view_id": -1},
    {"delivered_at": 2**63}, {"sent_at": -1}, {"sent_at": array("q", [1, 2])}, {"flags": 2**31},
    {"fragment_seqnos": 1}, {"payloads": [b"x", None]}, {"payloads": [1]}])
def test_impossible_arguments_raise_and_leave_the_journal_usable(path, arguments):
    good = {"first_seqno": 1, "payloads": [b"x"], "view_id": 1, "sent_at": 1, "delivered_at": 1}
    with open_journal(path) as journal:
        with pytest.raises((ValueError, TypeError, pa.ArrowException)):
            journal.append(A, **{**good, **arguments})
        assert journal.append(A, 1, [], view_id=1, sent_at=1, delivered_at=1) == 0
        assert journal.append(A, **good) == 1
        assert journal.sync() == {A: 1}


@pytest.mark.parametrize("option, value", [
    ("segment_rows", 0), ("segment_bytes", 0), ("group", "")])
def test_impossible_options_raise_and_leave_no_trace(path, option, value):
    with pytest.raises(ValueError, match=option):
        open_journal(path, **{option: value})
    assert not path.exists()


def test_a_journal_keeps_no_files_open_for_its_senders(path):
    senders = [f"{number}#1" for number in range(9)]
    with open_journal(path) as journal:
        begun = len(os.listdir("/proc/self/fd"))
        for sender in senders:
            record(journal, sender, 1, 2)
        assert len(os.listdir("/proc/self/fd")) == begun
        journal.sync()
        assert len(os.listdir("/proc/self/fd")) == begun
        crash(journal)
    with open_journal(path) as journal:
        assert len(os.listdir("/proc/self/fd")) == begun
        for sender in senders:
            record(journal, sender, 3, 3)
        journal.sync()
        for sender in senders:
            assert seqnos(path, sender) == [1, 2, 3]


def test_another_group_is_refused(path):
    open_journal(path).close()
    with pytest.raises(JournalError, match="holds group 'g', not 'h'"):
        open_journal(path, group="h")


@pytest.mark.parametrize("version", [1, 4])
def test_another_version_is_refused_by_writer_and_reader(path, version):
    open_journal(path).close()
    body = json.dumps({"format": "ringcast-journal", "version": version, "group": "g", "news": 1})
    (path / "journal.json").write_text(f'{{"crc32":{zlib.crc32(body.encode())},"body":{body}}}')
    for opener in (open_journal, JournalReader):
        says = f"version {version}.*use the ringcast version that wrote it"
        with pytest.raises(JournalError, match=says):
            opener(path)


def test_a_directory_with_other_things_in_it_is_not_touched(path):
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    for opener in (open_journal, JournalReader):
        with pytest.raises(JournalError, match="is not a journal"):
            opener(path)
    assert os.listdir(path) == ["thesis.tex"]


def test_a_copied_sender_folder_is_refused_and_a_strange_folder_is_left_alone(path):
    with open_journal(path) as journal:
        record(journal, A, 1, 2)
    (path / "notes").mkdir()
    (path / "notes" / "draft.tmp").touch()
    with open_journal(path) as journal:
        assert journal.digest == {A: 2}
    assert (path / "notes" / "draft.tmp").exists()
    shutil.copytree(next(path.glob("A*")), path / "copy")
    with pytest.raises(JournalError, match="under another name: move this folder away"):
        open_journal(path)


def test_a_file_is_not_a_journal(path):
    path.write_text("x")
    for opener in (open_journal, JournalReader):
        with pytest.raises(JournalError, match="not a journal directory"):
            opener(path)


def test_a_missing_journal_is_refused_by_a_reader(path):
    with pytest.raises(JournalError, match="There is no journal"):
        JournalReader(path)


def test_the_schema_is_exactly_what_spark_demands():
    assert {field.name: str(field.type) for field in ROWS} == {
        "cluster": "string",
        "sender": "string",
        "seqno": "int64",
        "view_id": "int64",
        "sent_at": "timestamp[us, tz=UTC]",
        "delivered_at": "timestamp[us, tz=UTC]",
        "flags": "int32",
        "payload": "binary",
    }


def test_nothing_heavy_and_no_compiled_core_is_imported():
    script = """
import sys
class NoCore:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("ringcast._core"):
            raise ImportError("no compiled core on this worker")
sys.meta_path.insert(0, NoCore())
import ringcast.spark
packages = {name.partition(".")[0] for name in sys.modules}
print(sorted(packages & {"pyspark", "pyarrow", "numpy", "pandas"}))
from ringcast.spark import Journal, JournalReader, session
import ringcast.spark.session, pyspark_ringcast
print(callable(ringcast.spark.session), pyspark_ringcast.DefaultSource.name())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.splitlines() == ["[]", "True ringcast"], run.stderr
