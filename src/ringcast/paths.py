"""Paths as users give them: plain, or with the scheme `file:`; always on a mounted file
system.

Spark's users write URIs. As a plain path, `s3a://bucket/journal` would mean a folder
`s3a:` in the working directory, which nobody else writes to. So every path from a user
goes through `local_path`.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from ringcast.errors import ConfigError

# One letter and "/" is no scheme.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=/)|file:", re.IGNORECASE)
_LOCAL_HOSTS = ("", "localhost")


def typed(given: str | os.PathLike[str]) -> str:
    """Return a path as it was typed, for sentences; a TypedPath knows that."""
    return str(getattr(given, "typed", os.fspath(given)))


def check_characters(what: str, given: str | os.PathLike[str]) -> None:
    """Raise ConfigError for a path with a character that no path can have. The system's
    own errors for that are no OSError."""
    try:
        is_path = b"\0" not in os.fsencode(given)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise ConfigError(f"{what}={typed(given)!r} has a character that no path can have; leave "
                          "it out")


def create(path: Path, text: bytes, mode: int) -> None:
    """Write a new file with these permissions, down to the disk. Raises FileExistsError
    if it is there already, or another OSError; then it leaves no half of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)     # whatever the umask
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        path.unlink()
        raise


def local_path(given: str | os.PathLike[str]) -> Path:
    """Return the local path that a path or a `file:` URI names; a URI's
    percent-encoding is decoded.

    ConfigError for any other scheme, for a URI of another machine, for a URI with a
    relative path, and for a path with a zero byte, which no file has.
    """
    text = os.fspath(given)
    scheme = _SCHEME.match(text)
    path = text if scheme is None else _path_in_uri(scheme[0], text[scheme.end():])
    if path is None or "\0" in path:
        raise ConfigError(f"{text} is not a path of this machine: name a directory of a file "
                          "system that is mounted here, as /data/journal or file:///data/journal.")
    return Path(path)


def _path_in_uri(scheme: str, rest: str) -> str | None:
    """Return the path that a URI names; None if it is not an absolute one of this
    machine."""
    if rest.startswith("//"):
        host, _, named = rest[2:].partition("/")
        rest = "/" + named if host.lower() in _LOCAL_HOSTS and named else ""
    return unquote(rest) if scheme.lower() == "file:" and rest.startswith("/") else None
