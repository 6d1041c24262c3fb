"""The journal's reader: exact ranges of what is durable, beside a running writer and without its lock.

The digest says what may be read. It is replaced only after the messages it covers are on disk, so whatever a reader finds in
it can be read for as long as the journal lives.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ..errors import JournalError
from .manifest import Extent, folder_name, read_digest, read_meta
from .segments import ROWS, Segment, identity, list_segments, read_index, read_segment, rows_of


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
        self.path = Path(path)
        meta = read_meta(self.path)
        if meta is None:
            raise JournalError(f"There is no journal at {self.path}: check the name, or start recording to it first.")
        self.group = meta.group

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
            if segment.first <= last:
                try:
                    pieces.append(Piece(segment.first, last, segment.path.stat().st_size, segment.sealed))
                except FileNotFoundError:  # sealed a moment ago
                    return self.segments(sender)
        return pieces

    def read(
        self, sender: str, first: int, last: int, schema: pa.Schema = ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The messages first..last (inclusive) of `sender`, in order, as batches of `schema`, a selection of ROWS' fields.

        The range is cut to what is durable; lost and void ranges yield nothing. Raises JournalError where a message that
        is durable cannot be read unharmed; what came before it has been yielded by then, and is right.
        """
        extent = self.extents().get(sender)
        if extent is None:
            return
        expected, last = max(first, extent.low), min(last, extent.high)
        listed = self._list(sender)
        seed = identity(self.group, sender)
        fresh = True
        while expected <= last:
            gap = next((end for start, end in (*extent.lost, *extent.void) if start <= expected <= end), None)
            if gap is not None:
                expected = gap + 1
                continue
            start = expected
            try:
                for stored in self._from(listed, expected, last, seed):
                    expected += stored.num_rows
                    yield rows_of(stored, schema, self.group, sender)
            except FileNotFoundError:  # the tail was sealed under our hands: its rows are in another file now
                pass
            except (OSError, pa.ArrowInvalid) as error:
                raise self._unreadable(sender, expected) from error
            if expected == start:
                if not fresh:
                    raise self._unreadable(sender, expected)
                listed = self._list(sender)
                fresh = False
            else:
                fresh = True

    def _from(self, listed: Sequence[Segment], first: int, last: int, seed: int) -> Iterator[pa.RecordBatch]:
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

    def _unreadable(self, sender: str, seqno: int) -> JournalError:
        return JournalError(
            f"{self.path / folder_name(sender)} cannot give message {seqno} of {sender}, which was durable (a file is missing, "
            "damaged, or not readable here): restore the folder from another copy."
        )
