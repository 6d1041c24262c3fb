"""Reliable multicast: what MCAST and NAKACK2 share. They differ in how a sender learns
that all members have finished a message (rules.py).

A sender keeps what it sent until all have finished it, and takes no more than its
window holds. A receiver delivers in order, and asks on xmit_interval for gaps that it
had already seen the time before (retransmission.py).

The pointers of a window: in a receive window, HD is what the application was given, and
LOW what is not needed any more; LOW is never behind what the application has finished.
In the send window, LOW is what all members are known to have finished.

The members agree on their views. A view comes with the places where the streams of the
view before end, and those of new members begin (flush.py). Receivers keep what they
have delivered for others (retention.py), and HIGHEST also has the sender's LOW.
"""

from collections.abc import Callable

import msgspec

from ringcast._core import wire
from ringcast._core.batch import Batch, Skipped
from ringcast._core.marks import Marks
from ringcast._core.send_window import SendWindow
from ringcast.address import EVERYONE, Address
from ringcast.config import Config, nanoseconds
from ringcast.digest import Digest
from ringcast.kinds import Kind, takes
from ringcast.protocols.budget import Budget, tune_bundling
from ringcast.protocols.incoming import EarlyDeliveries
from ringcast.protocols.multicast.announcing import HIGHEST, Announcing, Highest
from ringcast.protocols.multicast.credits import Credits
from ringcast.protocols.multicast.fetching import FETCH, HELD, Fetch
from ringcast.protocols.multicast.flush import Agreed, Flush
from ringcast.protocols.multicast.gap_looks import XMIT_REQ, GapLooks, XmitReq
from ringcast.protocols.multicast.keeping import Keeping, Part
from ringcast.protocols.multicast.observing import OBSERVERS_ROOM, Observing
from ringcast.protocols.multicast.retention import ROOM, follow_low
from ringcast.protocols.multicast.rules import Rules
from ringcast.protocols.multicast.windows import Departed, ReceiveWindow
from ringcast.protocols.retransmission import (
    LOOKS,
    Gaps,
    Pace,
    Quota,
    Requests,
    clipped,
)
from ringcast.protocols.seqnos import (
    MODULUS,
    Range,
    Seqno,
    ahead,
    earlier,
    is_seqno,
    later,
    precedes,
)
from ringcast.protocols.stream import Stream
from ringcast.protocols.undelivered import as_sent
from ringcast.stack import Instant, Packet, sooner
from ringcast.status import Layers, McastStatus, Nakack2Status
from ringcast.view import View

# Members take turns to report: of n members each leaves n * SHARE nanoseconds to each
# one, but not more than LONGEST to all. So reports do not grow with the square of n.
SHARE, LONGEST = 30_000, 50_000_000

DATA = Kind(1, "data", messages_at=wire.HEADER_SIZE)  # sent for the first time
REPEAT = Kind(2, "repeat", messages_at=wire.HEADER_SIZE, measured="repeat")  # again, on request


