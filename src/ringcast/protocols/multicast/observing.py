"""An observer: a member for which nobody waits (decision 42).

Its senders free what all other members have finished. What an observer lacks then is
gone, because the network lost it, or because its application is slow and the window had
no room. So when the LOW that a sender tells has passed what the observer has in order,
it drops what it has before LOW and goes on behind: in a new window, with what it has
behind LOW already. Its application is given a Skipped in that place, before the next
message of the stream, and before the view that ends it.

LOW may overtake messages. So the observer waits as long as some come in order from scan
to scan, and then for PATIENCE scans. A single LOW may be forged, and a window never
goes back. So it believes the lower one of the last two. A sender tells LOW when it
rises, some times more while it rests, and when an observer asks for what is gone. All
of that may be lost while a link is down. So an observer asks a sender that rests, once
a second, for the seqno that would come next.

What waits for a slow application is bounded. While it has not finished a Skipped, it is
given no other one; those that follow become one with it.

Like all others it keeps what it was given until all have it (retention.py), and reports
it when the view changes. So it is never given a message of a dead sender that the
others are not. But its senders do not wait until it knows their LOW: so it has more
room. What it lacks of a dead sender it fetches. When all others have that, or nobody
holds it any more, it goes on behind the cut.

An observer is given OOB messages in their order: in a new window nothing would tell
which of them it was given before.
"""

from typing import TYPE_CHECKING

import msgspec

from ringcast._core import wire
from ringcast._core.batch import Skipped
from ringcast.protocols.latest import Latest
from ringcast.protocols.multicast.fetching import HELD
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.retransmission import Gaps
from ringcast.protocols.seqnos import MODULUS, Seqno, earlier, later, precedes
from ringcast.protocols.stream import Stream
from ringcast.stack import Instant

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ringcast.protocols.multicast.base import Multicast

OBSERVERS_ROOM = 4      # send windows that a receive window holds
PATIENCE = 3            # scans in which nothing comes in order
REPEATS = 64            # scans for which a sender that rests repeats HIGHEST to observers, rarely
QUESTION = 1_000_000_000    # nanoseconds between two questions to a sender that rests
MOST_UNTOLD = 1024      # streams of which the application was not told yet what it missed
UNLIMITED = 1 << 62     # bytes


class Observing:
    """What the observer of `layer` skips, and what its application was not told yet.
    `num_skipped` counts seqnos."""

    def __init__(self, layer: "Multicast") -> None:
        self.layer = layer
        self.config = msgspec.structs.replace(layer.config, oob_in_order=True)
        self.untold: Latest[Stream, tuple[Seqno, Seqno]] = Latest(MOST_UNTOLD)
        self.num_unfinished = 0         # Skipped that the application was given
        self.is_hungry = False          # it takes all that comes
        self.next_question: Instant = 0

    # ------------------------------------------------------------------------------------- skipping

    def follow(self, window: ReceiveWindow, low: Seqno) -> None:
        """Note the LOW that a sender tells."""
        window.gone = later(window.gone, earlier(low, window.said_low))
        window.said_low = low

    def is_behind(self, window: ReceiveWindow) -> bool:
        """Return whether something that we lack is gone."""
        return precedes(window.come_up_to, window.gone)

    def scan(self, now: Instant) -> None:
        """Go on behind what is gone, where nothing comes in order any more. While a
        view is being agreed on, nothing is skipped: the others count on our report. Nor
        is anything of a new member, before the view is settled: it may end at its
        cut."""
        flushing = self.layer.flushing
        if flushing.reported is not None:
            return
        for window in self.layer.windows.values():
            if window.stream in flushing.unsettled:
                continue
            window.standing.scan(window.come_up_to)
            if self.is_behind(window) and window.standing.scans >= PATIENCE:
                self._go_on(window, now)

    def ask_resting(self, now: Instant) -> None:
        """Ask each sender of which nothing has come since the last question for its
        next seqno. It answers only if it has sent that: with the message, or with LOW
        (Multicast._on_xmit_req)."""
        self.next_question = now + QUESTION
        for sender, window in self.layer.windows.items():
            hr, is_resting = window.ring.hr, window.ring.hr == window.seen
            window.seen = hr
            if is_resting and self.is_hungry and self.layer.retransmits:
                next_seqno = (hr + 1) % MODULUS
                self.layer.gap_looks.request(sender, [(next_seqno, next_seqno)], now)

    def _go_on(self, window: ReceiveWindow, now: Instant) -> None:
        rest = self._rest(window.stream, window.gone)
        self.skip(window, window.gone)
        if rest:
            ring = window.ring
            self.layer.add(window, HELD, wire.read_all(rest, ring.low, ring.capacity, ring.hr), now)

    def _rest(self, stream: Stream, low: Seqno) -> "list[Buffer]":
        """Return what came of a stream behind LOW, as datagrams."""
        if not precedes(low, stream.ring.hr):
            return []
        ranges = [((low + 1) % MODULUS, stream.ring.hr)]
        datagrams, _ = wire.pack(stream.ring, stream.marks, stream.stamps, ranges,
                                 self.layer.send_window.bundle, self.layer.stack.header(HELD),
                                 UNLIMITED)
        return [*datagrams]

    def skip(self, window: ReceiveWindow, to: Seqno) -> None:
        """Go on behind a seqno, in a new and empty window."""
        layer, old = self.layer, window.stream
        first, _ = self.untold.pop(old, ((old.whole + 1) % MODULUS, to))
        stream = layer.open_stream(old.sender, to)
        stream.is_resumed, stream.rests = old.is_resumed, []
        self.untold.remember(stream, (first, to))
        window.stream, window.gaps = stream, Gaps(to, layer.looks)
        layer.flushing.replace(old, stream)
        old.retire()
        if (begin := layer.flushing.skips.get(stream)) is not None:
            self.begin_behind(stream, begin)

    def begin_behind(self, stream: Stream, begin: Seqno) -> None:
        """Tell nothing of what comes before the place where a stream begins for our
        application."""
        if (untold := self.untold.pop(stream, None)) is not None and precedes(begin, untold[1]):
            self.untold.remember(stream, (later(untold[0], (begin + 1) % MODULUS), untold[1]))

    # -------------------------------------------------------------------------------------- telling

    def tell(self) -> bool:
        """Tell the application what it was not given, if it has finished what it was
        told before. Return whether more may be delivered now."""
        due = [stream for stream in self.untold if self.layer.flushing.has_begun(stream)]
        if not due or self.num_unfinished:
            return not due
        for stream in due:
            first, last = self.untold.pop(stream)
            self._tell(stream, first, last, len(self.layer.stack.effects.deliveries))
        return True

    def tell_rests(self, stream: Stream) -> None:
        """Tell, in their places of the deliveries, of the rests of large messages of
        which nothing is given, because their begin was skipped."""
        while stream.rests:
            self._tell(stream, *stream.rests.pop())

    def _tell(self, stream: Stream, first: Seqno, last: Seqno, place: int) -> None:
        skipped = Skipped(stream.sender, first, last, self.layer.flushing.view_id, stream)
        self.num_unfinished += 1
        self.layer.counters.num_skips += 1
        self.layer.counters.num_skipped += skipped.count
        self.layer.stack.effects.deliveries.insert(place, skipped)

    def has_told(self) -> None:
        """The application has finished a Skipped: it may be told more."""
        self.num_unfinished -= 1
        self.layer.stack.effects.arrived |= bool(self.untold)
