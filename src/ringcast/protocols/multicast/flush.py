"""The flush: members that go together from one view to the next deliver the same
messages in between (virtual synchrony), also those of senders that crashed.

Before a view is installed, its members agree on where each stream ends in the view
before: its cut (membership/). Here is what the streams do about it.

1. *Freeze.* When asked to prepare, a member reports up to where everything of each
   stream has come; of its own stream, what it has sent; of a large message in part,
   nothing. From then on it delivers nothing beyond its report, and purges none of its
   own messages beyond it. Messages come and go as ever. The cut of a stream is the
   highest report of all. So a new member gets a large message whole that is on its way,
   unless its sender has freed a part of it, or has sent something between two parts.
   Then the cut is in its middle; what has come of it is told with the view, for state
   transfer (membership/state.py).

2. *Install.* The view is installed at once, for acks, requests and windows. A new
   member acknowledges a stream from the cut on. The application sees the view at its
   place: after everything up to the cuts, and before all that follows. Until then the
   view waits here. Several views may wait: each begins where the one before ends.
   Deliveries are performed after views, so a view never shares the Effects with
   deliveries that must come before it; it waits for the next ones.

3. *Fetch.* What is missing of a departed sender has come to another member, the holder,
   who is asked for it (fetching.py). Every member holds what it has of departed senders
   until the group is settled. If a holder dies meanwhile, the next cuts name another
   one, or are lower: nobody that is left has more.

4. *Settle.* When everything up to the cuts has come to all members, also to those
   that are back, the group is settled. A new member delivers nothing of a stream
   before, and reports nothing of it, though its sender departs: somebody may miss what
   comes before the cut, and have nobody to ask for it when all who have it die. Then
   the stream must end there, for the new member too. If only new members are left, and
   one of them lacks something, it says so: the stream ends where it begins for them.

A large message of a departed sender that is not whole at the cut is delivered by
nobody. OOB messages are delivered when they come; the flush does not cover them.
"""

from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ringcast._core.window import Window
from ringcast.address import Address
from ringcast.config import MAX_DATAGRAM
from ringcast.protocols.budget import NO_LIMIT
from ringcast.protocols.multicast.ended import Ended
from ringcast.protocols.multicast.fetching import Fetching
from ringcast.protocols.multicast.keeping import Keeping, Owed, Part, reach
from ringcast.protocols.multicast.retention import MOST_ROOM, drop_unneeded
from ringcast.protocols.multicast.windows import Departed, ReceiveWindow
from ringcast.protocols.retransmission import Gaps
from ringcast.protocols.seqnos import MODULUS, Seqno, ahead, earlier, later, precedes
from ringcast.protocols.stream import Stream
from ringcast.stack import Installed, Instant
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast

MOST_PENDING = 1024                     # views that wait for a slow application


class Agreed(msgspec.Struct, frozen=True):
    """What the members of a new view agreed on, as one of them must know it.

    - `cuts`: up to which seqno each stream belongs to the view before, by sender. It
      has all members of the new view, all departed senders of the view that we come
      from, and departed senders of earlier views that are not settled;
    - `holders`: for a departed sender, a member of the new view that has everything up
      to the cut;
    - `together`: the members of the new view that come from the same view as we do,
      and ourselves. The others are new to us. A member of our view that is in the new
      one must be among them;
    - `lows`: after which seqno members keep what they sent for those who come back;
    - `back`: who comes back, and takes the place of an absent member;
    - `owed`: streams of departed senders that are kept for those;
    - `parts`: while nothing may be freed, what each has of a departed sender: who came
      later, or was back for a while, has only a part;
    - `durables`: members that are durable;
    - `over`: departed senders of which only observers told what they have. If they had
      departed before, all others have everything up to the cut that was agreed on then.
    """

    cuts: dict[int, Seqno]
    holders: dict[int, int]
    together: frozenset[int]
    lows: dict[int, Seqno] = {}
    back: frozenset[int] = frozenset()
    owed: tuple[Owed, ...] = ()
    parts: dict[int, tuple[Part, ...]] = {}
    durables: frozenset[int] = frozenset()
    over: frozenset[int] = frozenset()

    def end(self, window: ReceiveWindow) -> Seqno:
        """Return where a stream ends in the view before. If only an earlier stream of
        its sender was reported, this one ends where it begins for us."""
        cut = self.cuts.get(window.stream.sender.incarnation, window.offset)
        return later(window.offset, cut)


