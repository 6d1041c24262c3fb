"""The sending end of one connection (UNICAST3.txt, "Design").

The window of a SenderEntry keeps each message until the receiver acknowledges it. HA is
the highest seqno that is acknowledged, HS the highest that was sent. The first message
of a connection travels alone, in a datagram of the kind FIRST, whenever it is sent. The
entry repeats messages in three cases:

- the receiver asks for what it misses (XMIT-REQ);
- the receiver has no window and asks where to begin (SEND_FIRST_SEQNO, see `sync.py`);
- the retransmit task finds that HA is below HS and that neither has moved.

What the receiver says counts only if it is later than all that it has said before.
"""

from dataclasses import dataclass, field

from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast._core.window import Window
from ringcast.address import Address
from ringcast.protocols.budget import set_window_limit
from ringcast.protocols.retransmission import Backoff, Pace
from ringcast.protocols.seqnos import MODULUS, Range, Seqno, precedes
from ringcast.protocols.undelivered import as_sent
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.control import ConnId, Timestamp
from ringcast.protocols.unicast3.states import TABLE, Act, Event, State
from ringcast.stack import Instant

MOST_LATE = 8                           # timestamps in a row that seem late; so many are not


@dataclass(slots=True)
class SenderEntry:
    """Our end of one connection to `dest`. Any thread may use its window (see
    SendWindow); the rest belongs to the stack's owner."""

    context: Context
    dest: Address
    conn_id: ConnId
    window: SendWindow
    touched: Instant                    # when it was used last, or began to close
    first: Seqno                        # of its first message
    state: State = State.OPEN
    # The latest timestamp of an ack or a SEND_FIRST_SEQNO (UNICAST3-SYNC.txt), and
    # those that came after it and were not later, and when.
    last_timestamp_received: Timestamp | None = None
    late: list[tuple[Timestamp, Instant]] = field(default_factory=list)
    was_granted: bool = False           # the receiver has taken messages
    is_doubted: bool = False            # it refused once after that: it must refuse again
    outbid_by: ConnId | None = None     # a later connection that is not ours: it must be said again
    answered: Instant | None = None     # when a SEND_FIRST_SEQNO was answered last
    backoff: Backoff = field(default_factory=Backoff)
    pace: Pace = field(default_factory=Pace)

    @property
    def ring(self) -> Window:
        return self.window.ring

    @property
    def highest_acked(self) -> Seqno:
        return self.window.ring.low

    @property
    def highest_sent(self) -> Seqno:
        return self.window.sent

    @property
    def has_unacked(self) -> bool:
        """Return whether HA is below HS."""
        return precedes(self.highest_acked, self.highest_sent)

    def num_unacked(self) -> int:
        """Return how many messages, sent or waiting, are not acknowledged."""
        return (self.window.ring.hr - self.window.ring.low) % MODULUS

    @property
    def is_idle(self) -> bool:
        """Return whether all is acknowledged."""
        return self.num_unacked() == 0

    def on(self, event: Event, now: Instant) -> int:
        """Go to the state that the table gives, and return what else must be done."""
        self.state, act = TABLE[self.state, event]
        if act & Act.TOUCH:
            self.touched = now
        return act

    # -------------------------------------------------------------------------------------- sending

    def send_waiting(self, full_only: bool, now: Instant) -> None:
        """Send what waits in the window, in the order of the seqnos."""
        if self.window.sent == (self.first - 1) % MODULUS:
            self._send_as(control.FIRST, full_only, 1, now)
        if self.window.waiting:
            self._send_as(control.MESSAGE, full_only, 0, now)

    def _send_as(self, kind: int, full_only: bool, most: int, now: Instant) -> None:
        layer = self.context.layer
        wall = now + layer.stack.anchor
        datagrams = self.window.frame(self._make_prefix(kind), full_only, most, wall)
        layer.send_datagrams(kind, self.dest.incarnation, datagrams, now)

    def _make_prefix(self, kind: int) -> bytes:
        """Return what stands in front of the messages of a datagram."""
        header = self.context.layer.stack.header(kind, self.dest.incarnation)
        return header + self.conn_id.to_bytes(8, "little")

    def repeat(self, wanted: list[Range], now: Instant) -> int:
        """Send messages again, as far as they may be repeated now, and return how many
        that were. The connection's first message is marked as the first again."""
        messages = 0
        if wanted and wanted[0][0] == self.first:
            messages = self._repeat_as(control.FIRST, [(self.first, self.first)], now)
            last = wanted[0][1]
            rest = [((self.first + 1) % MODULUS, last)] if last != self.first else []
            wanted = rest + wanted[1:]
        return messages + self._repeat_as(control.MESSAGE, wanted, now)

    def repeat_highest(self, now: Instant) -> int:
        """Send message HS again, and return how many messages that were. The receiver
        then sees what is missing before it."""
        return self.repeat([(self.highest_sent, self.highest_sent)], now)

    def answer_sync(self, now: Instant) -> bool:
        """Send the lowest message again, marked as the first: a receiver that has no
        window begins one with it. This is done at most once in sync_min_interval, and
        only if there is something to send; return whether it was done (decision 19)."""
        is_early = self.answered is not None and now < self.answered + self.context.sync_interval
        if not self.has_unacked or is_early:
            return False
        self.answered = now
        lowest = (self.highest_acked + 1) % MODULUS
        self._repeat_as(control.FIRST, [(lowest, lowest)], now)
        return True

    def scan(self, now: Instant) -> int:
        """Send message HS again if neither HA nor HS has moved since the last scan;
        return how many messages that were."""
        is_stalled = self.backoff.stalls((self.highest_acked, self.highest_sent))
        return self.repeat_highest(now) if is_stalled else 0

    def _repeat_as(self, kind: int, wanted: list[Range], now: Instant) -> int:
        datagrams, messages = self.pace.pack(self.window, wanted, self._make_prefix(kind),
                                             self.context.interval, now)
        self.context.layer.send_datagrams(kind, self.dest.incarnation, datagrams, now)
        return messages

    # ----------------------------------------------------------------------- what the receiver says

    def accept_timestamp(self, timestamp: Timestamp, now: Instant) -> bool:
        """Return whether this is the latest that the receiver has said. What it said
        before that came late and means nothing now.

        But the latest may have been a forgery, and then nothing true is later.
        Datagrams that are late come between others that are not, or all at once. So if
        MOST_LATE come in a row, each at least an interval after the one before and
        later than it, they are not late: the forged timestamp is forgotten.
        """
        last = self.last_timestamp_received
        if last is None or precedes(last, timestamp):
            self.late.clear()
        elif not self.late or (precedes(self.late[-1][0], timestamp)
                               and now >= self.late[-1][1] + self.context.interval):
            self.late.append((timestamp, now))
        if 0 < len(self.late) < MOST_LATE or (self.late and self.late[-1][0] != timestamp):
            return False
        self.late.clear()
        self.last_timestamp_received = timestamp
        return True

    def accept_credit(self, credit: int, parts: int) -> None:
        """Let at most so many bytes be on the way; the receiver has `parts` bytes of a
        large message. It takes messages."""
        self.was_granted, self.is_doubted = True, False
        context = self.context
        set_window_limit(self.window, min(credit, context.most_unacked), context.config, parts)

    def accept_refusal(self) -> bool:
        """Return whether to believe that the receiver takes no messages. If it has
        taken some, it must refuse twice."""
        if self.was_granted and not self.is_doubted:
            self.is_doubted = True
            return False
        return True

    def was_forgotten(self, request: control.XmitReq) -> bool:
        """Return whether the receiver asks for what it has acknowledged. Then it had
        forgotten this connection, and a late copy of the first message has opened a new
        window there. (A request that an ack overtook asks for such things too, but its
        timestamp is older.)"""
        if not request.ranges or self.last_timestamp_received is None:
            return False
        return not precedes(self.highest_acked, request.ranges[0][0]) and precedes(
            self.last_timestamp_received, request.timestamp)

    # -------------------------------------------------------------------------------------- the end

    def begin_anew(self, conn_id: ConnId, now: Instant) -> None:
        """Continue as another connection with what is not acknowledged. The receiver
        takes it in place of the window that it has."""
        self.conn_id = conn_id
        self.first = (self.highest_acked + 1) % MODULUS
        if self.has_unacked:
            self._repeat_as(control.FIRST, [(self.first, self.first)], now)

    def can_end(self) -> bool:
        """Close the window, and return whether the entry may be removed: not if a
        message came in just before, or if its receiver is back in the view."""
        self.window.close()
        if self.is_idle or self.dest.incarnation not in self.context.members:
            return True
        self.window.reopen()
        return False

    def give_up(self) -> list[Batch]:
        """Close the window and empty it. Return what nobody acknowledged, as the
        application has sent it."""
        local, view_id = self.context.local, self.context.view_id
        self.window.close()
        first = (self.ring.low + 1) % MODULUS
        runs = self.window.marks.split(first, self.ring.remove_many())
        self.window.skip()
        return as_sent(runs, self.window.stamps, local, self.dest, view_id)
