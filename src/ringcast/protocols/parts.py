"""PARTS: control datagrams that do not fit a frame travel in several datagrams, and are
put together again.

Messages never need it: what fits no datagram is cut before it has a seqno (frag.py).
But a table of 256 members, or what all of them have finished, is larger than a frame,
and must not be left to IP, which keeps the pieces of a datagram that lost one for 30 s,
and then takes no others. A datagram whose parts do not all come is lost, as any
datagram may be: whoever sent it will say it again.

What is put together keeps the check of the whole, so parts of different datagrams
cannot be taken for one. Memory is bounded: of each sender a few datagrams are put
together at a time, and of all of them together MOST_BYTES; then the oldest gives way.
"""

import struct
from dataclasses import dataclass, field

from ringcast._core import wire
from ringcast.kinds import Kind, takes
from ringcast.stack import Instant, Layer, Packet

HEAD = struct.Struct("<IHH")            # number of the datagram, index of the part, number of parts
MOST_PARTS = 256                        # of a datagram
MOST_OPEN = 4                           # datagrams of one sender that are put together at a time
MOST_BYTES = 1 << 20

PART = Kind(19, "part", traced=False)


@dataclass(slots=True)
class Puzzle:
    """A datagram of which not all parts are here."""

    count: int
    parts: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.parts.values()))


class Parts(Layer):
    """The layer. `datagram` is the size of the largest datagram, in bytes."""

    def __init__(self, datagram: int) -> None:
        self.datagram = datagram
        self.room = datagram - wire.HEADER_SIZE - HEAD.size     # for what a part carries
        self.number = 0
        self.puzzles: dict[tuple[int, int], Puzzle] = {}  # by sender and number, the oldest first
        self.size = 0                                     # bytes in all of them
        self.num_cut = self.num_joined = self.num_given_up = self.num_bad = 0

    def send(self, packets: list[Packet], now: Instant) -> None:
        if max(map(len_of, packets), default=0) > self.datagram:
            packets = [part for packet in packets for part in self._cut(packet)]
        self.below.send(packets, now)

    def _cut(self, packet: Packet) -> list[Packet]:
        if len(packet.data) <= self.datagram:
            return [packet]
        self.num_cut += 1
        self.number = (self.number + 1) % (1 << 32)
        starts = range(0, len(packet.data), self.room)
        bodies = [HEAD.pack(self.number, index, len(starts)) + packet.data[start:start + self.room]
                  for index, start in enumerate(starts)]
        return [Packet(PART, packet.sender, packet.dest,
                       wire.make_datagram(PART, self.stack.group, packet.sender, packet.dest, body))
                for body in bodies]

    @takes(PART)
    def _join(self, packet: Packet, now: Instant) -> Packet | None:
        """Return the packet that this part completes, if it does: it goes up in the
        place of the part."""
        body = bytes(packet.data[wire.HEADER_SIZE:])
        if len(body) <= HEAD.size:
            self.num_bad += 1
            return None
        number, index, count = HEAD.unpack_from(body)
        key = (packet.sender, number)
        puzzle = self.puzzles.get(key) or Puzzle(count)
        if not 2 <= count <= MOST_PARTS or index >= count or count != puzzle.count:
            self.num_bad += 1
            return None
        if index not in puzzle.parts:
            self._add(key, puzzle, index, body[HEAD.size:])
        if len(puzzle.parts) < count:
            return None
        self._forget(key)
        return self._opened(b"".join(puzzle.parts[part] for part in range(count)), packet)

    def _add(self, key: tuple[int, int], puzzle: Puzzle, index: int, part: bytes) -> None:
        if key not in self.puzzles:
            of_sender = [other for other in self.puzzles if other[0] == key[0]]
            if len(of_sender) >= MOST_OPEN:
                self._give_up(of_sender[0])
        self.puzzles[key] = puzzle
        puzzle.parts[index] = part
        self.size += len(part)
        while self.size > MOST_BYTES and next(iter(self.puzzles)) != key:
            self._give_up(next(iter(self.puzzles)))

    def _give_up(self, key: tuple[int, int]) -> None:
        self.num_given_up += 1
        self._forget(key)

    def _forget(self, key: tuple[int, int]) -> None:
        self.size -= self.puzzles.pop(key).size

    def _opened(self, data: bytes, packet: Packet) -> Packet | None:
        """Return what the parts are of, when they are of one sound datagram of this
        sender's."""
        header = wire.open_datagram(data, self.stack.group)
        if header is None or header.kind == PART or (header.sender, header.dest) != (packet.sender,
                                                                                     packet.dest):
            self.num_bad += 1
            return None
        self.num_joined += 1
        return Packet(header.kind, header.sender, header.dest, data)

    def status(self) -> dict[str, int]:
        return {"num_datagrams_cut": self.num_cut, "num_joined": self.num_joined,
                "num_parts_given_up": self.num_given_up,
                "num_bad_parts": self.num_bad}


def len_of(packet: Packet) -> int:
    return len(packet.data)
