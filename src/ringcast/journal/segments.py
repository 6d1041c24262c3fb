"""Segments: the files with the messages of one sender, and the index with the checksums
of their bytes.

The open segment (tail) is an Arrow IPC stream, a sealed segment is an Arrow IPC file;
any Arrow tool reads both. The format is not Parquet, because messages of 100 B / 1 KB
are written 1.8 / 1.9 times as fast and cost 17 / 22 % less CPU to read through Spark's
Python source, where a column of the file is passed on as it is; Parquet is 18 / 2 %
smaller (measured in one run, `python benchmarks/spark_source.py --formats`).

Arrow has no checksums, and a parser that meets a wrong length or offset may crash or
return wrong rows. So each segment has an index, a second file with entries of a fixed
size: first and last seqno, offset and length of one record batch, its earliest and
latest times, the CRC-32 of its bytes, and a CRC-32 of the entry itself, seeded with
group and sender. Bytes are checked before Arrow sees them. The payloads are the last
bytes of a record batch, and the bytes before them (the head) have a CRC-32 of their
own, so a read without payloads leaves the payloads on the disk. The index is a file and
not a custom field of the batch, because a field cannot cover the header that carries
it, and because the index finds a range of seqnos or times without opening the segment.

An entry is written only after its bytes are on disk. What no entry names does not
exist. So recovery cuts the tail behind its last good entry, unless the digest says that
more was durable: that is damage, and the files stay as they are.
"""

import os
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from io import FileIO
from itertools import takewhile
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from ringcast.errors import JournalError
from ringcast.journal import segment_log
from ringcast.journal.manifest import sync_directory, unreadable
from ringcast.journal.segment_log import Logged
from ringcast.logs import log

TIME = pa.timestamp("us", tz="UTC")     # as Spark has times, so that reading converts nothing

STORED = pa.schema([("seqno", pa.int64()), ("view_id", pa.int64()), ("sent_at", TIME),
                    ("delivered_at", TIME), ("flags", pa.int32()), ("payload", pa.binary())])

SEQNO_MAX = 2**63 - 1       # in a column
_WITHOUT_PAYLOAD = [name for name in STORED.names if name != "payload"]

SEALED_BATCH_ROWS = 65_536
SEALED_BATCH_BYTES = 8 << 20

_TAIL, _SEALED, _INDEX, _DAMAGED = ".arrows", ".arrow", ".idx", ".damaged"
_ENTRY = struct.Struct("<QQQQQqqqqIII")
_ENTRY_2 = struct.Struct("<QQQQQqqqqI")     # of journals of format 2: without the head
_CHECK = struct.Struct("<I")
_ENTRY_BYTES = _ENTRY.size + _CHECK.size
_FILE_MAGIC_BYTES = 8       # "ARROW1" and padding before the first message of an IPC file


class Entry(NamedTuple):
    """One record batch of a segment: the seqnos that it covers (inclusive), how many of
    them are messages, where its bytes are, its times (inclusive, microseconds since
    1970), the CRC-32 of the bytes, and that of the first `head` bytes, which are all
    but the payloads."""

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
    """Consecutive messages: payloads and send times (TIME) one by one, the rest in
    common; `delivered_at` in microseconds. The last `fragment_seqnos` seqnos before
    `first` are fragments of the first message."""

    first: int
    fragment_seqnos: int
    payloads: pa.Array
    view_id: int
    sent_at: pa.Array
    delivered_at: int
    flags: int


class Segment(NamedTuple):
    """One segment file. `last` is None for the open one, whose end is in its index."""

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
    """Return the segments in a sender's folder by first seqno, without tails that are
    sealed already."""
    found: dict[int, Segment] = {}
    # Tails come first in this order, so that sealed segments replace them.
    for name in sorted(os.listdir(folder), key=lambda name: not name.endswith(_TAIL)):
        stem, suffix = os.path.splitext(name)
        if suffix not in (_TAIL, _SEALED):
            continue
        first, _, last = stem.partition("-")
        if not first.isdecimal() or (suffix == _SEALED) != last.isdecimal():
            raise JournalError(f"{folder / name} is not a segment name: move this file out of the "
                               "journal.")
        segment = Segment(int(first), int(last) if last else None, folder / name)
        found[segment.first] = segment
    return [found[first] for first in sorted(found)]


