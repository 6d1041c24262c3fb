"""Checks the streams of messages to everybody.

The checkers note how far the application is in the stream of each sender when it is
shown a view. This gives the cuts: all who go from one view to another must be equally
far. For a member that is new to a sender, the stream begins behind the sender's own
cut.

An observer may miss messages. It is told which, and has everything else once and in
order; but nothing that the others were not given. The stream of a sender that is gone
ends for it where it ends for the others that went the same way.

A large message has several seqnos. A cut may be in the middle of one. The applications
are before this message then, and for a new member the stream begins behind it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringcast._core.batch import Batch, Skipped
from ringcast.address import Address
from ringcast.flags import Flag
from ringcast.protocols.seqnos import MODULUS, Seqno, later, precedes
from ringcast.stacks import STACKS
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.checkers import Checkers
    from ringcast.sim.member import Member

# A cut: the ids of the views before and behind it, and the sender's incarnation. The
# first id is 0 if the stream goes on: then all who come together have the same.
Cut = tuple[int, int, int]


@dataclass(slots=True)
class Place:
    """Says how far an application is in the stream of one sender."""

    met: int                        # the id of the first view since which it goes on
    last: Seqno | None = None       # of the last message; None: there is none since they met
    before: Seqno | None = None     # of the last message before they met, if they met before


@dataclass(slots=True)
class End:
    """Says where the stream of a sender that is gone ended for an application."""

    member: "Member"
    view_id: int                    # of the view that it was shown then
    last: Seqno                     # of its last whole message, given or skipped
    is_given: bool                  # False: there was none, and `last` is where the stream began

    def agrees(self, other: "End") -> bool:
        """Return whether this is where the stream ended for another one. It may have
        ended before it began."""
        return self.last == other.last or (
            not self.is_given and precedes(other.last, self.last)) or (
            not other.is_given and precedes(self.last, other.last))


class StreamCheckers:
    """The checks, and what they remember."""

    def __init__(self, checkers: "Checkers") -> None:
        self.checkers = checkers
        self.cluster, self.violated = checkers.cluster, checkers.violated
        self.views, self.lives = checkers.views, checkers.lives
        self._places: dict[tuple[int, int], Place] = {}     # by receiver and sender
        self._cuts: dict[Cut, Seqno] = {}
        self._begins: dict[Cut, Seqno] = {}             # before the first message of who met there
        # The OOB messages that were given, by receiver and sender.
        self.oob: dict[tuple[int, int], set[Seqno]] = {}
        self._ends: dict[Cut, list[End]] = {}           # by the step of the layers that ended it
        # What can be checked only when a cut is known. It returns whether it is done.
        self._waiting: list[Callable[[], bool]] = []
        self._told: dict[int, int] = {}     # how far what is undelivered was told to its sender

    # ------------------------------------------------------------------------------------- on views

    def viewed(self, member: "Member", before: View | None, view: View) -> None:
        """Check that an application that is shown a view is in every stream where the
        others are."""
        if before is not None and member.receiving:
            for address in before.members:
                self._check_end(member, address, before, view)
                if not member.observes:
                    self._check_cut(member, address, before, view)
        for address in view.members:
            key = member.incarnation, address.incarnation
            if not self.views.goes_on(*key, before, view):
                former = self._places.get(key)
                had = later_of(former.last, former.before) if former is not None else None
                self._places[key] = Place(view.id, before=had)
        if before is None:
            self._places[member.incarnation, member.incarnation].last = member.offset
            self._cuts[0, view.id, member.incarnation] = member.offset
        self._check_waiting()

    def _check_end(self, member: "Member", address: Address, before: View, view: View) -> None:
        """Check that the stream of a sender that is gone ends for an observer where its
        view says: up to there it was given everything, or told what it was not given;
        and that this is where it ends for others that went the same way."""
        step = self.views.parting(member.incarnation, address, before, view)
        sender = self.cluster.incarnations[address.incarnation]
        end = self._end(member, sender, view)
        if step is None or end is None:
            return
        said = view.departed.get(address)
        if member.observes and said is not None and not end.agrees(
                End(member, view.id, sender.log.end_before(said), is_given=True)):
            self.violated("synchrony", f"{member.name}, an observer, goes to {view} with "
                                       f"{sender.name}'s messages up to {end.last}; the view says "
                                       f"up to {said}")
        known = self._ends.setdefault((*step, address.incarnation), [])
        for other in known:
            alike = end.agrees(other) or self.lives.are_alike(sender, end.last, other.last)
            if not alike and self._went_together(sender, step[0], end, other):
                self.violated("synchrony", f"{member.name} goes to {view} with {sender.name}'s "
                                           f"messages up to {end.last}; {other.member.name} went "
                                           f"the same way with those up to {other.last}")
        known.append(end)

    def _end(self, member: "Member", sender: "Member", view: View) -> End | None:
        """Return how far an application is in a stream, or where that began for it;
        None if this is not known."""
        place = self._places[member.incarnation, sender.incarnation]
        if place.last is not None:
            return End(member, view.id, sender.log.end_before(place.last), is_given=True)
        cut = self._cuts.get((0, place.met, sender.incarnation))
        begin = None if cut is None else later_of(places_behind(sender, cut)[-1], place.before)
        return None if begin is None else End(member, view.id, begin, is_given=False)

    def _went_together(self, sender: "Member", since: int, one: End, other: End) -> bool:
        """Return whether one of two members observes, and the layers of both have
        installed the same views, up to the later one of those that their applications
        were shown. What a slow application gave up was lost for it alone."""
        last = max(one.view_id, other.view_id)
        ways = [self.checkers.way(each.member, since, last) for each in (one, other)]
        return ways[0] == ways[1] and (one.member.observes or other.member.observes) and not any(
            self.lives.has_given_up(each.member, sender, each.last) for each in (one, other))

    def _check_cut(self, member: "Member", address: Address, before: View, view: View) -> None:
        """Check that an application is in the stream of a sender where all are that go
        the same step (virtual synchrony)."""
        place = self._places[member.incarnation, address.incarnation]
        sender = self.cluster.incarnations[address.incarnation]
        goes_on = self.views.goes_on(member.incarnation, address.incarnation, before, view)
        cut = 0 if goes_on else before.id, view.id, address.incarnation
        what = f"{member.name} goes from view {before.id} to {view} with {sender.name}'s messages"
        said = view.departed.get(address)
        if place.last is None:          # it is where its stream begins
            met = 0, place.met, address.incarnation
            had = place.before
            self._waiting.append(lambda: self._is_same_cut(what, member, sender, met, cut, said,
                                                           had))
            return
        is_given_up = self.lives.has_given_up(member, sender, place.last)
        known = place.last if is_given_up else self._cuts.setdefault(cut, place.last)
        if not self.lives.are_alike(sender, known, place.last):
            self.violated("synchrony", f"{what} up to {place.last}; others did with those up to "
                                       f"{known}")
        if said is not None and not self.lives.are_alike(sender, sender.log.end_before(said),
                                                         place.last):
            self.violated("synchrony", f"{what} up to {place.last}; the view says up to {said}")

    def _is_same_cut(self, what: str, member: "Member", sender: "Member", met: Cut, cut: Cut,
                     said: Seqno | None, had: Seqno | None) -> bool:
        """Check that a stream of which a receiver got nothing ended where it began for
        it, or before: what lies between may have been lost with its sender; or that it
        was given up there. It may have begun behind what the receiver `had` already.
        Return False if one of the cuts is not known yet."""
        if met not in self._cuts or cut not in self._cuts:
            return False
        places, end = places_behind(sender, self._cuts[met]), self._cuts[cut]
        if had is not None and precedes(places[0], had) and not precedes(had, end):
            return True
        is_given_up = any(self.lives.has_given_up(member, sender, place) for place in places)
        if end not in places and not precedes(end, places[0]) and not is_given_up:
            self.violated("synchrony", f"{what} up to {places[0]}; others did with those up to "
                                       f"{end}")
        if said is not None and sender.log.end_before(said) not in (*places, end):
            self.violated("synchrony", f"{what} up to {places[0]}; the view says up to {said}")
        return True

    def _check_waiting(self) -> None:
        """Check what had to wait for a cut."""
        self._waiting = [check for check in self._waiting if not check()]

    # ---------------------------------------------------------------------------------- on delivery

    def delivered(self, receiver: "Member", sender: "Member", batch: Batch) -> None:
        """Check that a receiver gets each sender's messages once, in order, without
        gaps, and as they were sent, from where the stream begins for it."""
        if batch.flags & Flag.OOB:
            self._delivered_oob(receiver, sender, batch)
            return
        begins = sender.log.begin_of(batch.first)
        key = receiver.incarnation, sender.incarnation
        place = self._places.setdefault(key, Place(0))
        goes_on = place.last is not None and not self.lives.has_departed(receiver, key[1])
        expected = self._next_of(receiver, sender, batch, begins)
        if begins != expected:
            what = "duplicate" if precedes(begins, expected) else "gap"
            self.violated(what, f"{receiver.name} got {batch}; the next seqno of {sender.name} is "
                                f"{expected}")
        if goes_on and not receiver.observes:
            passed = sender.log.oob_between(begins, batch.first)
            torn = self.lives.torn(receiver, sender)
            if missing := passed - self.oob.get(key, set()) - torn:
                self.violated("gap", f"{receiver.name} got {batch} without the OOB messages "
                                     f"{sorted(missing)} before it")
        sent = self._check_content(receiver, sender, batch)
        # Not the payloads of the batch: a long run would keep a copy for each receiver.
        got = receiver.consumer.got[batch.sender]
        got += [None] * ((batch.first - begins) % MODULUS) + sent
        place.last = batch.last
        self.lives.note(receiver, sender.incarnation, batch.last)

    def _check_content(self, receiver: "Member", sender: "Member",
                       batch: Batch) -> list[bytes | None]:
        """Check that these are the messages that were sent, and return them."""
        index = (batch.first - sender.offset - 1) % MODULUS
        sent = sender.log[index:index + len(batch)]
        if sent != batch.payloads:
            self.violated("content", f"{receiver.name} got {batch} with other payloads than "
                                     f"{sender.name} sent")
        return sent

    def _delivered_oob(self, receiver: "Member", sender: "Member", batch: Batch) -> None:
        """Check that a receiver gets OOB messages once, and as they were sent."""
        self._check_content(receiver, sender, batch)
        known = self.oob.setdefault((receiver.incarnation, sender.incarnation), set())
        for seqno in ((batch.first + step) % MODULUS for step in range(len(batch))):
            if seqno not in sender.log.oob:
                self.violated("gap", f"{receiver.name} got {batch} out of order")
            if seqno in known:
                self.violated("duplicate", f"{receiver.name} got {seqno} of {batch} again")
            known.add(seqno)

    def skipped(self, receiver: "Member", sender: "Member", skipped: Skipped) -> None:
        """Check that an observer is told all that it missed, in its place, and nothing
        else; and that it misses only what its sender has freed."""
        what = f"{receiver.name} is told {skipped}"
        key = receiver.incarnation, sender.incarnation
        place = self._places.setdefault(key, Place(0))
        if not receiver.observes or skipped.count == 0:
            self.violated("skipped", what)
        if not receiver.views or skipped.sender not in receiver.views[-1]:
            self.violated("sender", f"{what}; its view is "
                                    f"{receiver.views[-1] if receiver.views else None}")
        before = sender.log.end_before((skipped.first - 1) % MODULUS)
        if place.last not in (None, before):
            self.violated("skipped", f"{what}; the last before that was {place.last}")
        window, sent = sender.multicast.send_window, sender.multicast.send_window.sent
        if precedes(sent, skipped.last):
            self.violated("skipped", f"{what}; {sender.name} has sent up to {sent}")
        received = receiver.multicast.windows.get(sender.incarnation)
        is_open = received is not None and received.stream is skipped.stream
        learns_first = STACKS[self.cluster.stack].votes     # that all have finished it
        freed = sender.log.end_of(window.ring.low)
        if is_open and not learns_first and precedes(freed, skipped.last):
            self.violated("skipped", f"{what}; {sender.name} still has what follows "
                                     f"{window.ring.low}")
        got = receiver.consumer.got.setdefault(skipped.sender, [])
        first = receiver.consumer.first.setdefault(skipped.sender, (before + 1) % MODULUS)
        place.last = sender.log.end_before(skipped.last)
        got += [None] * ((place.last - first - len(got) + 1) % MODULUS)

    def _next_of(self, receiver: "Member", sender: "Member", batch: Batch, begins: int) -> int:
        """Return the seqno with which the next message begins. The first one since both
        met must follow the cut of the view in which they met."""
        place = self._places.get((receiver.incarnation, sender.incarnation), Place(0))
        if self._is_resumed(receiver, sender, place):
            receiver.consumer.got.setdefault(batch.sender, [])
            receiver.consumer.first.setdefault(batch.sender, begins)
            return self.lives.next_of(receiver, sender, begins, place.met)
        if not receiver.views or batch.sender not in receiver.views[-1]:
            self.violated("sender", f"{receiver.name} got {batch}; its view is "
                                    f"{receiver.views[-1] if receiver.views else None}")
        consumer = receiver.consumer
        got = consumer.got.setdefault(batch.sender, [])
        consumer.first.setdefault(batch.sender, begins)
        if place.last is not None:
            return self.lives.skip_torn(receiver, sender, (place.last + 1) % MODULUS, begins)
        before = (begins - 1) % MODULUS
        if place.before is not None and precedes(before, place.before):
            return (place.before + 1) % MODULUS
        what = f"{receiver.name} got {batch} first since view {place.met}"
        met = 0, place.met, sender.incarnation
        had = place.before
        if before != had and self._begins.setdefault(met, before) != before:
            self.violated("start", f"{what}; for others the stream began after "
                                   f"{self._begins[met]}")
        self._waiting.append(lambda: self._follows_cut(what, sender, met, before, had))
        self._check_waiting()
        skipped = (before - consumer.first[batch.sender] - len(got) + 1) % MODULUS
        got += [None] * skipped         # what the sender sent while it was out of reach
        return begins

    def _is_resumed(self, receiver: "Member", sender: "Member", place: Place) -> bool:
        """Return whether this is the first message of a stream that goes on for a
        durable member that was absent; or any of one that has departed."""
        if sender.address in (receiver.views[-1] if receiver.views else ()) and (
                place.last is not None):
            return False
        before = max((view.id for view in receiver.views if view.id < place.met), default=0)
        return self.lives.goes_on(receiver, sender, before, place.met)

    def _follows_cut(self, what: str, sender: "Member", met: Cut, before: Seqno,
                     had: Seqno | None) -> bool:
        """Check that the first message of a stream follows the cut, or what the
        receiver `had` already behind it; return False if the cut is not known yet."""
        if met not in self._cuts:
            return False
        is_behind = had == before and precedes(self._cuts[met], had)
        if before not in places_behind(sender, self._cuts[met]) and not is_behind:
            self.violated("start", f"{what}; the cut is {self._cuts[met]}")
        return True

    def undelivered(self, sender: "Member", batch: Batch) -> None:
        """Check what a sender is told about messages that the others do not deliver: it
        has sent them, and is told once."""
        index = (batch.first - sender.offset - 1) % MODULUS
        are_whole = not batch.flags & Flag.INCOMPLETE
        if batch.sender != sender.address or (
                are_whole and sender.log[index:index + len(batch)] != batch.payloads):
            self.violated("forgery", f"{sender.name} is told that {batch} is undelivered, which it "
                                     "did not send")
        if index < self._told.get(sender.incarnation, 0):
            self.violated("undelivered", f"{sender.name} is told twice that {batch} is undelivered")
        self._told[sender.incarnation] = index + len(batch)

    # --------------------------------------------------------------------------------- when it ends

    def check_agreement(self) -> None:
        """Check for each member that left in good order that all who stayed have all
        that it sent.

        Of members that stay, everybody gets everything: the run waits for that. Of a
        member that crashed, everybody has the same part of its stream: see
        _check_cut().
        """
        for sender in self.cluster.incarnations.values():
            last = sender.view_filter.whole
            if not sender.left or last is None or sender.multicast.unacked():
                continue
            for receiver in self.cluster.living():
                place = self._places.get((receiver.incarnation, sender.incarnation))
                if (receiver.receiving and not receiver.observes and place is not None
                        and receiver.address in last
                        and not self._is_at_end(place, receiver, sender)):
                    self.violated("agreement", f"{receiver.name} has {sender.name}'s messages "
                                               f"up to {place.last}; it sent {sender.last} and "
                                               "left in good order")

    def _is_at_end(self, place: Place, receiver: "Member", sender: "Member") -> bool:
        """Return whether an application has all of a stream that is meant for it; also
        if it is not known where the stream began for it. It begins with the end for
        who has parted from its sender, and meets it again in a view that it is not
        shown."""
        if place.last is not None:
            return (not precedes(place.last, self.lives.owed_up_to(receiver, sender, sender.last))
                    or self.lives.begins_at(receiver, sender, sender.last))
        cut = self._cuts.get((0, place.met, sender.incarnation))
        return cut is None or sender.last in places_behind(sender, cut)

    # ------------------------------------------------------------------------------------ on purges

    def check_purge(self, sender: "Member", low: Seqno, at: "Member | None" = None) -> None:
        """Check that every member of the view has finished what was purged; besides the
        sender, if a receiver did that. For a member that is new to the sender, the
        stream counts from its cut."""
        self.lives.check_purge(sender, low, at or sender)
        own = sender.multicast.send_window.ring.low
        if at is not None and not precedes(own, low):
            return                              # the sender has purged it too
        for incarnation in (at or sender).multicast.members:
            receiver = self.cluster.incarnations[incarnation]
            since = self.views.meetings.get((sender.incarnation, incarnation))
            if at is not None and receiver is sender:
                continue                        # it keeps its own messages
            is_awaited = receiver.receiving and not receiver.observes
            if is_awaited and since is not None and not self._has(receiver, sender, low):
                what = (f"{(at or sender).name} gave up {sender.name}'s messages up to {low}, of "
                        f"which {receiver.name} has finished those up to "
                        f"{receiver.consumer.finished.get(sender.incarnation)}")
                self._wait_for_cut(what, receiver, sender, since, low)

    def _has(self, receiver: "Member", sender: "Member", low: Seqno) -> bool:
        """Return whether an application has finished a stream up to `low`."""
        finished = receiver.consumer.finished.get(sender.incarnation)
        if finished is None and receiver is sender:
            finished = sender.offset
        return finished is not None and not precedes(
            finished, self.lives.owed_up_to(receiver, sender, low))

    def _wait_for_cut(self, what: str, receiver: "Member", sender: "Member", since: int,
                      low: Seqno) -> None:
        """Check that a stream begins behind `low` for a receiver for which its sender
        waits since a view. That is known when the receiver is shown it, or a later one.
        It may have gone past that view, in another part of the group; or the view was
        void for it: then it has parted from the sender."""
        def check() -> bool:
            place = self._places.get((receiver.incarnation, sender.incarnation))
            if not receiver.alive or not receiver.receiving:
                return True
            if place is None or receiver.views[-1].id < since:
                return False
            if all(view.id != since for view in receiver.views):
                return True
            met = 0, place.met, sender.incarnation
            if met not in self._cuts:
                return False
            if precedes(places_behind(sender, self._cuts[met])[-1],
                        self.lives.owed_up_to(receiver, sender, low)):
                self.violated("purge", f"{what}; for it the stream begins after "
                                       f"{self._cuts[met]}")
            return True
        if not check():
            self._waiting.append(check)

    def finished(self, receiver: "Member", sender: "Member") -> Seqno | None:
        """Return up to which seqno the receiver has all that is meant for it: what its
        application has finished, or where its window says that the stream begins."""
        finished = receiver.consumer.finished.get(sender.incarnation)
        if receiver is sender:
            return sender.offset if finished is None else finished
        window = receiver.multicast.windows.get(sender.incarnation)
        if window is None:
            return finished
        return later_of(finished, sender.log.end_of(window.offset))


def places_behind(sender: "Member", cut: Seqno) -> tuple[Seqno, ...]:
    """Return the places behind which a stream may begin at a cut: behind the last whole
    message, or behind the large message of which the cut has a part."""
    end = sender.log.next_end((cut + 1) % MODULUS)
    return (cut, end) if sender.log.is_large(end) else (cut,)


def later_of(one: Seqno | None, other: Seqno | None) -> Seqno | None:
    """Return the later of two seqnos, of which each may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return later(one, other)
