"""What lets a signal handler call the channel whose call it interrupted.

Python runs signal handlers on the main thread, between two bytecodes of whatever that
is doing. If the interrupted call holds a lock, a handler that waits for the lock waits
for ever. So a thread notes that it is inside a channel's internals, before it takes any
lock there; and a call that finds its own thread inside already takes no lock: it leaves
the work to another thread, or raises.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ringcast.errors import RingcastError

Returned = TypeVar("Returned")
Parameters = ParamSpec("Parameters")


REENTERED = ("this call came from a signal handler that interrupted another call of the same channel, which must go on first; "
             "set a flag in the handler and look at it later, or call from another thread")


class HasInside(Protocol):
    """Something of which `_inside` are the threads that are at work in it, by their
    idents."""

    _inside: set[int]


Owner = TypeVar("Owner", bound=HasInside)


def enters(method: Callable[Concatenate[Owner, Parameters], Returned]) -> Callable[Concatenate[Owner, Parameters], Returned]:
    """Make a method raise RingcastError when its own thread is inside, else be inside
    while it runs."""

    @wraps(method)
    def entered(owner: Owner, *args: Any, **kwargs: Any) -> Returned:
        thread = threading.get_ident()
        if thread in owner._inside:
            raise RingcastError(REENTERED)
        try:                    # a handler may raise at any time: nothing stands before the `try`
            owner._inside.add(thread)
            return method(owner, *args, **kwargs)
        finally:
            owner._inside.discard(thread)

    return entered


class Bell:
    """Wakes whoever waits for a condition, without a lock: it may be rung from a signal
    handler, whatever that interrupted.

    T1 waits: enters itself, looks at the condition, sleeps. T2 changes something, then rings for all who have entered. Whichever comes
    first, T1 sees the change or hears the bell.
    """

    def __init__(self) -> None:
        self._waiting: set[SimpleQueue[None]] = set()

    def ring(self) -> None:
        """Make all who wait look at their conditions again."""
        for each in tuple(self._waiting):
            each.put(None)

    def wait_for(self, condition: Callable[[], bool], until: Callable[[], float | None]) -> bool:
        """Wait for the condition; return False when it does not hold at `until()`, by
        time.monotonic(); None is never."""
        mine: SimpleQueue[None] = SimpleQueue()
        try:
            self._waiting.add(mine)
            while not condition():
                end = until()
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                with suppress(Empty):
                    mine.get(timeout=left)
            return True
        finally:
            self._waiting.discard(mine)


def at(timeout: float | None) -> Callable[[], float | None]:
    """The instant so many seconds from now, for Bell.wait_for."""
    end = None if timeout is None else time.monotonic() + timeout
    return lambda: end
