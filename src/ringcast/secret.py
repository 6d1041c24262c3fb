"""The secret of a group: 32 random bytes that all members have, and nobody else.

It comes from a file that `ringcast keygen` wrote and only its owner can read, or from a
function that the application provides. It never stands on a command line, in a message
or in a log.
"""

import os
import re
import secrets
import stat
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ringcast.errors import ConfigError
from ringcast.paths import check_characters, create, typed

Secret = str | os.PathLike[str] | Callable[[], bytes]

SIZE = 32                               # bytes
LONGEST = 4 * SIZE                      # characters of a file, with white space


def read_secret(secret: Secret) -> bytes:
    """Return the bytes of a secret: what the function returns, or what is in the file.
    ConfigError, which does not repeat the secret, if it cannot be used."""
    if callable(secret):
        found = secret()
        if not isinstance(found, bytes) or len(found) != SIZE:
            raise ConfigError(f"the function secret= has to return {SIZE} random bytes")
        return found
    if not isinstance(secret, str | os.PathLike):
        raise TypeError(f"secret is the path of a file, or a function, "
                        f"not {type(secret).__name__}")
    return _read_secret_file(secret)


def require_cryptography(what: str) -> None:
    """Raise ConfigError if the package that seals is missing; `what` needs it."""
    if find_spec("cryptography") is None:
        raise ConfigError(f"{what} needs the package cryptography; pip install 'ringcast[crypto]'")


def _read_secret_file(path: str | os.PathLike[str]) -> bytes:
    if re.fullmatch(rf"\s*[0-9A-Fa-f]{{{2 * SIZE}}}\s*", typed(path)):
        raise ConfigError("a secret is given as the path of a file, or as a function, and never "
                          "itself: others may have seen it now, so make another one with "
                          "`ringcast keygen`")
    check_characters("secret", path)
    named = f"the secret {typed(path)!r}"
    try:
        with open(path, "rb") as file:
            is_private = not os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            text = file.read(LONGEST + 1)
    except OSError as error:
        raise ConfigError(f"{named} cannot be read: {error.strerror}; make the file with "
                          "`ringcast keygen`") from None
    if not is_private:
        raise ConfigError(f"others can read or write {named}; make a new one, since they may know "
                          "this one, or `chmod 600` the file if nobody can")
    digits = text.strip()
    if len(digits) == 2 * SIZE:
        try:
            return bytes.fromhex(digits.decode("ascii"))
        except ValueError:              # it would show the digits: raise no part of it
            pass
    raise ConfigError(f"{named} does not hold {2 * SIZE} hexadecimal digits; make the file with "
                      "`ringcast keygen`")


def write_secret(path: Path) -> None:
    """Write a new secret into a new file that only its owner can read. ConfigError if
    there is such a file already, or it cannot be written."""
    try:
        create(path, secrets.token_hex(SIZE).encode() + b"\n", 0o600)
    except FileExistsError:
        raise ConfigError(f"{typed(path)!r} is there already; it may be the secret of a group, so "
                          "give another path") from None
    except OSError as error:
        raise ConfigError(f"{typed(path)!r} cannot be written: {error.strerror}") from None
