"""A group whose network does what a script says and nothing else: every datagram takes the same time and arrives, except those that
a rule names. What was sent is remembered, so that a transcript can say what should have been, and show what was.

Each message of an application travels in a datagram of its own, so that it can be lost by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ringcast._core import wire
from ringcast.protocols import mcast
from ringcast.protocols.seqnos import MODULUS, Range
from ringcast.sim.cluster import Cluster, Observer
from ringcast.sim.member import Member
from ringcast.sim.network import Network
from ringcast.stack import EVERYONE, Instant, Kind, Packet, decoded

ANY = "*"
MESSAGES = frozenset({"data", "repeat"})            # kinds that carry messages


def messages_in(member: Member, packet: Packet) -> list[Range]:
    ring = member.mcast.send_window.ring
    arrivals = wire.read_data(packet.data, (ring.low - ring.capacity) % MODULUS, 2 * ring.capacity)
    return [(batch.first, batch.last) for batch in arrivals.batches] if arrivals else []


def one(name: str, decoder: Any) -> Callable[[Member, Packet], list[Range]]:
    """How to read a control datagram that carries one seqno in the field `name`."""
    def read(member: Member, packet: Packet) -> list[Range]:
        seqno = getattr(decoded(decoder, packet), name)
        return [(seqno, seqno)]
    return read


def wanted(member: Member, packet: Packet) -> list[Range]:
    request = decoded(mcast.XMIT_REQ, packet)
    return request.ranges if request else []


# What a script calls a datagram, and which seqnos it carries. A protocol adds its kinds here.
KINDS: dict[int, tuple[str, Callable[[Member, Packet], list[Range]]]] = {
    Kind.DATA: ("data", messages_in),
    Kind.REPEAT: ("repeat", messages_in),
    Kind.HELLO: ("hello", lambda member, packet: []),
    Kind.START: ("start", one("seqno", mcast.START)),
    Kind.ACK: ("ack", one("seqno", mcast.ACK)),
    Kind.XMIT_REQ: ("xmit_req", wanted),
    Kind.HIGHEST: ("highest", one("seqno", mcast.HIGHEST)),
}
NAMES = frozenset(name for name, _ in KINDS.values())


def spelled(ranges: Sequence[Range]) -> str:
    """Ranges as transcripts write them: 2,5..7"""
    return ",".join(str(first) if first == last else f"{first}..{last}" for first, last in ranges) or "nothing"


@dataclass(slots=True)
class Sent:
    """A datagram that a member put on the network, and what became of it on the way to each receiver."""

    time: int
    source: str
    dest: str                               # a member, or * for everybody
    kind: str
    ranges: list[Range]
    fates: dict[str, str] = field(default_factory=dict)     # by receiver; "" is an undisturbed arrival

    def __str__(self) -> str:
        fates = ", ".join(f"{fate} to {target}" for target, fate in self.fates.items() if fate)
        said = f" {spelled(self.ranges)}" if self.ranges else ""
        return f"{self.source}>{self.dest}  {self.kind}{said}" + (f"   ({fates})" if fates else "")

    def has(self, seqno: int) -> bool:
        return any((seqno - first) % MODULUS <= (last - first) % MODULUS for first, last in self.ranges)


@dataclass(slots=True)
class Rule:
    """What happens to the datagrams from `source` to `target` that are of one of `kinds`, and about `seqno` unless that is None:
    to the next `times` of them, or to all when that is None. They are lost, or `late` by so much, or a `copy` comes so much later.
    """

    source: str
    target: str
    kinds: frozenset[str]
    seqno: int | None
    times: int | None = 1
    late: int | None = None
    copy: int | None = None
    used: int = 0

    @property
    def is_over(self) -> bool:
        return self.times is not None and self.used >= self.times

    def is_about(self, source: str, target: str, sent: Sent) -> bool:
        return (not self.is_over and self.source in (ANY, source) and self.target in (ANY, target) and sent.kind in self.kinds
                and (self.seqno is None or sent.has(self.seqno)))


class ScriptedNetwork(Network):
    """`history` is all that was sent; `rules` say what is disturbed on its way."""

    def __init__(self, delay: int) -> None:
        super().__init__(delay=(delay, delay))
        self.history: list[Sent] = []
        self.rules: list[Rule] = []

    def carry(self, source: str, target: str, datagram: bytes, now: int, rng: Random) -> list[tuple[int, bytes]]:
        """As the rules say; the datagram is the last of the history."""
        fates = self.history[-1].fates
        arrivals = super().carry(source, target, datagram, now, rng)
        fates[target] = "" if arrivals else "cut"
        rules = [rule for rule in self.rules if arrivals and rule.is_about(source, target, self.history[-1])]
        for rule in rules:
            rule.used += 1
        if any(rule.late is None and rule.copy is None for rule in rules):
            fates[target] = "lost"
            return []
        for rule in rules:
            instant = arrivals[0][0]
            if rule.copy is not None:
                fates[target] = f"twice, {rule.copy / 1e6:g} ms apart,"
                arrivals.append((instant + rule.copy, datagram))
            elif rule.late is not None:
                fates[target] = f"{rule.late / 1e6:g} ms late"
                arrivals[0] = (instant + rule.late, datagram)
        return arrivals


class ScriptedMember(Member):
    """Its application sends messages one by one, and waits, as a thread does that is blocked in send()."""

    def submit(self, payloads: Sequence[bytes]) -> None:
        """Send these, in order; what has no room waits for it."""
        waited = bool(self.backlog)
        self.backlog += payloads
        if not waited:                      # who waits is released by the stack alone
            self._push(self.clock.read(self.cluster.now))
        self.turn()

    def _push(self, now: Instant) -> None:
        waiting, self.backlog = self.backlog, []
        while waiting and not self.backlog:
            self.backlog = [waiting.pop(0)]
            super()._push(now)
        self.backlog += waiting


class Recorder(Observer):
    """Writes the history."""

    def __init__(self, cluster: Cluster, history: list[Sent]) -> None:
        self.cluster, self.history = cluster, history

    def sent(self, member: Member, dest: int, datagram: bytes) -> None:
        header = wire.open_datagram(datagram, member.stack.group)
        assert header is not None           # a member of this group made it
        name, read = KINDS[header.kind]
        to = ANY if dest == EVERYONE else self.cluster.lives[dest].name
        ranges = read(member, Packet(header.kind, header.sender, header.dest, datagram))
        self.history.append(Sent(self.cluster.now, member.name, to, name, ranges))


class ScriptedCluster(Cluster):
    """The group; datagrams take `delay` nanoseconds."""

    life = ScriptedMember

    def __init__(self, names: Sequence[str], *, delay: int, **options: Any) -> None:
        self.script = ScriptedNetwork(delay)
        super().__init__(names, network=self.script, **options)
        self.observer = Recorder(self, self.script.history)
