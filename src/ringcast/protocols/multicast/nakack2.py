"""NAKACK2: reliable multicast with negative acknowledgements (RingBuffer.txt), with or
without retransmission (NAKACK2-no-retransmission.txt; decisions 20 to 22).

Nobody acknowledges single messages. A receiver asks for gaps. STABLE (stable.py) tells
what all members have finished, and then a sender purges it. The window is a SeqnoTable,
which takes as much memory as its messages need, or a RingBuffer. With
discard_delivered_msgs a receiver frees a message when its application has finished it,
else when it is stable.

xmit_interval <= 0 is for a transport that loses nothing while a connection stands:
there are no scans for gaps, no HIGHEST, and STABLE's rounds ask for nothing. The window
only keeps the order. When a connection breaks, RESYNC mends what was lost (resync.py).
No datagram may be dropped on the way into its window (lossless.py).
"""

from typing import TYPE_CHECKING

from ringcast._core import wire
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.window import Window
from ringcast.address import Address
from ringcast.config import Config
from ringcast.digest import Digest
from ringcast.kinds import takes
from ringcast.protocols.budget import Budget
from ringcast.protocols.multicast.announcing import HIGHEST, Highest
from ringcast.protocols.multicast.base import REPEAT, Multicast
from ringcast.protocols.multicast.become_server_queue import UNBOUNDED, BecomeServerQueue
from ringcast.protocols.multicast.lossless import has_room
from ringcast.protocols.multicast.observing import OBSERVERS_ROOM
from ringcast.protocols.multicast.resync import RESYNC, UNLIMITED, Resync, Resyncs
from ringcast.protocols.multicast.retention import ROOM, follow_low, keeps_for_others
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.seqnos import Seqno, is_within, later, precedes
from ringcast.stack import Instant, Packet
from ringcast.status import Layers, Nakack2Status

if TYPE_CHECKING:
    from ringcast.protocols.multicast.stable import Stable

QUEUES = 4                              # times max_bytes that may wait for windows


