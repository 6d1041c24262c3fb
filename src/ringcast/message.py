"""What an application gets: one message, or a batch of one sender's consecutive
messages; and the flags that it may send with."""

import enum

from ringcast._core.batch import Batch, Message

__all__ = ["Batch", "Flag", "Message"]


class Flag(enum.IntFlag):
    """How a message is to travel; combine them with `|`."""

    OOB = 1
    """Delivered on arrival, exactly once, outside the order of the sender's other messages."""

    DONT_LOOPBACK = 2
    """Not delivered to the member that sends it."""

    NO_RELIABILITY = 4
    """One datagram without a seqno: delivered on arrival, or never; nobody repeats, acknowledges or orders it."""

    INCOMPLETE = 8
    """Only in what is reported as undelivered: the end of a message larger than a datagram, the rest of which had arrived."""
