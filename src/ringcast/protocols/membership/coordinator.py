"""The coordinator's side of a view change: whom the next view should have, and the
attempt to install it (change.py).

Joins are gathered for a moment. Then one change is made of all that is to change. A
change that waits for somebody who does not answer, or who refuses it again and again,
is begun again without that one. Two that outbid each other wait, longer each time,
until one of them is done.
"""

from typing import TYPE_CHECKING

from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS, nanoseconds
from ringcast.protocols.latest import Latest
from ringcast.protocols.membership.change import LEAST_PAUSE, Change
from ringcast.protocols.membership.discovery import LOWEST, heard_at
from ringcast.protocols.membership.messages import (
    INSTALL,
    PREPARE,
    Install,
    Prepare,
    Refuse,
    Report,
    Seat,
)
from ringcast.protocols.membership.primary import Verdict
from ringcast.protocols.membership.seldom import Seldom
from ringcast.protocols.membership.sense import COUNTER
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.membership.layer import Membership

MAKER = (1 << COUNTER) - 1              # these bits: the coordinator that made it
GATHER = nanoseconds(5.0)               # for how long joins are gathered
GIVE_WAY = nanoseconds(250.0)           # for how long strangers are left to another coordinator
MOST_OFFERS = 16                        # of other groups, that are remembered
MEETING = nanoseconds(250.0)            # for how long two may need to prove their names
RENEWING = nanoseconds(100.0)           # between two views that members ask for, at least
MOST_OUTBID = 3                         # attempts in a row; then it rests for LEAST_PAUSE ...
MOST_REFUSED = 32                       # ... or so many that one has refused ...
MOST_DOUBLINGS = 4                      # ... which doubles so often
MOST_FALSE = 3                          # claims in a row to have what was not sent
TRIES = 8                               # to have members finish a view, or know that one is primary
REFUSING = nanoseconds(2_000.0)         # for how long one may refuse each view
JOINING = nanoseconds(500.0)    # after which a joiner or observer that does not answer is dropped


