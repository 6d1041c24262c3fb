"""Acks: when a receiver sends them, and the credit that they carry (UNICAST3.txt,
"Design").

An ack says up to which seqno the application has finished the messages of one
connection (decision 17). It is cumulative and delayed. What the application has
finished is acknowledged within ack_max_interval; at once when it is much, or when a
duplicate shows that the last ack was lost; but never within ack_min_interval of the ack
before. A heap has the instants at which acks are due, so that the layer knows its
deadline however many connections there are.

Each ack carries a credit: how many bytes this sender may have on the way to us. All
connections that were heard lately share our socket buffer, so that together they do not
flood it. A large message is acknowledged when it is whole, and may be larger than that:
so an ack also says how much of it has come.
"""

from collections.abc import Mapping
from heapq import heappop, heappush

from ringcast.config import nanoseconds
from ringcast.protocols.budget import Budget
from ringcast.protocols.seqnos import Seqno
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.control import ConnId, Timestamp
from ringcast.protocols.unicast3.receiver import ReceiverEntry
from ringcast.protocols.unicast3.sync import Counter
from ringcast.stack import Instant

ACTIVE = 1_000_000_000    # nanoseconds: a connection that was heard within them has a share
RECOUNT = 100_000_000     # nanoseconds between two counts of these connections


class Acks:
    """The acks of all connections in `receivers`. `budget` is shared with the other
    protocols. The first timestamp is the one after `timestamp`."""

    def __init__(self, context: Context, receivers: Mapping[int, ReceiverEntry],
                 budget: Budget, timestamp: Timestamp) -> None:
        self.context, self.receivers, self.budget = context, receivers, budget
        self.min_interval = nanoseconds(context.config.ack_min_interval)
        self.max_interval = nanoseconds(context.config.ack_max_interval)
        self.timestamps = Counter(timestamp)
        # When acks are due, and to whom. An entry's ack_at says whether one still is.
        self.heap: list[tuple[Instant, int]] = []
        self.num_active, self.counted_at = 1, -RECOUNT

    def note_finished(self, entry: ReceiverEntry, now: Instant) -> None:
        """Free what the application has finished, and acknowledge it before long; at
        once when it is much."""
        if entry.stream.free():
            is_urgent = entry.stream.is_report_due(self.compute_credit(now))
            self.schedule(entry, 0 if is_urgent else self.max_interval, now)

    def schedule(self, entry: ReceiverEntry, delay: int, now: Instant) -> None:
        """Send an ack after `delay` at the latest, but not too soon after the last."""
        due = now + delay
        if entry.last_ack is not None:
            due = max(due, entry.last_ack + self.min_interval)
        if due <= now:
            self._acknowledge(entry, now)
        elif entry.ack_at is None or due < entry.ack_at:
            entry.ack_at = due
            heappush(self.heap, (due, entry.peer))

    def send_due(self, now: Instant) -> None:
        """Send the acks that are due."""
        while self.heap and self.heap[0][0] <= now:
            due, peer = heappop(self.heap)
            entry = self.receivers.get(peer)
            if entry is not None and entry.ack_at == due:
                self._acknowledge(entry, now)

    def send_all(self, now: Instant) -> None:
        """Send every ack that waits: this member leaves (decision 17)."""
        for entry in self.receivers.values():
            if entry.ack_at is not None:
                self._acknowledge(entry, now)

    def _acknowledge(self, entry: ReceiverEntry, now: Instant) -> None:
        entry.last_ack, entry.ack_at = now, None
        entry.stream.reported()
        self.context.counters.unicast_acks_sent += 1
        self._send_ack(entry.peer, entry.conn_id, entry.ring.low, self.compute_credit(now), now,
                       entry.stream.parts)

    def refuse(self, peer: int, conn_id: ConnId, finished: Seqno | None, now: Instant) -> None:
        """Tell a sender that this member takes no more messages, and what it has
        finished; None if it has no window for the connection."""
        self._send_ack(peer, conn_id, finished, 0, now)

    def tell(self, peer: int, conn_id: ConnId, finished: Seqno, now: Instant) -> None:
        """Acknowledge again what is finished of a connection that is closed here."""
        self._send_ack(peer, conn_id, finished, self.compute_credit(now), now)

    def _send_ack(self, peer: int, conn_id: ConnId, finished: Seqno | None, credit: int,
                  now: Instant, parts: int = 0) -> None:
        ack = control.Ack(conn_id, finished, self.timestamps.next(), credit, parts)
        self.context.layer.send_control(control.ACK, ack, peer, now)

    def compute_credit(self, now: Instant) -> int:
        """Return how many bytes each sender may have on the way to us."""
        if now >= self.counted_at + RECOUNT:
            self.counted_at = now
            self.num_active = sum(entry.stream.heard >= now - ACTIVE
                                  for entry in self.receivers.values())
        senders = max(1, self.num_active)
        return self.budget.share("unicast3", senders, self.context.config.max_bytes)