class Nakack2(Multicast):
    """The layer; its arguments are those of Multicast. `stability` is the STABLE layer,
    which sets it."""

    protocol = "nakack2"
    counters: Nakack2Status
    stability: "Stable"

    def __init__(self, local: Address, config: Config, budget: Budget, *,
                 resume: Digest | None = None, receiving: bool = True, offset: Seqno = 0,
                 lossless: bool = False, observes: bool = False) -> None:
        super().__init__(local, config, budget, resume=resume, receiving=receiving, offset=offset,
                         lossless=lossless, observes=observes)
        if lossless:
            self.receive_bytes = UNLIMITED              # its limits are in lossless.py
        self.counters = Nakack2Status()
        self.queue = BecomeServerQueue(self._queue_bound(), QUEUES * config.max_bytes)
        self.resyncs = Resyncs(self)
        self.unreported_bytes = 0                  # finished since the last vote, of all streams

    def make_window(self, offset: Seqno, capacity: int, max_bytes: int) -> Window:
        if self.config.use_ring_buffer:
            return RingBuffer(capacity, offset, max_bytes=max_bytes)
        return SeqnoTable(offset, capacity=capacity, max_bytes=max_bytes)

    # --------------------------------------------------------------- with or without retransmission

    @property
    def retransmits(self) -> bool:
        return self.interval > 0

    def keeps_delivered(self, sender: int) -> bool:
        """Return whether receivers keep a sender's messages until they are stable."""
        return keeps_for_others(self, sender) or not self.config.discard_delivered_msgs

    def change_interval(self, interval: int, now: Instant) -> None:
        """Change xmit_interval, in nanoseconds. 0 or less switches retransmission off,
        which only a lossless transport allows.

        Nothing is lost by that: a RESYNC asks for what is missing when retransmission
        ends, and retransmission for what the queue drops when it becomes bounded."""
        assert interval > 0 or self.lossless
        stops = self.retransmits and interval <= 0
        super().change_interval(interval, now)
        self.queue.rebound(self._queue_bound())
        self.counters.num_queue_dropped = self.queue.num_dropped
        if stops:
            self.gap_looks.tails.clear()
            for sender, window in self.windows.items():
                self.resyncs.send(sender, window, now)  # a lost tail shows no gap

    def _queue_bound(self) -> int:
        return self.config.become_server_queue_size if self.retransmits else UNBOUNDED

    # ------------------------------------------------------------------------ sending and receiving

    def flush(self, now: Instant, full_only: bool = False) -> None:
        """Frame what waits. A member that takes no messages has finished its own as
        soon as they are sent. What its application had finished before it was sent,
        STABLE counts from now on; at once, if it had to wait for others' credit."""
        sent, was_held = self.send_window.sent, self.send_window.is_held
        super().flush(now, full_only)
        if not self.receiving and self.members:
            self.own.finished = later(self.own.finished, self.send_window.sent)
            self.report_finished(None, now)
        if precedes(sent, self.own.finished):
            waits = self.send_window.is_held and self.credits.parts > 0    # others' parts free more
            self.stability.finished(was_held and not waits, now)

    def take(self, window: ReceiveWindow, packets: list[Packet], now: Instant) -> bool:
        """Also ask again for what finds no room, where nobody else does."""
        if packets[0].kind == REPEAT:
            self.resyncs.awaited.discard(packets[0].sender)
        if not self.lossless:
            return super().take(window, packets, now)
        limit = self.config.max_bytes * (1 if self.observing is None else OBSERVERS_ROOM // ROOM)
        for packet in packets:
            is_taken = has_room(window, packet, limit) and (
                super().take(window, [packet], now))
            if not is_taken and self.observing is None:
                self.resyncs.drop(window, now)
        return is_taken

    def keep_early(self, packet: Packet) -> None:
        """Queue a datagram that may belong to a window that will be opened."""
        if not self.receiving:
            return
        arrivals = wire.read_data(packet.data, 0, 0)
        if arrivals is None:
            self.counters.num_bad += 1
            return
        messages = arrivals.old + arrivals.beyond
        self.counters.num_queued += messages
        self.queue.add(packet, messages)
        self.counters.num_queue_dropped = self.queue.num_dropped

    # -------------------------------------------------------------------------------------- joining

    def begin(self, sender: int, now: Instant) -> None:
        """BECOME_SERVER, for one sender: move its datagrams from the queue to its
        window. Over a lossless transport what did not come or was not kept shows when
        the sender says what it has sent."""
        window = self.windows.get(sender)
        if window is not None:
            for packet in self.queue.take(sender):
                self.take(window, [packet], now)
        if self.lossless:
            self.resyncs.begin(sender, window, now)

    def track(self, member: int, start: Seqno) -> None:
        """There is nothing to track: votes begin anew in each view."""

    def forget(self, member: int) -> None:
        self.resyncs.forget(member)

    def installed(self, now: Instant) -> None:
        self.queue.retain(set(self.members))
        self.purge()
        self.resyncs.answer(now)

    # ---------------------------------------------------------------------------------- connections

    def linked(self, member: int, now: Instant) -> None:
        """There is a new connection to a member (decision 21). Where messages are
        repeated on request, it changes nothing."""
        if self.lossless:
            self.resyncs.linked(member, now)
            self._arm(now)
        self.above.linked(member, now)

    @takes(RESYNC)
    def _on_resync(self, member: int, resync: Resync, now: Instant) -> bool:
        """On reception of RESYNC: send what follows."""
        seqno = self.sent_of(resync.seqno)
        if not self.lossless or seqno is None:
            return False
        self.counters.resyncs_received += 1
        if resync.asks:
            self.resyncs.tell(member, seqno, now)
            return True
        self.resyncs.want(member, seqno)
        self.resyncs.answer(now)
        return True

    @takes(HIGHEST)
    def _on_highest(self, sender: int, highest: Highest, now: Instant) -> bool:
        """On reception of HIGHEST: see also whether a stream lacks anything that has
        begun here."""
        if sender in self.resyncs.begun:
            self._take_run(now)                 # it came before
        if not super()._on_highest(sender, highest, now):
            return False
        if sender in self.resyncs.begun:
            self.resyncs.hear(sender, highest.seqno, now)
        return True

    # ------------------------------------------------------------------ what is finished and stable

    def refuse(self, sender: int, now: Instant) -> None:
        self.stability.asked(now)

    def report_again(self, now: Instant) -> None:
        due = [window for window in self.windows.values() if window.report_due]
        for window in due:
            window.report_due = False
        if due:
            self.stability.asked(now)

    def report_finished(self, window: ReceiveWindow | None, now: Instant) -> None:
        stream = self.own if window is None else window.stream
        before = stream.unacked_bytes
        if stream.is_incomplete:
            self._arm(now)              # it may have to be given up: see Stream.scan
        keeps = window is None or self.keeps_delivered(stream.sender.incarnation)
        if not (stream.keep() if keeps else stream.free()):
            return
        if self.observing is not None and window is not None:
            follow_low(stream, window.gone)             # STABILITY may have come before
            return                                      # nobody waits for it
        self.unreported_bytes += stream.unacked_bytes - before
        credit = self.send_window.credit if window is None else (
            self.credits.used(window, self.credits.smallest))
        urgent = (stream.is_report_due(credit)
                  or self.unreported_bytes >= self.config.stable_bytes)
        self.stability.finished(urgent, now)

    @property
    def num_parts(self) -> int:
        """Return how many bytes are here that we cannot vote for yet."""
        return sum(window.stream.parts for window in self.windows.values())

    def report(self) -> tuple[dict[int, tuple[Seqno, Seqno]], int, dict[int, int]]:
        """Return what to vote: for every sender, the highest seqno that the application
        has finished and the highest received; the credit that each sender has (0:
        nobody need wait for us); and how much is here of large messages that are not
        whole. It counts as reported now."""
        self.unreported_bytes = 0
        self.own.reported()
        for window in self.windows.values():
            window.note_report()
        sent = self.send_window.sent
        digest = {self.local.incarnation: (self.own.finished, sent)}
        if self.receiving and self.observing is None:
            digest |= {sender: (window.stream.finished, window.ring.hr)
                       for sender, window in self.windows.items()}
        return digest, self.credits.grant(), self.credits.parts_of(self.windows)

    def stable(self, digest: dict[int, tuple[Seqno, Seqno]], grant: int, parts: int,
               now: Instant) -> None:
        """On STABILITY: all members have finished each stream up to the first seqno of
        the digest, and some have received it up to the second; all have so many `parts`
        of our large message, in bytes. Free what is stable."""
        for sender, (seqno, highest) in digest.items():
            window = self.windows.get(sender)
            if sender == self.local.incarnation:
                self._purge_to(seqno)
            elif window is not None:
                if not self.keeping.is_on:
                    if self.observing is not None and not precedes(highest, seqno):
                        self.observing.follow(window, seqno)
                    is_known = is_within(window.ring.low, seqno, window.stream.finished)
                    if self.keeps_delivered(sender) and is_known:
                        window.stream.release(seqno)
                if self.retransmits:
                    self.gap_looks.expect(sender, highest)
        if grant > 0:
            self.credits.use(grant, parts)
        self.gap_looks.watch(now)                       # a gap may have come to light
        self._arm(now)

    def _purge_to(self, seqno: Seqno) -> None:
        """Free our messages up to a seqno, if it makes sense."""
        window = self.send_window
        if not self.receiving:                          # stable() stops at HD, which nobody moves
            window.ring.remove_many(nullify=False)
        sent = self.sent_of(seqno)
        if sent is None or not is_within(window.ring.low, sent, window.sent):
            return
        self.free_sent(sent)

    def purge(self) -> None:
        """Free what was sent, if nobody takes it. (For all others, STABILITY tells.)"""
        if self._has_no_ackers():
            self._purge_to(self.send_window.sent)

    def thaw(self) -> None:
        """Also free what was said to be stable meanwhile."""
        self.purge()
        for sender, window in self.windows.items():
            seqno = self.stability.known_of(sender)
            if seqno is not None and not precedes(window.stream.finished, seqno):
                window.stream.release(seqno)
        if (seqno := self.stability.known_of(self.local.incarnation)) is not None:
            self._purge_to(seqno)

    def _has_no_ackers(self) -> bool:
        """Return whether nobody takes our messages."""
        return not self.receiving and self.members.keys() == {self.local.incarnation}

    def stop_receiving(self, now: Instant) -> None:
        self.receiving = False
        self.own.finished = later(self.own.finished, self.send_window.sent)
        self.stability.stopped(now)
        self.purge()
        self.flushing.stop_receiving()

    # ---------------------------------------------------------------------------------------- timer

    def scan(self, now: Instant) -> None:
        """Scan the windows, while anything is missing or not stable; without
        retransmission, while a gap stalls a window."""
        pause = self.scan_pause
        for sender, window in self.windows.items():
            if not self.retransmits and self.observing is None:
                self.resyncs.watch(sender, window, now)
            if window.stream.scan(now, pause):
                self.report_finished(window, now)
        self.fetching.ask(now)
        if self.retransmits:
            self.announcing.announce(now)
        self.resyncs.answer(now)

    def is_busy(self) -> bool:
        windows = self.windows.values()
        if self.resyncs.wanted or self.gap_looks.tails or self.flushing.awaits():
            return True
        if any(window.stream.is_incomplete for window in windows):
            return True
        if not self.retransmits:
            return any(window.ring.num_missing for window in windows)
        return self.has_unacked() or self.announcing.owes_observers() or any(
            window.ring.hd != window.ring.hr for window in windows)

    # --------------------------------------------------------------------------------------- status

    def remembered(self) -> set[int]:
        return super().remembered() | self.resyncs.members()

    def slowest(self) -> int | None:
        return self.stability.slowest()

    def describe(self, status: Layers) -> None:
        self.counters.become_server_queue = len(self.queue)
        super().describe(status)
