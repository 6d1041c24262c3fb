"""The journal's reader: it reads exact ranges of durable messages, while a writer runs
and without its lock.

The digest says what may be read. It is replaced after the messages that it covers are
on disk, and before any message is purged. So whatever a reader finds in a digest can be
read until a later digest says otherwise.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from ringcast.errors import JournalError
from ringcast.journal.manifest import Extent, folder_name, read_digest, read_meta
from ringcast.journal.rows import ROWS, Rows
from ringcast.journal.segment_log import Logged, look_up
from ringcast.journal.segments import (
    SEQNO_MAX,
    Entry,
    Segment,
    identity,
    list_segments,
    logged,
    read_index,
    read_segment,
    segment_of,
)
from ringcast.paths import local_path

Span = tuple[int, int | None]   # the first and last seqno of a segment; None for the open one


class PurgedError(JournalError):
    """A message was purged while it was read."""


class Piece(NamedTuple):
    """A segment as a reader sees it: its durable seqnos (inclusive) and the size of its
    file in bytes."""

    first: int
    last: int
    size: int
    sealed: bool


class JournalReader:
    """Reads a journal directory. Any number of processes may read at any time.

    Keeps no files open and nothing in memory: every call reads the directory anew.
    Raises JournalError if there is no journal, or if it is damaged or of another
    version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        meta = read_meta(self.path)
        if meta is None:
            raise JournalError(f"There is no journal at {self.path}: check the name, or start "
                               "recording to it first.")
        self.group = meta.group
        self.recorder = meta.recorder

    def digest(self) -> dict[str, int]:
        """Return the highest durable seqno of every sender, by sender."""
        return {sender: extent.high for sender, extent in self.extents().items()}

    def extents(self) -> dict[str, Extent]:
        """Return the durable range of every sender with its lost ranges, by sender."""
        extents = read_digest(self.path)
        if extents is None:
            raise JournalError(f"{self.path} has lost its digest: open it once with Journal(), "
                               "which rebuilds it.")
        return extents

    def segments(self, sender: str, first: int = 0, last: int = SEQNO_MAX) -> list[Piece]:
        """Return the segments with durable messages first..last (inclusive) of
        `sender`, in order; none for a sender that is not in the digest."""
        extent = self.extents().get(sender)
        if extent is None:
            return []
        first, last = max(first, extent.low), min(last, extent.high)
        found = look_up(self.path / folder_name(sender), identity(self.group, sender), first, last)
        try:
            pieces = self._pieces(sender, extent, found or (), first, last)
            if _covered(pieces, extent, first, last):
                return pieces
        except FileNotFoundError:   # the tail was sealed, and the log is damaged and does not know
            pass
        try:
            return self._pieces(sender, extent, map(logged, self._list(sender)), first, last)
        except FileNotFoundError:   # sealed or purged a moment ago
            return self.segments(sender, first, last)

    def _pieces(self, sender: str, extent: Extent, entries: Iterable[Logged], first: int,
                last: int) -> list[Piece]:
        """Return those of these segments that have durable messages in first..last."""
        pieces = []
        for entry in entries:
            end = entry.last or extent.high
            if entry.first <= min(end, last) and end >= first:
                nbytes = entry.nbytes if entry.last else self._tail_bytes(sender, entry.first)
                pieces.append(Piece(entry.first, end, nbytes, bool(entry.last)))
        return pieces

    def spans(self, sender: str, first: int, last: int) -> list[Span]:
        """Return the first and last seqnos of the segments that may have messages of
        first..last (inclusive); None as the last one of the open segment."""
        return [(segment.first, segment.last) for segment in self._find(sender, first, last)]

    def entries(self, sender: str, first: int, last: int) -> list[Entry]:
        """Return the index entries of the messages first..last (inclusive) of `sender`;
        opens no segment."""
        seed = identity(self.group, sender)
        return [entry for segment in self._find(sender, first, last)
                if segment.first <= last and (segment.last is None or segment.last >= first)
                for entry in read_index(segment, seed)
                if entry.first <= last and entry.last >= first]

    def read(self, sender: str, first: int, last: int,
             schema: pa.Schema = ROWS) -> Iterator[pa.RecordBatch]:
        """Read the messages first..last (inclusive) of `sender`, in order, as batches
        of `schema`, a selection of the fields of WITH_HEADERS.

        The range is cut to what is durable. Lost ranges yield nothing, nor do messages
        that are purged meanwhile. Raises JournalError if a durable message cannot be
        read intact; all messages before it have been yielded by then.
        """
        extent = self.extents().get(sender)
        if extent is None:
            return
        rows = self.rows(sender, schema)
        for start, end in extent.held():
            expected, end = max(start, first), min(end, last)
            while expected <= end:
                try:
                    for next_seqno, stored in self.stored(sender, expected, end,
                                                          payloads="payload" in schema.names):
                        expected = next_seqno
                        if stored.num_rows:
                            yield rows(stored)
                    break
                except PurgedError:
                    expected = max(expected, self.extents()[sender].low)

    def rows(self, sender: str, schema: pa.Schema) -> Rows:
        """Return a converter from the batches of `stored` to rows of `schema`."""
        headers = {"recorder": self.recorder, "journal": self.path.name}
        return Rows(schema, self.group, sender, headers)

    def stored(self, sender: str, first: int, last: int, spans: Sequence[Span] = (), *,
               payloads: bool = True) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read the stored messages first..last (inclusive), which must be in one held
        range: each batch with the seqno after it. Without `payloads` that column is
        left out. `spans` are the segments that had the messages earlier, if known.

        Raises PurgedError if they are purged meanwhile, JournalError if they cannot be
        read intact.
        """
        seed, folder = identity(self.group, sender), self.path / folder_name(sender)
        listed = [segment_of(folder, *span) for span in spans] or self._find(sender, first, last)
        expected, attempts = first, 0
        while expected <= last:
            start = expected
            try:
                for begun, end, stored in self._from(listed, expected, last, seed, payloads):
                    if begun != expected:
                        break
                    expected = end + 1
                    yield expected, stored
            except FileNotFoundError:   # the tail was sealed meanwhile, into another file
                pass
            except (OSError, pa.ArrowInvalid) as error:
                raise self._unreadable(sender, expected) from error
            # Without progress, ask the log for segments that were sealed meanwhile, and
            # then list the directory.
            if expected > start:
                attempts = 0
            elif attempts == 2:
                raise self._missing(sender, expected)
            else:
                listed = self._list(sender) if attempts else self._find(sender, expected, last)
                attempts += 1

    def _from(self, listed: Sequence[Segment], first: int, last: int, seed: int,
              payloads: bool) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Read the stored rows from `first` on in the listed segment that may have
        it."""
        segment = next((segment for segment in reversed(listed) if segment.first <= first), None)
        if segment is not None:
            yield from read_segment(segment, read_index(segment, seed), first, last,
                                    payloads=payloads)

    def _find(self, sender: str, first: int, last: int) -> list[Segment]:
        """Return the segments that may have messages of first..last (inclusive): as the
        log says, or all if the log cannot tell."""
        folder = self.path / folder_name(sender)
        found = look_up(folder, identity(self.group, sender), first, last)
        if found is None:
            return self._list(sender)
        return [segment_of(folder, entry.first, entry.last) for entry in found]

    def _list(self, sender: str) -> list[Segment]:
        """List the segment files of a sender; none if its folder is gone, which `read`
        reports as a missing message."""
        try:
            return list_segments(self.path / folder_name(sender))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(sender, 1) from error

    def _tail_bytes(self, sender: str, first: int) -> int:
        return segment_of(self.path / folder_name(sender), first, None).path.stat().st_size

    def _missing(self, sender: str, seqno: int) -> JournalError:
        """Return the error for a durable message that is not there: purged, which the
        digest says before it happens, or missing."""
        extent = self.extents().get(sender)
        if extent is not None and seqno < extent.low:
            return PurgedError(f"message {seqno} of {sender} was purged from {self.path} while it "
                               "was read")
        return self._unreadable(sender, seqno)

    def _unreadable(self, sender: str, seqno: int) -> JournalError:
        return JournalError(f"{self.path / folder_name(sender)} cannot give message {seqno} of "
                            f"{sender}, which was durable (a file is missing, damaged, or not "
                            "readable here): restore the folder from another copy.")


def _covered(pieces: Sequence[Piece], extent: Extent, first: int, last: int) -> bool:
    """Return whether the pieces, ascending, have all held messages of first..last."""
    for begin, end in extent.held():
        expected = max(begin, first)
        for piece in pieces:
            if piece.first <= expected <= piece.last:
                expected = piece.last + 1
        if expected <= min(end, last):
            return False
    return True
