"""A transport between members of one process, for tests and for trying things out: a
datagram is an object in the other member's queue.

It behaves like a datagram network: a datagram that does not fit a full queue is lost,
and the stack repairs that.
"""

import itertools
import os
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ringcast.address import EVERYONE
from ringcast.config import DEFAULTS, MAX_DATAGRAM
from ringcast.errors import MessageTooLargeError
from ringcast.status import InprocStatus
from ringcast.transport.lifetime import check_open

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Hub:
    """The network of one group: the transports that are attached to it. Threads:
    any."""

    def __init__(self) -> None:
        self.lock = threading.RLock()       # a signal handler may send, too
        self.attached: dict[str, InprocTransport] = {}
        self.numbers = itertools.count(1)


_hubs: WeakValueDictionary[str, Hub] = WeakValueDictionary()    # by group
_hubs_lock = threading.Lock()


def _forget_hubs() -> None:
    """Let a forked child share no hub with its parent."""
    global _hubs_lock
    _hubs_lock = threading.Lock()
    _hubs.clear()


os.register_at_fork(after_in_child=_forget_hubs)


class InprocTransport:
    """A `Transport` of one member of `group`, between members of this process.

    Args:
        group: the name of the group; transports of the same name reach each other.
        receive_buffer: bytes of datagrams that may wait for this member; what comes
            beyond is lost, but for a datagram that is alone.

    Threads: as `Transport` says.
    """

    max_datagram = MAX_DATAGRAM
    lossless = False
    emptied = True                      # poll() returns all that has arrived
    send_budget = 1 << 40               # no limit: what is put is there

    def __init__(self, group: str, *, receive_buffer: int = DEFAULTS.receive_buffer) -> None:
        self.receive_budget = receive_buffer
        self.routes: dict[int, str] = {}
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._arrived = threading.Condition()
        self._refused: dict[int, None] = {}     # members that are gone, in order
        self._woken = self._closed = False
        self._counters = dict.fromkeys(InprocStatus.__struct_fields__, 0)
        with _hubs_lock:
            self._hub = _hubs.setdefault(group, Hub())
        with self._hub.lock:
            self.physical = f"inproc:{next(self._hub.numbers)}"
            self._hub.attached[self.physical] = self

    def connect(self, routes: Mapping[int, str]) -> None:
        """See `Transport.connect`."""
        self.routes = dict(routes)

    def seek(self, addresses: Collection[str]) -> list[str]:
        """See `Transport.seek`: EVERYONE is reached anyway, so the addresses are
        ignored."""
        return []

    def put(self, packets: "Sequence[tuple[int, Buffer]]") -> None:
        """See `Transport.put`."""
        check_open(self._closed)
        for _, datagram in packets:
            if memoryview(datagram).nbytes > self.max_datagram:
                raise MessageTooLargeError(
                    f"a datagram is above {self.max_datagram} bytes; nothing was sent")
        for dest, datagram in packets:
            targets = self._targets(dest)
            self._counters["datagrams_sent"] += bool(targets)
            for target in targets:
                target._accept(bytes(datagram))

    def _targets(self, dest: int) -> list["InprocTransport"]:
        with self._hub.lock:
            if dest == EVERYONE:
                return [each for each in self._hub.attached.values() if each is not self]
            routes = self.routes
            target = self._hub.attached.get(routes.get(dest, ""))
        if target is None:
            self._counters["unknown_dest"] += 1
            if dest in routes:
                self._refuse(dest)
            return []
        return [target]

    def _accept(self, datagram: bytes) -> None:
        with self._arrived:
            if self._inbox and self._inbox_bytes + len(datagram) > self.receive_budget:
                self._counters["datagrams_dropped"] += 1
                return
            self._inbox.append(datagram)
            self._inbox_bytes += len(datagram)
            self._arrived.notify()

    def _refuse(self, member: int) -> None:
        """Note that a member is not attached any more."""
        with self._arrived:
            self._refused[member] = None
            self._arrived.notify()

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> list[memoryview]:
        """See `Transport.poll`."""
        with self._arrived:
            check_open(self._closed)
            if not self._inbox and not self._woken and not self._refused:
                self._arrived.wait(None if timeout_ns is None else timeout_ns / 1e9)
            self._woken = False
            datagrams = [memoryview(datagram) for datagram in self._inbox]
            self._inbox.clear()
            self._inbox_bytes = 0
            self._counters["datagrams_received"] += len(datagrams)
        return datagrams

    def links(self) -> list[int]:
        """See `Transport.links`: there are no connections."""
        return []

    def refused(self) -> list[int]:
        """See `Transport.refused`."""
        with self._arrived:
            refused, self._refused = list(self._refused), {}
        return refused

    def lose(self) -> None:
        """See `Transport.lose`: there are no connections."""

    def wake(self) -> None:
        """See `Transport.wake`."""
        with self._arrived:
            self._woken = True
            self._arrived.notify()

    def status(self) -> InprocStatus:
        """See `Transport.status`."""
        return InprocStatus(**self._counters)

    def seal_status(self) -> None:
        """See `Transport.seal_status`: it seals nothing."""

    def forget(self) -> None:
        """See `Transport.forget`."""
        self._arrived = threading.Condition()
        self._closed = True

    def close(self) -> None:
        """See `Transport.close`."""
        with self._hub.lock:
            self._hub.attached.pop(self.physical, None)
        with self._arrived:
            self._closed = True
            self._arrived.notify()