class Pending(NamedTuple):
    """A view that the application has not seen: it comes when each stream has been
    delivered up to its cut. It is void if the others parted from us before we had all
    of that, and nobody is left who has it: then the application does not see it."""

    view: View
    cuts: dict[Stream, Seqno]
    is_void: bool = False

    @property
    def ends(self) -> dict[Address, Seqno]:
        """Return the cuts by sender. They may be lower than the view says."""
        return {stream.sender: cut for stream, cut in self.cuts.items()}


class Flush:
    """The flush of one layer. `view_id` is the id of the view that the application has
    seen last: its messages carry it."""

    def __init__(self, layer: "Multicast", keeping: Keeping) -> None:
        self.layer, self.keeping = layer, keeping
        self.shown: View | None = None              # the view that the application has seen last
        self.view_id = 0
        self.agreed: Agreed | None = None           # for the view that comes next
        self.reported: dict[int, Seqno] | None = None       # since we were asked to prepare
        self.frozen: dict[Stream, Seqno] | None = None      # the same, by stream
        self.cuts: dict[Stream, Seqno] = {}         # of members, until all has come up to there
        self.unsettled: set[Stream] = set()         # new to us: deliver nothing of them yet
        self.skips: dict[Stream, Seqno] = {}        # where streams begin for our application
        self.pending: deque[Pending] = deque()      # views that the application has not seen
        self.is_view_next = False                   # one waits only for Effects of its own
        # By incarnation, those gone first at first. A sender may depart again before
        # our application has all of its first stream: that has a number below 0.
        self.departed: dict[int, Departed] = {}
        self.num_aside = 0
        self.largest = 0            # members of the largest view since one was settled
        self.fetching = Fetching(layer, self.departed)
        self.ended = Ended()                        # what became of them, for who asks later

    # --------------------------------------------------------------------------------------- freeze

    def prepare(self, now: Instant) -> dict[int, Seqno]:
        """Return up to where everything of each stream has come, by sender, and freeze
        there; after the first call, the same until a view is installed."""
        if self.reported is None:
            layer, own = self.layer, self.layer.send_window
            # Our application may have got our messages before the wire. So all of them
            # go out, also those beyond our credit.
            own.arrived = NO_LIMIT
            layer.flush(now)
            streams = {layer.local.incarnation: (layer.own, own.sent)}
            for origin, gone in self.departed.items():
                if gone.is_held and origin > 0 and gone.stream not in self.unsettled:
                    streams[origin] = gone.stream, earlier(gone.come_up_to, gone.cut)
            for sender, window in layer.windows.items():
                if window.stream not in self.unsettled:
                    streams[sender] = window.stream, window.come_up_to
            self.frozen = {stream: stream.boundary(seqno) for stream, seqno in streams.values()}
            self.reported = {sender: self.frozen[stream] for sender, (stream, _) in streams.items()}
        return dict(self.reported)

    def lacking(self) -> dict[int, Seqno]:
        """Return where streams of departed senders begin of which we report nothing,
        and lack something. If nobody reports one of them, who had it is gone, and the
        group has not settled since."""
        if self.layer.observing is not None:
            return {}                           # nobody waits for an observer
        return {origin: gone.offset for origin, gone in self.departed.items()
                if origin > 0 and gone.stream in self.unsettled and not gone.is_complete}

    def may_end_at(self, cut: Seqno) -> bool:
        """Return whether a cut of our own stream can be true: it is not before our
        report, nor more than a window behind what we have sent since."""
        window = self.layer.send_window
        if self.reported is None:
            return False
        reported = self.reported[self.layer.local.incarnation]
        most = (window.sent - reported) % MODULUS + window.ring.capacity
        return (cut - reported) % MODULUS <= most

    def has_told(self, sender: int, seqno: Seqno) -> bool:
        """Return whether we have reported a stream up to this seqno."""
        told = (self.reported or {}).get(sender)
        return told is not None and not precedes(told, seqno)

    def bound_purge(self, seqno: Seqno) -> Seqno:
        """Return up to where our own messages may be purged, of those up to `seqno`."""
        if self.keeping.is_on:
            return self.layer.send_window.ring.low
        if self.reported is None:
            return seqno
        return earlier(seqno, self.reported[self.layer.local.incarnation])

    def limit(self, stream: Stream, most: int) -> int:
        """Return how many of the next `most` messages of a stream may be delivered
        now."""
        hd = stream.ring.hd
        if stream in self.unsettled:
            return 0
        for ends in (self.pending[0].cuts if self.pending else None, self.frozen):
            if ends is not None:        # a stream that is not there begins in a later view
                most = min(most, ahead(hd, ends.get(stream, hd)))
        return most

    def skip(self, stream: Stream) -> None:
        """Pass over what comes before the place where a stream begins for our
        application."""
        hd, begin = stream.ring.hd, self.skips[stream]
        if precedes(hd, begin):
            stream.skip(self.limit(stream, (begin - hd) % MODULUS))
        if not precedes(stream.ring.hd, begin):
            stream.offset = later(stream.offset, begin)
            del self.skips[stream]

    # -------------------------------------------------------------------------------------- install

    def install(self, view: View, now: Instant) -> None:
        """Install a view, as it was agreed on: streams of members that came with us go
        on, those of departed senders end at their cuts, those of new members begin
        there."""
        agreed, self.agreed = self.agreed, None
        assert agreed is not None, "a view comes after agree()"
        layer, local = self.layer, self.layer.local.incarnation
        windows = layer.windows
        members = {member.incarnation: member for member in view.members}
        stay = agreed.together & layer.members.keys() & members.keys()
        cuts = self._end_streams(agreed) if layer.members and layer.receiving else {}
        cuts |= self._ends_of_fetched()
        self._lower_cuts({stream: cut for stream, cut in cuts.items()
                          if stream.sender.incarnation in stay})
        self.largest = max(self.largest, len(layer.members))
        ends = {window.stream.sender: agreed.end(window) for window in windows.values()}
        view = msgspec.structs.replace(view, departed={
            address: ends.get(address, cut) for address, cut in view.departed.items()})
        self.pending.append(Pending(view, cuts))
        self.keeping.install(bool(view.absent), agreed)
        for member in [member for member in layer.members if member not in stay]:
            self._depart(member, agreed)
            layer.forget(member)
            layer.requests.pop(member, None)
            layer.pace.reached.pop(member, None)
        self._agree_on_departed(agreed, members.keys() - {local})
        self.cuts = {window.stream: cuts[window.stream] for window in windows.values()
                     if window.stream in cuts}
        skips = dict(self.skips)
        self._drop_void()
        self._bound()
        layer.members, layer.view_id = members, view.id
        layer.observers = frozenset(member.incarnation for member in view.observers) - {local}
        self.reported = self.frozen = None
        joined = [member for member in members if member not in stay]
        new: dict[Address, Seqno] = {}
        begun: dict[Address, Seqno] = {}
        for member in joined:
            start = self.keeping.start(member, agreed)
            layer.track(member, start)
            if member != local:
                new[members[member]] = start
            if member != local and layer.receiving:
                window = self.keeping.open(members[member], agreed)
                self.unsettled.add(window.stream)
                self.cuts[window.stream] = agreed.cuts[member]      # it may begin before
                begun[members[member]] = window.offset
        begun |= {stream.sender: begin for stream, begin in self.skips.items()
                  if skips.get(stream) != begin}
        # A stream can have been forgotten before it is known where it begins.
        there = {layer.own, *(each.stream for each in (*windows.values(), *self.departed.values()))}
        self.skips = {stream: begin for stream, begin in self.skips.items() if stream in there}
        begun |= {owed.sender: place for owed, place in self.keeping.owed(agreed)
                  if self._owe(owed, place)}
        self.keeping.note_places()      # once more: those that we fetch end for us, too
        drop_unneeded(layer, (window.stream for window in windows.values()))
        layer.installed(now)
        layer.stack.effects.installed.append(Installed(view, new, begun))
        for member in joined:
            if member != local:
                layer.begin(member, now)
        self.fetching.ask(now)

    def _end_streams(self, agreed: Agreed) -> dict[Stream, Seqno]:
        """Return where each stream of the old view ends in it. Have what is missing up
        to there asked for."""
        layer = self.layer
        cuts = {layer.own: agreed.cuts[layer.local.incarnation]}
        for sender, window in layer.windows.items():
            cut = cuts[window.stream] = agreed.end(window)
            if layer.retransmits:
                layer.gap_looks.expect(sender, cut)
        return cuts

    def _ends_of_fetched(self) -> dict[Stream, Seqno]:
        """Return where streams end that we fetch since an earlier view, and for which
        none of the views that wait has waited so far. They come before the next one: in
        it their senders may be back."""
        waited_for = {stream for pending in self.pending for stream in pending.cuts}
        return {gone.stream: gone.cut for gone in self.undelivered()
                if gone.stream not in waited_for}

    def _lower_cuts(self, cuts: dict[Stream, Seqno]) -> None:
        """Let views that wait not wait for more of a member than it has sent by now,
        whatever somebody has reported of it: it is still there, and reports itself."""
        for pending in self.pending:
            for stream in pending.cuts.keys() & cuts.keys():
                pending.cuts[stream] = earlier(pending.cuts[stream], cuts[stream])

    def _depart(self, sender: int, agreed: Agreed) -> None:
        """Hold the stream of a sender that is gone."""
        window = self.layer.windows.pop(sender, None)
        if window is None:
            return
        stream = window.stream
        self.keeping.note_early(stream)
        cut = agreed.end(window)
        if sender in self.departed:
            if cut == window.offset:                    # it was back, and sent nothing for us
                self._end_earlier(stream, cut)
                self.unsettled.discard(stream)
                stream.retire()
                return
            self._set_aside(sender)
        # The sender has waited for us; so a cut that is further away is not true.
        last = earlier(cut, (window.come_up_to + self.layer.config.capacity) % MODULUS)
        stream.release(earlier((last - stream.ring.capacity) % MODULUS, stream.finished))
        self._make_room(stream.ring)
        stream.ring.announce(cut)
        self.departed[sender] = Departed(stream, Gaps(stream.ring.hr), cut=cut, key=sender)

    def _set_aside(self, sender: int) -> None:
        """Put aside the first stream of a sender that departs again. It is only
        delivered, unless somebody is absent: all others hold the second one now. So if
        the first is not complete here, it is given up."""
        gone = self.departed[sender]
        gone.is_held &= self.keeping.is_on
        if not gone.is_complete or (gone.is_delivered and not gone.is_held):
            self._give_up(sender)
            return
        del self.departed[sender]
        self.num_aside += 1
        gone.key = -self.num_aside
        self.departed[gone.key] = gone

    def _owe(self, owed: Owed, place: Seqno) -> bool:
        """Fetch what a departed sender sent while we were absent. We may have had a
        part of it before. Return whether its stream begins for us here."""
        origin = owed.sender.incarnation
        gone = self.departed.get(origin)
        is_new = gone is None
        if gone is None:
            stream = self.layer.open_stream(owed.sender, place)
            stream.given = self.keeping.given(origin, place)
            gone = self.departed[origin] = Departed(stream, Gaps(place), cut=place, key=origin)
        gone.parts, gone.is_held = (*gone.parts, *owed.parts), True
        gone.stream.is_resumed = True
        gone.cut, gone.whole = later(gone.cut, self._reach(gone)), None
        self._make_room(gone.ring)
        gone.ring.announce(gone.cut)
        return is_new

    def _reach(self, gone: Departed) -> Seqno:
        """Return up to where we have everything of a departed sender, or another one
        has; of a large message that is acknowledged in one step, not a part: its sender
        may be back and give us all of it."""
        return gone.stream.acknowledgeable(reach(gone.parts, gone.come_up_to))

    def _make_room(self, ring: Window) -> None:
        """Let a window take all that may be missing of a sender that is gone: what two
        members hold, each of which may have let in a message that exceeds its bytes."""
        room = MOST_ROOM * self.layer.config.max_bytes + 2 * MAX_DATAGRAM
        ring.max_bytes = max(ring.max_bytes, room)

    def _agree_on_departed(self, agreed: Agreed, others: set[int]) -> None:
        """Note who holds the streams of departed senders. Where nobody of the members
        has more than we have, the stream ends there, also for views that wait. For an
        observer it does not: the others have had the rest, and did not wait for it."""
        for origin, gone in list(self.departed.items()):
            known: Collection[Part] = ()
            if origin in agreed.over and origin not in self.layer.members:
                gone.holder = 0
            elif origin in others:                          # what was agreed on before still holds
                known = gone.parts
            else:
                gone.holder = agreed.holders.get(origin, gone.holder)
                if origin in agreed.cuts:
                    gone.cut = earlier(gone.cut, agreed.end(gone))
                known = agreed.parts.get(origin, ())
            gone.parts = tuple(part for part in known if part.holder in others)
            gone.is_kept |= self.keeping.is_kept(origin, gone.come_up_to, agreed)
            if gone.is_kept and origin in others:
                gone.holder, gone.parts = origin, ()        # it has all that it has sent
            elif gone.holder not in others:
                gone.holder = 0
            reached = gone.cut
            if gone.parts or gone.holder == 0:
                reached = earlier(gone.cut, self._reach(gone))
                if gone.holder and precedes(reached, gone.cut) and self.layer.observing is None:
                    self._tell_end(gone, reached)
            if self.layer.observing is None:
                gone.cut = reached
            elif precedes(reached, gone.cut):
                self.layer.observing.skip(gone, gone.cut)
            self._end_earlier(gone.stream, gone.cut)
            self.end(gone)
        self.keeping.note_places()

    def _end_earlier(self, stream: Stream, cut: Seqno) -> None:
        """End a stream at a cut, also for views that wait for more of it. They are
        void, except the newest one."""
        for index, pending in enumerate(self.pending):
            if precedes(cut, pending.cuts.get(stream, cut)):
                pending.cuts[stream] = cut
                is_newest = index == len(self.pending) - 1
                self.pending[index] = pending._replace(is_void=not is_newest)

    def _drop_void(self) -> None:
        """Join each view that is void to the one that follows it."""
        kept: deque[Pending] = deque()
        void: Pending | None = None
        for pending in self.pending:
            if void is not None:
                before, ends = kept[-1].view if kept else self.shown, void.ends
                pending = Pending(without_void(before, void.view, ends, pending.view),
                                  self._cuts_without(void, pending), pending.is_void)
            void = pending if pending.is_void else None
            if void is None:
                kept.append(pending)
        self.pending = kept

    def _cuts_without(self, void: Pending, pending: Pending) -> dict[Stream, Seqno]:
        """Return what comes before a view if the one before it, which is void, is not
        shown. A stream that began in that one begins after both, for our application
        too; if its sender is gone by now, it is not delivered. All this is not so for a
        stream that goes on where it stood (keeping.py)."""
        begun = pending.cuts.keys() - void.cuts.keys()
        skipped = {stream for stream in begun if not stream.is_resumed}
        self.skips |= {stream: pending.cuts[stream] for stream in skipped}
        if self.layer.observing is not None:
            for stream in skipped:
                self.layer.observing.begin_behind(stream, pending.cuts[stream])
        for gone in self.departed.values():
            gone.is_skipped |= gone.stream in skipped
        return void.cuts | {stream: cut for stream, cut in pending.cuts.items()
                            if stream not in begun}

    # ------------------------------------------------------------------------ views at their places

    def show(self) -> None:
        """Give the application a view that is installed now, if it has been given all
        that comes before; otherwise have the owner deliver again."""
        self.show_next()
        self.layer.stack.effects.arrived = True

    def show_next(self) -> bool:
        """Give the application its next view, if that is due. Return whether it was."""
        self.is_view_next = False
        if not self.pending or not self._is_due(self.pending[0]):
            return False
        if self.layer.observing is not None and not (
                self.pending[0].cuts.keys().isdisjoint(self.layer.observing.untold)):
            return False                                # it comes behind what was skipped
        effects = self.layer.stack.effects
        if self.layer.oob.batches or any(
                batch.stream is not None and batch.stream.layer is self.layer
                for batch in effects.deliveries):
            self.is_view_next = True                    # they would be performed after the view
            return False
        self._show(self.pending.popleft())
        return True

    def _is_due(self, pending: Pending) -> bool:
        """Return whether everything before a view has been delivered."""
        return not self.layer.receiving or not any(
            precedes(stream.ring.hd, cut) for stream, cut in pending.cuts.items())

    def _show(self, pending: Pending) -> None:
        view, effects = pending.view, self.layer.stack.effects
        effects.views.append(view)
        effects.begun[view.id] = {
            stream.sender.incarnation: begun for stream, cut in pending.cuts.items()
            if stream.reassembly is not None and (begun := stream.reassembly.begun(cut))}
        self.shown, self.view_id = view, view.id

    def stop_receiving(self) -> None:
        """This member takes no more messages: its views wait for nothing."""
        self.layer.stack.effects.arrived |= bool(self.pending)

    # ----------------------------------------------------------------------------- departed senders

    def undelivered(self) -> Iterator[Departed]:
        """Yield the streams of departed senders that are not delivered."""
        return (gone for gone in self.departed.values() if not gone.is_delivered)

    def held_of(self, origin: int) -> list[ReceiveWindow]:
        """Return what is held of a sender, the last stream first."""
        window = self.layer.windows.get(origin)
        gone: list[ReceiveWindow] = [
            each for each in reversed(self.departed.values())
            if each.is_held and each.stream.sender.incarnation == origin]
        return gone if window is None else [window, *gone]

    def can_give(self, sender: int, part: Part) -> bool:
        """Return whether we have a part of the stream of a departed sender, or of our
        own. What is held of a sender may be several streams. An empty part stands for
        all that others may lack up to there."""
        if sender == self.layer.local.incarnation:
            return not precedes(self.layer.send_window.sent, part.last)
        held = self.held_of(sender)
        return any(not precedes(each.come_up_to, part.last) for each in held) and (
            part.low == part.last or any(not precedes(part.low, each.ring.low) for each in held))

    def end(self, gone: Departed) -> None:
        """If the stream of a departed sender has been delivered up to its cut, forget
        it, unless others may ask for it: until then it may go on, also in the middle of
        a large message."""
        if gone.is_delivered or not self.layer.receiving:
            gone.whole = gone.stream.whole if gone.whole is None else gone.whole
            if not gone.is_held:
                self._forget(gone.key)

    def had(self, sender: int) -> Seqno | None:
        """Return up to where our application has been given a sender's messages, or
        will be, before it departed; None if it was given none that we know of."""
        gone = self.departed.get(sender)
        if gone is not None and not gone.is_skipped:
            return gone.cut if gone.whole is None else gone.whole
        taken = self.ended.taken(sender)
        return None if taken is None else taken.last

    def is_complete(self) -> bool:
        """Return whether all streams of the view before have come up to their cuts.
        For an observer nobody waits."""
        return self.layer.observing is not None or not self.awaits()

    def awaits(self) -> bool:
        """Return whether anything is missing that comes before the cuts of this
        view."""
        return self.fetching.is_needed() or bool(self.incomplete())

    def incomplete(self) -> dict[int, ReceiveWindow]:
        """Return the windows of the members that have not given us all that comes
        before their cuts, and forget the cuts of all others."""
        cuts = self.cuts
        if not (cuts and self.layer.receiving) or self.layer.observing is not None:
            return {}
        found = {member: window for member, window in self.layer.windows.items()
                 if window.stream in cuts and precedes(window.come_up_to, cuts[window.stream])}
        self.cuts = {window.stream: cuts[window.stream] for window in found.values()}
        return found

    def settle(self, is_released: bool) -> None:
        """Deliver of new members, too. If the view `is_released`, hold nothing for
        others any more; what is complete is still delivered."""
        self.unsettled.clear()
        self.largest = 0
        self.layer.stack.effects.arrived = True
        if not is_released:
            return
        self.keeping.release()
        for gone in list(self.departed.values()):
            gone.is_held = False
            if self.layer.observing is not None and not gone.is_complete:
                self.layer.observing.skip(gone, gone.cut)
            self.end(gone)

    def replace(self, old: Stream, new: Stream) -> None:
        """Apply what is known of a stream to the one that goes on in its place."""
        tables = [self.frozen, self.cuts, self.skips, *(each.cuts for each in self.pending)]
        for table in tables:
            if table is not None and old in table:
                table[new] = table.pop(old)
        self.fetching.paces.pop(old, None)

    def has_begun(self, stream: Stream) -> bool:
        """Return whether the application has seen the view in which a stream begins."""
        return not self.pending or stream in self.pending[0].cuts

    def _forget(self, origin: int) -> None:
        gone = self.departed.pop(origin)
        if not gone.is_skipped:
            whole = gone.ring.hd if gone.whole is None else gone.whole
            self.ended.note(gone.stream, gone.offset, earlier(whole, gone.cut))
        gone.stream.reassembly = None
        self.fetching.forget(origin, gone.stream)
        self.unsettled.discard(gone.stream)
        self.skips.pop(gone.stream, None)

    def _give_up(self, origin: int) -> None:
        """Deliver nothing more of a departed sender, and hold nothing of it."""
        gone = self.departed[origin]
        self._tell_end(gone, gone.ring.hd)
        for pending in self.pending if self.layer.observing is None else ():
            pending.cuts.pop(gone.stream, None)
        self._forget(origin)

    def _tell_end(self, gone: Departed, last: Seqno) -> None:
        """If a stream ends for our application before its cut, count what it is not
        given, and tell it where that is, with the view that its sender is not in any
        more; an observer, before the view."""
        if not self.layer.receiving or gone.is_delivered:
            return
        self.layer.counters.num_gone_undelivered += (gone.cut - last) % MODULUS
        if self.layer.observing is not None:
            self.layer.observing.skip(gone, gone.cut)
            return
        sender = gone.stream.sender
        for index, (view, cuts, is_void) in reversed([*enumerate(self.pending)]):
            if sender in view.departed and gone.stream in cuts:
                view = msgspec.structs.replace(view, departed=view.departed | {sender: last})
                self.pending[index] = Pending(view, cuts, is_void)
                return

    def _bound(self) -> None:
        """While they take too much memory, give up the oldest streams of departed
        senders, but none of so many as the largest view had members; and the places of
        the oldest views. The application may take nothing for long."""
        most = self.keeping.most_departed(self.largest)
        while len(self.departed) > most and self.keeping.holds_too_much():
            self._give_up(next(iter(self.departed)))
        while len(self.pending) > MOST_PENDING:
            self._show(self.pending.popleft())


def without_void(before: View | None, void: View, ends: dict[Address, Seqno], view: View) -> View:
    """Return a view as an application sees it that comes to it from the view `before`,
    and is not shown the void one between them, before which streams ended at
    `ends`."""
    left = dict.fromkeys(member for member in void.left + view.left
                         if before is not None and member in before)
    # What came of a sender between two departures is not given: the first one counts.
    departed = view.departed | {member: ends.get(member, last)
                                for member, last in void.departed.items()}
    return msgspec.structs.replace(
        view, left=tuple(left),
        joined=tuple(dict.fromkeys(member for member in void.joined + view.joined
                                   if member in view)),
        departed={member: departed[member] for member in left if member in departed})
