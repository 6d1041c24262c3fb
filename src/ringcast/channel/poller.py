"""Who polls the transport: a driver thread, or whoever waits for messages.

Somebody must watch the network all the time, so there is a driver. But a thread that
waits for a message gets it sooner when it polls by itself: a hop from one thread to
another costs more than all else between the network and the application. So such a
thread polls instead of the driver, which stands by (the pattern of leader and
follower). When it goes away with its message, the driver does not take over at once,
for that would be the same hop again; it looks every millisecond, and takes over when
the caller has not come back.
"""

import threading
import time
from collections.abc import Callable

PATIENCE = 0.001                        # seconds between two looks of the driver that stands by


class Poller:
    """`turn(visiting)` polls once and does what follows from it. It returns at once
    after `wake`, and it returns False when there is nobody left to poll for.

    Threads: one runs the driver; one caller polls at a time; any may call stop().
    """

    def __init__(self, turn: Callable[[bool], bool], wake: Callable[[], None]) -> None:
        self._turn, self._wake = turn, wake
        self._taken = threading.Lock()          # held by whoever polls
        self._wanted = False                    # somebody visits now and then
        self._waiting = False                   # a visitor waits for the driver to get up
        self._visits = 0
        self._left = threading.Event()          # a visitor went while the driver slept
        self._asleep = False
        self._stopped = False

    def run_driver(self) -> None:
        """Take turns until stop(), and leave them to visitors while there are any."""
        while not self._stopped:
            with self._taken:
                while not (self._wanted or self._waiting or self._stopped):
                    if not self._turn(False):
                        self._stopped = True
            self._stand_by()

    def _stand_by(self) -> None:
        """Until no visitor has come for a while."""
        while not self._stopped:
            visits = self._visits
            time.sleep(PATIENCE)
            if visits != self._visits or self._waiting:
                continue
            if not self._taken.locked():
                break
            # A visitor waits for something to happen. It says so when it goes, if it
            # sees that we are asleep; and if it does not see that, it has gone before
            # we look again.
            self._left.clear()
            self._asleep = True
            if self._taken.locked() and visits == self._visits and not self._stopped:
                self._left.wait()
            self._asleep = False
        self._wanted = False

    def poll_from_caller(self, done: Callable[[], bool]) -> None:
        """Take turns until `done`, or stop(). An exception may come at any time, and
        then another polls."""
        try:
            self._waiting = True            # said first: a driver that comes before us gives way
            if self._taken.locked():
                self._wake()
            with self._taken:
                self._waiting = False
                self._wanted = True
                while not done() and not self._stopped:
                    self._turn(True)
        finally:
            self._waiting = False
            self._visits += 1
            if self._asleep:
                self._left.set()

    def stop(self) -> None:
        """The end of all turns; whoever polls comes back."""
        self._stopped = True
        self._left.set()
        self._wake()
