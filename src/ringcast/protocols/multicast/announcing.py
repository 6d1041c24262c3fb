"""HIGHEST: a sender announces its highest seqno, so that a lost tail shows as a gap
(decision 8). It also says LOW, so that receivers free what they keep for others
(retention.py).

It is repeated while messages are kept for others, with a backoff while nothing changes.
"""

from typing import TYPE_CHECKING

import msgspec

from ringcast.address import EVERYONE
from ringcast.kinds import Kind
from ringcast.protocols.multicast.observing import REPEATS
from ringcast.protocols.retransmission import Backoff
from ringcast.protocols.seqnos import Seqno
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast


class Highest(msgspec.Struct, array_like=True):
    seqno: Seqno                        # highest sent
    low: Seqno                          # all members have finished everything up to here ...
    view_id: int                        # ... all of this view; 0: say what you have finished


HIGHEST = Kind(7, "highest", Highest, about="seqno", traced=False)  # what I have sent


class Announcing:
    """Announces the messages of one layer."""

    def __init__(self, layer: "Multicast") -> None:
        self.layer = layer
        self.backoff = Backoff()
        self.told_low = layer.send_window.ring.low      # in the last HIGHEST to all
        self.freed = 0                                  # bytes of our messages, since then

    def announce(self, now: Instant) -> None:
        """Repeat HIGHEST for those who may not have got it, with a backoff while
        nothing changes. In a large group the next message tells it, if there is one."""
        layer, window = self.layer, self.layer.send_window
        is_due = self.backoff.stalls if layer.is_large else self.backoff.scan
        if is_due((window.sent, window.ring.low, layer.view_id)) and (
                layer.has_unacked() or layer.owes_low() or self.owes_observers()):
            self.tell(now)

    def tell(self, now: Instant) -> None:
        """Send HIGHEST to all."""
        self.told_low, self.freed = self.layer.send_window.ring.low, 0
        self.layer.send_control(HIGHEST, self.highest(self.layer.view_id), EVERYONE, now)

    def highest(self, view_id: int) -> Highest:
        """Return what HIGHEST says now of a view."""
        window = self.layer.send_window
        return Highest(window.sent, window.ring.low, view_id)

    def owes_observers(self) -> bool:
        """Return whether HIGHEST is still repeated for observers, which do not
        answer."""
        layer = self.layer
        return bool(layer.observers) and layer.retransmits and self.backoff.scans < REPEATS
