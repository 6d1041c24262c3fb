"""The receiving ends of all connections of a member (UNICAST3.txt, "RECEIVER: ...").

A message belongs into the window of its connection. Receivers looks, in this order, for

1. a window with the same conn-id;
2. the memory of a connection with the same conn-id that was closed here: the window
   begins where that one ended, so that nothing is delivered twice (decision 16);
3. a datagram that begins with the first message of a connection that is newer than all
   that we had of this sender: then a window begins, and an older one is replaced.

If there is none of these, the datagram is late when its connection is not a new one.
Else the first message has not come yet: the datagram is kept (`memory.py`), and the
retransmit task asks the sender where to begin (`sync.py`).
"""

from ringcast._core import wire
from ringcast._core.seqno_table import SeqnoTable
from ringcast.protocols.budget import Budget
from ringcast.protocols.retransmission import Backoff, Gaps, requests
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unicast3.acks import Acks
from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.control import PREFIX, ConnId, Timestamp
from ringcast.protocols.unicast3.delivery import Deliveries
from ringcast.protocols.unicast3.loopback import Loopback
from ringcast.protocols.unicast3.memory import MOST_WINDOWS, Closed, ClosedConnections, EarlyPackets
from ringcast.protocols.unicast3.receiver import ReceiverEntry
from ringcast.protocols.unicast3.states import Event
from ringcast.protocols.unicast3.sync import Syncs
from ringcast.stack import Instant, Packet

EARLY_SYNCS = 20          # sync_min_intervals that messages without a window are kept, and two
                          # xmit_intervals at least
MOST_GONE = 16            # windows of members that left; more in a larger group


