"""Who a member is: a name and an incarnation, never a network address (decision 23).

A process that dies and comes back under its old name is another incarnation, even at
its old network address. Nothing that was kept for one incarnation is touched by
another, with one exception: what the others keep for a durable member goes to its next
incarnation.
"""

import secrets
from contextlib import suppress

import msgspec

EVERYONE = 0    # in the place of an incarnation: all members (incarnations begin at 1)

LASTING = 1 << 63           # in an incarnation: its stream goes on from one incarnation to the next
TURNS = (1 << 23) - 1       # the bits in which these incarnations differ; the rest is the stream's


class Address(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One incarnation of one member.

    `name` is what the user chose, unique in the group at any one time. `incarnation` is
    a random number in 1 .. 2**64-1, drawn when the member starts; datagrams carry it as
    the sender's identity. str() gives `name#incarnation`, with the incarnation as 16
    hexadecimal digits; journals and Spark use this form.
    """

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation:016x}"

    @property
    def origin(self) -> "Address":
        """Return the address under which a journal keeps what this member sends. It is
        the same for all members of a Succession; for any other member, its own."""
        if not self.incarnation & LASTING:
            return self
        return Address(self.name, self.incarnation & ~TURNS)

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return the address whose str() is `text`; ValueError if there is none."""
        name, _, digits = text.rpartition("#")
        with suppress(ValueError):
            found = cls(name, int(digits, 16))
            if name and len(digits) == 16 and found.incarnation > EVERYONE and str(found) == text:
                return found
        raise ValueError(f"{text!r} is not a member address; it should look like "
                         "name#0123456789abcdef")


def new_incarnation() -> int:
    """Draw an incarnation for a member that is in no Succession."""
    return secrets.randbelow(LASTING - 1) + 1


class Succession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let several members of one name, one after the other, send one stream.

    Each of them is a new member, with an incarnation and a stream of its own. But their
    seqnos go on: under one seqno all of them send the same message, or a part of it. So
    a recorder writes them as one stream, of the sender `Address.origin`, and drops what
    it has.

    `origin` is the number of the stream, from begin(); the members' incarnations are
    made of it. `seqno` is the seqno after which this member goes on; 0: nothing was
    sent yet. It may not lie between two fragments of one message.
    """

    origin: int
    seqno: int = 0

    @classmethod
    def begin(cls) -> "Succession":
        """Return the beginning of a new stream."""
        return cls(LASTING | secrets.randbits(63) & ~TURNS)

    def next_incarnation(self) -> int:
        """Draw an incarnation for the next member."""
        return self.origin | secrets.randbelow(TURNS) + 1
