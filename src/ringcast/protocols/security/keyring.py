"""The keys of views: each view has a random key of its own, which only its members
have.

The coordinator makes it when it begins to prepare the view, and PREPARE brings it to
each member, sealed with HPKE for the public key that stands in the member's seat. So
all members hold the key before one of them installs the view, and nobody else ever
does. The key is bound to the id of the view and to the member that it is sealed for.

*Two keys for one view cannot be*: an id is made by one process, which makes the key
from the id, and the first coordinator from whom a member takes a key of an id is the
only one.

*The chain.* Whoever knows the group's secret can say PREPARE in any name. So those who
are in one view with the coordinator take its key only if the coordinator shows that it
holds the key of that view. Of two who are in one view, one may have installed it and
the other not, or the one before: a coordinator links its key to that of its view, of
the view before, and of all later views that it has promised. Thus a former member
cannot make a view of the others that it could read: to have the key of a view, it has
to be in it.

The pair of keys of a process is made when it starts, and is gone with it: what was
recorded opens for nobody, also if the group's secret leaks later.
"""

import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from ringcast.protocols.security.identity import Identity, Proved, Seated
from ringcast.protocols.security.keys import derive
from ringcast.stack import HeldKeys

ENTROPY = 32                            # random bytes that a Keyring needs
MOST_HELD = 32                          # keys: of the view, and of later ones that were promised
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_MAC = 16
SealsFor = Callable[[bytes, X25519PublicKey, bytes], bytes]      # as Suite.encrypt: text, key, info


class Held(NamedTuple):
    """The key of a view: who made it, and for whom."""

    key: bytes
    maker: int
    members: Mapping[int, bytes]        # and their public keys

    def __repr__(self) -> str:
        return "Held(...)"              # and nothing of the key


class Keyring:
    """The keys that `member` holds, of one group.

    `entropy` are ENTROPY random bytes that no other process has. `identity` is ours,
    in a group that trusts keys. `seals_for` is another Suite.encrypt, for the
    simulator.
    """

    def __init__(self, group: str, member: int, entropy: bytes,
                 identity: Identity | None = None, seals_for: SealsFor = SUITE.encrypt) -> None:
        assert len(entropy) == ENTROPY
        self.group, self.member, self._entropy, self._seals_for = group, member, entropy, seals_for
        self._private = X25519PrivateKey.from_private_bytes(derive(entropy, b"ringcast 1 box"))
        self.public = self._private.public_key().public_bytes_raw()
        self.identity = identity
        if identity is not None:
            identity.proved[member] = Proved(identity.key, self.public)
        self.present = 0                                # the view that is installed
        self._held: dict[int, Held] = {}                # its key, and those of later views
        self._links: dict[int, bytes] = {}              # what links to the view before

    def __repr__(self) -> str:
        return f"Keyring({self.member:016x})"

    def make(self, view_id: int, seats: Sequence[Seated]) -> tuple[dict[int, bytes],
                                                                   dict[int, bytes]]:
        """Make the key of a view. Return it sealed for each member, and the chain."""
        key = derive(self._entropy, b"ringcast 1 key of a view" + view_id.to_bytes(8, "little"))
        keys: dict[int, bytes] = {}
        for seat in seats:
            sealed = self.seal_for(key, seat.public, self._info(view_id, seat.incarnation))
            if sealed is not None:                      # else this member gets none
                keys[seat.incarnation] = sealed
        said = _said(view_id, seats, keys)
        links = self._links | {each: _link(held.key) for each, held in self._held.items()}
        return keys, {each: _mac(link, said) for each, link in links.items()}

    def take(self, maker: int, view_id: int, seats: Sequence[Seated], keys: Mapping[int, bytes],
             chain: Mapping[int, bytes] | None) -> bool:
        """Hold the key that `maker` has made for a view. Return False if it has none
        for us, or if somebody else has made one. A `chain` of a coordinator in our view
        must be good."""
        held = self._held.get(view_id)
        if held is not None:
            return held.maker == maker
        if view_id <= self.present or (
                chain is not None and not self._is_chained(chain, _said(view_id, seats, keys))):
            return False
        key = self.opens(keys.get(self.member, b""), view_id, self.member)
        if key is None:
            return False
        if len(self._held) >= MOST_HELD:
            del self._held[min(each for each in self._held if each != self.present)]
        self.hold(view_id, Held(key, maker, _publics(seats)))
        return True

    def opens(self, sealed: bytes, view_id: int, member: int) -> bytes | None:
        """Return the key of a view that was sealed for a member; None if it does not
        open."""
        return self.unseal(sealed, self._info(view_id, member))

    def seal_for(self, key: bytes, public: bytes, info: bytes) -> bytes | None:
        """Return a key sealed for whoever has this public key; None if it is none."""
        try:
            return self._seals_for(key, X25519PublicKey.from_public_bytes(public), info)
        except ValueError:
            return None

    def unseal(self, sealed: bytes, info: bytes) -> bytes | None:
        """Return a key that was sealed for us; None if it does not open."""
        try:
            return SUITE.decrypt(sealed, self._private, info)
        except (InvalidTag, ValueError):
            return None

    def strangers(self, seats: Sequence[Seated]) -> list[int]:
        """Return whose seats say what they have not proved; without trusted keys,
        nobody's."""
        return self.identity.strangers(seats) if self.identity is not None else []

    def _is_chained(self, chain: Mapping[int, bytes], said: bytes) -> bool:
        """Return whether a chain has a link to the key of our view."""
        mac = _mac(_link(self._held[self.present].key), said)
        return hmac.compare_digest(chain.get(self.present, b""), mac)

    def fits(self, view_id: int, seats: Sequence[Seated]) -> bool:
        """Return whether a view has the members for whom its key was made."""
        held = self._held.get(view_id)
        return held is not None and held.members == _publics(seats)

    def install(self, view_id: int) -> None:
        """Forget the keys of earlier views."""
        self._links = {self.present: _link(self._held[self.present].key)} if self.present else {}
        self.present = view_id
        self._held = {each: held for each, held in self._held.items() if each >= view_id}

    def hold(self, view_id: int, held: Held) -> None:
        """Hold the key of a view."""
        self._held[view_id] = held

    def held(self) -> HeldKeys:
        """Return the keys that we hold."""
        return HeldKeys(self.present, {each: held.key for each, held in self._held.items()},
                        {each: held.members.keys() for each, held in self._held.items()})

    def _info(self, view_id: int, member: int) -> bytes:
        """Return what a sealed key is bound to."""
        return b"ringcast 1 key of a view %d %d " % (view_id, member) + self.group.encode()


def _publics(seats: Sequence[Seated]) -> dict[int, bytes]:
    return {seat.incarnation: seat.public for seat in seats}


def _said(view_id: int, seats: Sequence[Seated], keys: Mapping[int, bytes]) -> bytes:
    """Return what a chain is about: each part has a fixed size or says its own."""
    parts = [b"%d %d" % (view_id, len(seats))]
    for seat in seats:
        sealed = keys.get(seat.incarnation, b"")
        parts += [b" %d %d %d " % (seat.incarnation, len(seat.public), len(sealed)), seat.public,
                  sealed]
    return b"".join(parts)


def _link(key: bytes) -> bytes:
    return derive(key, b"ringcast 1 chain")


def _mac(link: bytes, said: bytes) -> bytes:
    return hmac.digest(link, said, "sha256")[:_MAC]
