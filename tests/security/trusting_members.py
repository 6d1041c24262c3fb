"""Members that trust keys, without a network: as sealed_members, with identities."""

from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sealed_members import ALIVE, Member, keys

from ringcast.protocols.security import keyring as keyrings
from ringcast.protocols.security.identity import Identity
from ringcast.protocols.security.keyring import Keyring
from ringcast.protocols.security.keys import NO_SECRET
from ringcast.protocols.security.seal import ENTROPY, Seal


def private(name):
    """The private key of this name."""
    return Ed25519PrivateKey.from_private_bytes(Random(f"key {name}").randbytes(32))


def key_of(name):
    return private(name).public_key().public_bytes_raw()


def trusting(names):
    return {key_of(name): frozenset([name]) for name in names}


class Trusting(Member):
    """A process of `name`, which trusts the keys of `trusts`."""

    def __init__(self, number, name, trusts="abc", secret=NO_SECRET, group="g"):
        Member.drawn += 1
        random = Random(Member.drawn)
        self.name = name
        ring = Keyring(group, number, random.randbytes(keyrings.ENTROPY),
                       Identity(private(name), trusting(trusts)))
        Seal.__init__(self, keys(secret=secret, group=group), number, random.randbytes(ENTROPY),
                      {1}, {ALIVE}, range(256), ring)
