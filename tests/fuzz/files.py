"""The target `files`: what a process finds in files that other processes write, and may
have damaged: status files, journals, parts of traces, and the files in which members
say where they are. The first byte says which of them.

Nothing raises but what the reader promises to raise. What is read is what was written.
Only where a program also mends the checksum, which no damage does, it may be anything.
"""

import atexit
import os
import re
import shutil
import struct
import tempfile
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from hostile import DEEP, EDGES, Program
from pyarrow import parquet

from ringcast import JournalError, statusfile
from ringcast.audit.files import fault_of
from ringcast.discovery import LARGEST_FILE, Folder
from ringcast.journal import segments
from ringcast.journal.manifest import folder_name
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import Journal
from ringcast.snapshot import Snapshot
from ringcast.statusfile import Life
from ringcast.trace import VERSION_KEY
from ringcast.trace.seal import MAGIC
from ringcast.trace.writer import Writer
from ringcast.transport.ipv4 import MOST_PLACES, parse_places

GROUP, A, B = "g", "A#00000000000000a1", "B#00000000000000b2"
HIGH = {A: 9, B: 2}                     # of the journal
SEQNOS = [0, 1, 6, 7, 9, 10, 1 << 40, (1 << 63) - 1]
ENTRY, LOGGED = segments._ENTRY.size, 24
MENDS = 1                               # a bit of the form: checksums are mended


@cache
def home() -> Path:
    """Return a folder in memory of this process alone, which goes with it."""
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    path = Path(tempfile.mkdtemp(prefix="ringcast-fuzz-", dir=base))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(path) if os.getpid() == owner else None)
    return path


def run(data: bytes) -> None:
    program = Program(data)
    program.choice((status_file, journal, trace_part, place))(program)


def rest(program: Program, deep: bytes = b"[" * 3000) -> bytes:
    """Return the bytes behind those that the program has read. Where they say DEEP
    stands what is nested too often."""
    return program.data[program.at:].replace(b"DEEP", deep, 1)


def damage(program: Program, data: bytes, count: int) -> bytes:
    """Return the bytes of a file with so many places overwritten, moved or gone."""
    for _ in range(count):
        at = min(program.byte() << 8 | program.byte(), len(data))
        how = program.byte()
        if how < 128:
            value = program.bytes(how % 32 + 1)
            data = data[:at] + value + data[at + len(value):]
        elif how < 160:
            number = program.choice(EDGES) % (1 << 64)
            data = data[:at] + number.to_bytes(8, "little") + data[at + 8:]
        elif how < 192:
            data = data[:at]
        elif how < 224:
            data = data[:at] + bytes(how) + data[at + how:]
        else:
            data = data[:at] + data[at + how % 32:] + data[:how % 3]
    return data


# ------------------------------------------------------------------------------------- status files

def status_file(program: Program) -> None:
    """A file has a whole snapshot or none, whoever wrote it."""
    number, num_damaged = program.byte() % 4, program.byte() % 4
    head = statusfile.HEADER.pack(statusfile.MAGIC, statusfile.VERSION, statusfile.SLOT_SIZE,
                                  number)
    changes = [(program.byte(), program.byte()) for _ in range(num_damaged)]
    body = rest(program, DEEP)
    slot = statusfile.SLOT.pack(number, len(body), zlib.crc32(body))
    both = bytearray(head + slot)
    for at, value in changes:
        both[at % len(both)] ^= value
    path = home() / "status"
    with open(path, "wb") as file:
        file.write(both[:len(head)])
        file.seek(statusfile.PAGE + number % 2 * statusfile.SLOT_SIZE)
        file.write(both[len(head):] + body)
    found = statusfile.read(path)
    if found is None:
        return
    assert both == head + slot and number
    assert statusfile.life_of(found) in Life


# ----------------------------------------------------------------------------------------- journals

@cache
def kept_journal() -> dict[str, bytes]:
    """Return the files of a journal: a sealed segment with 1 to 6 and a tail with 7 to
    9 of A, and a tail of B, whose index is of format 2."""
    path = home() / "kept"
    journal = Journal(path, group=GROUP, segment_rows=5, fsync=False)
    for sender, first, last in ((A, 1, 3), (A, 4, 6), (B, 1, 2), (None, 0, 0), (A, 7, 9)):
        if sender is None:
            journal.sync()
        else:
            journal.append(sender, first, [b"%d" % seqno for seqno in range(first, last + 1)],
                           view_id=1, sent_at=10**18, delivered_at=10**18)
    journal.sync()
    journal._release()                              # as kill -9 does
    for index in (path / folder_name(B)).glob("*.idx"):
        raw, seed = index.read_bytes(), segments.identity(GROUP, B)
        old = raw[:segments._ENTRY_2.size]
        index.write_bytes(old + struct.pack("<I", zlib.crc32(old, seed)))
    return {str(file.relative_to(path)): file.read_bytes()
            for file in sorted(path.rglob("*")) if file.is_file()}


