"""What a bad network does, as layers for tests and demos: put them lowest in the stack,
above the wire.

Each acts on the datagrams that come in, whatever they hold, with a probability `rate`
per datagram, and draws from the random source that it is given: the same seed does the
same to the same datagrams.
"""

from heapq import heappop, heappush
from random import Random

from ringcast.errors import ConfigError
from ringcast.stack import Instant, Layer, Packet


class Fault(Layer):
    """Common to all: a rate in 0 .. 1, a random source, and a count of the datagrams
    that were hit."""

    def __init__(self, rate: float, rng: Random) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError(f"a fault's rate is a probability, 0 to 1, not {rate}")
        self.rate = rate
        self.rng = rng
        self.hits = 0

    def hit(self) -> bool:
        hit = self.rng.random() < self.rate
        self.hits += hit
        return hit

    def status(self) -> dict[str, int]:
        return {f"num_{type(self).__name__.lower()}": self.hits}


class Discard(Fault):
    """Loses datagrams."""

    def receive(self, packets: list[Packet], now: Instant) -> None:
        left = [packet for packet in packets if not self.hit()]
        if left:
            self.above.receive(left, now)


class Duplicate(Fault):
    """Delivers datagrams twice, the second time right behind the first."""

    def receive(self, packets: list[Packet], now: Instant) -> None:
        self.above.receive([copy for packet in packets for copy in ((packet, packet) if self.hit() else (packet,))], now)


class Delay(Fault):
    """Holds datagrams back for a random time of at most `longest` nanoseconds, so that
    later ones overtake them."""

    def __init__(self, rate: float, rng: Random, longest: int) -> None:
        super().__init__(rate, rng)
        self.longest = longest
        self.held: list[tuple[Instant, int, Packet]] = []  # a heap; the number keeps equal instants
                                                           # in order

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
    """Lets the datagram that comes next overtake; one that nothing follows is let go
    after `longest` nanoseconds."""

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
