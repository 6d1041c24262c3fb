"""State transfer: a member that comes is given the application's state by another one.

The place of a view between the messages is all that the two must agree on. At a member
that comes from the view before, everything up to the cuts has been delivered, and
nothing behind them; at the one that comes, the streams begin exactly there
(multicast/flush.py). So a state that the giver takes at the place of view V fits what
the other delivers after V.

1. *Assign.* Each member reports how it stands: it has the state, or it needs it. The
   INSTALL of a view names for each who needs it a giver, which is one of the oldest
   that have it, and the place (`assign`). A transfer goes on while the two go together
   from view to view. Otherwise a new one begins, with another giver and another place.
   If nobody has the state and the view is primary, it is lost, or there is none yet:
   all who need it begin without it, at this place. In another view they wait for those
   who may have it; but where each part of a group goes on, no longer than PATIENCE, and
   if there are min_members. Who has waited so long says so and asks for a view (NEED),
   in which all begin.

2. *Give.* When the giver's application is shown the view, its state is taken, before it
   gets any other message (Effects.givings). The parts go over the connection between
   the two (`parts`). A large message may be in the middle of its stream at the place
   (flush.py says when): it is not in the state, and only its rest comes to the other
   one. So what the giver has of it goes before the state, and both together are the
   message.

3. *Wait.* The state has messages that only the giver and a dead sender may have. If the
   giver goes, too, they are lost for all others. So the state is passed to the
   application when the place is settled (settling.py): then all have them.

4. *Hold back.* Until its application has the state, the other holds back what is
   delivered to it behind the place, and drops what comes before: that is in the state.
   While nobody gives it the state, it drops everything: the place will come later.
   What is held back counts as finished, so that nobody waits; up to state_backlog
   bytes. Then its senders wait. Messages to it alone are never dropped.

5. *Fail.* If the giver cannot give, or a part is missing, the other asks the
   coordinator for one more view (NEED), whose INSTALL names a giver again.

States of groups that become one differ.
"""

from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.config import MAX_MEMBERS, Config, nanoseconds
from ringcast.decoding import UNDECODABLE
from ringcast.errors import MessageTooLargeError
from ringcast.flags import FRAGMENT, STATE
from ringcast.kinds import Kind, takes
from ringcast.protocols.membership.begins import Begins
from ringcast.protocols.membership.messages import (
    FAILED,
    HAS,
    NEEDS,
    NO_PART,
    Install,
    Report,
    Seat,
    Standing,
    ViewId,
)
from ringcast.protocols.seqnos import is_seqno
from ringcast.stack import Begun, Effects, Giving, Instant, Layer, StateNews
from ringcast.status import Layers, StateStatus
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.protocols.membership.layer import Membership

MORE, WHOLE, BROKEN = range(3)          # how a part ends: others follow, the state does, it fails
OVERHEAD = 64                           # bytes of a part, besides its chunks, at most ...
PREFIX = 5                              # ... and of each of these
LEAST_PAUSE = nanoseconds(100.0)        # between two NEEDs, at first ...
MOST_PAUSE = nanoseconds(10_000.0)      # ... and at most
PATIENCE = nanoseconds(10_000.0)        # for who has the state, in a view that is not primary
MOST_ALONE = 64 << 20                   # bytes for us alone that are held back, or state_backlog


class Need(msgspec.Struct, array_like=True):
    """NEED: my giver has failed; make a view that names another one."""

    view_id: ViewId


class Part(msgspec.Struct, array_like=True):
    """Chunks of the state that was taken at a place."""

    place: ViewId
    number: Annotated[int, Meta(ge=0)]
    chunks: list[bytes]
    end: Annotated[int, Meta(ge=MORE, le=BROKEN)] = MORE
    is_cut: bool = False                # the last chunk goes on in the next part


NEED = Kind(36, "need", Need, traced=False)

encode = msgspec.msgpack.Encoder().encode
decoder = msgspec.msgpack.Decoder(Part)


