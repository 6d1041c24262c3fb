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
from ringcast.sim.links import Links
from ringcast.sim.member import Member
from ringcast.sim.network import MS, Network
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


class ScriptedMember(Member):
    """Its application sends messages one by one, and waits, as a thread does that is
    blocked in send().

    Messages to one other member carry their numbers, as those to everybody do: 1, 2, 3
    (or from the offset on), through all connections. What this member got of such is in
    `unicast_received`, in the order of delivery; what it has in hand, in `outstanding`.
    """

    def __init__(self, cluster: "ScriptedCluster", name: str, **options: Any) -> None:
        super().__init__(cluster, name, **options)
        self.unicast_received: dict[Address, list[int]] = {}
        self.outstanding: list[Batch] = []
        self.refused: dict[Address, list[int]] = {}  # what it could not send, because there is
                                                     # nobody to take it

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

    # -------------------------------------------------------------------------- to one other member

    def submit_unicast(self, dest: Address, numbers: Sequence[int], is_oob: bool) -> None:
        """Send these to one member, in order; what has no room waits for it."""
        log = self.cluster.unicast_log(self, dest)
        waited = bool(log.backlog)
        log.backlog += [(b"%d" % number, int(Flag.OOB) if is_oob else 0) for number in numbers]
        if not waited:
            self._push_to(dest, self.clock.read(self.cluster.now))
        self.turn()

    def _push_to(self, dest: Address, now: Instant) -> None:
        log = self.unicast_logs[dest]
        waiting, log.backlog = log.backlog, []
        while waiting and not log.backlog:
            sent, message = len(log.sent), waiting.pop(0)
            log.backlog = [message]
            super()._push_to(dest, now)
            if not log.backlog and len(log.sent) == sent:
                self.refused.setdefault(dest, []).append(int(message[0]))
        log.backlog += waiting

    def _take(self, batch: Batch, now: Instant) -> None:
        if batch.dest is not None:
            self.unicast_received.setdefault(batch.sender, []).extend(map(int, batch.payloads))
            self.outstanding.append(batch)
        super()._take(batch, now)

    def _finish(self, batch: Batch, now: Instant) -> None:
        if batch.dest is not None:
            self._drop_and_resync(batch)
        super()._finish(batch, now)

    def _drop_and_resync(self, batch: Batch) -> None:
        """Of the batches in hand, take out what is finished: one of them, or the
        beginning of one."""
        for place, each in enumerate(self.outstanding):
            if each.stream is batch.stream and each.flags == batch.flags and each.first == batch.first:
                rest = Batch(each.sender, (batch.last + 1) % MODULUS, each.payloads[len(batch):],
                             each.view_id, each.dest,
                             each.flags, each.stream)
                self.outstanding[place:place + 1] = [rest] if rest.payloads else []
                return


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
        return sender.unicast_logs.setdefault(receiver, UnicastLog(base=(sender.offset + 1) % MODULUS))

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
