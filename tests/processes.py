"""Help for tests with threads and processes: the command `ringcast`, and how to wait."""

import sys
import time

PATIENCE = 60               # seconds after which a test that waits for an event has failed
RINGCAST = [sys.executable, "-c", "from ringcast.cli import main; main()"]


def wait_for(condition, patience=PATIENCE):
    """Return as soon as `condition()` is true. Fail after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
