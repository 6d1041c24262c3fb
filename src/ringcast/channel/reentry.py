"""Let a signal handler call the channel whose call it interrupted.

Python runs signal handlers on the main thread, between two bytecodes of whatever that
does. If the interrupted call holds a lock, a handler that waits for the lock waits for
ever. So a thread notes that it is inside a channel before it takes any lock there. A
call that finds its own thread inside already takes no lock: it leaves the work to
another thread, or raises.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ringcast.errors import RingcastError

Returned = TypeVar("Returned")
Parameters = ParamSpec("Parameters")

REENTERED = ("this call came in the middle of another call of the same channel, most likely from a "
             "signal handler, and the other call must finish first; set a flag in the handler and "
             "check it later, or call from another thread")


class HasInside(Protocol):
    """An object whose `_inside` are the idents of the threads that are inside it."""

    _inside: set[int]


Owner = TypeVar("Owner", bound=HasInside)
Method = Callable[Concatenate[Owner, Parameters], Returned]


def refuses_reentry(method: Method[Owner, Parameters, Returned],
                    ) -> Method[Owner, Parameters, Returned]:
    """Make a method raise RingcastError if its thread is inside already; otherwise the
    thread is inside while the method runs."""

    @wraps(method)
    def entered(owner: Owner, *args: Any, **kwargs: Any) -> Returned:
        thread = threading.get_ident()
        if thread in owner._inside:
            raise RingcastError(REENTERED)
        try:            # a handler may raise at any time, so nothing comes between this and add()
            owner._inside.add(thread)
            return method(owner, *args, **kwargs)
        finally:
            owner._inside.discard(thread)

    return entered


class Listener(Protocol):
    """What a condition tells of a change: in any thread, and in a signal handler."""

    def ring(self) -> None: ...


class Alarm:
    """Wakes one thread that sleeps, or keeps it from sleeping the next time. Rings
    before that count as one.

    It is a lock that is held while there is nothing to wake for. A SimpleQueue of
    Python 3.11 would wait for ever if the thread is not run for longer than the
    timeout.
    """

    def __init__(self) -> None:
        self._quiet = threading.Lock()
        self._quiet.acquire()

    def ring(self) -> None:
        """Wake the thread."""
        with suppress(RuntimeError):                    # it rings already
            self._quiet.release()

    def sleep(self, seconds: float | None) -> None:
        """Sleep until it rings, but at most so long; None is for ever."""
        self._quiet.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))


class LockFreeCondition:
    """A condition variable without a lock: a signal handler may notify, whatever it
    interrupted.

    T1 waits: it registers, checks the condition, and sleeps. T2 changes something, then
    notifies all that are registered. In whatever order these steps come, T1 sees the
    change or is notified.
    """

    def __init__(self) -> None:
        self._waiting: set[Listener] = set()

    def watch(self, listener: "Listener") -> None:
        """Call `listener.ring()` at each notify_all() from now on."""
        self._waiting.add(listener)

    def notify_all(self) -> None:
        """Make all waiting threads check their conditions again."""
        for each in self._waiting.copy():       # no thread can change the set meanwhile
            each.ring()

    def wait_for(self, condition: Callable[[], bool],
                 deadline: Callable[[], float | None]) -> bool:
        """Wait for the condition; return False if it does not hold at `deadline()`, by
        time.monotonic(); None is never."""
        mine = Alarm()
        try:
            self._waiting.add(mine)
            while not condition():
                end = deadline()
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                mine.sleep(left)
            return True
        finally:
            self._waiting.discard(mine)


def deadline_after(timeout: float | None) -> Callable[[], float | None]:
    """Return a function for wait_for() that returns the instant `timeout` seconds from
    now; None is never."""
    end = None if timeout is None else time.monotonic() + timeout
    return lambda: end
