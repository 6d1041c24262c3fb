"""The membership layer: a group that forms itself, and agrees on its views.

    discovery.py    who is there, and when a first view may form
    detection.py    who is silent, and who must go
    change.py       the coordinator's attempt to install a view
    messages.py     what members say to each other

The oldest member of a view coordinates it. It gathers who wants to come (SEEK), who
leaves (LEAVE), who must go (detection.py) and groups that want to become one with ours
(OFFER), and makes one view change of all. What the multicast layer does about a change
is in flush.py.

*Promises.* A member that has answered a PREPARE has promised its id, and refuses all
lower ones. It installs a view only if that is the last one that it has promised, or if
the coordinator has it finish an earlier view first. So two coordinators, of which each
takes the other for dead, cannot both succeed with the same members.

*Ids* have a counter, which only grows, and 32 bits of the coordinator, so no two views
share an id.

*Members that were excluded while they lived* (paused, cut off) hear of a view without
them. For such a member the others have left: it installs a view without them. Then
these are two groups, which become one. What it had sent and the others will never
deliver fails (Effects.failures).
"""

from collections.abc import Collection, Sequence

from ringcast.address import EVERYONE, Address
from ringcast.config import Config, nanoseconds
from ringcast.errors import ConfigError
from ringcast.kinds import takes
from ringcast.protocols.membership.change import Change
from ringcast.protocols.membership.detection import Detection
from ringcast.protocols.membership.discovery import Discovery
from ringcast.protocols.membership.messages import (
    ALIVE,
    ASK,
    INSTALL,
    INSTALLED,
    LEAVE,
    OFFER,
    PREPARE,
    PRESENT,
    PROBE,
    REFUSE,
    REPORT,
    SEEK,
    SUSPECTS,
    WHO,
    Alive,
    Empty,
    Install,
    Installed,
    Prepare,
    Present,
    Refuse,
    Report,
    Seat,
    Seek,
    Suspects,
    are_numbers,
)
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.flush import Agreed
from ringcast.stack import Instant, Layer, Packet
from ringcast.view import View

COUNTER = 32                            # bits of a view's id below its counter
FARTHEST = 1 << 20                      # views that an id may be ahead of ours ...
HIGHEST = 1 << 30                       # ... and of none
GATHER = nanoseconds(5.0)               # for how long joins are gathered
JOINING = nanoseconds(500.0)            # after which a joiner that does not answer is dropped
HOLD_OFF = nanoseconds(250.0)           # between two OFFERs, at first ...
MOST_HOLD_OFF = nanoseconds(30_000.0)   # ... and at most, if the group breaks again and again
STEADY = nanoseconds(20_000.0)          # a view that lasts so long was no mistake


