"""A group whose network does what a script says and nothing else: every datagram takes
the same time and arrives, except those that a rule names. What was sent is remembered,
so that a transcript can say what should have been, and show what was.

Each message of an application travels in a datagram of its own, so that it can be lost
by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.flags import Flag
from ringcast.kinds import Kind
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
AT_REST = 1_000 * MS                                # without an event


def connection_of(kind: Kind, datagram: bytes) -> str:
    """Of a datagram of a connection, what history tells besides: its conn-id, and its
    timestamp."""
    conn_id, timestamp = kind.conn_id(datagram), kind.timestamp(datagram)
    if conn_id is None:
        return ""
    return f"connection {conn_id}" + (f", timestamp {timestamp}" if timestamp is not None else "")


def spelled(ranges: Sequence[Range]) -> str:
    """Ranges as transcripts write them: 2,5..7"""
    return ",".join(str(first) if first == last else f"{first}..{last}" for first,
                    last in ranges) or "nothing"


@dataclass(slots=True)
class Sent:
    """A datagram that a member put on the network, and what became of it on the way to
    each receiver."""

    time: int
    source: str
    dest: str                               # a member, or * for everybody
    kind: Kind
    ranges: list[Range]
    datagram: bytes = b""                                # itself
    connection: str = ""                                 # and what else there is to say of it
    fates: dict[str, str] = field(default_factory=dict)  # by receiver; "" is an undisturbed arrival

    def __str__(self) -> str:
        fates = ", ".join(f"{fate} to {target}" for target, fate in self.fates.items() if fate)
        said = f" {spelled(self.ranges)}" if self.ranges else ""
        said += f" ({self.connection})" if self.connection else ""
        return f"{self.source}>{self.dest}  {self.kind.name}{said}" + (f"   ({fates})" if fates
                                                                       else "")

    def has(self, seqno: int) -> bool:
        return any((seqno - first) % MODULUS <= (last - first) % MODULUS for first,
                   last in self.ranges)


@dataclass(slots=True)
class Rule:
    """What happens to the datagrams from `source` to `target` that are of the kind with
    this name (None: that carry messages with seqnos), and about `seqno` unless that is
    None: to the next `times` of them, or to all when that is None. They are lost, or
    `late` by so much, or a `copy` comes so much later.
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
        return self.times is not None and self.used >= self.times

    def is_about(self, source: str, target: str, sent: Sent) -> bool:
        is_kind = sent.kind.name == self.kind if self.kind else bool(sent.kind.messages_at)
        return (is_kind and not self.is_over and self.source in (ANY, source)
                and self.target in (ANY, target)
                and (self.seqno is None or sent.has(self.seqno)))


class ScriptedNetwork(Network):
    """`history` is all that was sent; `rules` say what is disturbed on its way."""

    def __init__(self, delay: int) -> None:
        super().__init__(delay=(delay, delay))
        self.history: list[Sent] = []
        self.rules: list[Rule] = []

    def carry(self, source: str, target: str, datagram: bytes, now: int, rng: Random) -> list[
            tuple[int, bytes]]:
        """As the rules say; the datagram is the last of the history."""
        fates = self.history[-1].fates
        arrivals = super().carry(source, target, datagram, now, rng)
        fates[target] = "" if arrivals else "cut"
        rules = [rule for rule in self.rules if arrivals
                 and rule.is_about(source, target, self.history[-1])]
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


class ScriptedLinks(Links):
    """Without chance: a link is made at once, the first in the list of members knows
    first, the other one delay later. One that a script breaks is made anew when it says
    so, and `blind` ends do not notice before."""

    def __init__(self, cluster: "ScriptedCluster") -> None:
        super().__init__(cluster, Random(0))
        self.again = self.lag = 0
        self.blind: set[int] = set()

    def sever(self, a: str, b: str, again: int, lag: int, blind: set[int]) -> None:
        """The connection between two members breaks; after `again` there is a new one,
        which the second of them in the list hears of `lag` later than the first."""
        self.again, self.lag, self.blind = again, lag, blind
        broken = self.num_broken
        self.break_link(a, b)
        self.again, self.blind = 0, set()
        assert self.num_broken > broken

    def until_tried(self) -> int:
        return self.again or MS

    def in_order(self, a: Member, b: Member) -> tuple[Member, Member]:
        names = self.cluster.names
        return (a, b) if names.index(a.name) < names.index(b.name) else (b, a)

    def until_known(self) -> int:
        return max(self.lag, self.cluster.network.delay[0])

    def notices(self, end: int) -> bool:
        return end not in self.blind


class ScriptedProducer(Producer):
    """Sends messages one by one: when one finds no room, all behind it wait, as a thread
    waits in send().

    `refused` has the messages to single members that were not sent, because nobody
    takes them.
    """

    def __init__(self, member: Member, threads: int, former: Producer | None) -> None:
        super().__init__(member, threads, former)
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


class Recorder(Observer):
    """Writes the history."""

    def __init__(self, cluster: Cluster, history: list[Sent]) -> None:
        self.cluster, self.history = cluster, history

    def sent(self, member: Member, dest: int, datagram: bytes) -> None:
        header = wire.open_datagram(datagram, member.stack.group)
        assert header is not None           # a member of this group made it
        kind = member.stack.kind(header.kind)
        to = ANY if dest == EVERYONE else self.cluster.incarnations[dest].name
        said = connection_of(kind, datagram)
        self.history.append(Sent(self.cluster.now, member.name, to, kind, kind.ranges(datagram),
                                 datagram, said))


class ScriptedCluster(Cluster):
    """The group; datagrams take `delay` nanoseconds."""

    member_type = ScriptedMember
    links: ScriptedLinks | None

    def __init__(self, names: Sequence[str], *, delay: int, **options: Any) -> None:
        self.script = ScriptedNetwork(delay)
        super().__init__(names, network=self.script, **options)
        if self.links is not None:
            self.links = ScriptedLinks(self)
        self.observer = Recorder(self, self.script.history)

    def unicast_log(self, sender: Member, receiver: Address) -> UnicastLog:
        return sender.producer.unicast_logs.setdefault(receiver, UnicastLog(base=(sender.offset + 1) % MODULUS))

    def kinds(self) -> set[str]:
        """Return the names of all kinds that the members' stacks know."""
        return {kind.name for member in self.incarnations.values()
                for kind in member.stack.kinds.values()}

    def is_at_rest(self) -> bool:
        """Whether nothing happens any more, but that idle connections will be closed
        some day."""
        if self.events and self.events[0][0] <= self.now + AT_REST:
            return False
        return all(member.stack.deadline() == member.unicast.context.next_reap for member in self.living())
