"""A simulated group: one clock, one queue of events, one seed. What it does depends on
its arguments and on the calls alone."""

import heapq
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.config import configure, own_options
from ringcast.errors import MessageTooLargeError
from ringcast.protocols.seqnos import precedes
from ringcast.secret import require_cryptography
from ringcast.sim.checkers import Checkers
from ringcast.sim.deaths import Deaths
from ringcast.sim.links import Links
from ringcast.sim.member import Member
from ringcast.sim.network import MS, Network
from ringcast.sim.stranger import Stranger
from ringcast.sim.unicast_log import UnicastLog
from ringcast.stack import Installed
from ringcast.stacks import STACKS
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.former import Former
    from ringcast.sim.pretender import Pretender
    from ringcast.sim.sealing import Sealing


class Observer:
    """Is told what happens in a cluster. Subclasses override what they need."""

    def sent(self, member: Member, dest: int, datagram: bytes) -> None:
        """Note that a member put a datagram on the network."""

    def delivered(self, member: Member, batch: Batch) -> None:
        """Note that a batch was delivered to an application."""

    def installed(self, member: Member, installed: Installed) -> None:
        """Note that the layers of a member installed a view that was agreed on."""

    def viewed(self, member: Member, view: View) -> None:
        """Note that the application of a member was shown a view."""

    def after_turn(self, member: Member) -> None:
        """Note that a member has taken a turn."""

    def blocked_for(self, member: Member, dest: Address | None, nanoseconds: int) -> None:
        """Note how long messages to `dest` (None: to everybody) waited for room."""


