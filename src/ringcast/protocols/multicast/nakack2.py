"""NAKACK2: reliable multicast with negative acknowledgements (RingBuffer.txt), with or
without retransmission (NAKACK2-no-retransmission.txt; decisions 20 to 22).

Nobody acknowledges single messages. A receiver asks for gaps; what all have finished is
told by STABLE (stable.py), and then a sender purges it. The window is a SeqnoTable,
which takes the memory of what it holds, or a RingBuffer. With discard_delivered_msgs a
receiver gives up a message when its application has finished it, else when it is
stable.

xmit_interval <= 0 is for a transport that loses nothing while a connection stands: no
scans for gaps, no HIGHEST, and STABLE's rounds ask for nothing; the window is there for
the order alone. What such a transport can lose, it loses when a connection breaks: then
the receiver says up to where it has everything (RESYNC) and the sender goes on from
there. Nothing may be dropped on the way into the window, so a datagram without room is
held, and no more is read of its sender until it has found some.

A gap that stands for gap_timeout where nothing asks for it should not be: it is
reported as a warning, and mended by a RESYNC.
"""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ringcast._core import wire
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.window import Window
from ringcast.address import Address
from ringcast.config import Config, milliseconds
from ringcast.digest import Digest
from ringcast.kinds import Kind, takes
from ringcast.protocols.budget import ReceiveBudget
from ringcast.protocols.multicast import base as multicast
from ringcast.protocols.multicast.base import REPEAT, Multicast, ReceiveWindow
from ringcast.protocols.multicast.become_server_queue import UNBOUNDED, BecomeServerQueue
from ringcast.protocols.retransmission import Backoff
from ringcast.protocols.seqnos import MODULUS, Seqno, is_seqno, is_within, later, precedes
from ringcast.stack import Instant, Packet

UNLIMITED = 1 << 62                # bytes: counted and never refused
QUEUES = 4                         # times max_bytes that may wait for windows
ROOM = 2                           # times max_bytes that a window holds before its sender is not
                                   # read any more
MOST_ROOM = 8                      # times max_bytes that it holds when it waits for what its sender
                                   # repeats
MAX_REPORTS = 6                    # doublings of gap_timeout while a gap stands
RESYNC_PAUSE = milliseconds(20.0)  # between two answers to one member over the same connection


class Started(msgspec.Struct, array_like=True):
    seqno: Seqno        # what the application has finished: nothing, or more than what START says
    receiving: bool     # false: it takes no messages


class Resync(msgspec.Struct, array_like=True):
    seqno: Seqno                        # everything up to here has been received


STARTED = Kind(15, "started", Started, about="seqno")             # your stream begins for me where
                                                                  # your START says
RESYNC = Kind(16, "resync", Resync, about="seqno", traced=False)  # after our connection broke: what
                                                                  # I have of yours


@dataclass(slots=True)
class Counters(multicast.Counters):
    num_held: int = 0                # datagrams that had to wait for room
    num_dropped_for_resync: int = 0  # datagrams without room behind a gap, which are asked for
                                     # again
    num_queued: int = 0              # messages that came before their window existed
    num_queue_dropped: int = 0       # of those, messages that the queue did not keep
    num_gaps: int = 0                # gaps that stood for gap_timeout without retransmission
    resyncs_sent: int = 0
    resyncs_received: int = 0


class Stability(Protocol):
    """What NAKACK2 tells STABLE."""

    def finished(self, urgent: bool, now: Instant) -> None:
        """The application has finished more: with `urgent`, so much that
        it must be reported now."""

    def asked(self, now: Instant) -> None:
        """Somebody does not know what we have finished."""

    def stopped(self, now: Instant) -> None:
        """This member takes no messages any more."""

    def resumed(self, now: Instant) -> None:
        """A member that joined has its window."""

    def slowest(self) -> int | None:
        """Who has not finished our oldest message, if it is known."""

    def known_of(self, sender: int) -> Seqno | None:
        """Return up to where all have finished a stream, as far as it is known in this
        view."""


