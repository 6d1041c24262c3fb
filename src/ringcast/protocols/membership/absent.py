"""Absent members: those that went without leaving and are expected back.

A member that is `durable` says for how long it is waited for. If it goes without
leaving, the next view says that it is absent, and all senders keep what it has not
acknowledged (multicast/keeping.py). Who comes with the name of an absent member takes
its place: a new process of it, or the same one that was only cut off. A member that is
not durable cannot have the name meanwhile.

The coordinator of a change decides who is absent and who is back. Each INSTALL says for
how much longer an absent member is waited for, so that a successor goes on counting.
When the time is over, or an operator excludes the member, or what is held of departed
senders takes too much memory, the next view waits for it no longer.

A durable member may leave in one part of a group while another part has it as
absent, or while some do not hear it. So those who hear it leave remember that, and
reports and views pass it on. It is final: who has said LEAVE is in no later view. If it
is, somebody else has said LEAVE in its name.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from ringcast.config import MAX_MEMBERS
from ringcast.protocols.latest import Latest
from ringcast.protocols.membership.messages import Absent, Install, ViewId
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.membership.change import Change
    from ringcast.protocols.membership.layer import Membership

MS = 1_000_000                          # nanoseconds
MOST_LEFT = 64                          # durable members that left, which are remembered


class Absentees:
    """Knows who is absent in the view of a member, and until when. `given_up` are
    members that nobody is to wait for any more, absent or not."""

    def __init__(self, layer: "Membership") -> None:
        self.layer = layer
        self.known: dict[int, Absent] = {}
        self.until: dict[int, Instant] = {}
        self.given_up: set[int] = set()
        self.left: Latest[int, ViewId] = Latest(MOST_LEFT)  # the last views they can be in

    def hear_leave(self, member: int, view_id: ViewId) -> None:
        """Note that a member of our view has said LEAVE, in that view."""
        if self.layer.members[member].absence:
            self.left.remember(member, view_id)

    def install(self, install: Install, now: Instant) -> None:
        """Note who is absent in a new view."""
        self.known = {each.incarnation: each for each in install.absent}
        self.until = {each.incarnation: now + each.left * MS for each in install.absent}
        self.given_up &= self.known.keys() | self.layer.members.keys()
        for member in install.left:
            if member not in self.left:
                self.left.remember(member, install.id)
        for member in self.layer.members.keys() & self.left.keys():
            if self.left[member] < install.id:
                del self.left[member]

    def named(self, name: str) -> Absent | None:
        """Return the absent member that has a name."""
        return next((each for each in self.known.values() if each.name == name), None)

    def give_up(self, members: Iterable[int]) -> None:
        """Wait for members no longer: an operator says so."""
        self.given_up |= set(members) & (self.known.keys() | self.layer.members.keys())

    def due(self) -> Instant | None:
        """Return when the next one has been waited for long enough."""
        return min(self.until.values(), default=None)

    def is_change_due(self, now: Instant) -> bool:
        """Return whether the next view is to wait for fewer. If what is held of
        departed senders is too much, give up all."""
        over = {member for member, until in self.until.items() if until <= now}
        is_too_much = bool(self.known) and self.layer.multicast.keeping.holds_too_much()
        for member in self.known.keys() - self.given_up if is_too_much else over - self.given_up:
            name = self.known[member].name
            why = ("what is held of departed senders for it takes too much memory" if is_too_much
                   else "it did not come back in time")
            self.layer.stack.effects.warnings.append(
                f"{name!r} is expected back no longer: {why}. What it had not acknowledged is not "
                "kept any more")
            self.given_up.add(member)
        return bool(self.given_up & self.known.keys())

    def waited_for(self, now: Instant) -> list[Absent]:
        """Return who is absent, and for how much longer each is waited for."""
        return [Absent(each.name, member, max(0, self.until[member] - now) // MS)
                for member, each in self.known.items()]

    def told(self, install: Install, now: Instant) -> Install:
        """Return our view as we tell it to another group now."""
        if not self.known:
            return install
        return msgspec.structs.replace(install, absent=self.waited_for(now))

    def decide(self, change: "Change", offered: Collection[Install], now: Instant) -> None:
        """Write into a view that is decided who is absent and who is back."""
        install = change.install
        assert install is not None
        ours = self.layer.install
        come_from = {report.view_id for report in change.reports.values()}
        absent: dict[str, Absent] = {}                  # in the views that members come from
        members: dict[str, Absent] = {}                 # of these views, if they are durable
        for before in (*offered, *change.known(ours), *([change.finish] if change.finish else [])):
            if before.id in come_from:
                absent |= {each.name: each for each in before.absent}
                members |= {seat.name: Absent(seat.name, seat.incarnation, seat.absence)
                            for seat in before.seats
                            if seat.absence and seat.incarnation not in change.left}
        absent |= {each.name: each for each in self.waited_for(now)}
        durable = {seat.name: seat.incarnation for seat in install.seats if seat.absence}
        install.back = [member for name, member in durable.items() if name in absent]
        left = {member for report in change.reports.values() for member in report.left}
        install.absent = [each for name, each in (members | absent).items()
                          if name not in durable and each.left > 0
                          and each.incarnation not in self.given_up | left][:MAX_MEMBERS]
        install.left = sorted(left - change.members)[:MOST_LEFT]
