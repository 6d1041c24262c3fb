"""A model of views that are agreed on, to prove which of them are primary.

It has no network and no clock. What was said is there for ever: a PREPARE may reach a
member at any later time, after its coordinator has begun another one or has died, and
so may an INSTALL and a LEAVE. Anybody may begin a change with anybody, as if it
suspected the rest. So the model does all that real members do, and much that they
hardly ever do. What decides on primary views is their own code: Voting, Change and
judge_view. Finish, REFUSE and LEAVE are as in layer.py, coordinator.py and leaving.py.
"""

from random import Random

from ringcast.address import Address
from ringcast.audit.primaries import Primaries
from ringcast.config import configure
from ringcast.protocols.membership.change import Change
from ringcast.protocols.membership.coordinator import MAKER, finishing
from ringcast.protocols.membership.messages import Leave, Report, Seat
from ringcast.protocols.membership.primary import Voting
from ringcast.protocols.membership.sense import COUNTER
from ringcast.view import View


class Broken(Exception):
    """Two parts are primary, or a view is that should not be."""


class Member:
    """One process, with what Membership has of it."""

    def __init__(self, incarnation, min_members, observes=False):
        self.local = Address(f"m{incarnation}", incarnation)
        self.observes = observes
        self.install = None
        self.members = {}
        self.promised = self.made = self.given_up = 0
        self.change = None
        self.leavers = {}
        self.is_leaving, self.is_alive = False, True
        self.seats = [Seat(self.local.name, incarnation, "", 0, observes=observes)]
        self.voting = Voting(self, configure({"min_members": min_members}))

    @property
    def incarnation(self):
        return self.local.incarnation

    @property
    def view_id(self):
        return self.install.id if self.install else 0

    @property
    def has_said_leave(self):
        return self.incarnation in self.leavers

    def seat(self):
        """Return the seat that others believe it has in their next view."""
        return self.seats[-1]


