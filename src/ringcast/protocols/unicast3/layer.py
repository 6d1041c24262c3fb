"""The layer: where the stack meets the parts of UNICAST3.

    sending:     Senders (sending.py) -> SenderEntry (sender.py) -> datagrams
    receiving:   datagrams -> Receivers (receiving.py) -> ReceiverEntry (receiver.py)
    delivering:  ReceiverEntry -> Deliveries (delivery.py) -> the application

The layer takes the packets of its kinds and passes each to the part whose rule it is:
messages and CLOSE to Receivers, acks, requests and SEND_FIRST_SEQNO to Senders. Views
go to Lifecycle. It has three timers: acks that are due (acks.py), the retransmit task
of both ends, and reaping (lifecycle.py). The parts share a Context (context.py).

Whatever a peer sends, nothing raises: what makes no sense is counted and dropped.
"""

from collections.abc import Callable

import msgspec

from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.config import Config
from ringcast.kinds import Kind, takes
from ringcast.protocols.budget import Budget
from ringcast.protocols.seqnos import Seqno, is_seqno
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.control import ConnId
from ringcast.protocols.unicast3.lifecycle import Lifecycle
from ringcast.protocols.unicast3.loopback import Loopback
from ringcast.protocols.unicast3.receiving import Receivers
from ringcast.protocols.unicast3.sender import SenderEntry
from ringcast.protocols.unicast3.sending import Senders
from ringcast.stack import Instant, Layer, Packet, sooner
from ringcast.status import Layers
from ringcast.view import View