class Multicast(Rules):
    """The shared part of a layer.

    - `budget`: what this member's socket buffers hold; that for receiving is shared by
      all who send to it.
    - `resume`: the digest of what the application has from an earlier incarnation.
    - `receiving`: False for a member that takes no messages, not even its own; nobody
      waits for it.
    - `offset`: the first own message has the seqno after it.
    - `lossless`: the transport loses datagrams only when a connection breaks.
    - `observes`: this member is an observer (observing.py).

    `send_window` and its ring may be used by any thread (see SendWindow); everything
    else belongs to the stack's owner.
    """

    protocol: str                                       # whose share of the budget it is
    counters: McastStatus | Nakack2Status

    def __init__(self, local: Address, config: Config, budget: Budget, *,
                 resume: Digest | None = None, receiving: bool = True, offset: Seqno = 0,
                 lossless: bool = False, observes: bool = False) -> None:
        self.local = local
        self.lossless = lossless
        self.config = config
        self.observing = Observing(self) if observes else None
        self.receiving = receiving
        self.budget = budget
        self.interval = nanoseconds(config.xmit_interval)
        # What a receive window holds, in messages and bytes. Beside the largest
        # message, which is kept for others, the next one must find room.
        room = ROOM if self.observing is None else OBSERVERS_ROOM
        self.receive_capacity = room * config.capacity
        self.receive_bytes = max(room * config.max_bytes, config.max_datagram)
        window = self.make_window(offset, config.capacity, config.max_bytes)
        self.send_window = SendWindow(window, bundle=config.max_bundle_size,
                                      datagram=config.max_datagram)
        tune_bundling(self.send_window, config.max_bytes, config)
        self.own = Stream(self, local, None, window, config, own=self.send_window)
        self.windows: dict[int, ReceiveWindow] = {}     # of the other members of the view
        self.members: dict[int, Address] = {}
        self.observers: frozenset[int] = frozenset()    # of these, for whom nobody waits
        self.view_id = 0
        self.keeping = Keeping(self, resume or Digest())
        self.flushing = Flush(self, self.keeping)
        self.fetching = self.flushing.fetching
        self.run: list[Packet] = []                     # of messages, one kind and sender
        self.requests = Requests()
        self.quota = Quota()
        self.oob = EarlyDeliveries(config.capacity)
        self.pace = Pace()
        self.gap_looks = GapLooks(self)
        self.credits = Credits(self)
        self.announcing = Announcing(self)
        self.next_scan: Instant | None = None
        self.turn = 0                                   # whose window delivers first
        self.acked = offset                             # up to where all have acknowledged us

    def open_stream(self, sender: Address, offset: Seqno) -> Stream:
        """Return the stream of a sender, with a window of its own that begins after
        `offset`."""
        window = self.make_window(offset, self.receive_capacity, self.receive_bytes)
        config = self.config if self.observing is None else self.observing.config
        stream = Stream(self, sender, None, window, config)
        stream.kept_marks = Marks()
        return stream

    def open_window(self, sender: Address, offset: Seqno) -> ReceiveWindow:
        """Open the window of a member, for its messages after `offset`."""
        stream = self.open_stream(sender, offset)
        gaps = Gaps(offset, self.looks)
        window = self.windows[sender.incarnation] = ReceiveWindow(stream, gaps)
        return window

    # -------------------------------------------------------------------------------------- sending

    def flush(self, now: Instant, full_only: bool = False) -> None:
        """Frame what waits in the send window and hand it down, in the order of the
        seqnos. It waits for the first view."""
        if self.send_window.waiting and self.members:
            header = self.stack.header(DATA)
            wall = now + self.stack.anchor
            self.send_datagrams(DATA, EVERYONE,
                                self.send_window.frame(header, full_only, now=wall), now)
            self.purge()        # it may be finished already: our own copy comes without a network
            self._arm(now)

    def sent_of(self, seqno: Seqno) -> Seqno | None:
        """Return what of our messages a member has that says it has them up to `seqno`,
        or None if that makes no sense."""
        if not is_seqno(seqno) or precedes(self.send_window.sent, seqno):
            return None
        return seqno

    def _repeat(self, dest: int, wanted: list[Range], now: Instant) -> None:
        """Send the messages of `wanted` again, as far as the pace allows."""
        header = self.stack.header(REPEAT, dest)
        datagrams, messages = self.pace.pack(self.send_window, wanted, header, self.pause, now)
        self.counters.xmit_rsps_sent += messages
        self.send_datagrams(REPEAT, dest, datagrams, now)

    @property
    def retransmits(self) -> bool:
        """Return whether gaps are asked for on xmit_interval."""
        return True

    @property
    def looks(self) -> int:
        """Return how many looks for gaps an xmit_interval has: one if nothing is lost
        while connections last."""
        return 1 if self.lossless else LOOKS

    @property
    def pause(self) -> int:
        """Return in how many nanoseconds a window may be repeated once."""
        return self.interval if self.interval > 0 else nanoseconds(self.config.scan_interval)

    @property
    def report_pause(self) -> int:
        """Return how many nanoseconds a member leaves between its reports."""
        return min(len(self.members) ** 2 * SHARE, LONGEST)

    @property
    def scan_pause(self) -> int:
        """Return how many nanoseconds are between two scans: xmit_interval, and more in
        a large group."""
        return max(self.pause, self.report_pause)

    @property
    def is_large(self) -> bool:
        """Return whether the group is so large that its members take turns."""
        return self.report_pause > self.pause

    # ------------------------------------------------------------------------------------ receiving

    def received(self, now: Instant) -> None:
        """Answer the requests of a batch together, and report once."""
        self._take_run(now)
        if self.requests:
            low = self.send_window.ring.low
            for dest, wanted in self.requests.take(low, now, self.pause).items():
                self._repeat(dest, wanted, now)
        if self.fetching.wanted:
            self.fetching.answer(now)
        self.report_again(now)
        self.gap_looks.watch(now)
        if self.next_scan is None:
            self._arm(now)

    @takes(DATA, REPEAT)
    def _on_data(self, packet: Packet, now: Instant) -> None:
        """On reception of message M: add it to the sender's window, together with what
        comes right behind it."""
        run = self.run
        if run and (run[0].sender != packet.sender or run[0].kind != packet.kind):
            self._take_run(now)
        self.run.append(packet)

    def _take_run(self, now: Instant) -> None:
        """Take the datagrams of one kind and sender that came one behind the other."""
        if not (packets := self.run):
            return
        self.run = []
        window = self.windows.get(packets[0].sender)
        if window is not None:
            self.take(window, packets, now)
            return
        for packet in packets:
            if not self.fetching.take_late(packet, now):
                self.counters.num_unknown_sender += 1
                self.keep_early(packet)

    def take(self, window: ReceiveWindow, packets: list[Packet], now: Instant) -> bool:
        """Add the messages of datagrams of one kind to the sender's window. Return
        whether there was room for all."""
        ring = window.ring
        arrivals = wire.read_all([packet.data for packet in packets], ring.low, ring.capacity,
                                 ring.hr)
        self.counters.num_bad += arrivals.damaged
        self.add(window, packets[0].kind, arrivals, now)
        return not arrivals.beyond

    @takes(HELD)
    def _on_held(self, packet: Packet, now: Instant) -> None:
        """On reception of HELD: add messages of a departed sender that we missed."""
        if packet.sender not in self.members:
            self.counters.num_unknown_sender += 1
        elif not self.fetching.take_held(packet, now):
            self.counters.num_bad += 1

    @takes(FETCH)
    def _on_fetch(self, member: int, fetch: Fetch, now: Instant) -> bool:
        """On reception of FETCH from P: note what P misses of another sender, clipped
        to what we have of it."""
        self.counters.fetches_received += 1
        ranges = self.quota.take(member, fetch.ranges, len(self.members), now)
        return self.fetching.note(member, fetch.origin, ranges)

    def add(self, window: ReceiveWindow, kind: int, arrivals: wire.Arrivals, now: Instant) -> int:
        """Add messages to a window, and return how many were new. If we had finished
        any of them before, report again: the last report may have been lost."""
        at_once = not self.oob.is_flooded
        stream, finished = window.stream, window.stream.finished
        added = stream.add(arrivals, self.oob.batches, self.flushing.view_id, now, at_once)
        self.gap_looks.is_gapped |= stream.ring.num_missing > 0
        if kind == REPEAT:
            self.counters.xmit_rsps_received += added
        else:
            for first in arrivals.late:
                window.gaps.note_late(first)
        self.counters.num_duplicates += arrivals.old + arrivals.inside - added
        self.counters.num_out_of_window += arrivals.beyond
        window.report_due |= arrivals.old > 0
        if added < arrivals.inside:                     # what is finished is still in the window
            window.report_due |= not precedes(finished, arrivals.first)
        return added

    def on_control(self, kind: Kind, handle: Callable[..., bool], packet: Packet,
                   now: Instant) -> None:
        """Take control packets of members."""
        if packet.sender in self.members:
            super().on_control(kind, handle, packet, now)
        else:
            self.counters.num_unknown_sender += 1

    def count_bad(self) -> None:
        self.counters.num_bad += 1

    @takes(XMIT_REQ)
    def _on_xmit_req(self, member: int, request: XmitReq, now: Instant) -> bool:
        """On reception of XMIT-REQ from P: note what P asks for, clipped to what was
        sent and P may lack."""
        self.counters.xmit_reqs_received += 1
        ranges = self.quota.take(member, request.ranges, len(self.members), now)
        wanted = clipped(ranges, self.has_up_to(member), self.send_window.sent)
        if wanted is None:
            return False
        self.requests.add(member, wanted)
        if wanted:
            self.pace.note_first(member, wanted[0][0])
        ring = self.send_window.ring
        if member in self.observers and self.retransmits and ranges and not precedes(
                ring.low, ranges[0][0]):
            body = self.announcing.highest(self.view_id)
            self.send_control(HIGHEST, body, member, now)       # it may go on behind LOW
        return True

    def has_up_to(self, member: int) -> Seqno:
        """Return up to where a member is known to have our messages; at least up to
        where all have."""
        return self.send_window.ring.low

    @takes(HIGHEST)
    def _on_highest(self, sender: int, highest: Highest, now: Instant) -> bool:
        """On reception of HIGHEST (decision 8): a lost tail becomes a gap. If we have
        everything, or a part of a large message, report that again. What all have
        finished is not kept any more."""
        window, is_of_view = self.windows.get(sender), highest.view_id == self.view_id
        if not (is_seqno(highest.seqno) and is_seqno(highest.low)) or precedes(
                highest.seqno, highest.low):
            return False
        if not self.receiving:
            self.refuse(sender, now)
        elif window is not None:
            self.gap_looks.expect(sender, highest.seqno)
            if is_of_view:
                self.follow(window, highest.low)
            knows_all = is_of_view and (highest.low == highest.seqno
                                        or not self.may_lack_report(window, now))
            if not knows_all:
                window.report_due |= window.stream.parts > 0
                window.report_due |= not precedes(window.stream.finished, highest.seqno)
        return True

    def follow(self, window: ReceiveWindow, low: Seqno) -> None:
        """Free what all members have finished."""
        if self.observing is not None:
            self.observing.follow(window, low)
        follow_low(window.stream, low)

    def free_sent(self, seqno: Seqno) -> None:
        """Free our messages up to a seqno that all have acknowledged."""
        if seqno == self.acked == self.send_window.ring.low:
            return                                      # they are free
        window = self.send_window
        if precedes(window.acked, seqno):
            window.acked = earlier(seqno, window.sent)
        seqno = earlier(self.flushing.bound_purge(seqno), window.sent)
        self.acked = later(self.acked, seqno)
        if window.marks.flags:
            seqno = self.own.acknowledgeable(seqno)
        if window.stable(seqno):
            self.stack.effects.writable = True
            self.credits.is_acked |= len(self.members) > 1
        self.credits.fit_window()

    # ----------------------------------------------------------------------------------- delivering

    def deliver(self, limit: int, now: Instant) -> int:
        """Give the application at most `limit` messages in order, own ones included
        (decision 15), and all OOB messages that came (EarlyDeliveries); and views, each
        at its place (flush.py). Return how many messages."""
        handed = self.deliver_messages(limit, now)
        if self.flushing.pending:
            while self.flushing.show_next():
                handed += self.deliver_messages(limit - handed, now)
            self.stack.effects.arrived |= self.flushing.is_view_next
        return handed

    def deliver_messages(self, limit: int, now: Instant) -> int:
        """Deliver messages, up to the next view."""
        handed = self.oob.hand_over(limit, self.stack.effects)
        if self.receiving and self.members:
            handed += self._deliver_in_order(limit - handed, now)
        if self.observing is not None:
            self.observing.is_hungry = handed < limit and not self.observing.untold
        self.counters.num_msgs_delivered += handed
        return handed

    def _deliver_in_order(self, limit: int, now: Instant) -> int:
        """Take messages from all windows in turn; None stands for our own."""
        flushing = self.flushing
        if self.observing is not None and limit > 0 and not self.observing.tell():
            return 0
        windows = [*self.windows.values(), None]
        if flushing.departed:
            windows = [*flushing.undelivered(), *windows]
        start = self.turn % len(windows)
        handed = 0
        for window in windows[start:] + windows[:start]:
            if limit <= handed:
                break
            stream = window.stream if window else self.own
            if stream.ring.hd == stream.ring.hr:
                continue
            if stream in flushing.skips:
                flushing.skip(stream)
            most = flushing.limit(stream, limit - handed)
            if most == 0:                               # to Stream.take that would mean all
                continue
            handed += stream.take(most, self.stack.effects.deliveries, flushing.view_id, now)
            if self.observing is not None and stream.rests:
                self.observing.tell_rests(stream)
            if isinstance(window, Departed):
                flushing.end(window)
            elif stream.marks.flags or stream.outstanding == 0:
                self.report_finished(window, now)       # it may hold what no application sees
        self.turn += 1
        return handed

    def delivered(self, batch: Batch, now: Instant) -> None:
        """The application has finished `batch`: now it may be reported, and never
        before."""
        if self.observing is not None and isinstance(batch, Skipped):
            self.observing.has_told()
            return
        batch.stream.finish(batch)
        window = self.windows.get(batch.sender.incarnation)
        if batch.stream is self.own or (window is not None and batch.stream is window.stream):
            self.report_finished(window, now)

    # ---------------------------------------------------------------------------------------- views

    def prepare(self, now: Instant) -> dict[int, Seqno]:
        """Return up to where everything of each stream has come here, by sender. Until
        the next view, deliver and purge nothing beyond."""
        return self.flushing.prepare(now)

    def lacking(self) -> dict[int, Seqno]:
        """Return where streams begin here that this member does not report, of departed
        senders, and of which it lacks something."""
        return self.flushing.lacking()

    def may_end_at(self, cut: Seqno) -> bool:
        """Return whether the members can have agreed on this cut of our stream."""
        return self.flushing.may_end_at(cut)

    def has_told(self, sender: int, seqno: Seqno) -> bool:
        """Return whether this member has reported a stream up to this seqno."""
        return self.flushing.has_told(sender, seqno)

    def can_give(self, sender: int, part: Part) -> bool:
        """Return whether this member has a part of the stream of a departed sender, or
        of its own."""
        return self.flushing.can_give(sender, part)

    def withholding(self) -> set[int]:
        """Return the members that have not given for long what they have reported."""
        return self.fetching.withholding()

    def agree(self, agreed: Agreed) -> None:
        """Note what the members agreed on for the view that comes next."""
        self.flushing.agreed = agreed

    def is_complete(self) -> bool:
        """Return whether everything has come that was sent before the cuts of this
        view, by departed senders and by members."""
        return self.flushing.is_complete()

    def settle(self, is_released: bool = True) -> None:
        """Note that all members of this view are complete: deliver those of new
        members; if it `is_released`, hold those of departed ones for nobody."""
        self.flushing.settle(is_released)

    def undelivered_behind(self, cut: Seqno, end: Seqno) -> list[Batch]:
        """Return our messages behind a cut, up to `end`, as the application has sent
        them: members that have excluded us will not deliver them."""
        window = self.send_window
        start = later(window.ring.low, cut)
        behind = [(start + step + 1) % MODULUS for step in range(ahead(start, end))]
        payloads = [payload for seqno in behind if (payload := window.ring.get(seqno)) is not None]
        runs = window.marks.copy().split((start + 1) % MODULUS, payloads)
        return as_sent(runs, window.stamps, self.local, None, self.view_id)

    def view(self, view: View, now: Instant) -> None:
        """On reception of view V: install it, as the members agreed. New members may
        lack what all had acknowledged."""
        self.acked = self.send_window.acked = self.send_window.ring.low
        self.flushing.install(view, now)
        self.credits.fit_window()
        self.stack.effects.writable = True
        self.flushing.show()
        self.flush(now)
        self.report_again(now)
        self._arm(now)
        self.above.view(view, now)

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        due = sooner(self.next_scan, self.gap_looks.next)
        return due if self.observing is None else sooner(due, self.observing.next_question)

    def tick(self, now: Instant) -> None:
        """Look for gaps, or scan the windows, or both."""
        if self.observing is not None and self.observing.next_question <= now:
            self.observing.ask_resting(now)
        looks = self.gap_looks
        if looks.next is not None and looks.next <= now:
            looks.look(now)
        if self.next_scan is not None and self.next_scan <= now:
            self.next_scan = None
            self.scan(now)
            if self.observing is not None:
                self.observing.scan(now)
            looks.is_gapped = True                      # in case that nothing comes any more
            looks.watch(now)
            self._arm(now)

    def has_unacked(self) -> bool:
        """Return whether any message that was sent is not acknowledged."""
        return precedes(self.acked, self.send_window.sent)

    def is_busy(self) -> bool:
        """Return whether the next scan has anything to do."""
        return self.has_unacked() or any(
            window.stream.is_unreported or window.ring.hd != window.ring.hr
            or window.report_due or window.stream.is_incomplete
            for window in self.windows.values()
        ) or bool(self.gap_looks.tails) or self.owes_low() or (
            self.announcing.owes_observers()) or (
            self.fetching.is_needed())

    def _arm(self, now: Instant) -> None:
        """Set the deadline of the next scan, if there is none and it has anything to
        do."""
        if self.next_scan is None and (self.is_busy() or self._is_behind()):
            self.next_scan = now + self.scan_pause

    def _is_behind(self) -> bool:
        """Return whether this is an observer that may have to skip something."""
        return self.observing is not None and any(
            map(self.observing.is_behind, self.windows.values()))

    def change_interval(self, interval: int, now: Instant) -> None:
        """Change xmit_interval, in nanoseconds."""
        self.interval = interval
        self.next_scan = self.gap_looks.next = None
        self._arm(now)

    # --------------------------------------------------------------------------------------- status

    def remembered(self) -> set[int]:
        """Return the incarnations of which this layer keeps anything that must go when
        they leave."""
        return self.windows.keys() | self.pace.reached.keys()

    def digest(self) -> Digest:
        """Return the highest seqno that the application has finished, for each sender
        in the view, this member included; of a durable one, of all senders."""
        own = self.own.finished if self.receiving and self.members else 0
        return self.keeping.whole(Digest({window.stream.sender: window.stream.finished
                                          for window in self.windows.values()} | {self.local: own}))

    def hears_itself(self) -> bool:
        """Return whether there are own messages to deliver."""
        return self.receiving and precedes(self.own.ring.hd, self.send_window.sent)

    def unacked(self) -> int:
        """Return how many own messages, framed or waiting, not all members are known to
        have finished."""
        return (self.send_window.ring.hr - self.acked) % MODULUS

    def describe(self, status: Layers) -> None:
        ring = self.send_window.ring
        status.multicast = msgspec.structs.replace(
            self.counters, low=ring.low, hd=ring.hd, hr=ring.hr, sent=self.send_window.sent,
            num_unacked=self.unacked(),
            num_missing=sum(window.ring.num_missing for window in self.windows.values()),
            num_leaving=len(self.flushing.departed), send_budget=ring.max_bytes)