class Model:
    """Members, all that they have said, and the primary views that there were."""

    def __init__(self, count, min_members, num_observers=0):
        self.min_members = min_members
        self.members = {}
        for number in range(count):
            self.start(observes=number >= count - num_observers)
        self.prepared = []                      # (sender, PREPARE)
        self.installs = []
        self.leaves = []                        # (sender, LEAVE)
        self.primaries = Primaries(self._violated, min_members)

    def _violated(self, view, sentence):
        raise Broken(sentence)

    def living(self):
        return [member for member in self.members.values() if member.is_alive]

    # --------------------------------------------------------- what may happen

    def start(self, observes=False):
        """A new process, which may take the place of one that died."""
        incarnation = len(self.members) + 1
        self.members[incarnation] = Member(incarnation, self.min_members, observes)

    def crash(self, member):
        member.is_alive = False

    def begin(self, member, others, seat_of=Member.seat):
        """Prepare a view with these others. Those of our view come first, and are
        believed to have it still; strangers come from where `seat_of` says."""
        if member.has_said_leave:
            others = []                         # it lets nobody in
        chosen = {each.incarnation for each in others}
        seats = [seat.moved(member.view_id) for each, seat in member.members.items()
                 if each in chosen or each == member.incarnation] or [member.seat()]
        strangers = [seat_of(each) for each in others if each.incarnation not in member.members]
        if member.install is None:              # it takes in who is in no group either
            strangers = [seat for seat in strangers if seat.before == 0]
        self.prepare(member, seats + strangers)

    def prepare(self, member, seats, finish=None, verdict=None, tries=0):
        if finish is not None:
            seats = finishing(seats, finish)
        highest = max([member.promised, member.made, *(seat.before for seat in seats)])
        view_id = member.made = ((highest >> COUNTER) + 1 << COUNTER) | (
            member.incarnation & MAKER)
        verdict = verdict or member.voting.foresee(seats)
        member.change = Change(view_id, seats, dict(member.leavers), 0, 0, finish,
                               verdict.roots(view_id), tries=tries)
        self.prepared.append((member, member.change.body()))
        self.take_prepare(member, *self.prepared[-1])

    def take_prepare(self, member, sender, prepare, is_void=False):
        """A PREPARE comes, and its REPORT goes back. `is_void`: what a member without a
        view had promised came to nothing."""
        seat = prepare.seat(member.incarnation)
        promised = (member.voting.last_id if is_void and member.install is None
                    else member.promised)
        if seat is None or not member.is_alive or prepare.id == member.view_id or (
                prepare.id < promised or (member.has_said_leave and sender is not member)):
            return
        if member.install and seat.before != member.view_id and (
                sender.incarnation not in member.members):
            return
        if prepare.id < member.promised:
            member.given_up = member.promised
        member.promised = prepare.id
        if sender is not member:
            member.change = None
        if prepare.finish is not None and (member.install or prepare.finish.id > member.given_up):
            self._install(member, prepare.finish)
        is_expected = seat.before == member.view_id
        report = Report(prepare.id, member.view_id, {member.incarnation: 0},
                        list(member.voting.quorums), member.has_said_leave,
                        None if is_expected else member.install)
        if sender is not member:
            member.voting.attempt(prepare)
        if sender.is_alive and sender.change and sender.change.id == prepare.id:
            sender.change.reports.setdefault(member.incarnation, report)

    def decide(self, member):
        """Decide as Coordinator.take_report does, if all have reported."""
        change = member.change
        if change is None or not member.is_alive or change.install or change.missing():
            return
        finish = change.unfinished(member.install)
        if finish is not None and change.tries < 8:
            self.prepare(member, change.seats, finish, tries=change.tries + 1)
        elif elsewhere := change.elsewhere():
            if member.incarnation in elsewhere:
                elsewhere = change.members - elsewhere
            self.prepare(member, [seat for seat in change.seats
                                  if seat.incarnation not in elsewhere])
        else:
            verdict = change.judge(self.min_members)
            if verdict.is_primary and not change.has_told(verdict):
                self.prepare(member, change.seats, verdict=verdict)
                return
            install = change.decide(member.install, verdict)
            self.installs.append(install)
            self.take_install(member, install)

    def hear_refusal(self, member):
        """Somebody has promised another view than this member decided on."""
        change = member.change
        if change is not None and member.is_alive and change.install is not None:
            self.prepare(member, finishing(change.seats, change.install))

    def take_install(self, member, install):
        """An INSTALL comes, from whoever has it."""
        if install.id == member.promised and member.is_alive:
            self._install(member, install)

    def _install(self, member, install):
        before, seat = member.view_id, install.seat(member.incarnation)
        if seat is None or seat.before != before or install.id <= before or any(
                each.before != before for each in install.seats
                if each.incarnation in member.members):
            return
        member.install = install
        member.seats.append(seat.moved(install.id))
        member.members = {each.incarnation: each for each in install.seats}
        member.voting.install(install)
        member.leavers = {each: member.leavers[each] for each in member.members
                          if each in member.leavers}
        if install.is_primary:
            self._check(install)
        if member.is_leaving:
            self.leave(member)

    def leave(self, member):
        """Leave in good order: at once, or in the view that it has promised."""
        member.is_leaving = True
        is_alone = len(member.members) <= 1
        if is_alone or member.promised <= member.view_id or member.has_said_leave:
            member.leavers[member.incarnation] = []
            self.leaves.append((member, Leave(member.view_id, list(member.voting.quorums))))
        if is_alone:
            member.is_alive = False

    def hear_leave(self, member, sender, leave):
        if sender.incarnation in member.members and member is not sender and (
                leave.view_id in (0, member.view_id)):
            member.leavers[sender.incarnation] = leave.quorums

    # ------------------------------------------------------------- the promise

    def _check(self, install):
        """Check the row of primary views with one that somebody installs."""
        view = View(install.id, tuple(seat.address for seat in install.seats),
                    observers=tuple(seat.address for seat in install.seats if seat.observes))
        left = [member.local for member in self.members.values() if member.has_said_leave]
        self.primaries.add(view, left)
        self.primaries.check()


