"""The begins of large messages that are given with a state (state.py).

A view may come in the middle of a large message. Then a member that is given a state at
the place of this view is sent only the rest, and the giver has the begin. It gives that
with the state, and the other joins the two.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from ringcast._core.batch import Batch
from ringcast.decoding import UNDECODABLE
from ringcast.flags import FRAGMENT
from ringcast.protocols.frag import HEAD
from ringcast.protocols.seqnos import Number
from ringcast.stack import Begun


class Begin(msgspec.Struct, array_like=True):
    """The first `count` parts of a large message of a sender."""

    sender: Number
    number: Number                      # that the sender has given to the message
    count: Annotated[int, Meta(ge=1)]
    payload: bytes


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Begin).decode


class Begins(dict[int, Begin]):
    """The begins that a member was given, one of each sender. It stays until the rest
    comes, or the sender leaves: the member may have to give it itself. `senders` are
    those of whom there may be one, and a message has at most `largest` bytes."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.largest = largest
        self.senders: frozenset[int] = frozenset()

    def take(self, encoded: bytes) -> bool:
        """Keep a begin that a giver has sent; return False if it makes no sense."""
        try:
            begin = decode(encoded)
        except UNDECODABLE:
            return False
        if begin.sender in self.senders:
            self[begin.sender] = begin
        return True

    def give(self, begun: Mapping[int, Begun]) -> tuple[bytes, ...]:
        """Return the begins of all messages that are not whole now, encoded, with what
        has come of them by sender. Of some the member was given the begin itself."""
        begins = dict(self)
        for sender, (number, first, rest) in begun.items():
            before = self._first_of(sender, number, first)
            if before is not None:
                payload = b"".join([before, *rest])
                begins[sender] = Begin(sender, number, first + len(rest), payload)
        return tuple(map(encode, begins.values()))

    def join(self, rest: Batch) -> Batch | None:
        """Return the message of which this is the rest; None without its begin."""
        sender, payload = rest.sender.incarnation, rest.payloads[0]
        number, index, _ = HEAD.unpack_from(payload)
        before = self._first_of(sender, number, index)
        if before is None or len(before) + len(payload) - HEAD.size > self.largest:
            return None
        del self[sender]
        return Batch(rest.sender, rest.first, [before + payload[HEAD.size:]], rest.view_id,
                     rest.dest, rest.bits & ~FRAGMENT, rest.stream, bytes(rest.sent_at))

    def _first_of(self, sender: int, number: int, count: int) -> bytes | None:
        """Return the first parts of a message, so many; None if they are not here."""
        if count == 0:
            return b""
        begin = self.get(sender)
        if begin is None or begin.number != number or begin.count < count:
            return None
        return begin.payload[:len(begin.payload) // begin.count * count]
