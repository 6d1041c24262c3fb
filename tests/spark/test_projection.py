"""A read without payloads does not touch their bytes and checks what it does read.
Journals of format 2 are still read."""

import json
import os
import struct
import zlib

import pyarrow as pa
import pytest
from isal.isal_zlib import crc32
from journals import A, B, column, crash, open_journal, record, seqnos

from ringcast.errors import JournalError
from ringcast.journal.manifest import VERSION, folder_name
from ringcast.journal.merge import Journals
from ringcast.journal.rows import ROWS
from ringcast.journal.segments import identity
from ringcast.spark import JournalReader

BARE = pa.schema([ROWS.field("sender"), ROWS.field("seqno"), ROWS.field("sent_at")])
MARK = b"payload that nobody asked for"


@pytest.fixture(params=["tail", "sealed"])
def path(request, tmp_path):
    path = tmp_path / "journal"
    journal = open_journal(path, segment_rows=3 if request.param == "sealed" else 100)
    for first in (1, 4, 7):
        journal.append(A, first, [MARK * 50, b"", MARK], view_id=1, sent_at=first, delivered_at=1)
        journal.sync()
    crash(journal)
    return path


def files(path):
    """Return the files of A's segments."""
    return sorted(file for file in (path / folder_name(A)).iterdir()
                  if file.suffix in (".arrow", ".arrows"))


def read(path, schema, first=1, last=9):
    return [row for batch in JournalReader(path).read(A, first, last, schema)
            for row in batch.to_pylist()]


def read_seqnos(path, first, last):
    """Return the seqnos of a read without payloads."""
    return column(JournalReader(path).read(A, first, last, BARE), "seqno")


def test_payloads_that_are_not_asked_for_are_not_read(path):
    before = read(path, BARE)
    for file in files(path):
        assert MARK in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(MARK, bytes(len(MARK))))
    assert read(path, BARE) == before and [row["seqno"] for row in before] == list(range(1, 10))
    assert [batch.schema for batch in Journals(path).read(A, 5, 6, BARE, strict=True)] == [BARE]
    with pytest.raises(JournalError, match=r"damaged|cannot give message 1"):
        read(path, ROWS)


def test_every_other_byte_is_checked(path):
    """Flip each byte before the first payload's: a read without payloads fails, or
    gives rows that are right."""
    [file, *_] = files(path)
    whole, right = file.read_bytes(), read(path, BARE)
    errors = 0
    for at in range(whole.index(MARK)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
        try:
            assert read(path, BARE) == right
        except JournalError:
            errors += 1
    assert errors > 300         # of metadata, offsets and numbers; the rest is the schema
    file.write_bytes(b"")
    with pytest.raises(JournalError):
        read(path, BARE)


def test_a_start_in_time_reads_no_payload(path):
    pytest.importorskip("pyspark")
    from ringcast.spark.filters import sent_before

    for file in files(path):
        file.write_bytes(file.read_bytes().replace(MARK, bytes(len(MARK))))
    journals = Journals(path)
    assert sent_before(journals, 0, journals.extents()) == {A: 0}


# ----------------------------------------------------------------------------------------- format 2

NEW, OLD, CHECK = struct.Struct("<QQQQQqqqqIII"), struct.Struct("<QQQQQqqqqI"), struct.Struct("<I")


def make_old(path, sender):
    """Rewrite a journal as format 2 had it: without the checksum, in the entries of the
    index, of what is before the payloads."""
    seed = identity("g", sender)
    for file in (path / folder_name(sender)).glob("*.idx"):
        raw, old = file.read_bytes(), b""
        assert len(raw) % (NEW.size + CHECK.size) == 0
        for at in range(0, len(raw), NEW.size + CHECK.size):
            entry = OLD.pack(*NEW.unpack_from(raw, at)[:10])
            old += entry + CHECK.pack(crc32(entry, seed))
        file.write_bytes(old)
    (path / folder_name(sender) / "segments.log").unlink()
    body = json.dumps({"format": "ringcast-journal", "version": 2, "group": "g", "recorder": "r"})
    (path / "journal.json").write_text(f'{{"crc32":{zlib.crc32(body.encode())},"body":{body}}}')


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "journal"
    journal = open_journal(path, recorder="r", segment_rows=4)
    for first in (1, 3, 5, 7, 9):
        record(journal, A, first, first + 1)
        record(journal, B, first, first + 1)
        journal.sync()
    crash(journal)
    for sender in (A, B):
        make_old(path, sender)
    return path


def test_a_journal_of_format_2_is_read_as_it_is(old):
    assert seqnos(old, A) == list(range(1, 11))
    assert read_seqnos(old, 4, 10) == list(range(4, 11))
    assert '"version": 2' in (old / "journal.json").read_text()


def test_a_recorder_continues_a_journal_of_format_2(old):
    for opening in range(2):
        journal = open_journal(old, segment_rows=4)
        assert f'"version":{VERSION}' in (old / "journal.json").read_text()
        record(journal, A, 11 + opening, 11 + opening)
        journal.sync()
        if opening:
            journal.purge({B: 4})
        crash(journal)
        assert seqnos(old, A) == list(range(1, 12 + opening))
    assert seqnos(old, B) == list(range(5, 11))
    with open_journal(old, fsync=True) as journal:
        assert journal.digest == {A: 12, B: 10}
    assert seqnos(old, A) == read_seqnos(old, 1, 12) == list(range(1, 13))


@pytest.mark.parametrize("steps", range(6))
def test_a_journal_of_format_2_is_complete_wherever_its_writer_dies(old, monkeypatch, steps):
    """It dies at the journal's number, the index and the log of A's folder, those of
    B's, or the digest."""
    def die_later(*names, real=os.replace):
        nonlocal steps
        if steps == 0:
            raise KeyboardInterrupt
        steps -= 1
        real(*names)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die_later)
        with pytest.raises(KeyboardInterrupt):
            open_journal(old)
    assert seqnos(old, A) == seqnos(old, B) == list(range(1, 11))
    with open_journal(old) as journal:
        assert journal.digest == {A: 10, B: 10}
    assert seqnos(old, A) == seqnos(old, B) == list(range(1, 11))
