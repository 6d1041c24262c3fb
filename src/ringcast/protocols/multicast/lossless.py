"""When a datagram has room in its window although nobody repeats what is missing.

Over a lossless transport a window without retransmission holds any number of bytes as
far as its structure goes; the limits are here, because a datagram must find room as a
whole. All members have the same limits, so a sender never sends what has no room
(retention.py). If one does, the datagram is dropped, and a RESYNC has it sent again:
it must not be held, because the room may come only with what follows it.
"""

from ringcast._core import wire
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.stack import Packet

ROOM = 2                                # times max_bytes that a window holds as a rule
MOST_ROOM = 8                           # and when only what its sender repeats brings it on


def has_room(window: ReceiveWindow, packet: Packet, limit: int) -> bool:
    """Return whether a window takes a datagram, where senders have windows of `limit`
    bytes. It takes more than as a rule while the application has nothing to do, because
    then only what its sender repeats brings it on; what comes next in order may exceed
    that too, by itself."""
    ring = window.ring
    nbytes = ring.nbytes + len(packet.data)
    if not ring.nbytes or nbytes <= ROOM * limit:
        return True
    if not window.is_idle:
        return False
    first = wire.first_seqno(packet.data)
    is_next = first is not None and not precedes((ring.hd + 1) % MODULUS, first)
    return (ring.nbytes if is_next else nbytes) <= MOST_ROOM * limit
