"""What an INSTALL means for one member: what its multicast layer must know, and the
view as its application sees it."""

from ringcast.address import Address
from ringcast.protocols.membership.messages import Install, Seat
from ringcast.protocols.multicast.flush import Agreed
from ringcast.protocols.multicast.keeping import Owed
from ringcast.view import View


def agreed_for(local: int, install: Install, before: int) -> Agreed:
    """Return what was agreed on, for the member `local` that comes from the view
    `before` (0: from none)."""
    gone = [each for each in install.gone if each.before == before]
    together = {seat.incarnation for seat in install.seats if seat.before == before != 0}
    owed: dict[int, Owed] = {}
    for each in install.gone:
        if each.before != before and each.name is not None and each.parts:
            known = owed[each.incarnation].parts if each.incarnation in owed else ()
            owed[each.incarnation] = Owed(Address(each.name, each.incarnation),
                                          (*known, *each.parts))
    return Agreed(cuts={seat.incarnation: seat.cut for seat in install.seats}
                  | {each.incarnation: each.cut for each in gone},
                  holders={each.incarnation: each.holder for each in gone},
                  together=frozenset(together | {local}),
                  lows={seat.incarnation: seat.low for seat in install.seats
                        if seat.low is not None},
                  back=frozenset(install.back), owed=tuple(owed.values()),
                  parts={each.incarnation: tuple(each.parts) for each in gone if each.parts},
                  over=frozenset(each.incarnation for each in gone if each.over),
                  durables=frozenset(seat.incarnation for seat in install.seats if seat.absence))


def view_for(install: Install, former: dict[int, Seat], agreed: Agreed) -> View:
    """Return the view as an application sees it whose view had the members `former`."""
    groups: dict[int, list[Address]] = {}
    for seat in install.seats:
        if seat.before:
            groups.setdefault(seat.before, []).append(seat.address)
    members = {seat.incarnation: seat.address for seat in install.seats}
    gone = {member: seat.address for member, seat in former.items() if member not in members}
    return View(
        install.id, tuple(members.values()),
        joined=tuple(address for member, address in members.items() if member not in former),
        left=tuple(gone.values()),
        # Nothing came of a stream without a cut: it ends where it begins.
        departed={address: agreed.cuts.get(member, former[member].cut)
                  for member, address in gone.items()},
        subgroups=tuple(map(tuple, groups.values())) if len(groups) > 1 else (),
        primary=install.is_primary, absent=tuple(each.address for each in install.absent),
        observers=tuple(seat.address for seat in install.seats if seat.observes))