class Membership(Layer):
    """The layer of the member `local`, below `multicast`. `terms` are what all members
    must share (config.terms_of)."""

    def __init__(self, local: Address, config: Config, multicast: Multicast,
                 terms: dict[str, str]) -> None:
        self.local, self.multicast, self.terms = local, multicast, terms
        self.interval = nanoseconds(config.heartbeat_interval)
        self.detection = Detection(self, config)
        self.discovery = Discovery(local.incarnation, config)
        self.install: Install | None = None             # the view that we have
        self.members: dict[int, Seat] = {}              # of it, the oldest first
        self.promised = 0                               # the last PREPARE that we answered
        self.primary_id = 0
        self.electorate: list[int] = []
        self.change: Change | None = None               # our own, as a coordinator
        self.offered: dict[int, Install] = {}           # groups that want to become one with ours
        self.leavers: set[int] = set()                  # members that say LEAVE
        self.is_leaving = self.has_left = False
        self.settled_id = 0                             # the last view in which all are complete
        self.next_step: Instant | None = None           # to repeat what was not answered
        self.gather_until: Instant | None = None
        self.asked_at: Instant | None = None
        self.told_at: Instant | None = None
        self.named_at: Instant | None = None
        self.offer_after: Instant = 0
        self.hold_off = HOLD_OFF
        self.installed_at: Instant = 0
        self.is_open = False                            # it was started, and has not left
        self.num_views = self.num_changes = self.num_refused = self.num_bad = 0

    # ---------------------------------------------------------------------------------------- state

    @property
    def view_id(self) -> int:
        """Return the id of the view that is installed here; 0 without one."""
        return self.install.id if self.install else 0

    def acting(self, gone: Collection[int]) -> int:
        """Return who coordinates: the oldest member that is not gone, and does not
        leave while others stay."""
        staying = [member for member in self.members if member not in gone]
        for member in staying:
            if member not in self.leavers:
                return member
        return staying[0] if staying else 0

    def present(self) -> list[str]:
        """Return the names of whom this member knows to be there, its own among
        them."""
        if self.install is not None:
            return [seat.name for seat in self.install.seats]
        return [self.local.name, *(seat.name for seat in self.discovery.candidates())]

    def missing(self) -> list[str]:
        """Return the names of whom this member waits for. It does not know any."""
        return []

    def agreed(self) -> bool:
        """Return whether this member has left, if it leaves; otherwise whether all
        members have the view and all that comes before it."""
        return self.has_left if self.is_leaving else self.settled_id == self.view_id > 0

    # --------------------------------------------------------------------------------------- events

    def start(self, now: Instant) -> None:
        self.is_open = True
        self.discovery.changed = now
        self._seek(now)

    def exclude(self, name: str, now: Instant) -> None:
        """Exclude a member that an operator knows to be dead."""
        gone = [member for member, seat in self.members.items() if seat.name == name]
        if not gone:
            names = ", ".join(seat.name for seat in self.members.values())
            raise ConfigError(f"{name!r} is not in the view, which has {names or 'nobody'}")
        self.detection.depart(gone)
        for member in gone:
            self.leavers.discard(member)
        self._step(now)

    def leave(self, now: Instant) -> None:
        """Tell the others that this member leaves."""
        self.is_leaving = True
        self.leavers.add(self.local.incarnation)
        if self.install is None or len(self.members) == 1:
            self._end()
            return
        self.send_control(LEAVE, Empty(), EVERYONE, now)
        self._step(now)

    def _end(self) -> None:
        """Say nothing any more: this member has left."""
        self.has_left, self.is_open = True, False
        self.change = self.next_step = self.discovery.next_seek = self.detection.next_beat = None
        self.detection.probing.clear()

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Take what concerns the group. Any packet shows that its sender is alive."""
        self.detection.hear({packet.sender for packet in packets}, now)
        super().receive(packets, now)

    def received(self, now: Instant) -> None:
        self._step(now)

    def refused(self, member: int, now: Instant) -> None:
        """A datagram to a member was refused: its process may be gone."""
        if self.is_open:
            self.detection.refuse(member, now)
            self._step(now)
        self.above.refused(member, now)

    def count_bad(self) -> None:
        self.num_bad += 1

    # ------------------------------------------------------------------------------------ discovery

    @takes(SEEK)
    def _on_seek(self, sender: int, seek: Seek, now: Instant) -> bool:
        """On reception of SEEK: let the sender in, or note that it seeks as we do."""
        if not self.is_open or sender in self.members and sender not in self.leavers:
            return True
        if not self._has_our_terms(seek.name, seek.terms, now):
            self._tell_present(now)
            return True
        namesake = self._namesake(seek.name)
        if namesake is not None:
            self._doubt(namesake, sender, seek.name, now)
            return True
        if sender not in self.discovery.seekers and self.install is not None:
            self.gather_until = self.gather_until or now + GATHER
        is_new = sender not in self.discovery.seekers
        self.discovery.hear_seeker(sender, seek, now)
        if is_new:
            self._update_routes()
            if self.install is None:
                self._seek(now)
        if self.install is not None and self._is_spokesman():
            self._tell_present(now)
        return True

    def _namesake(self, name: str) -> int | None:
        """Return the member that has this name."""
        if self.install is None:
            return self.local.incarnation if name == self.local.name else None
        return next((member for member, seat in self.members.items() if seat.name == name), None)

    def _doubt(self, member: int, sender: int, name: str, now: Instant) -> None:
        """Somebody seeks with the name of a member: that one may have died. If it is
        alive, the other must take another name."""
        if self.install is not None and member != self.local.incarnation:
            self.detection.refuse(member, now)
        elif self.install is not None or self.local.incarnation < sender:
            self._tell_present(now, name)

    def _has_our_terms(self, name: str, terms: dict[str, str], now: Instant) -> bool:
        """Return whether somebody has the same terms as this member. If not, stop if we
        have no view; a view keeps out who differs."""
        differing = next((term for term in self.terms
                          if terms.get(term, self.terms[term]) != self.terms[term]), None)
        if differing is None:
            return True
        self.num_refused += 1
        sentence = (f"{name!r} has {differing}={terms[differing]!r} and this member, "
                    f"{self.local.name!r}, has {differing}={self.terms[differing]!r}")
        remedy = f"give all members of the group the same {differing}"
        if self.install is None:
            self._stop(f"{sentence}; {remedy}")
        elif self.num_refused == 1:
            self.stack.effects.warnings.append(f"{sentence}, so it is not let in; {remedy}")
        return False

    def _stop(self, sentence: str) -> None:
        """End with a fault."""
        self.stack.effects.fault = sentence
        self._end()

    @takes(PRESENT)
    def _on_present(self, sender: int, present: Present, now: Instant) -> bool:
        """On reception of PRESENT: there is a view. Seek to be let in; or, if we have
        another view, see that the two become one."""
        if not self.is_open or not are_numbers(present):
            return not self.is_open
        if present.taken == self.local.name and sender not in self.members:
            self._stop(f"another member has the name {self.local.name!r}; give every member its "
                       "own name")
            return True
        if sender in self.members or not self._has_our_terms(present.name, present.terms, now):
            return True
        is_new = sender not in self.discovery.others
        self.discovery.hear_member(sender, present, now)
        if is_new:
            self._update_routes()
        if self.install is not None and sender == present.coordinator:
            self._meet(sender, present, now)
        return True

    @takes(WHO)
    def _on_who(self, sender: int, who: Empty, now: Instant) -> bool:
        """On reception of WHO: name the members to somebody who does not come. Anybody
        can make us do this, so it is rare, and goes to everybody: then nobody can have
        it sent to a place of his choice."""
        if self.is_open and self.install is not None and self._is_spokesman() and (
                self.named_at is None or now - self.named_at >= self.discovery.interval):
            self.named_at = now
            names = [seat.name for seat in self.members.values()]
            self.send_control(PRESENT, self._presence(now, names=names), EVERYONE, now)
        return True

    def _meet(self, other: int, present: Present, now: Instant) -> None:
        """The coordinator of another group is there. Offer our view to it if it leads,
        or tell it that we are there."""
        if self.acting(self.detection.gone(now)) != self.local.incarnation:
            return
        if self._leads(present):
            self._tell_present(now)
        elif now >= self.offer_after and not self._is_changing() and (
                self.discovery.hears_all(present, now)):
            self.offer_after = now + self.hold_off
            assert self.install is not None
            self.send_control(OFFER, self.install, other, now)

    def _is_changing(self) -> bool:
        """Return whether an attempt of ours is not over."""
        return self.change is not None and bool(self.change.missing())

    def _leads(self, present: Present) -> bool:
        """Return whether we lead when our group and another become one: the larger one
        does, or else the one with the higher id."""
        return (len(self.members), self.view_id) > (present.size, present.view_id)

    @takes(OFFER)
    def _on_offer(self, sender: int, offer: Install, now: Instant) -> bool:
        """On reception of OFFER: take the members of the other group into our next
        view."""
        if not are_numbers(offer) or offer.seat(sender) is None:
            return False
        if self.install is None or not self.is_open or sender in self.members:
            return True
        theirs = {seat.incarnation for seat in offer.seats}
        if not theirs & self.members.keys():
            self.offered[sender] = offer
        return True

    def _is_spokesman(self) -> bool:
        """Return whether we answer those who seek: the first three members do, in case
        that the first is dead."""
        return self.local.incarnation in list(self.members)[:3]

    def _seek(self, now: Instant) -> None:
        self.discovery.seek(now)
        self.send_control(SEEK, Seek(self.local.name, self.stack.physical, self.terms), EVERYONE,
                          now)

    def _tell_present(self, now: Instant, taken: str | None = None) -> None:
        """Say PRESENT, but not too often, because anybody may make us say it."""
        if taken is None and self.told_at is not None and (
                now - self.told_at < self.discovery.interval // 2):
            return
        self.told_at = now
        self.send_control(PRESENT, self._presence(now, taken), EVERYONE, now)

    def _presence(self, now: Instant, taken: str | None = None,
                  names: Sequence[str] = ()) -> Present:
        return Present(self.local.name, self.stack.physical, self.terms, self.view_id,
                       len(self.members), self.acting(self.detection.gone(now)), taken,
                       list(names))

    # ------------------------------------------------------------------------------------ detection

    @takes(ALIVE)
    def _on_alive(self, sender: int, alive: Alive, now: Instant) -> bool:
        """On reception of ALIVE: compare the views."""
        if not are_numbers(alive):
            return False
        if not self.is_open or self.install is None:
            return True
        if sender in self.members and alive.settled == self.view_id:
            self._settle()
        if alive.view_id == self.view_id:
            return True
        if sender not in self.members:
            self.discovery.hear_stranger(sender, alive.view_id, now)
            if self._is_spokesman():
                self._tell_present(now)
        elif alive.view_id > self.view_id and (
                self.asked_at is None or now - self.asked_at >= self.interval // 2):
            self.asked_at = now
            self.send_control(ASK, Empty(), sender, now)
        return True

    @takes(ASK)
    def _on_ask(self, sender: int, ask: Empty, now: Instant) -> bool:
        """On reception of ASK: say which view we have."""
        if self.install is not None:
            self._update_routes(sender)
            self.send_control(INSTALL, self.install, sender, now)
        return True

    @takes(PROBE)
    def _on_probe(self, sender: int, probe: Empty, now: Instant) -> bool:
        """On reception of PROBE: say that we are alive."""
        if sender in self.members and self.is_open:
            self.send_control(ALIVE, Alive(self.view_id, self.settled_id), sender, now)
        return True

    @takes(SUSPECTS)
    def _on_suspects(self, sender: int, suspects: Suspects, now: Instant) -> bool:
        """On reception of SUSPECTS: count it, in the view that both have."""
        if not are_numbers(suspects):
            return False
        if sender in self.members and suspects.view_id == self.view_id:
            self.detection.take(sender, suspects.silent, now)
        return True

    @takes(LEAVE)
    def _on_leave(self, sender: int, leave: Empty, now: Instant) -> bool:
        """On reception of LEAVE: the sender shall not be in the next view."""
        if sender in self.members:
            self.leavers.add(sender)
        elif self.install is not None:
            self.send_control(INSTALL, self.install, sender, now)
        self.discovery.forget(sender)
        return True

    # -------------------------------------------------------------------------- a change, as member

    @takes(PREPARE)
    def _on_prepare(self, sender: int, prepare: Prepare, now: Instant) -> bool:
        """On reception of PREPARE: promise the id, and report."""
        if not are_numbers(prepare) or not self._is_plausible(prepare.id):
            return False
        mine = self.local.incarnation
        seat = next((seat for seat in prepare.seats if seat.incarnation == mine), None)
        if seat is None or not self.is_open:
            return True
        if prepare.id < self.promised:
            self._update_routes(sender, prepare)
            self.send_control(REFUSE, Refuse(prepare.id, self.promised), sender, now)
            return True
        if prepare.id == self.view_id:
            return True                                 # it comes late
        self.promised = prepare.id
        if sender != mine:
            self.change = None                          # that coordinator is ahead of us
        if prepare.finish is not None:
            self._install(prepare.finish, now)
        self._update_routes(sender, prepare)
        expected = seat.before == self.view_id
        report = Report(prepare.id, self.view_id, self.multicast.prepare(now), self.primary_id,
                        self.electorate, None if expected else self.install)
        if sender == mine:
            self._on_report(mine, report, now)
        else:
            self.send_control(REPORT, report, sender, now)
        return True

    def _is_plausible(self, view_id: int) -> bool:
        """Return whether a group can have had so many views since we heard of it."""
        known = self.view_id or HIGHEST << COUNTER
        return view_id >> COUNTER <= (max(self.promised, known) >> COUNTER) + FARTHEST

    @takes(INSTALL)
    def _on_install(self, sender: int, install: Install, now: Instant) -> bool:
        """On reception of INSTALL: install the view that we have promised. A view
        without us says that the others have gone."""
        if not are_numbers(install) or not self._is_plausible(install.id):
            return False
        if not self.is_open:
            return True
        mine = install.seat(self.local.incarnation)
        if mine is None:
            self._miss(install, now)
        elif install.id == self.promised:
            self._install(install, now)
        elif install.id < self.promised and self.view_id == mine.before:
            self.send_control(REFUSE, Refuse(install.id, self.promised), sender, now)
        if install.id == self.view_id and self.is_open:
            self._answer(sender, now)
        return True

    def _miss(self, install: Install, now: Instant) -> None:
        """A member of our view has a later one without us: those who are in it have
        gone, as far as we are concerned. Fail what they will not deliver."""
        theirs = {seat.incarnation for seat in install.seats} & self.members.keys()
        if not theirs or install.id <= self.view_id:
            return
        mine = self.local.incarnation
        if self.is_leaving:
            self._end()
            return
        for gone in install.gone:
            is_ours = gone.incarnation == mine and gone.before == self.view_id
            if is_ours and theirs | {mine} == self.members.keys():  # else others may deliver it
                self.stack.effects.failures += self.multicast.undelivered_behind(gone.cut)
        self.detection.depart(theirs)

    def _answer(self, sender: int, now: Instant) -> None:
        """Tell the coordinator that we have the view, and whether all before it is
        here."""
        body = Installed(self.view_id, self.multicast.is_complete())
        if sender == self.local.incarnation:
            self._on_installed(sender, body, now)
        else:
            self.send_control(INSTALLED, body, sender, now)

    def _install(self, install: Install, now: Instant) -> None:
        """Install a view, if it follows the one that we have."""
        before, mine = self.install, install.seat(self.local.incarnation)
        if mine is None or mine.before != self.view_id or install.id <= self.view_id:
            return
        together = frozenset(seat.incarnation for seat in install.seats
                             if seat.before == mine.before and mine.before)
        agreed = Agreed(
            cuts={seat.incarnation: seat.cut for seat in install.seats}
            | {gone.incarnation: gone.cut for gone in install.gone if gone.before == mine.before},
            holders={gone.incarnation: gone.holder for gone in install.gone
                     if gone.before == mine.before},
            together=together | {self.local.incarnation})
        former = self.members
        self.install = install
        self.members = {seat.incarnation: seat for seat in install.seats}
        self.promised = max(self.promised, install.id)
        self.primary_id, self.electorate = install.primary_id, install.electorate
        left = former.keys() - self.members.keys()
        self.leavers &= self.members.keys()
        self.offered = {}
        self.discovery.join(self.members)
        self.num_views += 1
        self.hold_off = (min(2 * self.hold_off, MOST_HOLD_OFF)
                         if before is not None and now - self.installed_at < STEADY else HOLD_OFF)
        self.installed_at = now
        self._update_routes()
        self.detection.begin(list(self.members), now)
        self.multicast.agree(agreed)
        view = self._view(install, former, agreed)
        self.above.view(view, {}, now)
        if left:
            self.above.left(set(left), now)
        if self.is_leaving and len(self.members) == 1:
            self._end()

    def _view(self, install: Install, former: dict[int, Seat], agreed: Agreed) -> View:
        """Return the view as the application sees it."""
        groups: dict[int, list[Address]] = {}
        for seat in install.seats:
            if seat.before:
                groups.setdefault(seat.before, []).append(seat.address)
        gone = {member: seat.address for member, seat in former.items()
                if member not in self.members}
        return View(
            install.id, tuple(seat.address for seat in install.seats),
            joined=tuple(seat.address for seat in install.seats if seat.incarnation not in former),
            left=tuple(gone.values()),
            # Nothing came of a stream without a cut: it ends where it begins.
            departed={address: agreed.cuts.get(member, former[member].cut)
                      for member, address in gone.items()},
            subgroups=tuple(map(tuple, groups.values())) if len(groups) > 1 else (),
            primary=install.is_primary)

    def _settle(self) -> None:
        """All members have all that comes before this view: hold nothing more for
        them."""
        if self.settled_id != self.view_id:
            self.settled_id = self.view_id
            self.multicast.settle()

    # --------------------------------------------------------------------- a change, as coordinator

    @takes(REPORT)
    def _on_report(self, sender: int, report: Report, now: Instant) -> bool:
        """On reception of REPORT: when all are here, decide; or have members finish
        another view first."""
        change = self.change
        if not are_numbers(report) or sender not in report.digest:
            return False
        if change is None or report.id != change.id or change.install is not None or (
                sender not in change.members):
            return True
        change.reports[sender] = report
        if change.missing():
            return True
        if (finish := change.unfinished(self.install)) is not None:
            self._begin_change(change.seats, finish, now)
        else:
            change.decide(self.install)
            self._send_change(now)
        return True

    @takes(REFUSE)
    def _on_refuse(self, sender: int, refuse: Refuse, now: Instant) -> bool:
        """On reception of REFUSE: try again with a higher id."""
        if not are_numbers(refuse) or not self._is_plausible(refuse.promised):
            return False
        change = self.change
        if change is not None and refuse.id == change.id and sender in change.missing():
            self.promised = max(self.promised, refuse.promised)
            self._begin_change(change.seats, None, now)
        return True

    @takes(INSTALLED)
    def _on_installed(self, sender: int, installed: Installed, now: Instant) -> bool:
        """On reception of INSTALLED: when all are complete, tell everybody."""
        change = self.change
        if change is None or installed.id != change.id or sender not in change.members:
            if installed.id == self.view_id == self.settled_id and sender in self.members:
                alive = Alive(self.view_id, self.settled_id)
                self.send_control(ALIVE, alive, sender, now)
            return True
        change.installed.add(sender)
        if installed.complete:
            change.complete.add(sender)
        if change.complete >= change.members and self.settled_id != self.view_id:
            self._settle()
            self.send_control(ALIVE, Alive(self.view_id, self.settled_id), EVERYONE, now)
        return True

    def _step(self, now: Instant) -> None:
        """Do what a member or coordinator has to do now, and set the deadline of the
        next step."""
        if not self.is_open:
            return
        if self.install is None:
            self._form(now)
        else:
            self._coordinate(now)
        self._arm(now)

    def _form(self, now: Instant) -> None:
        """Form the first view, if we may."""
        change = self.change
        self.discovery.drop_silent(now)
        if change is not None:
            if now - change.began >= JOINING and change.install is None:
                for member in change.missing():
                    self.discovery.forget(member)
                self.change = None
            else:
                self._send_change(now)
        elif self.discovery.may_form(now):
            seats = [Seat(self.local.name, self.local.incarnation, self.stack.physical, 0)]
            self._begin_change(seats + self.discovery.candidates(), None, now)

    def _coordinate(self, now: Instant) -> None:
        """If we coordinate the view, see that it has the members that it should
        have."""
        gone = self.detection.gone(now)
        if self.acting(gone) != self.local.incarnation:
            self.change = None
            return
        self.discovery.drop_silent(now)
        change = self.change
        if change is not None and self._is_stuck(change, gone, now):
            self.change = change = None
        if not self._is_changing():
            seats = self._wanted(gone, now)
            if seats is not None:
                self._begin_change(seats, None, now)
                return
        if self.change is not None:
            self._send_change(now)

    def _is_stuck(self, change: Change, gone: set[int], now: Instant) -> bool:
        """Return whether an attempt waits for somebody who will not answer. Then drop
        that one."""
        if change.missing() & gone:
            return True
        if change.install is None:
            late = JOINING if change.missing() - self.members.keys() else self.detection.timeout
            if now - change.began < late:
                return False
            for member in change.missing():
                self.discovery.forget(member)
                self.offered = {who: offer for who, offer in self.offered.items()
                                if offer.seat(member) is None}
            self.detection.depart(change.missing() & self.members.keys()
                                  if now - change.began >= self.detection.timeout else ())
            return True
        if not change.missing() or now - change.began < 2 * self.detection.timeout:
            return False
        self.detection.depart(change.missing())
        return True

    def _wanted(self, gone: set[int], now: Instant) -> list[Seat] | None:
        """Return the seats of the next view; None if it has the members of this one, or
        if joins are being gathered."""
        staying = [seat for member, seat in self.members.items()
                   if member not in gone and member not in self.leavers]
        if not staying:                                 # we leave, and are the last
            staying = [self.members[self.local.incarnation]]
        seats = [Seat(seat.name, seat.incarnation, seat.physical, self.view_id) for seat in staying]
        names = {seat.name for seat in seats}
        others = [seat for offer in self.offered.values() for seat in seats_from(offer)]
        for seat in others + self.discovery.candidates():
            if seat.name not in names:
                names.add(seat.name)
                seats.append(seat)
        if [seat.incarnation for seat in seats] == list(self.members):
            self.gather_until = None
            return None
        is_only_joining = len(staying) == len(self.members)
        if is_only_joining and self.gather_until is not None and now < self.gather_until:
            return None
        self.gather_until = None
        return seats

    def _begin_change(self, seats: list[Seat], finish: Install | None, now: Instant) -> None:
        """Prepare a view with these members."""
        self.num_changes += 1
        highest = max(self.promised, self.view_id, finish.id if finish else 0)
        view_id = ((highest >> COUNTER) + 1 << COUNTER) | (self.local.incarnation
                                                          & (1 << COUNTER) - 1)
        self.change = Change(view_id, seats, frozenset(self.leavers), now, finish)
        self._update_routes()
        self._send_change(now)

    def _send_change(self, now: Instant) -> None:
        """Send PREPARE or INSTALL to everybody, if that is due; take our own copy
        first."""
        change = self.change
        if change is None or not change.is_repeat_due(now):
            return
        body, mine = change.body(), self.local.incarnation
        kind = PREPARE if change.install is None else INSTALL
        self.send_control(kind, body, EVERYONE, now)
        if mine in change.missing():
            if isinstance(body, Prepare):
                self._on_prepare(mine, body, now)
            else:
                self._on_install(mine, body, now)

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        due = [self.next_step, self.discovery.next_seek, self.detection.deadline()]
        return min((each for each in due if each is not None), default=None)

    def tick(self, now: Instant) -> None:
        """Do what is due: SEEK, heartbeats, probes, and repeats of what was not
        answered."""
        if not self.is_open:
            return
        if self.discovery.next_seek is not None and self.discovery.next_seek <= now:
            self._seek(now)
        if self.install is not None:
            self.detection.tick(now)
            self._remind(now)
        self.next_step = None
        self._step(now)

    def _remind(self, now: Instant) -> None:
        """Repeat that we leave, and that we have the view."""
        if self.next_step is None or self.next_step > now:
            return
        if self.is_leaving:
            self.send_control(LEAVE, Empty(), EVERYONE, now)
        if self.settled_id != self.view_id:
            self._answer(self.acting(self.detection.gone(now)), now)

    def _arm(self, now: Instant) -> None:
        """Set the deadline of the next step."""
        due: list[Instant] = []
        if self.change is not None and self.change.missing():
            due.append(self.change.due)
        if self.install is None and self.change is None:
            due.append(self.discovery.changed + self.discovery.margin)
        if self.gather_until is not None:
            due.append(self.gather_until)
        if self.install is not None and (self.is_leaving or self.settled_id != self.view_id):
            due.append(now + self.discovery.interval)
        soonest = min((each for each in due if each > now), default=None)
        if soonest is not None and (self.next_step is None or soonest < self.next_step):
            self.next_step = soonest

    # --------------------------------------------------------------------------------------- routes

    def _update_routes(self, besides: int = 0, prepare: Prepare | None = None) -> None:
        """Tell the transport where everybody can be reached."""
        routes = self.discovery.physicals(self.members.keys())
        for seats in (prepare.seats if prepare else (), self.change.seats if self.change else (),
                      self.members.values()):
            routes |= {seat.incarnation: seat.physical for seat in seats}
        routes.pop(self.local.incarnation, None)
        self.stack.effects.routes = routes

    def linked(self, member: int, now: Instant) -> None:
        """Seek, or say that we are there: a member that has just been reached may not
        know us."""
        if self.is_open and self.install is None:
            self._seek(now)
        elif self.is_open and self._is_spokesman():
            self._tell_present(now)
        self.above.linked(member, now)

    def status(self) -> dict[str, int]:
        detection = self.detection
        return {"view_id": self.view_id, "num_members": len(self.members),
                "num_views": self.num_views, "num_changes": self.num_changes,
                "num_refused": self.num_refused, "num_suspected": detection.num_suspected,
                "num_probes": detection.num_probes, "num_pauses": detection.num_pauses,
                "num_bad_membership": self.num_bad}


def seats_from(offer: Install) -> list[Seat]:
    """Return the seats of the members of another group in a common view."""
    return [Seat(seat.name, seat.incarnation, seat.physical, offer.id) for seat in offer.seats]
