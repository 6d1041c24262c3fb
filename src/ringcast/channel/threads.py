"""The threads of a channel: named after group and member, and daemons.

A daemon does not keep the program alive, so a callback that never returns cannot. A
thread's target holds no channel while the thread has nothing to do: a channel that
everybody has forgotten can go.
"""

import logging
import threading
import time
from collections.abc import Callable

from ringcast.address import Address

log = logging.getLogger("ringcast")

GRACE = 1.0                     # seconds that threads get to end when close() has no time left


class Threads:
    """The threads of the member `local` of a group.

    Threads: any may call; `start` is for one at a time.
    """

    def __init__(self, group: str, local: Address) -> None:
        self._local = local
        self.name = f"ringcast {group} {local.name}"
        self.begin()

    def begin(self) -> None:
        """Have no thread. A forked child has none of its parent's."""
        self.started: list[threading.Thread] = []

    def start(self, target: Callable[[], None], role: str) -> None:
        """Start a thread that `join` waits for."""
        thread = self.make(target, role)
        self.started.append(thread)
        thread.start()

    def make(self, target: Callable[[], None], role: str) -> threading.Thread:
        """Return a thread that nobody waits for; the caller starts it."""
        return threading.Thread(target=target, name=f"{self.name} {role}", daemon=True)

    def join(self, until: Callable[[], float | None], caller: threading.Thread) -> None:
        """Wait for all threads but the caller. A callback that hangs is waited for
        until `until()`, by time.monotonic(); None is for ever."""
        for thread in self.started:
            if thread is not caller:
                end = until()
                thread.join(None if end is None else max(GRACE, end - time.monotonic()))
                if thread.is_alive():
                    log.warning("%s: thread %r does not end; what it was given is not acknowledged",
                                self._local, thread.name)
