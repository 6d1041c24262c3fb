"""Which thread polls the transport: the driver, or a thread that waits for messages.

Some thread must watch the network all the time, so there is a driver. But a thread that
waits for a message gets it sooner if it polls itself: handing it over from one thread
to another costs more than everything else between network and application. So such a
thread polls in the driver's place, and the driver stands by (the pattern of leader and
follower). When the thread goes away with its message, the driver does not take over at
once, because that would be the same hand-over again. It checks every millisecond, and
takes over if no caller has polled since. If a caller says that it will not poll soon,
the driver checks at once, and takes over a millisecond later.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from ringcast.channel.reentry import Alarm

PATIENCE = 0.001                        # seconds between two checks of the driver that stands by


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
        self._num_visits = 0                    # of callers that have polled
        self._caller_left = threading.Event()   # a caller went away while the driver slept
        self._handed_back = Alarm()             # a caller will not poll soon
        self._is_asleep = False
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
            visits = self._num_visits
            self._handed_back.sleep(PATIENCE)
            if visits != self._num_visits or self._caller_waits:
                continue
            if not self._poll_lock.locked():
                break
            # A caller polls and waits for something to happen. When it goes away it
            # wakes us, if it sees that we are asleep. If it does not see that, it has
            # gone before we check again below.
            self._caller_left.clear()
            self._is_asleep = True
            if self._poll_lock.locked() and visits == self._num_visits and not self._stopped:
                self._caller_left.wait()
            self._is_asleep = False
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
                while not done() and not self._stopped:
                    self._turn(True, by)
                    if by is not None and time.monotonic_ns() >= by:
                        break
        finally:
            self._caller_waits = False
            self._num_visits += 1
            if self._is_asleep:
                self._caller_left.set()

    def poll_briefly(self, done: Callable[[], bool]) -> None:
        """Take a turn without waiting. If it brings nothing, the driver polls
        soon: after a millisecond."""
        self.poll_from_caller(done, 0)
        if not done():
            self._handed_back.ring()

    def stop(self) -> None:
        """End all turns: make run_driver() and poll_from_caller() return."""
        self._stopped = True
        self._caller_left.set()
        self._wake()