class Coordinator:
    """Decides whom the next view has, if this member coordinates. `change` is its
    attempt, if there is one; `offered` has groups that want to become one with ours, by
    their coordinators."""

    def __init__(self, layer: "Membership") -> None:
        self.layer = layer
        self.change: Change | None = None
        self.offered: Latest[int, Install] = Latest(MOST_OFFERS)
        self.gather_until: Instant | None = None
        self.gives_way_until: Instant | None = None     # to the coordinator of another group
        self.rests_until: Instant = 0                   # begins nothing until then
        self.num_outbid = 0                             # attempts since there was a view
        self.num_few = 0                                # such that too few went along with
        # Since when those who want to come have kept the members from a view.
        self.held_up_since: Instant | None = None
        self.renews = False                             # make a view of the same members
        self.renewed = Seldom(RENEWING)                 # one was made because a member asked for it
        self.accused: dict[int, int] = {}               # by member: its false claims, in a row
        # By who has refused: since when, and how often, each attempt in a row.
        self.refused: dict[int, tuple[Instant, int]] = {}
        self.num_changes = 0
        self.made = 0                                   # the last id that we have made

    @property
    def is_changing(self) -> bool:
        """Return whether an attempt is not over."""
        return self.change is not None and bool(self.change.missing())

    def stop(self) -> None:
        """Give up an attempt: this member is not the coordinator, or somebody does not
        answer."""
        self.change = None
        self.refused.clear()

    def yield_to(self, now: Instant) -> None:
        """Another one has prepared a view above ours. Two that begin again at once
        would outbid each other for ever. So wait after the third time, and longer each
        time."""
        if self.is_changing:
            self.num_outbid += 1
            if self.num_outbid >= MOST_OUTBID:
                self._rest(self.num_outbid - MOST_OUTBID, now)
        self.change = None

    def _rest(self, times: int, now: Instant, pause: int = LEAST_PAUSE) -> None:
        """Begin nothing for a while, at first for `pause`, longer each time."""
        self.change = None
        self.rests_until = now + (pause << min(times, MOST_DOUBLINGS))

    def join(self) -> None:
        """There is a new view: whoever wanted to come may ask again."""
        self.offered.clear()
        self.gives_way_until = None
        self.rests_until = self.num_outbid = self.num_few = 0
        self.held_up_since = None

    def give_way(self, now: Instant) -> bool:
        """Let the coordinator of another group take us in, and begin nothing for
        strangers meanwhile: two that prepare for the same members would outbid each
        other for ever. Return False if something else must be finished first."""
        change = self.change
        if change is not None and self.is_changing:
            if change.install is not None or not change.members - self.layer.members.keys():
                return False
            self.change = None
        self.gives_way_until = now + GIVE_WAY
        return True

    def is_taken(self, sender: int, now: Instant) -> bool:
        """Return whether this member, which has no view, has promised to go with
        another coordinator than `sender` a moment ago. Else those who want it would
        outbid each other, and all that each of them has prepared would be void."""
        layer = self.layer
        ours = {sender & MAKER, layer.local.incarnation & MAKER}
        return layer.install is None and layer.promised > 0 and (
            layer.promised & MAKER not in ours and now - layer.promised_at < GIVE_WAY)

    def renew(self, now: Instant) -> bool:
        """A member asks for a view of the same members: see that one is made, unless it
        is too soon. Return whether it is not."""
        is_allowed = self.renewed.allows(now)
        self.renews |= is_allowed
        return is_allowed

    def gather(self, now: Instant) -> None:
        """Somebody wants to come: wait a moment for others."""
        if self.gather_until is None:
            self.gather_until = now + GATHER

    def due(self, now: Instant) -> list[Instant]:
        """Return when there is something to do."""
        due = [self.change.due] if self.change is not None and self.change.missing() else []
        due += [self.rests_until] if self.rests_until > now else []
        return due + [each for each in (self.gather_until, self.gives_way_until,
                                        self.layer.absentees.due(), self.layer.rekeying.due())
                      if each is not None]

    # -------------------------------------------------------------------------------------- answers

    def take_report(self, sender: int, report: Report, now: Instant) -> None:
        """When all have reported, decide; or have members finish another view first.
        Who cannot goes another way, or all would try for ever: a hostile member may
        have told one what it has kept from the rest. If we cannot, those who come from
        our view go on with us."""
        change = self.change
        if change is None or report.id != change.id or change.install is not None or (
                sender not in change.members):
            return
        if sender not in change.reports:
            change.note_answer(now)
        change.reports[sender] = report
        if change.missing():
            return
        finish = change.unfinished(self.layer.install)
        if finish is not None and change.tries < TRIES:
            self.begin(finishing(change.seats, finish), finish, now)
        elif elsewhere := change.elsewhere():
            if self.layer.local.incarnation in elsewhere:
                elsewhere = change.members.difference(change.come_from(self.layer.view_id))
            self._drop(elsewhere)
            self.layer.detection.depart(elsewhere)
            self.begin([seat.moved(change.reports[seat.incarnation].view_id)
                        for seat in change.seats if seat.incarnation not in elsewhere], None, now)
        else:
            self._decide(change, now)

    def _decide(self, change: Change, now: Instant) -> None:
        """Decide on the view. It may be primary though we did not foresee it, or not
        follow an attempt that we know: then its members must be told first
        (primary.py). Who says something else of primary views each time does not keep
        the view from coming: after TRIES it is not primary."""
        verdict = change.judge(self.layer.voting.min_members)
        is_untold = verdict.is_primary and not change.has_told(verdict)
        if is_untold and change.tries < TRIES:
            self.begin(change.seats, None, now, verdict)
        else:
            verdict = verdict._replace(is_primary=verdict.is_primary and not is_untold)
            change.decide(self.layer.install, verdict)
            self.accused = {member: times for member, times in self.accused.items()
                            if member in change.claims.values()}
            self.layer.absentees.decide(change, self.offered.values(), now)
            self.send(now)

    def take_refusal(self, sender: int, refuse: Refuse, now: Instant) -> None:
        """A member has promised a higher id: try again with one above it. Somebody new
        goes with the coordinator whom it has promised."""
        layer, change = self.layer, self.change
        if refuse.strangers:
            self._part(sender, refuse, now)
            return
        is_idle = not self.is_changing and layer.acting(()) == layer.local.incarnation
        if is_idle and sender in layer.members and refuse.id == layer.view_id and self.renew(now):
            layer.promised = max(layer.promised, refuse.promised)
            if change is not None and refuse.promised <= refuse.id and sender in change.claims:
                self._accuse(change.claims[sender], sender)
            self.coordinate(now)
        if change is None or refuse.id != change.id or sender not in change.missing():
            return
        layer.promised = max(layer.promised, refuse.promised)
        since, times = self.refused.get(sender, (now, 0))
        self.refused[sender] = since, times + 1
        if now - since >= REFUSING:     # who is no member is left out soon, as if it did not answer
            if sender in layer.members:
                layer.detection.depart([sender], "it refuses each view")
                self.stop()
        elif times >= MOST_REFUSED:
            self._rest(times - MOST_REFUSED, now)
        elif change.install is not None:
            self.begin(finishing(change.seats, change.install), None, now)
        elif sender in layer.members or refuse.promised > refuse.id:
            self.begin(change.seats, None, now)
        else:
            self.let_go(sender, now)

    def _accuse(self, member: int, sender: int) -> None:
        """A sender says that it has not sent what a member has reported of it. If that
        comes again in each view, one of the two must go: nobody would see a view."""
        times = self.accused[member] = self.accused.get(member, 0) + 1
        if times >= MOST_FALSE:
            self.layer.detection.contradict(member, sender)

    def let_go(self, stranger: int, now: Instant) -> None:
        """Go on without somebody who wanted to come, and does not any more."""
        change = self.change
        if change is not None and change.install is None and stranger in change.members:
            self._drop({stranger})
            self.begin([seat for seat in change.seats if seat.incarnation != stranger], None, now)

    def _part(self, sender: int, refuse: Refuse, now: Instant) -> None:
        """A member does not know some of those whom the next view is to have: they have
        not proved their names and keys to it. It may just be about to learn that. If
        not, go on without those who want to come, and the groups that they are in: not
        without a member, because somebody seeks whom it does not trust."""
        layer, change = self.layer, self.change
        if change is None or refuse.id != change.id or sender not in change.missing() or (
                change.install is not None or now - change.began < MEETING):
            return
        ours = layer.members or {layer.local.incarnation: layer.seat()}
        parted = change.members & set(refuse.strangers) - ours.keys() or {sender} - ours.keys()
        if not parted:
            return
        new = [member for member in parted if layer.meeting.discovery.shun(member, now)]
        if new:
            others = {sender, refuse.strangers[0]}
            who = " and ".join(sorted(seat.name for seat in change.seats
                                      if seat.incarnation in others))
            layer.stack.effects.warnings.append(
                f"{who} do not trust each other's keys, or do not hear each other, so a new "
                "member is not let in; give all members the same public keys")
        self._leave_out(parted, now)

    def _leave_out(self, strangers: set[int], now: Instant) -> None:
        """Go on without some who want to come, and the groups that they are in. Nobody
        new comes with the others before there is a view. If that lasts for long, nobody
        comes at all: else somebody who comes under ever more numbers would keep all
        from a view. If there are too few for a first view, and one of them lives, it
        may not hear us, and another one: that one has time to form the view."""
        change, ours = self.change, self.layer.members
        assert change is not None
        self.held_up_since = now if self.held_up_since is None else self.held_up_since
        if ours and now - self.held_up_since >= REFUSING:
            strangers = change.members - ours.keys()
        lives = self.layer.meeting.discovery.hears_any(strangers, change.began)
        self._drop(strangers)
        groups = {seat.before for seat in change.seats if seat.incarnation in strangers} - {0}
        gone = strangers | self.layer.detection.departed
        seats = [seat for seat in change.seats
                 if seat.incarnation not in gone and seat.before not in groups]
        self.stop()
        if [seat.incarnation for seat in seats] != list(ours):
            self.begin(seats, None, now)
        if not ours and self.change is None and lives:
            self._rest(self.num_few, now, 2 * LOWEST)
            self.num_few += 1

    def _drop(self, members: set[int]) -> None:
        """Do not wait for those who wanted to come, nor for a group that one of them is
        in."""
        for member in members:
            self.layer.meeting.discovery.forget(member)
        for who, offer in list(self.offered.items()):
            if any(offer.seat(member) for member in members):
                del self.offered[who]

    # -------------------------------------------------------------------------------------- changes

    def form(self, now: Instant) -> None:
        """Form the first view of a group, if we may."""
        layer, change = self.layer, self.change
        discovery = layer.meeting.discovery
        discovery.drop_silent(now)
        if change is None:
            if now >= self.rests_until and discovery.may_form(now, layer.stack.unread_at):
                self.begin([layer.seat(), *discovery.candidates()], None, now)
        elif change.install is None and now - heard_at(
                layer.stack.unread_at, change.answered) >= JOINING:
            self._leave_out(change.missing() - {layer.local.incarnation}, now)
        else:
            self.send(now)

    def coordinate(self, now: Instant) -> None:
        """If we coordinate the view, see that it has the members that it should
        have."""
        layer = self.layer
        gone = layer.detection.gone(now)
        if layer.acting(gone) != layer.local.incarnation:
            self.stop()
            return
        layer.meeting.discovery.drop_silent(now)
        if self.change is not None and self._is_stuck(self.change, gone, now):
            self.stop()
        is_free = not self.is_changing and now >= self.rests_until
        seats = self._wanted(gone, now) if is_free else None
        if seats is not None:
            self.begin(seats, None, now)
        else:
            self.send(now)

    def _is_stuck(self, change: Change, gone: set[int], now: Instant) -> bool:
        """Return whether to give up an attempt, because it waits for somebody who will
        not answer; that one is dropped. As long as no INSTALL is sent, it goes on at
        once without those who want to come and do not answer."""
        layer, missing, age = self.layer, change.missing(), now - change.answered
        timeout = layer.detection.timeout
        strangers, watching = missing - layer.members.keys(), missing & change.observers
        if missing == watching:
            timeout = JOINING
        if missing & (gone if change.install is not None else gone | layer.leavers.keys()):
            return True
        patience = JOINING if strangers else timeout
        if change.install is not None:
            patience = 2 * timeout
        if not missing or age < patience:
            return False
        for stranger in strangers:
            layer.meeting.discovery.shun_mute(stranger, now)
        if age >= timeout:
            layer.detection.depart(missing)
        if strangers and change.install is None:
            self._leave_out(strangers, now)
            return False
        self._drop(strangers)
        return True

    def _wanted(self, gone: set[int], now: Instant) -> list[Seat] | None:
        """Return the seats of the next view; None if it has the members of this one, or
        if joins are being gathered."""
        layer = self.layer
        staying = [seat for member, seat in layer.members.items()
                   if member not in gone and member not in layer.leavers]
        if layer.leaving.is_said:                       # we are the last, and let nobody in
            return [layer.seat()] if len(layer.members) > 1 else None
        seats = [seat.moved(layer.view_id) for seat in staying]
        # Who takes the place of a durable member comes when that one is absent.
        names = {seat.name for member, seat in layer.members.items()
                 if seat in staying or (seat.absence and member not in layer.leavers)}
        others = [seat.moved(offer.id) for offer in self.offered.values() for seat in offer.seats]
        if self.gives_way_until is not None and now >= self.gives_way_until:
            self.gives_way_until = None
        for seat in others + layer.meeting.discovery.candidates():
            if layer.observes and not seat.observes:
                continue                                # it forms a group: see meeting.py
            if seat.name not in names and self.gives_way_until is None and len(seats) < MAX_MEMBERS:
                names.add(seat.name)
                seats.append(seat)
        is_same = [seat.incarnation for seat in seats] == list(layer.members) and not (
            layer.absentees.is_change_due(now))
        is_only_joining = len(staying) == len(layer.members)
        if not is_same and is_only_joining and self.gather_until is not None and (
                now < self.gather_until):
            return None
        self.gather_until = None
        rekey_at = layer.rekeying.due()
        renews = self.renews or (rekey_at is not None and now >= rekey_at)
        return None if is_same and not renews else seats

    def begin(self, seats: list[Seat], finish: Install | None, now: Instant,
              verdict: Verdict | None = None) -> None:
        """Prepare a view with these members, under an id above those of the views that
        they come from, above all that we have promised, and above all that we have made
        ourselves: such a promise may be void, but others know the id, and its key. It
        is to be primary, or not, as the verdict says, or as we foresee it."""
        layer = self.layer
        is_first = layer.install is None and finish is None
        if is_first and not layer.meeting.discovery.is_enough(seats):
            self.change = None                          # form() looks again who is there
            return
        self.num_changes += 1
        self.renews = False
        highest = max([layer.promised, self.made, *(seat.before for seat in seats)])
        view_id = self.made = ((highest >> COUNTER) + 1 << COUNTER) | (
            layer.local.incarnation & MAKER)
        is_again = finish is not None or verdict is not None
        tries = self.change.tries + 1 if self.change is not None and is_again else 0
        asked = {seat.incarnation for seat in seats}
        if self.change is not None:
            asked -= self.change.installed              # the last attempt, they did not refuse
        self.refused = {who: each for who, each in self.refused.items() if who in asked}
        verdict = verdict or layer.voting.foresee(seats)
        self.change = Change(view_id, seats, dict(layer.leavers), now,
                             layer.multicast.config.capacity, finish, verdict.roots(view_id),
                             *layer.rekeying.make(view_id, seats), tries=tries)
        layer.update_routes()
        self.send(now)

    def send(self, now: Instant) -> None:
        """Send PREPARE or INSTALL to everybody, if that is due, and take our own
        copy."""
        layer, change = self.layer, self.change
        if change is None or not change.is_repeat_due(now):
            return
        body, mine = change.body(), layer.local.incarnation
        layer.send_control(PREPARE if change.install is None else INSTALL, body, EVERYONE, now)
        if mine in change.missing():
            if isinstance(body, Prepare):
                layer.take_prepare(mine, body, now)
            else:
                layer.take_install(mine, body, now)


def finishing(seats: list[Seat], install: Install) -> list[Seat]:
    """Return seats whose members install another view first: they come from that one
    then. Those that have a later view come from there."""
    return [seat.moved(install.id) if install.seat(seat.incarnation) and seat.before < install.id
            else seat for seat in seats]
