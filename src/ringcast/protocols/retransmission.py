"""Negative acknowledgement: which gaps a receiver asks for and when, and what of it a sender sends again.

A gap is asked for when it was there at the look before already, because what is on its way is not lost (decision 9); and again only
when the repeats stopped coming, at doubling distances. What is asked for is clipped to what was sent and not yet purged, and repeats
are paced by the interval, so that no request costs more than it should (decision 24).
"""

from ringcast._core import wire
from ringcast._core.send_window import SendWindow
from ringcast._core.window import Window
from ringcast.protocols.seqnos import MODULUS, Range, Seqno, count, is_seqno, later, precedes
from ringcast.stack import Instant

MAX_RANGES = 2048                       # of one request, so that it fits one datagram whatever the seqnos
PATIENCE = 1                            # looks that a gap is given to be filled once it was asked for, twice as many each time
MAX_REPEATS = 5                         # doublings of that
LONGEST_SILENCE = 64                    # looks between two repeats of a thing while nothing changes


class Gaps:
    """What is missing in one receive window, from one look to the next."""

    __slots__ = ("asked", "awaited", "patience", "repeats", "seen")

    def __init__(self, offset: Seqno) -> None:
        self.seen = offset              # HR at the last look: only gaps up to here are asked for
        self.asked = offset             # gaps up to here were asked for
        self.awaited = 0                # how many messages up to `asked` were missing at the last look
        self.patience = 0               # looks without any of them coming, before all are asked for again
        self.repeats = 0                # how often all were asked for again since any came

    def look(self, ring: Window) -> list[Range]:
        """What to ask for now: gaps that were there at the last look, but not again those whose repeats are on the way."""
        ranges = ring.missing(MAX_RANGES, self.seen)
        missing = count(ranges)
        awaited = count(ring.missing(MAX_RANGES, self.asked))
        if not awaited or awaited < self.awaited:
            self.patience, self.repeats = PATIENCE, 0
        elif self.patience:
            self.patience -= 1
        else:
            self.repeats = min(self.repeats + 1, MAX_REPEATS)
            self.patience = PATIENCE << self.repeats
            awaited = 0
        if awaited:
            newer = (self.asked + 1) % MODULUS
            ranges = [(later(first, newer), last) for first, last in ranges if precedes(self.asked, last)]
        self.awaited, self.asked, self.seen = missing, self.seen, ring.hr
        return ranges


class Stillness:
    """Whether something is to be said again at this look: ever more rarely while nothing changes, because then somebody is slow or
    dead, not in need of hearing it again."""

    __slots__ = ("looks", "state")

    def __init__(self) -> None:
        self.looks = 0                  # since anything changed
        self.state: object = None

    def look(self, state: object) -> int:
        """Note the state; the number of looks since it changed."""
        self.looks = self.looks + 1 if state == self.state else 0
        self.state = state
        return self.looks

    @property
    def is_due(self) -> bool:
        return self.looks & (self.looks - 1) == 0 or self.looks % LONGEST_SILENCE == 0


def clipped(ranges: list[Range], low: Seqno, sent: Seqno) -> list[Range] | None:
    """What of a request can be repeated: what was sent and is not purged. None when the request makes no sense."""
    wanted = []
    for first, last in ranges[:MAX_RANGES]:
        if not is_seqno(first) or not is_seqno(last):
            return None
        if precedes(last, first):
            continue
        # Both are counted from low: serial arithmetic does not order three seqnos that lie all around the circle.
        start = (first - low) % MODULUS if precedes(low, first) else 1
        end = min((last - low) % MODULUS, (sent - low) % MODULUS) if precedes(low, last) else 0
        if start <= end:
            wanted.append(((low + start) % MODULUS, (low + end) % MODULUS))
    return wanted if len(ranges) <= MAX_RANGES else None


class Pace:
    """How many bytes may be repeated in one interval: what the receivers grant the window (no storm)."""

    __slots__ = ("since", "spent")

    def __init__(self) -> None:
        self.spent = 0
        self.since: Instant = 0

    def pack(self, window: SendWindow, wanted: list[Range], prefix: bytes, interval: int, now: Instant) -> tuple[list[bytes], int]:
        """Datagrams with messages of `wanted`, within what this interval allows; and how many messages those are."""
        if now - self.since >= interval:
            self.since, self.spent = now, 0
        budget = window.ring.max_bytes - self.spent
        datagrams, messages = wire.pack(window.ring, window.marks, window.stamps, wanted, window.bundle, prefix, budget)
        self.spent += sum(map(len, datagrams))
        return datagrams, messages
