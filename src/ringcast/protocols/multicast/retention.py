"""Retention: what a receiver keeps of the messages that it has delivered, so that
somebody has them when their sender dies (flush.py).

A receiver keeps a message until all members have finished it. They have when the
sender's LOW has passed it. HIGHEST tells LOW: on each scan, and under load as soon as
LOW has moved by a small part of the window, so that what is kept stays in the caches.
With NAKACK2 STABILITY tells it. Both count only in the view that both have: in another
one the sender does not wait for the same members.

In a view of two nobody else can miss what the other one sent: nothing is kept, unless
that one is durable, and its next life may miss it (keeping.py).

So a receive window has room for what its sender may send and for what is kept besides:
ROOM send windows. All members have the same capacity and max_bytes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ringcast.protocols.seqnos import Seqno, earlier
from ringcast.protocols.stream import Stream

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast

ROOM = 2                # send windows that a receive window holds
MOST_ROOM = 4           # and that of a departed sender: what is missing must find room


def keeps_for_others(layer: "Multicast", sender: int) -> bool:
    """Return whether somebody may ask a receiver for what its application has finished
    of a sender: members besides these two, absent ones, or the sender's next life."""
    return len(layer.members) > 2 or layer.keeping.is_on or sender in layer.keeping.durables


def drop_unneeded(layer: "Multicast", streams: Iterable[Stream]) -> None:
    """Free what is kept of these streams, if a new view has nobody who may ask."""
    for stream in streams:
        if not keeps_for_others(layer, stream.sender.incarnation):
            stream.release(stream.finished)


def follow_low(stream: Stream, low: Seqno) -> None:
    """Free what all members have finished, by the word of the sender. Nothing that our
    application has not finished: then somebody is mistaken."""
    stream.release(earlier(low, stream.finished))
