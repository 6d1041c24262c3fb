"""Reliable multicast: what MCAST and NAKACK2 have in common. They differ in how a
sender learns that all have a message.

A sender keeps what it sent until all have it, and takes no more than its window holds.
A receiver delivers in order and asks on xmit_interval for gaps that it had already seen
the time before. In a receive window HD is what was handed to the application and LOW
what it needs no more, which is at most what the application has finished; in the send
window LOW is what all are known to have finished.

Two kinds of control datagrams make it complete where the texts are silent. HIGHEST
(decision 8) repeats the highest seqno while anything is kept for others, on
xmit_interval and at doubling distances while nothing changes, so that a lost tail is
seen. START (decision 10) tells a new member where the sender's stream begins for it,
until it answers.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import msgspec

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast._core.window import Window
from ringcast.address import Address
from ringcast.config import MAX_MEMBERS, Config, milliseconds
from ringcast.digest import Digest
from ringcast.kinds import Kind, takes
from ringcast.protocols.budget import ReceiveBudget, aim, fit
from ringcast.protocols.incoming import EarlyDeliveries, Incoming
from ringcast.protocols.retransmission import Backoff, Gaps, Pace, clipped, requests
from ringcast.protocols.seqnos import MODULUS, Range, Seqno, count, is_seqno, precedes, united
from ringcast.protocols.stream import Stream
from ringcast.stack import EVERYONE, Instant, Layer, Packet
from ringcast.view import View

MOST_DEPARTED = 1024  # incarnations that are gone, of which it is remembered how far their streams
                      # got
MOST_LEAVING = 4      # windows of members that are gone, kept for a slow application; more in a
                      # larger group


class Start(msgspec.Struct, array_like=True):
    seqno: Seqno                        # the stream begins after this one
    view_id: int                        # the view in which it was decided


class LaterStart(Start, array_like=True):
    """A START of an incarnation that has come back."""

    epoch: int = 0                      # by which of its processes


class XmitReq(msgspec.Struct, array_like=True):
    ranges: list[Range]                 # missing, inclusive, oldest first


class Highest(msgspec.Struct, array_like=True):
    seqno: Seqno                        # highest sent


DATA = Kind(1, "data", messages_at=wire.HEADER_SIZE)                # sent for the first time
REPEAT = Kind(2, "repeat", messages_at=wire.HEADER_SIZE, measured="repeat")  # sent again on request
START = Kind(4, "start", LaterStart, about="seqno")                 # where my stream starts for you
XMIT_REQ = Kind(6, "xmit_req", XmitReq, about="ranges")             # what I miss
HIGHEST = Kind(7, "highest", Highest, about="seqno", traced=False)  # what I have sent


@dataclass(slots=True)
class ReceiveWindow(Incoming):
    """The stream of one member to everybody."""

    offset: Seqno                       # where it begins for us
    started: bool = False               # its START has come; before that nothing is delivered,
                                        # reported or asked for
    epoch: int = 0                      # which process of the sender's incarnation said so
    report_due: bool = True             # a repeat came, or the window is new: say (again) what is
                                        # finished

    @property
    def is_deliverable(self) -> bool:
        return self.started and self.has_next


@dataclass(slots=True)
class Counters:
    """By the names of the texts and of operators (decision 25)."""

    num_msgs_delivered: int = 0
    num_duplicates: int = 0      # messages received again, repeats on request included
    num_out_of_window: int = 0   # messages dropped for want of room
    num_unknown_sender: int = 0  # packets of somebody who is not in the view, or whose START has
                                 # not come
    num_bad: int = 0             # datagrams that are damaged, or ask for what cannot be
    xmit_reqs_sent: int = 0
    xmit_reqs_received: int = 0
    xmit_rsps_sent: int = 0        # messages repeated on request
    xmit_rsps_received: int = 0    # of those, messages that were new here
    num_missing_asked: int = 0     # messages asked for
    num_gone_undelivered: int = 0  # messages that a member had sent when it was taken out, and that
                                   # stayed behind a gap


class Multicast(Layer):
    """The common part of a layer. `budget` is what this member's socket buffer holds,
    shared among all who send to it. `resume` is the digest of what the application
    already has, from an earlier incarnation of this member. A member that is not
    `receiving` takes no messages, not even its own, and nobody waits for it. Its own
    first message has the seqno after `offset`. With an `epoch` of more than 0 an
    earlier process of the same incarnation had sent more than that: members may have
    it, and what is sent again is nothing new to them (address.Session). Where the
    transport is `lossless`, datagrams are lost only when a connection breaks.

    `send_window` and its ring may be used by any thread (see SendWindow); everything
    else belongs to the stack's owner.
    """

    protocol: str                                       # whose share of the budget it is
    counters: Counters

    def __init__(self, local: Address, config: Config, budget: ReceiveBudget, *,
                 resume: Digest | None = None,
                 receiving: bool = True, offset: Seqno = 0, epoch: int = 0,
                 lossless: bool = False) -> None:
        self.local = local
        self.lossless = lossless
        self.config = config
        self.resume = resume or Digest()
        self.receiving = receiving
        self.epoch = epoch
        self.budget = budget
        self.interval = milliseconds(config.xmit_interval)
        self.receive_bytes = config.max_bytes           # in a receive window
        window = self.make_window(offset, config.max_bytes)
        self.send_window = SendWindow(window, bundle=config.max_bundle_size,
                                      datagram=config.max_datagram)
        aim(self.send_window, config)
        self.own = Stream(self, local, None, window, config, own=self.send_window)
        self.windows: dict[int, ReceiveWindow] = {}  # by the sender's incarnation
        self.leaving: list[ReceiveWindow] = []       # windows of members that are gone, not yet
                                                     # emptied
        self.departed: dict[int, Stream] = {}        # retired streams of members that are gone, in
                                                     # case that an incarnation comes back
        self.members: dict[int, Address] = {}
        self.view_id = 0
        self.joiners: dict[int, Seqno] = {}         # members that have not answered their START
        self.early: dict[int, LaterStart] = {}      # STARTs of views, and of processes, that are
                                                    # not known
        self.epochs: dict[int, int] = {}            # of incarnations that have come back: which
                                                    # process speaks for each
        self.requests: dict[int, list[Range]] = {}  # of this turn
        self.oob = EarlyDeliveries(config.capacity)
        self.pace = Pace()
        self.next_scan: Instant | None = None           # the deadline
        self.backoff = Backoff()                    # of what was sent and purged
        self.turn = 0                                   # whose window delivers first

    # -------------------------------------------------------------- what the two do each in its way

    def make_window(self, offset: Seqno, max_bytes: int) -> Window:
        """A window of the kind that this protocol uses."""
        raise NotImplementedError

    def _answer_start(self, sender: int, now: Instant) -> None:
        """The stream of `sender` begins where its START says; let it know."""
        raise NotImplementedError

    def _refuse(self, sender: int, now: Instant) -> None:
        """Somebody waits for us, and we take no messages."""
        raise NotImplementedError

    def _report_finished(self, window: ReceiveWindow | None, now: Instant) -> None:
        """The application has finished more of a stream; None is our own. Whoever keeps
        the messages must come to know."""
        raise NotImplementedError

    def _report_again(self, now: Instant) -> None:
        """Report what is finished wherever report_due says that a sender asks for
        it."""
        raise NotImplementedError

    def _admitted(self, member: int, start: Seqno) -> None:
        """A member came into the view, this one or another; it is waited for from
        `start` on."""
        raise NotImplementedError

    def _gone(self, member: int) -> None:
        """A member is no longer in the view."""
        raise NotImplementedError

    def has_of(self, member: int) -> Seqno | None:
        """Return up to where a member has our messages, as far as is known here: what
        follows is kept for it. None: nobody waits for it."""
        raise NotImplementedError

    def _installed(self, now: Instant) -> None:
        """The view is complete: whoever is not in it must not be waited for."""
        raise NotImplementedError

    def _purge(self) -> None:
        """Free what was sent and all have finished."""
        raise NotImplementedError

    def start_of(self, member: int) -> Seqno | None:
        """Where our stream starts for a member that has just come into the view; None
        when it takes no messages."""
        raise NotImplementedError

    def remembered(self) -> set[int]:
        """The incarnations of which this layer keeps anything that must go when they
        leave."""
        return self.windows.keys() | self.joiners.keys()

    def slowest(self) -> int | None:
        """The incarnation of a member that keeps the send window from being purged, if
        this one knows."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------- sending

    def flush(self, now: Instant, full_only: bool = False) -> None:
        """Frame what waits in the send window and hand it down, in the order of the
        seqnos; it waits for the first view."""
        if self.send_window.waiting and self.members:
            header = self.stack.header(DATA)
            self.send_datagrams(DATA, EVERYONE,
                            self.send_window.frame(header, full_only, now=now + self.stack.anchor),
                            now)
            self._purge()       # it may be finished already: our own copy comes without a network
            self._arm(now)

    def _sent_of(self, seqno: Seqno) -> Seqno | None:
        """What it means when a member says it has our messages up to `seqno`; None when
        that makes no sense. It may have more than this process has sent (again) by now,
        if an earlier one had sent it: it will say so again when that is sent."""
        if not is_seqno(seqno):
            return None
        if precedes(self.send_window.sent, seqno):
            return self.send_window.sent if self.epoch else None
        return seqno

    # ------------------------------------------------------------------------------------ receiving

    def received(self, now: Instant) -> None:
        """Answer the requests of a batch together, and report once."""
        if self.requests:
            self._retransmit(now)
        self._report_again(now)
        self._arm(now)

    @takes(DATA, REPEAT)
    def _on_data(self, packet: Packet, now: Instant) -> None:
        """On reception of message M: add to the sender's window."""
        window = self.windows.get(packet.sender)
        if window is None:
            self.counters.num_unknown_sender += 1
        elif (arrivals := wire.read_data(packet.data, window.ring.low, window.ring.capacity)) is None:
            self.counters.num_bad += 1
        else:
            self._add(window, packet, arrivals, now)

    def _add(self, window: ReceiveWindow, packet: Packet, arrivals: wire.Arrivals,
             now: Instant) -> None:
        """What was there before is reported again: perhaps its sender does not know."""
        at_once = window.started and not self.oob.is_flooded
        added = window.stream.add(arrivals, self.oob.batches, self.view_id, now, at_once)
        if packet.kind == REPEAT:
            self.counters.xmit_rsps_received += added
        self.counters.num_duplicates += arrivals.old + arrivals.inside - added
        self.counters.num_out_of_window += arrivals.beyond
        window.report_due |= arrivals.old > 0

    def on_control(self, kind: Kind, handle: Callable[..., bool], packet: Packet,
                   now: Instant) -> None:
        """Take control packets of members, and keep the START of somebody who may
        become one."""
        if packet.sender in self.members:
            super().on_control(kind, handle, packet, now)
            return
        self.counters.num_unknown_sender += 1
        if kind == START and (start := kind.decode(packet.data)) is not None:
            self._keep(packet.sender, start)

    def count_bad(self) -> None:
        self.counters.num_bad += 1

    @takes(START)
    def _on_start(self, sender: int, start: LaterStart, now: Instant) -> bool:
        """The sender has the last word on where its stream begins for us (decision 10);
        answered until it knows.

        Only in the view that both have: a member may be taken out while it joins and be
        let in again, and a START of the first time that comes late would open a window
        on messages that were given up in between.

        An incarnation that comes back begins with what we have, or before; but what an
        earlier process of it gave up when it had taken us out (and died before anybody
        heard of it), we cannot get any more. Its membership told us of that process
        before it had a view to START in; a START of any other process is not of this
        incarnation, and must not move its stream.
        """
        if not is_seqno(start.seqno) or start.epoch < 0:
            return False
        if sender not in self.windows:
            self._digest(self.members[sender])
        window = self.windows.get(sender)
        if not self.receiving:
            self._answer_start(sender, now)
        elif start.view_id != self.view_id or start.epoch > self.epochs.get(sender, 0) or self._has_outstanding(sender):
            self._keep(sender, start)
        else:
            if window is None or (precedes(window.ring.hd, start.seqno)
                                  and (not window.started or start.epoch > window.epoch)):
                window = self._open_window(self.members[sender], start.seqno)
            window.started, window.epoch = True, max(window.epoch, start.epoch)
            self._answer_start(sender, now)
        return True

    def _keep(self, sender: int, start: LaterStart) -> None:
        """A START of a view that is not ours, perhaps not yet: it is looked at again
        when the next view comes."""
        self.early.pop(sender, None)
        self.early[sender] = start
        if len(self.early) > MAX_MEMBERS:
            del self.early[next(iter(self.early))]

    def returned(self, member: int, epoch: int, now: Instant) -> None:
        """From now on STARTs of this process of an incarnation are believed."""
        if self.epochs.get(member) != epoch:
            self.epochs.pop(member, None)
            self.epochs[member] = epoch
            if len(self.epochs) > MAX_MEMBERS:
                del self.epochs[next(iter(self.epochs))]  # it will be told again, if it is still
                                                          # there
            self._apply_deferred_starts(now)
        self.above.returned(member, epoch, now)

    def _apply_deferred_starts(self, now: Instant) -> None:
        for sender in [sender for sender in self.early if sender in self.members]:
            self._on_start(sender, self.early.pop(sender), now)

    def _started(self, member: int) -> None:
        """The member has its window for our stream; when all have, senders may as well
        begin."""
        self.joiners.pop(member, None)
        self.stack.effects.writable |= not self.joiners

    @takes(XMIT_REQ)
    def _on_xmit_req(self, member: int, request: XmitReq, now: Instant) -> bool:
        """On reception of XMIT-REQ from P: remember what it wants, clipped to what was
        sent and it may lack."""
        self.counters.xmit_reqs_received += 1
        wanted = clipped(request.ranges, self._has_up_to(member), self.send_window.sent)
        if wanted is None:
            return False
        if wanted:
            self.requests.setdefault(member, []).extend(wanted)
        return True

    def _has_up_to(self, member: int) -> Seqno:
        """Up to where a member is known to have our messages; at least up to where all
        have."""
        return self.send_window.ring.low

    def _pause(self) -> int:
        """Nanoseconds in which a window may be repeated once."""
        return self.interval if self.interval > 0 else milliseconds(self.config.scan_interval)

    @takes(HIGHEST)
    def _on_highest(self, sender: int, highest: Highest, now: Instant) -> bool:
        """Decision 8: a lost tail becomes a gap; who already has it all says so
        again."""
        window = self.windows.get(sender)
        if not is_seqno(highest.seqno):
            return False
        if not self.receiving:
            self._refuse(sender, now)
        elif window is not None:
            window.ring.announce(highest.seqno)
            window.report_due |= not precedes(window.ring.low, highest.seqno)
        return True

    # ------------------------------------------------------------------------------- retransmission

    def _retransmit(self, now: Instant) -> None:
        """Answer the requests of this turn: what several miss as multicast, the rest to
        each; paced (no storm)."""
        low = self.send_window.ring.low
        ranges = {member: united(wanted, low) for member, wanted in self.requests.items()}
        together = united([each for wanted in ranges.values() for each in wanted], low)
        if count(together) < sum(map(count, ranges.values())):
            ranges = {EVERYONE: together}
        self.requests = {}
        for dest, wanted in ranges.items():
            self._repeat(dest, wanted, now)

    def _repeat(self, dest: int, wanted: list[Range], now: Instant) -> None:
        """Send the messages of `wanted` again, as far as the pace allows."""
        header = self.stack.header(REPEAT, dest)
        datagrams, messages = self.pace.pack(self.send_window, wanted, header, self._pause(), now)
        self.counters.xmit_rsps_sent += messages
        self.send_datagrams(REPEAT, dest, datagrams, now)

    # -------------------------------------------------------------------------------------- budgets

    def _grant(self) -> int:
        """Bytes that one sender may have on the way to us: a share of the socket
        buffer, equal for all who have ever sent; 0 when nobody is to wait for us."""
        if not self.receiving:
            return 0
        senders = sum(window.ring.hr != window.offset for window in self.windows.values())
        return self.budget.share(self.protocol, senders, self.config.max_bytes)

    def _fit_budget(self, smallest: int) -> None:
        """The smallest grant bounds the send window, and the datagrams, so that a
        window is always several of them."""
        fit(self.send_window, min(self.config.max_bytes, smallest), self.config)

    def stop_receiving(self, now: Instant) -> None:
        """The application takes no more messages: nobody is to wait for this member
        from now on."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------- delivering

    def deliver(self, limit: int, now: Instant) -> int:
        """Hand at most `limit` messages in order to the application, own ones included
        (decision 15), besides OOB messages, which it gets at once: a window more than
        it wants, and then in order too. How many it got."""
        handed = self.oob.hand_over(limit, self.stack.effects)
        if self.receiving and self.members:
            handed += self._deliver_in_order(limit - handed, now)
        self.counters.num_msgs_delivered += handed
        return handed

    def _deliver_in_order(self, limit: int, now: Instant) -> int:
        windows = self._delivering()
        handed = 0
        for step in range(len(windows)):
            if limit <= handed:
                break
            window = windows[(self.turn + step) % len(windows)]
            stream = window.stream if window else self.own
            handed += stream.take(limit - handed, self.stack.effects.deliveries, self.view_id, now)
            if stream.marks.flags or stream.outstanding == 0:
                self._report_finished(window, now)  # what the application never sees needs no
                                                    # finishing
        self.turn += 1
        if self.leaving:
            self._forget_leavers()
        return handed

    def _delivering(self) -> list[ReceiveWindow | None]:
        """Whose messages may go to the application; None are our own."""
        return [*(window for window in (*self.leaving, *self.windows.values()) if window.started),
                None]

    def delivered(self, batch: Batch, now: Instant) -> None:
        """The application has finished `batch`: it may be reported (and never
        before)."""
        batch.stream.finish(batch)
        window = self.windows.get(batch.sender.incarnation)
        if batch.stream is self.own or (window is not None and batch.stream is window.stream):
            self._report_finished(window, now)
        elif batch.sender.incarnation in self.early and not self._has_outstanding(batch.sender.incarnation):
            self._apply_deferred_starts(now)
            self._report_again(now)
            self._arm(now)

    # ---------------------------------------------------------------------------------------- views

    def view(self, view: View, resumes: dict[int, int], now: Instant) -> None:
        """On reception of view V: windows of those who left go, the minimum is taken
        again, new members get a START."""
        members = {member.incarnation: member for member in view.members}
        joined = [member for member in members if member not in self.members]
        kept = {gone.name: self.has_of(member) for member, gone in self.members.items()
                if member not in members}
        self._remove_leavers(members)
        self.members, self.view_id = members, view.id
        self.epochs = {member: epoch for member, epoch in self.epochs.items() if member in members}
        for member in joined:
            self._admit(member, resumes.get(member), kept.get(members[member].name))
            self._digest(members[member])
        self._start_joiners(now)
        self._start_others(now)
        self._apply_deferred_starts(now)
        self._installed(now)
        self.stack.effects.writable = True
        self.stack.effects.views.append(view)
        self.flush(now)
        self._arm(now)
        self.above.view(view, resumes, now)

    def _remove_leavers(self, members: dict[int, Address]) -> None:
        for sender in [sender for sender in self.members if sender not in members]:
            window = self.windows.pop(sender, None)
            if window is not None:
                self.leaving.append(window)
                self._bound_leavers(max(MOST_LEAVING, len(members)))
            self._gone(sender)
            for table in (self.joiners, self.requests):
                table.pop(sender, None)

    def _admit(self, member: int, resume: Seqno | None, kept: Seqno | None) -> None:
        """Wait for `member` from where its stream starts: with what comes next; or,
        when it comes in the place of a former incarnation of its name, with what was
        `kept` for that; or, when it comes back with a part of the stream, with all that
        is still here."""
        start = self.send_window.sent if kept is None else kept
        if resume is not None and not precedes(start, resume):
            start = self.send_window.ring.low
        if member != self.local.incarnation:
            self.joiners[member] = start
        self._admitted(member, start)

    def _start_joiners(self, now: Instant) -> None:
        """START to everybody who has not answered it."""
        for member, seqno in self.joiners.items():
            self._send_start(member, seqno, now)

    def _start_others(self, now: Instant) -> None:
        """Of an incarnation that came back, START to those as well who answered one: it
        may not know that they took it out and let it in again meanwhile, as an earlier
        process of it, and then they wait for a START. Whoever does not is told nothing
        new."""
        if self.epoch:
            for member in self.members:
                if member not in self.joiners and member != self.local.incarnation:
                    self._send_start(member, self.send_window.ring.low, now)

    def _send_start(self, member: int, seqno: Seqno, now: Instant) -> None:
        start = LaterStart(seqno, self.view_id, self.epoch) if self.epoch else Start(seqno,
                                                                                     self.view_id)
        self.send_control(START, start, member, now)

    def _digest(self, sender: Address) -> None:
        """On reception of digest D: the window of a new member begins at D[P], and
        collects what comes. Its START may still move it forward: what the sender gave
        up meanwhile cannot be asked for, so nothing of it is delivered before. For an
        incarnation that comes back D[P] is where it was when it left, as soon as the
        application has finished what it had of it."""
        self._retire([window for window in self.leaving if window.stream.sender == sender])
        departed = self.departed.get(sender.incarnation)
        if not self.receiving or self._has_outstanding(sender.incarnation):
            return
        if departed is not None:
            del self.departed[sender.incarnation]
            self._open_window(sender, departed.ring.hd)
        elif sender in self.resume:
            self._open_window(sender, self.resume[sender])

    def _has_outstanding(self, departed: int) -> bool:
        """Whether the application is still at work on what a member had sent before it
        left."""
        return departed in self.departed and self.departed[departed].outstanding > 0

    def _retire(self, windows: list[ReceiveWindow]) -> None:
        """Of the streams of members that are gone nothing more is delivered."""
        for window in windows:
            self.leaving.remove(window)
            window.stream.retire()
            self.departed.pop(window.stream.sender.incarnation, None)
            self.departed[window.stream.sender.incarnation] = window.stream
            if len(self.departed) > MOST_DEPARTED:
                del self.departed[next(iter(self.departed))]

    def _open_window(self, sender: Address, offset: Seqno) -> ReceiveWindow:
        stream = Stream(self, sender, None, self.make_window(offset, self.receive_bytes),
                        self.config)
        window = self.windows[sender.incarnation] = ReceiveWindow(stream, Gaps(offset), offset)
        return window

    def _forget_leavers(self) -> None:
        """Of a member that is gone, what stands behind a gap can never be completed:
        the window goes, and that is counted."""
        self._give_up([window for window in self.leaving if not window.is_deliverable])

    def _bound_leavers(self, most: int) -> None:
        """While the application takes nothing, a member that comes and goes again and
        again must not fill the memory."""
        self._give_up(self.leaving[:max(0, len(self.leaving) - most)])

    def _give_up(self, windows: list[ReceiveWindow]) -> None:
        for window in windows:
            self.counters.num_gone_undelivered += window.num_stranded
        self._retire(windows)

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        return self.next_scan

    def _announcement_due(self) -> bool:
        """Whether HIGHEST and START are due at this scan."""
        window = self.send_window
        return self.backoff.scan((window.sent, window.ring.low, len(self.joiners)))

    def _resend_announcements(self, now: Instant) -> None:
        """START and HIGHEST, ever more rarely while nothing changes."""
        if self._announcement_due():
            self._start_joiners(now)
            if self._has_unacked():
                self.send_control(HIGHEST, Highest(self.send_window.sent), EVERYONE, now)
                self._start_others(now)

    def _ask(self, sender: int, window: ReceiveWindow, now: Instant) -> None:
        """XMIT-REQ for what is missing, to its sender."""
        for ranges in requests(window.gaps.scan(window.ring), self.config.max_datagram):
            self.counters.xmit_reqs_sent += 1
            self.counters.num_missing_asked += count(ranges)
            self.send_control(XMIT_REQ, XmitReq(ranges), sender, now)

    def _has_unacked(self) -> bool:
        return precedes(self.send_window.ring.low, self.send_window.sent)

    def _is_busy(self) -> bool:
        """Whether there is anything to look at on xmit_interval."""
        return bool(self.joiners) or self._has_unacked() or any(
            window.stream.unacked_messages or window.ring.hd != window.ring.hr
            or window.stream.is_incomplete
            for window in self.windows.values())

    def _arm(self, now: Instant) -> None:
        if self.next_scan is None and self._is_busy():
            self.next_scan = now + self.interval

    def change_interval(self, interval: int, now: Instant) -> None:
        """xmit_interval, in nanoseconds, from now on."""
        self.interval = interval
        self.next_scan = None
        self._arm(now)

    # --------------------------------------------------------------------------------------- status

    def digest(self) -> Digest:
        """Highest seqno that the application has finished, for each sender in the view,
        this member included."""
        own = self.own.finished if self.receiving and self.members else 0
        return Digest({window.stream.sender: window.stream.finished for window in self.windows.values()} | {self.local: own})

    def hears_itself(self) -> bool:
        """Whether there are own messages to deliver."""
        return self.receiving and precedes(self.own.ring.hd, self.send_window.sent)

    def is_ready(self) -> bool:
        """Whether there is a view and everybody in it has a window for our stream: what
        is sent now finds its place."""
        return bool(self.members) and not self.joiners

    def unacked(self) -> int:
        """Own messages, framed or waiting, that not all members are known to have
        finished."""
        return (self.send_window.ring.hr - self.send_window.ring.low) % MODULUS

    def status(self) -> dict[str, int]:
        ring = self.send_window.ring
        return {"low": ring.low, "hd": ring.hd, "hr": ring.hr, "sent": self.send_window.sent,
                "num_unacked": self.unacked(),
                "num_missing": sum(window.ring.num_missing for window in self.windows.values()),
                "num_joiners": len(self.joiners), "num_leaving": len(self.leaving),
                "send_budget": ring.max_bytes,
                **asdict(self.counters)}
