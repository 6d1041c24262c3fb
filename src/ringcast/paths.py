"""Paths as users give them: with or without the scheme `file:`, and always on a file
system that is mounted.

Spark's users write URIs. Taken as a path, `s3a://bucket/journal` would be a folder
`s3a:` under the working directory, which nobody else writes to. So whatever takes a
path from a user takes it through `local_path`.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from ringcast.errors import ConfigError

# one letter and "/": no scheme
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=/)|file:", re.IGNORECASE)
_LOCAL_HOSTS = ("", "localhost")


def local_path(given: str | os.PathLike[str]) -> Path:
    """Return the local path that a path or a `file:` URI names, the URI's
    percent-encoding decoded.

    ConfigError for every other scheme, for a URI that names another machine, and for
    one whose path is relative.
    """
    text = os.fspath(given)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text)
    path = text[scheme.end():]
    if path.startswith("//"):
        host, _, rest = path[2:].partition("/")
        path = "/" + rest if host.lower() in _LOCAL_HOSTS and rest else ""
    if scheme[0].lower() != "file:" or not path.startswith("/"):
        raise ConfigError(f"{text} is not a path of this machine: name a directory of a file system that is mounted here, "
                          "as /data/journal or file:///data/journal.")
    return Path(unquote(path))