def logged(segment: Segment) -> Logged:
    """Return the entry of a segment for the segment log."""
    size = segment.path.stat().st_size if segment.sealed else 0
    return Logged(segment.first, segment.last or 0, size)


def segment_of(folder: Path, first: int, last: int | None) -> Segment:
    """Return the sealed segment first..last, or the open one from `first` on if `last`
    is 0 or None."""
    return sealed_segment(folder, first, last) if last else tail_segment(folder, first)


def identity(group: str, sender: str) -> int:
    """Return the seed of every entry's checksum. With it, a segment that was moved to
    another sender or group is rejected."""
    return crc32(f"{group}\0{sender}".encode())


def read_index(segment: Segment, seed: int) -> list[Entry]:
    """Return the entries before the first that is torn, damaged or inconsistent; none
    if there is no index. Raises JournalError if the disk cannot give it."""
    try:
        raw = segment.index_path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(segment.index_path, error) from error
    entries: list[Entry] = []
    expected = segment.first
    for fields in _unpack(raw, _ENTRY, seed) or _unpack(raw, _ENTRY_2, seed):
        if fields[0] != expected:
            break
        head = () if len(fields) == len(Entry._fields) else (fields[_LENGTH], fields[_CRC32])
        entries.append(Entry(*fields, *head))
        expected = entries[-1].last + 1
    return entries


def intact_entries(segment: Segment, seed: int) -> list[Entry]:
    """Return the entries of a tail before the first whose bytes are torn or damaged."""
    entries = read_index(segment, seed)
    if not entries or not os.path.getsize(segment.path):
        return []
    with pa.memory_map(str(segment.path)) as file:
        return list(takewhile(lambda entry: _bytes_of(file, entry) is not None, entries))


def _unpack(raw: bytes, layout: struct.Struct, seed: int) -> list[tuple[int, ...]]:
    """Return the entries of this layout, before the first with a wrong checksum."""
    found = []
    step = layout.size + _CHECK.size
    for at in range(0, len(raw) - step + 1, step):
        packed = raw[at:at + layout.size]
        if crc32(packed, seed) != _CHECK.unpack_from(raw, at + layout.size)[0]:
            break
        found.append(layout.unpack(packed))
    return found


def _pack(entries: Sequence[Entry], seed: int) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    return b"".join(raw + _CHECK.pack(crc32(raw, seed)) for raw in packed)