class Unicast3(Layer):
    """The layer. `budget` is shared with the other protocols. A member that is not
    `receiving` refuses all messages. The first conn-id is the one after `conn_id`, the
    first timestamp the one after `timestamp`, the first seqno of a connection the one
    after `offset`.

    Any thread may use the windows of senders (see SendWindow); everything else belongs
    to the stack's owner.
    """

    def __init__(self, local: Address, config: Config, budget: Budget, *,
                 receiving: bool = True, conn_id: ConnId = 0,
                 timestamp: int = 0, offset: Seqno = 0) -> None:
        self.context = Context(self, local, config, receiving, budget.sending)
        self.counters = self.context.counters
        self.loopback = Loopback(self.context)
        self.senders = Senders(self.context, self.loopback, conn_id, offset)
        self.receivers = Receivers(self.context, self.loopback, budget, timestamp)
        self.acks, self.deliveries = self.receivers.acks, self.receivers.deliveries
        self.closed, self.early = self.receivers.closed, self.receivers.early
        self.leaving = self.deliveries.leaving
        self.lifecycle = Lifecycle(self.context, self.senders, self.receivers)

    @property
    def members(self) -> dict[int, Address]:
        """Return the members of the view, by incarnation."""
        return self.context.members

    # -------------------------------------------------------------------------------------- sending

    def connection(self, dest: Address, now: Instant) -> SenderEntry:
        """Return the open connection to `dest`, a new one if there is none.
        NotMemberError if `dest` is not in the view or takes no messages."""
        return self.senders.connection(dest, now)

    def flush(self, dest: Address, now: Instant, full_only: bool = False) -> None:
        """Send what waits for `dest`, in the order of the seqnos; with `full_only` full
        datagrams alone."""
        self.senders.flush(dest, now, full_only)

    def addresses(self) -> list[Address]:
        """Return the members to which there are connections."""
        return [entry.dest for entry in self.senders.values()]

    def num_unacked(self) -> int:
        """Return how many own messages, sent or waiting, are not acknowledged."""
        return self.senders.num_unacked()

    # ------------------------------------------------------------------------------------ receiving

    def receive(self, packets: list[Packet], now: Instant) -> None:
        """Take the first message of a connection, and control datagrams, before the
        other messages of a batch."""
        if len(packets) > 1 and len({packet.kind for packet in packets}) > 1:
            packets = sorted(packets, key=comes_last)
        super().receive(packets, now)

    @takes(control.FIRST, control.MESSAGE)
    def _on_data(self, packet: Packet, now: Instant) -> None:
        """On reception of messages."""
        self.receivers.take_messages(packet, now)

    def on_control(self, kind: Kind, handle: Callable[..., bool], packet: Packet,
                   now: Instant) -> None:
        """Take control packets of members. A member that leaves may send its last acks
        and CLOSE after the view."""
        body = kind.decode(packet.data)
        is_welcome = packet.sender in self.members or kind in (control.ACK, control.CLOSE)
        is_sound = is_welcome and body is not None and is_seqno(body.conn_id)
        if not is_sound or not handle(packet.sender, body, now):
            self.counters.unicast_bad += 1

    @takes(control.ACK)
    def _on_ack(self, peer: int, ack: control.Ack, now: Instant) -> bool:
        """On reception of ACK(seqno, timestamp)."""
        return self.senders.take_ack(peer, ack, now)

    @takes(control.XMIT_REQ)
    def _on_xmit_req(self, peer: int, request: control.XmitReq, now: Instant) -> bool:
        """On reception of XMIT-REQ."""
        return self.senders.answer_request(peer, request, now)

    @takes(control.SEND_FIRST_SEQNO)
    def _on_send_first_seqno(self, peer: int, sync: control.SendFirstSeqno, now: Instant) -> bool:
        """On reception of SEND-FIRST-SEQNO(timestamp)."""
        return self.senders.answer_sync(peer, sync, now)

    @takes(control.CLOSE)
    def _on_close(self, peer: int, close: control.Close, now: Instant) -> bool:
        """On reception of CLOSE."""
        self.receivers.take_close(peer, close, now)
        return True

    # ----------------------------------------------------------------------------------- delivering

    def deliver(self, limit: int, now: Instant) -> int:
        return self.deliveries.deliver(limit, now)

    def delivered(self, batch: Batch, now: Instant) -> None:
        self.deliveries.finish(batch, now)

    # ------------------------------------------------------------------------------- views, leaving

    def view(self, view: View, now: Instant) -> None:
        self.lifecycle.install_view(view, now)
        self.above.view(view, now)

    def left(self, members: set[int], now: Instant) -> None:
        self.lifecycle.fail_unacked(members, now)
        self.above.left(members, now)

    def stop_receiving(self, now: Instant) -> None:
        """Take no more messages: the application does not want them, or this member
        leaves."""
        self.receivers.stop_receiving(now)
        self._arm_scan(now)
        to_ourselves = self.senders.get(self.context.local.incarnation)
        if to_ourselves is not None:
            self.lifecycle.close_sender(to_ourselves, now)

    def peers_to_tell(self) -> list[int]:
        """Return the members that may not know yet what this member had finished of
        their messages when it stopped receiving."""
        return self.receivers.peers_to_tell()

    def send_closes(self, now: Instant) -> None:
        """Tell all receivers that our connections end, because this member leaves."""
        self.lifecycle.send_closes(now)

    # ----------------------------------------------------------------------------------------- time

    def deadline(self) -> Instant | None:
        context, heap = self.context, self.acks.heap
        if self.loopback.is_ready:
            return 0
        due = sooner(context.next_scan, context.next_reap)
        return sooner(due, heap[0][0]) if heap else due

    def tick(self, now: Instant) -> None:
        """Send the acks that are due. Every xmit_interval, while anything is missing,
        unacknowledged or unknown, run the retransmit task."""
        context = self.context
        self.acks.send_due(now)
        if context.next_scan is not None and context.next_scan <= now:
            context.next_scan = None
            self.senders.scan(now)
            self.receivers.scan(now)
            self._arm_scan(now)
        if context.next_reap is not None and context.next_reap <= now:
            self.lifecycle.reap_entries(now)

    def _arm_scan(self, now: Instant) -> None:
        if self.senders.unacked or self.receivers.has_work():
            self.context.arm_scan(now)

    # --------------------------------------------------------------------------------------- status

    def describe(self, status: Layers) -> None:
        missing = sum(entry.ring.num_missing for entry in self.receivers.gapped.values())
        status.unicast = msgspec.structs.replace(
            self.counters, num_connections=len(self.senders) + len(self.receivers),
            unicast_unacked=self.num_unacked(), unicast_missing=missing,
            num_closed_connections=len(self.receivers.closed))


def comes_last(packet: Packet) -> bool:
    return packet.kind == control.MESSAGE
