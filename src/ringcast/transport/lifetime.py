"""What a transport's threads share: it closes when nobody is inside it any more,
whoever that was."""

import threading

from ringcast.errors import ClosedError


class Shared:
    """A transport that threads enter and leave, and that gives its sockets back once:
    at close(), or when the last one leaves after it.

    A subclass gives `wake()`, which makes a thread that waits inside come out, and
    `_release()`.
    """

    def __init__(self) -> None:
        self._users = 0                         # threads inside
        self._closed = self._released = False
        self._lock = threading.RLock()      # of these; re-entrant, for a signal handler that closes

    def wake(self) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        """Close the sockets. Called once, with `_lock`, when nobody uses them."""
        raise NotImplementedError

    def close(self) -> None:
        """See `Transport.close`."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.wake()
                self._release_if_unused()

    def forget(self) -> None:
        """See `Transport.forget`. The lock may have been held by a thread that is not
        here."""
        self._lock = threading.RLock()
        self._users = 0
        if not self._released:
            self._closed = self._released = True
            self._drop()

    def _drop(self) -> None:
        """Close the descriptors and do no more."""
        raise NotImplementedError

    def _enter(self) -> None:
        """Keep the sockets open while a system call may use them: a number closed too
        early may be another file's."""
        with self._lock:
            if self._closed:
                raise ClosedError("this transport is closed; open another one")
            self._users += 1

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            self._release_if_unused()

    def _release_if_unused(self) -> None:
        if self._closed and not self._users and not self._released:
            self._released = True
            self._release()
