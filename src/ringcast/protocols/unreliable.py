"""NO_RELIABILITY: a message without a seqno, in a datagram of its own. It is delivered
when it arrives, or never, or twice; nobody keeps it or repeats it.

A message is dropped if the application has no room for it, or if its sender is not in
the view. The body of the datagram is the send time, in nanoseconds since 1970, and the
payload.
"""

import struct

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.flags import Flag
from ringcast.kinds import Kind, takes
from ringcast.stack import Instant, Layer, Packet
from ringcast.status import Layers, UnreliableStatus
from ringcast.view import View

STAMP = struct.Struct("<q")
MOST_WAITING = 1024                     # messages that arrive in one turn; more are dropped

UNRELIABLE = Kind(14, "unreliable", measured="data")    # one message without a seqno


class Unreliable(Layer):
    """The layer. A member that is not `receiving` drops what arrives."""

    def __init__(self, local: Address, *, receiving: bool = True) -> None:
        self.local = local
        self.receiving = receiving
        self.members: dict[int, Address] = {}
        self.view_id = 0
        self.arrived: list[Batch] = []
        self.num_sent = self.num_delivered = self.num_dropped = 0

    def send_one(self, payload: bytes, dest: Address | None, flags: int, now: Instant) -> None:
        """Send a message to `dest`, None being everybody; to ourselves without the
        network. The payload must fit a datagram."""
        self.num_sent += 1
        sent_at = STAMP.pack(now + self.stack.anchor)
        if dest != self.local:
            to = EVERYONE if dest is None else dest.incarnation
            self.below.send([self.stack.datagram(UNRELIABLE, sent_at + payload, to)], now)
        if dest in (None, self.local) and not flags & Flag.DONT_LOOPBACK:
            self._accept(self.local, sent_at + payload, dest)

    @takes(UNRELIABLE)
    def _on_message(self, packet: Packet, now: Instant) -> None:
        """Take a message of a member."""
        if packet.sender in self.members:
            dest = None if packet.dest == EVERYONE else self.local
            self._accept(self.members[packet.sender], bytes(packet.data[wire.HEADER_SIZE:]), dest)
        else:
            self.num_dropped += 1

    def _accept(self, sender: Address, body: bytes, dest: Address | None) -> None:
        """Keep a message until the end of the turn, if there is room."""
        if self.receiving and len(self.arrived) < MOST_WAITING and len(body) >= STAMP.size:
            payload, sent_at = body[STAMP.size:], body[:STAMP.size]
            self.arrived.append(Batch(sender, 0, [payload], self.view_id, dest, Flag.NO_RELIABILITY,
                                      sent_at=sent_at))
        else:
            self.num_dropped += 1

    def deliver(self, limit: int, now: Instant) -> int:
        """Hand over what has arrived in this turn; drop what the application has no
        room for."""
        if not self.arrived:
            return 0
        arrived, self.arrived = self.arrived, []
        handed = arrived[:max(0, limit)]
        self.stack.effects.deliveries += handed
        self.num_delivered += len(handed)
        self.num_dropped += len(arrived) - len(handed)
        return len(handed)

    def view(self, view: View, now: Instant) -> None:
        self.members = {member.incarnation: member for member in view.members}
        self.view_id = view.id
        self.above.view(view, now)

    def describe(self, status: Layers) -> None:
        status.unreliable = UnreliableStatus(
            unreliable_sent=self.num_sent, unreliable_delivered=self.num_delivered,
            unreliable_dropped=self.num_dropped)
