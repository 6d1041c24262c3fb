"""Simulated connections. As transport/tcp/transport.py promises, a connection loses
nothing and keeps the order until it breaks.

Each pair of incarnations has a link. Its connection breaks when one of them dies, when
the network between them is cut, and when a fault says so. Then what was on its way is
lost, and also what an end sends that has not noticed the break. As soon as the network
allows it there is a new connection, unless a fault says that the first dial gets lost.
One end knows of it first; what it sends at once reaches the other end just after that
one knows too. That a connection broke is no news for anybody: only a dial that is
refused shows that a process is gone.

Soon after a link is there it has a second connection, for control, which overtakes
messages: these may wait in buffers. That connection may break alone; then the control
on its way is lost.
"""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from ringcast.sim.network import MS
from ringcast.stacks import control_of

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member

AGAIN = 20 * MS     # longest time between two attempts to connect
LONGEST_DIAL = MS + AGAIN        # until two members try to connect
BUFFERED = (0, 0, MS, 5 * MS, 20 * MS)  # for how long messages wait in buffers, at most
CONTROL_BREAKS = 0.002  # the probability that a datagram breaks the connection for control
KIND_AT = 3         # where the kind is in a datagram


@dataclass(slots=True)
class LinkEnd:
    """One side of a link. `number` is the connection that this side believes to have, 0
    for none."""

    number: int = 0
    arrives: int = 0                    # when the last datagram arrives here
    control_arrives: int = 0            # when the last one over the connection for control does
    buffered: int = 0                   # for how long messages to here wait in buffers


@dataclass(slots=True)
class SimulatedLink:
    """The connections between two incarnations, of which one at a time stands."""

    number: int = 0                     # of the present or the last connection
    stands: bool = False
    controls: int = 0                   # connections for control that there were
    control_at: int = 0                 # from when on the present one is there
    ends: dict[int, LinkEnd] = field(default_factory=dict)  # by incarnation


