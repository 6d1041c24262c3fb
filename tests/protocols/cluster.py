"""A group of whole stacks on a simulated network: one clock, one queue of events, one seed; a run is a function of its arguments.

The stacks are the shipped classes and bytes cross the network. What every member got is checked as it is delivered: each sender's
messages once, in order, without a gap. The simulator of a later issue replaces this; it holds what the tests of MCAST need.
"""

import heapq
import itertools
from dataclasses import dataclass, field
from random import Random

from ringcast.address import Address
from ringcast.config import configure
from ringcast.digest import Digest
from ringcast.protocols.mcast import Mcast
from ringcast.protocols.static_members import StaticMembers
from ringcast.stack import EVERYONE, Stack

MS = 1_000_000


@dataclass
class Network:
    """Rates are per datagram and receiver; delays are nanoseconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    delay: tuple[int, int] = (50_000, 200_000)
    cut: set[tuple[str, str]] = field(default_factory=set)      # (from, to) pairs that nothing passes


class Member:
    """One member: a stack and what its application saw."""

    def __init__(self, cluster: "Cluster", name: str, *, resume: Digest | None = None, receiving: bool = True, **options):
        self.cluster = cluster
        self.name = name
        self.address = Address(name, cluster.rng.getrandbits(63) + 1)
        config = configure(cluster.options | options)
        self.mcast = Mcast(self.address, config, cluster.receive_budget, resume=resume, receiving=receiving)
        self.members = StaticMembers(self.address, cluster.names, config, resume)
        self.stack = Stack([self.mcast, self.members], local=self.address, group="test", physical=name)
        self.got: dict[Address, list[bytes]] = {}
        self.first: dict[Address, int] = {}
        self.views = []
        self.fault = None
        self.routes = {}
        self.limit = 1_000_000                  # messages that the application takes in one turn
        self.finishes = True                    # the application finishes what it takes
        self.alive = True
        self.blocked = 0
        self.writable = 0
        self.stack.start(cluster.now)
        self.turn([])

    def send(self, *payloads: bytes) -> int:
        """Push as many as find room, flush; returns how many."""
        sent = 0
        for payload in payloads:
            if self.mcast.send_window.push(payload) == 1:
                self.blocked += 1
                break
            sent += 1
        self.mcast.flush(self.cluster.now)
        self.turn([])
        return sent

    def turn(self, datagrams) -> None:
        if not self.alive:
            return
        now = self.cluster.now
        self.stack.receive(datagrams, now)
        self.stack.tick(now)
        self.mcast.deliver(self.limit, now)
        effects = self.stack.take()
        if effects.routes is not None:
            self.routes = effects.routes
        self.views += effects.views
        self.fault = self.fault or effects.fault
        self.writable += effects.writable
        for batch in effects.deliveries:
            self.check(batch)
            if self.finishes:
                self.mcast.delivered(batch, now)
        self.cluster.put(self, effects.packets + self.stack.take().packets)
        self.cluster.wake(self)

    def check(self, batch) -> None:
        """Once, in order, without a gap: the next expected seqno, and the payload that its sender gave it."""
        got = self.got.setdefault(batch.sender, [])
        expected = self.first.setdefault(batch.sender, batch.first) + len(got)
        assert batch.first == expected, f"{self.name} got {batch} but expected seqno {expected}"
        got += batch.payloads

    def invariants(self) -> None:
        """Bounds of every window, after every event."""
        for ring in [self.mcast.send_window.ring, *(window.ring for window in self.mcast.windows.values())]:
            assert ring.low <= ring.hd <= ring.hr <= ring.low + ring.capacity


class Cluster:
    def __init__(self, names: str, *, seed: int = 0, network: Network | None = None, receive_budget: int = 1 << 24, **options):
        self.names = tuple(names)
        self.rng = Random(seed)
        self.network = network or Network()
        self.receive_budget = receive_budget
        self.options = options
        self.now = 0
        self.events = []
        self.order = itertools.count()
        self.sent_datagrams = 0
        self.members: dict[str, Member] = {}

    def start(self, *names: str, **options) -> "Cluster":
        for name in names or self.names:
            self.members[name] = Member(self, name, **options)
        return self

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def put(self, source: Member, packets) -> None:
        for dest, datagram in packets:
            for target in list(self.members.values()):
                reached = dest == EVERYONE or source.routes.get(dest) == target.name
                if target is not source and reached and (source.name, target.name) not in self.network.cut:
                    self.transmit(target, datagram)

    def transmit(self, target: Member, datagram: bytes) -> None:
        network, rng = self.network, self.rng
        self.sent_datagrams += 1
        for _ in range(1 + (rng.random() < network.duplicate)):
            if rng.random() < network.loss:
                continue
            if rng.random() < network.corrupt:
                damaged = bytearray(datagram)
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
                datagram = bytes(damaged[:rng.randint(0, len(damaged))])
            self.at(self.now + rng.randint(*network.delay), target, [datagram])

    def at(self, instant: int, target: Member, datagrams) -> None:
        heapq.heappush(self.events, (instant, next(self.order), target, datagrams))

    def wake(self, member: Member) -> None:
        deadline = member.stack.deadline()
        if deadline is not None:
            self.at(max(deadline, self.now), member, None)

    def run(self, milliseconds: float) -> None:
        """Let the time pass, event by event."""
        end = self.now + int(milliseconds * MS)
        while self.events and self.events[0][0] <= end:
            self.now, _, target, datagrams = heapq.heappop(self.events)
            if datagrams is None:
                deadline = target.stack.deadline()
                if deadline is None or deadline > self.now:
                    continue
            target.turn(datagrams or [])
            target.invariants()
        self.now = end

    def settle(self, milliseconds: float = 5_000) -> None:
        """Run until nothing happens any more; it must come to that within the time (quiescence)."""
        end = self.now + int(milliseconds * MS)
        while self.events and self.now < end:
            self.run(10)
        assert not self.events, "the group does not come to rest"
