"""Who a process is, in a group that trusts keys: it signs with its own private key
(Ed25519), and believes those whose public keys it trusts.

A key has names: those of its files. It may use each of them, and what begins with one
and a `/`. So nobody who has a key takes a name of another one.

*Proved.* A process whose signed HELLO has answered our challenge has proved its key,
and the public key with which view keys are sealed for it. What it says of itself later,
and what others say of it in views, has to agree with that.

*Bounded work.* To check a signature takes a hundred times as long as to drop a
datagram, and a stranger can make us check as many as it sends, with a trusted key that
it has read and a signature of zeros. So only BURST are checked at once, and then one in
REFILL.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ringcast.config import IDENTITY_SIZE
from ringcast.protocols.allowance import Allowance

BURST = 512                             # signatures checked at once, and then one ...
REFILL = 2_000_000                      # ... in so many nanoseconds

Trusted = Mapping[bytes, frozenset[str]]        # names, by public key


class Proved(NamedTuple):
    """What a process has proved: its key, and the one to seal for it with."""

    key: bytes
    public: bytes


class Seated(Protocol):
    """What must be known of a member of a view."""

    name: str
    incarnation: int
    public: bytes


class Identity:
    """The identity of a process, and what others have proved to it, by incarnation.

    Threads: one calls everything; any may call `fits`, `has_lost` and
    `strangers`.
    """

    def __init__(self, private: Ed25519PrivateKey, trusted: Trusted) -> None:
        self._private, self.trusted = private, trusted
        self.key = private.public_key().public_bytes_raw()
        self.proved: dict[int, Proved] = {}
        self._checks = Allowance(BURST, REFILL)

    def __repr__(self) -> str:
        return "Identity(...)"          # and nothing of the key

    def sign(self, said: bytes) -> bytes:
        """Return the proof that we have said this."""
        return self.key + self._private.sign(said)

    def believes(self, said: bytes, proof: bytes, now: int) -> bool:
        """Return whether somebody whom we trust has said this; False also if too many
        proofs were checked lately."""
        key = proof[:IDENTITY_SIZE]
        if key not in self.trusted or not self._checks.take(now):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(proof[IDENTITY_SIZE:], said)
        except (InvalidSignature, ValueError):
            return False
        return True

    def may_be(self, member: int, proof: bytes) -> bool:
        """Return whether a process may have the key of this proof: it has not proved
        another one."""
        proved = self.proved.get(member)
        return proved is None or proved.key == proof[:IDENTITY_SIZE]

    def names(self, key: bytes) -> frozenset[str]:
        """Return the names of a key; none, if it is not trusted."""
        return self.trusted.get(key, frozenset())

    def fits(self, member: int, name: str, public: bytes | None = None) -> bool:
        """Return whether a process has proved that it may have this name, and this
        public key."""
        proved = self.proved.get(member)
        return proved is not None and public in (None, proved.public) and (
            may_use(name, self.names(proved.key)))

    def has_lost(self, member: int, name: str) -> bool:
        """Return whether a process has proved a key that may not have this name now."""
        proved = self.proved.get(member)
        return proved is not None and not may_use(name, self.names(proved.key))

    def strangers(self, seats: Iterable[Seated]) -> list[int]:
        """Return those who have not proved what their seats say."""
        return [seat.incarnation for seat in seats
                if not self.fits(seat.incarnation, seat.name, seat.public)]


def may_use(name: str, names: frozenset[str]) -> bool:
    """Return whether a key that has these names may use a name."""
    return name in names or name.partition("/")[0] in names
