"""A group on a network without chance: every datagram takes the same time and arrives,
unless the script disturbs it. The network remembers what was sent.

Each message of an application travels in a datagram of its own, so it can be lost
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.flags import Flag
from ringcast.kinds import Kind
from ringcast.protocols.membership.layer import Membership
from ringcast.protocols.seqnos import MODULUS, Range
from ringcast.sim.cluster import Cluster, Observer
from ringcast.sim.consumer import Consumer
from ringcast.sim.links import Links
from ringcast.sim.member import Member
from ringcast.sim.network import MS, Network
from ringcast.sim.producer import Producer
from ringcast.sim.unicast_log import UnicastLog
from ringcast.stack import Instant

ANY = "*"
AT_REST = 1_000 * MS                    # without an event


def connection_of(kind: Kind, datagram: bytes) -> str:
    """Return the conn-id and the timestamp of a datagram as the history shows them; an
    empty string if it has none."""
    conn_id, timestamp = kind.conn_id(datagram), kind.timestamp(datagram)
    if conn_id is None:
        return ""
    return f"connection {conn_id}" + (f", timestamp {timestamp}" if timestamp is not None else "")


def spelled(ranges: Sequence[Range]) -> str:
    """Return ranges as transcripts write them: 2,5..7"""
    return ",".join(str(first) if first == last else f"{first}..{last}"
                    for first, last in ranges) or "nothing"


@dataclass(slots=True)
class SentDatagram:
    """A datagram that a member put on the network, and what happened to it on the way
    to each receiver."""

    time: int
    source: str
    dest: str                               # a member, or * for everybody
    kind: Kind
    ranges: list[Range]
    datagram: bytes = b""
    connection: str = ""                    # its conn-id and its timestamp, as text
    fates: dict[str, str] = field(default_factory=dict)     # by receiver; "": it just arrived

    @property
    def is_shown(self) -> bool:
        """Return whether histories have it: what members say about their views is in
        none."""
        return self.kind not in Membership.kinds

    def __str__(self) -> str:
        ranges = f" {spelled(self.ranges)}" if self.ranges else ""
        connection = f" ({self.connection})" if self.connection else ""
        fates = ", ".join(f"{fate} to {target}" for target, fate in self.fates.items() if fate)
        return (f"{self.source}>{self.dest}  {self.kind.name}{ranges}{connection}"
                + (f"   ({fates})" if fates else ""))

    def has(self, seqno: int) -> bool:
        """Return whether it is about this seqno."""
        return any((seqno - first) % MODULUS <= (last - first) % MODULUS
                   for first, last in self.ranges)


@dataclass(slots=True)
class Disturbance:
    """Something that happens to datagrams from `source` to `target`: to the next
    `times` of them, or to all if that is None.

    They are of the kind with this name; None is all that carry messages with seqnos.
    They are about `seqno`; None is any. They are lost, or `late` by so much, or a
    `copy` comes so much later.
    """

    source: str
    target: str
    kind: str | None
    seqno: int | None
    times: int | None = 1
    late: int | None = None
    copy: int | None = None
    used: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether it has happened often enough."""
        return self.times is not None and self.used >= self.times

    def is_about(self, source: str, target: str, sent: SentDatagram) -> bool:
        """Return whether it happens to this datagram."""
        is_kind = sent.kind.name == self.kind if self.kind else bool(sent.kind.messages_at)
        return (is_kind and not self.is_over and self.source in (ANY, source)
                and self.target in (ANY, target)
                and (self.seqno is None or sent.has(self.seqno)))