class Links:
    """All links of a cluster."""

    def __init__(self, cluster: "Cluster", rng: Random, control_rng: Random) -> None:
        self.cluster = cluster
        self.rng, self.control_rng = rng, control_rng
        self.links: dict[frozenset[int], SimulatedLink] = {}
        self.num_broken = 0
        self.num_overtaken = 0          # control datagrams that came before a message
        self.num_control_broken = 0

    def born(self, member: "Member") -> None:
        """Give a new incarnation a link to every member that is alive."""
        for other in self.cluster.living():
            if other is not member:
                pair = (member.incarnation, other.incarnation)
                self.links[frozenset(pair)] = SimulatedLink(ends={end: LinkEnd() for end in pair})
                self._try_soon(member, other)

    def died(self, member: "Member") -> None:
        """Remove the links of a member that died. If its connections stood, the others
        dial at once, and a group that refuses lets them notice; else they notice at
        some time."""
        for pair in [pair for pair in self.links if member.incarnation in pair]:
            link = self.links.pop(pair)
            other, = pair - {member.incarnation}
            if link.stands and self.cluster.refuses:
                self.cluster.refuse_soon(self.cluster.incarnations[other], member)
            link.stands = False

    def partners(self, member: "Member") -> list["Member"]:
        """Return the members to which it believes to have a connection."""
        incarnations = self.cluster.incarnations
        return [incarnations[end] for pair, link in self.links.items() if member.incarnation in pair
                and link.ends[member.incarnation].number
                for end in pair - {member.incarnation}]

    # ------------------------------------------------------------------------- what chance decides

    # A script overrides these.

    def until_tried(self) -> int:
        """Return the nanoseconds until two members try to connect."""
        return MS + int(self.rng.random() * AGAIN)

    def in_order(self, a: "Member", b: "Member") -> tuple["Member", "Member"]:
        """Return the two members in the order in which they know of a connection."""
        return (a, b) if self.rng.random() < 0.5 else (b, a)

    def until_known(self) -> int:
        """Return the nanoseconds until the second member knows of a connection."""
        return int(self.rng.random() * 2 * self.cluster.network.delay[1])

    def notices(self, end: int) -> bool:
        """Return whether this end of a connection notices at once that it breaks."""
        return self.rng.random() < 0.5

    def until_control(self) -> int:
        """Return the nanoseconds until a link has a connection for control."""
        return int(self.control_rng.random() * AGAIN)

    def buffers(self) -> int:
        """Return for how long messages wait in the buffers of a link."""
        return int(self.control_rng.random() * self.control_rng.choice(BUFFERED))

    def control_breaks(self) -> bool:
        """Return whether a connection for control breaks now."""
        return self.control_rng.random() < CONTROL_BREAKS

    # ------------------------------------------------------------------------ making and breaking

    def _try_soon(self, a: "Member", b: "Member") -> None:
        self._try_after(self.until_tried(), a, b)

    def _try_after(self, nanoseconds: int, a: "Member", b: "Member") -> None:
        self.cluster.at(self.cluster.now + nanoseconds, self._try, a, b)

    def _try(self, a: "Member", b: "Member") -> None:
        """Connect two members, or try again soon if the network is cut."""
        link = self.links.get(frozenset((a.incarnation, b.incarnation)))
        if link is None or link.stands:
            return
        if {(a.name, b.name), (b.name, a.name)} & self.cluster.network.cut:
            self._try_soon(a, b)
            return
        link.number += 1
        link.stands = True
        link.controls += 1
        link.control_at = self.cluster.now + self.until_control()
        for end in link.ends.values():
            end.buffered = self.buffers()
        first, second = self.in_order(a, b)
        later = self.cluster.now + self.until_known()
        link.ends[second.incarnation].arrives = later   # before anything that the first sends
        self.cluster.at(later, self._tell, second, first, link.number)
        self._tell(first, second, link.number)

    def _tell(self, member: "Member", other: "Member", number: int) -> None:
        """Let one end know of the new connection."""
        link = self.links.get(frozenset((member.incarnation, other.incarnation)))
        if link is not None and link.number == number and link.stands:
            end = link.ends[member.incarnation]
            end.number = number
            end.arrives = max(end.arrives, self.cluster.now)
            member.linked(other.incarnation)

    def break_link(self, a: str, b: str, lasts: int = 0) -> None:
        """Break the connection between the present incarnations of these two. One end
        may notice it late. They connect again after `lasts` nanoseconds, 0: soon."""
        members = [self.cluster.members[name] for name in (a, b) if name in self.cluster.members]
        if len(members) < 2:
            return
        link = self.links.get(frozenset(member.incarnation for member in members))
        if link is not None and link.stands:
            self.num_broken += 1
            link.stands = False
            for incarnation, end in link.ends.items():
                if self.notices(incarnation):
                    end.number = 0
            self._try_after(lasts or self.until_tried(), *members)

    def break_all_cut(self) -> None:
        """Break the connections over links of the network that are cut."""
        for a, b in sorted(self.cluster.network.cut):
            self.break_link(a, b)

    # ------------------------------------------------------------------------------------- carrying

    def carry(self, source: "Member", target: "Member", datagram: bytes) -> None:
        """Carry a datagram from one incarnation to another, behind all that was sent
        before on the same connection."""
        link = self.links.get(frozenset((source.incarnation, target.incarnation)))
        if link is None or not link.ends[source.incarnation].number:
            return
        number = link.ends[source.incarnation].number
        end = link.ends[target.incarnation]
        is_control = len(datagram) > KIND_AT and datagram[KIND_AT] in (
            control_of(self.cluster.sealing is not None))
        leaves = self.cluster.network.leaves(source.name, len(datagram), self.cluster.now)
        for instant, arriving in self.cluster.carried(source.name, target.name, datagram, leaves):
            control = 0                 # the number of the connection for control, if it takes that
            if not (link.stands and link.number == number):
                pass
            elif is_control and self._has_control(link):
                control = link.controls
                end.control_arrives = instant = max(instant, end.control_arrives)
                self.num_overtaken += instant < end.arrives
            else:
                instant += 0 if is_control else end.buffered
                end.arrives = instant = max(instant, end.arrives)
            self.cluster.at(instant, self._arrive, link, number, control, target, arriving)

    def _has_control(self, link: SimulatedLink) -> bool:
        """Return whether a link has a connection for control, which may break just
        now."""
        if self.cluster.now < link.control_at:
            return False
        if self.control_breaks():
            self.num_control_broken += 1
            link.controls += 1
            link.control_at = self.cluster.now + self.until_control()
            return False
        return True

    def _arrive(self, link: SimulatedLink, number: int, control: int, target: "Member",
                datagram: bytes) -> None:
        end = link.ends[target.incarnation]
        if link.stands and link.number == number == end.number and control in (0, link.controls):
            target.arrive(datagram)
