"""Segments: the files that hold one sender's messages, and the index that makes their bytes trustworthy.

The open tail is an Arrow IPC stream, a sealed segment an Arrow IPC file; any Arrow tool reads either. Arrow has no
checksums, and a parser that meets a flipped length or offset may crash or return wrong rows. So beside each segment lies
an index of fixed-size entries: first and last seqno, offset, length and CRC-32 of one record batch's bytes, and a CRC-32
over the entry itself, seeded with group and sender. Bytes are checked before Arrow sees them. A sidecar and not a custom
field of the batch, because a field cannot cover the header that carries it, and because the index also finds a range
without reading the file from its start.

An entry is written only after its bytes are on disk; what no entry names does not exist. That is the whole recovery rule:
cut the tail behind its last good entry.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import JournalError
from .manifest import sync_directory

STORED = pa.schema([("seqno", pa.int64()), ("view_id", pa.int64()), ("ts_ns", pa.int64()), ("payload", pa.binary())])

ROWS = pa.schema(
    [
        ("group", pa.string()),
        ("sender", pa.string()),  # name#incarnation
        ("seqno", pa.int64()),
        ("view_id", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),  # Spark has no nanoseconds; ts_ns keeps them
        ("ts_ns", pa.int64()),
        ("payload", pa.binary()),
    ]
)

SEALED_BATCH_ROWS = 65_536
SEALED_BATCH_BYTES = 8 << 20

_TAIL, _SEALED, _INDEX = ".arrows", ".arrow", ".idx"
_ENTRY = struct.Struct("<QQQQI")
_CHECK = struct.Struct("<I")
_ENTRY_BYTES = _ENTRY.size + _CHECK.size
_FILE_MAGIC_BYTES = 8  # "ARROW1" and padding in front of the first message of an IPC file


class Entry(NamedTuple):
    """One record batch of a segment: its seqnos (inclusive), where its bytes are, and their CRC-32."""

    first: int
    last: int
    offset: int
    length: int
    crc32: int


class Segment(NamedTuple):
    """One segment file; `last` is None for the open tail, whose end only its index knows."""

    first: int
    last: int | None
    path: Path

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(_INDEX)

    @property
    def sealed(self) -> bool:
        return self.last is not None


def tail_segment(folder: Path, first: int) -> Segment:
    return Segment(first, None, folder / f"{first:020d}{_TAIL}")


def sealed_segment(folder: Path, first: int, last: int) -> Segment:
    return Segment(first, last, folder / f"{first:020d}-{last:020d}{_SEALED}")


def list_segments(folder: Path) -> list[Segment]:
    """The segments in a sender's folder by first seqno; a tail that was sealed already is left out."""
    found: dict[int, Segment] = {}
    for name in sorted(os.listdir(folder), key=lambda name: not name.endswith(_TAIL)):  # sealed ones replace their tails
        stem, suffix = os.path.splitext(name)
        if suffix not in (_TAIL, _SEALED):
            continue
        first, _, last = stem.partition("-")
        if not first.isdecimal() or (suffix == _SEALED) != last.isdecimal():
            raise JournalError(f"{folder / name} is not a segment name: move this file out of the journal.")
        segment = Segment(int(first), int(last) if last else None, folder / name)
        found[segment.first] = segment
    return [found[first] for first in sorted(found)]


def identity(group: str, sender: str) -> int:
    """The seed of every entry's checksum, so that a segment moved to another sender or group is not believed."""
    return zlib.crc32(f"{group}\0{sender}".encode())