class Walk:
    """A random walk through the model. It does what groups do: parts that hear each
    other make views, and the parts change, also in the middle of that. Some datagrams
    are lost, and some come much later."""

    def __init__(self, seed):
        self.rng = rng = Random(seed)
        is_plain = rng.random() < 0.6           # nothing but changes and parts
        count = rng.randint(2, 6)
        observers = 0 if is_plain or count < 3 else rng.choice([0, 0, 1])
        self.model = Model(count, min(rng.randint(1, 3), count - observers), observers)
        # How many of each there may be.
        self.starts, self.leaves, self.crashes = (
            0 if is_plain else rng.choice([0, 0, 1, 2]) for _ in range(3))
        # The chances that the parts change, and that something is lost or comes late.
        self.resplit = rng.choice([0.3, 0.6, 0.9])
        self.lost = 0.0 if is_plain else rng.choice([0.0, 0.05, 0.3])
        self.late = 0.0 if is_plain else rng.choice([0.0, 0.1, 0.3])
        self.again = None                       # who has begun what came to nothing
        self.split()

    def run(self, steps):
        for _ in range(steps):
            self.step()

    def split(self):
        """Let members hear each other anew, in up to three parts."""
        most = self.rng.choice([1, 2, 2, 2, 3])
        self.part = {each: self.rng.randrange(most) for each in self.model.members}

    def hears(self, one, other):
        return self.part[one.incarnation] == self.part[other.incarnation] and (
            self.rng.random() >= self.lost)

    def step(self):
        rng, model = self.rng, self.model
        living = model.living()
        if not living:
            return
        if rng.random() < self.resplit:
            self.split()
        if rng.random() < 0.05 and self.starts:
            self.starts -= 1
            model.start()
            self.split()
        if rng.random() < 0.05 and self.leaves:
            self.leaves -= 1
            model.leave(rng.choice(living))
        if rng.random() < 0.05 and self.crashes:
            self.crashes -= 1
            model.crash(rng.choice(living))
        if rng.random() < self.late:
            self.arrive_late()
        living = model.living()
        if self.again in living and rng.random() < 0.5:
            self.change(self.again)
        elif living:
            self.change(rng.choice(living))

    def arrive_late(self):
        """Something arrives that was sent long before."""
        rng, model = self.rng, self.model
        member = rng.choice([*model.members.values()])
        kind = rng.randrange(5)
        if kind == 0 and model.prepared:
            model.take_prepare(member, *rng.choice(model.prepared[-6:]), rng.random() < 0.3)
        elif kind == 1 and model.installs:
            model.take_install(member, rng.choice(model.installs[-6:]))
        elif kind == 2 and model.leaves:
            model.hear_leave(member, *rng.choice(model.leaves[-4:]))
        elif kind == 3:
            model.hear_refusal(member)
        else:
            model.decide(member)

    def change(self, member):
        """A change with those who hear each other. It may stop anywhere."""
        rng, model = self.rng, self.model
        living = [each for each in model.living() if each is not member]
        for each in [member, *living]:
            for sender, leave in model.leaves:
                if self.hears(each, sender):
                    model.hear_leave(each, sender, leave)
        others = [each for each in living if each.incarnation not in member.leavers
                  and self.hears(member, each)]
        model.begin(member, others, self.believed)
        for _ in range(5):
            change = member.change
            if change is None or change.install is not None:
                break
            prepare = model.prepared[-1]
            for each in rng.sample(living, len(living)):
                if self.hears(member, each):
                    model.take_prepare(each, *prepare, rng.random() < 0.3)
            if rng.random() < self.resplit / 2:
                self.split()
                self.again = member
                return
            model.decide(member)
        if rng.random() < self.resplit / 2:
            self.split()
        if member.change is not None and (install := member.change.install) is not None:
            for each in living:
                if self.hears(member, each):
                    model.take_install(each, install)

    def believed(self, member):
        """Return a member's seat, or an old one: others may not know better."""
        return member.seat() if self.rng.random() < 0.95 else self.rng.choice(member.seats)
