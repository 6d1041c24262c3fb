"""A view change, as the coordinator sees it.

PREPARE goes to all who shall be in the new view, until each has answered with a REPORT.
Then INSTALL goes to them, until each has answered INSTALLED. While answers come, those
that are missing are probably on their way: nothing is repeated, and nobody is given up.
In a group of a hundred on a few cores they take long. A coordinator that dies on
the way is succeeded: the next one prepares again, with a higher id. It may find that
some members have installed what the dead one decided and others have not. Then it
makes them finish that view first (`finish`), and asks again.

*The cut.* Of those who come from the same view, somebody may have delivered any message
that came to it. So the cut of a stream is the highest of what they report, and what
others lack can be fetched from the one who reported it: from an observer only if nobody
else has it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ringcast.protocols.membership.messages import (
    MAX_STREAMS,
    Gone,
    Install,
    Prepare,
    Quorum,
    Report,
    Seat,
    ViewId,
)
from ringcast.protocols.membership.primary import Verdict, judge_view, merged_roots, voters_of
from ringcast.protocols.membership.state import assign
from ringcast.protocols.multicast.keeping import Part, outermost
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.stack import Instant

LEAST_PAUSE = 10_000_000        # nanoseconds between two repeats of PREPARE or INSTALL, at first
MOST_PAUSE = 160_000_000        # and at most


@dataclass(slots=True)
class Change:
    """One attempt to install a view. `seats` are its members, the oldest first; `left`
    are members that leave in good order, with what they know of primary views. `roots`
    are those of a view that is to be primary. `keys` and `chain` are of its key."""

    id: int
    seats: list[Seat]
    left: Mapping[int, Sequence[Quorum]]
    began: Instant
    window: int                         # messages that a sender may have sent since its report
    finish: Install | None = None
    roots: Sequence[ViewId] = ()
    keys: dict[int, bytes] = field(default_factory=dict)
    chain: dict[ViewId, bytes] = field(default_factory=dict)
    reports: dict[int, Report] = field(default_factory=dict)
    install: Install | None = None              # once all have reported
    # By sender: the member that reports more of it than it reports itself.
    claims: dict[int, int] = field(default_factory=dict)
    installed: set[int] = field(default_factory=set)
    complete: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    tries: int = 0                              # so often we had to tell members more before
    answered: Instant = field(init=False)       # when somebody has answered last
    due: Instant = 0                            # when to repeat
    pause: int = LEAST_PAUSE

    def __post_init__(self) -> None:
        self.answered = self.began

    @property
    def members(self) -> set[int]:
        return {seat.incarnation for seat in self.seats}

    @property
    def observers(self) -> set[int]:
        return {seat.incarnation for seat in self.seats if seat.observes}

    def missing(self) -> set[int]:
        """Return the members that have not answered what was sent last."""
        return self.members - (self.reports.keys() if self.install is None else self.installed)

    def note_answer(self, now: Instant) -> None:
        """Note that a member has answered: do not repeat while others may be about
        to."""
        self.answered = now
        self.due = max(self.due, now + LEAST_PAUSE)

    def is_repeat_due(self, now: Instant) -> bool:
        """Return whether to send again, ever more rarely."""
        if not self.missing() or now < self.due:
            return False
        self.due = now + self.pause
        self.pause = min(2 * self.pause, MOST_PAUSE)
        return True

    def body(self) -> Prepare | Install:
        """Return what to send now."""
        return self.install or Prepare(self.id, self.seats, self.finish, list(self.roots),
                                       self.keys, self.chain)

    def unfinished(self, ours: Install | None) -> Install | None:
        """Return a view that some of those who reported have installed, and others, who
        are in it, have not. The coordinator has `ours`."""
        for install in self.known(ours):
            for member, report in self.reports.items():
                seat = install.seat(member)
                if seat is not None and seat.before == report.view_id and install.id > seat.before:
                    return install
        return None

    def known(self, ours: Install | None) -> list[Install]:
        """Return the views that members come from, as far as they were told. What
        `ours` is like, nobody else need say."""
        known = [report.install for report in self.reports.values() if report.install and (
            ours is None or report.install.id != ours.id)]
        return sorted(known + ([ours] if ours else []), key=lambda install: install.id)

    def _by_age(self, ours: Install | None) -> list[Seat]:
        """Return the seats, with those who come from the same view in its order, and
        observers last. The coordinator may have heard of them one by one."""
        seats = list(self.seats)
        for install in {install.id: install for install in self.known(ours)}.values():
            old = [seat.incarnation for seat in install.seats]
            places = [place for place, seat in enumerate(seats)
                      if self.reports[seat.incarnation].view_id == install.id]
            sorted_seats = sorted((seats[place] for place in places),
                                  key=lambda seat: old.index(seat.incarnation)
                                  if seat.incarnation in old else len(old))
            for place, seat in zip(places, sorted_seats, strict=True):
                seats[place] = seat
        return sorted(seats, key=lambda seat: seat.observes)

    def elsewhere(self) -> set[int]:
        """Return the members that do not come from the view that they were thought to
        have: they are in another group by now."""
        return {seat.incarnation for seat in self.seats
                if self.reports[seat.incarnation].view_id != seat.before}

    def judge(self, min_members: int) -> Verdict:
        """Return whether the view is primary, now that all have reported."""
        reported = {member: [quorum for quorum in report.quorums if quorum.id != self.id]
                    for member, report in self.reports.items()}
        present = {member for member in voters_of(self.seats)
                   if not self.reports[member].is_leaving}
        return judge_view(self.members, min_members, reported, self.left, present)

    def has_told(self, verdict: Verdict) -> bool:
        """Return whether PREPARE has said that the view is primary, and no roots that
        it has not."""
        return bool(self.roots) and {self.id, *verdict.roots(self.id)}.issuperset(self.roots)

    def decide(self, ours: Install | None, verdict: Verdict) -> Install:
        """Return the view, now that all have reported. The coordinator has `ours`."""
        seats, gone = [], []
        for seat in self._by_age(ours):
            report = self.reports[seat.incarnation]
            together = self.come_from(report.view_id) if report.view_id else [seat.incarnation]
            cut, holder = self._cut(seat.incarnation, together)
            if precedes(report.digest[seat.incarnation], cut):
                self.claims[seat.incarnation] = holder
            seats.append(msgspec.structs.replace(seat.moved(report.view_id), cut=cut,
                                                 low=report.low))
        assign(seats, self.reports, self.id, verdict.is_primary)
        members = self.members
        for before in sorted({report.view_id for report in self.reports.values()} - {0}):
            together = self.come_from(before)
            reports = [self.reports[member] for member in together]
            lacking = {sender for report in reports for sender in report.lacking}
            streams = {sender for report in reports for sender in report.digest}
            for sender in sorted(streams - members):
                cut, holder = self._cut(sender, together)
                parts, name = self._parts(sender, together)
                over = sender not in lacking and all(
                    member in self.observers for member in together
                    if sender in self.reports[member].digest)
                gone.append(Gone(sender, before, cut, holder, name, parts, over))
            # Who had more of these is gone: each ends for all where it begins for them.
            for sender in sorted(lacking - streams - members):
                begin, who = self._begin(sender, together)
                gone.append(Gone(sender, before, begin, who))
        quorums = verdict.needed
        if verdict.is_primary:
            roots = merged_roots([*self.roots, *verdict.roots(self.id)])
            quorums = [Quorum(self.id, voters_of(seats), roots, True)]
        self.install = Install(self.id, seats, self._most_reported(gone), quorums)
        self.pause, self.due = LEAST_PAUSE, 0
        return self.install

    def _most_reported(self, gone: list[Gone]) -> list[Gone]:
        """Return as many departed senders as an INSTALL may have: of more, those that
        most members have reported, and of these first those of the coordinator, which
        reports first. What one member makes up must not make a view that nobody can
        read."""
        digests = [report.digest | report.lacking for report in self.reports.values()]

        def rank(each: Gone) -> tuple[int, int]:
            has = [each.incarnation in digest for digest in digests]
            return -sum(has), has.index(True)

        return sorted(gone, key=rank)[:MAX_STREAMS] if len(gone) > MAX_STREAMS else gone

    def come_from(self, view_id: ViewId) -> list[int]:
        """Return the members that come from a view, observers last: so one of these
        holds only what nobody else has, and nobody waits for it."""
        members = [member for member, report in self.reports.items() if report.view_id == view_id]
        return sorted(members, key=self.observers.__contains__)

    def _cut(self, sender: int, together: Collection[int]) -> tuple[Seqno, int]:
        """Return up to where one of those who are `together` has everything of a
        stream, and who."""
        said = [(self.reports[member].digest[sender], member) for member in together
                if sender in self.reports[member].digest]
        if sender in self.members:      # nobody can have more than it can have sent by now
            last = (self.reports[sender].digest[sender] + self.window) % MODULUS
            said = [each for each in said if not precedes(last, each[0])]
        cut, holder = said[0]
        for seqno, member in said[1:]:
            if precedes(cut, seqno):
                cut, holder = seqno, member
        return cut, holder

    def _begin(self, sender: int, together: Collection[int]) -> tuple[Seqno, int]:
        """Return where a stream of which somebody lacks something begins for who has
        met it first, and who that is."""
        (begin, who), *others = ((self.reports[member].lacking[sender], member)
                                 for member in together if sender in self.reports[member].lacking)
        for seqno, member in others:
            if precedes(seqno, begin):
                begin, who = seqno, member
        return begin, who

    def _parts(self, sender: int, together: Collection[int]) -> tuple[list[Part], str | None]:
        """Return what each has of a departed sender that keeps it, and the sender's
        name if it is kept for absent members."""
        reports = {member: self.reports[member] for member in together}
        kept = {member: report.kept[sender] for member, report in reports.items()
                if sender in report.kept and sender in report.digest}
        parts = outermost(part for member, each in kept.items()
                          for part in each.parts(member, reports[member].digest[sender]))
        return parts, next((each.name for each in kept.values() if each.name), None)
