"""What can be true at all of what others say about views.

Nothing is signed, so anybody may say anything. What contradicts itself is dropped when
it is taken, before it moves anything. So nobody need look again: in a view that was
taken no name and no member is twice, who comes from a view comes from an earlier one,
and who holds messages for others is among them.

*Ids* only grow, so one that is far ahead would leave few for those that follow. Up to
FIRST_LAST any id is believed; no group has had so many views. Beyond, there is a
ceiling. It rises by STEP when somebody says a higher id, but only once in a PAUSE:
however high the ids are that somebody forges, they do not come to an end for weeks. And
groups that were driven up unequally still come together.
"""

from ringcast.address import EVERYONE
from ringcast.config import nanoseconds
from ringcast.protocols.membership.messages import (
    Install,
    Prepare,
    Report,
    Seats,
    ViewId,
)
from ringcast.protocols.membership.seldom import Seldom
from ringcast.stack import Instant

COUNTER = 32            # bits of a view's id below its counter
FIRST_LAST = 1 << 30    # the ceiling of the counter, at first
STEP = 1 << 10          # by which it rises ...
PAUSE = nanoseconds(500.0)      # ... once in this time


class Ceiling:
    """The highest id that a member believes."""

    def __init__(self) -> None:
        self.counter = FIRST_LAST
        self.rises = Seldom(PAUSE)

    def allows(self, view_id: ViewId, now: Instant) -> bool:
        """Return whether a view can have this id."""
        counter = view_id >> COUNTER
        if counter > self.counter and self.rises.allows(now):
            self.counter += STEP
        return counter <= self.counter


def are_seats(view: Seats) -> bool:
    """Return whether each member has one seat and a name of its own, and comes from an
    earlier view."""
    members = {seat.incarnation for seat in view.seats}
    names = {seat.name for seat in view.seats}
    return (EVERYONE not in members and len(members) == len(names) == len(view.seats)
            and all(seat.before < view.id for seat in view.seats))


def is_view(install: Install) -> bool:
    """Return whether a view that is said to be agreed on can be one."""
    if not are_seats(install):
        return False
    seats = {seat.incarnation: seat for seat in install.seats}
    for gone in install.gone:
        holders = {gone.holder, *(part.holder for part in gone.parts)}
        if gone.incarnation in seats or any(
                holder not in seats or seats[holder].before != gone.before for holder in holders):
            return False
    streams = {(gone.incarnation, gone.before) for gone in install.gone}
    return len(streams) == len(install.gone)


def is_prepare(prepare: Prepare) -> bool:
    """Return whether a view can be prepared like this."""
    finish = prepare.finish
    return are_seats(prepare) and (finish is None or (is_view(finish) and finish.id < prepare.id))


def is_report(sender: int, report: Report) -> bool:
    """Return whether a member can report like this."""
    install = report.install
    return (sender in report.digest and report.view_id < report.id
            and (install is None or (install.id == report.view_id and is_view(install)
                                     and install.seat(sender) is not None)))
