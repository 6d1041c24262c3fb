"""Segments: the files that hold one sender's messages, and the index that makes their
bytes trustworthy.

The open tail is an Arrow IPC stream, a sealed segment an Arrow IPC file; any Arrow tool
reads either. Not Parquet: measured in one run (`python benchmarks/spark_source.py
--formats`), messages of 100 B / 1 KB are written 1.8 / 1.9 times as fast and cost 17 /
22 % less CPU to read through Spark's Python source, because a column of the file is
handed on as it lies; Parquet is 18 / 2 % smaller.

Arrow has no checksums, and a parser that meets a flipped length or offset may crash or
return wrong rows. So beside each segment lies an index of fixed-size entries: first and
last seqno, offset and length of one record batch, its earliest and latest times, the
CRC-32 of its bytes, and a CRC-32 over the entry itself, seeded with group and sender.
Bytes are checked before Arrow sees them. The payloads are the last bytes of a record
batch, and what lies before them has a CRC-32 of its own: a read that wants no payloads
leaves them on the disk. A sidecar and not a custom field of the batch, because a field
cannot cover the header that carries it, and because the index also finds a range of
seqnos or times without opening the file.

An entry is written only after its bytes are on disk; what no entry names does not
exist. That is the whole recovery rule: cut the tail behind its last good entry.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from ringcast.errors import JournalError
from ringcast.journal import segment_log
from ringcast.journal.manifest import sync_directory
from ringcast.journal.segment_log import Logged

TIME = pa.timestamp("us", tz="UTC")  # stored as Spark wants it, which has no nanoseconds: reading
                                     # computes nothing

STORED = pa.schema(
    [
        ("seqno", pa.int64()),
        ("view_id", pa.int64()),
        ("sent_at", TIME),
        ("delivered_at", TIME),
        ("flags", pa.int32()),
        ("payload", pa.binary()),
    ]
)

_BARE = [name for name in STORED.names if name != "payload"]

SEALED_BATCH_ROWS = 65_536
SEALED_BATCH_BYTES = 8 << 20

_TAIL, _SEALED, _INDEX = ".arrows", ".arrow", ".idx"
_ENTRY = struct.Struct("<QQQQQqqqqIII")
_ENTRY_2 = struct.Struct("<QQQQQqqqqI")  # of journals of format 2: without the head
_CHECK = struct.Struct("<I")
_ENTRY_BYTES = _ENTRY.size + _CHECK.size
_FILE_MAGIC_BYTES = 8  # "ARROW1" and padding in front of the first message of an IPC file


class Entry(NamedTuple):
    """One record batch of a segment: the seqnos that it answers for (inclusive), how
    many of them are messages, where its bytes are, its times (inclusive, microseconds
    since 1970), the CRC-32 of the bytes, and that of the first `head` of them, all but
    the payloads."""

    first: int
    last: int
    rows: int
    offset: int
    length: int
    sent_from: int
    sent_to: int
    delivered_from: int
    delivered_to: int
    crc32: int
    head: int
    head_crc32: int


_LENGTH, _CRC32 = Entry._fields.index("length"), Entry._fields.index("crc32")


class Append(NamedTuple):
    """Consecutive messages as they come: payloads and send times (TIME) one by one, the
    rest in common; microseconds. The `void` seqnos before the first one are no
    messages."""

    first: int
    void: int
    payloads: pa.Array
    view_id: int
    sent_at: pa.Array
    delivered_at: int
    flags: int


class Segment(NamedTuple):
    """One segment file; `last` is None for the open tail, whose end only its index
    knows."""

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
    """The segments in a sender's folder by first seqno; a tail that was sealed already
    is left out."""
    found: dict[int, Segment] = {}
    # sealed ones replace their tails
    for name in sorted(os.listdir(folder), key=lambda name: not name.endswith(_TAIL)):
        stem, suffix = os.path.splitext(name)
        if suffix not in (_TAIL, _SEALED):
            continue
        first, _, last = stem.partition("-")
        if not first.isdecimal() or (suffix == _SEALED) != last.isdecimal():
            raise JournalError(f"{folder / name} is not a segment name: move this file out of the journal.")
        segment = Segment(int(first), int(last) if last else None, folder / name)
        found[segment.first] = segment
    return [found[first] for first in sorted(found)]


def logged(segment: Segment) -> Logged:
    """Return what the log says of a segment."""
    return Logged(segment.first, segment.last or 0, segment.path.stat().st_size if segment.sealed
                  else 0)


def segment_of(folder: Path, first: int, last: int | None) -> Segment:
    """Return the sealed segment first..last, or the open one that begins with
    `first`."""
    return sealed_segment(folder, first, last) if last else tail_segment(folder, first)


def identity(group: str, sender: str) -> int:
    """The seed of every entry's checksum, so that a segment moved to another sender or
    group is not believed."""
    return crc32(f"{group}\0{sender}".encode())


def read_index(segment: Segment, seed: int) -> list[Entry]:
    """The entries up to the first torn, damaged or inconsistent one; empty if there is
    no index."""
    try:
        raw = segment.index_path.read_bytes()
    except FileNotFoundError:
        return []
    entries: list[Entry] = []
    expected = segment.first
    for fields in _unpack(raw, _ENTRY, seed) or _unpack(raw, _ENTRY_2, seed):
        if fields[0] != expected:
            break
        head = () if len(fields) == len(Entry._fields) else (fields[_LENGTH], fields[_CRC32])
        entries.append(Entry(*fields, *head))
        expected = entries[-1].last + 1
    return entries


def _unpack(raw: bytes, layout: struct.Struct, seed: int) -> list[tuple[int, ...]]:
    """The entries of this layout, up to the first that is none."""
    found = []
    step = layout.size + _CHECK.size
    for at in range(0, len(raw) - step + 1, step):
        packed = raw[at : at + layout.size]
        if crc32(packed, seed) != _CHECK.unpack_from(raw, at + layout.size)[0]:
            break
        found.append(layout.unpack(packed))
    return found


def _pack(entries: Sequence[Entry], seed: int) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    return b"".join(raw + _CHECK.pack(crc32(raw, seed)) for raw in packed)


def read_segment(
    segment: Segment, entries: Sequence[Entry], first: int, last: int, *, payloads: bool = True
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The messages first..last (inclusive) of a segment in the stored schema, one batch
    for each entry that they touch, and before it the seqnos that it answers for.
    Without `payloads` that column is left out, and its bytes are not read.

    Raises JournalError if the bytes do not match their checksum, FileNotFoundError if
    the segment is gone (sealed).
    """
    wanted = [entry for entry in entries if entry.first <= last and entry.last >= first]
    if not wanted:
        return
    for entry, message in zip(wanted, _messages(segment, wanted) if payloads
                              else _heads(segment, wanted), strict=True):
        if message is None:
            raise JournalError(
                f"{segment.path} is damaged at seqnos {entry.first}..{entry.last}: restore it and "
                f"its {_INDEX} file from "
                "another copy; the rest of the journal can still be read by range."
            )
        batch = pa.ipc.read_record_batch(message, STORED)
        if not payloads:
            batch = batch.select(_BARE)
        start, end = _row(batch, entry, first), _row(batch, entry, last + 1)
        yield max(first, entry.first), min(last, entry.last), batch.slice(start, end - start)


