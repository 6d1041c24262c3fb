"""How a datagram gets into its window when nobody repeats what is missing.

Over a lossless transport a window without retransmission holds any number of bytes as
far as its structure goes; the limits are here, because a datagram must find room as a
whole. All members have the same limits, so a sender never sends what has no room
(retention.py). If one does, the datagram is dropped, and a RESYNC has it sent again:
it must not be held, because the room may come only with what follows it.
"""

from typing import TYPE_CHECKING

from ringcast._core import wire
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.stack import Instant, Packet

if TYPE_CHECKING:
    from ringcast.protocols.multicast.nakack2 import Nakack2

ROOM = 2                                # times max_bytes that a window holds as a rule
MOST_ROOM = 8                           # and when only what its sender repeats brings it on


class Intake:
    """Puts datagrams into their windows."""

    def __init__(self, layer: "Nakack2") -> None:
        self.layer = layer

    def take(self, window: ReceiveWindow, packet: Packet, now: Instant) -> None:
        """Add a datagram to its window, or drop it and ask for it again."""
        layer = self.layer
        if layer.lossless and not self._has_room(window, packet):
            layer.resyncs.drop(1, window, now)
            return
        arrivals = wire.read_data(packet.data, window.ring.low, window.ring.capacity)
        if arrivals is None:
            layer.counters.num_bad += 1
            return
        layer.add(window, packet, arrivals, now)
        if layer.lossless and arrivals.beyond:
            layer.resyncs.drop(1, window, now)

    def _has_room(self, window: ReceiveWindow, packet: Packet) -> bool:
        """Return whether a window takes a datagram. It takes more than as a rule while
        the application has nothing to do, because then only what its sender repeats
        brings it on; and it takes what comes next in order, whatever its size."""
        ring, limit = window.ring, self.layer.config.max_bytes
        nbytes = ring.nbytes + len(packet.data)
        if not ring.nbytes or nbytes <= ROOM * limit:
            return True
        if window.stream.outstanding or window.has_next:
            return False
        first = wire.first_seqno(packet.data)
        is_next = first is not None and not precedes((ring.hd + 1) % MODULUS, first)
        return is_next or nbytes <= MOST_ROOM * limit
