"""A group in a simulation: one clock, one queue of events, one seed; a run is a
function of the arguments and of what is called."""

import heapq
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Self
from zlib import crc32

from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.errors import MessageTooLargeError
from ringcast.protocols.seqnos import precedes
from ringcast.sim.checkers import Checkers
from ringcast.sim.links import Links
from ringcast.sim.member import Member
from ringcast.sim.network import MS, Network
from ringcast.sim.unicast_log import UnicastLog
from ringcast.stacks import STACKS
from ringcast.view import View


class Observer:
    """What a cluster tells whoever watches it: override what is wanted."""

    def sent(self, member: Member, dest: int, datagram: bytes) -> None:
        """A member put a datagram on the network."""

    def delivered(self, member: Member, batch: Batch) -> None:
        """An application was handed a batch."""

    def viewed(self, member: Member, view: View) -> None:
        """A member installed a view."""

    def after_turn(self, member: Member) -> None:
        """A member has had a turn."""

    def blocked_for(self, member: Member, dest: Address | None, nanoseconds: int) -> None:
        """A member has sent what found no room before, to everybody or to one; how long
        it waited."""


class Cluster:
    """`names` lists the group, in an order that each incarnation draws anew; `stack` is
    a channel's; keywords that are no arguments here are properties of every member's
    stack, or arguments of Member.

    `cluster["A"]` is the present incarnation of member A, `incarnations` all
    incarnations by incarnation; `observer` is told what happens. `fingerprint` is a
    number that two runs share only if they were the same.
    """

    member_type: type[Member] = Member             # what a start makes

    def __init__(self, names: Sequence[str], *, seed: int | str = 0, network: Network | None = None,
                 stack: str = "mcast-udp",
                 **options: Any) -> None:
        self.names = tuple(names)
        self.stack = stack
        self.rng = Random(f"{seed} members")  # one source each, so that a fault more does not
                                              # change the load
        self.thread_rng = Random(f"{seed} threads")
        self._network_rng = Random(f"{seed} network")
        self._lists_rng = Random(f"{seed} lists")
        self.network = network or Network()
        self.links = Links(self, Random(f"{seed} links")) if STACKS[stack].is_lossless else None
        of_members = ("receive_budget", "socket_bytes", "turn_time", "threads")
        self.member_options = {key: options.pop(key) for key in of_members if key in options}
        self.options: dict[str, Any] = options
        self.checkers = Checkers(self)
        self.observer = Observer()
        self.now = 0
        self.fingerprint = 0
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.num_events = 0                             # put in the queue
        self.num_done = 0                               # taken out of it
        self.sent_datagrams = 0
        self.members: dict[str, Member] = {}
        self.incarnations: dict[int, Member] = {}
        self._bound: dict[str, Member] = {}             # who receives at an address

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def start(self, *names: str, **options: Any) -> Self:
        """Start these members, or all: a new incarnation of each, while a former one
        may be dead or alive."""
        for name in names or self.names:
            member = self.member_type(self, name, **(self.member_options | options))
            if member.incarnation in self.incarnations:
                self.checkers.came_back(member)
            self.members[name] = self.incarnations[member.incarnation] = member
            self._bound[member.physical] = member
            if self.links is not None:
                self.links.born(member)
            member.start()
        return self

    def listed(self) -> tuple[str, ...]:
        """Return the group's names in the order in which a new incarnation lists
        them."""
        return tuple(self._lists_rng.sample(self.names, len(self.names)))

    def unbind(self, member: Member) -> None:
        if self._bound.get(member.physical) is member:
            del self._bound[member.physical]
        if self.links is not None:
            self.links.died(member)

    def unicast_log(self, sender: Member, receiver: Address) -> UnicastLog:
        """What an incarnation has to say to one other incarnation."""
        return sender.producer.unicast_logs.setdefault(receiver, UnicastLog())

    def living(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive]

    # -------------------------------------------------------------------------------------- network

    def put(self, source: Member, packets: Sequence[tuple[int, bytes]]) -> None:
        """On the wire: a multicast to whoever is there, anything else to the address
        that the source knows."""
        for dest, datagram in packets:
            self.fingerprint = crc32(datagram, self.fingerprint ^ (self.now & 0xFFFFFFFF))
            if len(datagram) > source.config.max_datagram:
                raise MessageTooLargeError(f"{source.name} sends {len(datagram)} bytes at once, as no transport would take them")
            self.checkers.sent(source, datagram)
            self.observer.sent(source, dest, datagram)
            if self.links is not None:
                for target in self.links.partners(source):
                    if dest in (EVERYONE, target.incarnation):
                        self.sent_datagrams += 1
                        self.links.carry(source, target, datagram)
            elif dest == EVERYONE:
                leaves = self.network.leaves(source.name, len(datagram), self.now)
                for target in list(self._bound.values()):
                    if target is not source:
                        self._carry(source, target.physical, target.name, datagram, leaves)
            elif dest in source.transport.routes:
                physical = source.transport.routes[dest]
                name = self._bound[physical].name if physical in self._bound else physical
                self._carry(source, physical, name, datagram,
                            self.network.leaves(source.name, len(datagram), self.now))

    def _carry(self, source: Member, physical: str, name: str, datagram: bytes, leaves: int) -> None:
        self.sent_datagrams += 1
        for instant, arriving in self.carried(source.name, name, datagram, leaves):
            self.at(instant, self._arrive, physical, arriving)

    def carried(self, source: str, target: str, datagram: bytes, leaves: int) -> list[tuple[int,
                                                                                            bytes]]:
        """What arrives of a datagram that leaves its sender at this instant, and
        when."""
        return self.network.carry(source, target, datagram, leaves, self._network_rng)

    def _arrive(self, physical: str, datagram: bytes) -> None:
        target = self._bound.get(physical)
        if target is not None:
            target.arrive(datagram)

    # ----------------------------------------------------------------------------------------- time

    def at(self, instant: int, do: Callable[..., None], *arguments: Any) -> None:
        """Call `do` at that time of the simulation; events of one instant happen in the
        order in which they were asked for."""
        self.num_events += 1
        heapq.heappush(self.events, (instant, self.num_events, do, arguments))

    def run_until(self, end: int, events: int | None = None) -> bool:
        """Let the time pass until the instant `end`, or until that many events have
        happened; whether it came to the end."""
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
        self.run_until(self.now + int(milliseconds * MS))

    def settle(self, milliseconds: float = 5_000) -> None:
        """Run until nothing happens any more; it must come to that within the time
        (quiescence)."""
        end = self.now + int(milliseconds * MS)
        while not self.is_at_rest() and self.now < end:
            self.run(10)
        if not self.is_at_rest():
            self.checkers.violated("quiescence",
                                   f"the group does not come to rest within {milliseconds:g} ms")

    def is_at_rest(self) -> bool:
        """Whether nothing happens any more."""
        return not self.events

    def heal(self) -> None:
        """The end of all faults of the network and of all pauses; who is dead stays
        dead."""
        self.network.heal()
        for member in self.living():
            member.transport.send_full = 0.0
            member.end_pause()

    def delivered(self) -> int:
        """Messages that applications were handed, in all incarnations."""
        to_all = sum(len(payloads) - payloads.count(None) for member in self.incarnations.values()
                     for payloads in member.consumer.got.values())
        return to_all + sum(member.unicast.counters.unicast_msgs_delivered
                            for member in self.incarnations.values())

    def owed(self) -> str | None:
        """What is still to come, in a sentence: a sender without room, a message not
        delivered, an ack; or None when all is done."""
        living = self.living()
        for member in living:
            if not member.views:
                return f"{member.name} has no view"
            if member.views[-1] != living[0].views[-1]:
                return f"{member.name} has the view {member.views[-1]} and {living[0].name} has {living[0].views[-1]}"
            if waiting := member.producer.multicasts.waiting:
                return f"{member.name} is blocked: it has {len(waiting)} messages to send and no room"
            if member.multicast.unacked():
                return f"{member.name} has {member.multicast.unacked()} messages that are not acknowledged"
            if member.unicast.num_unacked():
                return f"{member.name} has {member.unicast.num_unacked()} messages to single members that are not acknowledged"
        for sender in living:
            for receiver in living:
                if receiver.receiving and sender.address in receiver.views[-1]:
                    got = self.checkers.finished(receiver, sender)
                    if got is None or precedes(got, sender.last):
                        return f"{receiver.name} has {sender.name}'s messages up to {got}, of {sender.last}"
        return self._owed_to_single_members()

    def _owed_to_single_members(self) -> str | None:
        for sender in self.living():
            for address, log in sender.producer.unicast_logs.items():
                if log.backlog:
                    return f"{sender.name} is blocked: it has {len(log.backlog)} messages to {address} and no room"
                receiver = self.incarnations[address.incarnation]
                if receiver.alive and receiver.receiving and (missing := log.missing()):
                    return f"{receiver.name} was not given {len(missing)} messages that {sender.name} sent to it, from {missing[0]} on"
        return None