def _row(batch: pa.RecordBatch, entry: Entry, seqno: int) -> int:
    """The first row of an entry whose seqno is not below the given one."""
    if seqno <= entry.first:
        return 0
    if seqno > entry.last:
        return entry.rows
    if entry.rows == entry.last - entry.first + 1:
        return seqno - entry.first
    return int(pc.sum(pc.less(batch.column("seqno"), seqno)).as_py())


def _messages(segment: Segment, entries: Sequence[Entry]) -> Iterator[pa.Buffer | None]:
    """The bytes of each entry; None unless they are what was written."""
    with pa.memory_map(str(segment.path)) as file:
        for entry in entries:
            yield _bytes_of(file, entry)


def _heads(segment: Segment, entries: Sequence[Entry]) -> Iterator[pa.Buffer | None]:
    """The bytes of each entry, of which only the head is read, and checked; None unless
    it is what was written."""
    with open(segment.path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Not Arrow's memory map, which has the kernel fetch all that is asked for.
        mapped = pa.py_buffer(mmap(file.fileno(), size, access=ACCESS_READ) if size else b"")
    for entry in entries:
        message = mapped.slice(entry.offset,
                               entry.length) if entry.offset + entry.length <= size else None
        yield message if message is not None and crc32(message[: entry.head]) == entry.head_crc32 else None


def _bytes_of(file: pa.MemoryMappedFile, entry: Entry) -> pa.Buffer | None:
    if entry.offset + entry.length > file.size():
        return None
    file.seek(entry.offset)
    buffer = file.read_buffer(entry.length)
    return buffer if crc32(buffer) == entry.crc32 else None


class Tail:
    """The open segment of one sender. Used by one thread, the journal's.

    Appends gather in memory until `flush`, so that many small appends make one record
    batch. Nothing is durable, or visible to a reader, before `make_durable`.
    """

    def __init__(self, segment: Segment, seed: int, *, fsync: bool, entries: Sequence[Entry] = ()) -> None:
        self.segment = segment
        self.entries: list[Entry] = list(entries)  # durable
        self._seed = seed
        self._fsync = fsync
        self._written: list[Entry] = []  # in the file, not yet in the index
        self._pending: list[Append] = []
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
        segment_log.append(segment.path.parent, seed, logged(segment))
        return tail

    @classmethod
    def recover(cls, segment: Segment, seed: int, *, fsync: bool) -> "Tail | None":
        """The tail as its last process left it, cut behind the last entry whose bytes
        are intact.

        None, with the files removed, if nothing in it was durable.
        """
        entries = read_index(segment, seed)
        if entries and os.path.getsize(segment.path):
            with pa.memory_map(str(segment.path)) as file:
                torn = (number for number, entry in enumerate(entries)
                        if _bytes_of(file, entry) is None)
                del entries[next(torn, len(entries)) :]
        else:
            entries = []
        if not entries:
            remove(segment)
            return None
        _upgrade(segment, entries, seed, fsync=fsync)
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

    def append(self, piece: Append) -> None:
        self._pending.append(piece)
        self.pending_bytes += piece.payloads.nbytes

    def flush(self) -> None:
        """Writes what gathered in memory as one record batch."""
        if not self._pending:
            return
        batch = _batch_of(self._pending)
        message = batch.serialize()
        first = self._pending[0].first - self._pending[0].void
        entry = _entry_of(batch, first, self.size, message)
        self._written.append(entry)
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


def _upgrade(segment: Segment, entries: Sequence[Entry], seed: int, *, fsync: bool) -> None:
    """Give the index of a tail of format 2 the layout of today, which is appended to
    it."""
    raw = segment.index_path.read_bytes()
    if _unpack(raw, _ENTRY, seed):
        return
    draft = segment.index_path.with_suffix(".index.tmp")
    with open(draft, "wb") as file:
        file.write(_pack(entries, seed))
        _to_disk(file, fsync)
    os.replace(draft, segment.index_path)
    sync_directory(segment.path.parent, fsync=fsync)


def _batch_of(pieces: Sequence[Append]) -> pa.RecordBatch:
    """Consecutive appends as one record batch."""
    counts = [len(piece.payloads) for piece in pieces]
    columns = [
        pa.concat_arrays([pc.cumulative_sum(_constant(1, count), start=piece.first - 1)
                          for piece, count in zip(pieces, counts, strict=True)]),
        pa.concat_arrays(map(_constant, [piece.view_id for piece in pieces], counts)),
        pa.concat_arrays([piece.sent_at for piece in pieces]),
        pa.concat_arrays(map(_constant, [piece.delivered_at for piece in pieces], counts)).cast(TIME),
        pa.concat_arrays(map(_constant, [piece.flags for piece in pieces], counts)).cast(pa.int32()),
        pa.concat_arrays([piece.payloads for piece in pieces]),
    ]
    return pa.record_batch(columns, schema=STORED)


def _entry_of(batch: pa.RecordBatch, first: int, offset: int, message: pa.Buffer) -> Entry:
    """The index entry of a record batch whose bytes are `message` and lie at
    `offset`."""
    head = _head_of(message)
    head_crc32 = crc32(message[:head])
    sent, delivered = (pc.min_max(batch.column(name).cast(pa.int64())).as_py()
                       for name in ("sent_at", "delivered_at"))
    return Entry(first, batch.column("seqno")[-1].as_py(), batch.num_rows, offset, message.size,
                 sent["min"], sent["max"], delivered["min"], delivered["max"],
                 crc32(message[head:], head_crc32), head, head_crc32)


def _head_of(message: pa.Buffer) -> int:
    """How many bytes come before those of the payloads, the last of the last column;
    all, if these have none."""
    payloads = pa.ipc.read_record_batch(message, STORED).column("payload").buffers()[2]
    head = payloads.address - message.address if payloads is not None else message.size
    return head if 0 < head <= message.size else message.size


def _constant(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _write_all(file: FileIO, data: bytes | pa.Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _schema_of(group: str, sender: str) -> pa.Schema:
    """The stored schema, with what every row has in common, for whoever opens a segment
    with another Arrow tool."""
    return STORED.with_metadata({"ringcast.group": group, "ringcast.sender": sender})


def seal(tail: Tail, seed: int, *, group: str, sender: str, fsync: bool) -> Segment:
    """Rewrites a durable tail as a sealed segment with large record batches, then
    removes the tail.

    At every moment either the tail or the sealed segment is complete under its name.
    Needs about twice the segment's size in memory.
    """
    tail.close()
    first, last = tail.segment.first, tail.entries[-1].last
    target = sealed_segment(tail.segment.path.parent, first, last)
    stored = (batch for _, _, batch in read_segment(tail.segment, tail.entries, first, last))
    table = pa.Table.from_batches(stored, STORED).combine_chunks()
    rows = max(1,
               min(SEALED_BATCH_ROWS, SEALED_BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
    batches = table.to_batches(max_chunksize=rows)
    data_draft, index_draft = target.path.with_suffix(".data.tmp"), target.path.with_suffix(
        ".index.tmp")
    with open(data_draft, "wb") as file:
        with pa.ipc.new_file(file, _schema_of(group, sender)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        _to_disk(file, fsync)
    with open(index_draft, "wb") as file:
        file.write(_pack(_entries_of(data_draft, first, batches), seed))
        _to_disk(file, fsync)
    os.replace(index_draft, target.index_path)  # before the data: a sealed segment never lacks its
                                                # index
    os.replace(data_draft, target.path)
    sync_directory(target.path.parent, fsync=fsync)
    segment_log.append(target.path.parent, seed, logged(target))  # before the tail goes, so that
                                                                  # readers find the one or the
                                                                  # other
    remove(tail.segment)
    return target


def _to_disk(file: BinaryIO, fsync: bool) -> None:
    file.flush()
    if fsync:
        os.fsync(file.fileno())


def _entries_of(path: Path, first: int, batches: Sequence[pa.RecordBatch]) -> list[Entry]:
    """Where the record batches of an IPC file just written lie."""
    entries = []
    with pa.memory_map(str(path)) as file:
        file.seek(_FILE_MAGIC_BYTES)
        pa.ipc.read_message(file)  # the schema
        for batch in batches:
            offset = file.tell()
            pa.ipc.read_message(file)
            length = file.tell() - offset
            file.seek(offset)
            entries.append(_entry_of(batch, first, offset, file.read_buffer(length)))
            first = entries[-1].last + 1
    return entries


def remove(segment: Segment) -> None:
    """Removes a segment's files; a missing one is fine."""
    segment.path.unlink(missing_ok=True)
    segment.index_path.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Removes what an interrupted write left in a sender's folder: drafts, sealed
    tails, indexes without data."""
    kept = {path for segment in list_segments(folder)
            for path in (segment.path, segment.index_path)}
    for path in folder.iterdir():
        if path.suffix == ".tmp" or (path.suffix in (_TAIL, _INDEX) and path not in kept):
            path.unlink()
