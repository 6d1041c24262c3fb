"""The journal's reader: exact ranges of what is durable, beside a running writer and without its lock.

The digest says what may be read. It is replaced only after the messages it covers are on disk, and raised before any are
purged, so whatever a reader finds in it can be read until a later digest says otherwise.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from ..errors import JournalError
from ..paths import local_path
from .manifest import Extent, folder_name, read_digest, read_meta
from .rows import ROWS, Rows
from .segments import Entry, Segment, identity, list_segments, read_index, read_segment


class PurgedError(JournalError):
    """A message that was asked for strictly has been purged."""


class Piece(NamedTuple):
    """A segment as a reader sees it: the durable seqnos in it (inclusive) and the size of its file in bytes."""

    first: int
    last: int
    size: int
    sealed: bool


class JournalReader:
    """Reads a journal directory; any number of processes may, at any time.

    Holds no files open and keeps nothing in memory: every call looks at the directory anew. Raises JournalError if there is no
    journal, or it is damaged or of another version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        meta = read_meta(self.path)
        if meta is None:
            raise JournalError(f"There is no journal at {self.path}: check the name, or start recording to it first.")
        self.group = meta.group
        self.recorder = meta.recorder

    def digest(self) -> dict[str, int]:
        """The highest durable seqno of every sender, by sender."""
        return {sender: extent.high for sender, extent in self.extents().items()}

    def extents(self) -> dict[str, Extent]:
        """The durable range of every sender with its lost ranges, by sender."""
        extents = read_digest(self.path)
        if extents is None:
            raise JournalError(f"{self.path} has lost its digest: open it once with Journal(), which rebuilds it.")
        return extents

    def segments(self, sender: str) -> list[Piece]:
        """The segments that hold durable messages of `sender`, in order; empty for a sender that is not in the digest."""
        extent = self.extents().get(sender)
        if extent is None:
            return []
        pieces = []
        for segment in self._list(sender):
            last = segment.last if segment.last is not None else self._tail_end(segment, sender, extent)
            if segment.first <= last and last >= extent.low:
                try:
                    pieces.append(Piece(segment.first, last, segment.path.stat().st_size, segment.sealed))
                except FileNotFoundError:  # sealed or purged a moment ago
                    return self.segments(sender)
        return pieces

    def entries(self, sender: str, first: int, last: int) -> list[Entry]:
        """What the indexes say of the messages first..last (inclusive) of `sender`: no segment is opened."""
        seed = identity(self.group, sender)
        return [entry for segment in self._list(sender)
                if segment.first <= last and (segment.last is None or segment.last >= first)
                for entry in read_index(segment, seed) if entry.first <= last and entry.last >= first]

    def read(self, sender: str, first: int, last: int, schema: pa.Schema = ROWS) -> Iterator[pa.RecordBatch]:
        """The messages first..last (inclusive) of `sender`, in order, as batches of `schema`, a selection of the fields of
        WITH_HEADERS.

        The range is cut to what is durable; lost ranges, and what is purged meanwhile, yield nothing. Raises JournalError where
        a message that is durable cannot be read unharmed; what came before it has been yielded by then, and is right.
        """
        extent = self.extents().get(sender)
        if extent is None:
            return
        rows = self.rows(sender, schema)
        for start, end in extent.held():
            expected, end = max(start, first), min(end, last)
            while expected <= end:
                try:
                    for behind, stored in self.stored(sender, expected, end):
                        expected = behind
                        if stored.num_rows:
                            yield rows(stored)
                    break
                except PurgedError:
                    expected = max(expected, self.extents()[sender].low)

    def rows(self, sender: str, schema: pa.Schema) -> Rows:
        """What makes rows of `schema` from what `stored` gives."""
        return Rows(schema, self.group, sender, {"recorder": self.recorder, "journal": self.path.name})

    def stored(self, sender: str, first: int, last: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The stored messages first..last (inclusive), all of them in one held range, each batch with the seqno behind it.

        Raises PurgedError when they are purged meanwhile, JournalError when they cannot be read unharmed.
        """
        seed = identity(self.group, sender)
        expected, listed, fresh = first, self._list(sender), True
        while expected <= last:
            start = expected
            try:
                for begun, end, stored in self._from(listed, expected, last, seed):
                    if begun != expected:
                        break
                    expected = end + 1
                    yield expected, stored
            except FileNotFoundError:  # the tail was sealed under our hands: its rows are in another file now
                pass
            except (OSError, pa.ArrowInvalid) as error:
                raise self._unreadable(sender, expected) from error
            if expected > start:
                fresh = True
            elif not fresh:
                raise self._missing(sender, expected)
            else:
                fresh = False
                listed = self._list(sender)

    def _from(self, listed: Sequence[Segment], first: int, last: int, seed: int) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The stored rows from `first` on in the one listed segment that may hold it."""
        segment = next((segment for segment in reversed(listed) if segment.first <= first), None)
        if segment is not None:
            yield from read_segment(segment, read_index(segment, seed), first, last)

    def _list(self, sender: str) -> list[Segment]:
        """The segment files of a sender; none if its folder is gone, which `read` reports as a missing message."""
        try:
            return list_segments(self.path / folder_name(sender))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(sender, 1) from error

    def _tail_end(self, segment: Segment, sender: str, extent: Extent) -> int:
        entries = read_index(segment, identity(self.group, sender))
        return min(entries[-1].last, extent.high) if entries else segment.first - 1

    def _missing(self, sender: str, seqno: int) -> JournalError:
        """Why a message that was there is not: purged, which the digest says before it happens, or gone."""
        extent = self.extents().get(sender)
        if extent is not None and seqno < extent.low:
            return PurgedError(f"message {seqno} of {sender} was purged from {self.path} while it was read")
        return self._unreadable(sender, seqno)

    def _unreadable(self, sender: str, seqno: int) -> JournalError:
        return JournalError(
            f"{self.path / folder_name(sender)} cannot give message {seqno} of {sender}, which was durable (a file is missing, "
            "damaged, or not readable here): restore the folder from another copy."
        )
