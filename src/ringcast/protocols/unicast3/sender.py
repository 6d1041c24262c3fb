"""The sending end of a connection: what was sent and not acknowledged, HA and HS
(UNICAST3.txt, "Design")."""

from dataclasses import dataclass, field

from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast._core.window import Window
from ringcast.address import Address
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.frag import rejoin
from ringcast.protocols.retransmission import Backoff, Pace
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.protocols.unicast3.control import ConnId, Timestamp, XmitReq
from ringcast.protocols.unicast3.states import TABLE, Act, Event, State
from ringcast.stack import Instant

MOST_LATE = 8                           # things in a row that come late; so many are not late


@dataclass(slots=True)
class SenderEntry:
    """One connection to `dest`. Its window may be used by any thread (see SendWindow);
    the rest belongs to the stack's owner."""

    dest: Address
    conn_id: ConnId
    window: SendWindow
    touched: Instant
    first: Seqno                                        # of its first message
    state: State = State.OPEN
    last_timestamp_received: Timestamp | None = None  # of an ack or a SEND_FIRST_SEQNO
                                                      # (UNICAST3-SYNC.txt)
    # what came since that was not later, and when
    late: list[tuple[Timestamp, Instant]] = field(default_factory=list)
    was_granted: bool = False                         # the receiver has taken messages
    is_doubted: bool = False                          # it seems to take none any more, and was sent
                                                      # one to see if it refuses that
    answered: Instant | None = None                   # when a SEND_FIRST_SEQNO was answered last
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
        return precedes(self.highest_acked, self.highest_sent)

    def num_unacked(self) -> int:
        """Messages, sent or waiting, that are not acknowledged."""
        return (self.window.ring.hr - self.window.ring.low) % MODULUS

    def on(self, event: Event, now: Instant) -> int:
        """Go to the state that the table says; what else is to be done."""
        self.state, act = TABLE[self.state, event]
        if act & Act.TOUCH:
            self.touched = now
        return act

    def is_newer(self, timestamp: Timestamp, pause: int, now: Instant) -> bool:
        """Whether this is the latest that the receiver has said; an earlier one came
        late and means nothing now.

        But the latest may have been a lie, and then nothing true is later than that.
        What comes late comes between things that do not, or all at once; so the lie is
        forgotten when as many as MOST_LATE, each at least a `pause` after the other and
        later than that, were not.
        """
        if self.last_timestamp_received is None or precedes(self.last_timestamp_received,
                                                            timestamp):
            self.late.clear()
        elif not self.late or (precedes(self.late[-1][0], timestamp)
                               and now >= self.late[-1][1] + pause):
            self.late.append((timestamp, now))
        if 0 < len(self.late) < MOST_LATE or (self.late and self.late[-1][0] != timestamp):
            return False
        self.late.clear()
        self.last_timestamp_received = timestamp
        return True

    def is_refusal_believed(self) -> bool:
        """Whether to believe that the receiver takes no messages; of one that has taken
        some, only when it refuses another."""
        if self.was_granted and not self.is_doubted:
            self.is_doubted = True
            return False
        return True

    def grant(self) -> None:
        """The receiver says that it takes messages."""
        self.was_granted, self.is_doubted = True, False

    def was_forgotten(self, request: XmitReq) -> bool:
        """Whether the receiver asks for what it had acknowledged before: a late copy of
        the first message has opened a window for it when it had forgotten this
        connection. (A request that was overtaken by an ack asks for such things
        too.)"""
        if not request.ranges or self.last_timestamp_received is None:
            return False
        return not precedes(self.highest_acked, request.ranges[0][0]) and precedes(self.last_timestamp_received, request.timestamp)

    def stands_still(self) -> bool:
        """Look at HA and HS: whether the highest message is to be sent again, because
        neither has moved since the last scan."""
        return self.backoff.stalls((self.highest_acked, self.highest_sent))

    def give_up(self, local: Address, view_id: int) -> list[Batch]:
        """What nobody acknowledged, for the application that sent it; the window is
        empty and closed then."""
        self.window.close()
        first = (self.ring.low + 1) % MODULUS
        batches = self.window.marks.split(first, self.ring.remove_many())
        stamps = self.window.stamps
        self.window.skip()
        failed = []
        for batch in batches:
            if batch.flags & FRAGMENT:
                flags = batch.flags & ~FRAGMENT
                failed += [Batch(local, batch.last, [payload], view_id, self.dest,
                                 flags | Flag.INCOMPLETE if is_rest else flags)
                           for payload, is_rest in rejoin(batch.payloads)]
            else:
                failed.append(batch.addressed(local, self.dest, view_id, None,
                                              stamps.take(batch.first, len(batch))))
        return failed