def read_segment(segment: Segment, entries: Sequence[Entry], first: int, last: int, *,
                 payloads: bool = True) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Read the messages first..last (inclusive) of a segment in the stored schema, one
    batch for each entry, with the first and last seqno that the batch covers. Without
    `payloads` that column is left out, and its bytes are not read.

    Raises JournalError if the bytes do not match their checksum, FileNotFoundError if
    the segment is gone (sealed).
    """
    wanted = [entry for entry in entries if entry.first <= last and entry.last >= first]
    if not wanted:
        return
    messages = _messages(segment, wanted) if payloads else _heads(segment, wanted)
    for entry, message in zip(wanted, messages, strict=True):
        if message is None:
            raise JournalError(f"{segment.path} is damaged at seqnos {entry.first}..{entry.last}: "
                               f"restore it and its {_INDEX} file from another copy; the rest of "
                               "the journal can still be read by range.")
        batch = pa.ipc.read_record_batch(message, STORED)
        if not payloads:
            batch = batch.select(_WITHOUT_PAYLOAD)
        start, end = _row(batch, entry, first), _row(batch, entry, last + 1)
        yield max(first, entry.first), min(last, entry.last), batch.slice(start, end - start)


def _row(batch: pa.RecordBatch, entry: Entry, seqno: int) -> int:
    """Return the first row of an entry whose seqno is not below the given one."""
    if seqno <= entry.first:
        return 0
    if seqno > entry.last:
        return entry.rows
    if entry.rows == entry.last - entry.first + 1:
        return seqno - entry.first
    return int(pc.sum(pc.less(batch.column("seqno"), seqno)).as_py())


def _messages(segment: Segment, entries: Sequence[Entry]) -> Iterator[pa.Buffer | None]:
    """Read the bytes of each entry; None if their checksum is wrong."""
    with pa.memory_map(str(segment.path)) as file:
        for entry in entries:
            yield _bytes_of(file, entry)


def _heads(segment: Segment, entries: Sequence[Entry]) -> Iterator[pa.Buffer | None]:
    """Map the bytes of each entry, and read and check its head alone; None if the
    checksum of the head is wrong."""
    with open(segment.path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Arrow's memory map would make the kernel read the payloads as well.
        mapped = pa.py_buffer(mmap(file.fileno(), size, access=ACCESS_READ) if size else b"")
    for entry in entries:
        is_inside = entry.offset + entry.length <= size
        message = mapped.slice(entry.offset, entry.length) if is_inside else None
        is_good = message is not None and crc32(message[:entry.head]) == entry.head_crc32
        yield message if is_good else None


def _bytes_of(file: pa.MemoryMappedFile, entry: Entry) -> pa.Buffer | None:
    if entry.offset + entry.length > file.size():
        return None
    file.seek(entry.offset)
    buffer = file.read_buffer(entry.length)
    return buffer if crc32(buffer) == entry.crc32 else None


class Tail:
    """The open segment of one sender. Only the thread of the journal uses it.

    Appends collect in memory until `flush`, so that many small appends become one
    record batch. Nothing is durable, or visible to a reader, before `make_durable`.
    Its data file is open from a write until that is durable, so that the system tells
    us of a failed write. Otherwise no file is open: there may be many senders.
    """

    def __init__(self, segment: Segment, seed: int, *, fsync: bool,
                 entries: Sequence[Entry] = ()) -> None:
        self.segment = segment
        self.entries: list[Entry] = list(entries)       # durable
        self._seed = seed
        self._fsync = fsync
        self._written: list[Entry] = []                 # in the file, not yet in the index
        self._pending: list[Append] = []
        self.pending_bytes = 0
        self.size = 0
        self._data: FileIO | None = None

    @classmethod
    def create(cls, segment: Segment, seed: int, *, group: str, sender: str, fsync: bool) -> "Tail":
        """Create an empty tail, and make its name durable."""
        tail = cls(segment, seed, fsync=fsync)
        segment.path.write_bytes(b"")
        segment.index_path.write_bytes(b"")
        tail._write(_schema_of(group, sender).serialize())
        tail.close()
        sync_directory(segment.path.parent, fsync=fsync)
        segment_log.append(segment.path.parent, seed, logged(segment))
        return tail

    @classmethod
    def recover(cls, segment: Segment, entries: list[Entry], seed: int, *, keep_rest: bool,
                fsync: bool) -> "Tail | None":
        """Open the tail that the last process left, and cut it behind its intact
        `entries`. If there are none, remove the files and return None. With `keep_rest`
        copy the files before bytes are cut: they may have messages."""
        size = entries[-1].offset + entries[-1].length if entries else 0
        if keep_rest and segment.path.stat().st_size > size:
            _keep_copy(segment, fsync=fsync)
        if not entries:
            remove(segment)
            return None
        _upgrade(segment, entries, seed, fsync=fsync)
        tail = cls(segment, seed, fsync=fsync, entries=entries)
        tail.size = size
        _cut(segment.path, size, fsync)
        _cut(segment.index_path, len(entries) * _ENTRY_BYTES, fsync)
        return tail

    @property
    def rows(self) -> int:
        """Return the number of durable seqnos."""
        return self.entries[-1].last - self.segment.first + 1 if self.entries else 0

    @property
    def dirty(self) -> bool:
        """Return whether something was appended since the last `make_durable`."""
        return bool(self._pending or self._written)

    def append(self, piece: Append) -> None:
        self._pending.append(piece)
        self.pending_bytes += piece.payloads.nbytes

    def flush(self) -> None:
        """Write what collected in memory as one record batch."""
        if not self._pending:
            return
        batch = _batch_of(self._pending)
        message = batch.serialize()
        first = self._pending[0].first - self._pending[0].fragment_seqnos
        entry = _entry_of(batch, first, self.size, message)
        self._written.append(entry)
        self._write(message)
        self._pending.clear()
        self.pending_bytes = 0

    def make_durable(self) -> None:
        """Make what was written durable, and then add it to the index."""
        if not self._written:
            return
        assert self._data is not None
        if self._fsync:
            os.fdatasync(self._data)
        self.close()
        with _open_at(self.segment.index_path, len(self.entries) * _ENTRY_BYTES) as index:
            _write_all(index, _pack(self._written, self._seed))
            if self._fsync:
                os.fdatasync(index)
        self.entries += self._written
        self._written.clear()

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
            self._data = None

    def _write(self, buffer: pa.Buffer) -> None:
        if self._data is None:
            self._data = _open_at(self.segment.path, self.size)
        _write_all(self._data, buffer)
        self.size += len(memoryview(buffer))


def _keep_copy(segment: Segment, *, fsync: bool) -> None:
    """Copy a segment's files under names that no journal reads."""
    for path in filter(Path.exists, (segment.path, segment.index_path)):
        copy = path.with_name(f"{path.name}.{time.time_ns()}{_DAMAGED}")
        with open(path, "rb") as source, open(copy, "xb") as target:
            shutil.copyfileobj(source, target)
            _to_disk(target, fsync)
        log.warning("%s is cut behind its last intact message; as it was it is kept in %s",
                    path, copy.name)
    sync_directory(segment.path.parent, fsync=fsync)


