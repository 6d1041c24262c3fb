"""The log of what an incarnation sent to everybody, by seqno. The checkers compare it
with what was delivered.

A message in fragments has the seqno of its last fragment. The places of the others are
empty.
"""

from ringcast.protocols.seqnos import MODULUS, Seqno


class Log(list[bytes | None]):
    """The message of each seqno from `offset` + 1 on; None for a fragment that is not
    the last one."""

    def __init__(self, offset: Seqno) -> None:
        super().__init__()
        self.offset = offset

    def _place(self, seqno: Seqno) -> int:
        """Return how many places the log has up to this seqno."""
        return (seqno - self.offset) % MODULUS

    def begin_of(self, seqno: Seqno) -> Seqno:
        """Return the seqno of the first fragment of the message that has this seqno, or
        `seqno` if the message was not cut."""
        place = self._place(seqno) - 1
        while 0 < place <= len(self) and self[place - 1] is None:
            place -= 1
        return (self.offset + place + 1) % MODULUS

    def end_before(self, seqno: Seqno) -> Seqno:
        """Return the highest seqno up to this one that ends a message, or the offset. A
        sender that died may have sent the beginning of a message behind the log."""
        place = min(self._place(seqno), len(self))
        while place and self[place - 1] is None:
            place -= 1
        return (self.offset + place) % MODULUS

    def end_of(self, seqno: Seqno) -> Seqno:
        """Return the seqno of the last fragment that was sent of the message in whose
        middle this one is; `seqno` if it ends a message."""
        place = self._place(seqno)
        while 0 < place < len(self) and self[place - 1] is None:
            place += 1
        return (self.offset + place) % MODULUS

    @property
    def last(self) -> Seqno:
        """The seqno of the last whole message."""
        return self.end_before((self.offset + len(self)) % MODULUS)
