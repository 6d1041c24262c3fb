"""Flags of messages. Needs no compiled core, which an audit's machine may not have."""

import enum


class Flag(enum.IntFlag):
    """Choose how a message is sent; combine flags with `|`."""

    OOB = 1
    """Deliver the message on arrival, exactly once, outside the order of its sender's
    other messages."""

    DONT_LOOPBACK = 2
    """Do not deliver the message to the member that sends it."""

    NO_RELIABILITY = 4
    """Send one datagram without a seqno. It is delivered on arrival, or never: nobody
    repeats, acknowledges or orders it."""

    INCOMPLETE = 8
    """Not for sending. A message that is larger than a datagram is reported as
    undelivered: its receiver had acknowledged the begin; the payload is the rest."""


NO_FLAGS = Flag(0)

FRAGMENT = int(Flag.INCOMPLETE)
"""The same bit inside a stream, on the wire and in traces: a fragment of a message that
is larger than a datagram. (The compiled core has it in marks.pxd.)"""

STATE = 16
"""Inside a connection, on the wire and in traces: a part of an application's state, for
a member that has come (protocols/membership/state.py). It is no message."""