class Receivers(dict[int, ReceiverEntry]):
    """The receiving ends of this member's connections, by the incarnation of the
    sender, and what becomes of messages that have none."""

    def __init__(self, context: Context, loopback: Loopback, budget: Budget,
                 timestamp: Timestamp) -> None:
        super().__init__()
        self.context = context
        self.acks = Acks(context, self, budget, timestamp)
        self.deliveries = Deliveries(context, self, self.acks, loopback)
        self.closed = ClosedConnections(context.config.max_closed_connections,
                                        MOST_WINDOWS * context.config.max_bytes)
        self.early = EarlyPackets()
        self.syncs = Syncs(context.sync_interval)
        self.gapped: dict[int, ReceiverEntry] = {}  # which the retransmit task looks at
        self.refusals = Backoff()                   # while senders do not know what we finished

    # --------------------------------------------------------------------------- messages that come

    def take_messages(self, packet: Packet, now: Instant) -> None:
        """Put messages into the window of their connection, if there is one or they may
        begin one; otherwise keep them or drop them."""
        context, sender = self.context, packet.sender
        conn_id = int.from_bytes(packet.data[wire.HEADER_SIZE:PREFIX], "little")
        first = wire.first_seqno(packet.data, PREFIX)
        if sender not in context.members:
            self._keep_early(packet, now)
        elif first is None or conn_id == 0:
            context.counters.unicast_bad += 1
        elif not context.receiving:
            self._refuse_messages(sender, conn_id, now)
        else:
            low = self._find_low(packet, conn_id, first)
            if low is not None:
                self._add_messages(packet, conn_id, low, now)
            elif self._is_new(sender, conn_id):
                self._keep_early(packet, now)
                self.syncs.set_flag(sender, conn_id)
                context.arm_scan(now)
            else:
                context.counters.unicast_late += 1
                self._tell_latest(sender, conn_id, now)

    def _tell_latest(self, sender: int, conn_id: ConnId, now: Instant) -> None:
        """Tell a sender, of which a message of an older connection came, which one is
        the latest here. If it has not opened that, somebody else has, in its name: it
        goes on above it. Refuse the rest of a connection that is torn."""
        entry, closed = self.get(sender), self.closed.get(sender)
        if entry is not None:
            self.acks.schedule(entry, 0, now)
        elif closed is not None and closed.conn_id != conn_id:
            self.acks.tell(sender, closed.conn_id, closed.finished, now)
        elif closed is not None and closed.is_torn and not closed.by_sender:
            self.acks.refuse(sender, conn_id, closed.finished, now)

    def resume(self, sender: int, now: Instant) -> None:
        """Open the window again of which a stream was kept: its sender is back and may
        go on. So the stream is not given up while its sender is in the view."""
        closed = self.closed.get(sender)
        if closed is not None and closed.is_resumable and self.context.receiving:
            entry = self._open_entry(sender, closed.conn_id, closed.delivered, now)
            self.context.effects.arrived |= entry.has_next
            if entry.is_busy:
                self.gapped[sender] = entry
                self.context.arm_scan(now)

    def take_early(self, sender: int, now: Instant) -> None:
        """Take what came of this sender before its window or its view."""
        for packet in self.early.take(sender):
            self.take_messages(packet, now)

    def _find_low(self, packet: Packet, conn_id: ConnId, first: Seqno) -> Seqno | None:
        """Return LOW of the window that the messages belong to: one that is here, one
        that was closed, or one that they begin. None if there is no such window."""
        entry = self.get(packet.sender)
        if entry is not None and entry.conn_id == conn_id:
            return entry.ring.low
        closed = self.closed.get(packet.sender)
        if entry is None and closed is not None and closed.is_open_for(conn_id):
            return None if closed.is_held else closed.delivered
        if packet.kind == control.FIRST and self._is_new(packet.sender, conn_id):
            return (first - 1) % MODULUS
        return None

    def _is_new(self, sender: int, conn_id: ConnId) -> bool:
        """Return whether this connection is newer than all that we have or had of the
        sender (serial arithmetic)."""
        entry, closed = self.get(sender), self.closed.get(sender)
        return all(known is None or precedes(known.conn_id, conn_id) for known in (entry, closed))

    def _add_messages(self, packet: Packet, conn_id: ConnId, low: Seqno, now: Instant) -> None:
        """Put messages into their window, and open it if it is not there."""
        context, sender, oob = self.context, packet.sender, self.deliveries.oob
        arrivals = wire.read_data(packet.data, low, context.config.capacity, PREFIX)
        if arrivals is None:
            context.counters.unicast_bad += 1
            return
        entry = self.get(sender)
        if entry is None or entry.conn_id != conn_id:
            entry = self._open_entry(sender, conn_id, low, now)
        entry.on(Event.USED, now)
        at_once = not (oob.is_flooded or self.deliveries.is_held(sender))
        added = entry.stream.add(arrivals, oob.batches, context.view_id, now, at_once)
        repeated = arrivals.old + arrivals.inside - added
        context.counters.unicast_duplicates += repeated
        context.counters.unicast_out_of_window += arrivals.beyond
        if added < arrivals.inside + arrivals.beyond:
            self._announce_messages(entry, packet)
        if repeated:
            self.acks.schedule(entry, 0, now)           # its sender may not have got the last ack
        if added:
            self.deliveries.ready[sender] = entry
        if entry.is_busy:
            self.gapped[sender] = entry
            context.arm_scan(now)

    def _announce_messages(self, entry: ReceiverEntry, packet: Packet) -> None:
        """Note that messages came for which the window has no room: its sender's window
        is larger, in messages or in bytes. The sender may be waiting, so what would fit
        is asked for."""
        first = wire.first_seqno(packet.data, PREFIX)
        if first is not None and precedes(entry.ring.hr, first):
            entry.ring.announce(first)

    def _open_entry(self, sender: int, conn_id: ConnId, low: Seqno, now: Instant) -> ReceiverEntry:
        """Begin a window after `low`, or continue that of a connection that was closed.
        A window of an older connection is replaced."""
        if sender in self:
            self._replace_entry(sender)
        context, closed = self.context, self.closed.get(sender)
        stream = None if closed is None else closed.stream_for(conn_id)
        if stream is None:
            if closed is not None and closed.stream is not None:
                closed.give_up()
                self.deliveries.await_finished(closed.stream)
            ring = SeqnoTable(low, capacity=context.config.capacity,
                              max_bytes=context.config.max_bytes)
            stream = Stream(context.layer, context.members[sender], context.local, ring,
                            context.config)
            stream.conn_id = conn_id
        entry = self[sender] = ReceiverEntry(stream, Gaps(stream.ring.hr), conn_id, now)
        self.closed.forget(sender)
        self.syncs.clear_flag(sender)
        self.acks.schedule(entry, self.acks.max_interval, now)  # it carries the first credit
        if entry.has_next:                              # the application was not given all
            self.deliveries.ready[sender] = entry
        context.arm_reaping(entry)
        self.take_early(sender, now)
        return entry

    def _keep_early(self, packet: Packet, now: Instant) -> None:
        """Keep messages until their window exists (decision 19)."""
        if self.early.keep(packet, now):
            self.context.counters.unicast_early += 1
            self.context.arm_scan(now)
        else:
            self.context.counters.unicast_early_dropped += 1

    # ------------------------------------------------------------------ a member that takes no more

    def stop_receiving(self, now: Instant) -> None:
        """Take no more messages. Their senders must not wait: they are told what the
        application has finished until they say that they know it, because nobody can
        tell them later."""
        self.acks.send_all(now)
        self.context.receiving = False
        self._refuse_all(now)

    def peers_to_tell(self) -> list[int]:
        """Return the members that may not know yet what this member had finished of
        their messages when it stopped."""
        if self.context.receiving:
            return []
        return [peer for peer in self if peer in self.context.members]

    def _refuse_all(self, now: Instant) -> None:
        for peer in self.peers_to_tell():
            self._refuse_messages(peer, self[peer].conn_id, now)

    def _refuse_messages(self, sender: int, conn_id: ConnId, now: Instant) -> None:
        """Refuse messages, and acknowledge what is finished of their connection."""
        entry, closed = self.get(sender), self.closed.get(sender)
        finished = None
        if entry is not None and entry.conn_id == conn_id:
            finished = entry.ring.low
        elif closed is not None and closed.is_open_for(conn_id):
            finished = closed.finished
        self.acks.refuse(sender, conn_id, finished, now)

    # ---------------------------------------------------------------------------------------- scans

    def has_work(self) -> bool:
        """Return whether the retransmit task has anything to do here."""
        return bool(self.gapped or self.syncs.wanted or self.early.size or self.peers_to_tell())

    def scan(self, now: Instant) -> None:
        """Ask for what is missing, and for first messages; refuse again; drop what came
        too early and was not claimed."""
        context = self.context
        for peer, entry in list(self.gapped.items()):
            if entry.stream.scan(now, self.context.interval):
                self.acks.note_finished(entry, now)
            if not entry.is_busy:
                del self.gapped[peer]
            elif peer in context.members:
                self._request_missing(entry, now)
        if self.refusals.scan(tuple(self.peers_to_tell())):
            self._refuse_all(now)
        for peer, conn_id in self.syncs.take_due(now).items():
            context.counters.syncs_sent += 1
            sync = control.SendFirstSeqno(conn_id, self.acks.timestamps.next())
            context.layer.send_control(control.SEND_FIRST_SEQNO, sync, peer, now)
        self.syncs.forget_before(now - context.sync_interval)
        longest = max(EARLY_SYNCS * context.sync_interval, 2 * context.interval)
        context.counters.unicast_early_dropped += self.early.expire(now - longest)

    def _request_missing(self, entry: ReceiverEntry, now: Instant) -> None:
        """Send XMIT-REQ for what is missing."""
        context = self.context
        for ranges in requests(entry.gaps.scan(entry.ring), context.config.max_datagram):
            context.counters.unicast_xmit_reqs_sent += 1
            request = control.XmitReq(entry.conn_id, ranges, self.acks.timestamps.next())
            context.layer.send_control(control.XMIT_REQ, request, entry.peer, now)

    # -------------------------------------------------------------------------------------- the end

    def take_close(self, sender: int, close: control.Close, now: Instant) -> None:
        """Close the connection that its sender has closed. If it was closed here
        before, note that nothing new of it can come."""
        counters = self.context.counters
        entry, closed = self.get(sender), self.closed.get(sender)
        if closed is not None and closed.conn_id == close.conn_id:
            closed.by_sender = True
        if entry is None or entry.conn_id != close.conn_id:
            counters.unicast_late += 1
            return
        counters.closes_received += 1
        entry.on(Event.CLOSE, now)
        self._replace_entry(sender)

    def _replace_entry(self, sender: int) -> None:
        """Forget a connection that its sender has closed, or replaced by a newer one.
        What is ready of it is still delivered; nothing else can come."""
        entry = self._forget_entry(sender)
        self.closed.remember(sender, Closed(entry.conn_id, entry.ring.hd, by_sender=True))
        self.deliveries.keep_leaving(entry)

    def time_out(self, sender: int) -> None:
        """Forget a connection that its sender may still use: so a stream is kept that
        is not complete, or of which the application has not finished all."""
        entry = self._forget_entry(sender)
        stream = entry.stream if entry.is_busy or entry.stream.outstanding else None
        self.closed.remember(sender, Closed(entry.conn_id, entry.ring.hd, False, stream))

    def bound_gone(self, most: int) -> None:
        """Forget the oldest connections of members that left, if there are more than
        `most`: members that come and go must not fill the memory until their
        connections time out. What the application was not given, or has not finished,
        is not acknowledged. If its sender was only cut off, it sends that again when it
        is back."""
        gone = [peer for peer in self if peer not in self.context.members]
        for peer in gone[:max(0, len(gone) - most)]:
            self.time_out(peer)

    def _forget_entry(self, sender: int) -> ReceiverEntry:
        self.deliveries.ready.pop(sender, None)
        self.gapped.pop(sender, None)
        self.context.counters.conns_closed += 1
        return self.pop(sender)