def assign(seats: Collection[Seat], reports: Mapping[int, Report], view_id: ViewId,
           is_primary: bool) -> None:
    """Write into the seats of a new view how each member stands, and who gives the
    state to whom. Who begins without it has a place and no giver."""
    for seat in seats:
        seat.standing = reports[seat.incarnation].standing
    has_waited = any(seat.state == NEEDS and seat.standing.place and not seat.standing.giver
                     for seat in seats if seat.standing is not None)
    able = {state: [seat.incarnation for seat in seats if seat.state == state]
            for state in (HAS, FAILED)}
    givers, num_new = able[HAS] or able[FAILED], 0
    for seat in seats:
        said = seat.standing
        if said is None or said.state != NEEDS:
            continue
        is_there = said.giver in able[HAS] or said.giver in able[FAILED]
        if not is_there or not seat.before or reports[said.giver].view_id != seat.before:
            giver = givers[num_new % len(givers)] if givers else 0
            has_place = giver or is_primary or has_waited
            seat.standing = Standing(NEEDS, giver, view_id if has_place else 0)
            num_new += 1


def parts(place: ViewId, chunks: Iterable[bytes], size: int, largest: int,
          begins: Iterable[bytes] = ()) -> Generator[bytes, None, None]:
    """Yield the parts of a state, encoded, of at most `size` bytes each; before its
    chunks come the `begins` of messages, and an empty one. Raise TypeError for a chunk
    that is not bytes-like, and MessageTooLargeError for one of more than `largest`
    bytes."""
    number, room, bundle = 0, size - OVERHEAD, list[Any]()
    all_chunks: Iterable[bytes | memoryview] = chain(begins, [b""], checked(chunks, largest))
    for chunk in all_chunks:
        rest = memoryview(chunk)
        while len(rest) + PREFIX > room:
            is_cut = room > PREFIX
            if is_cut:
                bundle.append(rest[:room - PREFIX])
                rest = rest[room - PREFIX:]
            yield encode(Part(place, number, bundle, MORE, is_cut))
            number, room, bundle = number + 1, size - OVERHEAD, []
        bundle.append(bytes(rest))                      # the application may use its buffer again
        room -= len(rest) + PREFIX
    yield encode(Part(place, number, bundle, WHOLE))


def checked(chunks: Iterable[bytes], largest: int) -> Iterator[memoryview]:
    """Yield the chunks of an application, if they are bytes-like and not too large."""
    for chunk in chunks:
        whole = memoryview(chunk).cast("B")
        if len(whole) > largest:
            raise MessageTooLargeError(f"a chunk of {len(whole)} bytes is above max_message_size, "
                                       f"{largest}; yield smaller ones")
        yield whole


def broken(place: ViewId) -> bytes:
    """Return the part which says that the giver has failed."""
    return encode(Part(place, 0, [], BROKEN))


class Segment(NamedTuple):
    """What is held back: views, and the messages behind them."""

    views: list[View]
    batches: list[Batch]