class Cluster:
    """`names` are the members of the group, which find each other. `stack` is the name
    of a stack. All other keywords are options of every member's stack, or arguments of
    Member; options that this stack does not have are left out.

    In a `sealed` group datagrams are sealed; the secret, and all that is random, come
    from the seed. A stranger and former members listen (stranger.py, former.py). In a
    `trusted` one, members have keys instead of a secret, and pretenders try to be
    members (pretender.py).

    So often in 100 a member sends something `between` two fragments of a large message,
    where it may.

    If it `refuses`, members learn soon that a datagram went to a process that is gone,
    as over sockets.

    `cluster["A"]` is the present incarnation of member A; `incarnations` has all that
    there were; `observer` is told what happens. Two runs have the same `fingerprint`
    only if they are the same.
    """

    member_type: type[Member] = Member  # what start() makes

    def __init__(self, names: Sequence[str], *, seed: int | str = 0, network: Network | None = None,
                 stack: str = "mcast-udp", refuses: bool = False, sealed: bool = False,
                 trusted: bool = False, between: int = 0, **options: Any) -> None:
        self.names = tuple(names)
        self.stack = stack
        self.refuses = refuses
        self.num_refusals = 0
        # Each has a random source of its own: one more fault does not change the load.
        self.rng = Random(f"{seed} members")
        self.thread_rng = Random(f"{seed} threads")
        self.between, self._between_rng = between, Random(f"{seed} between")
        self._network_rng = Random(f"{seed} network")
        self.sealing: Sealing | None = None
        self.stranger: Stranger | None = None
        self.former: Former | None = None
        self.pretenders: list[Pretender] = []
        sealed = sealed or trusted
        if sealed:
            self.stranger = Stranger(self, Random(f"{seed} stranger"))
        self.network = network or Network()
        self.links = Links(self, Random(f"{seed} links"), Random(f"{seed} control")) if (
            STACKS[stack].is_lossless) else None
        of_members = ("receive_budget", "send_budget", "socket_bytes", "turn_time", "threads")
        self.member_options = {key: options.pop(key) for key in of_members if key in options}
        self.options: dict[str, Any] = own_options(options, stack)
        if sealed:
            require_cryptography("a sealed group")
            from ringcast.sim import former, pretender, sealing

            self.sealing = sealing.Sealing(seed, configure(self.options, stack).cipher,
                                           names if trusted else None)
            self.former = former.Former(self, self.sealing, Random(f"{seed} former"))
        self.checkers = Checkers(self)
        self.deaths = Deaths(self)
        self.observer = Observer()
        self.now = 0
        self.fingerprint = 0
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.num_events = 0                             # that were put into the queue
        self.num_done = 0                               # that were taken out of it
        if sealed and trusted:
            self.pretenders = pretender.both(self, Random(f"{seed} pretenders"))
        self.sent_datagrams = 0
        self.members: dict[str, Member] = {}
        self.incarnations: dict[int, Member] = {}
        self._bound: dict[str, Member] = {}             # the member at an address
        self._died: dict[str, Member] = {}              # the last one that died there

    def sends_between(self) -> bool:
        """Draw whether a member sends something between two fragments now."""
        return self.between > 0 and self._between_rng.random() * 100 < self.between

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def start(self, *names: str, **options: Any) -> Self:
        """Start a new incarnation of these members, or of all. A former one may still
        be alive."""
        for name in names or self.names:
            member = self.member_type(self, name, **(self.member_options | options))
            self.members[name] = self.incarnations[member.incarnation] = member
            self._bound[member.physical] = member
            if self.links is not None:
                self.links.born(member)
            member.start()
        return self

    def unbind(self, member: Member) -> None:
        """Take a member that died off the network."""
        if self._bound.get(member.physical) is member:
            del self._bound[member.physical]
            self._died[member.physical] = member
        if self.links is not None:
            self.links.died(member)

    def unicast_log(self, sender: Member, receiver: Address) -> UnicastLog:
        """Return the log of messages from one incarnation to another."""
        return sender.producer.unicast_logs.setdefault(receiver, UnicastLog())

    def living(self) -> list[Member]:
        """Return the members that are alive."""
        return [member for member in self.members.values() if member.alive]

    # -------------------------------------------------------------------------------------- network

    def put(self, source: Member, packets: Sequence[tuple[int, bytes]]) -> None:
        """Put datagrams on the wire: a multicast to all that are there, others to the
        address that the source knows."""
        for dest, datagram in packets:
            self.fingerprint = crc32(datagram, self.fingerprint ^ (self.now & 0xFFFFFFFF))
            if len(datagram) > source.config.max_datagram:
                raise MessageTooLargeError(f"{source.name} sends {len(datagram)} bytes at once, "
                                           "which no transport takes")
            trap = self.deaths.sprung(source, datagram)
            if trap is None or trap.is_after:
                self._put_one(source, dest, datagram)
            if trap is not None:
                # What is out on a connection still arrives.
                source.crash(lingers=2 * self.network.delay[1] if self.links is not None else 0)
                return

    def _put_one(self, source: Member, dest: int, datagram: bytes) -> None:
        self.checkers.sent(source, datagram)
        self.observer.sent(source, dest, datagram)
        if self.links is None and not self.network.has_room(source.name, len(datagram), self.now):
            source.transport.num_unsent += 1
            return
        sealed = source.transport.sealed(dest, datagram)
        if self.former is not None:
            self.former.hear(source, datagram, sealed)
        self.send(source, dest, sealed)

    def send(self, source: Member, dest: int, datagram: bytes) -> None:
        """Carry a datagram as it is on the wire, sealed if the group is."""
        if self.stranger is not None:
            self.stranger.hear(datagram)
        for pretender in self.pretenders:
            pretender.hear(source, datagram)
        if self.links is not None:
            for target in self.links.partners(source):
                if dest in (EVERYONE, target.incarnation):
                    self.sent_datagrams += 1
                    self.links.carry(source, target, datagram)
            if self.refuses:
                self._refuse_dials(source, dest)
            return
        if dest == EVERYONE:
            leaves = self.network.leaves(source.name, len(datagram), self.now)
            for target in list(self._bound.values()):
                if target is not source:
                    self._carry(source, target.physical, target.name, datagram, leaves)
        elif (physical := source.transport.routes.get(dest)) is not None:
            name = self._bound[physical].name if physical in self._bound else physical
            leaves = self.network.leaves(source.name, len(datagram), self.now)
            self._carry(source, physical, name, datagram, leaves)

    def _carry(self, source: Member, physical: str, name: str, datagram: bytes,
               leaves: int) -> None:
        self.sent_datagrams += 1
        for instant, arriving in self.carried(source.name, name, datagram, leaves):
            self.at(instant, self._arrive, source, physical, arriving)

    def carried(self, source: str, target: str, datagram: bytes,
                leaves: int) -> list[tuple[int, bytes]]:
        """Return what arrives of a datagram that leaves its sender at this time, and
        when."""
        return self.network.carry(source, target, datagram, leaves, self._network_rng)

    def _arrive(self, source: Member, physical: str, datagram: bytes) -> None:
        target = self._bound.get(physical)
        if target is not None:
            target.arrive(datagram)
        elif self.refuses and physical in self._died:
            self.refuse_soon(source, self._died[physical])

    def _refuse_dials(self, source: Member, dest: int) -> None:
        """Let a member notice that it can connect no more to members of its routes that
        died, when it sends something to them."""
        for member in source.transport.routes:
            if dest in (EVERYONE, member) and (target := self.incarnations.get(member)):
                self.refuse_soon(source, target)

    def refuse_soon(self, source: Member, dead: Member) -> None:
        """Tell a member that another one is gone, after the delay of the link, if it is
        so. A link that is cut carries no such news."""
        link = {(source.name, dead.name), (dead.name, source.name)}
        if not dead.alive and not link & self.network.cut:
            self.at(self.now + self.network.delay[1], self._refuse, source, dead)

    def _refuse(self, source: Member, dead: Member) -> None:
        """Tell a member of each incarnation in its routes that died where that one
        was."""
        for member, physical in source.transport.routes.items():
            target = self.incarnations.get(member)
            if physical == dead.physical and target is not None and not target.alive:
                self.num_refusals += 1
                source.refused(member)

    # ----------------------------------------------------------------------------------------- time

    def at(self, instant: int, do: Callable[..., None], *arguments: Any) -> None:
        """Call `do` at that time of the simulation. Events of one instant happen in the
        order of these calls."""
        self.num_events += 1
        heapq.heappush(self.events, (instant, self.num_events, do, arguments))

    def run_until(self, end: int, events: int | None = None) -> bool:
        """Let the time pass until `end`, or until so many events have happened; return
        whether it came to the end."""
        queue = self.events
        while queue and queue[0][0] <= end:
            if events is not None and self.num_done >= events:
                return False
            self.now, _, do, arguments = heapq.heappop(queue)
            self.num_done += 1
            do(*arguments)
        self.now = max(self.now, end)
        return True

    def run(self, milliseconds: float) -> None:
        """Let so much time pass."""
        self.run_until(self.now + int(milliseconds * MS))

    def settle(self, milliseconds: float = 5_000) -> None:
        """Run until nothing is owed. That must be so within the time (quiescence)."""
        end = self.now + int(milliseconds * MS)
        while not self.is_at_rest() and self.now < end:
            self.run(10)
        if not self.is_at_rest():
            self.checkers.violated("quiescence", "the group does not come to rest within "
                                                 f"{milliseconds:g} ms: {self.owed()}")

    def is_at_rest(self) -> bool:
        """Return whether nothing is owed. (Members exchange heartbeats for ever.)"""
        return self.owed() is None

    def heal(self) -> None:
        """End all faults of the network and all pauses. Dead members stay dead."""
        self.network.heal()
        for member in self.living():
            member.transport.send_full = 0.0
            member.end_pause()

    def delivered(self) -> int:
        """Return how many messages were delivered to applications, in all
        incarnations."""
        members = self.incarnations.values()
        to_all = sum(len(payloads) - payloads.count(None) for member in members
                     for payloads in member.consumer.got.values())
        return to_all + sum(member.unicast.counters.unicast_msgs_delivered for member in members)

    def owed(self) -> str | None:
        """Return a sentence about something that is still to happen: a sender without
        room, a message that is not delivered, an ack; None if nothing is."""
        # An observer that finishes nothing is owed nothing.
        living = [member for member in self.living() if not stands_still(member)]
        for member in living:
            name, view = member.name, member.views[-1] if member.views else None
            if view is None:
                return f"{name} has no view"
            if view != living[0].views[-1]:
                return f"{name} has the view {view} and {living[0].name} has {living[0].views[-1]}"
            if owed := self._owed_to_view(member, view):
                return owed
            if member.multicast.observing is not None and member.multicast.observing.untold:
                return f"{name} was not told what it missed"
            if member.multicast.announcing.owes_observers():
                return f"{name} repeats the end of its stream for observers"
            if waiting := member.producer.multicasts.backlog:
                return f"{name} is blocked: it has {len(waiting)} messages to send and no room"
            if count := member.multicast.unacked():
                return f"{name} has {count} messages that are not acknowledged"
            if count := sum(entry.num_unacked() for peer, entry in member.unicast.senders.items()
                            if not stands_still(self.incarnations[peer])):
                return f"{name} has {count} messages to single members that are not acknowledged"
        for sender in living:
            for receiver in living:
                if receiver.receiving and sender.address in receiver.views[-1]:
                    got = self.checkers.finished(receiver, sender)
                    if got is None or precedes(got, sender.last):
                        return (f"{receiver.name} has {sender.name}'s messages up to {got}, of "
                                f"{sender.last}")
        return self._owed_to_single_members()

    def _owed_to_view(self, member: Member, view: View) -> str | None:
        """Return a sentence about something that the present view still lacks."""
        there = {each.address for each in self.living()}
        if set(view.members) != there:
            return (f"{member.name} has the view {view}; there are "
                    f"{', '.join(sorted(map(str, there)))}")
        if member.view_filter.whole != view:
            return f"{member.name} is not shown {member.view_filter.whole}, which is installed"
        if not member.members.agreed():
            return f"{member.name} does not know that all are complete in {view}"
        return member.replica.owed() if member.replica is not None else None

    def _owed_to_single_members(self) -> str | None:
        for sender in self.living():
            for address, log in sender.producer.unicast_logs.items():
                if stands_still(self.incarnations[address.incarnation]):
                    continue
                if log.backlog:
                    return (f"{sender.name} is blocked: it has {len(log.backlog)} messages to "
                            f"{address} and no room")
                receiver = self.incarnations[address.incarnation]
                if receiver.alive and receiver.receiving and (missing := log.missing()):
                    return (f"{receiver.name} did not get {len(missing)} messages that "
                            f"{sender.name} sent to it, from {missing[0]} on")
        return None


def stands_still(member: Member) -> bool:
    """Return whether a member observes, and its application finishes nothing."""
    return member.observes and member.consumer.finish_after is None
