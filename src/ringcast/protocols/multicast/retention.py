"""Retention: what a receiver keeps of the messages that it has delivered, so that
somebody has them when their sender dies (flush.py).

A receiver keeps a message until all members have finished it. They have when the
sender's LOW has passed it, which HIGHEST tells; with NAKACK2 also STABILITY. Both may
come late or get lost. But a sender sends nothing that its window has no room for, and
all members have the same capacity and max_bytes. So a message that comes proves that
LOW has passed those that its sender's window could not hold together with it. These are
freed when the receiver needs the room.
"""

from typing import TYPE_CHECKING

from ringcast._core import wire
from ringcast._core.wire_trace import list_runs
from ringcast.protocols.seqnos import MODULUS, Seqno, earlier, precedes
from ringcast.protocols.stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Buffer


def follow_low(stream: Stream, low: Seqno) -> None:
    """Free what all members have finished, by the word of the sender. Nothing that our
    application has not finished: then somebody is mistaken."""
    stream.release(earlier(low, stream.finished))


def make_room(stream: Stream, datagram: "Buffer", prefix: int = wire.HEADER_SIZE) -> None:
    """Free messages that the application has finished, as many as the messages of a
    datagram need, and no more than these prove to be finished by all."""
    ring, size = stream.ring, len(memoryview(datagram))
    first = wire.first_seqno(datagram, prefix)
    if first is None or ring.low == stream.finished:
        return
    most_seqnos = (first - ring.low) % MODULUS + size // 2      # a message has a length of 2 bytes
    most_bytes = ring.nbytes + size
    if most_seqnos > ring.capacity or most_bytes > stream.config.max_bytes:
        runs = list_runs(datagram, prefix)
        if runs:
            first, count, *_ = runs[-1]
            _free_seqnos(stream, (first + count - 1) % MODULUS)
            _free_bytes(stream, size_of_new(stream, datagram, prefix))


def size_of_new(stream: Stream, datagram: "Buffer", prefix: int = wire.HEADER_SIZE) -> int:
    """Return how many bytes the messages of a datagram have that are new here. A run of
    which a part is new does not count."""
    return sum(nbytes for first, count, _, nbytes, *_ in list_runs(datagram, prefix)
               if _is_new(stream, first, count))


def _free_seqnos(stream: Stream, last: Seqno) -> None:
    """Free what is more than a window before a seqno that was sent."""
    proven = (last - stream.ring.capacity) % MODULUS
    if not precedes(stream.finished, proven):           # else it is forged
        stream.release(proven)


def _free_bytes(stream: Stream, size: int) -> None:
    """Free the oldest messages until `size` bytes more make no more than max_bytes: the
    sender's window held no more when it sent the last of all these."""
    ring, seqno = stream.ring, stream.ring.low
    excess = ring.nbytes + size - stream.config.max_bytes
    while excess > 0 and precedes(seqno, stream.finished):
        seqno = (seqno + 1) % MODULUS
        excess -= len(ring.get(seqno) or b"")
    stream.release(seqno)


def _is_new(stream: Stream, first: Seqno, count: int) -> bool:
    """Return whether no message of a run has come before."""
    ring = stream.ring
    seqnos = ((first + step) % MODULUS for step in range(count))
    return precedes(ring.hr, first) or all(precedes(ring.hd, seqno) and ring.get(seqno) is None
                                           for seqno in seqnos)
