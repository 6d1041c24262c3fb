"""What a bad network does to datagrams on their way: each direction of each pair of
members is a link of its own.

Rates are probabilities from 0 to 1 for each datagram and each receiver of it; times are
nanoseconds. All is drawn from one random source in the order in which datagrams are
sent, so a seed does the same to the same datagrams.

With a bandwidth, each member has one way out and one way in, as behind a switch: a
datagram takes its bytes' time on either, and waits until those before it are through. A
multicast leaves once. With a `queue` so many bytes may wait for a way in, and what
comes beyond is lost; else the windows of the senders bound what waits.

With an MTU the wire carries frames. A datagram that does not fit one travels as several
fragments, each of which may be lost; what came of a datagram that lost one stays in its
receiver's memory for REASSEMBLY, and while that is full no other is put together there.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ringcast.config import MAX_DATAGRAM, UDP_HEADERS

Direction = tuple[str, str]     # of a pair of members: (from, to)
MS = 1_000_000
FRAGMENT_HEADER = 20                    # bytes of IPv4's in front of each fragment
REASSEMBLY = 30_000 * MS                # that the fragments of a datagram wait for the others


@dataclass(slots=True)
class Network:
    """Set any attribute at any time; it holds for what is sent from then on."""

    loss: float = 0.0
    burst: float = 0.0                      # begins a bad spell of the link, in which most is lost
    burst_length: float = 10.0              # datagrams that a bad spell takes, on average
    duplicate: float = 0.0
    reorder: float = 0.0                                      # held back for up to `late`, so that
                                                              # later ones overtake it
    corrupt: float = 0.0                                      # bits are flipped
    truncate: float = 0.0                                     # the end is cut off
    delay: tuple[int, int] = (50_000, 200_000)                # shortest, longest; what lies between
                                                              # is jitter
    late: int = 50 * MS                                       # longest extra delay of what is held
                                                              # back, and of second copies
    cut: set[Direction] = field(default_factory=set)               # links that nothing passes
    clogged: dict[Direction, int] = field(default_factory=dict)    # links that deliver nothing before
                                                              # this instant, then all of it
    discard: Callable[[str, str, bytes], bool] | None = None  # scripted loss: whether this datagram
                                                              # is to be lost
    bad: set[Direction] = field(default_factory=set)               # links in a bad spell
    mtu: int = 0                                              # bytes of a frame; 0: no limit
    memory: int = 4 << 20                                     # bytes of fragments that a receiver
                                                              # holds
    # of each: until when, and how many bytes
    held: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    queue: int = 0                                            # bytes that may wait for a member's
                                                              # way in; 0: no limit
    bandwidth: int = 0                                        # bytes a second on a member's way
                                                              # out, and on its way in; 0: no limit
    out_until: dict[str, int] = field(default_factory=dict)   # when a member's way out is free
                                                              # again
    in_until: dict[str, int] = field(default_factory=dict)    # and its way in

    num_lost: int = 0
    num_cut: int = 0
    num_duplicated: int = 0
    num_reordered: int = 0
    num_damaged: int = 0
    num_clogged: int = 0
    num_congested: int = 0  # lost because too much waited for a way in
    num_in_pieces: int = 0  # datagrams that lost some of their fragments, or found no room for them

    @property
    def largest(self) -> int:
        """The bytes of a datagram that fits a frame."""
        return min(MAX_DATAGRAM, self.mtu - UDP_HEADERS) if self.mtu else MAX_DATAGRAM

    def heal(self) -> None:
        """The end of all faults, and of the limit of the wires; delays stay as they
        are, and what waits for a wire has its time."""
        self.bandwidth = self.queue = 0
        self.loss = self.burst = self.duplicate = self.reorder = self.corrupt = self.truncate = 0.0
        self.cut, self.bad, self.clogged, self.discard = set(), set(), {}, None

    def leaves(self, source: str, nbytes: int, now: int) -> int:
        """When the last byte of a datagram that is sent now has left its sender."""
        if not self.bandwidth:
            return now
        self.out_until[source] = leaves = max(now, self.out_until.get(source, 0)) + nbytes * 1_000_000_000 // self.bandwidth
        return leaves

    def busy_until(self) -> int:
        """When all that waited for a wire so far is through."""
        return max([*self.out_until.values(), *self.in_until.values()], default=0)

    def _enters(self, target: str, nbytes: int, instant: int) -> int:
        """When the last byte of a datagram is in, that could be in at `instant` if
        nothing else came."""
        if not self.bandwidth:
            return instant
        self.in_until[target] = enters = max(instant, self.in_until.get(target, 0) + nbytes
                                             * 1_000_000_000 // self.bandwidth)
        return enters

    def carry(self, source: str, target: str, datagram: bytes, now: int, rng: Random) -> list[
            tuple[int, bytes]]:
        """What arrives of one datagram that has left its sender now: (instant, bytes)
        for every copy."""
        link = (source, target)
        if link in self.cut:
            self.num_cut += 1
            return []
        copies = 1
        if self.duplicate and rng.random() < self.duplicate:
            self.num_duplicated += 1
            copies = 2
        arrivals = []
        for copy in range(copies):
            if self._is_lost(link, datagram, rng) or self._loses_frames(target, datagram, now, rng):
                self.num_lost += 1
                continue
            if self.queue and self._waits(target, now) > self.queue:
                self.num_congested += 1
                continue
            shortest, longest = self.delay
            instant = self._enters(target, len(datagram),
                                   now + shortest + int(rng.random() * (longest - shortest)))
            if self.reorder and rng.random() < self.reorder:
                self.num_reordered += 1
                instant += int(rng.random() * self.late)
            if copy:
                instant += int(rng.random() * self.late)
            if link in self.clogged:
                self.num_clogged += 1
                instant = max(instant, self.clogged[link])
            arrivals.append((instant, self._damaged(datagram, rng)))
        return arrivals

    def _is_lost(self, link: Direction, datagram: bytes, rng: Random) -> bool:
        if self.discard is not None and self.discard(*link, datagram):
            return True
        if self.burst and self._in_burst(link, rng):
            return True
        return self.loss > 0 and self._frames(datagram) == 1 and rng.random() < self.loss

    def _frames(self, datagram: bytes) -> int:
        """How many frames carry a datagram."""
        return 1 if len(datagram) <= self.largest else -(-(len(datagram) + UDP_HEADERS - FRAGMENT_HEADER) // (self.mtu - FRAGMENT_HEADER))

    def _loses_frames(self, target: str, datagram: bytes, now: int, rng: Random) -> bool:
        """Whether a datagram of several frames loses some, or its receiver has no room
        to put it together."""
        frames = self._frames(datagram)
        if frames == 1:
            return False
        lost = sum(rng.random() < self.loss for _ in range(frames))
        held = self.held.setdefault(target, deque())
        while held and held[0][0] <= now:
            held.popleft()
        room = self.memory - sum(nbytes for _, nbytes in held)
        if lost == 0 and room >= len(datagram):
            return False
        self.num_in_pieces += 1
        came = (frames - lost) * self.mtu
        if lost and came <= room:
            held.append((now + REASSEMBLY, came))
        return True

    def _waits(self, target: str, now: int) -> int:
        """Bytes that wait for a member's way in."""
        return max(0, self.in_until.get(target, 0) - now) * self.bandwidth // 1_000_000_000

    def _in_burst(self, link: Direction, rng: Random) -> bool:
        """A link is good or in a bad spell; which of the two changes by chance with
        every datagram."""
        if link in self.bad:
            if rng.random() < 1 / self.burst_length:
                self.bad.discard(link)
        elif rng.random() < self.burst:
            self.bad.add(link)
        return link in self.bad

    def _damaged(self, datagram: bytes, rng: Random) -> bytes:
        if self.corrupt and rng.random() < self.corrupt:
            self.num_damaged += 1
            damaged = bytearray(datagram)
            for _ in range(rng.randint(1, 3)):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            datagram = bytes(damaged)
        if self.truncate and rng.random() < self.truncate:
            self.num_damaged += 1
            datagram = datagram[:rng.randrange(len(datagram))]
        return datagram
