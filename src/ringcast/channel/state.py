"""The state of a channel on its way from open to closed, and who waits for it.

All parts of a channel share one State. A flag that is set stays set. Whoever sets a
flag notifies the conditions, so that every waiting thread checks it. Nothing here takes
a lock: a signal handler may call everything (reentry.py).
"""

from collections.abc import Callable

from ringcast.channel.pauses import Pause, Steps, run
from ringcast.channel.reentry import LockFreeCondition
from ringcast.errors import ClosedError


class State:
    """`wake()` makes the thread that polls check for work.

    Threads: any thread may read and set everything.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.closing = False            # nothing is sent any more
        self.stopped = False            # there are no more turns
        self.closed = False             # sockets and threads are gone
        self.forked = False             # this is a forked child's copy
        self.fault: str | None = None   # why the channel closed by itself
        self.inside: set[int] = set()   # idents of threads inside the channel (reentry.py)
        self.reset()

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self.inside.clear()
        # A send window has room, or the channel closes.
        self.room = LockFreeCondition()
        # A view came, or everything is acknowledged, or the channel closes.
        self.settled = LockFreeCondition()

    def disable_after_fork(self, fault: str) -> None:
        """Refuse every call from now on, with `fault` as the reason. Make new
        conditions, because threads of the parent may be registered with the old
        ones."""
        self.fault = fault
        self.closing = self.stopped = self.closed = self.forked = True
        self.reset()

    def check_open(self) -> None:
        """Raise ClosedError if the channel is closed or closes."""
        if self.closing:
            raise ClosedError(self.fault or "this channel is closed; open a new one")

    def check_not_forked(self) -> None:
        """Raise ClosedError in a forked child."""
        if self.forked:
            self.check_open()

    def release_waiters(self) -> None:
        """Make all waiting threads check what has changed."""
        self.room.notify_all()
        self.settled.notify_all()

    def wait_settled(self, deadline: Callable[[], float | None],
                     condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, or there are no more turns, at most until
        `deadline()`."""
        run(self.settling(deadline, condition))

    def settling(self, deadline: Callable[[], float | None],
                 condition: Callable[[], bool]) -> Steps[None]:
        """See wait_settled."""
        self._wake()
        yield Pause(self.settled, lambda: self.stopped or condition(), deadline)
