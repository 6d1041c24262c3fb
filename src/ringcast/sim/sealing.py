"""A sealed group in the simulator. Keys and all that is random come from the seed, here
alone: a channel draws them from the operating system.
"""

import hmac
from collections.abc import Iterable
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from ringcast.protocols.security import keyring
from ringcast.protocols.security.identity import Identity
from ringcast.protocols.security.keyring import Keyring
from ringcast.protocols.security.keys import NO_SECRET, SECRET_SIZE, Keys
from ringcast.protocols.security.seal import ENTROPY, Seal
from ringcast.stacks import BULK, CONTROL, OUTSIDE


class Sealing:
    """The secret of a simulated group, or the keys that its members trust: those of
    these `names`; and the seals and keyrings of its members."""

    group = "simulated"

    def __init__(self, seed: int | str, cipher: str, names: Iterable[str] | None = None) -> None:
        self.seed, self.rng = seed, Random(f"{seed} seals")
        secret = self.rng.randbytes(SECRET_SIZE)
        self.keys = Keys(NO_SECRET if names is not None else secret, self.group, cipher)
        self.trusted: dict[bytes, frozenset[str]] | None = None
        if names is not None:
            self.trusted = {self.key(name): frozenset([name]) for name in names}

    def private(self, name: str) -> Ed25519PrivateKey:
        """Return the private key of a member."""
        return Ed25519PrivateKey.from_private_bytes(Random(f"{self.seed} key {name}").randbytes(32))

    def key(self, name: str) -> bytes:
        """Return the public key of a member."""
        return self.private(name).public_key().public_bytes_raw()

    def seal(self, incarnation: int, ring: Keyring) -> Seal:
        """Return the seal of a new process that has this keyring."""
        return Seal(self.keys, incarnation, self.rng.randbytes(ENTROPY), BULK, CONTROL, OUTSIDE,
                    ring)

    def keyring(self, incarnation: int, name: str) -> Keyring:
        """Return the keyring of a new process of a member."""
        identity = None
        if self.trusted is not None:
            identity = Identity(self.private(name), dict(self.trusted))
        return Keyring(self.group, incarnation, self.rng.randbytes(keyring.ENTROPY), identity,
                       self.seals_for)

    def seals_for(self, text: bytes, public: X25519PublicKey, info: bytes) -> bytes:
        """Seal as Suite.encrypt does, which draws a key of its own: HPKE in base mode
        (RFC 9180) with X25519, HKDF-SHA256 and AES-256-GCM."""
        private = X25519PrivateKey.from_private_bytes(self.rng.randbytes(32))
        sent = private.public_key().public_bytes_raw()
        kem, suite = b"KEM\0\x20", b"HPKE\0\x20\0\1\0\2"
        prk = _extract(kem, b"eae_prk", private.exchange(public))
        shared = _expand(kem, prk, b"shared_secret", sent + public.public_bytes_raw(), 32)
        context = b"\0" + _extract(suite, b"psk_id_hash", b"") + _extract(suite, b"info_hash", info)
        secret = _extract(suite, b"secret", b"", shared)
        key, nonce = (_expand(suite, secret, label, context, size)
                      for label, size in ((b"key", 32), (b"base_nonce", 12)))
        return sent + AESGCM(key).encrypt(nonce, text, b"")


def _extract(suite: bytes, label: bytes, material: bytes, salt: bytes = b"") -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")


def _expand(suite: bytes, prk: bytes, label: bytes, info: bytes, size: int) -> bytes:
    labeled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return HKDFExpand(SHA256(), size, labeled).derive(prk)
