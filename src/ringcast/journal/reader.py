"""The journal's reader: exact ranges of what is durable, beside a running writer and
without its lock.

The digest says what may be read. It is replaced only after the messages it covers are
on disk, and raised before any are purged, so whatever a reader finds in it can be read
until a later digest says otherwise.
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

EVERY = 2**63 - 1

Span = tuple[int, int | None]  # the first and last seqno of a segment; no last one of the open one


class PurgedError(JournalError):
    """A message that was asked for strictly has been purged."""


class Piece(NamedTuple):
    """A segment as a reader sees it: the durable seqnos in it (inclusive) and the size
    of its file in bytes."""

    first: int
    last: int
    size: int
    sealed: bool


class JournalReader:
    """Reads a journal directory; any number of processes may, at any time.

    Holds no files open and keeps nothing in memory: every call looks at the directory
    anew. Raises JournalError if there is no journal, or it is damaged or of another
    version.
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

    def segments(self, sender: str, first: int = 0, last: int = EVERY) -> list[Piece]:
        """The segments that hold durable messages of `sender`, or those of first..last
        (inclusive), in order; empty for a sender that is not in the digest."""
        extent = self.extents().get(sender)
        if extent is None:
            return []
        first, last = max(first, extent.low), min(last, extent.high)
        found = look_up(self.path / folder_name(sender), identity(self.group, sender), first, last)
        try:
            pieces = self._pieces(sender, extent, found or (), first, last)
            if _covered(pieces, extent, first, last):
                return pieces
        except FileNotFoundError:  # the tail was sealed, and a damaged log does not say so
            pass
        try:
            return self._pieces(sender, extent, map(logged, self._list(sender)), first, last)
        except FileNotFoundError:  # sealed or purged a moment ago
            return self.segments(sender, first, last)

    def _pieces(self, sender: str, extent: Extent, entries: Iterable[Logged], first: int,
                last: int) -> list[Piece]:
        """What of these segments has durable messages of first..last."""
        pieces = []
        for entry in entries:
            end = entry.last or extent.high
            if entry.first <= min(end, last) and end >= first:
                nbytes = entry.nbytes if entry.last else self._tail_bytes(sender, entry.first)
                pieces.append(Piece(entry.first, end, nbytes, bool(entry.last)))
        return pieces

    def spans(self, sender: str, first: int, last: int) -> list[Span]:
        """Return the first and last seqnos of the segments that may hold some of
        first..last (inclusive); no last one for the open segment."""
        return [(segment.first, segment.last) for segment in self._find(sender, first, last)]

    def entries(self, sender: str, first: int, last: int) -> list[Entry]:
        """What the indexes say of the messages first..last (inclusive) of `sender`: no
        segment is opened."""
        seed = identity(self.group, sender)
        return [entry for segment in self._find(sender, first, last)
                if segment.first <= last and (segment.last is None or segment.last >= first)
                for entry in read_index(segment, seed) if entry.first <= last
                and entry.last >= first]

    def read(self, sender: str, first: int, last: int, schema: pa.Schema = ROWS) -> Iterator[
            pa.RecordBatch]:
        """The messages first..last (inclusive) of `sender`, in order, as batches of
        `schema`, a selection of the fields of WITH_HEADERS.

        The range is cut to what is durable; lost ranges, and what is purged meanwhile,
        yield nothing. Raises JournalError where a message that is durable cannot be
        read unharmed; what came before it has been yielded by then, and is right.
        """
        extent = self.extents().get(sender)
        if extent is None:
            return
        rows = self.rows(sender, schema)
        for start, end in extent.held():
            expected, end = max(start, first), min(end, last)
            while expected <= end:
                try:
                    for behind, stored in self.stored(sender, expected, end,
                                                      payloads="payload" in schema.names):
                        expected = behind
                        if stored.num_rows:
                            yield rows(stored)
                    break
                except PurgedError:
                    expected = max(expected, self.extents()[sender].low)

    def rows(self, sender: str, schema: pa.Schema) -> Rows:
        """What makes rows of `schema` from what `stored` gives."""
        return Rows(schema, self.group, sender, {"recorder": self.recorder,
                                                 "journal": self.path.name})

    def stored(self, sender: str, first: int, last: int, spans: Sequence[Span] = (), *,
               payloads: bool = True) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The stored messages first..last (inclusive), all of them in one held range,
        each batch with the seqno behind it; without that column, unless `payloads`.
        `spans` are the segments that had them a while ago, if that is known.

        Raises PurgedError when they are purged meanwhile, JournalError when they cannot
        be read unharmed.
        """
        seed, folder = identity(self.group, sender), self.path / folder_name(sender)
        listed = [segment_of(folder, *span) for span in spans] or self._find(sender, first, last)
        expected, looks = first, 0
        while expected <= last:
            start = expected
            try:
                for begun, end, stored in self._from(listed, expected, last, seed, payloads):
                    if begun != expected:
                        break
                    expected = end + 1
                    yield expected, stored
            except FileNotFoundError:  # the tail was sealed under our hands: its rows are in
                                       # another file now
                pass
            except (OSError, pa.ArrowInvalid) as error:
                raise self._unreadable(sender, expected) from error
            # The log knows a segment that was sealed meanwhile; the directory knows
            # all.
            if expected > start:
                looks = 0
            elif looks == 2:
                raise self._missing(sender, expected)
            else:
                listed = self._list(sender) if looks else self._find(sender, expected, last)
                looks += 1

    def _from(self, listed: Sequence[Segment], first: int, last: int, seed: int,
              payloads: bool) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The stored rows from `first` on in the one listed segment that may hold
        it."""
        segment = next((segment for segment in reversed(listed) if segment.first <= first), None)
        if segment is not None:
            yield from read_segment(segment, read_index(segment, seed), first, last,
                                    payloads=payloads)

    def _find(self, sender: str, first: int, last: int) -> list[Segment]:
        """The segments that may hold some of first..last (inclusive), as the log says,
        or all."""
        folder = self.path / folder_name(sender)
        found = look_up(folder, identity(self.group, sender), first, last)
        return self._list(sender) if found is None else [segment_of(folder, entry.first, entry.last)
                                                         for entry in found]

    def _list(self, sender: str) -> list[Segment]:
        """The segment files of a sender; none if its folder is gone, which `read`
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
        """Why a message that was there is not: purged, which the digest says before it
        happens, or gone."""
        extent = self.extents().get(sender)
        if extent is not None and seqno < extent.low:
            return PurgedError(f"message {seqno} of {sender} was purged from {self.path} while it was read")
        return self._unreadable(sender, seqno)

    def _unreadable(self, sender: str, seqno: int) -> JournalError:
        return JournalError(
            f"{self.path / folder_name(sender)} cannot give message {seqno} of {sender}, which was "
            f"durable (a file is missing, "
            "damaged, or not readable here): restore the folder from another copy."
        )


def _covered(pieces: Sequence[Piece], extent: Extent, first: int, last: int) -> bool:
    """Whether the pieces, ascending, have all that is held of first..last."""
    for begin, end in extent.held():
        expected = max(begin, first)
        for piece in pieces:
            if piece.first <= expected <= piece.last:
                expected = piece.last + 1
        if expected <= min(end, last):
            return False
    return True
