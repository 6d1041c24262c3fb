"""The receiving end of a connection: its window, and when it acknowledges
(UNICAST3.txt, "Design": delayed, cumulative acks)."""

from dataclasses import dataclass

from ringcast.protocols.incoming import Incoming
from ringcast.protocols.unicast3.control import ConnId
from ringcast.protocols.unicast3.states import TABLE, Act, Event, State
from ringcast.stack import Instant


@dataclass(slots=True)
class ReceiverEntry(Incoming):
    """One connection from the sender of `stream`."""

    conn_id: ConnId
    touched: Instant
    state: State = State.OPEN
    last_ack: Instant | None = None     # when one was sent
    ack_at: Instant | None = None       # when the next one is due

    @property
    def is_busy(self) -> bool:
        """Whether the retransmit task has anything to look at."""
        return self.ring.hd != self.ring.hr or self.stream.is_incomplete

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do for it: all that came was finished and
        acknowledged."""
        return self.ring.low == self.ring.hr and not self.stream.outstanding and not self.stream.is_incomplete and self.ack_at is None

    def on(self, event: Event, now: Instant) -> int:
        """Go to the state that the table says; what else is to be done."""
        self.state, act = TABLE[self.state, event]
        if act & Act.TOUCH:
            self.touched = now
        return act

    def ack_due(self, now: Instant, delay: int, least: int) -> Instant:
        """When to acknowledge what is to be acknowledged after `delay`; never within
        `least` of the ack before."""
        due = now + delay
        if self.last_ack is not None:
            due = max(due, self.last_ack + least)
        return due
