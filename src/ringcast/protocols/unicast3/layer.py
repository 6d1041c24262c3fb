"""The layer: what arrives, what is sent, acks, the retransmit task, and how connections
begin and end."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from heapq import heappop, heappush

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast._core.seqno_table import SeqnoTable
from ringcast.address import Address
from ringcast.config import Config, milliseconds
from ringcast.errors import NotMemberError
from ringcast.kinds import Kind, takes
from ringcast.protocols.budget import ReceiveBudget, fit
from ringcast.protocols.incoming import EarlyDeliveries
from ringcast.protocols.retransmission import Backoff, Gaps, clipped, requests
from ringcast.protocols.seqnos import MODULUS, Range, Seqno, is_seqno, precedes
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unicast3.control import PREFIX, ConnId
from ringcast.protocols.unicast3.memory import Closed, ClosedConnections, EarlyPackets
from ringcast.protocols.unicast3.receiver import ReceiverEntry
from ringcast.protocols.unicast3.sender import SenderEntry
from ringcast.protocols.unicast3.states import Act, Event, State
from ringcast.protocols.unicast3.sync import Counter, Syncs
from ringcast.stack import Instant, Layer, Packet
from ringcast.view import View

FIRST_BUDGET = 256 << 10  # bytes that a new connection may send before its receiver has granted any
ACTIVE = 1_000_000_000    # nanoseconds since which a connection must have been heard to count among
                          # those who share
RECOUNT = 100_000_000     # nanoseconds between two counts of them
EARLY_SYNCS = 20          # sync_min_intervals that messages without a window are kept, and two
                          # xmit_intervals at least
MOST_LEAVING = 4          # replaced windows that the application has not emptied
MOST_GONE = 16            # windows of members that are gone; more in a larger group


@dataclass(slots=True)
class Counters:
    """By the names of the text and of operators (decision 25)."""

    unicast_msgs_delivered: int = 0
    unicast_duplicates: int = 0        # messages received again
    unicast_out_of_window: int = 0     # messages dropped for want of room
    unicast_early: int = 0             # datagrams kept because there was no window, or no view, for
                                       # them yet
    unicast_early_dropped: int = 0     # of those, the ones that nobody came for; and those without
                                       # room
    unicast_late: int = 0              # datagrams and acks of an older connection, or overtaken
                                       # ones
    unicast_bad: int = 0               # datagrams that are damaged, or ask for what cannot be
    unicast_undelivered: int = 0       # own messages given up, and reported, because their receiver
                                       # left
    unicast_gone_undelivered: int = 0  # messages behind a gap of a connection that was replaced or
                                       # closed
    unicast_acks_sent: int = 0
    unicast_acks_received: int = 0
    unicast_xmit_reqs_sent: int = 0
    unicast_xmit_reqs_received: int = 0
    unicast_xmit_rsps_sent: int = 0     # messages repeated on request
    unicast_highest_resent: int = 0     # messages sent again because HA and HS stood still
    syncs_sent: int = 0                 # SEND_FIRST_SEQNO
    syncs_received: int = 0
    syncs_answered: int = 0
    conns_opened: int = 0
    conns_closed: int = 0
    closes_sent: int = 0                # CLOSE
    closes_received: int = 0


class Unicast3(Layer):
    """The layer. `budget` is shared with the other protocols. A member that is not
    `receiving` refuses all messages. The first conn-id is the one after `conn_id`, the
    first timestamp the one after `timestamp`, the first seqno of a connection the one
    after `offset`.

    The windows of senders may be used by any thread (see SendWindow); everything else
    belongs to the stack's owner.
    """

    def __init__(self, local: Address, config: Config, budget: ReceiveBudget, *,
                 receiving: bool = True, conn_id: ConnId = 0,
                 timestamp: int = 0, offset: Seqno = 0) -> None:
        self.local = local
        self.config = config
        self.budget = budget
        self.receiving = receiving
        self.offset = offset
        self.interval = milliseconds(config.scan_interval)
        self.ack_min, self.ack_max = milliseconds(config.ack_min_interval), milliseconds(
            config.ack_max_interval)
        self.expiry, self.close_timeout = milliseconds(config.conn_expiry_timeout), milliseconds(
            config.conn_close_timeout)
        self.conn_ids, self.timestamps = Counter(conn_id), Counter(timestamp)
        self.members: dict[int, Address] = {}
        self.view_id = 0
        self.refusing: set[int] = set()                 # members that take no messages
        self.senders: dict[int, SenderEntry] = {}       # by the other end, as are all tables here
        self.receivers: dict[int, ReceiverEntry] = {}
        self.closed = ClosedConnections(config.max_closed_connections)
        self.early = EarlyPackets()
        self.syncs = Syncs(milliseconds(config.sync_min_interval))
        self.own: Stream | None = None              # our messages to ourselves
        self.own_ready = False                      # some wait for the next turn
        self.ready: dict[int, ReceiverEntry] = {}   # those that may have something to deliver
        self.leaving: list[ReceiverEntry] = []      # replaced or closed, and not yet emptied by the
                                                    # application
        self.oob = EarlyDeliveries(config.capacity)
        self.unacked: dict[int, SenderEntry] = {}   # what the retransmit task looks at ...
        self.gapped: dict[int, ReceiverEntry] = {}  # ... on either side
        self.acks: list[tuple[Instant, int]] = []   # a heap of when acks are due; an entry's ack_at
                                                    # says whether it still is
        self.refusals = Backoff()                   # of who does not know that we take no more
                                                    # messages
        self.next_scan: Instant | None = None
        self.next_reap: Instant | None = None
        self.num_active, self.counted_at = 1, -RECOUNT
        self.counters = Counters()

    # -------------------------------------------------------------------------------------- sending

    def connection(self, dest: Address, now: Instant) -> SenderEntry:
        """The open connection to `dest`, a new one if there is none; NotMemberError
        when it is not in the view."""
        if self.members.get(dest.incarnation) != dest:
            names = ", ".join(sorted(member.name for member in self.members.values()))
            raise NotMemberError(f"{dest} is not in the view; send to one of {names}")
        if dest.incarnation in self.refusing or (dest == self.local and not self.receiving):
            raise NotMemberError(f"{dest} takes no messages (deliver=False, or it is leaving); send to another member")
        entry = self.senders.get(dest.incarnation)
        if entry is None or entry.on(Event.USED, now) & Act.REPLACE:
            entry = self._open_sender(dest, now)
        entry.window.reopen()
        return entry

    def _open_sender(self, dest: Address, now: Instant) -> SenderEntry:
        ring = SeqnoTable(self.offset, capacity=self.config.capacity,
                          max_bytes=self.config.max_bytes)
        window = SendWindow(ring, bundle=self.config.max_bundle_size,
                            datagram=self.config.max_datagram)
        entry = SenderEntry(dest, self.conn_ids.next(), window, now,
                            first=(self.offset + 1) % MODULUS)
        self.senders[dest.incarnation] = entry
        self.counters.conns_opened += 1
        if dest == self.local:
            self.own = Stream(self, dest, dest, ring, self.config, own=window)
        else:
            fit(window, min(FIRST_BUDGET, self.config.max_bytes), self.config)
        self._plan_reaping(entry)
        return entry

    def flush(self, dest: Address, now: Instant, full_only: bool = False) -> None:
        """Frame what waits for `dest` and hand it down, in the order of the seqnos.
        What was pushed before its receiver left, and waits still, does not open the
        connection again: it is given up with the rest."""
        entry = self.senders.get(dest.incarnation)
        if entry is None or not entry.window.waiting:
            return
        if dest.incarnation in self.members:
            entry.on(Event.USED, now)
        if dest == self.local:
            entry.window.skip()
            self.own_ready = True
            return
        if entry.window.sent == (entry.first - 1) % MODULUS:
            self._frame(control.FIRST, entry, full_only, 1, now)
        if entry.window.waiting:
            self._frame(control.MESSAGE, entry, full_only, 0, now)
        if entry.has_unacked:
            self.unacked[dest.incarnation] = entry
            self._arm(now)

    def _frame(self, kind: int, entry: SenderEntry, full_only: bool, most: int, now: Instant) -> None:
        self.send_datagrams(kind, entry.dest.incarnation, entry.window.frame(self._prefix(kind, entry), full_only, most, now + self.stack.anchor), now)

    def addresses(self) -> list[Address]:
        """To whom there are connections."""
        return [entry.dest for entry in self.senders.values()]

    def _prefix(self, kind: int, entry: SenderEntry) -> bytes:
        return self.stack.header(kind, entry.dest.incarnation) + entry.conn_id.to_bytes(8, "little")

    # ------------------------------------------------------------------------------------ receiving

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Take the first message of a connection, and what is said of connections,
        before the other messages of a batch."""
        if len({packet.kind for packet in packets}) > 1:
            packets = sorted(packets, key=comes_last)
        super().receive(packets, now)

    @takes(control.FIRST, control.MESSAGE)
    def _on_data(self, packet: Packet, now: Instant) -> None:
        """On reception of messages: into the window of their connection, when there is
        one or they may begin one."""
        conn_id = int.from_bytes(packet.data[wire.HEADER_SIZE:PREFIX], "little")
        first = wire.first_seqno(packet.data, PREFIX)
        if packet.sender not in self.members:
            self._keep(packet, now)
        elif first is None or conn_id == 0:
            self.counters.unicast_bad += 1
        elif not self.receiving:
            self._refuse(packet.sender, conn_id, now)
        else:
            offset = self._offset(packet, conn_id, first)
            if offset is not None:
                self._add(packet, conn_id, offset, now)
            elif self._is_new(packet.sender, conn_id):
                self._keep(packet, now)
                self.syncs.want(packet.sender, conn_id)
                self._arm(now)
            else:
                self.counters.unicast_late += 1

    def _offset(self, packet: Packet, conn_id: ConnId, first: Seqno) -> Seqno | None:
        """LOW of the window that the messages belong to: the one there is, one that was
        closed, or one that they begin."""
        entry, closed = self.receivers.get(packet.sender), self.closed.get(packet.sender)
        if entry is not None and entry.conn_id == conn_id:
            return entry.ring.low
        if entry is None and closed is not None and closed.conn_id == conn_id and not closed.by_sender:
            return closed.delivered
        if packet.kind == control.FIRST and self._is_new(packet.sender, conn_id):
            return (first - 1) % MODULUS
        return None

    def _is_new(self, sender: int, conn_id: ConnId) -> bool:
        """Whether this connection is none that we have or had, or older than that
        (serial arithmetic)."""
        entry, closed = self.receivers.get(sender), self.closed.get(sender)
        return all(known is None or precedes(known.conn_id, conn_id) for known in (entry, closed))

    def _add(self, packet: Packet, conn_id: ConnId, offset: Seqno, now: Instant) -> None:
        sender = packet.sender
        arrivals = wire.read_data(packet.data, offset, self.config.capacity, PREFIX)
        if arrivals is None:
            self.counters.unicast_bad += 1
            return
        entry = self.receivers.get(sender)
        if entry is None or entry.conn_id != conn_id:
            entry = self._open_receiver(sender, conn_id, offset, now)
        entry.on(Event.USED, now)
        added = entry.stream.add(arrivals, self.oob.batches, self.view_id, now,
                                 not self.oob.is_flooded)
        repeated = arrivals.old + arrivals.inside - added
        self.counters.unicast_duplicates += repeated
        self.counters.unicast_out_of_window += arrivals.beyond
        if added < arrivals.inside + arrivals.beyond:
            self._note_what_found_no_room(entry, packet)
        if repeated:
            self._want_ack(sender, entry, 0, now)       # the sender lacks it
        if added:
            self.ready[sender] = entry
        if entry.is_busy:
            self.gapped[sender] = entry
            self._arm(now)

    def _open_receiver(self, sender: int, conn_id: ConnId, offset: Seqno, now: Instant) -> ReceiverEntry:
        """A window that begins after `offset`. A window of an older connection gives
        way, and what is ready there comes first."""
        if sender in self.receivers:
            self._replace(sender)
        closed = self.closed.get(sender)
        if closed is not None and closed.conn_id == conn_id and closed.stream is not None:
            stream = closed.stream
        else:
            ring = SeqnoTable(offset, capacity=self.config.capacity,
                              max_bytes=self.config.max_bytes)
            stream = Stream(self, self.members[sender], self.local, ring, self.config)
        entry = ReceiverEntry(stream, Gaps(stream.ring.hr), conn_id, now)
        self.receivers[sender] = entry
        self.closed.forget(sender)
        self.syncs.done(sender)
        self._want_ack(sender, entry, self.ack_max, now)        # it carries the first grant
        self._plan_reaping(entry)
        for packet in self.early.take(sender):
            self._on_data(packet, now)
        return entry

    def _keep(self, packet: Packet, now: Instant) -> None:
        """Until its window exists (decision 19)."""
        if self.early.keep(packet, now):
            self.counters.unicast_early += 1
            self._arm(now)
        else:
            self.counters.unicast_early_dropped += 1

    def _refuse(self, sender: int, conn_id: ConnId, now: Instant) -> None:
        """This member takes no more messages: its peers are not to wait. What it has
        finished is acknowledged with that."""
        entry, closed = self.receivers.get(sender), self.closed.get(sender)
        finished = None
        if entry is not None and entry.conn_id == conn_id:
            finished = entry.ring.low
        elif closed is not None and closed.conn_id == conn_id and not closed.by_sender:
            finished = closed.delivered
        self.send_control(control.ACK, control.Ack(conn_id, finished, self.timestamps.next(), 0),
                           sender, now)

    def on_control(self, kind: Kind, handle: Callable[..., bool], packet: Packet,
                   now: Instant) -> None:
        """Take control packets of members, and the last words of a leaver."""
        body = kind.decode(packet.data)
        is_welcome = packet.sender in self.members or kind in (control.ACK, control.CLOSE)
        is_sound = is_welcome and body is not None and is_seqno(body.conn_id)
        if not is_sound or not handle(packet.sender, body, now):
            self.counters.unicast_bad += 1

    def _sender_of(self, peer: int, conn_id: ConnId) -> SenderEntry | None:
        """Our connection to `peer` that has this conn-id; what is about another one is
        counted as late."""
        entry = self.senders.get(peer)
        if entry is None or entry.conn_id != conn_id:
            self.counters.unicast_late += 1
            return None
        return entry

    @takes(control.ACK)
    def _on_ack(self, peer: int, ack: control.Ack, now: Instant) -> bool:
        """On reception of ACK(seqno, timestamp): free what is acknowledged, at once,
        unless the ack was overtaken. Who takes no more messages says so until it gets a
        CLOSE."""
        if not (ack.budget == 0 if ack.seqno is None else is_seqno(ack.seqno)) or not is_seqno(ack.timestamp) or ack.budget < 0:
            return False
        entry = self._sender_of(peer, ack.conn_id)
        if entry is None:
            if ack.budget == 0:
                self._say_close(peer, ack.conn_id, now)
            return True
        if ack.seqno is not None and precedes(entry.highest_sent, ack.seqno):
            return False
        if not entry.is_newer(ack.timestamp, self.interval, now):
            self.counters.unicast_late += 1
            return True
        self.counters.unicast_acks_received += 1
        if ack.seqno is not None:
            entry.window.acknowledged(ack.seqno)
        if ack.budget == 0:
            self._on_refusal(peer, entry, now)
            return True
        entry.grant()
        fit(entry.window, min(ack.budget, self.config.max_bytes), self.config)
        if not entry.has_unacked:
            self.unacked.pop(peer, None)
        self.stack.effects.writable = True
        return True

    def _on_refusal(self, peer: int, entry: SenderEntry, now: Instant) -> None:
        """The receiver takes no messages. One that has taken some is sent the highest
        again, and if it refuses that too, or leaves, it is true: one datagram in its
        name does not close its connection."""
        is_there = peer in self.members
        if not is_there or entry.is_refusal_believed():
            if is_there:
                self.refusing.add(peer)
            self._carry_out(entry.on(Event.CLOSE, now) | Act.SAY_CLOSE, entry, now)
        elif entry.has_unacked:
            self.counters.unicast_highest_resent += self._repeat(entry,
                                                                 [(entry.highest_sent, entry.highest_sent)], now)

    @takes(control.XMIT_REQ)
    def _on_xmit_req(self, peer: int, request: control.XmitReq, now: Instant) -> bool:
        """On reception of XMIT-REQ: send again what is asked for and still here."""
        entry = self._sender_of(peer, request.conn_id)
        if entry is None:                   # it was closed, and the receiver did not hear of that
            self._say_close(peer, request.conn_id, now)
            return True
        wanted = clipped(request.ranges, entry.highest_acked, entry.highest_sent)
        if wanted is None or not is_seqno(request.timestamp):
            return False
        self.counters.unicast_xmit_reqs_received += 1
        if entry.was_forgotten(request):
            self._begin_anew(entry, now)
            return True
        self.counters.unicast_xmit_rsps_sent += self._repeat(entry, wanted, now)
        return True

    def _begin_anew(self, entry: SenderEntry, now: Instant) -> None:
        """What is not acknowledged goes on as another connection, which the receiver
        takes in place of the window that it has."""
        entry.conn_id = self.conn_ids.next()
        entry.first = (entry.highest_acked + 1) % MODULUS
        self.counters.conns_opened += 1
        if entry.has_unacked:
            self._repeat_as(control.FIRST, entry, [(entry.first, entry.first)], now)

    def _repeat(self, entry: SenderEntry, wanted: list[Range], now: Instant) -> int:
        """Send messages again; the first of a connection says so each time. How many
        messages those were."""
        messages = 0
        if wanted and wanted[0][0] == entry.first:
            messages += self._repeat_as(control.FIRST, entry, [(entry.first, entry.first)], now)
            wanted = [((entry.first + 1) % MODULUS, wanted[0][1]),
                      *wanted[1:]] if wanted[0][1] != entry.first else wanted[1:]
        return messages + self._repeat_as(control.MESSAGE, entry, wanted, now)

    def _repeat_as(self, kind: int, entry: SenderEntry, wanted: list[Range], now: Instant) -> int:
        datagrams, messages = entry.pace.pack(entry.window, wanted, self._prefix(kind, entry),
                                              self.interval, now)
        self.send_datagrams(kind, entry.dest.incarnation, datagrams, now)
        return messages

    @takes(control.SEND_FIRST_SEQNO)
    def _on_send_first_seqno(self, peer: int, sync: control.SendFirstSeqno, now: Instant) -> bool:
        """On reception of SEND-FIRST-SEQNO(timestamp): send the lowest message as the
        first, unless this was overtaken. The highest is sent by the retransmit task.
        Answers are limited here too (decision 19)."""
        if not is_seqno(sync.timestamp):
            return False
        self.counters.syncs_received += 1
        entry = self._sender_of(peer, sync.conn_id)
        if entry is None:
            return True
        if not entry.is_newer(sync.timestamp, self.interval, now):
            self.counters.unicast_late += 1
        elif entry.has_unacked and (entry.answered is None
                                    or now >= entry.answered + self.syncs.min_interval):
            entry.answered = now
            self.counters.syncs_answered += 1
            lowest = (entry.highest_acked + 1) % MODULUS
            self._repeat_as(control.FIRST, entry, [(lowest, lowest)], now)
        return True

    @takes(control.CLOSE)
    def _on_close(self, peer: int, close: control.Close, now: Instant) -> bool:
        """On reception of CLOSE with the same conn-id: the entry is CLOSED and goes; if
        it went before, nothing new can come either."""
        entry, closed = self.receivers.get(peer), self.closed.get(peer)
        if closed is not None and closed.conn_id == close.conn_id:
            closed.by_sender = True
        if entry is None or entry.conn_id != close.conn_id:
            self.counters.unicast_late += 1
            return True
        self.counters.closes_received += 1
        entry.on(Event.CLOSE, now)
        self._replace(peer)
        return True

    # -------------------------------------------------------------------------------- acknowledging

    def _note_what_found_no_room(self, entry: ReceiverEntry, packet: Packet) -> None:
        """The sender's window is larger than ours, in messages or in bytes, and it may
        be waiting: what would fit is missing."""
        first = wire.first_seqno(packet.data, PREFIX)
        if first is not None and precedes(entry.ring.hr, first):
            entry.ring.announce(first)

    def _want_ack(self, sender: int, entry: ReceiverEntry, delay: int, now: Instant) -> None:
        """An ack after `delay` at the latest, if there is none due before, and never
        too soon after the last."""
        due = entry.ack_due(now, delay, self.ack_min)
        if due <= now:
            self._acknowledge(sender, entry, now)
        elif entry.ack_at is None or due < entry.ack_at:
            entry.ack_at = due
            heappush(self.acks, (due, sender))

    def _acknowledge(self, sender: int, entry: ReceiverEntry, now: Instant) -> None:
        entry.last_ack, entry.ack_at = now, None
        entry.stream.unacked_messages = entry.stream.unacked_bytes = 0
        self.counters.unicast_acks_sent += 1
        ack = control.Ack(entry.conn_id, entry.ring.low, self.timestamps.next(), self._grant(now))
        self.send_control(control.ACK, ack, sender, now)

    def _acknowledge_due(self, now: Instant) -> None:
        while self.acks and self.acks[0][0] <= now:
            due, sender = heappop(self.acks)
            entry = self.receivers.get(sender)
            if entry is not None and entry.ack_at == due:
                self._acknowledge(sender, entry, now)

    def _grant(self, now: Instant) -> int:
        """Bytes that a sender may have on the way to us: shared among all connections
        that were heard lately."""
        if now >= self.counted_at + RECOUNT:
            self.counted_at = now
            self.num_active = sum(entry.stream.heard >= now - ACTIVE
                                  for entry in self.receivers.values())
        return self.budget.share("unicast3", max(1, self.num_active), self.config.max_bytes)

    def acknowledge_all(self, now: Instant) -> None:
        """Send every ack that waits for its time: this member leaves (decision 17)."""
        for sender, entry in self.receivers.items():
            if entry.ack_at is not None:
                self._acknowledge(sender, entry, now)

    # ----------------------------------------------------------------------------------- delivering

    def deliver(self, limit: int, now: Instant) -> int:
        """Hand at most `limit` messages in order to the application, besides OOB
        messages, which it gets at once: a window more than it wants, and then in order
        too. How many it got."""
        handed = self.oob.hand_over(limit, self.stack.effects)
        if self.receiving:
            handed += self._deliver_leaving(limit - handed, now)
            handed += self._deliver_own(limit - handed, now)
            handed += self._deliver_ready(limit - handed, now)
        self.counters.unicast_msgs_delivered += handed
        return handed

    def _deliver_ready(self, limit: int, now: Instant) -> int:
        handed = 0
        while self.ready and handed < limit and not self.leaving:
            sender = next(iter(self.ready))
            entry = self.ready.pop(sender)
            handed += entry.stream.take(limit - handed, self.stack.effects.deliveries,
                                        self.view_id, now)
            if entry.has_next:
                self.ready[sender] = entry              # behind the others
            if entry.stream.marks.flags or not entry.stream.outstanding:
                self._free(sender, entry, now)
        return handed

    def _deliver_own(self, limit: int, now: Instant) -> int:
        self.own_ready = False
        if self.own is None or limit <= 0:
            return 0
        handed = self.own.take(limit, self.stack.effects.deliveries, self.view_id, now)
        self._free_own()
        return handed

    def _deliver_leaving(self, limit: int, now: Instant) -> int:
        """What was ready when its connection was replaced comes before anything else of
        its sender."""
        handed = 0
        while self.leaving and handed < limit:
            entry = self.leaving[0]
            taken = entry.stream.take(limit - handed, self.stack.effects.deliveries,
                                      self.view_id, now)
            handed += taken
            if not taken and not entry.has_next:
                self._give_up(self.leaving.pop(0))
        return handed

    def delivered(self, batch: Batch, now: Instant) -> None:
        """The application has finished `batch`: it may be acknowledged (and never
        before)."""
        stream = batch.stream
        stream.finish(batch)
        sender = batch.sender.incarnation
        entry = self.receivers.get(sender)
        if stream is self.own:
            self._free_own()
        elif entry is not None and entry.stream is stream:
            self._free(sender, entry, now)

    def _free(self, sender: int, entry: ReceiverEntry, now: Instant) -> None:
        """Of what is finished, tell the sender before long; at once when it is much."""
        if entry.stream.free():
            urgent = entry.stream.is_report_due(self._grant(now))
            self._want_ack(sender, entry, 0 if urgent else self.ack_max, now)

    def _free_own(self) -> None:
        if self.own is not None and self.own.free():
            self.senders[self.local.incarnation].window.marks.forget(self.own.ring.low)
            self.stack.effects.writable = True

    # ---------------------------------------------------------------------------------------- views

    def view(self, view: View, resumes: dict[int, int], now: Instant) -> None:
        """Connections with those who left begin to close, and their blocked senders are
        told; who came may have written already."""
        left = self.members.keys() - {member.incarnation for member in view.members}
        came = [member.incarnation for member in view.members
                if member.incarnation not in self.members]
        most_gone = max(MOST_GONE, len(self.members), len(view.members))
        self.members, self.view_id = {member.incarnation: member for member in view.members}, view.id
        for peer in left:
            if peer in self.senders:
                self._leave_alone(self.senders[peer], now)
            if peer in self.receivers:
                self.receivers[peer].on(Event.PEER_LEFT, now)
            self.syncs.done(peer)
            self.refusing.discard(peer)
        self._bound_gone(most_gone)
        self.stack.effects.writable = True
        self._plan_reaping(*self.senders.values(), *self.receivers.values())
        for peer in came:
            for packet in self.early.take(peer):
                self._on_data(packet, now)
        self.above.view(view, resumes, now)

    def _leave_alone(self, entry: SenderEntry, now: Instant) -> None:
        """The receiver is not in the view any more. If it had refused messages, that
        was true."""
        entry.window.close()
        entry.on(Event.PEER_LEFT, now)
        if entry.is_doubted:
            self._carry_out(entry.on(Event.CLOSE, now), entry, now)

    def left(self, members: set[int], now: Instant) -> None:
        """No ack of theirs can come any more: the application is told at once what they
        have not acknowledged."""
        for peer in members - self.members.keys():
            entry = self.senders.get(peer)
            if entry is not None and entry.num_unacked():
                self._carry_out(entry.on(Event.CLOSE, now), entry, now)
        self.above.left(members, now)

    def stop_receiving(self, now: Instant) -> None:
        """The application takes no more messages: those who send are not to wait. They
        are told what it has finished until they say that they know it (see `untold`),
        because nobody could tell them later."""
        self.acknowledge_all(now)
        self.receiving = False
        self._refuse_all(now)
        self._arm(now)
        to_ourselves = self.senders.get(self.local.incarnation)
        if to_ourselves is not None:
            self._carry_out(to_ourselves.on(Event.CLOSE, now), to_ourselves, now)

    def untold(self) -> list[int]:
        """Return who may not know yet what this member had finished of its messages
        when it stopped receiving."""
        return [] if self.receiving else [peer for peer in self.receivers if peer in self.members]

    def _refuse_all(self, now: Instant) -> None:
        for peer in self.untold():
            self._refuse(peer, self.receivers[peer].conn_id, now)

    def close_all(self, now: Instant) -> None:
        """This member leaves: its peers may forget its connections."""
        for peer, entry in self.senders.items():
            if entry.state is not State.CLOSED and peer != self.local.incarnation:
                self._say_close(peer, entry.conn_id, now)

    # ---------------------------------------------------------------------------------- connections

    def _say_close(self, peer: int, conn_id: ConnId, now: Instant) -> None:
        self.counters.closes_sent += 1
        self.send_control(control.CLOSE, control.Close(conn_id), peer, now)

    def _carry_out(self, act: int, entry: SenderEntry, now: Instant) -> None:
        """What the table asks for when a sender's entry is CLOSED."""
        if not act & Act.REMOVE:
            return
        peer = entry.dest.incarnation
        failed = entry.give_up(self.local, self.view_id)
        self.counters.unicast_undelivered += sum(map(len, failed))
        self.stack.effects.failures += failed
        if act & Act.SAY_CLOSE and peer != self.local.incarnation:
            self._say_close(peer, entry.conn_id, now)
        del self.senders[peer]
        self.unacked.pop(peer, None)
        if entry.dest == self.local:
            self.own = None
        self.counters.conns_closed += 1
        self.stack.effects.closed.append(entry.dest)
        self.stack.effects.writable = True

    def _forget_receiver(self, sender: int) -> ReceiverEntry:
        self.ready.pop(sender, None)
        self.gapped.pop(sender, None)
        self.counters.conns_closed += 1
        return self.receivers.pop(sender)

    def _replace(self, sender: int) -> None:
        """The sender has closed this connection: what is ready of it is still handed
        over, and nothing else can come."""
        entry = self._forget_receiver(sender)
        self.closed.remember(sender, Closed(entry.conn_id, entry.ring.hd, by_sender=True,
                                            stream=None))
        self.leaving.append(entry)
        while len(self.leaving) > max(MOST_LEAVING, len(self.members)):
            self._give_up(self.leaving.pop(0))

    def _close_receiver(self, sender: int) -> None:
        """This connection has timed out here; its sender may think otherwise."""
        entry = self._forget_receiver(sender)
        stream = entry.stream if entry.is_busy else None
        self.closed.remember(sender, Closed(entry.conn_id, entry.ring.hd, by_sender=False,
                                            stream=stream))

    def _bound_gone(self, most: int) -> None:
        """A member that comes and goes again and again must not fill the memory until
        its connections time out. Should it be back one day with one of these, what the
        application was not given is unacknowledged, and comes again."""
        gone = [peer for peer in self.receivers if peer not in self.members]
        for peer in gone[:max(0, len(gone) - most)]:
            entry = self._forget_receiver(peer)
            self.closed.remember(peer, Closed(entry.conn_id, entry.ring.hd, by_sender=False,
                                              stream=None))
            self._give_up(entry)

    def _give_up(self, entry: ReceiverEntry) -> None:
        self.counters.unicast_gone_undelivered += entry.num_stranded
        entry.ring.close()

    def _plan_reaping(self, *entries: SenderEntry | ReceiverEntry) -> None:
        """See that the task looks when the first of these entries may have to close or
        go."""
        due = [instant for entry in entries if (instant := self._reaped_at(entry)) is not None]
        self.next_reap = min([*due, self.next_reap] if self.next_reap is not None else due,
                             default=None)

    def _reaped_at(self, entry: SenderEntry | ReceiverEntry) -> Instant | None:
        if entry.state is State.CLOSING:
            return entry.touched + self.close_timeout
        return entry.touched + self.expiry if self.expiry else None

    def _reap(self, now: Instant) -> None:
        """The reaping part of the retransmission task; never of what has something left
        to do (U10)."""
        for sender_entry in list(self.senders.values()):
            self._carry_out(self._age(sender_entry, sender_entry.num_unacked() == 0, now),
                            sender_entry, now)
        for sender, entry in list(self.receivers.items()):
            if entry.stream.outstanding or entry.has_next:
                entry.touched = now                     # the application comes first
            elif self._age(entry, entry.is_idle, now) & Act.REMOVE:
                self._close_receiver(sender)

    def _age(self, entry: SenderEntry | ReceiverEntry, is_idle: bool, now: Instant) -> int:
        due = self._reaped_at(entry)
        if due is None or due > now:
            return Act.NOTHING
        if entry.state is State.OPEN:
            if is_idle:
                return entry.on(Event.EXPIRED, now)
            entry.touched = now
            return Act.NOTHING
        if isinstance(entry, SenderEntry):
            entry.window.close()                        # nothing comes in from here on ...
            if entry.num_unacked() and entry.dest.incarnation in self.members:
                entry.window.reopen()  # ... but something just did, or its receiver is back: it is
                                       # in use
                return entry.on(Event.USED, now)
        return entry.on(Event.TIMED_OUT, now)

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        due = [instant for instant in (self.next_scan, self.next_reap) if instant is not None]
        if self.acks:
            due.append(self.acks[0][0])
        if self.own_ready:
            due.append(0)
        return min(due, default=None)

    def tick(self, now: Instant) -> None:
        """Acks that are due; and every xmit_interval, while anything is missing,
        unacknowledged or unknown, the retransmit task."""
        self._acknowledge_due(now)
        if self.next_scan is not None and self.next_scan <= now:
            self.next_scan = None
            self._retransmit(now)
            self._arm(now)
        if self.next_reap is not None and self.next_reap <= now:
            self._reap(now)
            self.next_reap = None
            self._plan_reaping(*self.senders.values(), *self.receivers.values())

    def _retransmit(self, now: Instant) -> None:
        """The retransmit task of both ends: the highest message again where HA < HS
        stands still; gaps; SEND_FIRST_SEQNOs."""
        for peer, entry in list(self.unacked.items()):
            if not entry.has_unacked:
                del self.unacked[peer]
            elif entry.stands_still():
                self.counters.unicast_highest_resent += self._repeat(entry,
                                                                     [(entry.highest_sent, entry.highest_sent)], now)
        for peer, gapped in list(self.gapped.items()):
            if gapped.stream.scan(now):
                self._free(peer, gapped, now)
            if gapped.is_busy:
                self._ask(peer, gapped, now)
            else:
                del self.gapped[peer]
        if self.refusals.scan(tuple(self.untold())):
            self._refuse_all(now)
        for peer, conn_id in self.syncs.take_due(now).items():
            self.counters.syncs_sent += 1
            self.send_control(control.SEND_FIRST_SEQNO,
                               control.SendFirstSeqno(conn_id, self.timestamps.next()), peer, now)
        self.syncs.forget_before(now - self.syncs.min_interval)
        self.counters.unicast_early_dropped += self.early.expire(now
                                                                 - max(EARLY_SYNCS * self.syncs.min_interval, 2 * self.interval))

    def _ask(self, peer: int, entry: ReceiverEntry, now: Instant) -> None:
        """XMIT-REQ for what is missing, to its sender, as long as that is in the
        view."""
        for ranges in requests(entry.gaps.scan(entry.ring),
                               self.config.max_datagram) if peer in self.members else ():
            self.counters.unicast_xmit_reqs_sent += 1
            self.send_control(control.XMIT_REQ,
                               control.XmitReq(entry.conn_id, ranges, self.timestamps.next()),
                               peer, now)

    def _arm(self, now: Instant) -> None:
        if self.next_scan is None and (self.unacked or self.gapped or self.syncs.wanted
                                       or self.early.size or self.untold()):
            self.next_scan = now + self.interval

    # --------------------------------------------------------------------------------------- status

    def num_unacked(self) -> int:
        """Own messages, framed or waiting, that their receivers have not
        acknowledged."""
        return sum(entry.num_unacked() for entry in self.senders.values())

    def status(self) -> dict[str, int]:
        missing = sum(entry.ring.num_missing for entry in self.gapped.values())
        return {"num_connections": len(self.senders) + len(self.receivers),
                "unicast_unacked": self.num_unacked(),
                "unicast_missing": missing, "num_closed_connections": len(self.closed),
                **asdict(self.counters)}


def comes_last(packet: Packet) -> bool:
    return packet.kind == control.MESSAGE
