"""Who a member is: a name and an incarnation, never a network address (decision 23).

A process that dies and comes back under its old name, even at its old network address,
is another incarnation: nothing that was kept for the former incarnation is touched by
the new one, nor the other way round; but what senders still keep of their messages to
everybody, because the former incarnation lacks it, goes to the new one. Unless it has
kept what it takes to go on as the same incarnation: then it says so, with a Session.
"""

import msgspec

EVERYONE = 0    # in the place of an incarnation: all members (incarnations begin at 1)


class Address(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One incarnation of one member.

    `name` is what the user chose, unique in the group at any one time. `incarnation` is
    a random number in 1 .. 2**64-1, drawn when the member starts; datagrams carry it as
    the sender's identity. Prints as `name#incarnation` with the incarnation as 16
    hexadecimal digits, which is also the form that journals and Spark use.
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


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one process after another needs, so that together they are one incarnation
    of a member that only sends.

    `incarnation` as in Address. `seqno`: every member has acknowledged this
    incarnation's messages to everybody up to here (0: there are none yet); what this
    process sends first has the seqno after it, and must be what the incarnation sent
    under that seqno before, and so on up to the last seqno that may ever have been
    taken. For a message larger than a datagram `seqno` is that of its last fragment, or
    one before its first. `epoch` is 0 for the first process, and higher for each that
    follows: it tells what one of them says from what an earlier one had said.
    """

    incarnation: int
    seqno: int = 0
    epoch: int = 0
