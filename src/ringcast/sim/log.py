"""The log of what an incarnation sent to everybody, by seqno. The checkers compare it
with what was delivered.

A message in fragments has the seqno of its last fragment. The places of the others are
empty. Other messages may be between them.

OOB messages come when they come. For the order, each counts as the begin of the message
that follows it, and so do fragments of a message that ends later.
"""

from ringcast.protocols.seqnos import MODULUS, Seqno, precedes


class Log(list[bytes | None]):
    """The message of each seqno from `offset` + 1 on; None for a fragment that is not
    the last one."""

    def __init__(self, offset: Seqno) -> None:
        super().__init__()
        self.offset = offset
        self.oob: set[Seqno] = set()            # the seqnos of OOB messages and their fragments
        # Where large messages begin, by their ends; and the one without an end.
        self.larges: dict[Seqno, Seqno] = {}
        self.begun: Seqno | None = None

    def _place(self, seqno: Seqno) -> int:
        """Return how many places the log has up to this seqno."""
        return (seqno - self.offset) % MODULUS

    def begin_of(self, seqno: Seqno) -> Seqno:
        """Return the seqno that follows the message in order before the one with this
        seqno."""
        return (self._end_below(self._place(seqno) - 1) + 1) % MODULUS

    def _end_below(self, place: int) -> Seqno:
        """Return the seqno that ends the last message in order within so many places,
        or the offset."""
        while 0 < place <= len(self) and (
                self[place - 1] is None or (self.offset + place) % MODULUS in self.oob):
            place -= 1
        return (self.offset + place) % MODULUS

    def end_before(self, seqno: Seqno) -> Seqno:
        """Return the highest seqno up to this one that ends a message in order, or the
        offset. A sender that died may have sent the beginning of a message behind the
        log."""
        return self._end_below(min(self._place(seqno), len(self)))

    def next_end(self, seqno: Seqno) -> Seqno:
        """Return the seqno that ends the first message in order from this seqno on; of
        one that was not sent whole, the last that was sent."""
        place = self._place(seqno)
        while 0 < place < len(self) and (
                self[place - 1] is None or (self.offset + place) % MODULUS in self.oob):
            place += 1
        return (self.offset + place) % MODULUS

    def end_of(self, seqno: Seqno) -> Seqno:
        """Return the seqno of the last fragment that was sent of the large message in
        whose middle this one is; `seqno` if it is in none."""
        if self.begun is not None and not precedes(seqno, self.begun):
            return (self.offset + len(self)) % MODULUS
        return next((end for end, first in self.larges.items()
                     if precedes(seqno, end) and not precedes(seqno, first)), seqno)

    def is_large(self, end: Seqno) -> bool:
        """Return whether the message in order that ends here was cut, or this is the
        last that was sent of it."""
        is_last = end == (self.offset + len(self)) % MODULUS
        return end in self.larges or (self.begun is not None and is_last and self[-1] is None)

    def note_fragments(self, begin: Seqno, is_last: bool) -> None:
        """Note that fragments have been added, from the seqno `begin` on."""
        first = begin if self.begun is None else self.begun
        self.begun = None if is_last else first
        if is_last:
            self.larges[(self.offset + len(self)) % MODULUS] = first

    def oob_between(self, begin: Seqno, end: Seqno) -> set[Seqno]:
        """Return the seqnos of OOB messages from one seqno on, and before another
        one."""
        seqnos = ((begin + step) % MODULUS for step in range((end - begin) % MODULUS))
        return {seqno for seqno in seqnos
                if seqno in self.oob and self[self._place(seqno) - 1] is not None}

    @property
    def last(self) -> Seqno:
        """The seqno of the last whole message."""
        return self.end_before((self.offset + len(self)) % MODULUS)
