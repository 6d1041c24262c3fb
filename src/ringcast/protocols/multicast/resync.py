"""RESYNC: what a receiver says when messages may be missing that nobody repeats on
request (decision 21).

A lossless transport loses datagrams only when a connection breaks. Over the new
connection the receiver says up to where it has everything, and the sender sends all
that follows. The same mends a gap that stands for gap_timeout where nothing asks for
it: that should not happen, so it is logged as a warning too.

Where a stream begins, its receiver does not know whether it misses anything. What was
sent before there was a connection, and what its queue dropped, leaves no gap if nothing
follows. But what is on its way is not lost, and must not be sent twice. So the receiver
only asks (`asks`), and the sender says by HIGHEST what it has sent; also unasked, in
case that the question came before it had the view. Over a connection HIGHEST comes
behind everything else. What is missing then is lost, and RESYNC is sent.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ringcast._core import wire
from ringcast.config import nanoseconds
from ringcast.kinds import Kind
from ringcast.protocols.multicast.announcing import HIGHEST
from ringcast.protocols.multicast.base import REPEAT
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.retransmission import Backoff
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.multicast.nakack2 import Nakack2

UNLIMITED = 1 << 62                     # bytes: counted and never refused
PAUSE = nanoseconds(20.0)              # between two answers to one member over one connection


class Resync(msgspec.Struct, array_like=True):
    seqno: Seqno                        # everything up to here has been received
    asks: bool = False                  # nothing is known to be missing: say what was sent


RESYNC = Kind(16, "resync", Resync, about="seqno", traced=False)    # what I have of yours


class Resyncs:
    """Both sides of RESYNC: our own to senders, and the answers to those of members."""

    def __init__(self, layer: "Nakack2") -> None:
        self.layer = layer
        self.awaited: set[int] = set()              # senders that we asked for what we dropped
        self.wanted: dict[int, Seqno] = {}          # members that want everything after a seqno
        self.answered: dict[int, Instant] = {}      # when such a member was answered last
        self.stalled: dict[int, Backoff] = {}       # windows that wait without retransmission
        self.begun = set[int]()                     # senders that we asked what they have sent

    def members(self) -> set[int]:
        """Return the incarnations of which anything is kept."""
        return (self.wanted.keys() | self.answered.keys() | self.stalled.keys() | self.awaited
                | self.begun)

    def forget(self, member: int) -> None:
        """Forget a member that left."""
        self.awaited.discard(member)
        self.begun.discard(member)
        for table in (self.wanted, self.answered, self.stalled):
            table.pop(member, None)

    # -------------------------------------------------------------------------------- as a receiver

    def send(self, sender: int, window: ReceiveWindow, now: Instant, asks: bool = False) -> None:
        """Tell a sender up to where we have everything."""
        self.layer.counters.resyncs_sent += 1
        self.layer.send_control(RESYNC, Resync(window.come_up_to, asks), sender, now)

    def begin(self, member: int, window: ReceiveWindow | None, now: Instant) -> None:
        """Our stream and that of another member begin for each other. Ask it what it
        has sent, and say what we have: of the two, one may not know the other yet."""
        self.tell(member, self.layer.send_window.ring.low, now)
        if window is not None:
            self.begun.add(member)
            self.send(member, window, now, asks=True)

    def hear(self, sender: int, highest: Seqno, now: Instant) -> None:
        """On reception of HIGHEST of a sender that we asked, behind all that was on its
        way: have what is missing sent again, where nothing else asks for it."""
        self.begun.discard(sender)
        window = self.layer.windows[sender]
        if not self.layer.retransmits and precedes(window.come_up_to, highest):
            self.send(sender, window, now)

    def drop(self, window: ReceiveWindow, now: Instant) -> None:
        """Have a datagram that was dropped sent again, behind what is missing. Another
        RESYNC may be under way, but perhaps it has no answer: it may be older."""
        self.layer.counters.num_dropped_for_resync += 1
        sender = window.stream.sender.incarnation
        if sender not in self.awaited:
            self.awaited.add(sender)
            self.send(sender, window, now)

    def watch(self, sender: int, window: ReceiveWindow, now: Instant) -> None:
        """Without retransmission: report a gap that stands for gap_timeout, and have it
        mended."""
        if not window.ring.num_missing:
            self.stalled.pop(sender, None)
            return
        if self.stalled.setdefault(sender, Backoff(self._patience)).stalls(window.ring.hd):
            self.layer.counters.num_gaps += 1
            first, last = window.ring.missing(1)[0]
            self.layer.stack.effects.warnings.append(
                f"messages {first} to {last} of {window.stream.sender} did not come, though "
                "nothing should be lost; they are asked for now. If this happens again, set "
                "xmit_interval to more than 0")
            self.send(sender, window, now)

    @property
    def _patience(self) -> int:
        """Return how many scans of gap_timeout follow the one that finds a gap."""
        timeout = nanoseconds(self.layer.config.gap_timeout)
        return max(1, math.ceil(timeout / self.layer.scan_pause) - 1)

    # ---------------------------------------------------------------------------------- as a sender

    def tell(self, member: int, seqno: Seqno, now: Instant) -> None:
        """Say what we have sent to a member that has everything up to a seqno, if that
        is not all."""
        if precedes(seqno, self.layer.send_window.sent):
            highest = self.layer.announcing.highest(self.layer.view_id)
            self.layer.send_control(HIGHEST, highest, member, now)

    def want(self, member: int, seqno: Seqno) -> None:
        """Note that a member lacks, or may lack, what follows a seqno."""
        self.wanted[member] = seqno

    def answer(self, now: Instant) -> None:
        """Send all that follows what members have. One connection gets an answer no
        more often than every PAUSE, so that nobody can make us send without end."""
        for member, have in self._take_due(now):
            window = self.layer.send_window
            low = window.ring.low
            first = ((have if precedes(low, have) else low) + 1) % MODULUS
            if precedes(window.sent, first):
                continue
            header = self.layer.stack.header(REPEAT, member)
            ranges = [(first, window.sent)]
            datagrams, messages = wire.pack(window.ring, window.marks, window.stamps, ranges,
                                            window.bundle, header, UNLIMITED)
            self.layer.counters.xmit_rsps_sent += messages
            self.layer.send_datagrams(REPEAT, member, datagrams, now)

    def _take_due(self, now: Instant) -> Iterator[tuple[int, Seqno]]:
        """Yield the members that may be answered now, and what they have."""
        for member in list(self.wanted):
            if now - self.answered.get(member, -PAUSE) >= PAUSE:
                self.answered[member] = now
                yield member, self.wanted.pop(member)

    def linked(self, member: int, now: Instant) -> None:
        """There is a new connection: say what we have of the member's stream."""
        self.answered.pop(member, None)
        window = self.layer.windows.get(member)
        if window is not None:
            self.send(member, window, now)