def _upgrade(segment: Segment, entries: Sequence[Entry], seed: int, *, fsync: bool) -> None:
    """Rewrite the index of a tail of format 2 in the layout of today, so that new
    entries can be appended."""
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
    """Make one record batch of consecutive appends."""
    counts = [len(piece.payloads) for piece in pieces]

    def repeated(field: str) -> pa.Array:
        values = [getattr(piece, field) for piece in pieces]
        return pa.concat_arrays(map(_constant, values, counts)).cast(STORED.field(field).type)

    seqnos = [pc.cumulative_sum(_constant(1, count), start=piece.first - 1)
              for piece, count in zip(pieces, counts, strict=True)]
    columns = [pa.concat_arrays(seqnos), repeated("view_id"),
               pa.concat_arrays([piece.sent_at for piece in pieces]), repeated("delivered_at"),
               repeated("flags"), pa.concat_arrays([piece.payloads for piece in pieces])]
    return pa.record_batch(columns, schema=STORED)


def _entry_of(batch: pa.RecordBatch, first: int, offset: int, message: pa.Buffer) -> Entry:
    """Return the index entry of a record batch whose bytes are `message` and are at
    `offset`."""
    head = _head_of(message)
    head_crc32 = crc32(message[:head])
    sent, delivered = (pc.min_max(batch.column(name).cast(pa.int64())).as_py()
                       for name in ("sent_at", "delivered_at"))
    return Entry(first, batch.column("seqno")[-1].as_py(), batch.num_rows, offset, message.size,
                 sent["min"], sent["max"], delivered["min"], delivered["max"],
                 crc32(message[head:], head_crc32), head, head_crc32)


