"""Help for tests with threads and processes: the command `ringcast`, how to wait, and
what the system says of a process."""

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60               # seconds after which a test that waits for an event has failed
RINGCAST = [sys.executable, "-c", "from ringcast.cli import main; main()"]


def wait_for(condition, patience=PATIENCE):
    """Return as soon as `condition()` is true. Fail after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def ringcast(*words, **options):
    """Run the command `ringcast` to its end and return what it wrote."""
    return subprocess.run([*RINGCAST, *map(str, words)], capture_output=True, text=True,
                          **{"timeout": 400, **options})


@contextmanager
def starting(**options):
    """Yield a function that starts a process, with pipes to it and from it. Kill what
    is left at the end."""
    running = []

    def start(command):
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, **options))
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.communicate()


def children(pid):
    """Return the processes that the main thread of a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid):
    """Say whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
