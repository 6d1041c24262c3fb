"""The states of a connection entry, as a table (UNICAST3.txt, "Connection
establishment").

Each end of a connection has an entry, and both kinds follow this table. An entry that
was idle for long becomes CLOSING and stays for a while, because a message that is sent
or received in that time makes it OPEN again. Only then is it CLOSED. A CLOSED entry is
removed in the same instant, so only a caller that looked it up before can meet one.

The table gives the next state, and what else the caller must do (Act). No state changes
anywhere else: `entry.on(event, now)` reads the table.
"""

from enum import IntEnum
from typing import Protocol


class State(IntEnum):
    OPEN = 1
    CLOSING = 2         # kept until conn_close_timeout; what is unacknowledged is still repeated
    CLOSED = 3          # removed


class Event(IntEnum):
    USED = 1            # a message is sent on it, or received
    EXPIRED = 2         # unused for conn_expiry_timeout, with nothing left to do
    PEER_LEFT = 3       # the other end is not in the view any more
    TIMED_OUT = 4       # conn_close_timeout has passed since it began to close
    CLOSE = 5           # the sender's CLOSE with this conn-id has come, or the receiver refuses it


class Act:
    """What else the caller must do; a sum of these. (Numbers, because the table is read
    for every datagram.)"""

    NOTHING = 0
    TOUCH = 1               # note the instant: timeouts count from here
    REMOVE = 2              # forget the entry, and report what nobody acknowledged
    SEND_CLOSE = 4          # a sender tells the receiver, which may forget its entry too
    REPLACE = 8             # the entry counts as absent: look up again, or open a new one


TABLE: dict[tuple[State, Event], tuple[State, int]] = {
    (State.OPEN, Event.USED): (State.OPEN, Act.TOUCH),
    (State.OPEN, Event.EXPIRED): (State.CLOSING, Act.TOUCH),
    (State.OPEN, Event.PEER_LEFT): (State.CLOSING, Act.TOUCH),
    (State.OPEN, Event.TIMED_OUT): (State.OPEN, Act.NOTHING),
    (State.OPEN, Event.CLOSE): (State.CLOSED, Act.REMOVE),
    (State.CLOSING, Event.USED): (State.OPEN, Act.TOUCH),
    (State.CLOSING, Event.EXPIRED): (State.CLOSING, Act.NOTHING),
    (State.CLOSING, Event.PEER_LEFT): (State.CLOSING, Act.NOTHING),
    (State.CLOSING, Event.TIMED_OUT): (State.CLOSED, Act.REMOVE | Act.SEND_CLOSE),
    (State.CLOSING, Event.CLOSE): (State.CLOSED, Act.REMOVE),
    (State.CLOSED, Event.USED): (State.CLOSED, Act.REPLACE),
    (State.CLOSED, Event.EXPIRED): (State.CLOSED, Act.NOTHING),
    (State.CLOSED, Event.PEER_LEFT): (State.CLOSED, Act.NOTHING),
    (State.CLOSED, Event.TIMED_OUT): (State.CLOSED, Act.NOTHING),
    (State.CLOSED, Event.CLOSE): (State.CLOSED, Act.NOTHING),
}


class Entry(Protocol):
    """What the entries of both ends have."""

    state: State
    touched: int            # when it was used last, or began to close: timeouts count from here

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is left to do for it."""

    def can_end(self) -> bool:
        """Return whether nothing speaks against its removal, and let nothing new in."""

    def on(self, event: Event, now: int) -> int:
        """Go to the state that the table gives, and return what else must be done."""
