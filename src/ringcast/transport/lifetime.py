"""When a transport's sockets close: after close(), when no thread uses them any more;
and in a forked child at once."""

import os
import threading

from ringcast.errors import ClosedError

# Held by a thread while it opens or closes sockets, or gives one to another owner. A
# fork waits for that: its child could not close a socket that has no owner, and peers
# would not notice when the parent dies. Re-entrant: a signal handler may fork.
handover = threading.RLock()
os.register_at_fork(before=handover.acquire, after_in_parent=handover.release,
                    after_in_child=handover.release)


def check_open(is_closed: bool) -> None:
    """Raise ClosedError if a transport is closed."""
    if is_closed:
        raise ClosedError("this transport is closed; open another one")


def spin_time(busy_poll: int) -> int:
    """Return for how many nanoseconds a thread may poll without sleeping: `busy_poll`,
    but 0 on one core, where it would take the core from the thread that is to
    answer."""
    return busy_poll if len(os.sched_getaffinity(0)) > 1 else 0


class RefCountedTransport:
    """A transport that counts the threads that use its sockets, and closes the sockets
    once: at close(), or when the last of these threads has finished.

    A subclass provides `wake()`, which makes a thread that waits in a system call
    return, `_close_sockets()` and `_close_descriptors()`. It uses the sockets like
    this, so that an exception of a signal handler, which may come at any call, leaves
    no use behind:

        use = object()
        try:
            self._begin_use(use)
            ...
        finally:
            self._uses.discard(use)         # one step, and the first one
            self._close_if_unused()
    """

    def __init__(self) -> None:
        self._uses: set[object] = set()         # of the sockets, by threads
        self._closed = self._is_released = False
        # Guards the attributes above; re-entrant, because a signal handler may close.
        self._lock = threading.RLock()

    def wake(self) -> None:
        """See `Transport.wake`."""
        raise NotImplementedError

    def _close_sockets(self) -> None:
        """Close the sockets. Called once, with `_lock`, when no thread uses them."""
        raise NotImplementedError

    def _close_descriptors(self) -> None:
        """Close a forked child's copies of the descriptors, and do no more."""
        raise NotImplementedError

    def close(self) -> None:
        """See `Transport.close`."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.wake()
        self._close_if_unused()

    def lose(self) -> None:
        """See `Transport.lose`: there are no connections."""

    def seal_status(self) -> None:
        """See `Transport.seal_status`: it seals nothing."""

    def forget(self) -> None:
        """See `Transport.forget`. A thread that does not exist in the child may have
        held the lock, so there is a new one."""
        self._lock = threading.RLock()
        self._uses = set()
        if not self._is_released:
            self._closed = self._is_released = True
            self._close_descriptors()

    def _begin_use(self, use: object) -> None:
        """Keep the sockets open while a system call may use them: another file may get
        the number of a descriptor that is closed too early. ClosedError after
        close()."""
        with self._lock:
            if self._closed:
                check_open(True)
            self._uses.add(use)

    def _close_if_unused(self) -> None:
        if self._closed:
            with self._lock:
                if not self._uses and not self._is_released:
                    with handover:
                        self._is_released = True
                        self._close_sockets()
