"""How two members agree on which TCP connection is the link between them: records of a
fixed size, and numbers.

    acceptor                              dialer
    HELLO: who I am                 ->
                                    <-    PROPOSE number
    ACCEPT number: this is the link ->

Instead of PROPOSE the dialer closes the connection if it has a link to that member or
waits for an answer from it on another connection. Instead of ACCEPT the acceptor sends
REFUSE with the highest number that it knows, and closes.

The acceptor switches to the new link when it sends ACCEPT, and the dialer when it has
read ACCEPT. Each sends frames only after that, so each has switched before it can read
a frame.

Each side numbers the links to a peer. A dialer proposes a number above all that it
knows. An acceptor accepts a number above that of its last link, and thereby ends that
link: a member that dials has lost it. So the number of the link only grows on each
side, and of two connections the later one remains, in whatever order they are handled:
a connection that was given up but is still to be read has a lower number than the
dialer's next attempt.

When both dial at once, each has a proposal on its way when the other's arrives. The
higher number wins; of equal numbers, that of the smaller incarnation. Both sides
compare the same two pairs, so they do not both refuse, nor both accept; the one that
accepts closes the connection that it dialed. If only one side has proposed when the
other's proposal arrives, that side accepts and never proposes. So two connections never
get one number, one on each side: that would take an acceptor on each side with the same
number, and each would have had its own proposal on the way (a proposal made after
accepting has a higher number).

The side that dialed the link may dial once more, for the connection for control of that
link. After HELLO it says CONTROL with the number of the link instead of PROPOSE. The
acceptor answers ACCEPT with that number if its link has it, and closes otherwise. A new
connection for control takes the place of a former one.

A record has a check, which covers also the record of the other side that it answers,
and each side puts a *nonce* that it has just drawn into its first record. In a group
with a secret the check needs a key, so nobody else can make a record, and one that was
recorded answers nothing. Where keys are trusted, the record is signed, too. One that
nobody trusted has signed is no record, nor one in the name of a process that has proved
another key. In a group without either, anybody may propose in another member's name.
While a link is up, its acceptor takes a proposal only from the host where that link
ends (handshaking.py); another host would have to take over that host's address as well.

One case remains: a side has switched to a connection that the other side has closed. It
reads the end of the connection, and dials again. If a side has forgotten its numbers
(they are kept for a bounded number of peers), its proposal may be too low: the peer
refuses it, and says which number to exceed.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ringcast.config import IDENTITY_SIZE, PROOF_SIZE
from ringcast.transport.ipv4 import HostPort

if TYPE_CHECKING:
    from ringcast.protocols.security.identity import Identity

MAGIC = b"RCtl"
VERSION = 2
HIGHEST = 1 << 62   # numbers above are refused; no honest peer ever comes near
FARTHEST = 1 << 32  # that a number may be above what a side knows, lest a liar use them all up

# magic, version, kind, port, group, address, member, number, nonce
_RECORD = Struct("<4sBBHI4sQQ16s")
_CHECK = 16
SIZE = _RECORD.size + _CHECK
NONCE_SIZE = 16


class Kind(IntEnum):
    """Kinds of records."""

    HELLO = 1
    PROPOSE = 2
    ACCEPT = 3
    REFUSE = 4
    CONTROL = 5


class Record(NamedTuple):
    """What one side tells the other."""

    kind: int
    member: int                         # the sender
    number: int                         # of a link
    endpoint: HostPort                  # where the sender listens
    nonce: bytes                        # that the sender has drawn for this connection
    key: bytes = b""                    # that has signed it, where keys are trusted


def size_of(identity: Identity | None) -> int:
    """Return the bytes of a record: more, if an identity signs it."""
    return SIZE if identity is None else SIZE + PROOF_SIZE


def encode(group: int, record: Record, before: bytes = b"", key: bytes = b"",
           identity: Identity | None = None) -> bytes:
    """Return a record as it is on the wire. `before` is the other side's record that it
    answers; `key` is the group's, if it has one; an `identity` signs it."""
    host, port = record.endpoint
    raw = _RECORD.pack(MAGIC, VERSION, record.kind, port, group, socket.inet_aton(host),
                       record.member, record.number, record.nonce)
    raw += _check(raw, before, key)
    return raw if identity is None else raw + identity.sign(_signed_record(raw, before))


def decode(raw: bytes, group: int, before: bytes = b"", key: bytes = b"",
           identity: Identity | None = None, now: int = 0) -> Record | None:
    """Return a record from the wire; None if it is damaged or forged, answers another
    record than `before`, or is of another version or group."""
    raw, proof = raw[:SIZE], raw[SIZE:]
    if not hmac.compare_digest(raw[_RECORD.size:], _check(raw[:_RECORD.size], before, key)):
        return None
    magic, version, kind, port, their_group, host, member, number, nonce = _RECORD.unpack_from(raw)
    if (magic, version, their_group) != (MAGIC, VERSION, group):
        return None
    if not member or number > HIGHEST:
        return None
    if identity is not None and not (
            identity.may_be(member, proof)
            and identity.believes(_signed_record(raw, before), proof, now)):
        return None
    return Record(kind, member, number, (socket.inet_ntoa(host), port), nonce,
                  proof[:IDENTITY_SIZE])


def _check(raw: bytes, before: bytes, key: bytes) -> bytes:
    """Return the check of a record: BLAKE2b, which is a MAC if there is a key."""
    return hashlib.blake2b(before + raw, digest_size=_CHECK, key=key).digest()


def _signed_record(raw: bytes, before: bytes) -> bytes:
    """Return what the signature of a record is about: its check has the group's key."""
    return b"ringcast 1 link " + before + raw


class LinkNumbers:
    """What one side knows of the numbers of links to one peer."""

    __slots__ = ("highest", "proposed", "established")

    def __init__(self) -> None:
        self.established = 0            # number of the last link on this side
        self.proposed = 0               # number of the own proposal that waits for an answer
        self.highest = 0                # highest number known

    def propose(self) -> int:
        """Return the number of a new proposal."""
        self.highest += 1
        self.proposed = self.highest
        return self.proposed

    def give_up(self) -> None:
        """Stop waiting for an answer to the own proposal."""
        self.proposed = 0

    def allows(self, number: int, peer_is_smaller: bool) -> bool:
        """Return whether the peer's proposal may be accepted."""
        if number <= self.established or number > self.highest + FARTHEST:
            return False
        return number > self.proposed or (number == self.proposed and peer_is_smaller)

    def establish(self, number: int) -> None:
        """Note that a link is up under this number, whoever proposed it."""
        assert number > self.established
        self.established = number
        self.proposed = 0
        self.learn(number)

    def learn(self, number: int) -> None:
        """Note a number that the peer knows."""
        if number <= self.highest + FARTHEST:
            self.highest = max(self.highest, number)
