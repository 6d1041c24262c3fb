"""The threads of a channel: daemons, named after group and member.

A daemon does not keep the program alive, so a callback that never returns cannot
either. While a thread has nothing to do its target holds no reference to the channel,
so a channel that everybody has forgotten can be collected.
"""

import threading
import time
from collections.abc import Callable

from ringcast.address import Address
from ringcast.logs import log

LOOK = 0.05     # seconds between two looks at who closes, and until when
GRACE = 1.0     # seconds that threads get to end if close() has no time left


class Threads:
    """The threads of the member `local` of a group.

    Threads: any thread may call; one at a time may call `start`.
    """

    def __init__(self, group: str, local: Address) -> None:
        self._local = local
        self.name = f"ringcast {group} {local.name}"
        self.reset()

    def reset(self) -> None:
        """Forget all threads. A forked child has none of its parent's."""
        self.started: list[threading.Thread] = []

    def start(self, target: Callable[[], None], role: str) -> None:
        """Start a thread that `join` waits for."""
        thread = self.make(target, role)
        self.started.append(thread)
        thread.start()

    def make(self, target: Callable[[], None], role: str) -> threading.Thread:
        """Return a thread that `join` does not wait for; the caller starts it."""
        return threading.Thread(target=target, name=f"{self.name} {role}", daemon=True)

    def join(self, deadline: Callable[[], float | None], closers: set[int]) -> None:
        """Wait until all threads have ended but those with the idents `closers`, at
        most until `deadline()`, by time.monotonic(); None is for ever. Both may change
        meanwhile. The channel is halted: a thread that a signal kept from starting
        finds that when it starts, and ends."""
        for thread in self.started:
            least = time.monotonic() + GRACE
            while thread.is_alive() and thread.ident not in closers:
                end = deadline()
                if end is not None and max(end, least) <= time.monotonic():
                    log.warning("%s: thread %r does not end; what it was given is not acknowledged",
                                self._local, thread.name)
                    break
                thread.join(LOOK)
