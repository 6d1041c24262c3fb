"""Who a member is: a name and an incarnation, never a network address (decision 23).

A process that dies and comes back under its old name, even at its old network address, is another incarnation: nothing that
was kept for the former life is touched by the new one, nor the other way round.
"""

import msgspec


class Address(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One life of one member.

    `name` is what the user chose, unique in the group at any one time. `incarnation` is a random number in 1 .. 2**64-1,
    drawn when the member starts; datagrams carry it as the sender's identity. Prints as `name#incarnation` with the
    incarnation as 16 hexadecimal digits, which is also the form that journals and Spark use.
    """

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation:016x}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address that prints as `text`; ValueError if none does."""
        name, mark, digits = text.rpartition("#")
        if not name or not mark or len(digits) != 16:
            raise ValueError(f"{text!r} is not a member address; it should look like name#0123456789abcdef")
        return cls(name, int(digits, 16))
