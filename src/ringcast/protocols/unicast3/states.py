"""The states of a connection entry, as a table (UNICAST3.txt, "Connection
establishment").

A connection that is closed stays for a while, because a message that is sent or
received in that time opens it again. Only then is it CLOSED, and that same instant its
entry is removed; so a CLOSED entry is met by those only who looked it up before.
"""

from enum import IntEnum


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
    """What else is to be done; a sum of these. (Numbers: the table is read for every
    datagram.)"""

    NOTHING = 0
    TOUCH = 1               # reset the timestamp, from which timeouts are counted
    REMOVE = 2              # forget the entry; what nobody acknowledged is reported
    SAY_CLOSE = 4           # a sender tells the receiver, which may forget its entry too
    REPLACE = 8             # it counts as if it were not there: look up again, or open a new one


TABLE: dict[tuple[State, Event], tuple[State, int]] = {
    (State.OPEN, Event.USED): (State.OPEN, Act.TOUCH),
    (State.OPEN, Event.EXPIRED): (State.CLOSING, Act.TOUCH),
    (State.OPEN, Event.PEER_LEFT): (State.CLOSING, Act.TOUCH),
    (State.OPEN, Event.TIMED_OUT): (State.OPEN, Act.NOTHING),
    (State.OPEN, Event.CLOSE): (State.CLOSED, Act.REMOVE),
    (State.CLOSING, Event.USED): (State.OPEN, Act.TOUCH),
    (State.CLOSING, Event.EXPIRED): (State.CLOSING, Act.NOTHING),
    (State.CLOSING, Event.PEER_LEFT): (State.CLOSING, Act.NOTHING),
    (State.CLOSING, Event.TIMED_OUT): (State.CLOSED, Act.REMOVE | Act.SAY_CLOSE),
    (State.CLOSING, Event.CLOSE): (State.CLOSED, Act.REMOVE),
    (State.CLOSED, Event.USED): (State.CLOSED, Act.REPLACE),
    (State.CLOSED, Event.EXPIRED): (State.CLOSED, Act.NOTHING),
    (State.CLOSED, Event.PEER_LEFT): (State.CLOSED, Act.NOTHING),
    (State.CLOSED, Event.TIMED_OUT): (State.CLOSED, Act.NOTHING),
    (State.CLOSED, Event.CLOSE): (State.CLOSED, Act.NOTHING),
}