class ScriptedNetwork(Network):
    """A network that disturbs only what `disturbances` name. `history` is all that was
    sent."""

    def __init__(self, delay: int) -> None:
        super().__init__(delay=(delay, delay))
        self.history: list[SentDatagram] = []
        self.disturbances: list[Disturbance] = []

    def carry(self, source: str, target: str, datagram: bytes, now: int,
              rng: Random) -> list[tuple[int, bytes]]:
        """Return what arrives of the last datagram of the history, and when."""
        fates = self.history[-1].fates
        arrivals = super().carry(source, target, datagram, now, rng)
        fates[target] = "" if arrivals else "cut"
        found = [each for each in self.disturbances if arrivals
                 and each.is_about(source, target, self.history[-1])]
        for each in found:
            each.used += 1
        if any(each.late is None and each.copy is None for each in found):
            fates[target] = "lost"
            return []
        for each in found:
            instant = arrivals[0][0]
            if each.copy is not None:
                fates[target] = f"twice, {each.copy / 1e6:g} ms apart,"
                arrivals.append((instant + each.copy, datagram))
            elif each.late is not None:
                fates[target] = f"{each.late / 1e6:g} ms late"
                arrivals[0] = (instant + each.late, datagram)
        return arrivals


class ScriptedLinks(Links):
    """Connections without chance: they are made at once. Of two members the first in
    the list knows of it first, the other one after the delay of the network.

    A script that breaks a connection says how much later the second member knows of
    the new one (`lag`), and who does not notice the break (`blind`).
    """

    def __init__(self, cluster: "ScriptedCluster") -> None:
        super().__init__(cluster, Random(0), Random(0))
        self.lag = 0
        self.blind: set[int] = set()

    def sever(self, a: str, b: str, again: int, lag: int, blind: set[int]) -> None:
        """Break the connection between two members."""
        self.lag, self.blind = lag, blind
        broken = self.num_broken
        self.break_link(a, b, again)
        self.blind = set()
        assert self.num_broken > broken

    def until_tried(self) -> int:
        return MS

    def in_order(self, a: Member, b: Member) -> tuple[Member, Member]:
        names = self.cluster.names
        return (a, b) if names.index(a.name) < names.index(b.name) else (b, a)

    def until_known(self) -> int:
        return max(self.lag, self.cluster.network.delay[0])

    def notices(self, end: int) -> bool:
        return end not in self.blind

    def until_control(self) -> int:
        return 0

    def buffers(self) -> int:
        return 0

    def control_breaks(self) -> bool:
        return False


class ScriptedProducer(Producer):
    """Sends messages one by one: when one finds no room, all behind it wait, as a
    thread waits in send().

    `refused` has the messages to single members that were not sent, because nobody
    takes them.
    """

    def __init__(self, member: Member, threads: int) -> None:
        super().__init__(member, threads)
        self.refused: dict[Address, list[int]] = {}

    def submit(self, payloads: Sequence[bytes]) -> None:
        """Send these in order; the first one that has no room, and all behind it,
        wait."""
        multicasts = self.multicasts
        is_blocked = bool(multicasts.backlog)
        multicasts.backlog += payloads
        if not is_blocked:                  # else the stack alone makes it go on
            self.push_multicasts(self.member.now)

    def submit_unicast(self, dest: Address, numbers: Sequence[int], is_oob: bool) -> None:
        """Send messages with these numbers to one member, like submit()."""
        log = self.member.cluster.unicast_log(self.member, dest)
        is_blocked = bool(log.backlog)
        flags = int(Flag.OOB) if is_oob else 0
        log.backlog += [(b"%d" % number, flags) for number in numbers]
        if not is_blocked:
            self.push_unicasts(dest, self.member.now)

    def push_multicasts(self, now: Instant) -> None:
        multicasts = self.multicasts
        waiting, multicasts.backlog = multicasts.backlog, []
        while waiting and not multicasts.backlog:
            multicasts.backlog = [waiting.pop(0)]
            super().push_multicasts(now)
        multicasts.backlog += waiting

    def push_unicasts(self, dest: Address, now: Instant) -> None:
        log = self.unicast_logs[dest]
        waiting, log.backlog = log.backlog, []
        while waiting and not log.backlog:
            num_sent, message = len(log.sent), waiting.pop(0)
            log.backlog = [message]
            super().push_unicasts(dest, now)
            if not log.backlog and len(log.sent) == num_sent:
                self.refused.setdefault(dest, []).append(int(message[0]))
        log.backlog += waiting


