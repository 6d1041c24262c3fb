"""A bad network: what happens to datagrams on their way. Each direction of each pair of
members is a link of its own.

Rates are probabilities from 0 to 1, for each datagram and each receiver of it; times
are nanoseconds. All is drawn from one random source in the order in which datagrams are
sent, so a seed does the same to the same datagrams.

With a bandwidth, each member has one way out and one way in, as behind a switch. A
datagram takes time on both for each of its bytes, and waits for those before it. A
multicast leaves once. With a `queue`, so many bytes may wait for a way in, and more are
lost; without it the windows of the senders bound what waits. With a `send_buffer`, so
many bytes may wait for a way out: what finds no room is dropped at home, for all.

With an MTU the wire carries frames. A larger datagram travels as several IP fragments,
each of which may be lost. If one is, the others stay in the receiver's memory for
REASSEMBLY; while the memory is full, no other datagram is put together there.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ringcast.config import MAX_DATAGRAM, UDP_HEADERS
from ringcast.protocols.budget import NO_LIMIT

MS = 1_000_000
Direction = tuple[str, str]     # of a pair of members: (from, to)
FRAGMENT_HEADER = 20            # bytes of the IPv4 header of each fragment
REASSEMBLY = 30_000 * MS        # how long fragments of a datagram wait for the others


@dataclass(slots=True)
class Network:
    """The faults, the delays and the wires. Attributes may be set at any time, for what
    is sent from then on."""

    loss: float = 0.0
    burst: float = 0.0              # begins a bad spell of a link, in which all is lost
    burst_length: float = 10.0      # datagrams of a bad spell, on average
    duplicate: float = 0.0
    reorder: float = 0.0            # delays by up to `late`, so that later datagrams overtake
    corrupt: float = 0.0            # flips bits
    truncate: float = 0.0           # cuts off the end
    delay: tuple[int, int] = (50_000, 200_000)      # shortest, longest
    late: int = 50 * MS             # longest extra delay of reordered datagrams, and of copies
    cut: set[Direction] = field(default_factory=set)            # links that carry nothing
    # Links that deliver nothing before that time, and then all.
    clogged: dict[Direction, int] = field(default_factory=dict)
    held_until: int = 0             # when all has arrived that waited for that, or was late
    # Scripted loss: whether a datagram is lost, by source, target and bytes.
    discard: Callable[[str, str, bytes], bool] | None = None
    bad: set[Direction] = field(default_factory=set)            # links in a bad spell
    mtu: int = 0                    # bytes of a frame; 0: no limit
    memory: int = 4 << 20           # bytes of fragments that a receiver keeps
    # By receiver: until when it keeps fragments, and how many bytes.
    held: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    queue: int = 0                  # bytes that may wait for a member's way in; 0: no limit
    send_buffer: int = 0            # bytes that may wait for its way out; 0: no limit
    bandwidth: int = 0              # bytes a second on each way out and each way in; 0: no limit
    out_until: dict[str, int] = field(default_factory=dict)     # when a member's way out is free
    in_until: dict[str, int] = field(default_factory=dict)      # when its way in is free

    num_lost: int = 0
    num_cut: int = 0
    num_duplicated: int = 0
    num_reordered: int = 0
    num_damaged: int = 0
    num_clogged: int = 0
    num_congested: int = 0          # lost because too much waited for a way in
    num_in_pieces: int = 0          # lost because a fragment was lost or found no memory

    @property
    def largest(self) -> int:
        """The size of the largest datagram that fits a frame."""
        return min(MAX_DATAGRAM, self.mtu - UDP_HEADERS) if self.mtu else MAX_DATAGRAM

    @property
    def send_budget(self) -> int:
        """The bytes that a member may have on its way, as UdpTransport tells it."""
        return self.send_buffer * 3 // 8 or NO_LIMIT

    def heal(self) -> None:
        """End all faults and the limits of the wires. Delays stay, and what waits for a
        wire still takes its time."""
        self.bandwidth = self.queue = self.send_buffer = 0
        self.loss = self.burst = self.duplicate = self.reorder = self.corrupt = self.truncate = 0.0
        self.cut, self.bad, self.clogged, self.discard = set(), set(), {}, None

    def leaves(self, source: str, nbytes: int, now: int) -> int:
        """Return when the last byte of a datagram that is sent now has left its
        sender."""
        if self.bandwidth:
            now = max(now, self.out_until.get(source, 0)) + self._time_of(nbytes)
            self.out_until[source] = now
        return now

    def has_room(self, source: str, nbytes: int, now: int) -> bool:
        """Return whether a datagram that is sent now finds room at its sender."""
        return not self.send_buffer or nbytes <= self.send_buffer - self._bytes_until(
            self.out_until.get(source, 0), now)

    def _bytes_until(self, instant: int, now: int) -> int:
        """Return how many bytes a wire carries from now on until an instant."""
        return max(0, instant - now) * self.bandwidth // 1_000_000_000

    def _time_of(self, nbytes: int) -> int:
        """Return how long so many bytes take."""
        return nbytes * 1_000_000_000 // self.bandwidth

    def busy_until(self) -> int:
        """Return when all has arrived that waits for a wire or a clogged link now, or
        is late."""
        return max([self.held_until, *self.out_until.values(), *self.in_until.values()])

    def _enters(self, target: str, nbytes: int, instant: int) -> int:
        """Return when the last byte of a datagram is in, which could be in at `instant`
        if nothing else came."""
        if self.bandwidth:
            instant = max(instant, self.in_until.get(target, 0) + self._time_of(nbytes))
            self.in_until[target] = instant
        return instant

    def carry(self, source: str, target: str, datagram: bytes, now: int,
              rng: Random) -> list[tuple[int, bytes]]:
        """Return what arrives of a datagram that has left its sender now: (instant,
        bytes) for every copy."""
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
            if self.queue and self._bytes_until(self.in_until.get(target, 0), now) > self.queue:
                self.num_congested += 1
                continue
            shortest, longest = self.delay
            instant = in_time = self._enters(
                target, len(datagram), now + shortest + int(rng.random() * (longest - shortest)))
            if self.reorder and rng.random() < self.reorder:
                self.num_reordered += 1
                instant += int(rng.random() * self.late)
            if copy:
                instant += int(rng.random() * self.late)
            if link in self.clogged:
                self.num_clogged += 1
                instant = max(instant, self.clogged[link])
            if instant > in_time:
                self.held_until = max(self.held_until, instant)
            arrivals.append((instant, self._damaged(datagram, rng)))
        return arrivals

    def _is_lost(self, link: Direction, datagram: bytes, rng: Random) -> bool:
        if self.discard is not None and self.discard(*link, datagram):
            return True
        if self.burst and self._in_burst(link, rng):
            return True
        return self.loss > 0 and self._frames(datagram) == 1 and rng.random() < self.loss

    def _frames(self, datagram: bytes) -> int:
        """Return how many frames carry a datagram."""
        if len(datagram) <= self.largest:
            return 1
        nbytes = len(datagram) + UDP_HEADERS - FRAGMENT_HEADER
        return -(-nbytes // (self.mtu - FRAGMENT_HEADER))

    def _loses_frames(self, target: str, datagram: bytes, now: int, rng: Random) -> bool:
        """Return whether a datagram of several frames loses some, or its receiver has
        no memory to put it together."""
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

    def _in_burst(self, link: Direction, rng: Random) -> bool:
        """Begin or end a bad spell of a link by chance; return whether it is in one."""
        if link in self.bad:
            if rng.random() < 1 / self.burst_length:
                self.bad.discard(link)
        elif rng.random() < self.burst:
            self.bad.add(link)
        return link in self.bad

    def _damaged(self, datagram: bytes, rng: Random) -> bytes:
        """Return the datagram, perhaps with flipped bits or without its end."""
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
