"""The streams of departed senders that are over: what our application has of each.

A stream is over when it is delivered up to its cut and nobody may ask for it any more
(flush.py). Its end is remembered for the senders that departed last. It can be told
when the application has finished all of it: then a sender that was killed goes on
behind it, as a new member, and loses and repeats nothing.
"""

from typing import NamedTuple

from ringcast.protocols.latest import Latest
from ringcast.protocols.seqnos import Seqno, later
from ringcast.protocols.stream import Stream

MOST_ENDED = 1024       # streams whose ends are remembered


class Taken(NamedTuple):
    """What an application has of a stream: the messages behind `after`, up to
    `last`."""

    after: Seqno
    last: Seqno


class Ended(Latest[int, tuple[Stream, Taken]]):
    """The streams that were over last, by the incarnation of the sender."""

    def __init__(self) -> None:
        super().__init__(MOST_ENDED)

    def note(self, stream: Stream, after: Seqno, last: Seqno) -> None:
        """Note a stream that is over. Only its place is kept. For a new member it may
        end before it began: then there is nothing of it."""
        stream.retire()
        self.remember(stream.sender.incarnation, (stream, Taken(after, later(after, last))))

    def is_outstanding(self, incarnation: int) -> bool:
        """Return whether the application has not finished what it was given."""
        return incarnation in self and self[incarnation][0].outstanding > 0

    def taken(self, incarnation: int) -> Taken | None:
        """Return what the application has of a stream; None if we do not know it."""
        return self[incarnation][1] if incarnation in self else None
