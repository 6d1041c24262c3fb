"""The log of a sender's segments: the first and last seqno and the size of each, in the
order in which they were begun.

A reader that wants a few messages of a long journal finds their segments here by
bisection, instead of listing the directory. The log says what a listing would say. The
writer appends to it, writes it anew when it opens the journal, and removes what it
purges. The log is a hint and needs no sync: if a segment that it names does not exist,
or if the log is missing, out of date or damaged, the reader lists the directory.

An entry has the first and the last seqno of a segment and the size of its file, with a
CRC-32 that is seeded with group and sender. The entry of an open segment has 0 as its
last seqno and size. When the segment is sealed, another entry with the same first seqno
follows.
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from isal.isal_zlib import crc32

LOG = "segments.log"

_ENTRY = struct.Struct("<QQQ")
_CHECK = struct.Struct("<I")
_SIZE = _ENTRY.size + _CHECK.size
_ENTRIES_PER_READ = 128


class Logged(NamedTuple):
    """A segment in the log; `last` and `nbytes` are 0 while it is open."""

    first: int
    last: int
    nbytes: int


class _BadEntryError(Exception):
    """An entry whose checksum is wrong."""


def append(folder: Path, seed: int, entry: Logged) -> None:
    """Append a segment: when it is begun, and when it is sealed."""
    with open(folder / LOG, "ab", buffering=0) as file:
        file.write(_packed(entry, seed))


def rewrite(folder: Path, seed: int, entries: Iterable[Logged]) -> None:
    """Replace the log."""
    draft = folder / f"{LOG}.tmp"
    draft.write_bytes(b"".join(_packed(entry, seed) for entry in entries))
    os.replace(draft, folder / LOG)


def look_up(folder: Path, seed: int, first: int, last: int) -> list[Logged] | None:
    """Return the segments that may have some of the seqnos first..last (inclusive);
    None if the log cannot tell."""
    try:
        fd = os.open(folder / LOG, os.O_RDONLY)
    except OSError:
        return None
    try:
        count = os.fstat(fd).st_size // _SIZE
        begin = bisect_right(range(count), first,
                             key=lambda at: next(_entries(fd, seed, at, at + 1)).first)
        found: dict[int, Logged] = {}
        for entry in _entries(fd, seed, max(0, begin - 1), count):
            if entry.first > last:
                break
            found[entry.first] = entry      # a sealed segment replaces the same one while open
    except _BadEntryError:
        return None
    finally:
        os.close(fd)
    return [entry for entry in found.values() if not entry.last or entry.last >= first]


def _entries(fd: int, seed: int, start: int, end: int) -> Iterator[Logged]:
    """Read the entries with the numbers from `start` up to, but not including,
    `end`."""
    for at in range(start, end, _ENTRIES_PER_READ):
        raw = os.pread(fd, (min(end, at + _ENTRIES_PER_READ) - at) * _SIZE, at * _SIZE)
        if not raw or len(raw) % _SIZE:
            raise _BadEntryError
        for offset in range(0, len(raw), _SIZE):
            packed = raw[offset:offset + _ENTRY.size]
            if crc32(packed, seed) != _CHECK.unpack_from(raw, offset + _ENTRY.size)[0]:
                raise _BadEntryError
            yield Logged(*_ENTRY.unpack(packed))


def _packed(entry: Logged, seed: int) -> bytes:
    raw = _ENTRY.pack(*entry)
    return raw + _CHECK.pack(crc32(raw, seed))
