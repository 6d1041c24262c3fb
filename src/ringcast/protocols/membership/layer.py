"""The membership layer: a group that forms itself, and agrees on its views.

    discovery.py    who is there, and when a first view may form
    absent.py       who is gone and expected back
    settling.py     when all have come so far
    meeting.py      how joiners are answered, and two groups become one
    leaving.py      what LEAVE promises
    detection.py    who is silent, and who must go
    coordinator.py  whom the next view should have
    change.py       the attempt to install a view
    primary.py      which part of a group is primary
    views.py        what a view that is agreed on means for one member
    rekeying.py     a key for each view, in a group with a secret
    messages.py     what members say to each other
    sense.py        what of that can be true at all
    asking.py       the layer of one who asks who is there, and does not come
    state.py        the application's state, for who comes

The oldest member of a view coordinates it. It gathers who wants to come (SEEK), who
leaves (LEAVE), who must go and groups that want to become one with ours (OFFER), and
makes one view change of all. What the multicast layer does about a change is in
multicast/flush.py. This file has what every member does: it reports, installs views,
and passes each datagram to the part whose rule it is.

*Promises.* A member that has answered a PREPARE has promised its id, and refuses all
lower ones. It installs a view only if that is the last one that it has promised, or if
the coordinator has it finish an earlier view first. So two coordinators, of which each
takes the other for dead, cannot both succeed with the same members. Who has no view
waits only for a while for the view that it has promised; but it goes to none below one
that may have become primary (primary.py).

*Ids* have a counter, which only grows, and 32 bits of the coordinator, so no two views
share an id.

*Members that were excluded while they lived* (paused, cut off) hear of a view without
them. For such a member the others have left: it installs a view without them. Then
these are two groups, which become one. What it had sent and the others will never
deliver fails (Effects.failures).
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ringcast.address import EVERYONE, Address
from ringcast.config import Config, nanoseconds
from ringcast.errors import ConfigError
from ringcast.kinds import takes
from ringcast.protocols.allowance import Allowance
from ringcast.protocols.membership.absent import Absentees
from ringcast.protocols.membership.change import LEAST_PAUSE
from ringcast.protocols.membership.coordinator import MAKER, Coordinator
from ringcast.protocols.membership.detection import Detection
from ringcast.protocols.membership.leaving import Leaving
from ringcast.protocols.membership.meeting import Meeting
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
    Leave,
    Prepare,
    Present,
    Quorum,
    Refuse,
    Report,
    Seat,
    Seek,
    Suspects,
)
from ringcast.protocols.membership.primary import Voting
from ringcast.protocols.membership.rekeying import Rekeying
from ringcast.protocols.membership.seldom import Seldom
from ringcast.protocols.membership.sense import Ceiling, is_prepare, is_report, is_view
from ringcast.protocols.membership.settling import Settling
from ringcast.protocols.membership.state import StateTransfer
from ringcast.protocols.membership.views import agreed_for, view_for
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.keeping import Part
from ringcast.protocols.seqnos import Seqno, later
from ringcast.stack import Instant, Layer, Packet, sooner
from ringcast.status import Layers, MembershipStatus

if TYPE_CHECKING:
    from ringcast.protocols.security.keyring import Keyring

WAIT = nanoseconds(500.0)               # for the view that was promised
STRANGERS = 64                          # PREPAREs of others than members that are answered at once


class Membership(Layer):
    """The layer of the member `local`, below `multicast`. `terms` are what all members
    must share (config.terms_of)."""

    def __init__(self, local: Address, config: Config, multicast: Multicast,
                 terms: dict[str, str], transfer: StateTransfer, durable: bool = False,
                 keyring: "Keyring | None" = None) -> None:
        self.local, self.multicast, self.transfer = local, multicast, transfer
        transfer.membership = self
        multicast.keeping.durable = durable
        self.absence = int(config.absence * 1000) if durable else 0     # milliseconds
        self.observes = multicast.observing is not None
        self.interval = nanoseconds(config.heartbeat_interval)
        self.detection = Detection(self, config)
        self.meeting = Meeting(self, config, terms)
        self.coordinator, self.leaving = Coordinator(self), Leaving(self)
        self.settling, self.absentees = Settling(self), Absentees(self)
        self.rekeying = Rekeying(self, config, keyring)
        self.install: Install | None = None             # the view that we have
        self.members: dict[int, Seat] = {}              # of it, the oldest first
        self.ceiling = Ceiling()
        self.promised = 0                               # the last PREPARE that we answered ...
        self.promised_at: Instant = 0                   # ... and when
        self.given_up = 0                               # the highest that we had promised before
        self.leavers: dict[int, list[Quorum]] = {}      # who says LEAVE, and what it knew
        self.held: list[tuple[int, Part]] = []      # what others can get from us alone
        self.missed: Seqno | None = None    # nobody delivers what we sent in this view behind it
        self.failed: Seqno | None = None    # up to where our application was told so
        self.is_open = False                            # it was started, and has not left
        self.is_leaving = self.has_left = False
        self.voting = Voting(self, config)
        self.next_step: Instant | None = None           # to repeat what was not answered
        self.asked = Seldom(self.interval // 2)         # ASK
        self.answered = Seldom(self.interval // 4)      # our view, to who asks
        self.strangers = Allowance(STRANGERS, LEAST_PAUSE)      # answers to their PREPAREs
        self.num_views = self.num_bad = 0

    # ---------------------------------------------------------------------------------------- state

    @property
    def view_id(self) -> int:
        """Return the id of the view that is installed here; 0 without one."""
        return self.install.id if self.install else 0

    def seat(self) -> Seat:
        """Return our seat in the next view."""
        return Seat(self.local.name, self.local.incarnation, self.stack.physical, self.view_id,
                    absence=self.absence, public=self.rekeying.public, observes=self.observes)

    def acting(self, gone: Collection[int]) -> int:
        """Return who coordinates: the oldest member that is not gone, and does not
        leave while others stay."""
        staying = [member for member in self.members if member not in gone]
        for member in staying:
            if member not in self.leavers:
                return member
        return staying[0] if staying else 0

    def present(self) -> list[str]:
        """Return the names of the members of the view; without one, of this member and
        of those that it hears."""
        return [seat.name for seat in self._seats()]

    def _named(self) -> dict[int, str]:
        """Return the names of the members of the view, and of those that are absent."""
        names = {member: seat.name for member, seat in self.members.items()}
        return names | {member: each.name for member, each in self.absentees.known.items()}

    def num_counted(self) -> int:
        """Return how many of these are no observers: min_members counts them."""
        return sum(not seat.observes for seat in self._seats())

    def _seats(self) -> list[Seat]:
        if self.install is not None:
            return list(self.members.values())
        heard = {**self.meeting.discovery.others, **self.meeting.discovery.seekers}
        return [self.seat(), *(found.seat for found in heard.values())]

    def agreed(self) -> bool:
        """Return whether this member has left, if it leaves; otherwise whether all
        members have the view and all that comes before it."""
        return self.has_left if self.is_leaving else self.view_id > 0 and self.settling.is_settled

    # --------------------------------------------------------------------------------------- events

    def start(self, now: Instant) -> None:
        self.is_open = True
        self.meeting.discovery.begin(now)
        self.meeting.seek(now)

    def exclude(self, member: Address | str, now: Instant) -> None:
        """Exclude a member that an operator knows to be dead, or wait for an absent one
        no longer."""
        known = self._named()
        gone = [each for each, name in known.items() if member in (name, Address(name, each))]
        if not gone:
            names = ", ".join(known.values())
            raise ConfigError(f"{str(member)!r} is not in the view, which has {names or 'nobody'}")
        self.absentees.give_up(gone)
        self.detection.exclude(gone, now)
        self._step(now)

    def leave(self, now: Instant) -> None:
        """Tell the others that this member leaves."""
        self.leaving.begin(now)
        self._step(now)

    def end(self) -> None:
        """Say nothing any more: this member has left."""
        self.has_left, self.is_open = True, False
        self.next_step = self.meeting.discovery.next_seek = None
        self.coordinator.stop()
        self.detection.stop()

    def stop(self, sentence: str) -> None:
        """End with a fault."""
        self.stack.effects.fault = sentence
        self.end()

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Take what concerns the group. Any packet shows that its sender is alive."""
        self.detection.hear([packet.sender for packet in packets], now)
        super().receive(packets, now)
        self.settling.answer_once_complete(now)

    def received(self, now: Instant) -> None:
        self._step(now)

    def refused(self, member: int, now: Instant) -> None:
        """A datagram or a dial to a member was refused: its process may be gone."""
        if self.is_open:
            self.detection.refuse(member, now)
            self._step(now)
        self.above.refused(member, now)

    def linked(self, member: int, now: Instant) -> None:
        """Seek, or say that we are there: a member that has just been reached may not
        know us. Do not form a group before it has spoken. It is alive: only its process
        can make a connection."""
        self.detection.hear([member], now)
        self.detection.answer(member)
        self.detection.misname(self.rekeying.misnamed([member]))
        if self.is_open and self.install is None:
            self.meeting.discovery.disturb(now)
            self.meeting.answer(member, now)
        elif self.is_open and self.meeting.is_spokesman():
            self.meeting.present(now)
        self.above.linked(member, now)

    def count_bad(self) -> None:
        self.num_bad += 1

    # -------------------------------------------------------------------- those who are not with us

    @takes(SEEK)
    def _on_seek(self, sender: int, seek: Seek, now: Instant) -> bool:
        """On reception of SEEK."""
        if not self.rekeying.believes(sender, seek.name, seek.public):
            return False
        if self.is_open:
            self.meeting.take_seek(sender, seek, now)
        return True

    @takes(PRESENT)
    def _on_present(self, sender: int, present: Present, now: Instant) -> bool:
        """On reception of PRESENT."""
        if not self.rekeying.believes(sender, present.name):
            return False
        if self.is_open:
            self.meeting.take_present(sender, present, now)
        return True

    @takes(WHO)
    def _on_who(self, sender: int, who: Empty, now: Instant) -> bool:
        """On reception of WHO: name the members."""
        if self.is_open and self.install is not None:
            self.meeting.name_all(now)
        return True

    @takes(OFFER)
    def _on_offer(self, sender: int, offer: Install, now: Instant) -> bool:
        """On reception of OFFER."""
        if not is_view(offer) or offer.seat(sender) is None or not self.ceiling.allows(
                offer.id, now):
            return False
        if self.is_open:
            self.meeting.take_offer(sender, offer, now)
        return True

    # ------------------------------------------------------------------------ those who are with us

    @takes(ALIVE)
    def _on_alive(self, sender: int, alive: Alive, now: Instant) -> bool:
        """On reception of ALIVE: compare the views."""
        if not self.is_open or self.install is None:
            return True
        if sender not in self.members:
            self.meeting.hear_stranger(sender, alive.view_id, now)
            return True
        self.detection.answer(sender)
        self.settling.hear(alive)
        if alive.view_id == self.view_id:
            self.detection.hear_inside(sender, now)
        if alive.view_id > self.view_id and self.asked.allows(now):
            self.send_control(ASK, Empty(), sender, now)
        return True

    @takes(ASK)
    def _on_ask(self, sender: int, ask: Empty, now: Instant) -> bool:
        """On reception of ASK: say which view we have."""
        self.tell_view(now)
        return True

    @takes(PROBE)
    def _on_probe(self, sender: int, probe: Empty, now: Instant) -> bool:
        """On reception of PROBE: say that we are alive."""
        if sender in self.members and self.is_open:
            self.settling.say(sender, now)
        return True

    @takes(SUSPECTS)
    def _on_suspects(self, sender: int, suspects: Suspects, now: Instant) -> bool:
        """On reception of SUSPECTS: count it, in the view that both have."""
        if sender in self.members and suspects.view_id == self.view_id:
            self.detection.take(sender, suspects.silent, now)
            self.detection.depart(set(suspects.excluded) - {self.local.incarnation})
            self.absentees.give_up(suspects.excluded)
        return True

    @takes(LEAVE)
    def _on_leave(self, sender: int, leave: Leave, now: Instant) -> bool:
        """On reception of LEAVE."""
        self.leaving.hear(sender, leave, now)
        return True

    def tell_view(self, now: Instant) -> None:
        """Say which view we have, to everybody: who asks may have no route here."""
        if self.install is not None and self.is_open and self.answered.allows(now):
            self.send_control(INSTALL, self.install, EVERYONE, now)

    # ----------------------------------------------------------------------------- a change of view

    @takes(PREPARE)
    def _on_prepare(self, sender: int, prepare: Prepare, now: Instant) -> bool:
        """On reception of PREPARE."""
        if not is_prepare(prepare) or not self.ceiling.allows(prepare.id, now):
            return False
        self.take_prepare(sender, prepare, now)
        return True

    def take_prepare(self, sender: int, prepare: Prepare, now: Instant) -> None:
        """Promise the id, and report."""
        mine = self.local.incarnation
        seat = prepare.seat(mine)
        if seat is None or not self.is_open or prepare.id == self.view_id or (
                self.leaving.is_said and sender != mine):
            return                                      # not for us, or late, or we have left it
        if self.install and seat.before != self.view_id and sender not in self.members:
            self.meeting.present(now)                   # it does not know that we are in a group
            return
        if sender not in (mine, *self.members) and not self.strangers.take(now):
            return                                      # our answer may go to somebody else
        self.update_routes(prepare.seats)
        is_taken = self.coordinator.is_taken(sender, now)
        is_void = self.install is None and now - self.promised_at >= WAIT
        promised = self.voting.last_id if is_void else self.promised
        if is_taken or prepare.id < promised:
            self.send_control(REFUSE, Refuse(prepare.id, 0 if is_taken else promised), sender, now)
            return
        if strangers := self.rekeying.strangers(prepare.seats):
            refusal = Refuse(prepare.id, 0, strangers)
            if sender == mine:
                self.coordinator.take_refusal(mine, refusal, now)
            else:
                self.send_control(REFUSE, refusal, sender, now)
            return
        if not self.rekeying.take(sender, prepare):
            self.count_bad()
            return
        if prepare.id < self.promised:
            self.given_up = self.promised
        self.promised, self.promised_at = prepare.id, now
        if sender != mine:
            self.coordinator.yield_to(now)              # that one is ahead of us
            if sender not in self.members:
                self.coordinator.give_way(now)
                self.meeting.discovery.wait_anew(now)
        if prepare.finish is not None and (self.install or prepare.finish.id > self.given_up):
            self._install(prepare.finish, now)          # it knows all that we have promised
            self.update_routes(prepare.seats)
        is_expected = seat.before == self.view_id
        report = Report(prepare.id, self.view_id, self.multicast.prepare(now),
                        list(self.voting.quorums), self.leaving.is_said,
                        None if is_expected else self.install, self.multicast.keeping.low(),
                        self.multicast.keeping.kept(), self.transfer.standing(now),
                        list(self.absentees.left), self.multicast.lacking())
        if sender == mine:
            self.coordinator.take_report(mine, report, now)
        else:
            self.voting.attempt(prepare)
            self.send_control(REPORT, report, sender, now)


    @takes(INSTALL)
    def _on_install(self, sender: int, install: Install, now: Instant) -> bool:
        """On reception of INSTALL."""
        if not is_view(install) or install.seat(sender) is None or not self.ceiling.allows(
                install.id, now):
            return False
        self.take_install(sender, install, now)
        return True

    def take_install(self, sender: int, install: Install, now: Instant) -> None:
        """Install the view that we have promised, and answer the one who made it. A
        view without us says that the others have gone."""
        if not self.is_open:
            return
        mine = install.seat(self.local.incarnation)
        if mine is None:
            self._miss(install)
        elif install.id == self.promised:
            self._install(install, now)
        elif install.id < self.promised and self.view_id == mine.before:
            self.send_control(REFUSE, Refuse(install.id, self.promised), sender, now)
        if install.id == self.view_id and self.is_open and install.id & MAKER == sender & MAKER:
            self.settling.answer(sender, now)

    def _miss(self, install: Install) -> None:
        """A member of our view has a later one without us: those who are in it have
        gone, as far as we are concerned. Note what they will not deliver."""
        mine = self.local.incarnation
        theirs = {seat.incarnation for seat in install.seats} & self.members.keys()
        if not theirs or install.id <= self.view_id:
            return
        if self.is_leaving:
            self.end()
            return
        for gone in install.gone:
            is_ours = gone.incarnation == mine and gone.before == self.view_id
            if is_ours and theirs | {mine} == self.members.keys():  # else others may deliver it
                self.missed = gone.cut
        self.detection.depart(theirs)

    def _install(self, install: Install, now: Instant) -> None:
        """Install a view, if it follows the one that we have."""
        before, mine = self.view_id, install.seat(self.local.incarnation)
        if mine is None or mine.before != before or install.id <= before:
            return
        names = self._named() | {self.local.incarnation: self.local.name}
        told = [(each.incarnation, each.name) for each in install.seats]
        told += [(each.incarnation, each.name) for each in install.absent]
        if any(names.get(member, name) != name for member, name in told):
            return                                      # somebody else would have its name
        if any(seat.before != before for seat in install.seats if seat.incarnation in self.members):
            return                                      # a member of our view is with us or gone
        if not self.multicast.may_end_at(mine.cut) or not self.rekeying.fits(install):
            return
        # What we have told and freed since then, nobody needs.
        self.held = [(sender, part) for sender, part in install.held_by(self.local.incarnation)
                     if self.multicast.can_give(sender, part)
                     or not self.multicast.has_told(sender, part.last)]
        agreed = agreed_for(self.local.incarnation, install, before)
        former, self.install = self.members, install
        self.members = {seat.incarnation: seat for seat in install.seats}
        self.rekeying.install(install.id, now)
        self.voting.install(install)
        lost = former.keys() - self.members.keys() - self.leavers.keys() - self.detection.silent
        self.leavers = {member: self.leavers[member] for member in self.members
                        if member in self.leavers}
        self.absentees.install(install, now)
        self.coordinator.join()
        self.meeting.join(bool(lost), now)
        self.num_views += 1
        self.update_routes()
        self.detection.begin(list(self.members), now)
        self.detection.misname(self.rekeying.misnamed(self.members))
        self._fail_missed(former, mine.cut)
        self.multicast.agree(agreed)
        self.transfer.install(install, now)
        self.above.view(view_for(install, former, agreed), now)
        if left := former.keys() - self.members.keys():
            self.above.left(set(left), now)
        if self.is_leaving:
            self.leaving.begin(now)

    def _fail_missed(self, former: dict[int, Seat], cut: Seqno) -> None:
        """Fail what we have sent in the former view, up to `cut`, and the others will
        not deliver. Now, because nothing more is sent in that view; and once, however
        many have said that they are in another one, and though it was kept since then
        for durable ones that have gone again."""
        missed, self.missed = self.missed, None
        if missed is not None and former.keys() & self.members.keys() == {self.local.incarnation}:
            behind = missed if self.failed is None else later(missed, self.failed)
            self.stack.effects.failures += self.multicast.undelivered_behind(behind, cut)
            self.failed = cut

    @takes(REPORT)
    def _on_report(self, sender: int, report: Report, now: Instant) -> bool:
        """On reception of REPORT."""
        if not is_report(sender, report):
            return False
        self.coordinator.take_report(sender, report, now)
        return True

    @takes(REFUSE)
    def _on_refuse(self, sender: int, refuse: Refuse, now: Instant) -> bool:
        """On reception of REFUSE."""
        if not self.ceiling.allows(refuse.promised, now):
            return False
        self.coordinator.take_refusal(sender, refuse, now)
        return True

    @takes(INSTALLED)
    def _on_installed(self, sender: int, installed: Installed, now: Instant) -> bool:
        """On reception of INSTALLED."""
        self.settling.take(sender, installed, self.coordinator.change, now)
        return True

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        due, seek = self.detection.deadline(), self.meeting.discovery.next_seek
        if self.next_step is not None or seek is not None:
            due = sooner(due, sooner(self.next_step, seek))
        return due

    def tick(self, now: Instant) -> None:
        """Do what is due: SEEK, heartbeats, probes, and repeats of what was not
        answered."""
        if not self.is_open:
            return
        next_seek = self.meeting.discovery.next_seek
        is_step_due = self.next_step is not None and self.next_step <= now
        if next_seek is not None and next_seek <= now:
            self.meeting.seek(now)
        if self.install is not None:
            self.detection.tick(now)
            if is_step_due:
                self._remind(now)
        if is_step_due:
            self.next_step = None
        self._step(now)

    def _remind(self, now: Instant) -> None:
        """Repeat that we leave, and that we have the view. If we have promised a view
        that does not come, or somebody has reported in our name, ask for another one:
        until then we deliver little."""
        coordinator = self.acting(self.detection.gone(now))
        if self.is_leaving:
            self.leaving.say(now)
        if self.settling.is_waiting:
            self.settling.answer(coordinator, now)
        if self._is_kept_waiting(now) or self._is_misquoted():
            refusal = Refuse(self.view_id, self.promised)
            if coordinator == self.local.incarnation:
                self.coordinator.take_refusal(coordinator, refusal, now)
            else:
                self.send_control(REFUSE, refusal, coordinator, now)

    def _is_kept_waiting(self, now: Instant) -> bool:
        """Return whether we have promised a view that should have come by now."""
        return self.promised > self.view_id and now - self.promised_at >= WAIT

    def _is_misquoted(self) -> bool:
        """Return whether others may wait for what our view says that we have, and we
        do not have it: somebody has reported in our name, or we had to give it up."""
        return not self.settling.is_settled and not all(
            self.multicast.can_give(sender, part) for sender, part in self.held)

    def _step(self, now: Instant) -> None:
        """Do what a member or coordinator has to do now, and set the deadline of the
        next step."""
        if not self.is_open:
            return
        if self.install is None:
            self.coordinator.form(now)
        else:
            self.coordinator.coordinate(now)
        discovery, due = self.meeting.discovery, self.coordinator.due(now)
        if self.install is None and self.coordinator.change is None:
            due.append(discovery.is_calm_at(self.stack.unread_at))
        elif self.install is not None and (self.is_leaving or self.settling.is_waiting
                                           or self.promised > self.view_id):
            due.append(now + discovery.interval)
        soonest = min((each for each in due if each > now), default=None)
        if soonest is not None and (self.next_step is None or soonest < self.next_step):
            self.next_step = soonest

    # --------------------------------------------------------------------------------------- routes

    def update_routes(self, besides: Collection[Seat] = ()) -> None:
        """Tell the transport where everybody can be reached."""
        change = self.coordinator.change
        routes = self.meeting.discovery.physicals(self.members.keys())
        for seats in (besides, change.seats if change else (), self.members.values()):
            routes |= {seat.incarnation: seat.physical for seat in seats}
        routes.pop(self.local.incarnation, None)
        self.stack.effects.routes = routes

    def describe(self, status: Layers) -> None:
        detection = self.detection
        status.membership = MembershipStatus(
            view_id=self.view_id, num_members=len(self.members),
            num_observers=sum(seat.observes for seat in self.members.values()),
            is_primary=int(self.voting.is_primary), num_views=self.num_views,
            num_changes=self.coordinator.num_changes, num_bad_membership=self.num_bad,
            num_refused=self.meeting.num_refused, num_suspected=detection.num_suspected,
            num_probes=detection.num_probes, num_pauses=detection.num_pauses)
