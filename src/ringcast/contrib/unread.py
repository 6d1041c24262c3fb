"""Which channels are unread: a message has waited there for too long, and nothing was
taken since. Whoever read it has most likely gone without a word. Channels without a "!"
do not count: a worker may come later."""

import threading
import time
from itertools import takewhile


class Unread:
    """The names of such channels. One that has been unread for `patience` seconds is
    abandoned.

    Threads: any thread may call everything.
    """

    def __init__(self, patience: float) -> None:
        self._patience, self._lock = patience, threading.Lock()
        self._since: dict[str, float] = {}      # in the order of that

    def add(self, name: str, now: float) -> None:
        """Note that a message has expired there."""
        if "!" in name:
            with self._lock:
                self._since.setdefault(name, now)

    def discard(self, name: str) -> None:
        """Note that somebody takes from it."""
        with self._lock:
            self._since.pop(name, None)

    def take_abandoned(self) -> list[str]:
        """Return those that have been abandoned since the last call."""
        with self._lock:
            by = time.monotonic() - self._patience
            abandoned = list(takewhile(lambda name: self._since[name] <= by, self._since))
            for name in abandoned:
                del self._since[name]
        return abandoned
