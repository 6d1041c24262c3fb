"""Messages that wait in this process for tasks of any event loop.

Who receives takes a message without an await, and holds nothing while it waits. So a
task that is cancelled has taken nothing, and the message goes to the next one.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from ringcast.contrib.box import Box, Waiter, wake
from ringcast.contrib.unread import Unread


class Mailboxes:
    """Mailboxes by name. A message waits for `expiry` seconds. `unread` notes those in
    which one has waited for longer.

    Threads: any thread may call everything.
    """

    def __init__(self, capacity: Callable[[str], int], expiry: float, unread: Unread) -> None:
        self._capacity, self._expiry, self._unread = capacity, expiry, unread
        self._boxes: defaultdict[str, Box] = defaultdict(Box)
        self._lock, self._next_look = threading.Lock(), 0.0

    def put(self, name: str, message: bytes, *, first: bool = False) -> bool:
        """Put a message into a mailbox, `first` if it was there before. Return whether
        there was room."""
        return not self.put_all([name], message, first)

    def put_all(self, names: Iterable[str], message: bytes, first: bool = False) -> list[str]:
        """Put a message into several mailboxes. Return those that had no room."""
        full, woken = [], list[Waiter]()
        with self._lock:
            self._forget_expired(now := time.monotonic())
            for name in names:
                box = self._boxes[name]
                if box.expire(now):
                    self._unread.add(name, now)
                if len(box.messages) >= self._capacity(name) * (1 + first):
                    full.append(name)
                    continue
                (box.messages.appendleft if first else box.messages.append)(
                    (now + self._expiry, message))
                woken += box.next_waiters()
        wake(woken)
        return full

    def take(self, name: str) -> bytes | None:
        """Take the next message; None if there is none."""
        with self._lock:
            self._unread.discard(name)
            box = self._boxes.get(name, Box())
            box.expire(time.monotonic())
            return box.messages.popleft()[1] if box.messages else None

    @contextmanager
    def waiting(self, name: str) -> Iterator[asyncio.Future[None]]:
        """Yield what to await until there may be a message."""
        loop = asyncio.get_running_loop()
        entry = loop, loop.create_future()
        with self._lock:
            box = self._boxes[name]
            box.waiters.append(entry)
            woken = list(box.next_waiters())
        wake(woken)
        try:
            yield entry[1]
        finally:
            with self._lock:
                with suppress(ValueError):              # it was woken
                    box.waiters.remove(entry)
                woken = list(box.next_waiters())
            wake(woken)                 # it may have been cancelled: then it is another's turn

    def wake_all(self) -> None:
        """Wake whoever waits, although there may be no message."""
        with self._lock:
            woken = [waiter for box in self._boxes.values() for waiter in box.waiters]
        wake(woken)

    def num_waiting(self, name: str) -> int:
        """Return how many tasks wait for a message."""
        with self._lock:
            return len(self._boxes[name].waiters) if name in self._boxes else 0

    def names(self) -> list[str]:
        """Return the names of the mailboxes that are in use."""
        with self._lock:
            self._next_look = 0.0
            self._forget_expired(time.monotonic())
            return list(self._boxes)

    def clear(self) -> None:
        """Drop all messages."""
        with self._lock:
            for box in self._boxes.values():
                box.messages.clear()

    def _forget_expired(self, now: float) -> None:
        """Forget mailboxes that nobody uses, now and then."""
        if now >= self._next_look:
            self._next_look = now + self._expiry
            for name, box in list(self._boxes.items()):
                if box.expire(now):
                    self._unread.add(name, now)
                if not box.messages and not box.waiters:
                    del self._boxes[name]
