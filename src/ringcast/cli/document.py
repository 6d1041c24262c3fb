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


def about() -> dict[str, Any]:
    """Return the versions and the machine that the figures were measured with."""
    return {"ringcast": ringcast.__version__, "python": platform.python_version(),
            "system": platform.platform(), "cores_available": cores_available()}


def cores_available() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def check_writable(target: str) -> None:
    """Raise ConfigError if the file for the figures cannot be written: call it before
    the measurement."""
    try:
        if target != "-":
            Path(target).open("a").close()
    except OSError as error:
        raise ConfigError(f"--json {target}: {error.strerror}") from None


def write_json(target: str, document: dict[str, Any]) -> None:
    """Write the document, with what it was measured with, to the file `target`; "-" is
    standard output."""
    text = json.dumps({**about(), **document}, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
