"""A transport whose datagrams are sealed: nothing leaves unsealed, and only what opens
comes in (protocols/security/seal.py).

It goes round any other transport. To those above it is one: its `links` are the members
that have proved that they are there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import ref

from ringcast.address import EVERYONE
from ringcast.logs import log
from ringcast.protocols.security.seal import FOREVER, OVERHEAD, Seal
from ringcast.stack import HeldKeys
from ringcast.status import InprocStatus, SealStatus, TcpStatus, UdpStatus
from ringcast.transport import Transport
from ringcast.transport.lifetime import check_open
from ringcast.trust import LOOK, Folder, Trusted

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SealedTransport:
    """A `Transport` that seals what goes through `inner`.

    Threads: as `Transport` says. HELLOs and datagrams leave in the order in which they
    are sealed: a HELLO says which datagrams came before it. A thread of its own looks
    at the `folder` of trusted keys, since its disk may be slow; the thread that polls
    takes what it has found.
    """

    def __init__(self, inner: Transport, seal: Seal, folder: Folder | None = None) -> None:
        self._inner, self._seal, self._folder = inner, seal, folder
        self._watch_at = FOREVER if folder is None else 0   # when to start the thread that looks
        self._watcher: threading.Thread | None = None
        self._look_now = threading.Event()
        # What a look has found; the next one waits until it is taken.
        self._found: deque[Trusted | Exception | None] = deque()
        self._is_lost = self._is_closed = False
        self.lossless = inner.lossless
        self._sealing = threading.Lock()
        self._is_forgotten = False

    @property
    def physical(self) -> str:
        """See `Transport.physical`."""
        return self._inner.physical

    @property
    def max_datagram(self) -> int:
        """See `Transport.max_datagram`: a sealed datagram is longer."""
        return self._inner.max_datagram - OVERHEAD

    @property
    def receive_budget(self) -> int:
        """See `Transport.receive_budget`."""
        return self._inner.receive_budget

    @property
    def send_budget(self) -> int:
        """See `Transport.send_budget`."""
        return self._inner.send_budget

    def connect(self, routes: Mapping[int, str]) -> None:
        """See `Transport.connect`."""
        self._inner.connect(routes)

    def seek(self, addresses: Collection[str]) -> list[str]:
        """See `Transport.seek`."""
        return self._inner.seek(addresses)

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> Sequence[Buffer]:
        """See `Transport.poll`. Returns early and empty if nothing that came opens."""
        self._say_hello()
        came = self._inner.poll(timeout_ns, expecting)
        try:
            self._seal.linked(self._inner.links())
            now = time.monotonic_ns()
            if now >= self._seal.old_until:
                with self._sealing:
                    self._seal.end_old(now)
            if now >= self._watch_at:
                self._watch(now)
            if self._found:
                self._trust(self._found[0])
                self._found.popleft()
            opened = self._seal.open(came, now)
            while self._seal.disputed:
                self._tell(*self._seal.disputed.popitem())
            self._say_hello()
        except BaseException:               # a signal handler's, say
            self._seal.lost()
            raise
        return opened

    def rekey(self, held: HeldKeys) -> None:
        """See `Rekeyed.rekey`."""
        with self._sealing:
            self._seal.rekey(held, time.monotonic_ns())

    def _watch(self, now: int) -> None:
        """Start the thread that looks at the folder. If that fails, or is interrupted,
        another one follows, and one that runs all the same ends."""
        self._watch_at = now + LOOK
        self._watcher = threading.Thread(target=_look, args=(ref(self), self._look_now),
                                         name="ringcast trust", daemon=True)
        with suppress(RuntimeError):                # none is to be had now
            self._watcher.start()
            self._watch_at = FOREVER

    def _trust(self, found: Trusted | Exception | None) -> None:
        """Trust the keys that are in the folder now. If it cannot be read, go on with
        those that were there."""
        if isinstance(found, Exception):
            if not self._is_lost:
                log.warning("%s; the keys that were there are trusted until it is back", found)
            self._is_lost = True
            return
        self._is_lost = False
        if found is not None:
            for fault in found.faults:
                log.warning("%s; it is not trusted", fault)
            for fault in found.unread:
                log.warning("%s; the key that was there is trusted until it can be read, or its "
                            "file is removed", fault)
            with self._sealing:
                self._seal.retrust(found.names)

    def _tell(self, process: int, keys: tuple[bytes, ...]) -> None:
        """Tell whose keys have both signed for one process."""
        assert self._seal.identity is not None
        believed, other = (", ".join(sorted(self._seal.identity.names(key))) for key in keys)
        log.warning("the key of %s says that it is the process %s, which is one of the key of %s "
                    "for all that is known here; one of the two lies", other, f"{process:016x}",
                    believed)

    def _say_hello(self) -> None:
        """Ask and answer who is to be asked and answered now."""
        if self._seal.has_to_say:
            with self._sealing:
                hellos = self._seal.hellos(time.monotonic_ns())
                if hellos:
                    self._inner.put([(EVERYONE, hello) for hello in hellos])

    @property
    def emptied(self) -> bool:
        """See `Transport.emptied`."""
        return self._inner.emptied and not self._seal.was_asked

    def links(self) -> list[int]:
        """See `Transport.links`: members with a new connection that have answered, and
        members that have just answered."""
        return self._seal.take_linked()

    def refused(self) -> list[int]:
        """See `Transport.refused`."""
        return self._inner.refused()

    def lose(self) -> None:
        """See `Transport.lose`."""
        self._seal.lost()
        self._inner.lose()

    def put(self, packets: Sequence[tuple[int, Buffer]]) -> None:
        """See `Transport.put`."""
        check_open(self._is_forgotten)
        with self._sealing:
            for few in self._seal.seal(packets):
                self._inner.put(few)
                few.clear()             # under the lock: without the GIL it counts the views

    def wake(self) -> None:
        """See `Transport.wake`."""
        self._inner.wake()

    def status(self) -> UdpStatus | TcpStatus | InprocStatus:
        """See `Transport.status`."""
        return self._inner.status()

    def seal_status(self) -> SealStatus:
        """See `Transport.seal_status`."""
        return self._seal.status()

    def close(self) -> None:
        """See `Transport.close`."""
        self._is_closed = True
        self._look_now.set()
        self._inner.close()

    def forget(self) -> None:
        """See `Transport.forget`. A child seals nothing: it would use its parent's
        numbers again."""
        self._is_forgotten = True
        self._sealing = threading.Lock()
        self._look_now = threading.Event()
        self._inner.forget()


def _look(transport: ref[SealedTransport], look_now: threading.Event) -> None:
    """Look at the folder of a transport's keys every LOOK, however long that takes,
    until the transport is closed or nobody has it any more."""
    while True:
        look_now.wait(LOOK / 1e9)
        look_now.clear()
        owner = transport()
        if owner is None or owner._is_closed or owner._watcher is not threading.current_thread():
            return
        folder, found = owner._folder, owner._found
        del owner
        assert folder is not None
        if not found:
            try:
                found.append(folder.changed())
            except Exception as error:
                found.append(error)
