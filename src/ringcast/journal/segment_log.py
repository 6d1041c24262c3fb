"""The log of a sender's segments: where each begins and ends and how large it is, in
the order in which they came.

A reader that wants a few messages of a long journal finds their segments here by
bisection, instead of listing a directory of all of them. The log says only what a
listing would say, a little sooner: the writer appends to it, makes it anew when it
opens the journal, and takes out what it purges. So it is a hint and needs no sync: a
reader opens the segments that it names, and where they are not there, or it is missing,
behind or damaged, lists the directory.

An entry is the first and the last seqno of a segment and the size of its file, with a
CRC-32 that is seeded with group and sender. The open segment has the last seqno 0 and
no size; the entry that follows when it is sealed has its first.
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
_AT_ONCE = 128                          # entries that are read with one call


class Logged(NamedTuple):
    """A segment, as the log has it; `last` and `nbytes` are 0 while it is open."""

    first: int
    last: int
    nbytes: int


class _BadEntryError(Exception):
    """An entry whose checksum is wrong."""


def append(folder: Path, seed: int, entry: Logged) -> None:
    """Add a segment: the open one when it begins, and every one when it is sealed."""
    with open(folder / LOG, "ab", buffering=0) as file:
        file.write(_packed(entry, seed))


def rewrite(folder: Path, seed: int, entries: Iterable[Logged]) -> None:
    """Replace the log."""
    draft = folder / f"{LOG}.tmp"
    draft.write_bytes(b"".join(_packed(entry, seed) for entry in entries))
    os.replace(draft, folder / LOG)


def look_up(folder: Path, seed: int, first: int, last: int) -> list[Logged] | None:
    """Return the segments that may have some of the seqnos first..last (inclusive), or
    None when the log cannot tell."""
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
            found[entry.first] = entry  # a sealed segment comes after itself while it was open
    except _BadEntryError:
        return None
    finally:
        os.close(fd)
    return [entry for entry in found.values() if not entry.last or entry.last >= first]


def _entries(fd: int, seed: int, start: int, end: int) -> Iterator[Logged]:
    """Read the entries from `start` on and before `end`, by their numbers."""
    for at in range(start, end, _AT_ONCE):
        raw = os.pread(fd, (min(end, at + _AT_ONCE) - at) * _SIZE, at * _SIZE)
        if not raw or len(raw) % _SIZE:
            raise _BadEntryError
        for offset in range(0, len(raw), _SIZE):
            packed = raw[offset : offset + _ENTRY.size]
            if crc32(packed, seed) != _CHECK.unpack_from(raw, offset + _ENTRY.size)[0]:
                raise _BadEntryError
            yield Logged(*_ENTRY.unpack(packed))


def _packed(entry: Logged, seed: int) -> bytes:
    raw = _ENTRY.pack(*entry)
    return raw + _CHECK.pack(crc32(raw, seed))