def read_index(segment: Segment, seed: int) -> list[Entry]:
    """The entries up to the first torn, damaged or inconsistent one; empty if there is no index."""
    try:
        raw = segment.index_path.read_bytes()
    except FileNotFoundError:
        return []
    entries: list[Entry] = []
    expected = segment.first
    for at in range(0, len(raw) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
        packed = raw[at : at + _ENTRY.size]
        if zlib.crc32(packed, seed) != _CHECK.unpack_from(raw, at + _ENTRY.size)[0]:
            break
        entry = Entry(*_ENTRY.unpack(packed))
        if entry.first != expected:
            break
        entries.append(entry)
        expected = entry.last + 1
    return entries


def _pack(entries: Sequence[Entry], seed: int) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    return b"".join(raw + _CHECK.pack(zlib.crc32(raw, seed)) for raw in packed)


def read_segment(segment: Segment, entries: Sequence[Entry], first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The rows first..last (inclusive) of a segment in the stored schema, one batch for each entry that they touch.

    Raises JournalError if the bytes do not match their checksum, FileNotFoundError if the segment is gone (sealed).
    """
    wanted = [entry for entry in entries if entry.first <= last and entry.last >= first]
    if not wanted:
        return
    with pa.memory_map(str(segment.path)) as file:
        for entry in wanted:
            batch = pa.ipc.read_record_batch(_checked(file, segment, entry), STORED)
            start = max(first, entry.first)
            yield batch.slice(start - entry.first, min(last, entry.last) - start + 1)


def _checked(file: pa.MemoryMappedFile, segment: Segment, entry: Entry) -> pa.Buffer:
    """The bytes of one entry; JournalError unless they are what was written."""
    buffer = _bytes_of(file, entry)
    if buffer is None:
        raise JournalError(
            f"{segment.path} is damaged at seqnos {entry.first}..{entry.last}: restore it and its {_INDEX} file from "
            "another copy; the rest of the journal can still be read by range."
        )
    return buffer


def _bytes_of(file: pa.MemoryMappedFile, entry: Entry) -> pa.Buffer | None:
    if entry.offset + entry.length > file.size():
        return None
    file.seek(entry.offset)
    buffer = file.read_buffer(entry.length)
    return buffer if zlib.crc32(buffer) == entry.crc32 else None


class Tail:
    """The open segment of one sender. Used by one thread, the journal's.

    Appends gather in memory until `flush`, so that many small appends make one record batch. Nothing is durable, or visible
    to a reader, before `make_durable`.
    """

    def __init__(self, segment: Segment, seed: int, *, fsync: bool, entries: Sequence[Entry] = ()) -> None:
        self.segment = segment
        self.entries: list[Entry] = list(entries)  # durable
        self._seed = seed
        self._fsync = fsync
        self._written: list[Entry] = []  # in the file, not yet in the index
        self._pending: list[tuple[int, int, int, pa.Array]] = []  # first seqno, view_id, ts_ns, payloads
        self.pending_bytes = 0
        self.size = 0
        self._data = FileIO(segment.path, "ab")
        self._index = FileIO(segment.index_path, "ab")

    @classmethod
    def create(cls, segment: Segment, seed: int, *, group: str, sender: str, fsync: bool) -> "Tail":
        """A new, empty tail; its name is durable."""
        tail = cls(segment, seed, fsync=fsync)
        tail._data.truncate(0)
        tail._index.truncate(0)
        tail._write(_schema_of(group, sender).serialize())
        sync_directory(segment.path.parent, fsync=fsync)
        return tail

    @classmethod
    def recover(cls, segment: Segment, seed: int, *, fsync: bool) -> "Tail | None":
        """The tail as its last life left it, cut behind the last entry whose bytes are intact.

        None, with the files removed, if nothing in it was durable.
        """
        entries = read_index(segment, seed)
        if entries and os.path.getsize(segment.path):
            with pa.memory_map(str(segment.path)) as file:
                torn = (number for number, entry in enumerate(entries) if _bytes_of(file, entry) is None)
                del entries[next(torn, len(entries)) :]
        else:
            entries = []
        if not entries:
            remove(segment)
            return None
        tail = cls(segment, seed, fsync=fsync, entries=entries)
        tail.size = entries[-1].offset + entries[-1].length
        tail._data.truncate(tail.size)
        tail._index.truncate(len(entries) * _ENTRY_BYTES)
        if fsync:
            os.fsync(tail._data)
            os.fsync(tail._index)
        return tail

    @property
    def rows(self) -> int:
        """How many durable rows."""
        return self.entries[-1].last - self.segment.first + 1 if self.entries else 0

    @property
    def dirty(self) -> bool:
        """Whether something was appended since the last `make_durable`."""
        return bool(self._pending or self._written)

    def append(self, first: int, payloads: pa.Array, view_id: int, ts_ns: int) -> None:
        self._pending.append((first, view_id, ts_ns, payloads))
        self.pending_bytes += payloads.nbytes

    def flush(self) -> None:
        """Writes what gathered in memory as one record batch."""
        if not self._pending:
            return
        firsts, view_ids, stamps, payloads = zip(*self._pending, strict=True)
        counts = [len(piece) for piece in payloads]
        first, last = firsts[0], firsts[0] + sum(counts) - 1
        columns = [
            pc.cumulative_sum(_constant(1, last - first + 1), start=first - 1),
            pa.concat_arrays(map(_constant, view_ids, counts)),
            pa.concat_arrays(map(_constant, stamps, counts)),
            pa.concat_arrays(payloads),
        ]
        message = pa.record_batch(columns, schema=STORED).serialize()
        self._written.append(Entry(first, last, self.size, message.size, zlib.crc32(message)))
        self._write(message)
        self._pending.clear()
        self.pending_bytes = 0

    def make_durable(self) -> None:
        """Puts what was written on disk, and then names it in the index."""
        if not self._written:
            return
        if self._fsync:
            os.fdatasync(self._data)
        _write_all(self._index, _pack(self._written, self._seed))
        if self._fsync:
            os.fdatasync(self._index)
        self.entries += self._written
        self._written.clear()

    def close(self) -> None:
        self._data.close()
        self._index.close()

    def _write(self, buffer: pa.Buffer) -> None:
        _write_all(self._data, buffer)
        self.size += len(memoryview(buffer))


def _constant(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _write_all(file: FileIO, data: bytes | pa.Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _schema_of(group: str, sender: str) -> pa.Schema:
    """The stored schema, with what every row has in common, for whoever opens a segment with another Arrow tool."""
    return STORED.with_metadata({"ringcast.group": group, "ringcast.sender": sender})


def seal(tail: Tail, seed: int, *, group: str, sender: str, fsync: bool) -> Segment:
    """Rewrites a durable tail as a sealed segment with large record batches, then removes the tail.

    At every moment either the tail or the sealed segment is complete under its name. Needs about twice the segment's size in
    memory.
    """
    tail.close()
    first, last = tail.segment.first, tail.entries[-1].last
    target = sealed_segment(tail.segment.path.parent, first, last)
    table = pa.Table.from_batches(read_segment(tail.segment, tail.entries, first, last), STORED).combine_chunks()
    rows = max(1, min(SEALED_BATCH_ROWS, SEALED_BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
    batches = table.to_batches(max_chunksize=rows)
    data_draft, index_draft = target.path.with_suffix(".data.tmp"), target.path.with_suffix(".index.tmp")
    with open(data_draft, "wb") as file:
        with pa.ipc.new_file(file, _schema_of(group, sender)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        _to_disk(file, fsync)
    with open(index_draft, "wb") as file:
        file.write(_pack(_entries_of(data_draft, first, [len(batch) for batch in batches]), seed))
        _to_disk(file, fsync)
    os.replace(index_draft, target.index_path)  # before the data: a sealed segment never lacks its index
    os.replace(data_draft, target.path)
    sync_directory(target.path.parent, fsync=fsync)
    remove(tail.segment)
    return target


def _to_disk(file: BinaryIO, fsync: bool) -> None:
    file.flush()
    if fsync:
        os.fsync(file.fileno())


def _entries_of(path: Path, first: int, counts: Sequence[int]) -> list[Entry]:
    """Where the record batches of an IPC file just written lie."""
    entries = []
    with pa.memory_map(str(path)) as file:
        file.seek(_FILE_MAGIC_BYTES)
        pa.ipc.read_message(file)  # the schema
        for count in counts:
            offset = file.tell()
            pa.ipc.read_message(file)
            length = file.tell() - offset
            file.seek(offset)
            entries.append(Entry(first, first + count - 1, offset, length, zlib.crc32(file.read_buffer(length))))
            first += count
    return entries


def remove(segment: Segment) -> None:
    """Removes a tail's files; a missing one is fine."""
    segment.path.unlink(missing_ok=True)
    segment.index_path.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Removes what an interrupted write left in a sender's folder: drafts, sealed tails, indexes without data."""
    kept = {path for segment in list_segments(folder) for path in (segment.path, segment.index_path)}
    for path in folder.iterdir():
        if path.suffix == ".tmp" or (path.suffix in (_TAIL, _INDEX) and path not in kept):
            path.unlink()


def rows_of(batch: pa.RecordBatch, schema: pa.Schema, group: str, sender: str) -> pa.RecordBatch:
    """A stored batch as rows of `schema`, any selection of the fields of ROWS, without copying payloads."""
    columns = [_column(batch, field, group, sender) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, group: str, sender: str) -> pa.Array:
    if field.name == "group":
        return pa.repeat(pa.scalar(group, field.type), batch.num_rows)
    if field.name == "sender":
        return pa.repeat(pa.scalar(sender, field.type), batch.num_rows)
    if field.name == "timestamp":
        return pc.divide(batch.column("ts_ns"), 1000).cast(field.type)
    return batch.column(field.name)