def journal(program: Program) -> None:
    """A damaged journal gives its messages up to a place, or says that it is
    damaged."""
    files = dict(kept_journal())
    form = program.byte()
    for _ in range(1 + form // 2 % 4):
        name = program.choice(sorted(files))
        if form & 16 and name.endswith(".json"):
            files[name] = with_check(rest(program))
        elif form & 32:
            files[name] = files[program.choice(sorted(files))]
        else:
            files[name] = damage(program, files[name], 1 + program.byte() % 3)
        if form & MENDS:
            files[name] = mended(name, files[name])
        if form & 64 and program.byte() & 1:
            del files[name]
    path = home() / "journal"
    shutil.rmtree(path, ignore_errors=True)
    for name, raw in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(raw)
    is_damaged = not form & (MENDS | 16 | 32 | 64)
    read(path, program, is_damaged)
    with suppress(JournalError):
        opened = Journal(path, group=GROUP, segment_rows=5, fsync=False)
        try:
            assert opened.digest == HIGH or not is_damaged
            opened.append(A, opened.digest.get(A, 0) + 1, [b"more"], view_id=1, sent_at=1,
                          delivered_at=1)
            opened.sync()
            opened.close()
        finally:
            opened._release()
        read(path, program, is_damaged)


def read(path: Path, program: Program, is_damaged: bool) -> None:
    with suppress(JournalError):
        reader = JournalReader(path)
        assert reader.digest() in (HIGH, HIGH | {A: 10}) or not is_damaged
        for sender in reader.digest():
            first, last = (program.choice(SEQNOS) for _ in range(2))
            with suppress(JournalError):
                reader.segments(sender)
                reader.entries(sender, first, last)
            expected = 1
            for batch in reader.read(sender, 0, 1 << 62):
                numbers = batch.column("seqno").to_pylist()
                if is_damaged:
                    assert numbers == list(range(expected, expected + len(numbers)))
                    assert batch.column("payload").to_pylist() == [
                        b"more" if number == 10 else b"%d" % number for number in numbers]
                    expected += len(numbers)
            assert not is_damaged or expected in (HIGH[sender] + 1, 11)


def with_check(body: bytes) -> bytes:
    return b'{"crc32":%d,"body":%s}' % (zlib.crc32(body), body)


def mended(name: str, raw: bytes) -> bytes:
    """Return a file whose checksums fit its other bytes."""
    seed = segments.identity(GROUP, A if name.startswith(folder_name(A)) else B)
    size = ENTRY if name.endswith(".idx") else LOGGED if name.endswith(".log") else 0
    if name.endswith(".json"):
        return with_check(raw.partition(b'"body":')[2][:-1])
    if not size:
        return raw
    entries = [raw[at:at + size] for at in range(0, len(raw), size + 4)]
    return b"".join(each + struct.pack("<I", zlib.crc32(each, seed)) for each in entries)


# ------------------------------------------------------------------------------------------- traces

@cache
def kept_part() -> tuple[bytes, Any]:
    """Return a part of a trace, and its rows."""
    writer = Writer(home() / "trace", A, threaded=False)
    for number in range(3):
        writer.append(number, number, "send", 1, sender=A, first=number, last=number, count=1)
    writer.close()
    part = next(writer.folder.glob("*.parquet"))
    return part.read_bytes(), parquet.read_table(part)


def trace_part(program: Program) -> None:
    """Each part is as it was written, or has a fault."""
    raw, rows = kept_part()
    damaged = damage(program, raw, 1 + program.byte() % 4)
    path = home() / "000001.parquet"
    path.write_bytes(damaged)
    fault = fault_of(path, whole=bool(program.byte() & 1))
    assert fault is None or (fault and "\n" not in fault)
    assert fault is not None or parquet.read_table(path).equals(rows)


# ---------------------------------------------------------------------------------------- discovery

def place(program: Program) -> None:
    """What stands in a folder names places, or none."""
    path = home() / "folder"
    path.mkdir(exist_ok=True)
    body = rest(program)
    (path / "member-00000000000000bb.json").write_bytes(body)
    found = Folder(path, "X").look()
    assert len(found) <= 1 and all(isinstance(each, str) for each in found)
    assert len(body) <= LARGEST_FILE or not found
    places, bad = parse_places(found, True, range(7700, 7710))
    assert len(places) <= MOST_PLACES and len(bad) <= 1
    for host, port in places:
        assert host.startswith("127.") and 0 < port < 65536


# ----------------------------------------------------------------------------------------- examples

def examples() -> list[bytes]:
    """Return inputs to begin with."""
    fields = {field.name: 0 if field.type is int else "member"
              for field in msgspec.structs.fields(Snapshot) if field.required}
    fields |= {"is_sealed": False, "status": {"transport": {"type": "inproc"}}}
    encoded = msgspec.msgpack.encode(fields)
    found = [bytes([0, number, 0]) + encoded for number in range(4)]
    found += [bytes([0, 1, 1, at, 1]) + encoded for at in range(0, 40, 3)]
    for more in ({"peers": [{"name": "m", "incarnation": 2, "silent_for": 1.5}]}, {"peers": [{}]},
                 {"waiting": [[None, 1.0]]}, {"waiting": [{"dest": None, "seconds": 1}]},
                 {"events": [{"number": 1, "at": 1, "kind": "view", "text": "t"}]},
                 {"absent": ["m", 7]}, {"rates": {"sent": 1 << 63}}, {"pid": -1},
                 {"pid": 1 << 63}, {"status": {"transport": {"type": "tcp"}}}, {"later": {}}):
        found.append(bytes([0, 1, 0]) + msgspec.msgpack.encode(fields | more))
    found += [bytes([0, 1, 0]) + encoded[:-1] + tail for tail in (b"", b"\xff", b"\x91DEEP")]
    found.append(bytes([0, 1, 0]) + encoded.replace(b"member", b"\xff" * 6))
    found.append(bytes([0, 1, 0, 0x81, 0xa1, 0x78]) + b"DEEP")
    files = sorted(kept_journal())
    for number, name in enumerate(files):
        size = len(kept_journal()[name])
        found += [bytes([1, form, number, 0, at >> 8, at & 255, how, 2, at % 7, 255])
                  for form in (0, 1, 2, 64) for at in range(0, size, 1 + size // 5)
                  for how in (1, 150, 170, 200, 240)][::7]
        found += [bytes([1, 32, number, other]) for other in range(len(files))]
        if name.endswith(".json"):
            good = kept_journal()[name].partition(b'"body":')[2][:-1]
            bodies = (good, b"{}", b"[]", b'{"x":[[[[DEEP', b'{"A#1":{"low":-1,"high":1}}',
                      good.replace(b"9", b"99"), good.replace(b"9", b"9223372036854775807"),
                      good.replace(b'"low":1', b'"low":5'), good.replace(b"[]", b"[[1,2]]"),
                      good.replace(b"[]", b"[[2,1]]"), good.replace(b"[]", b"[[9,9],[3,3]]"),
                      good.replace(b"3", b"2"), good.replace(b"g", b"\xff"))
            found += [bytes([1, 16, number]) + body for body in bodies]
    part = kept_part()[0]
    size, seal = len(part), part.rindex(MAGIC)
    names = [found.start() for name in (VERSION_KEY, b"sent_at", b"ARROW:schema")
             for found in re.finditer(name, part)]
    for at in (*names, *(at + len(VERSION_KEY) + 2 for at in names), size - 1, size - 6):
        found.append(bytes([2, 1]) + b"".join(bytes([each >> 8, each & 255, 0, 1, 0x7a])
                                              for each in (seal, at)))
    found += [bytes([2, count, at >> 8, at & 255, how, 8]) + b"\x01\xff\x00\x80"
              for count, at in enumerate(range(0, size, 1 + size // 30))
              for how in (0, 130, 170, 200, 230)][::3]
    entry = b'{"name":"n","physical":"127.0.0.1:7700","time":1}'
    found += [b"\x03" + each for each in (
        entry, entry[:-1], entry.replace(b":7700", b""), entry.replace(b"127", b"10"),
        entry.replace(b"7700", b"99999"), entry.replace(b"n", b"\xff"), b'{"x":[[DEEP',
        entry.replace(b"127.0.0.1", b"\\ud800"), b"null", entry.replace(b"1}", b"1e999}"))]
    return found


if __name__ == "__main__":
    for line in sorted({data.hex() for data in examples()}, key=lambda line: (len(line), line)):
        print(line)
