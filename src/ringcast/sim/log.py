"""The log of what an incarnation sent to everybody, by seqno. The checkers compare it
with what was delivered.

A message in fragments has the seqno of its last fragment. The places of the others are
empty.

OOB messages come when they come. For the order, each counts as the begin of the message
that follows it.
"""

from ringcast.protocols.seqnos import MODULUS, Seqno


class Log(list[bytes | None]):
    """The message of each seqno from `offset` + 1 on; None for a fragment that is not
    the last one."""

    def __init__(self, offset: Seqno) -> None:
        super().__init__()
        self.offset = offset
        self.oob: set[Seqno] = set()            # the seqnos of OOB messages and their fragments

    def _place(self, seqno: Seqno) -> int:
        """Return how many places the log has up to this seqno."""
        return (seqno - self.offset) % MODULUS

    def begin_of(self, seqno: Seqno) -> Seqno:
        """Return the seqno of the first fragment of the message that has this seqno, or
        `seqno` if the message was not cut; of the first OOB message before it, if there
        is one."""
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

    def after(self, seqno: Seqno) -> Seqno:
        """Return the first seqno behind this one that is not of an OOB message."""
        seqno = (seqno + 1) % MODULUS
        while seqno in self.oob:
            seqno = (seqno + 1) % MODULUS
        return seqno

    def end_of(self, seqno: Seqno) -> Seqno:
        """Return the seqno of the last fragment that was sent of the message in whose
        middle this one is; `seqno` if it ends a message."""
        place = self._place(seqno)
        while 0 < place < len(self) and self[place - 1] is None:
            place += 1
        return (self.offset + place) % MODULUS

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