class StateTransfer(Layer):
    """The topmost layer: the state transfer of the member `local`. Its owner sets
    `state` to HAS or NEEDS before the start if the application has a state, and
    `can_give`.

    What the stack delivers goes through pass_on() before the application gets it.
    """

    membership: "Membership"

    def __init__(self, local: Address, config: Config) -> None:
        self.local = local.incarnation
        self.largest, self.backlog = config.max_message_size, config.state_backlog
        self.state, self.can_give = NO_PART, False
        self.giver, self.place = 0, 0                   # if this member needs the state
        self.installed = 0                              # the id of the newest view
        self.duties: list[tuple[ViewId, Address]] = []  # to be given a state at the next view
        self.givings: set[Giving] = set()               # states that our application gives now
        self.passed_bytes = 0                           # that it got while it gave any
        # By the view of a duty, what had come there of messages that are not whole.
        self.begun: dict[ViewId, dict[int, Begun]] = {}
        self.begins = Begins(self.largest)
        self._begin_attempt()
        self.attempt = 0                                # grows with each giver that is lost
        self.news: list[StateNews] = []
        self.early: list[Batch] = []                    # of views that are not installed here
        self.is_accepted = self.is_skipping = False
        self.held: deque[Segment] = deque()
        self.held_bytes = self.alone_bytes = 0          # all of it; what is for us alone
        self.to_finish: list[Batch] = []
        self.has_dropped_views = False
        self.least = config.min_members if config.partition == "merge" else MAX_MEMBERS + 1
        self.patient_until: Instant | None = None       # if nobody has the state
        self.next_need: Instant | None = None
        self.not_before: Instant = 0                    # is the next NEED
        self.pause = LEAST_PAUSE
        self.num_given = self.num_lost = self.num_held_back = 0

    def _begin_attempt(self) -> None:
        self.num_parts = 0
        self.cut: list[bytes] = []                      # the begin of a chunk ...
        self.cut_bytes = 0                              # ... and how much that is
        self.is_whole = False
        self.begins.clear()
        self.has_begins = False                         # the state itself has begun to come

    # ------------------------------------------------------------------------------------ agreement

    def standing(self, now: Instant) -> Standing | None:
        """Return how this member stands, for REPORT. Without a giver, a place says that
        it has waited long enough."""
        has_waited = self.patient_until is not None and self.patient_until <= now
        place = self.installed if has_waited else self.place
        return Standing(self.state, self.giver, place) if self.state else None

    def install(self, install: Install, now: Instant) -> None:
        """Note who gives the state to whom in a view."""
        self.installed = install.id
        self.duties += [(install.id, seat.address) for seat in install.seats
                        if seat.standing and seat.standing.giver == self.local
                        and seat.standing.place == install.id]
        mine = install.seat(self.local)
        said = mine.standing if mine is not None else None
        if self.state != NEEDS or said is None or said.state != NEEDS:
            return
        senders = frozenset(seat.incarnation for seat in install.seats)
        if said.place == install.id:
            self.begins.senders = frozenset()
        self.begins.senders |= senders
        if said.giver and said.place == install.id:
            self._lose_attempt(said.giver, said.place)
        elif not said.giver and said.place == install.id:       # there is no state
            self._lose_attempt(0, install.id)
            self._accept()
        elif said.giver and (said.giver, said.place) != (self.giver, self.place):
            self._fail()                # we have given that attempt up since our report
        else:
            if said.giver != self.giver:
                self._lose_attempt(0, 0)
            elif not self.giver:
                self._drop_before(install.id + 1)
            is_complete = self.membership.num_counted() >= self.least
            self._be_patient(not self.giver and is_complete, now)
        early, self.early = self.early, []
        for batch in early:
            self._take(batch)

    def _be_patient(self, is_bounded: bool, now: Instant) -> None:
        """Wait for somebody who has the state; if that `is_bounded`, ask in the end for
        a view in which we begin without it."""
        if not is_bounded:
            self.patient_until = None
        elif self.patient_until is None:
            self.next_need = self.patient_until = now + PATIENCE

    def _lose_attempt(self, giver: int, place: ViewId) -> None:
        """Begin anew, with another giver or none. Without one the place will be that of
        a later view."""
        self.num_lost += bool(self.giver)
        self.giver, self.place = giver, place
        self.attempt += 1
        self._begin_attempt()
        self.next_need = self.patient_until = None
        self.to_finish += [news.batch for news in self.news if news.batch is not None]
        self.news = [StateNews(self.attempt)]
        self._drop_before(place or self.installed + 1)

    def _fail(self) -> None:
        """Ask for another giver: the present one has failed."""
        self._lose_attempt(0, 0)
        self.next_need = self.not_before

    @takes(NEED)
    def _on_need(self, sender: int, need: Need, now: Instant) -> bool:
        """On reception of NEED: if we coordinate, make a view that names givers
        again."""
        if not is_seqno(need.view_id):
            return False
        membership = self.membership
        if sender in membership.members and need.view_id == membership.view_id and (
                membership.coordinator.renew(now)):
            membership.received(now)
        return True

    def deadline(self) -> Instant | None:
        return self.next_need

    def tick(self, now: Instant) -> None:
        """Say NEED, ever more rarely."""
        membership = self.membership
        if not membership.is_open:
            self.next_need = None
            return
        self.next_need = self.not_before = now + self.pause
        self.pause = min(2 * self.pause, MOST_PAUSE)
        coordinator = membership.acting(membership.detection.gone(now))
        need = Need(membership.view_id)
        if coordinator == self.local:
            self._on_need(self.local, need, now)
        elif coordinator:
            self.send_control(NEED, need, coordinator, now)

    def note_given(self, is_given: bool) -> None:
        """Note whether our application has given its state, or failed to."""
        if self.state in (HAS, FAILED):
            self.state = HAS if is_given else FAILED
            self.num_given += is_given

    def leisure(self, passed: int) -> float:
        """Return how much time there is to give a state that was taken when
        `passed_bytes` was so much: 1 at first, 0 when the other member holds back half
        of its backlog. It holds back what our application gets, so nobody need ask."""
        return max(0.0, 1 - 2 * (self.passed_bytes - passed) / self.backlog)

    # -------------------------------------------------------------------------------------- passing

    @property
    def is_holding(self) -> bool:
        """Return whether the application gets nothing directly."""
        return bool(self.held) or self.state == NEEDS or self.is_skipping

    @property
    def is_full(self) -> bool:
        """Return whether messages to everybody must wait. What comes before the place
        need not: it is dropped."""
        return self.held_bytes >= self.backlog and not self.is_skipping

    def pass_on(self, effects: Effects) -> int:
        """Change what the stack delivers into what the application gets now. Return how
        many messages of it were held back before."""
        if effects.failures:
            effects.failures = [batch for batch in effects.failures if not batch.bits & STATE]
        if effects.deliveries:
            self._note_delivered(effects)
        came = effects.views, effects.deliveries
        if self.duties:
            self.begun |= effects.begun
        released = 0
        if self.is_holding:
            self._hold(effects)
            released = self._release(effects)
        if self.duties and effects.views:
            self._begin_to_give(effects)
        self._make_whole(effects)
        if effects.deliveries is not came[1]:
            effects.came = came
        if self.news and self.place <= self.membership.settling.settled_id:
            effects.state, self.news = self.news, []    # nothing in it can be lost for others
        if self.to_finish:
            effects.arrived = True
        return released

    def _note_delivered(self, effects: Effects) -> None:
        """Take parts of a state out of the deliveries, and count what the application
        gets while it gives its own."""
        if [batch for batch in effects.deliveries if batch.bits & STATE]:
            effects.deliveries = self._take_all(effects.deliveries)
        if self.givings:
            self.passed_bytes += sum(batch.nbytes for batch in effects.deliveries)

    def _begin_to_give(self, effects: Effects) -> None:
        """Have the application asked for its state where it is shown a view that names
        us as a giver."""
        for view in effects.views:
            if self.membership.multicast.receiving:     # else we leave, and do not have all of it
                begins = self.begins.give(self.begun.pop(view.id, {}))
                effects.givings += [Giving(view.id, joiner, begins) for place, joiner in self.duties
                                    if place <= view.id and joiner in view]
            self.duties = [duty for duty in self.duties if duty[0] > view.id]
        if not self.duties:
            self.begun.clear()

    def _make_whole(self, effects: Effects) -> None:
        """Make messages of the rests that come and the begins that we were given. A
        rest without its begin is finished at once."""
        for view in effects.views if self.begins else ():
            for member in view.left:
                self.begins.pop(member.incarnation, None)
        if [batch for batch in effects.deliveries if batch.bits & FRAGMENT]:
            deliveries, effects.deliveries = effects.deliveries, []
            for batch in deliveries:
                whole = self.begins.join(batch) if batch.bits & FRAGMENT else batch
                if whole is None:
                    self.to_finish.append(batch)
                else:
                    effects.deliveries.append(whole)

    def _hold(self, effects: Effects) -> None:
        """Hold back what comes behind the place, and drop what comes before, but for
        messages to us alone."""
        for view in effects.views:
            self.is_skipping &= not 0 < self.place <= view.id
        views = [] if self.is_skipping else [view for view in effects.views
                                             if view.id >= self.place]
        self.has_dropped_views |= len(views) < len(effects.views)
        kept = alone(effects.deliveries) if self.is_skipping else effects.deliveries
        self.to_finish += effects.deliveries
        self.num_held_back += sum(map(len, kept))
        self.held_bytes += sum(batch.nbytes for batch in kept)
        self.alone_bytes += sum(batch.nbytes for batch in alone(kept))
        if self.alone_bytes >= max(self.backlog, MOST_ALONE):
            effects.fault = ("members sent this one alone too much before it had its state; send "
                             "it less, or give it a larger state_backlog")
        kept = [finished(batch) for batch in kept]
        if views or (kept and not self.held):
            self.held.append(Segment(views, kept))
        elif kept:
            self.held[-1].batches.extend(kept)
        effects.views, effects.deliveries = [], []

    def _drop_before(self, place: ViewId) -> None:
        """Drop what is held back before the place, but for messages to us alone."""
        kept: list[Batch] = []
        while self.held and not any(view.id >= place for view in self.held[0].views):
            views, batches = self.held.popleft()
            self.has_dropped_views |= bool(views)
            kept += alone(batches)
        self.is_skipping = not self.held
        if self.held:
            views = self.held[0].views
            self.held[0] = Segment([view for view in views if view.id >= place],
                                   kept + self.held[0].batches)
        elif kept:
            self.held.append(Segment([], kept))
        self.held_bytes = sum(batch.nbytes for _, batches in self.held for batch in batches)

    def _release(self, effects: Effects) -> int:
        """Give the application, once it has the state, the next part of what was held
        back. Return how many messages."""
        if not self.is_accepted or self.is_skipping or not self.held:
            return 0
        effects.views, effects.deliveries = self.held.popleft()
        if self.has_dropped_views and effects.views:
            self.has_dropped_views = False
            first = effects.views[0]
            effects.views[0] = msgspec.structs.replace(first, joined=first.members, left=(),
                                                       departed={})
        self.held_bytes = sum(batch.nbytes for _, batches in self.held for batch in batches)
        effects.arrived = True
        return sum(map(len, effects.deliveries))

    # ------------------------------------------------------------------------------------ the state

    def accept(self, attempt: int) -> bool:
        """Note that the application has the state, unless the giver was lost
        meanwhile: then return False."""
        if attempt != self.attempt or not self.is_whole:
            return False
        self._accept()
        self.stack.effects.arrived = True
        return True

    def _accept(self) -> None:
        self.is_accepted = True
        self.state = HAS if self.can_give else NO_PART
        self.giver, self.next_need = 0, None
        self.pause = LEAST_PAUSE
        self.to_finish += self.early                    # parts of another giver
        self.early = []

    def _take_all(self, deliveries: list[Batch]) -> list[Batch]:
        """Take the parts of a state out of what is delivered."""
        for batch in deliveries:
            if batch.bits & STATE:
                self._take(batch)
        return [batch for batch in deliveries if not batch.bits & STATE]

    def _take(self, batch: Batch) -> None:
        """Take parts of a state. What is of no use is finished at once."""
        if self.state != NEEDS:
            self.to_finish.append(batch)
            return
        try:
            came = [decoder.decode(payload) for payload in batch.payloads]
        except UNDECODABLE:
            came = []
        sender = batch.sender.incarnation
        if came and is_seqno(came[-1].place) and came[-1].place > self.installed:
            self.early.append(batch)
            return
        if not came and sender == self.giver:
            self._fail()
        chunks: list[bytes] = []
        attempt, was_whole = self.attempt, self.is_whole
        for part in came:
            if sender == self.giver and part.place >= self.place and not self.is_whole:
                more = self._add(part)
                if attempt != self.attempt:
                    attempt, chunks = self.attempt, []
                chunks += more
        if chunks or self.is_whole > was_whole:
            self.news.append(StateNews(attempt, chunks, self.is_whole, batch))
        else:
            self.to_finish.append(batch)

    def _add(self, part: Part) -> list[bytes]:
        """Return the chunks that this part makes whole."""
        if part.place > self.place:     # neither was shown the view that names the giver
            self._lose_attempt(self.giver, part.place)
        is_too_large = self.cut_bytes > self.largest + OVERHEAD
        is_empty = part.is_cut and b"" in part.chunks[-1:]
        if part.number != self.num_parts or part.end == BROKEN or is_too_large or is_empty:
            self._fail()
            return []
        self.num_parts += 1
        self.is_whole = part.end == WHOLE
        chunks = part.chunks
        if self.cut and chunks:
            self.cut.append(chunks[0])
            self.cut_bytes += len(chunks[0])
            if part.is_cut and len(chunks) == 1:
                return []
            chunks[0], self.cut, self.cut_bytes = b"".join(self.cut), [], 0
        if part.is_cut and chunks:
            self.cut = [chunks.pop()]
            self.cut_bytes = len(self.cut[0])
        return chunks if self.has_begins else self._take_begins(chunks)

    def _take_begins(self, chunks: list[bytes]) -> list[bytes]:
        """Take the begins of messages from the chunks of a giver. Return the chunks
        behind them, which are those of the state."""
        for place, chunk in enumerate(chunks):
            if not chunk:
                self.has_begins = True
                return chunks[place + 1:]
            if not self.begins.take(chunk):
                self._fail()
                return []
        if self.is_whole:
            self._fail()                                # the state has not even begun
        return []

    def describe(self, status: Layers) -> None:
        status.state = StateStatus(
            num_states_given=self.num_given, num_givers_lost=self.num_lost,
            num_held_back=self.num_held_back, held_back_bytes=self.held_bytes)


def alone(batches: list[Batch]) -> list[Batch]:
    """Return the batches that are for one member alone."""
    return [batch for batch in batches if batch.dest is not None]


def finished(batch: Batch) -> Batch:
    """Return a batch that is finished already, as far as its sender knows."""
    return batch.addressed(batch.sender, batch.dest, batch.view_id, None, bytes(batch.sent_at))
