"""What a bad network does to datagrams on their way: each direction of each pair of members is a link of its own.

Rates are probabilities from 0 to 1 for each datagram and each receiver of it; times are nanoseconds. All is drawn from one random
source in the order in which datagrams are sent, so a seed does the same to the same datagrams.

With a bandwidth, each member has one way out and one way in, as behind a switch: a datagram takes its bytes' time on either, and
waits until those before it are through. A multicast leaves once. What waits is not bounded here: the windows of the senders bound it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

Link = tuple[str, str]                  # (from, to)
MS = 1_000_000


@dataclass(slots=True)
class Network:
    """Set any attribute at any time; it holds for what is sent from then on."""

    loss: float = 0.0
    burst: float = 0.0                              # begins a bad spell of the link, in which most is lost
    burst_length: float = 10.0                      # datagrams that a bad spell takes, on average
    duplicate: float = 0.0
    reorder: float = 0.0                            # held back for up to `late`, so that later ones overtake it
    corrupt: float = 0.0                            # bits are flipped
    truncate: float = 0.0                           # the end is cut off
    delay: tuple[int, int] = (50_000, 200_000)      # shortest, longest; what lies between is jitter
    late: int = 50 * MS                             # longest extra delay of what is held back, and of second copies
    cut: set[Link] = field(default_factory=set)     # links that nothing passes
    clogged: dict[Link, int] = field(default_factory=dict)      # links that deliver nothing before this instant, then all of it
    discard: Callable[[str, str, bytes], bool] | None = None    # scripted loss: whether this datagram is to be lost
    bad: set[Link] = field(default_factory=set)     # links in a bad spell
    bandwidth: int = 0                              # bytes a second on a member's way out, and on its way in; 0: no limit
    out_until: dict[str, int] = field(default_factory=dict)     # when a member's way out is free again
    in_until: dict[str, int] = field(default_factory=dict)      # and its way in

    num_lost: int = 0
    num_cut: int = 0
    num_duplicated: int = 0
    num_reordered: int = 0
    num_damaged: int = 0
    num_clogged: int = 0

    def heal(self) -> None:
        """The end of all faults, and of the limit of the wires; delays stay as they are, and what waits for a wire has its time."""
        self.bandwidth = 0
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
        """When the last byte of a datagram is in, that could be in at `instant` if nothing else came."""
        if not self.bandwidth:
            return instant
        self.in_until[target] = enters = max(instant, self.in_until.get(target, 0) + nbytes * 1_000_000_000 // self.bandwidth)
        return enters

    def carry(self, source: str, target: str, datagram: bytes, now: int, rng: Random) -> list[tuple[int, bytes]]:
        """What arrives of one datagram that has left its sender now: (instant, bytes) for every copy."""
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
            if self._is_lost(link, datagram, rng):
                self.num_lost += 1
                continue
            shortest, longest = self.delay
            instant = self._enters(target, len(datagram), now + shortest + int(rng.random() * (longest - shortest)))
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

    def _is_lost(self, link: Link, datagram: bytes, rng: Random) -> bool:
        if self.discard is not None and self.discard(*link, datagram):
            return True
        if self.burst and self._in_burst(link, rng):
            return True
        return self.loss > 0 and rng.random() < self.loss

    def _in_burst(self, link: Link, rng: Random) -> bool:
        """A link is good or in a bad spell; which of the two changes by chance with every datagram."""
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
