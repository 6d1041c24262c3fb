"""MCAST: reliable multicast with transmission windows of fixed size (MCAST.txt), with the mends of decisions 8 to 15.

A sender keeps what it sent until all members acknowledged it, and takes no more than its window holds. A receiver delivers in
order, acknowledges what the application has finished (after ack_threshold messages or on xmit_interval), and asks on xmit_interval
for gaps that it had already seen the time before. In a receive window HD is what was handed to the application and LOW what the
application has finished, which is what is acknowledged; in the send window LOW is what all have acknowledged.

Three kinds of control datagrams make it complete where the text is silent. HIGHEST (decision 8) repeats the highest seqno while
anything is unacknowledged, on xmit_interval and at doubling distances while nothing changes, so that a lost tail is seen. START
(decision 10) tells a new member where the sender's stream begins for it, until it acknowledges. An ACK also carries how many bytes
the receiver's socket buffer grants this sender, so that all windows together never flood it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import msgspec

from ringcast._core import wire
from ringcast._core.ack_table import AckTable
from ringcast._core.batch import Batch
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.send_window import SendWindow
from ringcast._core.window import Window
from ringcast.address import Address
from ringcast.config import MAX_MEMBERS, Config, milliseconds
from ringcast.digest import Digest
from ringcast.protocols.seqnos import MODULUS, Range, Seqno, count, is_seqno, later, precedes, united
from ringcast.stack import EVERYONE, Instant, Kind, Layer, Packet, decoded
from ringcast.view import View

MAX_RANGES = 2048                       # of one XMIT-REQ, so that it fits one datagram whatever the seqnos
PATIENCE = 1                            # looks that a gap is given to be filled once it was asked for, twice as many each time
MAX_REPEATS = 5                         # doublings of that
LONGEST_SILENCE = 64                    # looks between two repeats of HIGHEST and START while nothing changes
SMALLEST_BUNDLE = 2048                  # bytes; below this a window of few bytes is not cut into smaller datagrams
BATCH = 4                               # datagrams that a busy sender frames in one turn
MOST_LEAVING = 4                        # windows of members that are gone, kept for a slow application; more in a larger group
SHARES = 4                              # datagrams, and acks, that a window of bytes is cut into at least

class Start(msgspec.Struct, array_like=True):
    seqno: Seqno                        # the stream begins after this one
    view_id: int                        # the view in which it was decided


class Ack(msgspec.Struct, array_like=True):
    seqno: Seqno                        # highest finished by the application
    budget: int                         # bytes that may be unacknowledged towards this member; 0: do not wait for it at all


class XmitReq(msgspec.Struct, array_like=True):
    ranges: list[Range]                 # missing, inclusive, oldest first


class Highest(msgspec.Struct, array_like=True):
    seqno: Seqno                        # highest sent


START = msgspec.msgpack.Decoder(Start)
ACK = msgspec.msgpack.Decoder(Ack)
XMIT_REQ = msgspec.msgpack.Decoder(XmitReq)
HIGHEST = msgspec.msgpack.Decoder(Highest)


@dataclass(slots=True)
class ReceiveWindow:
    """What one member sends to us."""

    sender: Address
    ring: Window
    offset: Seqno                       # where the stream begins for us
    seen: Seqno                         # HR at the last look for gaps: only gaps up to here are asked for (decision 9)
    asked: Seqno                        # gaps up to here were asked for
    started: bool                       # its START has come; before that nothing is delivered, acknowledged or asked for
    awaited: int = 0                    # how many messages up to `asked` were missing at the last look
    patience: int = 0                   # looks without any of them coming, before all are asked for again
    repeats: int = 0                    # how often all were asked for again since any came
    unacked_messages: int = 0
    unacked_bytes: int = 0
    ack_due: bool = True                # a repeat came, or the window is new: acknowledge (again)

    @property
    def is_deliverable(self) -> bool:
        return self.started and self.ring.get((self.ring.hd + 1) % MODULUS) is not None

    def look_for_gaps(self) -> list[Range]:
        """What to ask for now: gaps that were there at the last look, but not again those whose repeats are on the way."""
        ranges = self.ring.missing(MAX_RANGES, self.seen)
        missing = count(ranges)
        awaited = count(self.ring.missing(MAX_RANGES, self.asked))
        if not awaited or awaited < self.awaited:
            self.patience, self.repeats = PATIENCE, 0
        elif self.patience:
            self.patience -= 1
        else:
            self.repeats = min(self.repeats + 1, MAX_REPEATS)
            self.patience = PATIENCE << self.repeats
            awaited = 0
        if awaited:
            newer = (self.asked + 1) % MODULUS
            ranges = [(later(first, newer), last) for first, last in ranges if precedes(self.asked, last)]
        self.awaited, self.asked, self.seen = missing, self.seen, self.ring.hr
        return ranges


@dataclass(slots=True)
class Counters:
    """By the names of the texts and of operators (decision 25)."""

    num_msgs_delivered: int = 0
    num_duplicates: int = 0             # messages received again, repeats on request included
    num_out_of_window: int = 0          # messages dropped for want of room
    num_unknown_sender: int = 0         # packets of somebody who is not in the view, or whose START has not come
    num_bad: int = 0                    # datagrams that are damaged, or ask for what cannot be
    acks_sent: int = 0
    acks_received: int = 0
    xmit_reqs_sent: int = 0
    xmit_reqs_received: int = 0
    xmit_rsps_sent: int = 0             # messages repeated on request
    xmit_rsps_received: int = 0         # of those, messages that were new here
    num_missing_asked: int = 0          # messages asked for
    num_gone_undelivered: int = 0       # messages that a member had sent when it was taken out, and that stayed behind a gap


class Mcast(Layer):
    """The layer. `receive_budget` is what this member's socket buffer holds, in bytes, shared among all who send to it.
    `resume` is the digest of what the application already has, from an earlier life of this member. A member that is not
    `receiving` takes no messages, not even its own, and tells every sender not to wait for it.

    `send_window` and its ring may be used by any thread (see SendWindow); everything else belongs to the stack's owner.
    """

    def __init__(self, local: Address, config: Config, receive_budget: int, *, resume: Digest | None = None,
                 receiving: bool = True) -> None:
        self.local = local
        self.config = config
        self.resume = resume or Digest()
        self.receiving = receiving
        self.receive_budget = receive_budget
        self.interval = milliseconds(config.xmit_interval)
        self.send_window = SendWindow(RingBuffer(config.capacity, max_bytes=config.max_bytes), bundle=config.max_bundle_size)
        self.acks = AckTable()
        self.windows: dict[int, ReceiveWindow] = {}     # by the sender's incarnation
        self.leaving: list[ReceiveWindow] = []          # windows of members that are gone, not yet emptied
        self.members: dict[int, Address] = {}
        self.view_id = 0
        self.budgets: dict[int, int] = {}               # bytes that each member grants us
        self.joiners: dict[int, Seqno] = {}             # members that have not acknowledged their START
        self.early: dict[int, Start] = {}               # STARTs of views that are not ours
        self.requests: dict[int, list[Range]] = {}      # of this turn
        self.repeated_bytes = 0                         # since `pace_since`: repeats are paced by the interval
        self.pace_since: Instant = 0
        self.next_look: Instant | None = None           # the deadline
        self.stillness = 0                              # looks since anything was sent or acknowledged
        self.last_state = (0, 0, 0)
        self.turn = 0                                   # whose window delivers first
        self.counters = Counters()

    # ------------------------------------------------------------------------------------------------- sending

    def flush(self, now: Instant, full_only: bool = False) -> None:
        """Frame what waits in the send window and hand it down, in the order of the seqnos; it waits for the first view."""
        if self.send_window.waiting and self.members:
            header = self.stack.header(Kind.DATA)
            self._send_data(Kind.DATA, EVERYONE, self.send_window.frame(header, full_only), now)
            if not self.acks:
                self._purge()
            self._arm(now)

    def _send_data(self, kind: int, dest: int, datagrams: list[bytes], now: Instant) -> None:
        local = self.local.incarnation
        self.below.send([Packet(kind, local, dest, datagram) for datagram in datagrams], now)

    def _send_control(self, kind: int, body: msgspec.Struct, dest: int, now: Instant) -> None:
        self.below.send([self.stack.control(kind, body, dest)], now)

    # ----------------------------------------------------------------------------------------------- receiving

    def receive(self, packets: list[Packet], now: Instant) -> None:
        others = []
        for packet in packets:
            if packet.kind == Kind.DATA or packet.kind == Kind.REPEAT:
                self._on_data(packet)
            elif packet.kind in self._handlers:
                self._on_control(packet, now)
            else:
                others.append(packet)
        if self.requests:
            self._retransmit(now)
        self._acknowledge_due(now)
        self._arm(now)
        if others:
            self.above.receive(others, now)

    def _on_data(self, packet: Packet) -> None:
        """On reception of message M: add to the sender's window; what was there before is acknowledged again."""
        window = self.windows.get(packet.sender)
        if window is None:
            self.counters.num_unknown_sender += 1
            return
        ring = window.ring
        arrivals = wire.read_data(packet.data, ring.low, ring.capacity)
        if arrivals is None:
            self.counters.num_bad += 1
            return
        repeats = arrivals.old
        for batch in arrivals.batches:
            added = ring.add_many(batch.first, batch.payloads)
            repeats += len(batch) - added
            if packet.kind == Kind.REPEAT:
                self.counters.xmit_rsps_received += added
        self.counters.num_duplicates += repeats
        self.counters.num_out_of_window += arrivals.beyond
        window.ack_due |= arrivals.old > 0

    def _on_control(self, packet: Packet, now: Instant) -> None:
        decoder, handle = self._handlers[packet.kind]
        body = decoded(decoder, packet)
        if packet.sender not in self.members:
            self.counters.num_unknown_sender += 1
            if isinstance(body, Start):
                self._keep(packet.sender, body)
        elif body is None or not handle(self, packet.sender, body, now):
            self.counters.num_bad += 1

    def _on_start(self, sender: int, start: Start, now: Instant) -> bool:
        """The sender has the last word on where its stream begins for us (decision 10); answered until it knows.

        Only in the view that both have: a member may be taken out while it joins and be let in again, and a START of the first
        time that comes late would open a window on messages that were given up in between.
        """
        window = self.windows.get(sender)
        if not is_seqno(start.seqno):
            return False
        if not self.receiving:
            self._acknowledge(sender, now)
        elif start.view_id != self.view_id:
            self._keep(sender, start)
        elif window is None or (not window.started and precedes(window.offset, start.seqno)):
            self._open_window(self.members[sender], start.seqno, started=True)
        else:
            window.started = window.ack_due = True
        return True

    def _keep(self, sender: int, start: Start) -> None:
        """A START of a view that is not ours, perhaps not yet: it is looked at again when the next view comes."""
        if sender in self.early or len(self.early) < MAX_MEMBERS:
            self.early[sender] = start

    def _heed_early_starts(self, now: Instant) -> None:
        early, self.early = self.early, {}
        for sender, start in early.items():
            if sender in self.members:
                self._on_start(sender, start, now)

    def _on_ack(self, member: int, ack: Ack, now: Instant) -> bool:
        """On reception of ACK from member P: raise its entry; when the minimum rises, purge, which unblocks senders."""
        if ack.budget == 0 and is_seqno(ack.seqno):
            self.counters.acks_received += 1
            self._wait_no_more(member)
            return True
        if not is_seqno(ack.seqno) or ack.budget < 0 or precedes(self.send_window.sent, ack.seqno):
            return False
        self.counters.acks_received += 1
        start = self.joiners.get(member)
        if start is not None and not precedes(ack.seqno, start):
            self._started(member)
        if self.budgets.get(member) != ack.budget:
            self.budgets[member] = ack.budget
            self._fit_budgets()
        if self.acks.ack(member, ack.seqno):
            self._purge()
        return True

    def _on_xmit_req(self, member: int, request: XmitReq, now: Instant) -> bool:
        """On reception of XMIT-REQ from P: remember what it wants, clipped to what was sent and not purged."""
        low, sent = self.send_window.ring.low, self.send_window.sent
        wanted = self.requests.setdefault(member, [])
        self.counters.xmit_reqs_received += 1
        for first, last in request.ranges[:MAX_RANGES]:
            if not is_seqno(first) or not is_seqno(last):
                return False
            if precedes(last, first):
                continue
            # Both are counted from low: serial arithmetic does not order three seqnos that lie all around the circle.
            start = (first - low) % MODULUS if precedes(low, first) else 1
            end = min((last - low) % MODULUS, (sent - low) % MODULUS) if precedes(low, last) else 0
            if start <= end:
                wanted.append(((low + start) % MODULUS, (low + end) % MODULUS))
        return len(request.ranges) <= MAX_RANGES

    def _on_highest(self, sender: int, highest: Highest, now: Instant) -> bool:
        """Decision 8: a lost tail becomes a gap; who already has it all acknowledges again."""
        window = self.windows.get(sender)
        if not is_seqno(highest.seqno):
            return False
        if not self.receiving:
            self._acknowledge(sender, now)
        elif window is not None:
            window.ring.announce(highest.seqno)
            window.ack_due |= not precedes(window.ring.low, highest.seqno)
        return True

    _handlers: ClassVar[dict[int, tuple[msgspec.msgpack.Decoder[Any], Callable[..., bool]]]] = {
        Kind.START: (START, _on_start), Kind.ACK: (ACK, _on_ack),
        Kind.XMIT_REQ: (XMIT_REQ, _on_xmit_req), Kind.HIGHEST: (HIGHEST, _on_highest)}

    # ------------------------------------------------------------------------------------------ retransmission

    def _retransmit(self, now: Instant) -> None:
        """Answer the requests of this turn: what several miss as multicast, the rest to each; paced (no storm)."""
        low = self.send_window.ring.low
        ranges = {member: united(wanted, low) for member, wanted in self.requests.items()}
        together = united([each for wanted in ranges.values() for each in wanted], low)
        if count(together) < sum(map(count, ranges.values())):
            ranges = {EVERYONE: together}
        self.requests = {}
        if now - self.pace_since >= self.interval:
            self.pace_since, self.repeated_bytes = now, 0
        for dest, wanted in ranges.items():
            self._repeat(dest, wanted, now)

    def _repeat(self, dest: int, wanted: list[Range], now: Instant) -> None:
        """Send the messages of `wanted` again, within what the receivers grant for one interval."""
        budget = self.send_window.ring.max_bytes - self.repeated_bytes
        datagrams, messages = wire.pack(self.send_window.ring, wanted, self.send_window.bundle,
                                        self.stack.header(Kind.REPEAT, dest), budget)
        self.repeated_bytes += sum(map(len, datagrams))
        self.counters.xmit_rsps_sent += messages
        self._send_data(Kind.REPEAT, dest, datagrams, now)

    # -------------------------------------------------------------------------------------------- acknowledging

    def _acknowledge_due(self, now: Instant) -> None:
        for sender, window in self.windows.items():
            if window.ack_due and window.started:
                self._acknowledge(sender, now)

    def _acknowledge(self, sender: int, now: Instant) -> None:
        """Tell a sender what the application has finished, and how much it may send, or that it need not wait for us."""
        window, finished = self.windows.get(sender), 0
        if window is not None:
            finished = window.ring.low
            window.ack_due = False
            window.unacked_messages = window.unacked_bytes = 0
        self.counters.acks_sent += 1
        self._send_control(Kind.ACK, Ack(finished, self._grant()), sender, now)

    def _grant(self) -> int:
        """Bytes that one sender may have on the way to us: a share of the socket buffer, equal for all who have ever sent."""
        if not self.receiving:
            return 0
        senders = sum(window.ring.hr != window.offset for window in self.windows.values())
        return max(1, min(self.config.max_bytes, self.receive_budget // max(1, senders)))

    def _started(self, member: int) -> None:
        """The member has its window for our stream; when all have, senders may as well begin."""
        self.joiners.pop(member, None)
        self.stack.effects.writable |= not self.joiners

    def _wait_no_more(self, member: int) -> None:
        self._started(member)
        if self.budgets.pop(member, None) is not None:
            self._fit_budgets()
        if self.acks.remove(member) or not self.acks:
            self._purge()

    def stop_receiving(self, now: Instant) -> None:
        """The application takes no more messages: nobody is to wait for this member from now on."""
        self.receiving = False
        for sender in self.windows:
            self._acknowledge(sender, now)
        self._wait_no_more(self.local.incarnation)

    def _fit_budgets(self) -> None:
        """The smallest grant bounds the send window, and the datagrams, so that a window is always several of them."""
        limit = min([self.config.max_bytes, *self.budgets.values()])
        self.send_window.ring.max_bytes = limit
        bundle = min(self.config.max_bundle_size, max(SMALLEST_BUNDLE, limit // SHARES))
        self.send_window.aim(bundle, min(BATCH * bundle, limit // (2 * SHARES)))

    def _purge(self) -> None:
        """Free what all acknowledged (when there is nobody to wait for: what was sent)."""
        ring = self.send_window.ring
        minimum = self.acks.minimum if self.acks else self.send_window.sent
        if not self.receiving:
            ring.remove_many(nullify=False)             # nobody takes our own messages; stable() stops at HD
        if minimum is not None and ring.stable(minimum):
            self.stack.effects.writable = True

    # ------------------------------------------------------------------------------------------------ delivering

    def deliver(self, limit: int, now: Instant) -> None:
        """Hand at most `limit` messages in order to the application, own ones included (decision 15)."""
        if not self.receiving or not self.members:
            return
        windows = self._delivering()
        for step in range(len(windows)):
            if limit <= 0:
                break
            sender, ring = windows[(self.turn + step) % len(windows)]
            first = (ring.hd + 1) % MODULUS
            payloads = ring.remove_many(limit, nullify=False)
            if payloads:
                self.stack.effects.deliveries.append(Batch(sender, first, payloads, self.view_id))
                self.counters.num_msgs_delivered += len(payloads)
                limit -= len(payloads)
        self.turn += 1
        if self.leaving:
            self._forget_leavers()

    def _delivering(self) -> list[tuple[Address, Window]]:
        windows = [(window.sender, window.ring) for window in (*self.leaving, *self.windows.values()) if window.started]
        return [*windows, (self.local, self.send_window.ring)]

    def delivered(self, batch: Batch, now: Instant) -> None:
        """The application has finished `batch`: it may be acknowledged (and never before)."""
        sender = batch.sender.incarnation
        if sender == self.local.incarnation:
            if self.acks.ack(sender, batch.last):
                self._purge()
            return
        window = self.windows.get(sender)
        if window is None:
            return
        window.ring.stable(batch.last)
        window.unacked_messages += len(batch)
        window.unacked_bytes += batch.nbytes
        if self._acks_now(window):
            self._acknowledge(sender, now)
        self._arm(now)

    def _acks_now(self, window: ReceiveWindow) -> bool:
        """After N deliveries, or a share of the window in messages or bytes, whichever comes first."""
        messages = min(self.config.ack_threshold, max(1, self.config.capacity // SHARES))
        return window.unacked_messages >= messages or window.unacked_bytes >= self._grant() // SHARES

    # ------------------------------------------------------------------------------------------------------ views

    def view(self, view: View, resumes: dict[int, int], now: Instant) -> None:
        """On reception of view V: windows of those who left go, the minimum is taken again, new members get a START."""
        members = {member.incarnation: member for member in view.members}
        joined = [member for member in members if member not in self.members]
        self._remove_leavers(members)
        self.members, self.view_id = members, view.id
        for member in joined:
            self._admit(member, resumes.get(member))
            self._digest(members[member])
        self._start_joiners(now)
        self._heed_early_starts(now)
        self._fit_budgets()
        self._purge()
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
            self.acks.remove(sender)
            for table in (self.budgets, self.joiners, self.requests):
                table.pop(sender, None)

    def _admit(self, member: int, resume: Seqno | None) -> None:
        """Count `member` among the ackers from where its stream starts: with what comes next, or, when it comes back with a
        part of the stream, with all that is still here."""
        start = self.send_window.sent
        if resume is not None and not precedes(start, resume):
            start = self.send_window.ring.low
        if member == self.local.incarnation:
            if self.receiving:
                self.acks.add(member, self.send_window.ring.low)
        else:
            self.joiners[member] = start
            self.acks.add(member, start)

    def _start_joiners(self, now: Instant) -> None:
        """START to everybody who has not acknowledged it."""
        for member, seqno in self.joiners.items():
            self._send_control(Kind.START, Start(seqno, self.view_id), member, now)

    def _digest(self, sender: Address) -> None:
        """On reception of digest D: the window of a new member begins at D[P], and collects what comes. Its START may still move
        it forward: what the sender gave up meanwhile cannot be asked for, so nothing of it is delivered before."""
        if sender in self.resume and self.receiving:
            self._open_window(sender, self.resume[sender], started=False)

    def _open_window(self, sender: Address, offset: Seqno, started: bool) -> None:
        ring = RingBuffer(self.config.capacity, offset, max_bytes=self.config.max_bytes)
        self.windows[sender.incarnation] = ReceiveWindow(sender, ring, offset, seen=offset, asked=offset, started=started)

    def _forget_leavers(self) -> None:
        """Of a member that is gone, what stands behind a gap can never be completed: the window goes, and that is counted."""
        for window in [window for window in self.leaving if not window.is_deliverable]:
            self.leaving.remove(window)
            self._give_up(window)

    def _bound_leavers(self, most: int) -> None:
        """While the application takes nothing, a member that comes and goes again and again must not fill the memory."""
        while len(self.leaving) > most:
            self._give_up(self.leaving.pop(0))

    def _give_up(self, window: ReceiveWindow) -> None:
        self.counters.num_gone_undelivered += (window.ring.hr - window.ring.hd) % MODULUS - window.ring.num_missing

    # ------------------------------------------------------------------------------------------------------ timer

    def deadline(self) -> Instant | None:
        return self.next_look

    def tick(self, now: Instant) -> None:
        """Every xmit_interval, while anything is missing, unacknowledged or unknown; then silence."""
        self.next_look = None
        for sender, window in self.windows.items():
            if window.started:
                self._ask(sender, window, now)
            if window.unacked_messages:
                self._acknowledge(sender, now)
        if self._repeats_itself():
            self._start_joiners(now)
            if self._has_unacked():
                self._send_control(Kind.HIGHEST, Highest(self.send_window.sent), EVERYONE, now)
        self._arm(now)

    def _repeats_itself(self) -> bool:
        """Whether HIGHEST and START are due at this look: always while there is progress, ever more rarely while there is none,
        because then somebody is slow or dead, not in need of hearing it again."""
        state = (self.send_window.sent, self.send_window.ring.low, len(self.joiners))
        self.stillness = self.stillness + 1 if state == self.last_state else 0
        self.last_state = state
        return self.stillness & (self.stillness - 1) == 0 or self.stillness % LONGEST_SILENCE == 0

    def _ask(self, sender: int, window: ReceiveWindow, now: Instant) -> None:
        """XMIT-REQ for what is missing, to its sender."""
        ranges = window.look_for_gaps()
        if ranges:
            self.counters.xmit_reqs_sent += 1
            self.counters.num_missing_asked += count(ranges)
            self._send_control(Kind.XMIT_REQ, XmitReq(ranges), sender, now)

    def _has_unacked(self) -> bool:
        return precedes(self.send_window.ring.low, self.send_window.sent)

    def _is_busy(self) -> bool:
        return bool(self.joiners) or self._has_unacked() or any(
            window.unacked_messages or window.ring.hd != window.ring.hr for window in self.windows.values())

    def _arm(self, now: Instant) -> None:
        if self.next_look is None and self._is_busy():
            self.next_look = now + self.interval

    # ------------------------------------------------------------------------------------------------------ status

    def digest(self) -> Digest:
        """Highest seqno that the application has finished, for each sender in the view, this member included."""
        own = self.acks.get(self.local.incarnation)
        return Digest({window.sender: window.ring.low for window in self.windows.values()} | {self.local: own or 0})

    def is_ready(self) -> bool:
        """Whether there is a view and everybody in it has a window for our stream: what is sent now finds its place."""
        return bool(self.members) and not self.joiners

    def unacked(self) -> int:
        """Own messages, framed or waiting, that not all members have acknowledged."""
        return (self.send_window.ring.hr - self.send_window.ring.low) % MODULUS

    def status(self) -> dict[str, int]:
        ring = self.send_window.ring
        return {"low": ring.low, "hd": ring.hd, "hr": ring.hr, "sent": self.send_window.sent, "num_unacked": self.unacked(),
                "num_missing": sum(window.ring.num_missing for window in self.windows.values()),
                "num_joiners": len(self.joiners), "num_leaving": len(self.leaving), "send_budget": ring.max_bytes,
                **asdict(self.counters)}
