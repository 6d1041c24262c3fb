"""What must hold for durable members: the lives of one together are given every message
of every sender of the views in which it was a member or absent, once and in order.

A life begins with what the lives before had finished (Member.resume). While a member is
absent, nobody gives up what it has not finished. When it is back, each stream goes on
where it stood; a stream of a sender that came meanwhile begins with its first message.
In the end it has all that departed senders sent, up to where their streams end for
others.

A large message is the exception. Its fragments may have to be acknowledged before it is
whole, because its sender has no room for the rest. If the receiver dies just then, or
is cut off, the message is lost: its stream goes on in the middle of it.

A stream may also be given up: of a sender that departed, if the application was too
slow for it; or if only those are left who came later, and have what follows a gap. Then
it ends for the member where it stood. All other streams are owed all the same.

All this is owed only as long as it was waited for: an operator may have excluded it in
one part of the group, or its absence may have run out. So it is until it begins to
leave: then it takes nothing any more, and tells senders not to wait for it.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ringcast.address import Address
from ringcast.protocols.frag import HEAD, goes_whole, size_of
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.seqnos import MODULUS, Seqno, earlier, precedes
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.checkers import Checkers
    from ringcast.sim.member import Member


class Lives:
    """The checks. They need the views that members have installed."""

    def __init__(self, checkers: "Checkers") -> None:
        self.checkers = checkers
        self.last: dict[tuple[int, int], Seqno] = {}    # given, by receiver and sender
        # The views in which a name was given messages of a sender, each with the last.
        self.given: dict[tuple[str, int], list[tuple[int, Seqno]]] = {}
        # Where streams of a sender have begun for a name.
        self.begins: dict[tuple[str, int], set[Seqno]] = {}
        # Where a stream was given up for a name, by the name and the sender.
        self.given_up: dict[tuple[str, int], set[Seqno]] = {}
        self._num_given_up: dict[int, int] = {}     # messages, as each receiver counts them

    def had(self, receiver: "Member", sender: "Member") -> Seqno | None:
        """Return up to where a member and its earlier lives have a stream."""
        known = self.last.get((receiver.incarnation, sender.incarnation))
        return receiver.resume.get(sender.address) if known is None else known

    def has_departed(self, receiver: "Member", sender: int) -> bool:
        """Return whether a sender is not in the view that a receiver was shown last."""
        return not receiver.views or all(address.incarnation != sender
                                         for address in receiver.views[-1].members)

    # ---------------------------------------------------------------------------------- on delivery

    def note(self, receiver: "Member", sender: int, last: Seqno) -> None:
        """Note what a member was given. What it is given of a departed sender was sent
        in earlier views. An earlier life may have been given it, too, and not have
        finished it."""
        self.last[receiver.incarnation, sender] = last
        if not self.has_departed(receiver, sender):
            given = self.given.setdefault((receiver.name, sender), [])
            while given and (given[-1][0] == receiver.views[-1].id
                             or not precedes(given[-1][1], last)):
                given.pop()
            given.append((receiver.views[-1].id, last))

    def goes_on(self, receiver: "Member", sender: "Member", since: int, met: int) -> bool:
        """Return whether a stream goes on, for a receiver that met its sender in the
        view `met`, or in one after the view `since`, where it stood before. Where it is
        back, all streams do: what is kept for others, too, of a sender in whose part of
        the group it was not absent."""
        if not receiver.durable:
            return False
        if self.has_departed(receiver, sender.incarnation):
            return True                                 # and was kept
        if any(is_absent(receiver.name, view) for view in self.checkers.views.before(met)):
            return True
        # The sender may have died, or gone elsewhere, before `met`.
        history = [view for view in self.checkers.views.history(sender) if view.id < met]
        ids = [*(view.id for view in history[1:]), met]
        return any(since < view_id and is_absent(receiver.name, before)
                   for before, view_id in zip(history, ids, strict=False))

    def next_of(self, receiver: "Member", sender: "Member", begins: Seqno, met: int) -> Seqno:
        """Return the seqno with which the next message begins in a stream that goes
        on."""
        had = self.had(receiver, sender)
        history = [view for view in self.checkers.views.history(sender)
                   if view.id < met or self.has_departed(receiver, sender.incarnation)]
        if had is None:
            is_first = bool(history) and all(is_absent(receiver.name, view) for view in history)
            return (sender.offset + 1) % MODULUS if is_first else begins
        following = (had + 1) % MODULUS
        if precedes(had, begins) and not (
                self._was_awaited(receiver.name, sender, had, history)
                and self._is_held(receiver, sender, following)):
            return begins
        return self.skip_torn(receiver, sender, following, begins)

    def skip_torn(self, receiver: "Member", sender: "Member", following: Seqno,
                  begins: Seqno) -> Seqno:
        """Return the seqno with which the next message begins, from one on, and up to
        another, without large messages of which only the rest is meant for a member."""
        return skip(sender, self.torn(receiver, sender), following, begins)

    def owed_up_to(self, receiver: "Member", sender: "Member", seqno: Seqno) -> Seqno:
        """Return the end of the last message, up to a seqno, that is meant for a
        member."""
        end, torn = sender.log.end_before(seqno), self.torn(receiver, sender)
        while end in torn:
            end = sender.log.end_before((end - 1) % MODULUS)
        return end

    def are_alike(self, sender: "Member", one: Seqno, other: Seqno) -> bool:
        """Return whether two places differ by nothing but large messages of which only
        the rest is meant for somebody."""
        first, last = (one, other) if precedes(one, other) else (other, one)
        torn = torn_at(sender, (begin for (_, number), begins in self.begins.items()
                                if number == sender.incarnation for begin in begins))
        behind = (last + 1) % MODULUS
        return skip(sender, torn, (first + 1) % MODULUS, behind) == behind

    def begins_at(self, receiver: "Member", sender: "Member", seqno: Seqno) -> bool:
        """Return whether a stream has begun for a member behind this seqno."""
        return seqno in self.begins.get((receiver.name, sender.incarnation), ())

    def torn(self, receiver: "Member", sender: "Member") -> set[Seqno]:
        """Return the ends of messages in whose middle a stream began for a member."""
        return torn_at(sender, self.begins.get((receiver.name, sender.incarnation), ()))

    def _is_held(self, receiver: "Member", sender: "Member", seqno: Seqno) -> bool:
        """Return whether anybody who lives has a message of a sender. It is gone with
        the last who was there when it came."""
        others = (other for other in self.checkers.cluster.living() if other is not receiver)
        return sender.alive or any(
            precedes(window.ring.low, seqno) and not precedes(window.come_up_to, seqno)
            for window in windows_of(others, sender))

    def _was_awaited(self, name: str, sender: "Member", had: Seqno, history: list[View]) -> bool:
        """Return whether a name was a member or absent in all of these views, since it
        was given what it `had` of a sender, and had not begun to leave in one of
        them."""
        given = self.given.get((name, sender.incarnation)) or [(0, had)]
        since = next((view_id for view_id, last in given if not precedes(last, had)), given[-1][0])
        has_left = any(life.endpoint.leaving is not None and life.views and (
            life.views[-1].id >= since) for life in self._lives(name))
        return not has_left and all(name in view.names or is_absent(name, view)
                   for view in history if view.id >= since)

    # -------------------------------------------------------------------------------- on giving up

    def installed(self, member: "Member", view: View) -> None:
        """Note where streams begin for a member; and which it has given up with a view,
        and where, if it counts that it has. It tells its application, now or later,
        that they end there, and before the place that was agreed on; or somebody else
        has only what comes behind a gap."""
        for window in windows_of([member]):
            key = member.name, window.stream.sender.incarnation
            self.begins.setdefault(key, set()).add(window.offset)
        counted = member.multicast.counters.num_gone_undelivered
        if counted == self._num_given_up.get(member.incarnation, 0):
            return
        self._num_given_up[member.incarnation] = counted
        flushing, incarnations = member.multicast.flushing, self.checkers.cluster.incarnations
        agreed: dict[Address, Seqno] = {}
        given_up: dict[Address, Seqno] = {}
        shown = {each.id: each for each in (*member.stack.effects.views,
                                            *(each.view for each in flushing.pending))}
        for each in self.checkers.views.history(member):
            agreed |= each.departed
            if each.id in shown:        # it tells of those before that are not shown, too
                given_up |= {address: place for address, place in shown[each.id].departed.items()
                             if precedes(place, agreed.get(address, place))}
        others = [incarnations[address.incarnation] for address in view.members
                  if address != member.address]
        given_up |= {address: place for address, place in flushing.keeping.places.items()
                     if has_gap(windows_of(others, incarnations[address.incarnation]), place)}
        for address, place in given_up.items():
            self.given_up.setdefault((member.name, address.incarnation), set()).add(place)

    def has_given_up(self, receiver: "Member", sender: "Member", had: Seqno | None) -> bool:
        """Return whether a stream was given up where a member, or an earlier life, has
        come to."""
        return any(had == sender.log.end_before(place)
                   for place in self.given_up.get((receiver.name, sender.incarnation), ()))

    # ------------------------------------------------------------------------------------ on purges

    def check_purge(self, sender: "Member", low: Seqno, at: "Member") -> None:
        """Check that nothing is given up that an absent member has not finished."""
        history = self.checkers.views.history(at)
        for address in history[-1].absent if history else ():
            life = self.checkers.cluster.members[address.name]
            finished = life.consumer.finished.get(sender.incarnation)
            if finished is not None and precedes(finished, self.owed_up_to(life, sender, low)) and (
                    self._was_awaited(address.name, sender, finished, history)):
                self.checkers.violated(
                    "purge", f"{at.name} gave up {sender.name}'s messages up to {low}, of which "
                             f"{address.name}, which is absent, has finished those up to "
                             f"{finished}")

    # --------------------------------------------------------------------------------- when it ends

    def check(self) -> None:
        """Check that durable members have all that departed senders sent."""
        living = self.checkers.cluster.living()
        for receiver in living:
            if receiver.durable and receiver.receiving:
                for other in living:
                    self._check_departed(receiver, other)

    def _without_part(self, receiver: "Member", sender: "Member", had: Seqno) -> Seqno:
        """Return up to where a member has a stream without the large message of which
        it had to acknowledge a part before it was cut off, or an earlier life before it
        died."""
        end = sender.log.next_end((had + 1) % MODULUS)
        finished = (window.stream.finished
                    for window in windows_of(self._lives(receiver.name), sender))
        is_torn = end in self.torn(receiver, sender) or any(
            seqno != end and sender.log.end_of(seqno) == end for seqno in finished)
        return end if is_torn else had

    def _lives(self, name: str) -> Iterator["Member"]:
        """Yield all processes that have had this name."""
        return (each for each in self.checkers.cluster.incarnations.values() if each.name == name)

    def _check_departed(self, receiver: "Member", other: "Member") -> None:
        """Check this against where the streams ended for another member, or for itself.
        What nobody was given may have ended with its sender: then it ends where it
        begins for whoever met the sender later, or was to meet it in a view that the
        sender never had."""
        history = self.checkers.views.history(other)
        for before, view in zip(other.views, other.views[1:], strict=False):
            for address, cut in view.departed.items():
                sender = self.checkers.cluster.incarnations[address.incarnation]
                had = self.had(receiver, sender)
                given = cut if other is receiver else self.had(other, sender)
                if had is None or given is None or address not in before or sender.alive:
                    continue
                if other is receiver and address in before.joined and all(
                        each.id != before.id for each in self.checkers.views.history(sender)):
                    continue
                had = self._without_part(receiver, sender, had)
                if (precedes(had, sender.log.end_before(earlier(cut, given)))
                        and not self.has_given_up(receiver, sender, had)
                        and self._was_awaited(receiver.name, sender, had, history)
                        and self._was_awaited(receiver.name, sender, had,
                                              self.checkers.views.history(sender))):
                    self.checkers.violated(
                        "lost", f"{receiver.name} has {sender.name}'s messages up to {had}; for "
                                f"{other.name} they ended with {cut}, and {receiver.name} was "
                                "always a member or absent")


def windows_of(members: Iterable["Member"],
               sender: "Member | None" = None) -> Iterator[ReceiveWindow]:
    """Yield what each of these members holds of a sender, or of all: a window for each
    stream."""
    for member in members:
        layer = member.multicast
        windows: list[ReceiveWindow] = [*layer.windows.values(),
                                        *layer.flushing.departed.values()]
        yield from (window for window in windows if sender is None
                    or window.stream.sender.incarnation == sender.incarnation)


def torn_at(sender: "Member", places: Iterable[Seqno]) -> set[Seqno]:
    """Return the ends of the messages in whose middle these places are."""
    return {end for place in places
            if (end := sender.log.end_of(place)) != place and not is_one_step(sender, end)}


def is_one_step(sender: "Member", end: Seqno) -> bool:
    """Return whether the large message that ends here is acknowledged in one step, when
    it is whole: then no stream begins in its middle."""
    begin = sender.log.larges.get(end)
    if begin is None:
        return False
    count = (end - begin) % MODULUS + 1
    size = HEAD.size + size_of(sender.config.max_bundle_size)
    return goes_whole(count, size, sender.config)


def skip(sender: "Member", torn: set[Seqno], following: Seqno, begins: Seqno) -> Seqno:
    """Return the seqno with which the next message begins that is not torn, from one
    on, and up to another."""
    while following != begins and (end := sender.log.next_end(following)) in torn:
        following = (end + 1) % MODULUS
    return following


def has_gap(windows: Iterable[ReceiveWindow], place: Seqno) -> bool:
    """Return whether some of these windows have messages behind a place, but none has
    those that follow it."""
    behind = [window.ring.low for window in windows if precedes(place, window.come_up_to)]
    return bool(behind) and all(precedes(place, low) for low in behind)


def is_absent(name: str, view: View) -> bool:
    """Return whether a view says that a name is absent."""
    return any(address.name == name for address in view.absent)
