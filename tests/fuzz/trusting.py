"""The target `trusting`: the same for a member of a group that trusts keys and has no
secret. There a stranger can make a HELLO with a check that holds, and with the key of
a member; what it cannot make is the signature.
"""

from random import Random

import sealed
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringcast.protocols.security import hello, keyring
from ringcast.protocols.security.identity import Identity
from ringcast.protocols.security.keyring import Keyring
from ringcast.protocols.security.keys import NO_SECRET, Keys
from ringcast.protocols.security.seal import ENTROPY, HELLO, Seal

KEYS = Keys(NO_SECRET, "fuzzed", "aes-256-gcm")
PRIVATE = [Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2)]
TRUSTED = {key.public_key().public_bytes_raw(): frozenset([name])
           for name, key in zip("ab", PRIVATE, strict=True)}


def members() -> list[Seal]:
    """Two members that have met."""
    pair = []
    for number, private in enumerate(PRIVATE, 1):
        ring = Keyring("fuzzed", number, bytes([number]) * keyring.ENTROPY,
                       Identity(private, TRUSTED))
        pair.append(Seal(KEYS, number, bytes([number]) * ENTROPY, outside=[0], keyring=ring))
    for _ in range(3):
        for one, other in (pair, pair[::-1]):
            other.open(one.hellos(0), 0)
    assert all(each.senders for each in pair)
    return pair


def finished(datagram: bytes, form: int) -> bytes:
    """Return a HELLO with a key that is trusted, a signature that is none, and a check;
    anything else as it is."""
    if datagram[3] == HELLO:
        if form & 128:
            datagram += PRIVATE[form >> 6 & 1].public_key().public_bytes_raw() + bytes(64)
        datagram += hello._mac(KEYS.hello, datagram)
    return datagram


def run(data: bytes) -> None:
    """Let a member read the datagrams that are in the data."""
    friend, member = members()
    proved = dict(member.identity.proved)
    sealed.check(data, friend, member, finished)
    assert member.identity.proved == proved and not member._publics


def examples() -> list[bytes]:
    """Return inputs to begin with: HELLOs of a member, cut, longer, and with other
    counts of those that it asks and answers."""
    rng, found = Random("trusting"), []
    friend, member = members()
    for count in range(3):
        friend.linked(range(10, 10 + count))
        friend._answers = dict.fromkeys(range(2, 2 + count), member.challenge)
        friend._publics = dict.fromkeys(friend._answers, member.keyring.public)
        friend._asked[2] = None
        for said in friend.hellos(0):
            body = said[24:-16 - 96]
            for _ in range(20):
                form = 1 | rng.choice([0, 128, 128, 128]) | rng.choice([0, 32, 64, 96])
                damaged = bytearray(body)
                if rng.random() < 0.3:
                    damaged[rng.choice([64, 65, rng.randrange(len(body))])] ^= 1 << rng.randrange(8)
                if rng.random() < 0.3:
                    damaged += rng.randbytes(rng.choice([1, 8, 24, 80]))
                damaged = damaged[:rng.choice([255] * 3 + [rng.randrange(256)])]
                found.append(bytes([form, len(damaged)]) + bytes(damaged))
    return found + [one + other for one, other in zip(found, found[::-1], strict=True)]


if __name__ == "__main__":
    for line in sorted((data.hex() for data in examples()), key=lambda line: (len(line), line)):
        print(line)
