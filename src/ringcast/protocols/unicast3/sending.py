"""The sending ends of all connections of a member (UNICAST3.txt, "SENDER: ...").

Senders opens a connection when there is something to send, and has a credit of
FIRST_CREDIT bytes for it until the receiver's first ack says more. It finds the entry
that a control datagram is about: the conn-id must be the same, everything else is late.
A receiver that asks about a connection that is closed here gets a CLOSE.

When an entry is closed, whatever the reason, `perform_act` removes it and reports to
the application what nobody has acknowledged: what `send()` accepted is delivered or
reported (U9).
"""

from ringcast._core.send_window import SendWindow
from ringcast._core.seqno_table import SeqnoTable
from ringcast.address import Address
from ringcast.errors import NotMemberError
from ringcast.protocols.budget import set_window_limit
from ringcast.protocols.retransmission import Quota, clipped
from ringcast.protocols.seqnos import MODULUS, Seqno, is_seqno, precedes
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.control import ConnId
from ringcast.protocols.unicast3.loopback import Loopback
from ringcast.protocols.unicast3.sender import SenderEntry
from ringcast.protocols.unicast3.states import Act, Event
from ringcast.protocols.unicast3.sync import Counter
from ringcast.stack import Instant

FIRST_CREDIT = 256 << 10                # bytes, before a receiver has granted any