def _head_of(message: pa.Buffer) -> int:
    """Return the number of bytes before the payloads, which are the last bytes of a
    batch; all bytes if there are no payloads."""
    payloads = pa.ipc.read_record_batch(message, STORED).column("payload").buffers()[2]
    head = payloads.address - message.address if payloads is not None else message.size
    return head if 0 < head <= message.size else message.size


def _constant(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _open_at(path: Path, offset: int) -> FileIO:
    """Open an existing file for writing from `offset` on."""
    file = FileIO(path, "r+")
    file.seek(offset)
    return file


def _cut(path: Path, size: int, fsync: bool) -> None:
    with open(path, "r+b") as file:
        file.truncate(size)
        _to_disk(file, fsync)


def _write_all(file: FileIO, data: bytes | pa.Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view):]


def _schema_of(group: str, sender: str) -> pa.Schema:
    """Return the stored schema with group and sender, for people who open a segment
    with another Arrow tool."""
    return STORED.with_metadata({"ringcast.group": group, "ringcast.sender": sender})


def seal(tail: Tail, seed: int, *, group: str, sender: str, fsync: bool) -> Segment:
    """Rewrite a durable tail as a sealed segment with large record batches, then remove
    the tail.

    At every moment the tail or the sealed segment is complete under its name. Needs
    about twice the segment's size in memory.
    """
    tail.close()
    first, last = tail.segment.first, tail.entries[-1].last
    target = sealed_segment(tail.segment.path.parent, first, last)
    stored = (batch for _, _, batch in read_segment(tail.segment, tail.entries, first, last))
    table = pa.Table.from_batches(stored, STORED).combine_chunks()
    fitting = SEALED_BATCH_BYTES * table.num_rows // max(1, table.nbytes)
    batches = table.to_batches(max_chunksize=max(1, min(SEALED_BATCH_ROWS, fitting)))
    data_draft = target.path.with_suffix(".data.tmp")
    index_draft = target.path.with_suffix(".index.tmp")
    with open(data_draft, "wb") as file:
        with pa.ipc.new_file(file, _schema_of(group, sender)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        _to_disk(file, fsync)
    with open(index_draft, "wb") as file:
        file.write(_pack(_entries_of(data_draft, first, batches), seed))
        _to_disk(file, fsync)
    os.replace(index_draft, target.index_path)      # first: a sealed segment always has its index
    os.replace(data_draft, target.path)
    sync_directory(target.path.parent, fsync=fsync)
    # Before the tail is removed, so that readers always find one of the two.
    segment_log.append(target.path.parent, seed, logged(target))
    remove(tail.segment)
    return target


def _to_disk(file: BinaryIO, fsync: bool) -> None:
    file.flush()
    if fsync:
        os.fsync(file.fileno())


def _entries_of(path: Path, first: int, batches: Sequence[pa.RecordBatch]) -> list[Entry]:
    """Return the index entries of the record batches of an IPC file."""
    entries = []
    with pa.memory_map(str(path)) as file:
        file.seek(_FILE_MAGIC_BYTES)
        pa.ipc.read_message(file)       # the schema
        for batch in batches:
            offset = file.tell()
            pa.ipc.read_message(file)
            length = file.tell() - offset
            file.seek(offset)
            entries.append(_entry_of(batch, first, offset, file.read_buffer(length)))
            first = entries[-1].last + 1
    return entries


def remove(segment: Segment) -> None:
    """Remove a segment's files, if they exist."""
    segment.path.unlink(missing_ok=True)
    segment.index_path.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what an interrupted write left in a sender's folder: drafts, tails that
    are sealed, indexes without data."""
    kept = {path for segment in list_segments(folder)
            for path in (segment.path, segment.index_path)}
    for path in folder.iterdir():
        if path.suffix == ".tmp" or (path.suffix in (_TAIL, _INDEX) and path not in kept):
            path.unlink()
