"""Retention: how long a journal keeps messages, by age, by size, and by what streams
have committed.

Limits (age, size) say what should be removed; subscriptions say what may be removed. A
sealed segment is removed if every named subscription has committed all of it and, if
there are limits, it exceeds one of them. So nothing that a named stream still needs is
removed, even if the journal is larger than its limit. A stream that is not named keeps
nothing from being removed.

The open segment of each sender stays, however old it is, until all of it may be
removed. A limit by size never removes it: a recorder seals small segments if that limit
is small (`segment_bytes`).
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringcast.errors import ConfigError
from ringcast.journal.offsets import Offset
from ringcast.journal.reader import JournalReader
from ringcast.journal.subscriptions import subscription_name, subscriptions
from ringcast.journal.writer import NS_PER_US, SEGMENT_BYTES, Journal

SEGMENT_BYTES_MIN = 64 << 10


@dataclass(frozen=True)
class Retention:
    """What a journal keeps: messages for `keep_ns` nanoseconds after their delivery, up
    to `keep_bytes` of files, and everything that one of `subscriptions` has not
    committed. None: no limit. Raises ConfigError for a limit that is not positive."""

    keep_ns: int | None = None
    keep_bytes: int | None = None
    subscriptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for limit in (self.keep_ns, self.keep_bytes):
            if limit is not None and limit <= 0:
                raise ConfigError(f"a limit of {limit} would keep nothing: give a positive one, "
                                  "or none.")
        for name in self.subscriptions:
            subscription_name(name)

    @property
    def keeps_everything(self) -> bool:
        """Return whether there is nothing to enforce."""
        return self.keep_ns is None and self.keep_bytes is None and not self.subscriptions

    @property
    def segment_bytes(self) -> int:
        """Return the size of segments for a journal that keeps `keep_bytes`: an eighth
        of it, so that most of the limit is messages that stay."""
        if self.keep_bytes is None:
            return SEGMENT_BYTES
        return min(SEGMENT_BYTES, max(SEGMENT_BYTES_MIN, self.keep_bytes // 8))

    def enforce(self, journal: Journal, *, now: int | None = None,
                committed: Sequence[Offset] = ()) -> int:
        """Remove from `journal` what need not be kept at `now` (nanoseconds since 1970;
        default: the current time), and return how many bytes that freed. `committed`
        are further digests that allow removal, for example from checkpoints."""
        if self.keeps_everything and not committed:
            return 0
        journal.sync()
        known = subscriptions(journal.path)
        digests = [*committed, *(known[name].digest if name in known else {}
                                 for name in self.subscriptions)]
        bounds: dict[str, int] = {}
        total, pieces = _pieces(JournalReader(journal.path))
        now = time.time_ns() if now is None else now
        horizon = None if self.keep_ns is None else now - self.keep_ns
        for piece in pieces:
            is_due = self.keep_bytes is None and horizon is None
            is_due |= horizon is not None and piece.delivered_to * NS_PER_US < horizon
            is_due |= self.keep_bytes is not None and total > self.keep_bytes and piece.sealed
            if not is_due or any(digest.get(piece.sender, 0) < piece.last for digest in digests):
                continue
            if piece.first_of_sender or bounds.get(piece.sender, 0) == piece.before:
                bounds[piece.sender] = piece.last
                total -= piece.size
        return journal.purge(bounds)


class _Piece(NamedTuple):
    sender: str
    last: int
    before: int             # the last seqno of the segment before it
    first_of_sender: bool
    delivered_to: int       # microseconds; not earlier than that of the segment before it
    size: int
    sealed: bool


def _pieces(journal: JournalReader) -> tuple[int, list[_Piece]]:
    """Return the size of all segments, and the segments, oldest first."""
    total = 0
    pieces: list[_Piece] = []
    for sender in journal.extents():
        before: _Piece | None = None
        for segment in journal.segments(sender):
            entries = journal.entries(sender, segment.first, segment.last)
            # A segment whose index cannot be read is kept.
            newest = max((entry.delivered_to for entry in entries), default=sys.maxsize)
            if before is None:
                before = _Piece(sender, segment.last, 0, True, newest, segment.size,
                                segment.sealed)
            else:
                before = _Piece(sender, segment.last, before.last, False,
                                max(newest, before.delivered_to), segment.size, segment.sealed)
            total += segment.size
            pieces.append(before)
    return total, sorted(pieces, key=lambda piece: piece.delivered_to)