class Senders(dict[int, SenderEntry]):
    """The sending ends of this member's connections, by the incarnation of the other
    end. The first conn-id is the one after `conn_id`, the first seqno of a connection
    the one after `offset`."""

    def __init__(self, context: Context, loopback: Loopback, conn_id: ConnId,
                 offset: Seqno) -> None:
        super().__init__()
        self.context, self.loopback, self.offset = context, loopback, offset
        self.conn_ids = Counter(conn_id)
        self.unacked: dict[int, SenderEntry] = {}   # which the retransmit task looks at
        self.refusing: set[int] = set()             # members that take no messages
        self.quota = Quota()

    def connection(self, dest: Address, now: Instant) -> SenderEntry:
        """Return the open connection to `dest`, a new one if there is none.
        NotMemberError if `dest` is not in the view or takes no messages."""
        context = self.context
        if context.members.get(dest.incarnation) != dest:
            names = ", ".join(sorted(member.name for member in context.members.values()))
            raise NotMemberError(f"{dest} is not in the view; send to one of {names}")
        if dest.incarnation in self.refusing or (dest == context.local and not context.receiving):
            raise NotMemberError(f"{dest} takes no messages (deliver=False, or it is leaving); "
                                 "send to another member")
        entry = self.get(dest.incarnation)
        if entry is None or entry.on(Event.USED, now) & Act.REPLACE:
            entry = self._open_entry(dest, now)
        entry.window.reopen()
        return entry

    def _open_entry(self, dest: Address, now: Instant) -> SenderEntry:
        config = self.context.config
        ring = SeqnoTable(self.offset, capacity=config.capacity, max_bytes=config.max_bytes)
        window = SendWindow(ring, bundle=config.max_bundle_size, datagram=config.max_datagram)
        entry = SenderEntry(self.context, dest, self.conn_ids.next(), window, now,
                            first=(self.offset + 1) % MODULUS)
        self[dest.incarnation] = entry
        self.context.counters.conns_opened += 1
        if dest == self.context.local:
            self.loopback.open(window)
        else:
            set_window_limit(window, min(FIRST_CREDIT, self.context.most_unacked), config)
        self.context.arm_reaping(entry)
        return entry

    def flush(self, dest: Address, now: Instant, full_only: bool) -> None:
        """Send what waits for `dest`. A message that was pushed before its receiver
        left does not open the connection again: it is given up with the rest."""
        entry = self.get(dest.incarnation)
        if entry is None or not entry.window.waiting:
            return
        if dest.incarnation in self.context.members:
            entry.on(Event.USED, now)
        if dest == self.context.local:
            self.loopback.accept(entry.window)
            return
        entry.send_waiting(full_only, now)
        if entry.has_unacked:
            self.unacked[dest.incarnation] = entry
            self.context.arm_scan(now)

    def num_unacked(self) -> int:
        """Return how many messages, sent or waiting, are not acknowledged."""
        return sum(entry.num_unacked() for entry in self.values())

    # ---------------------------------------------------------------------------- control datagrams

    def _find_entry(self, peer: int, conn_id: ConnId) -> SenderEntry | None:
        """Return our connection to `peer` if it has this conn-id. What is about another
        connection is counted as late."""
        entry = self.get(peer)
        if entry is None or entry.conn_id != conn_id:
            self.context.counters.unicast_late += 1
            return None
        return entry

    def take_ack(self, peer: int, ack: control.Ack, now: Instant) -> bool:
        """Free what is acknowledged, at once, unless the ack was overtaken. Return
        False if it makes no sense. A member that takes no more messages repeats its ack
        until it gets a CLOSE."""
        counters = self.context.counters
        if not ack.is_sound:
            return False
        entry = self._find_entry(peer, ack.conn_id)
        if entry is None:
            self._outbid(peer, ack.conn_id, now)
            if ack.budget == 0:
                self.send_close(peer, ack.conn_id, now)
            return True
        if ack.seqno is not None and precedes(entry.highest_sent, ack.seqno):
            return False
        if not entry.accept_timestamp(ack.timestamp, now):
            counters.unicast_late += 1
            return True
        counters.unicast_acks_received += 1
        entry.outbid_by = None
        if ack.seqno is not None:
            entry.window.acknowledged(ack.seqno)
        if ack.budget == 0:
            self._take_refusal(entry, now)
            return True
        entry.accept_credit(ack.budget, ack.parts)
        if entry.window.is_held:
            self.flush(entry.dest, now, full_only=False)
        if not entry.has_unacked:
            self.unacked.pop(peer, None)
        self.context.effects.writable = True
        return True

    def _outbid(self, peer: int, conn_id: ConnId, now: Instant) -> None:
        """Go on above a connection that we have not opened, and that the receiver has
        instead of ours: somebody has opened it in our name. It must say so twice, and
        nothing of ours between: one datagram in its name begins nothing anew."""
        entry = self.get(peer)
        if entry is None or not precedes(entry.conn_id, conn_id):
            return
        is_said_again, entry.outbid_by = entry.outbid_by == conn_id, conn_id
        if is_said_again:
            self.context.counters.conns_opened += 1
            entry.begin_anew((conn_id + 1) % MODULUS or 1, now)

    def _take_refusal(self, entry: SenderEntry, now: Instant) -> None:
        """Close the connection if its receiver takes no messages. But one datagram in
        the name of a member does not close a connection that works: the highest message
        is sent again, and if the member refuses that too, or leaves, it is true."""
        peer = entry.dest.incarnation
        is_there = peer in self.context.members
        if not is_there or entry.accept_refusal():
            if is_there:
                self.refusing.add(peer)
            self.perform_act(entry.on(Event.CLOSE, now) | Act.SEND_CLOSE, entry, now)
        elif entry.has_unacked:
            self.context.counters.unicast_highest_resent += entry.repeat_highest(now)

    def answer_request(self, peer: int, request: control.XmitReq, now: Instant) -> bool:
        """Send again what the receiver asks for and the window still has. Return False
        if the request makes no sense."""
        counters = self.context.counters
        ranges = self.quota.take(peer, request.ranges, len(self.context.members), now)
        entry = self._find_entry(peer, request.conn_id)
        if entry is None:               # it was closed, and the receiver did not hear of that
            self.send_close(peer, request.conn_id, now)
            return True
        wanted = clipped(ranges, entry.highest_acked, entry.highest_sent)
        if wanted is None or not is_seqno(request.timestamp):
            return False
        counters.unicast_xmit_reqs_received += 1
        if entry.was_forgotten(request):
            counters.conns_opened += 1
            entry.begin_anew(self.conn_ids.next(), now)
        else:
            counters.unicast_xmit_rsps_sent += entry.repeat(wanted, now)
        return True

    def answer_sync(self, peer: int, sync: control.SendFirstSeqno, now: Instant) -> bool:
        """Send the lowest message as the first, unless the question was overtaken. (The
        retransmit task sends the highest.) Return False if it makes no sense."""
        counters = self.context.counters
        if not is_seqno(sync.timestamp):
            return False
        counters.syncs_received += 1
        entry = self._find_entry(peer, sync.conn_id)
        if entry is None:
            return True
        if not entry.accept_timestamp(sync.timestamp, now):
            counters.unicast_late += 1
        else:
            counters.syncs_answered += entry.answer_sync(now)
        return True

    # --------------------------------------------------------------------------- repeating, closing

    def scan(self, now: Instant) -> None:
        """Send the highest message of each connection again where HA is below HS and
        neither has moved since the last scan."""
        for peer, entry in list(self.unacked.items()):
            if not entry.has_unacked:
                del self.unacked[peer]
            else:
                self.context.counters.unicast_highest_resent += entry.scan(now)

    def perform_act(self, act: int, entry: SenderEntry, now: Instant) -> None:
        """Do what the table asks for when an entry is CLOSED; nothing if it is not."""
        if not act & Act.REMOVE:
            return
        context, peer = self.context, entry.dest.incarnation
        failed = entry.give_up()
        context.counters.unicast_undelivered += sum(map(len, failed))
        context.effects.failures += failed
        if act & Act.SEND_CLOSE and entry.dest != context.local:
            self.send_close(peer, entry.conn_id, now)
        del self[peer]
        self.unacked.pop(peer, None)
        if entry.dest == context.local:
            self.loopback.close()
        context.counters.conns_closed += 1
        context.effects.closed.append(entry.dest)
        context.effects.writable = True

    def send_close(self, peer: int, conn_id: ConnId, now: Instant) -> None:
        """Tell the receiver that this connection is closed."""
        self.context.counters.closes_sent += 1
        self.context.layer.send_control(control.CLOSE, control.Close(conn_id), peer, now)
