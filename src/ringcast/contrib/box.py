"""A mailbox, and the tasks of any event loop that wait for a message in it."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]


class Box:
    """One mailbox: messages with the time at which they expire, and who waits."""

    def __init__(self) -> None:
        self.messages: deque[tuple[float, bytes]] = deque()
        self.waiters: deque[Waiter] = deque()

    def expire(self, now: float) -> bool:
        """Drop what has waited too long. Return whether there was any."""
        before = len(self.messages)
        while self.messages and self.messages[0][0] < now:
            self.messages.popleft()
        return len(self.messages) < before

    def next_waiters(self) -> Iterator[Waiter]:
        """Yield a task that is to be woken, if there is a message. It waits no more."""
        while self.messages and self.waiters:
            loop, waiter = self.waiters.popleft()
            if not loop.is_closed():
                yield loop, waiter
                return


def wake(woken: Iterable[Waiter]) -> None:
    """Wake tasks. Each loop is interrupted once, since each time costs a change of
    threads."""
    of_loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for loop, waiter in woken:
        of_loops.setdefault(loop, []).append(waiter)
    for loop, waiters in of_loops.items():
        with suppress(RuntimeError):                    # it has just been closed
            loop.call_soon_threadsafe(end_waiting, waiters)


def end_waiting(waiters: Iterable[asyncio.Future[None]]) -> None:
    """Let tasks go on, if they still wait."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
