"""Write what a command measured as one JSON document, to a file or to standard output,
with the versions and the machine."""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import ringcast
from ringcast import ConfigError
from ringcast.paths import typed


def about() -> dict[str, Any]:
    """Return the versions and the machine that the figures were measured with."""
    return {"ringcast": ringcast.__version__, "python": platform.python_version(),
            "system": platform.platform(), "cores_available": cores_available()}


def cores_available() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def check_writable(target: str | Path, flag: str = "--json") -> None:
    """Raise ConfigError if the file for what is measured cannot be written: call it
    before the measurement. It leaves no new file."""
    try:
        if target != "-":
            is_new = not os.path.lexists(target)
            Path(target).open("a").close()
            if is_new:
                Path(target).unlink()
    except OSError as error:
        raise ConfigError(f"{flag} {typed(target)}: {error.strerror}") from None


def write_json(target: str, document: dict[str, Any]) -> None:
    """Write the document, with what it was measured with, to the file `target`; "-" is
    standard output."""
    text = json.dumps({**about(), **document}, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
