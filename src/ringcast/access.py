"""Open the access to a sealed group: its secret gives it, or the keys that its members
trust, or both.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringcast.config import DEFAULTS, Config
from ringcast.errors import ConfigError
from ringcast.secret import Secret, read_secret, require_cryptography
from ringcast.trust import Folder, Trust

OF_SEALED = ("cipher", "rekey_interval")         # options that do nothing in other groups

if TYPE_CHECKING:
    from ringcast.protocols.security.keyring import Keyring
    from ringcast.protocols.security.keys import Keys


@dataclass(frozen=True)
class Access:
    """Holds what one member has of it. With trusted keys, `folder` is where they come
    from."""

    keys: Keys
    keyring: Keyring
    folder: Folder | None


def open_access(group: str, member: int, config: Config, secret: Secret | None = None,
                trust: Trust | Folder | None = None) -> Access | None:
    """Return the access of a new process to a group; None if it has neither a secret
    nor trusted keys. ConfigError for what cannot be used."""
    if secret is None and trust is None:
        for name in OF_SEALED:
            if getattr(config, name) != getattr(DEFAULTS, name):
                raise ConfigError(f"{name} is for groups with a secret or trusted keys; leave it "
                                  "out, or give secret= or trust=")
        return None
    key = None if secret is None else read_secret(secret)
    folder = trust if trust is None or isinstance(trust, Folder) else Folder(trust)
    given = "secret=" if folder is None else "trust="
    if config.insecure:
        raise ConfigError(f"{given} and insecure=True exclude each other; leave out insecure, "
                          "since datagrams are sealed")
    require_cryptography(given)
    from ringcast.protocols.security.identity import Identity
    from ringcast.protocols.security.keyring import ENTROPY, Keyring
    from ringcast.protocols.security.keys import NO_SECRET, Keys

    identity = None if folder is None else Identity(folder.private, folder.names)
    return Access(Keys(NO_SECRET if key is None else key, group, config.cipher),
                  Keyring(group, member, secrets.token_bytes(ENTROPY), identity), folder)
