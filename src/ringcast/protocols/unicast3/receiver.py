"""The receiving end of one connection (UNICAST3.txt, "Design").

Its window has the messages that came, until the application has finished them. HR is
the highest that came or was announced, HD the highest that the application got in
order, LOW the highest that it has finished: that is acknowledged. What is missing up to
HR, the retransmit task asks for.
"""

from dataclasses import dataclass

from ringcast.protocols.incoming import Incoming
from ringcast.protocols.unicast3.control import ConnId
from ringcast.protocols.unicast3.states import TABLE, Act, Event, State
from ringcast.stack import Instant


@dataclass(slots=True)
class ReceiverEntry(Incoming):
    """Our end of one connection from the sender of `stream`."""

    conn_id: ConnId
    touched: Instant                    # when it was used last, or began to close
    state: State = State.OPEN
    last_ack: Instant | None = None     # when an ack was sent
    ack_at: Instant | None = None       # when the next one is due

    @property
    def peer(self) -> int:
        """Return the incarnation of the sender."""
        return self.stream.sender.incarnation

    @property
    def is_busy(self) -> bool:
        """Return whether the retransmit task has anything to look at."""
        return self.ring.hd != self.ring.hr or self.stream.is_incomplete

    @property
    def is_idle(self) -> bool:
        """Return whether all that came was finished and acknowledged."""
        stream = self.stream
        return (self.ring.low == self.ring.hr and not stream.outstanding
                and not stream.is_incomplete and self.ack_at is None)

    def can_end(self) -> bool:
        """Return True: what is not acknowledged comes again."""
        return True

    def on(self, event: Event, now: Instant) -> int:
        """Go to the state that the table gives, and return what else must be done."""
        self.state, act = TABLE[self.state, event]
        if act & Act.TOUCH:
            self.touched = now
        return act
