"""The keys that a group's secret becomes. No key serves two purposes, two groups or two
ciphers: HKDF makes each from the secret, its purpose, the cipher and the group's name.
A group that only trusts keys (identity.py) has zeros in the place of a secret. There
what its processes draw makes their keys.

Each sender has a key of its own in each epoch, made of the *salt* that the process drew
when it started, its incarnation and the epoch. So two processes never use one key, and
numbers that count datagrams are enough as nonces.
"""

from struct import Struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SECRET_SIZE = 32                        # bytes
NO_SECRET = bytes(SECRET_SIZE)
KEY_SIZE = 32
SALT_SIZE = 16
TAG_SIZE = 16                           # bytes that the cipher adds
Cipher = AESGCM | ChaCha20Poly1305
CIPHERS: dict[str, type[Cipher]] = {"aes-256-gcm": AESGCM, "chacha20-poly1305": ChaCha20Poly1305}

_SENDER = Struct("<16sQI")              # salt, incarnation, epoch


class Keys:
    """The keys of one group, made of SECRET_SIZE random bytes. `hello` authenticates
    HELLOs, `link` the handshakes of TCP. A group that only trusts keys has NO_SECRET:
    there signatures do that."""

    def __init__(self, secret: bytes, group: str, cipher: str) -> None:
        assert len(secret) == SECRET_SIZE
        self._cipher = CIPHERS[cipher]
        self._senders, self.hello, self.link, self._views = (
            derive(secret, f"ringcast 1 {purpose} {cipher} {group}".encode())
            for purpose in ("senders", "hello", "link", "views"))

    def __repr__(self) -> str:
        return "Keys(...)"              # and nothing of them

    def of_view(self, view_id: int, key: bytes) -> bytes:
        """Return the root of what is sealed in a view: it takes the view's key and the
        secret to make it."""
        return derive(self._views + key, b"ringcast 1 view %d" % view_id)

    def of_process(self, key: bytes) -> bytes:
        """Return the root of what a process seals without a view, where keys are
        trusted: it takes what the process has drawn and the secret to make it."""
        return derive(self._senders + key, b"ringcast 1 process")

    def cipher(self, salt: bytes, sender: int, epoch: int, root: bytes | None = None) -> Cipher:
        """Return the cipher of a sender in an epoch, under this root; or with the
        secret alone."""
        return self._cipher(derive(self._senders if root is None else root,
                                   _SENDER.pack(salt, sender, epoch)))


def derive(key: bytes, info: bytes) -> bytes:
    """Return the key for the purpose `info` (HKDF with SHA-256)."""
    return HKDF(SHA256(), KEY_SIZE, None, info).derive(key)
