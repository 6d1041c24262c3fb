"""How far a channel is on its way from open to closed, and who waits for that.

All parts of a channel share one State. A flag that is set stays set. Whoever sets one
rings the bells, so that every thread that waits looks at it. Nothing here takes a lock:
a signal handler may call all of it (reentry.py).
"""

from collections.abc import Callable

from ringcast.channel.reentry import Bell
from ringcast.errors import ClosedError


class State:
    """`wake()` makes the thread that polls look for work.

    Threads: any may read and set everything.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.closing = False            # nothing is sent any more
        self.stopped = False            # there are no turns any more
        self.closed = False             # sockets and threads are gone
        self.forked = False             # this is a forked child's copy
        self.fault: str | None = None   # why the channel closes by itself
        self.inside: set[int] = set()   # threads at work in the channel (reentry.py)
        self.begin()

    def begin(self) -> None:
        """Make what threads share."""
        self.inside.clear()
        self.room = Bell()              # a send window has room, or the channel closes
        self.settled = Bell()           # a view came, or all is acknowledged, or the channel closes

    def become_a_copy(self, fault: str) -> None:
        """Be of no use, for this reason. Threads that are not here may wait at the
        bells: make new ones."""
        self.fault = fault
        self.closing = self.stopped = self.closed = self.forked = True
        self.begin()

    def check_open(self) -> None:
        """Raise ClosedError if the channel is closed, or about to be."""
        if self.closing:
            raise ClosedError(self.fault or "this channel is closed; open a new one")

    def check_not_forked(self) -> None:
        """Raise ClosedError in a forked child."""
        if self.forked:
            self.check_open()

    def release_waiters(self) -> None:
        """Make all who wait look at what has changed."""
        self.room.ring()
        self.settled.ring()

    def wait_settled(self, until: Callable[[], float | None],
                     condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, or `until()`, or until there are no turns any
        more."""
        self._wake()
        self.settled.wait_for(lambda: self.stopped or condition(), until)
