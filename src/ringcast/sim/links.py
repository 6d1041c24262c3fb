"""Connections in a simulation: between two link events a link loses nothing and keeps
the order, as transport/tcp/transport.py promises.

Each pair of incarnations has a link. It breaks when one of them dies, when the network
between them is cut, and when a fault says so; what was on its way is lost then, and so
is what an end sends that has not noticed. As soon as there is a way again there is a
new one: one end knows of it first, and what it sends at once reaches the other just
after that has been told.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from ringcast.sim.network import MS

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member

AGAIN = 20 * MS     # until a broken link is tried again, at most; and again, while there is no way


@dataclass(slots=True)
class End:
    """One side of a link; `number` is of the link that this side believes in, 0 for
    none."""

    number: int = 0
    arrives: int = 0                                    # when the last datagram to this side does
    waiting: deque[bytes] = field(default_factory=deque)    # what this side does not read for now


@dataclass(slots=True)
class Link:
    number: int = 0                     # of the connection that stands, or of the last one that did
    stands: bool = False
    ends: dict[int, End] = field(default_factory=dict)  # by incarnation


class Links:
    """All links of a cluster."""

    def __init__(self, cluster: "Cluster", rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.links: dict[frozenset[int], Link] = {}
        self.num_broken = 0

    def born(self, member: "Member") -> None:
        """A new incarnation: everybody who is alive will have a link to it."""
        for other in self.cluster.living():
            if other is not member:
                self.links[frozenset((member.incarnation, other.incarnation))] = Link(
                    ends={member.incarnation: End(), other.incarnation: End()})
                self._try_soon(member, other)

    def died(self, member: "Member") -> None:
        """Its links are gone, and the others will find out."""
        for pair in [pair for pair in self.links if member.incarnation in pair]:
            self.links.pop(pair).stands = False

    def partners(self, member: "Member") -> list["Member"]:
        """To whom it believes to have a link."""
        incarnations = self.cluster.incarnations
        return [incarnations[end] for pair, link in self.links.items() if member.incarnation in pair
                and link.ends[member.incarnation].number
                for end in pair - {member.incarnation}]

    # -------------------------------------------------------------------------- making and breaking

    # What chance decides; a script overrides these.

    def until_tried(self) -> int:
        """Nanoseconds until two who have no link try to make one."""
        return MS + int(self.rng.random() * AGAIN)

    def in_order(self, a: "Member", b: "Member") -> tuple["Member", "Member"]:
        """Of a new link, who knows first."""
        return (a, b) if self.rng.random() < 0.5 else (b, a)

    def until_known(self) -> int:
        """Nanoseconds until the other end of a new link knows as well."""
        return int(self.rng.random() * 2 * self.cluster.network.delay[1])

    def notices(self, end: int) -> bool:
        """Whether this end of a link that breaks knows at once."""
        return self.rng.random() < 0.5

    def _try_soon(self, a: "Member", b: "Member") -> None:
        self.cluster.at(self.cluster.now + self.until_tried(), self._try, a, b)

    def _try(self, a: "Member", b: "Member") -> None:
        link = self.links.get(frozenset((a.incarnation, b.incarnation)))
        if link is None or link.stands:
            return
        if {(a.name, b.name), (b.name, a.name)} & self.cluster.network.cut:
            self._try_soon(a, b)
            return
        link.number += 1
        link.stands = True
        first, second = self.in_order(a, b)
        later = self.cluster.now + self.until_known()
        link.ends[second.incarnation].arrives = later   # before anything that the first sends
        self.cluster.at(later, self._tell, second, first, link.number)
        self._tell(first, second, link.number)

    def _tell(self, member: "Member", other: "Member", number: int) -> None:
        """One end knows of the new link."""
        link = self.links.get(frozenset((member.incarnation, other.incarnation)))
        if link is not None and link.number == number and link.stands:
            end = link.ends[member.incarnation]
            end.number, end.waiting = number, deque()
            end.arrives = max(end.arrives, self.cluster.now)
            member.linked(other.incarnation)

    def break_link(self, a: str, b: str) -> None:
        """The connection between the present incarnations of these two breaks; one end
        may notice late."""
        members = [self.cluster.members[name] for name in (a, b) if name in self.cluster.members]
        if len(members) < 2:
            return
        link = self.links.get(frozenset(member.incarnation for member in members))
        if link is not None and link.stands:
            self.num_broken += 1
            link.stands = False
            for incarnation, end in link.ends.items():
                end.waiting.clear()
                if self.notices(incarnation):
                    end.number = 0
            self._try_soon(*members)

    def break_all_cut(self) -> None:
        """What the network does not carry any more, breaks."""
        for a, b in sorted(self.cluster.network.cut):
            self.break_link(a, b)

    # ------------------------------------------------------------------------------------- carrying

    def carry(self, source: "Member", target: "Member", datagram: bytes) -> None:
        """One datagram from one incarnation to another, behind all that was sent before
        it."""
        link = self.links.get(frozenset((source.incarnation, target.incarnation)))
        if link is None or not link.ends[source.incarnation].number:
            return
        number = link.ends[source.incarnation].number
        end = link.ends[target.incarnation]
        leaves = self.cluster.network.leaves(source.name, len(datagram), self.cluster.now)
        for instant, arriving in self.cluster.carried(source.name, target.name, datagram, leaves):
            if link.stands and link.number == number:
                end.arrives = instant = max(instant, end.arrives)
            self.cluster.at(instant, self._arrive, link, number, target, arriving,
                            source.incarnation)

    def _arrive(self, link: Link, number: int, target: "Member", datagram: bytes,
                source: int) -> None:
        end = link.ends[target.incarnation]
        if link.stands and link.number == number == end.number:
            if source in target.transport.held or end.waiting:
                end.waiting.append(datagram)
            else:
                target.arrive(datagram)

    def read_again(self, member: "Member") -> None:
        """It holds fewer than before."""
        for pair, link in self.links.items():
            if member.incarnation in pair:
                end = link.ends[member.incarnation]
                source = next(iter(pair - {member.incarnation}))
                while end.waiting and source not in member.transport.held:
                    member.arrive(end.waiting.popleft())
