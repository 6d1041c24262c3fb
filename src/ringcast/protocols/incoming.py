"""What one sender sends to us, whichever protocol it uses: its stream, the gaps in it,
and the OOB messages that the application gets before their turn.
"""

from dataclasses import dataclass

from ringcast._core.batch import Batch
from ringcast._core.window import Window
from ringcast.protocols.retransmission import Gaps
from ringcast.protocols.seqnos import MODULUS, Seqno
from ringcast.protocols.stream import Stream
from ringcast.stack import Effects


@dataclass(slots=True)
class Incoming:
    """The receiving end of one stream."""

    stream: Stream
    gaps: Gaps

    @property
    def ring(self) -> Window:
        return self.stream.ring

    @property
    def has_next(self) -> bool:
        """Return whether the next message in order is here."""
        return self.ring.get((self.ring.hd + 1) % MODULUS) is not None

    @property
    def come_up_to(self) -> Seqno:
        """Return the seqno up to which everything has come."""
        gaps = self.ring.missing(1)
        return (gaps[0][0] - 1) % MODULUS if gaps else self.ring.hr

    @property
    def num_stranded(self) -> int:
        """Return how many messages are here that the application was not given."""
        ring = self.ring
        return (ring.hr - ring.hd) % MODULUS - ring.num_missing


class EarlyDeliveries:
    """OOB messages of one turn. The application gets them at once, whatever it asked
    for, until it has `capacity` messages more than it wants: from then on OOB messages
    are delivered in order like all others.
    """

    __slots__ = ("batches", "capacity", "is_flooded")

    def __init__(self, capacity: int) -> None:
        self.batches: list[Batch] = []
        self.capacity = capacity
        self.is_flooded = False

    def hand_over(self, limit: int, effects: Effects) -> int:
        """Give the application all batches, and return how many messages they hold.
        `limit` is how many messages the application asked for.
        """
        handed = 0
        if self.batches:
            handed = sum(map(len, self.batches))
            effects.deliveries += self.batches
            self.batches = []
        self.is_flooded = limit - handed < -self.capacity
        return handed
