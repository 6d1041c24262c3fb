"""The faults of a bad network, as layers for tests and demos. They are the lowest
layers of a stack, next to the wire.

Each acts on datagrams that arrive, whatever they carry, and hits each of them with the
probability `rate`. Random numbers come from the source that the layer is given: the
same seed does the same to the same datagrams.
"""

from heapq import heappop, heappush
from random import Random

from ringcast.errors import ConfigError
from ringcast.stack import Instant, Layer, Packet
from ringcast.status import Layers


class Fault(Layer):
    """The base of all: a rate from 0 to 1, a random source, and a count of the
    datagrams that were hit."""

    def __init__(self, rate: float, rng: Random) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError(f"a fault's rate is a probability from 0 to 1, not {rate}")
        self.rate = rate
        self.rng = rng
        self.hits = 0

    def hit(self) -> bool:
        """Decide whether this datagram is hit, and count it."""
        hit = self.rng.random() < self.rate
        self.hits += hit
        return hit

    def describe(self, status: Layers) -> None:
        name = type(self).__name__.lower()
        status.faults[name] = status.faults.get(name, 0) + self.hits


class Discard(Fault):
    """Loses datagrams."""

    def receive(self, packets: list[Packet], now: Instant) -> None:
        left = [packet for packet in packets if not self.hit()]
        if left:
            self.above.receive(left, now)


class Duplicate(Fault):
    """Delivers datagrams twice, the second time right after the first."""

    def receive(self, packets: list[Packet], now: Instant) -> None:
        copies = [(packet, packet) if self.hit() else (packet,) for packet in packets]
        self.above.receive([packet for pair in copies for packet in pair], now)


class Delay(Fault):
    """Holds datagrams back for a random time of at most `longest` nanoseconds, so that
    later ones overtake them."""

    def __init__(self, rate: float, rng: Random, longest: int) -> None:
        super().__init__(rate, rng)
        self.longest = longest
        # A heap. The number keeps packets with the same instant in order.
        self.held: list[tuple[Instant, int, Packet]] = []

    def receive(self, packets: list[Packet], now: Instant) -> None:
        passing = []
        for packet in packets:
            if self.hit():
                heappush(self.held, (now + self.rng.randint(1, self.longest), self.hits,
                                     packet.copy()))
            else:
                passing.append(packet)
        if passing:
            self.above.receive(passing, now)

    def deadline(self) -> Instant | None:
        return self.held[0][0] if self.held else None

    def tick(self, now: Instant) -> None:
        due = []
        while self.held and self.held[0][0] <= now:
            due.append(heappop(self.held)[2])
        self.above.receive(due, now)


class Shuffle(Fault):
    """Holds a datagram back until the next one has overtaken it, or for `longest`
    nanoseconds if none comes."""

    def __init__(self, rate: float, rng: Random, longest: int = 5_000_000) -> None:
        super().__init__(rate, rng)
        self.longest = longest
        self.held: Packet | None = None
        self.release: Instant | None = None

    def receive(self, packets: list[Packet], now: Instant) -> None:
        passing = []
        for packet in packets:
            if self.held is not None:
                passing += [packet, self.held]
                self.held = self.release = None
            elif self.hit():
                self.held, self.release = packet.copy(), now + self.longest
            else:
                passing.append(packet)
        if passing:
            self.above.receive(passing, now)

    def deadline(self) -> Instant | None:
        return self.release

    def tick(self, now: Instant) -> None:
        held, self.held, self.release = self.held, None, None
        if held is not None:
            self.above.receive([held], now)
