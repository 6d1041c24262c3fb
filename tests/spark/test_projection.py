"""A read without payloads leaves their bytes alone, and what it does read is checked as
ever; journals of format 2 still read."""

import json
import os
import struct
import zlib

import pyarrow as pa
import pytest
from isal.isal_zlib import crc32
from journals import A, B, crash, record, seqnos

from ringcast.errors import JournalError
from ringcast.journal.manifest import VERSION, folder_name
from ringcast.journal.merge import Journals
from ringcast.journal.rows import ROWS
from ringcast.journal.segments import identity
from ringcast.spark import Journal, JournalReader

BARE = pa.schema([ROWS.field("sender"), ROWS.field("seqno"), ROWS.field("sent_at")])
MARK = b"payload that nobody asked for"


@pytest.fixture(params=["tail", "sealed"])
def path(request, tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, group="g", segment_rows=3 if request.param == "sealed" else 100,
                      fsync=False)
    for first in (1, 4, 7):
        journal.append(A, first, [MARK * 50, b"", MARK], view_id=1, sent_at=first, delivered_at=1)
        journal.sync()
    crash(journal)
    return path


def files(path):
    return sorted(file for file in (path / folder_name(A)).iterdir()
                  if file.suffix in (".arrow", ".arrows"))


def read(path, schema, first=1, last=9):
    return [row for batch in JournalReader(path).read(A, first, last, schema)
            for row in batch.to_pylist()]


def test_payloads_that_are_not_asked_for_are_not_looked_at(path):
    before = read(path, BARE)
    for file in files(path):
        assert MARK in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(MARK, bytes(len(MARK))))
    assert read(path, BARE) == before and [row["seqno"] for row in before] == list(range(1, 10))
    assert [batch.schema for batch in Journals(path).read(A, 5, 6, BARE, strict=True)] == [BARE]
    with pytest.raises(JournalError, match=r"damaged|cannot give message 1"):
        read(path, ROWS)


def test_every_other_byte_is_checked(path):
    """Flip each byte before the first payload's: read without payloads it is an error,
    or rows that are right."""
    [file, *_] = files(path)
    whole, right = file.read_bytes(), read(path, BARE)
    errors = 0
    for at in range(whole.index(MARK)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:])
        try:
            assert read(path, BARE) == right
        except JournalError:
            errors += 1
    assert errors > 300         # metadata, offsets and numbers; the rest is the schema's message
    file.write_bytes(b"")
    with pytest.raises(JournalError):
        read(path, BARE)


def test_a_start_in_time_looks_at_no_payload(path):
    pytest.importorskip("pyspark")
    from ringcast.spark.filters import sent_before

    for file in files(path):
        file.write_bytes(file.read_bytes().replace(MARK, bytes(len(MARK))))
    journals = Journals(path)
    assert sent_before(journals, 0, journals.extents()) == {A: 0}


# -- format 2
# ----------------------------------------------------------------------------------------------------------

NEW, OLD, CHECK = struct.Struct("<QQQQQqqqqIII"), struct.Struct("<QQQQQqqqqI"), struct.Struct("<I")


def made_old(path, sender):
    """Rewrite a journal as format 2 had it: entries of the index without the checksum
    of what lies before the payloads."""
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
    journal = Journal(path, group="g", recorder="r", segment_rows=4, fsync=False)
    for first in (1, 3, 5, 7, 9):
        record(journal, A, first, first + 1)
        record(journal, B, first, first + 1)
        journal.sync()
    crash(journal)
    for sender in (A, B):
        made_old(path, sender)
    return path


def test_a_journal_of_format_2_is_read_as_it_stands(old):
    assert seqnos(old, A) == list(range(1, 11))
    assert [row["seqno"] for row in read(old, BARE, 4, 10)] == list(range(4, 11))
    assert '"version": 2' in (old / "journal.json").read_text()


def test_a_recorder_goes_on_with_a_journal_of_format_2(old):
    for opening in range(2):
        journal = Journal(old, group="g", segment_rows=4, fsync=False)
        assert f'"version":{VERSION}' in (old / "journal.json").read_text()
        record(journal, A, 11 + opening, 11 + opening)
        journal.sync()
        if opening:
            journal.purge({B: 4})
        crash(journal)
        assert seqnos(old, A) == list(range(1, 12 + opening))
    assert seqnos(old, B) == list(range(5, 11))
    with Journal(old, group="g") as journal:
        assert journal.digest == {A: 12, B: 10}
    assert seqnos(old, A) == list(range(1, 13)) and [row["seqno"] for row in read(old, BARE, 1, 12)] == list(range(1, 13))


@pytest.mark.parametrize("steps", range(6))
def test_a_journal_of_format_2_is_whole_wherever_its_writer_dies(old, monkeypatch, steps):
    """The journal's number, the index and the log of A's folder, those of B's, the
    digest."""
    def die_later(*names, real=os.replace):
        nonlocal steps
        if steps == 0:
            raise KeyboardInterrupt
        steps -= 1
        real(*names)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die_later)
        with pytest.raises(KeyboardInterrupt):
            Journal(old, group="g", fsync=False)
    assert seqnos(old, A) == seqnos(old, B) == list(range(1, 11))
    with Journal(old, group="g", fsync=False) as journal:
        assert journal.digest == {A: 10, B: 10}
    assert seqnos(old, A) == seqnos(old, B) == list(range(1, 11))
