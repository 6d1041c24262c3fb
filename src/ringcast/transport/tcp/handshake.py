"""How two members agree on which TCP connection is the link between them: records of a
fixed size, and numbers.

    acceptor                                  dialer
    HELLO  who I am                    ->
                                       <-     PROPOSE number        (or closes: it has a link to that member, or is dialing it)
    ACCEPT number: this is the link    ->                           (or REFUSE, the highest number it knows, and closes)

The acceptor switches to the new link when it sends ACCEPT and the dialer when it has
read it; either only then sends frames, so each has switched before it can read any.

Each side numbers the links to a peer. A dialer proposes a number above all that it
knows of. An acceptor takes a number above that of its last link, which thereby ends:
whoever dials has lost it. So the number of the link only grows on each side, and of two
connections the later is left over, in whatever order they are looked at: one that was
given up but still waits to be read has a lower number than what its dialer tried next.

When both dial at once each has a proposal of its own on the way when the other's
arrives, and the higher number wins, or, of equal ones, that of the smaller incarnation.
Both sides compare the same two pairs, so they do not both refuse, nor both accept: who
accepts closes its own dial. If only one has proposed when the other's proposal arrives,
it accepts and never proposes. So no two connections stand under one number, one on each
side: that would take an acceptor on each side with the same number, and each would have
had its own proposal on the way (a proposal made after accepting has a higher number).

Who stands behind a record nobody can tell: anybody may propose in another's name. While
a link stands, its acceptor takes a proposal only from the host where that link ends
(tcp.py); another host would have to take the address over as well.

What remains is a side that has switched to a connection that the other has closed; it
reads the end of it, and dials again. Numbers that were forgotten (they are kept for a
bounded number of peers) make a proposal too low: it is refused with the number to beat.
"""

from __future__ import annotations

import hashlib
import socket
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

MAGIC = b"RCtl"
VERSION = 1
HIGHEST = 1 << 62   # a number that a sane peer never reaches, and from where there is room to count
                    # on
FARTHEST = 1 << 32  # from what one side knows; so that nobody gets there at once in another's name

_RECORD = Struct("<4sBBHI4sQQ")         # magic, version, kind, port, group, address, member, number
_CHECK = 8
SIZE = _RECORD.size + _CHECK


class Kind(IntEnum):
    HELLO = 1
    PROPOSE = 2
    ACCEPT = 3
    REFUSE = 4


class Record(NamedTuple):
    kind: int
    member: int                         # who says it
    number: int
    endpoint: tuple[str, int]           # where it listens


def write(group: int, record: Record) -> bytes:
    host, port = record.endpoint
    raw = _RECORD.pack(MAGIC, VERSION, record.kind, port, group, socket.inet_aton(host),
                       record.member, record.number)
    return raw + _check(raw)


def read(raw: bytes, group: int) -> Record | None:
    """None for garbage, another version and another group."""
    magic, version, kind, port, their_group, host, member, number = _RECORD.unpack_from(raw)
    if (magic, version, their_group) != (MAGIC, VERSION, group) or raw[_RECORD.size:] != _check(
            raw[:_RECORD.size]):
        return None
    if not member or number > HIGHEST:
        return None
    return Record(kind, member, number, (socket.inet_ntoa(host), port))


def _check(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=_CHECK).digest()


class Numbers:
    """What one side knows of the links to one peer."""

    __slots__ = ("highest", "proposed", "stood")

    def __init__(self) -> None:
        self.stood = 0                  # of the last link that stood on this side
        self.proposed = 0               # of the own proposal that has no answer yet
        self.highest = 0                # proposed, accepted or told

    def propose(self) -> int:
        self.highest += 1
        self.proposed = self.highest
        return self.proposed

    def give_up(self) -> None:
        """The own proposal gets no answer, or is not waited for."""
        self.proposed = 0

    def allows(self, number: int, peer_is_smaller: bool) -> bool:
        """Whether the peer's proposal is to be accepted."""
        if number <= self.stood or number > self.highest + FARTHEST:
            return False
        return number > self.proposed or (number == self.proposed and peer_is_smaller)

    def stand(self, number: int) -> None:
        """A link has this number, whoever proposed it."""
        assert number > self.stood
        self.stood = number
        self.proposed = 0
        self.told(number)

    def told(self, number: int) -> None:
        """The peer knows of this number."""
        if number <= self.highest + FARTHEST:
            self.highest = max(self.highest, number)
