"""How members meet: SEEK and PRESENT, how a joiner is answered, and how two groups
become one.

A view has three spokesmen, its first three members, in case that the first is dead.
They answer whoever seeks. When coordinators of two groups hear of each other, the one
of the smaller group offers its view to the other (OFFER), which makes one change of
both. If a group breaks again soon, though the coordinator hears all, its next offer
waits longer.

A group that has only observers left counts as smaller than any other, and lets only
observers in: who is none forms a group of its own, and takes them into that. So no
observer ever coordinates others.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringcast.address import EVERYONE
from ringcast.config import Config, nanoseconds
from ringcast.protocols.allowance import Allowance
from ringcast.protocols.membership.discovery import Discovery
from ringcast.protocols.membership.messages import OFFER, PRESENT, SEEK, Install, Present, Seek
from ringcast.protocols.membership.seldom import Seldom
from ringcast.protocols.terms import difference
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.membership.layer import Membership

SPOKESMEN = 3
TAKEN = 64                              # names that are said to be taken, at once
HOLD_OFF = nanoseconds(250.0)           # between two OFFERs, at first ...
MOST_HOLD_OFF = nanoseconds(30_000.0)   # ... and at most, if the group breaks again and again
MOST_UNHEARD = nanoseconds(4_000.0)     # ... and at most, if nothing comes of it
STEADY = nanoseconds(20_000.0)          # a view that lasts so long was no mistake


class Meeting:
    """What a member says to those who are not in its view. `terms` are what all members
    must share."""

    def __init__(self, layer: "Membership", config: Config, terms: dict[str, str]) -> None:
        self.layer, self.terms = layer, terms
        self.discovery = Discovery(layer.local.incarnation, config, layer.observes)
        self.told = Seldom(self.discovery.interval // 2)    # PRESENT ...
        self.taken = Allowance(TAKEN, self.discovery.interval)  # ... with a name that is taken
        self.named = Seldom(self.discovery.interval)        # ... and with all names
        self.offer_after: Instant = 0
        self.hold_off = self.unheard = HOLD_OFF
        self.met_at: Instant = 0                        # when our view was installed
        self.num_refused = 0

    # ---------------------------------------------------------------------------------- what we say

    def seek(self, now: Instant) -> None:
        """Say SEEK to everybody, or to the one who forms the group."""
        self.answer(self.discovery.seek(now), now)

    def answer(self, dest: int, now: Instant) -> None:
        """Say SEEK to somebody new. It goes to that one alone: if all of a thousand
        that start at once told everybody whenever they hear of another one, nothing
        else would get through."""
        layer = self.layer
        body = Seek(layer.local.name, layer.stack.physical, self.terms,
                    self.discovery.min_members, layer.absence, layer.rekeying.public,
                    layer.observes)
        layer.send_control(SEEK, body, dest, now)

    def present(self, now: Instant, taken: str | None = None) -> None:
        """Say PRESENT, but not too often, because anybody may make us say it. One with
        a name that is `taken` is for one member alone: many may be said at once."""
        if self.told.allows(now) if taken is None else self.taken.take(now):
            self.told.note(now)
            self._send_present(now, taken)

    def name_all(self, now: Instant) -> None:
        """Say PRESENT with all names, for somebody who does not come. Anybody can make
        us do this, so it is rare, and goes to everybody: then nobody can have it sent
        to a place of his choice."""
        if self.is_spokesman() and self.named.allows(now):
            self._send_present(now, None, self.layer.present())

    def _send_present(self, now: Instant, taken: str | None, names: Sequence[str] = ()) -> None:
        layer = self.layer
        coordinator = layer.acting(layer.detection.gone(now))
        observed = coordinator in layer.members and layer.members[coordinator].observes
        body = Present(layer.local.name, layer.stack.physical, self.terms, layer.view_id,
                       len(layer.members), coordinator, taken, list(names), observed)
        layer.send_control(PRESENT, body, EVERYONE, now)

    def is_spokesman(self) -> bool:
        """Return whether we answer for our view."""
        return self.layer.local.incarnation in list(self.layer.members)[:SPOKESMEN]

    # --------------------------------------------------------------------------------- what we hear

    def take_seek(self, sender: int, seek: Seek, now: Instant) -> None:
        """Let one who seeks in, or note that it seeks as we do."""
        layer = self.layer
        has_view = layer.install is not None
        if sender in layer.members and sender not in layer.leavers:
            return
        if self.discovery.is_shunned(sender, now):
            if has_view and self.is_spokesman():
                self.present(now)                       # so that it forms no group of its own
            return
        if not self._has_our_terms(seek.name, seek.terms, now):
            self.present(now)
            return
        namesake = self._namesake(seek.name)
        if namesake is not None:
            self._doubt(namesake, sender, seek.name, now)
            return
        if not seek.absence and layer.absentees.named(seek.name) is not None:
            self.present(now, seek.name)                # the name is not free
            return
        is_new = sender not in self.discovery.seekers
        self.discovery.hear_seeker(sender, seek, now)
        if is_new:
            layer.update_routes()
            if has_view:
                layer.coordinator.gather(now)
            else:
                self.answer(sender, now)
        if has_view and self.is_spokesman():
            self.present(now)

    def _namesake(self, name: str) -> int | None:
        """Return the member that has this name."""
        layer = self.layer
        if layer.install is None:
            return layer.local.incarnation if name == layer.local.name else None
        return next((member for member, seat in layer.members.items() if seat.name == name), None)

    def _doubt(self, member: int, sender: int, name: str, now: Instant) -> None:
        """Somebody seeks with the name of a member: that one may have died. If it is
        alive, the other must take another name."""
        layer = self.layer
        if member != layer.local.incarnation:
            layer.detection.doubt(member, now)
        elif layer.install is not None or layer.local.incarnation < sender:
            self.present(now, name)

    def _has_our_terms(self, name: str, terms: dict[str, str], now: Instant) -> bool:
        """Return whether somebody has the same terms as this member. If not, stop if we
        have no view; a view keeps out who differs."""
        layer = self.layer
        differs = difference(layer.local, self.terms, name, terms)
        if differs is None:
            return True
        self.num_refused += 1
        if layer.install is None:
            layer.stop(differs.fault)
        elif self.num_refused == 1:
            layer.stack.effects.warnings.append(differs.warning)
        return False

    def take_present(self, sender: int, present: Present, now: Instant) -> None:
        """There is a view. Seek to be let in; or, if we have another view, see that the
        two become one. Who has no view either says only that a name is taken: of two
        that come at once the one with the lower number keeps it. Who has a view keeps
        its name in any case."""
        layer = self.layer
        if sender in layer.members:
            return
        is_first = bool(present.size) or sender < layer.local.incarnation
        if present.taken == layer.local.name and layer.install is None and is_first:
            layer.stop(f"another member has the name {layer.local.name!r}; give every member its "
                       "own name")
            return
        if not present.size or not self._has_our_terms(present.name, present.terms, now):
            return
        if present.observed and layer.install is None and not layer.observes:
            return                                      # it comes to us, once we have a view
        is_new = sender not in self.discovery.others
        self.discovery.hear_member(sender, present, now)
        if is_new:
            layer.update_routes()
        if layer.install is not None and sender == present.coordinator:
            self._meet(sender, present, now)

    def _meet(self, other: int, present: Present, now: Instant) -> None:
        """The coordinator of another group is there. Offer our view to it if it leads,
        or tell it that we are there."""
        layer, install = self.layer, self.layer.install
        if layer.acting(layer.detection.gone(now)) != layer.local.incarnation or install is None:
            return
        if (not layer.observes, len(layer.members), layer.view_id) > (
                not present.observed, present.size, present.view_id):
            self.present(now)
        elif now >= self.offer_after and self.discovery.hears_all(present, now) and (
                layer.coordinator.give_way(now)):
            self.offer_after = now + max(self.hold_off, self.unheard)
            self.unheard = min(2 * self.unheard, MOST_UNHEARD)
            layer.send_control(OFFER, layer.absentees.told(install, now), other, now)

    def take_offer(self, sender: int, offer: Install, now: Instant) -> None:
        """Take the members of the other group into our next view."""
        layer = self.layer
        if any(self.discovery.is_shunned(seat.incarnation, now) for seat in offer.seats):
            return
        if layer.install is not None and not (
                layer.members.keys() & {sender, *(seat.incarnation for seat in offer.seats)}):
            layer.coordinator.offered.remember(sender, offer)

    def hear_stranger(self, sender: int, view_id: int, now: Instant) -> None:
        """Somebody says ALIVE in a view that is not ours."""
        self.discovery.hear_stranger(sender, view_id, now)
        if self.is_spokesman():
            self.present(now)

    def join(self, has_lost: bool, now: Instant) -> None:
        """There is a new view: whoever is in it seeks no more. If it `has_lost` members
        that this one hears, and soon after the view before, the next offer waits
        longer: a path between two others may be broken, and break the next view, too.
        Who was silent was cut off from us, and once it is heard, that is over."""
        self.discovery.join(self.layer.members)
        self.unheard = HOLD_OFF
        if has_lost:
            is_soon = now - self.met_at < STEADY
            self.hold_off = min(2 * self.hold_off, MOST_HOLD_OFF) if is_soon else HOLD_OFF
        self.met_at = now
