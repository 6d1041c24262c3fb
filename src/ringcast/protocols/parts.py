"""PARTS: a control datagram that is larger than a frame travels as several datagrams
(parts), and is put together again.

Messages do not need this: a large message is cut before it has a seqno (frag.py). But
a view of 256 members, or the digest of what they have finished, is larger than a frame.
IP must not cut such a datagram: if one piece is lost, IP keeps the others for 30 s, and
may have no room for new datagrams meanwhile. If a part is lost, the whole datagram is
lost, as any datagram may be, and its sender will repeat it.

The whole datagram has a check of its own, so parts of different datagrams are never
taken for one. Memory is bounded: a few incomplete datagrams of each sender, and
MOST_BYTES of all; the oldest ones are given up for newer ones.
"""

import struct
from dataclasses import dataclass, field

from ringcast._core import wire
from ringcast.kinds import Kind, takes
from ringcast.stack import Instant, Layer, Packet
from ringcast.status import Layers, PartsStatus

HEAD = struct.Struct("<IHH")            # number of the datagram, index of the part, number of parts
MOST_PARTS = 256                        # of a datagram
MOST_OPEN = 4                           # incomplete datagrams of one sender
MOST_BYTES = 1 << 20
OVERHEAD = 512                          # bytes that a part takes, at most, besides what it carries

PART = Kind(19, "part", traced=False, outside=True)       # of what is said outside a view, too
VIEW_PART = Kind(42, "view_part", traced=False)           # of what only members may say


Key = tuple[int, int, int]              # kind, sender, number of the datagram


@dataclass(slots=True)
class Partial:
    """A datagram whose parts have not all come."""

    count: int
    parts: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.parts.values())) + OVERHEAD * len(self.parts)


class Parts(Layer):
    """The layer. `datagram` is the size of the largest datagram, in bytes."""

    def __init__(self, datagram: int) -> None:
        self.datagram = datagram
        self.room = datagram - wire.HEADER_SIZE - HEAD.size     # for what a part carries
        self.number = 0
        self.partials: dict[Key, Partial] = {}      # the oldest first
        self.size = 0                                       # bytes in all of them
        self.num_cut = self.num_joined = self.num_given_up = self.num_bad = 0

    def send(self, packets: list[Packet], now: Instant) -> None:
        for packet in packets:
            if len(packet.data) > self.datagram:
                packets = [part for each in packets for part in self._cut_packet(each)]
                break
        self.below.send(packets, now)

    def _cut_packet(self, packet: Packet) -> list[Packet]:
        """Return the parts of a packet, or the packet itself if it fits a frame."""
        if len(packet.data) <= self.datagram:
            return [packet]
        self.num_cut += 1
        self.number = (self.number + 1) % (1 << 32)
        starts = range(0, len(packet.data), self.room)
        bodies = [HEAD.pack(self.number, index, len(starts)) + packet.data[start:start + self.room]
                  for index, start in enumerate(starts)]
        part = PART if self.stack.kind(packet.kind).outside else VIEW_PART
        return [self.stack.datagram(part, body, packet.dest) for body in bodies]

    @takes(PART, VIEW_PART)
    def _on_part(self, packet: Packet, now: Instant) -> Packet | None:
        """Keep a part. Return the packet that it completes: that goes up in its place.
        None if others are missing."""
        body = bytes(packet.data[wire.HEADER_SIZE:])
        if len(body) <= HEAD.size:
            self.num_bad += 1
            return None
        number, index, count = HEAD.unpack_from(body)
        key = (packet.kind, packet.sender, number)
        partial = self.partials.get(key) or Partial(count)
        if not 2 <= count <= MOST_PARTS or index >= count or count != partial.count:
            self.num_bad += 1
            return None
        if index not in partial.parts:
            self._keep_part(key, partial, index, body[HEAD.size:])
        if key not in self.partials or len(partial.parts) < count:
            return None
        self._forget_partial(key)
        return self._open_packet(b"".join(partial.parts[part] for part in range(count)), packet)

    def _keep_part(self, key: Key, partial: Partial, index: int, part: bytes) -> None:
        """Keep a part. Give up the oldest datagrams if there is no room, at last its
        own."""
        if key not in self.partials:
            of_sender = [other for other in self.partials if other[1] == key[1]]
            if len(of_sender) >= MOST_OPEN:
                self._give_up_partial(of_sender[0])
        self.partials[key] = partial
        partial.parts[index] = part
        self.size += len(part) + OVERHEAD
        while self.size > MOST_BYTES:
            self._give_up_partial(next(iter(self.partials)))

    def _give_up_partial(self, key: Key) -> None:
        self.num_given_up += 1
        self._forget_partial(key)

    def _forget_partial(self, key: Key) -> None:
        self.size -= self.partials.pop(key).size

    def _open_packet(self, data: bytes, packet: Packet) -> Packet | None:
        """Return the packet that the parts make, if it is sound, of this sender, and of
        a kind that such parts may carry."""
        header = self.stack.open(data)
        ends = (packet.sender, packet.dest)
        if header is None or (header.sender, header.dest) != ends or (
                not self._may_carry(packet.kind, header.kind)):
            self.num_bad += 1
            return None
        self.num_joined += 1
        return Packet(header.kind, header.sender, header.dest, data)

    def _may_carry(self, part: int, number: int) -> bool:
        """Return whether such parts may carry a datagram of the kind with this number.
        Messages never come so: what is kept of them is counted in datagrams."""
        kind = self.stack.kind(number)
        return number not in (PART, VIEW_PART) and kind.measured == "control" and (
            kind.outside == (part == PART))

    def describe(self, status: Layers) -> None:
        status.parts = PartsStatus(
            num_datagrams_cut=self.num_cut, num_joined=self.num_joined,
            num_parts_given_up=self.num_given_up, num_bad_parts=self.num_bad)
