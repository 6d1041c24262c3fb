"""Which thread polls the transport: the driver, or a thread that waits for messages.

Some thread must watch the network all the time, so there is a driver. But a thread that
waits for a message gets it sooner if it polls itself: handing it over from one thread
to another costs more than everything else between network and application. So such a
thread polls in the driver's place, and the driver stands by (the pattern of leader and
follower). When the thread goes away with its message, the driver does not take over at
once, because that would be the same hand-over again. It checks every millisecond
(standby.pyx), and takes over if no caller has polled since. If a caller says that it
will not poll soon, the driver takes over a millisecond later.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from ringcast._core.standby import Standby

PATIENCE = 1_000_000    # nanoseconds between two checks of the driver that stands by


class Turn(Protocol):
    """Polls once and handles what came, at most until the instant `by`, by
    time.monotonic_ns(); None is never. `expecting` says that the caller waits for a
    message. Returns False if there is nobody left to poll for."""

    def __call__(self, expecting: bool, by: int | None = None) -> bool: ...


class Poller:
    """Lets threads call `turn`, which returns at once after `wake`.

    Threads: one thread runs the driver; one caller polls at a time; any thread may call
    stop().
    """

    def __init__(self, turn: Turn, wake: Callable[[], None]) -> None:
        self._turn, self._wake = turn, wake
        self._poll_lock = threading.Lock()      # held by the thread that polls
        self._callers_poll = False              # a caller polls now and then
        self._caller_waits = False              # a caller waits for the driver to give way
        self._standby = Standby()               # where the driver waits while callers poll
        self._stopped = False

    def run_driver(self) -> None:
        """Take turns until stop(), except while callers poll."""
        while not self._stopped:
            with self._poll_lock:
                while not (self._callers_poll or self._caller_waits or self._stopped):
                    if not self._turn(False):
                        self._stopped = True
            self._stand_by()

    def _stand_by(self) -> None:
        """Wait until no caller has polled for a while."""
        while not self._stopped:
            self._standby.wait(PATIENCE)
            if not (self._caller_waits or self._poll_lock.locked()):
                break
        self._callers_poll = False

    def poll_from_caller(self, done: Callable[[], bool], by: int | None = None) -> None:
        """Take turns until `done()`, or stop(), or the instant `by`. If an exception
        ends this, at whatever time, another thread polls."""
        try:
            self._caller_waits = True           # set first: a driver that comes now gives way
            if self._poll_lock.locked():
                self._wake()
            with self._poll_lock:
                self._caller_waits = False
                self._callers_poll = True
                try:
                    self._standby.enter()
                    while not done() and not self._stopped:
                        self._turn(True, by)
                        if by is not None and time.monotonic_ns() >= by:
                            break
                finally:
                    self._standby.leave()
        finally:
            self._caller_waits = False

    def poll_briefly(self, done: Callable[[], bool]) -> None:
        """Take a turn without waiting. If it brings nothing, the driver polls
        soon: after a millisecond."""
        self.poll_from_caller(done, 0)
        if not done():
            self._standby.hurry()

    def stop(self) -> None:
        """End all turns: make run_driver() and poll_from_caller() return."""
        self._stopped = True
        self._standby.stop()
        self._wake()