class Nakack2(Multicast):
    """The layer; its arguments are those of Multicast, and `lossless`: whether the
    transport is as said above.

    `stability` is the STABLE layer, which enters itself.
    """

    protocol = "nakack2"
    counters: Counters
    stability: Stability

    def __init__(self, local: Address, config: Config, budget: ReceiveBudget, *,
                 resume: Digest | None = None,
                 receiving: bool = True, offset: Seqno = 0, epoch: int = 0, lossless: bool = False) -> None:
        super().__init__(local, config, budget, resume=resume, receiving=receiving, offset=offset,
                         epoch=epoch, lossless=lossless)
        if lossless:
            self.receive_bytes = UNLIMITED              # see _has_room
        self.counters = Counters()
        self.queue = BecomeServerQueue(self._queue_bound(), QUEUES * config.max_bytes)
        self.held: dict[int, deque[Packet]] = {}   # datagrams without room, by their senders
        self.awaited: set[int] = set()             # senders that have not answered a RESYNC
        self.resyncs: dict[int, Seqno] = {}        # members that want everything after a seqno
        self.answered: dict[int, Instant] = {}     # when such a member was answered last
        self.stalled: dict[int, Backoff] = {}   # windows that wait for a message, without
                                                # retransmission
        self.unreported_bytes = 0                  # finished since the last vote, of all streams

    def make_window(self, offset: Seqno, max_bytes: int) -> Window:
        if self.config.use_ring_buffer:
            return RingBuffer(self.config.capacity, offset, max_bytes=max_bytes)
        return SeqnoTable(offset, capacity=self.config.capacity, max_bytes=max_bytes)

    # --------------------------------------------------------------- with or without retransmission

    @property
    def retransmits(self) -> bool:
        return self.interval > 0

    def change_interval(self, interval: int, now: Instant) -> None:
        """xmit_interval, in nanoseconds, from now on; 0 or less is no retransmission,
        which only a lossless transport can do with.

        Nothing is lost either way: what is missing when retransmission ends is asked
        for once more, and what the queue drops when it becomes bounded will be."""
        assert interval > 0 or self.lossless
        stops = self.retransmits and interval <= 0
        super().change_interval(interval, now)
        self.queue.rebound(self._queue_bound())
        self.counters.num_queue_dropped = self.queue.num_dropped
        if stops:
            for sender, window in self.windows.items():
                self._resync(sender, window, now)       # a lost tail shows no gap

    def _queue_bound(self) -> int:
        return self.config.become_server_queue_size if self.retransmits else UNBOUNDED

    # ------------------------------------------------------------------------ sending and receiving

    def flush(self, now: Instant, full_only: bool = False) -> None:
        """What a member sends that takes no messages is finished with that, as far as
        it is concerned. And what its application had finished before it was sent,
        counts for STABLE from now on."""
        sent = self.send_window.sent
        super().flush(now, full_only)
        if not self.receiving and self.members:
            self.own.finished = later(self.own.finished, self.send_window.sent)
            self._report_finished(None, now)
        if precedes(sent, self.own.finished):
            self.stability.finished(False, now)

    def _on_data(self, packet: Packet, now: Instant) -> None:
        """On reception of message M: add to the sender's window, or keep it until there
        is one.

        One that only has a digest may be too far back for what comes, and its START may
        be behind that: nothing is held before it."""
        window = self.windows.get(packet.sender)
        if window is None or (self.lossless and not window.started):
            self._enqueue(packet)
            return
        if packet.kind == REPEAT:
            self.awaited.discard(packet.sender)
        if packet.sender in self.held:
            self._hold(packet)
        elif not self._place(window, packet, now):
            if self._blocked_by_gap(window, packet):
                self._drop_and_resync([packet], window, now)
            else:
                self._hold(packet)

    def _place(self, window: ReceiveWindow, packet: Packet, now: Instant) -> bool:
        """Add what a datagram holds to the window; whether all of it found its
        place."""
        if self.lossless and self._over_byte_limit(window, packet):
            self._discard(window)
            if not self._has_room(window, packet):
                return False
        arrivals = wire.read_data(packet.data, window.ring.low, window.ring.capacity)
        if arrivals is None:
            self.counters.num_bad += 1
            return True
        if self.lossless and arrivals.beyond:
            added = window.stream.add(arrivals, self.oob.batches, self.view_id, now,
                                      window.started and not self.oob.is_flooded)
            if not self._discard(window) or not self._place(window, packet, now):
                return False
            self.counters.num_duplicates -= added       # it was read twice, not received twice
            return True
        self._add(window, packet, arrivals, now)
        return True

    def _discard(self, window: ReceiveWindow) -> int:
        """What is finished and was kept for others, must not take the room of what
        comes; how many messages that were."""
        return window.ring.stable(window.stream.finished)

    def _over_byte_limit(self, window: ReceiveWindow, packet: Packet) -> bool:
        """Whether a datagram is too much, in bytes, for what a window holds as a
        rule."""
        return window.ring.nbytes > 0 and window.ring.nbytes + len(packet.data) > ROOM * self.config.max_bytes

    def _has_room(self, window: ReceiveWindow, packet: Packet) -> bool:
        """More is taken while the application has nothing to do, because then only what
        its sender repeats brings it on; and whatever the size, what comes next in
        order."""
        if not self._over_byte_limit(window, packet):
            return True
        if window.stream.outstanding or window.is_deliverable:
            return False
        first = wire.first_seqno(packet.data)
        return window.ring.nbytes + len(packet.data) <= MOST_ROOM * self.config.max_bytes or (
            first is not None and not precedes((window.ring.hd + 1) % MODULUS, first))

    def _blocked_by_gap(self, window: ReceiveWindow, packet: Packet) -> bool:
        """Whether there will be no room for it before something comes that is missing,
        so that its sender must be read on."""
        ring = window.ring
        if window.stream.outstanding or window.is_deliverable:
            return False
        first = wire.first_seqno(packet.data)
        return ring.num_missing > 0 or (first is not None
                                        and precedes((ring.hr + 1) % MODULUS, first))

    def _drop_and_resync(self, packets: Collection[Packet], window: ReceiveWindow,
                         now: Instant) -> None:
        """What a RESYNC asks for comes again, behind what is missing."""
        self.counters.num_dropped_for_resync += len(packets)
        sender = window.stream.sender.incarnation
        if sender not in self.awaited:
            self._resync(sender, window, now)

    def _hold(self, packet: Packet) -> None:
        """There is no room: read no more of this sender until there is."""
        if packet.sender not in self.held:
            self.held[packet.sender] = deque()
            self.stack.effects.held = set(self.held)
        self.counters.num_held += 1
        self.held[packet.sender].append(packet.copy())

    def _release(self, now: Instant) -> None:
        """Room may have come for what is held, in its order."""
        duplicates = self.counters.num_duplicates
        for sender in list(self.held):
            packets, window = self.held[sender], self.windows[sender]
            self.stack.effects.arrived = True
            while packets and self._place(window, packets[0], now):
                packets.popleft()
            if packets and self._blocked_by_gap(window, packets[0]):
                self._drop_and_resync(packets, window, now)
                packets.clear()
            if not packets:
                del self.held[sender]
                self.stack.effects.held = set(self.held)
        self.counters.num_duplicates = duplicates       # a part of it had found room before

    def _enqueue(self, packet: Packet) -> None:
        """Without a window: keep what may belong to one that is to come. (A lossless
        transport brings a START before whatever follows it, so what comes before is not
        for us.)"""
        self.counters.num_unknown_sender += 1
        if not self.receiving or (self.lossless and packet.sender not in self.early):
            return
        arrivals = wire.read_data(packet.data, 0, 0)
        if arrivals is None:
            self.counters.num_bad += 1
            return
        messages = arrivals.old + arrivals.beyond
        self.counters.num_queued += messages
        self.queue.add(packet, messages)
        self.counters.num_queue_dropped = self.queue.num_dropped

    def _keep(self, sender: int, start: multicast.LaterStart) -> None:
        """Of a sender whose START had to give way nothing is kept, see _enqueue."""
        known = self.early.keys() | {sender}
        super()._keep(sender, start)
        self.queue.forgot |= self.early.keys() != known

    def _drain(self, sender: int, window: ReceiveWindow, now: Instant) -> None:
        """BECOME_SERVER, of one sender: what is in the queue goes into the window."""
        packets, is_complete = self.queue.take(sender)
        for packet in packets:
            self._on_data(packet, now)
        if not is_complete and self.lossless and self.queue.bound == UNBOUNDED:
            self._resync(sender, window, now)

    # -------------------------------------------------------------------------------------- joining

    def _answer_start(self, sender: int, now: Instant) -> None:
        window = self.windows.get(sender)
        if window is not None:
            self._drain(sender, window, now)
        self.send_control(STARTED,
                           Started(window.stream.finished if window else 0, self.receiving),
                           sender, now)

    @takes(STARTED)
    def _on_started(self, member: int, started: Started, now: Instant) -> bool:
        """The member has its window for our stream, or wants none."""
        if not is_seqno(started.seqno):
            return False
        start = self.joiners.get(member)
        if start is not None and (not started.receiving or not precedes(started.seqno, start)):
            self._started(member)
            if not self.joiners:
                self.stability.resumed(now)
        return True

    def _admitted(self, member: int, start: Seqno) -> None:
        """What a member that comes back is to have was sent before it came. (Votes
        begin anew in each view.)"""
        if self.lossless and member in self.joiners and precedes(start, self.send_window.sent):
            self.resyncs[member] = start

    def _gone(self, member: int) -> None:
        self.awaited.discard(member)
        for table in (self.held, self.resyncs, self.answered, self.stalled):
            if table.pop(member, None) is not None and table is self.held:
                self.stack.effects.held = set(self.held)

    def has_of(self, member: int) -> Seqno | None:
        """Return what all have, or where the stream starts for a member that is still
        joining: only the coordinator sees the votes of single members."""
        return self.joiners.get(member, self.send_window.ring.low)

    def _installed(self, now: Instant) -> None:
        self.queue.retain(self.early.keys() | self.members.keys())
        self._purge()
        self._answer_resyncs(now)                       # behind the STARTs

    # ---------------------------------------------------------------------------------- connections

    def linked(self, member: int, now: Instant) -> None:
        """Decision 21: say what has come; to who has not answered its START, say it
        again, and all that was sent since. (With retransmission both are repeated
        anyhow.)"""
        if self.lossless:
            self._say_again_to(member, now)
        self.above.linked(member, now)

    def _say_again_to(self, member: int, now: Instant) -> None:
        self.answered.pop(member, None)
        window = self.windows.get(member)
        if window is not None:
            self._resync(member, window, now)
        if member in self.joiners:
            self._send_start(member, self.joiners[member], now)
            self.resyncs[member] = self.joiners[member]
            self._answer_resyncs(now)
        self._arm(now)

    def _resync(self, sender: int, window: ReceiveWindow, now: Instant) -> None:
        self.counters.resyncs_sent += 1
        gaps = window.ring.missing(1)
        have = (gaps[0][0] - 1) % MODULUS if gaps else window.ring.hr
        self.awaited.add(sender)
        self.send_control(RESYNC, Resync(have), sender, now)

    @takes(RESYNC)
    def _on_resync(self, member: int, resync: Resync, now: Instant) -> bool:
        """The member lacks, or may lack, what follows."""
        seqno = self._sent_of(resync.seqno)
        if not self.lossless or seqno is None:
            return False
        self.counters.resyncs_received += 1
        self.resyncs[member] = seqno
        self._answer_resyncs(now)
        return True

    def _answer_resyncs(self, now: Instant) -> None:
        """Send all that follows what a member has; over one connection no more often
        than every RESYNC_PAUSE (no amplification)."""
        for member in [member for member in self.resyncs
                       if now - self.answered.get(member, -RESYNC_PAUSE) >= RESYNC_PAUSE]:
            window, have = self.send_window, self.resyncs.pop(member)
            self.answered[member] = now
            low = window.ring.low
            first = ((have if precedes(low, have) else low) + 1) % MODULUS
            if precedes(window.sent, first):
                continue
            header = self.stack.header(REPEAT, member)
            ranges = [(first, window.sent)]
            datagrams, messages = wire.pack(window.ring, window.marks, window.stamps, ranges,
                                            window.bundle, header, UNLIMITED)
            self.counters.xmit_rsps_sent += messages
            self.send_datagrams(REPEAT, member, datagrams, now)

    # ------------------------------------------------------------------ what is finished and stable

    def deliver(self, limit: int, now: Instant) -> int:
        """What an application never sees is finished with that; then something that was
        held may come next."""
        effects = self.stack.effects
        effects.arrived = False
        handed = super().deliver(limit, now)
        while effects.arrived and handed < limit:
            effects.arrived = False
            handed += super().deliver(limit - handed, now)
        return handed

    def _refuse(self, sender: int, now: Instant) -> None:
        self.stability.asked(now)

    def _report_again(self, now: Instant) -> None:
        due = [window for window in self.windows.values() if window.report_due and window.started]
        for window in due:
            window.report_due = False
        if due:
            self.stability.asked(now)

    def _report_finished(self, window: ReceiveWindow | None, now: Instant) -> None:
        stream = self.own if window is None else window.stream
        before = stream.unacked_bytes
        if stream.is_incomplete:
            self._arm(now)              # its sender may have no room for the rest: see Stream.scan
        if not (stream.keep() if window is None or not self.config.discard_delivered_msgs
                else stream.free()):
            return
        self.unreported_bytes += stream.unacked_bytes - before
        if self.held:
            self._release(now)
        urgent = (stream.is_report_due(self.send_window.ring.max_bytes)
                  or self.unreported_bytes >= self.config.stable_bytes)
        self.stability.finished(urgent, now)

    def report(self) -> tuple[dict[int, tuple[Seqno, Seqno]], int]:
        """Of every sender whose stream has started here: what the application has
        finished, and the highest seqno received; and how many bytes it may have on the
        way to us (0: it need not wait for us). From now on that is reported."""
        self.unreported_bytes = 0
        for stream in (self.own, *(window.stream for window in self.windows.values())):
            stream.unacked_messages = stream.unacked_bytes = 0
        sent = self.send_window.sent
        digest = {self.local.incarnation: (self.own.finished, sent)}
        if self.receiving:
            digest |= {sender: (window.stream.finished, window.ring.hr) for sender,
                       window in self.windows.items() if window.started}
        return digest, self._grant()

    def stable(self, digest: dict[int, tuple[Seqno, Seqno]], grant: int, now: Instant) -> None:
        """STABILITY: all have finished each stream up to the first seqno, and some have
        it up to the second."""
        for sender, (seqno, highest) in digest.items():
            window = self.windows.get(sender)
            if sender == self.local.incarnation:
                self._purge_to(seqno)
            elif window is not None:
                if not self.config.discard_delivered_msgs and is_within(window.ring.low, seqno,
                                                                        window.stream.finished):
                    window.ring.stable(seqno)
                if self.retransmits and window.started:
                    window.ring.announce(highest)
        if grant > 0:
            self._fit_budget(grant)
        self._release(now)
        self._arm(now)                                  # a gap may have come to light

    def _purge_to(self, seqno: Seqno) -> None:
        if not self.receiving:
            self.send_window.ring.remove_many(nullify=False)  # nobody takes our own messages;
                                                              # stable() stops at HD
        sent = self._sent_of(seqno)
        if sent is not None and is_within(self.send_window.ring.low, sent, self.send_window.sent) and self.send_window.stable(sent):
            self.stack.effects.writable = True

    def _purge(self) -> None:
        """Free what was sent and all have finished. An incarnation that comes back may
        have heard of that before it sends the messages again, and will not hear of it
        twice."""
        if self._has_no_ackers():
            self._purge_to(self.send_window.sent)
        elif self.epoch and (seqno := self.stability.known_of(self.local.incarnation)) is not None:
            self._purge_to(seqno)

    def _has_no_ackers(self) -> bool:
        return not self.receiving and self.members.keys() == {self.local.incarnation}

    def stop_receiving(self, now: Instant) -> None:
        self.receiving = False
        self.own.finished = later(self.own.finished, self.send_window.sent)
        self.stability.stopped(now)
        self._purge()

    # ---------------------------------------------------------------------------------------- timer

    def tick(self, now: Instant) -> None:
        """Every xmit_interval, while anything is missing, not stable or unknown.
        Without retransmission, while something stands still that should not."""
        self.next_scan = None
        for sender, window in self.windows.items():
            if window.started and self.retransmits:
                self._ask(sender, window, now)
            elif window.started:
                self._watch(sender, window, now)
            if window.stream.scan(now):
                self._report_finished(window, now)
        if self.retransmits:
            self._resend_announcements(now)
        self._answer_resyncs(now)
        self._arm(now)

    @property
    def _gap_scans(self) -> int:
        """Return how many scans of gap_timeout follow the one that finds a gap."""
        return max(1, math.ceil(self.config.gap_timeout / self.config.scan_interval) - 1)

    def _watch(self, sender: int, window: ReceiveWindow, now: Instant) -> None:
        """A gap that nobody asks for: after gap_timeout without a step something is
        wrong."""
        if not window.ring.num_missing:
            self.stalled.pop(sender, None)
            return
        backoff = self.stalled.setdefault(sender, Backoff(self._gap_scans))
        if backoff.stalls(window.ring.hd):
            self.counters.num_gaps += 1
            first, last = window.ring.missing(1)[0]
            self.stack.effects.warnings.append(
                f"messages {first} to {last} of {window.stream.sender} did not come, though "
                f"nothing should be lost; they are asked for "
                "now. If this happens again, set xmit_interval to more than 0")
            self._resync(sender, window, now)

    def _is_busy(self) -> bool:
        windows = self.windows.values()
        if self.resyncs or any(window.stream.is_incomplete for window in windows):
            return True
        if not self.retransmits:
            return any(window.ring.num_missing for window in windows)
        return bool(self.joiners) or self._has_unacked() or any(window.ring.hd != window.ring.hr
                                                                for window in windows)

    def _arm(self, now: Instant) -> None:
        if self.next_scan is None and self._is_busy():
            self.next_scan = now + self._pause()

    # --------------------------------------------------------------------------------------- status

    def remembered(self) -> set[int]:
        return (super().remembered() | self.held.keys() | self.resyncs.keys() | self.answered.keys()
                | self.stalled.keys()
                | self.awaited)

    def start_of(self, member: int) -> Seqno | None:
        return self.send_window.ring.low if member == self.local.incarnation else self.joiners.get(member)

    def slowest(self) -> int | None:
        return self.stability.slowest()

    def status(self) -> dict[str, int]:
        return {**super().status(), "become_server_queue": len(self.queue),
                "num_senders_held": len(self.held)}
