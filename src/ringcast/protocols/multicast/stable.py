"""STABLE: which messages all members have finished, so that NAKACK2 can purge them.

In a round every member sends its vote to the coordinator, who is the first in the view:
for each sender, the highest seqno that its application has finished and the highest it
has received, and the credit that each sender has. The coordinator sends everybody the
minimum: STABILITY.

A vote is valid until the next one of its member, and says nothing about streams of
which the member knows that all is stable. So nobody waits for a round to begin, and a
lost datagram costs one round: a member votes again while it has anything that it does
not know to be stable, every stable_interval, with a backoff while nothing changes. A
vote goes out sooner when stable_bytes, or a quarter of a window, became finished.

The votes of a group, and the work of its coordinator, do not grow with the square of
its members: these take turns (decision 38), and the coordinator counts votes together.

A vote may be forged. So the coordinator ignores what is more than a window beyond the
seqnos that it knows to be sent; of a member's own stream only its last vote counts; and
it believes that a member takes no messages when the member says so twice.

Votes and STABILITY belong to one view. In another view everything begins anew: a member
of the old view can neither hold the new one up, nor purge what a joiner must get. A
member may install a view before its coordinator does: the coordinator keeps the last
early vote of each member until then.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from ringcast.address import EVERYONE, Address
from ringcast.config import MAX_MEMBERS, Config, nanoseconds
from ringcast.kinds import Kind, takes
from ringcast.protocols.latest import Latest
from ringcast.protocols.multicast.credits import Parts, latest_parts
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.retransmission import Backoff
from ringcast.protocols.seqnos import MODULUS, Seqno, is_seqno, later, precedes
from ringcast.stack import Instant, Layer, sooner
from ringcast.status import Layers, StableStatus
from ringcast.view import View

QUARTER = 1 << 62                       # seqnos; no honest member is so far behind
CONCLUSIONS = 4                         # at most so many while each member votes once

# {sender: (finished by all, received)}
Digest = Annotated[dict[int, tuple[Seqno, Seqno]], Meta(max_length=MAX_MEMBERS)]


class Vote(msgspec.Struct, array_like=True):
    view_id: int
    receiving: bool                     # false: nobody need wait for this member
    grant: int                          # bytes that each sender may have on the way to it
    digest: Digest
    parts: Parts = {}


class StabilityReport(msgspec.Struct, array_like=True):
    view_id: int
    grant: int                          # the smallest of all; 0: nobody takes messages
    digest: Digest
    # {sender: who has not finished its oldest message}
    slowest: Annotated[dict[int, int], Meta(max_length=MAX_MEMBERS)]
    parts: Parts = {}                   # that all have


VOTE = Kind(17, "vote", Vote)                       # what I have finished of everybody's messages
STABILITY = Kind(18, "stability", StabilityReport)  # what all have finished


class Stable(Layer):
    """The layer, above `nakack`."""

    def __init__(self, local: Address, config: Config, nakack: Nakack2) -> None:
        self.local = local
        self.stable_interval = nanoseconds(config.stable_interval)
        self.capacity = config.capacity
        self.nakack = nakack
        nakack.stability = self
        self.view_id = 0
        self.members: tuple[int, ...] = ()
        self.observers: frozenset[int] = frozenset()    # of these: nobody waits for them
        self.votes: dict[int, Vote] = {}        # the coordinator's: the last one of each member
        # The same, of views that are not here yet.
        self.early: Latest[int, Vote] = Latest(MAX_MEMBERS)
        # the coordinator's: of each stream, the slowest member and what is stable
        self.minima: dict[int, tuple[int, tuple[Seqno, Seqno] | None]] = {}
        self.changed: set[int] = set()          # streams whose minimum may be another one
        self.concluded: StabilityReport | None = None   # what the coordinator said last
        self.known: dict[int, Seqno] = {}       # up to where we know each stream to be stable
        self.awaited: dict[int, int] = {}       # which member holds each stream up
        self.is_asked = False                   # a member does not know our vote
        self.refusals: set[int] = set()         # members whose last vote takes no messages
        self.has_refused = False                # so does ours, in this view
        self.last_scan: Instant | None = None   # when we last decided whether to vote
        self.next_vote: Instant | None = None   # the deadlines
        self.next_conclusion: Instant | None = None
        self.conclude_from: Instant = 0         # not sooner again
        self.backoff = Backoff()
        self.counters = StableStatus()

    @property
    def coordinator(self) -> int:
        return self.members[0] if self.members else 0

    # --------------------------------------------------------------------------- what NAKACK2 tells

    def finished(self, urgent: bool, now: Instant) -> None:
        """Vote as soon as it is our turn if it is `urgent`, because the application has
        finished much; otherwise at the next interval."""
        if not urgent:
            self._arm(now)
            return
        last = self.last_scan
        turn = now if last is None else max(now, last + self.nakack.report_pause)
        if turn == now:
            self._vote(now)
        else:
            self.next_vote = sooner(self.next_vote, turn)

    def asked(self, now: Instant) -> None:
        """Vote at the next interval, even if our vote has not changed."""
        self.is_asked = True
        self._arm(now)

    def stopped(self, now: Instant) -> None:
        """Vote at once that this member takes no more messages."""
        self._vote(now)

    def known_of(self, sender: int) -> Seqno | None:
        """Return up to where all have finished a stream, as far as it is known in this
        view."""
        return self.known.get(sender)

    def slowest(self) -> int | None:
        """Return the member that has not finished our oldest message, if it is
        known."""
        return self.awaited.get(self.local.incarnation)

    # --------------------------------------------------------------------------------------- voting

    def _vote(self, now: Instant) -> None:
        """Send the coordinator what is finished here."""
        if not self.members:
            return
        digest, grant, parts = self.nakack.report()
        digest = {sender: entry for sender, entry in digest.items()
                  if entry != (self.known.get(sender),) * 2}
        vote = Vote(self.view_id, self.nakack.receiving, grant, digest, parts)
        self.is_asked = not vote.receiving and not self.has_refused     # we must say it twice
        self.has_refused = not vote.receiving
        self.last_scan = now
        if self.coordinator == self.local.incarnation:
            self._count(self.local.incarnation, vote, now)
        else:
            self.counters.votes_sent += 1
            self.send_control(VOTE, vote, self.coordinator, now)
        self._arm(now)

    def _is_unsettled(self) -> bool:
        """Return whether anything here is not known to be stable."""
        nakack, known = self.nakack, self.known
        if known.get(self.local.incarnation) != nakack.send_window.sent:
            return True
        if nakack.observing is not None:                # it may have to skip what is stable
            return any(known.get(sender) != window.come_up_to
                       for sender, window in nakack.windows.items())
        return nakack.receiving and any(known.get(sender) != window.ring.hr
                                        for sender, window in nakack.windows.items())

    @property
    def interval(self) -> int:
        """Return the nanoseconds between two votes: stable_interval, and more in a
        large group."""
        return max(self.stable_interval, self.nakack.report_pause)

    def deadline(self) -> Instant | None:
        return sooner(self.next_vote, self.next_conclusion)

    def tick(self, now: Instant) -> None:
        """Vote, and conclude what votes say."""
        if self.next_conclusion is not None and self.next_conclusion <= now:
            self._conclude(now)
        if self.next_vote is not None and self.next_vote <= now:
            self._scan(now)

    def _scan(self, now: Instant) -> None:
        """Vote, every interval while anything is not stable; the same vote again only
        with a backoff."""
        self.next_vote, self.last_scan = None, now
        nakack = self.nakack
        is_due = self.backoff.scan((self.view_id, nakack.send_window.sent, nakack.unreported_bytes,
                                    nakack.num_parts, tuple(self.known.values())))
        if self.is_asked or (is_due and self._is_unsettled()):
            self._vote(now)
        self._arm(now)

    def _arm(self, now: Instant) -> None:
        """Set the deadline of the next vote, if there is none and anything to vote. If
        all begin together, they take turns."""
        if self.next_vote is not None or not self.members:
            return
        if self.is_asked or self._is_unsettled():
            seat = self.members.index(self.local.incarnation)
            turn = now + self.nakack.report_pause * seat // len(self.members)
            last = self.last_scan
            self.next_vote = turn if last is None else max(turn, last + self.interval)

    # ---------------------------------------------------------------------------------- coordinator

    def _count(self, member: int, vote: Vote, now: Instant) -> None:
        """Count a vote. If it says nothing new, tell its member again: it has missed
        the last STABILITY."""
        before, vote = self.votes.get(member), self._possible(member, vote)
        self.changed |= vote.digest.keys()
        if before is None or before.receiving != vote.receiving:
            self.changed.update(self.members)
        own = vote.digest.get(member)
        was = before.digest.get(member) if before is not None else None
        if before is not None:
            vote = merged(before, vote)
        if own is not None:
            vote.digest[member] = own
        self.votes[member] = vote
        if own is not None and was is not None and precedes(own[1], was[1]):
            self._withdraw()
        if self.concluded is not None and vote == before and member != self.local.incarnation:
            self._tell(member, now)
        elif self.next_conclusion is None:
            self.next_conclusion = max(now, self.conclude_from)
            if self.next_conclusion == now:
                self._conclude(now)

    def _conclude(self, now: Instant) -> None:
        """If votes have raised a minimum, tell everybody."""
        self.next_conclusion = None
        self.conclude_from = now + self.nakack.report_pause // CONCLUSIONS
        self._compare()
        report, said = self._conclusion(), self.concluded
        self.concluded = report
        if said is None or (report.digest, report.grant, report.parts) != (
                said.digest, said.grant, said.parts):
            self._tell(EVERYONE, now)
            self._apply(report, now)
        elif self.nakack.observing is not None:
            self._apply(report, now)        # an observer believes what it has heard twice
        else:
            self.awaited = report.slowest   # may be another now, though nothing is purged by that

    def _withdraw(self) -> None:
        """A member has sent less than it said: what others said of it may be false."""
        self.votes = {each: self._possible(each, vote) for each, vote in self.votes.items()}
        self.changed.update(self.members)

    def _possible(self, member: int, vote: Vote) -> Vote:
        """Return the part of a vote that can be true: nobody has finished more than a
        window beyond what we know to be sent."""
        false = [sender for sender, (finished, _) in vote.digest.items() if sender != member
                 and (sent := self._sent_by(sender)) is not None
                 and precedes((sent + self.capacity) % MODULUS, finished)]
        if not false:
            return vote
        digest = {sender: entry for sender, entry in vote.digest.items() if sender not in false}
        return msgspec.structs.replace(vote, digest=digest)

    def _sent_by(self, sender: int) -> Seqno | None:
        """Return the highest seqno of a stream that we know of, from its sender's vote
        and from what has come; None if neither is known."""
        window = self.nakack.windows.get(sender)
        received = window.ring.hr if window is not None else None
        voted = self.votes[sender].digest.get(sender) if sender in self.votes else None
        if voted is None or received is None:
            return voted[1] if voted is not None else None
        return later(voted[1], received)

    def _is_believed(self, member: int, vote: Vote) -> bool:
        """Return whether to count a vote. One that takes no messages counts only if the
        vote before took none either."""
        if vote.receiving:
            self.refusals.discard(member)
        elif member not in self.refusals:
            self.refusals.add(member)
            return False
        return True

    def _compare(self) -> None:
        """Find the slowest member of each stream again that votes were about."""
        receiving, changed = self._receiving(), self.changed.intersection(self.members)
        self.changed = set()
        for sender in changed:
            own = self.votes[sender].digest.get(sender) if sender in self.votes else None
            awaited = {*receiving, sender} if sender in self.observers else receiving or [sender]
            lags = {each: self._lag(each, sender, own) for each in awaited}
            slowest = max(lags, key=lags.__getitem__)
            most = lags[slowest]
            is_known = own is not None and most < QUARTER
            stable = ((own[1] - most) % MODULUS, own[1]) if own is not None and is_known else None
            self.minima[sender] = slowest, self._never_less(sender, stable)

    def _never_less(self, sender: int,
                    stable: tuple[Seqno, Seqno] | None) -> tuple[Seqno, Seqno] | None:
        """Return what is stable of a stream, but no less than was told before. A late
        vote of the sender can make others' votes impossible, and they say nothing more
        of what they know to be stable."""
        told = self.known.get(sender)
        if told is None or (stable is not None and not precedes(stable[0], told)):
            return stable
        return told, told if stable is None else later(stable[1], told)

    def _conclusion(self) -> StabilityReport:
        """Return the minimum of all votes for each sender that everybody has voted
        on."""
        digest = {sender: entry for sender, (_, entry) in self.minima.items() if entry is not None}
        slowest = {sender: member for sender, (member, _) in self.minima.items()}
        votes = {member: self.votes[member] for member in self._receiving()
                 if member in self.votes}
        grant = min((vote.grant for vote in votes.values()), default=0)
        return StabilityReport(self.view_id, grant, digest, slowest, self._common_parts(votes))

    def _common_parts(self, votes: dict[int, Vote]) -> Parts:
        """Return how much all other members have that they cannot vote for yet."""
        senders = set[int]().union(*(vote.parts for vote in votes.values()))
        common = {sender: min((vote.parts.get(sender, 0) for member, vote in votes.items()
                               if member != sender), default=0)
                  for sender in senders.intersection(self.members)}
        return {sender: parts for sender, parts in common.items() if parts > 0}

    def _receiving(self) -> list[int]:
        """Return the members that must have finished a message before it is stable."""
        return [member for member in self.members if member not in self.observers
                and (member not in self.votes or self.votes[member].receiving)]

    def _lag(self, member: int, sender: int, own: tuple[Seqno, Seqno] | None) -> int:
        """Return how many messages of a stream, as far as its sender has voted, a
        member has not finished; QUARTER if that is not known."""
        entry = self.votes[member].digest.get(sender) if member in self.votes else None
        if entry is None or own is None:
            return QUARTER
        behind = (own[1] - entry[0]) % MODULUS
        return 0 if behind > MODULUS - QUARTER else min(behind, QUARTER)

    def _tell(self, dest: int, now: Instant) -> None:
        """Send STABILITY to a member or to everybody."""
        assert self.concluded is not None
        self.counters.stability_sent += 1
        self.send_control(STABILITY, self.concluded, dest, now)

    # ------------------------------------------------------------------------------------ receiving

    def count_bad(self) -> None:
        self.counters.num_bad_votes += 1

    @takes(VOTE)
    def _on_vote(self, sender: int, vote: Vote, now: Instant) -> bool:
        """On reception of a vote: count it in the view that both have, if we coordinate
        it."""
        if vote.grant < 0 or not makes_sense(vote.digest):
            return False
        if vote.view_id > self.view_id:
            self.early.remember(sender, vote)   # it is said again only with a backoff
        elif vote.view_id == self.view_id:
            self._accept(sender, vote, now)
        return True

    def _accept(self, member: int, vote: Vote, now: Instant) -> None:
        """Count a vote of our view, if there is anybody to count it for."""
        if member in self.members and self.coordinator == self.local.incarnation:
            self.counters.votes_received += 1
            digest = vote.digest
            vote.digest = {sender: digest[sender] for sender in self.members if sender in digest}
            if self._is_believed(member, vote):
                self._count(member, vote, now)

    def _count_early_votes(self, now: Instant) -> None:
        """Count the early votes of the view that has just come, and forget older
        ones."""
        for member, vote in list(self.early.items()):
            if vote.view_id <= self.view_id:
                del self.early[member]
            if vote.view_id == self.view_id:
                self._accept(member, vote, now)

    @takes(STABILITY)
    def _on_stability(self, sender: int, report: StabilityReport, now: Instant) -> bool:
        """On reception of STABILITY: purge."""
        if report.grant < 0 or not makes_sense(report.digest):
            return False
        if report.view_id == self.view_id and sender == self.coordinator:
            self.counters.stability_received += 1
            self._apply(report, now)
        return True

    def _apply(self, report: StabilityReport, now: Instant) -> None:
        """Note what is stable, and let NAKACK2 purge it. A report that came late says
        nothing of our credit."""
        local = self.local.incarnation
        known, parts = self.known.get(local), report.parts.get(local, 0)
        seqno, _ = report.digest.get(local, (known or 0, 0))
        latest = latest_parts(seqno, parts, known, self.nakack.credits.parts)
        grant = 0 if latest is None else report.grant
        for sender, (seqno, _) in report.digest.items():
            if sender in self.members:
                self.known[sender] = later(self.known.get(sender, seqno), seqno)
        self.awaited = report.slowest
        self.nakack.stable(report.digest, grant, latest or 0, now)
        self._arm(now)

    # ---------------------------------------------------------------------------------------- views

    def view(self, view: View, now: Instant) -> None:
        """Drop all votes of the old view, and vote in the new one."""
        self.view_id = view.id
        self.members = tuple(member.incarnation for member in view.members)
        self.observers = frozenset(member.incarnation for member in view.observers)
        self.votes, self.minima, self.known, self.awaited, self.concluded = {}, {}, {}, {}, None
        self.refusals, self.has_refused = set(), False
        self.last_scan = self.next_vote = self.next_conclusion = None
        self.conclude_from = 0
        self.is_asked, self.changed = True, set(self.members)
        self._arm(now)
        self._count_early_votes(now)
        self.above.view(view, now)

    def linked(self, member: int, now: Instant) -> None:
        """Say again what may be lost with the old connection."""
        if member == self.coordinator:
            self._vote(now)
        elif self.concluded is not None and member in self.members:
            self._tell(member, now)
        self.above.linked(member, now)

    def describe(self, status: Layers) -> None:
        status.stable = msgspec.structs.replace(self.counters)


def merged(before: Vote, vote: Vote) -> Vote:
    """Return a member's vote together with its last one, because votes may overtake
    each
    other: what is finished stays finished, and a member that takes no more messages
    never takes any again."""
    digest = dict(vote.digest)
    for sender in digest.keys() & before.digest.keys():
        (finished, highest), (was_finished, was_highest) = digest[sender], before.digest[sender]
        digest[sender] = later(was_finished, finished), later(was_highest, highest)
    return msgspec.structs.replace(vote, receiving=before.receiving and vote.receiving,
                                   digest=before.digest | digest)


def makes_sense(digest: dict[int, tuple[Seqno, Seqno]]) -> bool:
    """Return whether all values of a digest can be seqnos."""
    return all(is_seqno(finished) and is_seqno(highest) for finished, highest in digest.values())