class ScriptedConsumer(Consumer):
    """Remembers the messages that were for this member alone: in `unicast_received`
    their numbers, by sender and in the order of delivery; in `outstanding` what is not
    finished."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self.unicast_received: dict[Address, list[int]] = {}
        self.outstanding: list[Batch] = []

    def take(self, batch: Batch, now: Instant) -> None:
        if batch.dest is not None:
            self.unicast_received.setdefault(batch.sender, []).extend(map(int, batch.payloads))
            self.outstanding.append(batch)
        super().take(batch, now)

    def report(self, batch: Batch, now: Instant) -> None:
        if batch.dest is not None:
            self._remove_outstanding(batch)
        super().report(batch, now)

    def _remove_outstanding(self, batch: Batch) -> None:
        """Remove a batch that is finished, or the beginning of one."""
        for place, each in enumerate(self.outstanding):
            if (each.stream, each.flags, each.first) == (batch.stream, batch.flags, batch.first):
                rest = Batch(each.sender, (batch.last + 1) % MODULUS, each.payloads[len(batch):],
                             each.view_id, each.dest, each.flags, each.stream)
                self.outstanding[place:place + 1] = [rest] if rest.payloads else []
                return


class ScriptedMember(Member):
    """A member whose application does what a script says.

    Its messages to one other member carry their numbers, as those to everybody do: 1,
    2, 3 (or from the offset on), through all connections.
    """

    producer_type = ScriptedProducer
    consumer_type = ScriptedConsumer
    producer: ScriptedProducer
    consumer: ScriptedConsumer

    def submit(self, payloads: Sequence[bytes]) -> None:
        """Send these in order; what has no room waits."""
        self.producer.submit(payloads)
        self.turn()

    def submit_unicast(self, dest: Address, numbers: Sequence[int], is_oob: bool) -> None:
        """Send messages with these numbers to one member; what has no room waits."""
        self.producer.submit_unicast(dest, numbers, is_oob)
        self.turn()


class HistoryWriter(Observer):
    """Writes the history."""

    def __init__(self, cluster: Cluster, history: list[SentDatagram]) -> None:
        self.cluster, self.history = cluster, history

    def sent(self, member: Member, dest: int, datagram: bytes) -> None:
        header = member.stack.open(datagram)
        assert header is not None           # a member of this group made it
        kind = member.stack.kind(header.kind)
        to = ANY if dest == EVERYONE else self.cluster.incarnations[dest].name
        self.history.append(SentDatagram(
            self.cluster.now, member.name, to, kind, kind.ranges(datagram), datagram,
            connection_of(kind, datagram)))


class ScriptedCluster(Cluster):
    """A group whose datagrams take `delay` nanoseconds."""

    member_type = ScriptedMember
    links: ScriptedLinks | None

    def __init__(self, names: Sequence[str], *, delay: int, **options: Any) -> None:
        self.script = ScriptedNetwork(delay)
        super().__init__(names, network=self.script, **options)
        if self.links is not None:
            self.links = ScriptedLinks(self)
        self.observer = HistoryWriter(self, self.script.history)

    def unicast_log(self, sender: Member, receiver: Address) -> UnicastLog:
        log = UnicastLog(base=(sender.offset + 1) % MODULUS)
        return sender.producer.unicast_logs.setdefault(receiver, log)

    def kinds(self) -> set[str]:
        """Return the names of all kinds that the members' stacks know, except those
        about views."""
        return {kind.name for member in self.incarnations.values()
                for kind in member.stack.kinds.values() if kind not in Membership.kinds}

    def is_at_rest(self) -> bool:
        """Return whether nothing is owed, and nothing happens any more, except what is
        far ahead: heartbeats, and idle connections that close."""
        is_soon = bool(self.events) and self.events[0][0] <= self.now + AT_REST
        return not is_soon and super().is_at_rest()
