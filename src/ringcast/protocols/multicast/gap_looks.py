"""When a receiver looks for gaps, and what it asks for (decision 9).

While something may be missing, it looks some times in an xmit_interval. Each look asks
for the gaps that are due (Gaps), with an XMIT-REQ to their sender. The end of a stream
that was only announced, by HIGHEST, STABILITY or a view, becomes a gap when it does not
come (Tail).
"""

from typing import TYPE_CHECKING

import msgspec

from ringcast.kinds import Kind
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.retransmission import MANY_GAPS, Ranges, Tail, requests
from ringcast.protocols.seqnos import Range, Seqno, count, later
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast


class XmitReq(msgspec.Struct, array_like=True):
    ranges: Ranges                      # missing, inclusive, oldest first


XMIT_REQ = Kind(6, "xmit_req", XmitReq, about="ranges")  # what I miss


class GapLooks:
    """The looks of one layer."""

    def __init__(self, layer: "Multicast") -> None:
        self.layer = layer
        self.is_gapped = False                          # something may be missing
        self.next: Instant | None = None                # when to look
        self.tails: dict[int, Tail] = {}                # of streams, that may wait in the socket
        self.num_emptied = 0                            # how often that was empty, at the last look

    def expect(self, sender: int, seqno: Seqno) -> None:
        """Note that a sender of the view has sent everything up to a seqno. Look
        whether it comes."""
        if not self.layer.retransmits:
            self.layer.windows[sender].ring.announce(seqno)
            return
        tail = self.tails.setdefault(sender, Tail(seqno))
        tail.seqno, self.is_gapped = later(tail.seqno, seqno), True

    def watch(self, now: Instant) -> None:
        """Begin to look for gaps if there may be any."""
        if self.is_gapped and self.next is None and self.layer.retransmits:
            self.look(now)

    def look(self, now: Instant) -> None:
        """Ask for what is missing, and look again while anything is: less often if that
        is much, because a look costs as much time as there are gaps."""
        layer = self.layer
        self._look_for_tails()
        self.next, self.is_gapped, num_gaps = None, bool(self.tails), 0
        for sender, window in layer.windows.items():
            if window.ring.num_missing or window.gaps.asked:
                self.ask(sender, window, now)
                self.is_gapped = True
                num_gaps += len(window.gaps.asked)
        if self.is_gapped:
            steps = min(1 + num_gaps // MANY_GAPS, layer.looks)
            self.next = now + layer.pause * steps // layer.looks

    def _look_for_tails(self) -> None:
        """See what has come of the ends of streams that were announced."""
        num_emptied = self.layer.stack.num_emptied
        was_emptied, self.num_emptied = num_emptied != self.num_emptied, num_emptied
        for sender, tail in list(self.tails.items()):
            window = self.layer.windows.get(sender)
            if window is None or tail.is_over(window.ring, window.gaps, was_emptied):
                del self.tails[sender]

    def ask(self, sender: int, window: ReceiveWindow, now: Instant) -> None:
        """Send the sender an XMIT-REQ for what is missing. An observer asks only while
        its application waits for messages."""
        layer = self.layer
        if layer.observing is not None and not layer.observing.is_hungry:
            return
        missing = window.gaps.scan(window.ring)
        for ranges in requests(missing, layer.config.max_datagram):
            layer.counters.num_missing_asked += count(ranges)
            self.request(sender, ranges, now)

    def request(self, sender: int, ranges: list[Range], now: Instant) -> None:
        """Send an XMIT-REQ."""
        self.layer.counters.xmit_reqs_sent += 1
        self.layer.send_control(XMIT_REQ, XmitReq(ranges), sender, now)
