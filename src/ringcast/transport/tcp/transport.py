"""TCP over IPv4, on Linux: one connection, the link, between each two members.

**Between two link events a link is a lossless FIFO; at a link event, whatever was on
its way to or from that member may be lost.** Nothing is dropped while a link stands.
`links` tells the events; what loses by them is for the layers above (decision 21).

Members find each other by dialing: first all places where one may be, then who is in
the table of routes (tcp/dialing.py). They agree on one connection (tcp/handshake.py,
tcp/handshaking.py), which then carries frames (tcp/link.py). All this happens in `poll`
and `put`: there are no threads, and the timers live inside `poll`, so a member whose
channel does not poll is not found.

A peer that takes nothing is not waited for: what it is owed is queued up to
`max_unsent`, then its link is cut. A member that is held (`hold`) takes nothing either,
for as long as it is held. Who vanished without a word is found by looking
(tcp/liveness.py).
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from ringcast._core.wire import HEADER_SIZE
from ringcast.address import EVERYONE
from ringcast.config import DEFAULTS, MAX_DATAGRAM
from ringcast.errors import ClosedError, ConfigError, MessageTooLargeError
from ringcast.transport.ipv4 import check_interface, check_range, endpoint, os_errors_as
from ringcast.transport.lifetime import Shared
from ringcast.transport.tcp import liveness
from ringcast.transport.tcp.dialing import FOREVER, MILLISECOND, Dialing, Endpoint
from ringcast.transport.tcp.handshaking import Agreement, Handshaking
from ringcast.transport.tcp.link import Link, ReadBuffer
from ringcast.transport.tcp.listening import listen

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger("ringcast")

MEBIBYTE = 1 << 20
# Handled between two looks at the clock; epoll goes round among the ready ones.
EVENTS = 64
EXACT = 10 * MILLISECOND                # below which a sleep is to end on time
LONGEST = 1_000_000 * MILLISECOND       # sleep, which is as good as for ever
COUNTERS = (
    "links_made", "links_lost", "links_cut_slow", "links_cut_dead", "links_replaced",
    "dials", "dials_failed", "handshakes_accepted", "handshakes_refused",
    "handshakes_timed_out", "self_connections", "accept_errors", "frames_received",
    "bytes_received", "frames_refused", "frames_sent", "bytes_sent", "send_unlinked",
    "send_lost_bytes", "bad_routes",
)


class TcpTransport(Shared):
    """A `Transport` over TCP. Between two events that `links` tells, what was put to a
    member arrives, once and in order.

    Args:
        group: the 32 bits by which groups are told apart; members of another are
          refused.
        member: this member's incarnation.
        interface: IPv4 address of the interface to use. The default never leaves this
            machine.
        port, port_range: this member listens on the first port of
            port .. port + port_range - 1 that is free.
        hosts: "address:port" of where other members may be; without any, the own
            interface with every port of the range.
        max_unsent: bytes that are queued for one member before its link is cut.
        link_timeout: seconds after which a peer that vanished without a word has lost
            its link; whole seconds for one that is idle. A peer that is slow, held or
            stopped has not vanished: its kernel answers. One that vanished after it had
            taken nothing for long is noticed later, because the kernel asks ever more
            rarely (up to every two minutes) whether there is room.
        handshake_timeout: seconds that a connection has to become a link.
        receive_buffer, send_buffer: bytes asked of the kernel for each link; 0 leaves
        the size to the kernel, which adapts it.
        busy_poll: nanoseconds that a poll which is `expecting` looks again and again
            before it sleeps.
        insecure: say True to use an interface other than loopback: nothing is encrypted
            or authenticated yet.

    Raises ConfigError for a value outside its range, TransportError when the machine
    refuses.

    What is put must be datagrams of this member: of 32 bytes and more, with `member` as
    the sender in their header (ValueError). `receive_budget` never binds: nothing is
    lost when much is on its way.

    Threads: as `Transport` says. `close` never waits: the thread that leaves `poll` or
    `put` last gives the sockets back. The table of links is replaced, never changed;
    each link has a lock for its sending side; all else belongs to the polling thread.
    """

    max_datagram = MAX_DATAGRAM
    lossless = True
    receive_budget = 1 << 40

    def __init__(
        self,
        *,
        group: int,
        member: int,
        interface: str = DEFAULTS.interface,
        port: int = DEFAULTS.port,
        port_range: int = DEFAULTS.port_range,
        hosts: Sequence[str] = (),
        max_unsent: int = DEFAULTS.max_unsent,
        link_timeout: float = DEFAULTS.link_timeout / 1000,
        handshake_timeout: float = 5.0,
        receive_buffer: int = 0,
        send_buffer: int = 0,
        busy_poll: int = 0,
        insecure: bool = False,
    ) -> None:
        super().__init__()      # `_lock` is also of the counters, and of what `wake` does
        self._loopback = check_interface(interface, insecure).is_loopback
        check_range("group", group, 0, (1 << 32) - 1)
        check_range("member", member, 1, (1 << 64) - 1)
        check_range("port", port, 1, 65535)
        check_range("port_range", port_range, 1, 65536 - port)
        check_range("max_unsent", max_unsent, MAX_DATAGRAM, 1 << 40)
        for name, size in (("receive_buffer", receive_buffer), ("send_buffer", send_buffer)):
            check_range(name, size, 0, 1024 * MEBIBYTE)
        for name, seconds in (("link_timeout", link_timeout),
                              ("handshake_timeout", handshake_timeout)):
            if not 0 < seconds <= 86_400:
                raise ConfigError(f"{name}={seconds!r} is not a number of seconds above 0 "
                                  "and up to 86400")
        candidates = ([self._candidate(host) for host in hosts]
                      or [(interface, port + index) for index in range(port_range)])
        self._member, self._sender = member, member.to_bytes(8, "little")
        self._max_unsent, self._link_timeout = max_unsent, int(link_timeout * 1e9)
        buffers = {socket.SO_RCVBUF: receive_buffer, socket.SO_SNDBUF: send_buffer}
        with ExitStack() as undo:
            listener = undo.enter_context(listen(interface, port, port_range, buffers))
            with os_errors_as("TCP", {}):
                self._epoll = undo.enter_context(select.epoll())
                self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.pop_all()
        self._epoll.register(self._event, select.EPOLLIN)
        self._own: Endpoint = listener.getsockname()
        self.physical = f"{self._own[0]}:{self._own[1]}"
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._dialing = Dialing(member, self._own, candidates)
        self._handshaking = Handshaking(group, member, listener, self._epoll, self._dialing,
                                        int(handshake_timeout * 1e9), buffers, self._counters)
        self._spin = busy_poll if len(os.sched_getaffinity(0)) > 1 else 0
        self._quick = False                     # the last wait ended within that time
        self._links: dict[int, Link] = {}       # by member; replaced as a whole
        self._reading: dict[int, Link] = {}     # by descriptor
        self._read_from: list[Link] = []        # that have a buffer
        self._spare: list[ReadBuffer] = []
        self._news: list[int] = []
        self._held: frozenset[int] = frozenset()
        self._routes: dict[int, Endpoint] | None = None     # a new table, for the polling thread
        self._timer = 0                         # when tick() has something to do
        self._look_at = 0                       # when to look for links that are dead
        self._woken = False
        self._holding = threading.Lock()        # of `_held`, and of making links hold

    def _candidate(self, host: str) -> Endpoint:
        found = endpoint(host, self._loopback)
        if found is None:
            raise ConfigError(f"hosts: {host!r} is not address:port of a host that the interface "
                              "reaches, as in 127.0.0.1:7700")
        return found

    # ------------------------------------------------------------------------------- for any thread

    def connect(self, routes: Mapping[int, str]) -> None:
        """See `Transport.connect`. Members that are not in the table keep their links:
        they may have to hear that they are out."""
        table = {}
        for member, physical in routes.items():
            found = endpoint(physical, self._loopback)
            if found is not None and isinstance(member, int) and 0 < member < 1 << 64:
                table[member] = found
        with self._lock:
            self._counters["bad_routes"] += len(routes) - len(table)
            self._routes = table
        self.wake()

    def put(self, packets: Sequence[tuple[int, Buffer]]) -> None:
        """See `Transport.put`. What the kernel does not take at once is queued for its
        link; without a link it is counted."""
        self._enter()
        try:
            batches = self._batches(packets)
            for link, buffers in batches.items():
                if not link.put(buffers, len(buffers) // 2, sum(map(len, buffers))):
                    self._count("send_unlinked", len(buffers) // 2)
        finally:
            self._leave()

    def _batches(self, packets: Sequence[tuple[int, Buffer]]) -> dict[Link, list[bytes]]:
        """What goes to each link, in order; raises before anything is sent."""
        links = self._links
        batches: dict[Link, list[bytes]] = {}
        unlinked = 0
        for dest, given in packets:
            datagram = given if type(given) is bytes else bytes(memoryview(given))
            size = self._check(datagram)
            if dest == EVERYONE:
                targets: Collection[Link] = links.values()
            else:
                link = links.get(dest)
                targets = () if link is None else (link,)
            unlinked += dest != EVERYONE and not targets
            for link in targets:
                batches.setdefault(link, []).extend((size, datagram))
        if unlinked:
            self._count("send_unlinked", unlinked)
        return batches

    def _check(self, datagram: bytes) -> bytes:
        """Its length as it stands in a frame."""
        size = len(datagram)
        if size > MAX_DATAGRAM:
            raise MessageTooLargeError(f"a datagram of {size} bytes is above the {MAX_DATAGRAM} that a "
                                       "frame holds; nothing was sent")
        if size < HEADER_SIZE or datagram[8:16] != self._sender:
            raise ValueError(f"this is no datagram of member {self._member}: the others would "
                             "close the link; nothing was sent")
        return size.to_bytes(4, "little")

    def hold(self, members: Collection[int]) -> None:
        """See `Transport.hold`."""
        with suppress(ClosedError):
            self._enter()
            try:
                self._hold(frozenset(members))
            finally:
                self._leave()

    def _hold(self, members: frozenset[int]) -> None:
        with self._holding:
            before, self._held = self._held, members
            for member in before ^ members:
                link = self._links.get(member)
                if link is not None:
                    link.hold(member in members)

    def wake(self) -> None:
        """See `Transport.wake`."""
        with self._lock:
            if not (self._woken or self._released):
                self._woken = True
                os.eventfd_write(self._event, 1)

    def status(self) -> dict[str, int]:
        """See `Transport.status`. `bytes` are those of whole frames; what was sent but
        is in no socket yet is `unsent_bytes`."""
        with self._lock:
            links = list(self._links.values())
            unsent = sum(link.unsent for link in links)
            counters = {"links": len(links), "unsent_bytes": unsent, **self._counters}
            counters["frames_sent"] += sum(link.frames_sent for link in links)
            counters["bytes_sent"] += sum(link.bytes_sent for link in links)
        return counters

    def _release(self) -> None:
        """What is queued is offered to the kernel once more, which delivers what it
        took if the peer lives."""
        self._handshaking.close()
        for link in self._reading.values():
            link.finish()
            self._add_up(link)
        with self._holding:
            self._links = {}
        self._reading.clear()
        self._read_from, self._spare, self._news = [], [], []
        self._epoll.close()
        os.close(self._event)

    def _drop(self) -> None:
        """Not even `unregister`: the parent's epoll is the same. A socket that is
        closed here stays open there."""
        self._handshaking.close()
        for link in self._reading.values():
            link.socket.close()
        self._epoll.close()
        os.close(self._event)

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counters[name] += number

    # -------------------------------------------------------------------------------------- polling

    def links(self) -> list[int]:
        """See `Transport.links`."""
        news, self._news = self._news, []
        return news

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> list[memoryview]:
        """See `Transport.poll`. One turn reads at most one buffer full of each link."""
        self._enter()
        try:
            return self._poll(timeout_ns, self._spin if expecting else 0)
        except BaseException:   # a signal handler's, say, and what was read may be lost with it
            for link in self._links.values():
                link.cut()
            raise
        finally:
            self._leave()

    def _poll(self, timeout_ns: int | None, spin: int) -> list[memoryview]:
        if self._read_from:
            self._read_from = [link for link in self._read_from if link.settle(self._spare)]
        frames: list[memoryview] = []
        now = time.monotonic_ns()
        until = FOREVER if timeout_ns is None else now + max(0, timeout_ns)
        returning = False
        while not returning:
            if self._routes is not None:
                self._take_routes()
            if now >= self._timer:
                self._tick(now)
            for fd, events in self._wait(min(until, self._timer), now, spin):
                returning |= self._happen(fd, events, frames)
            now = time.monotonic_ns()
            returning |= bool(frames or self._news) or self._closed or now >= until
        if frames:
            self._counters["frames_received"] += len(frames)
            self._counters["bytes_received"] += sum(map(len, frames)) + 4 * len(frames)
        return frames

    def _wait(self, until: int, now: int, spin: int) -> list[tuple[int, int]]:
        """Events, or none when it is `until`. To be woken takes longer than an answer
        that is nearly there, hence the spin."""
        began = now
        if spin and self._quick:
            end = min(until, now + spin)
            while now < end:
                events = self._epoll.poll(0, EVENTS)
                if events:
                    return events
                os.sched_yield()                        # who is to answer may need this very core
                now = time.monotonic_ns()
        events = self._sleep(until - now)
        if spin:
            self._quick = bool(events) and time.monotonic_ns() - began < spin
        return events

    def _sleep(self, wait: int) -> list[tuple[int, int]]:
        """epoll counts in milliseconds, and rounds up; for the short timers of the
        layers select() on its descriptor is exact."""
        if 0 < wait < EXACT and self._epoll.fileno() < 1024:            # select() can name no more
            select.select((self._epoll,), (), (), wait / 1e9)
            wait = 0
        return self._epoll.poll(min(max(wait, 0), LONGEST) / 1e9, EVENTS)

    def _happen(self, fd: int, events: int, frames: list[memoryview]) -> bool:
        """Deal with one event; whether poll is to return for it. An event may be of an
        earlier owner of the number: then nothing is there to read or to write, which is
        no harm."""
        link = self._reading.get(fd)
        if link is not None:
            self._serve(link, events, frames)
        elif fd == self._event:
            with suppress(BlockingIOError):
                os.eventfd_read(fd)
            # A wake from here on finds this poll on its way out, or the next one.
            self._woken = False
            return True
        else:
            agreement = self._handshaking.on_event(fd, self._links)
            if agreement is not None:
                self._establish(agreement)
            self._timer = min(self._timer, self._handshaking.deadline())
        return False

    def _serve(self, link: Link, events: int, frames: list[memoryview]) -> None:
        if link.held:
            if events & (select.EPOLLERR | select.EPOLLHUP):
                link.park()
                self._plan_dial(link)
        elif events & ~select.EPOLLOUT:
            self._read(link, frames)
        if events & select.EPOLLOUT:
            link.flush()

    def _read(self, link: Link, frames: list[memoryview]) -> None:
        well = link.read(frames, self._spare)
        if link not in self._read_from:
            self._read_from.append(link)
        if link.received:
            self._dialing.peer(link.peer).attempts = 0
        if not well:
            self._counters["frames_refused"] += well is None
            self._lose(link)

    # --------------------------------------------------------------------------------------- timers

    def _take_routes(self) -> None:
        with self._lock:
            routes, self._routes = self._routes, None
        if routes is not None:
            self._dialing.set_routes(routes)
        self._timer = 0

    def _tick(self, now: int) -> None:
        """Everything that is due; says when the next thing is."""
        self._handshaking.tick(now)
        if now >= self._look_at:
            self._look_at = self._look_for_the_dead(now)
        for where in list(self._dialing.dials(now)):
            self._handshaking.dial(where, now)
        self._timer = min(self._handshaking.deadline(), self._look_at, self._dialing.deadline())

    def _look_for_the_dead(self, now: int) -> int:
        """Cut links whose peer is gone, and return when to look again."""
        next_scan = now + self._link_timeout // 4
        for link in self._links.values():
            if link.standing:
                left = liveness.time_left(link.socket, self._link_timeout)
                if left == 0:
                    self._counters["links_cut_dead"] += 1
                    log.warning("member %016x at %s:%d answers nothing any more; its connection "
                                "is cut", link.peer, *link.endpoint)
                    link.cut()
                elif left is not None:
                    next_scan = min(next_scan, now + left)
        return next_scan

    # ---------------------------------------------------------------------------------------- links

    def _establish(self, agreement: Agreement) -> None:
        """Take this connection for the link from here on, and no other."""
        record = agreement.peer
        peer = self._dialing.peer(record.member)
        if peer.link is not None:
            self._counters["links_replaced"] += 1
            self._lose(peer.link)
        peer.numbers.stand(agreement.number)
        peer.host = agreement.host
        peer.link = link = Link(agreement.socket, record.member, record.endpoint, self._epoll,
                                self._max_unsent)
        liveness.set_up(link.socket, self._link_timeout)
        self._reading[link.fd] = link
        with self._holding:
            self._links = {**self._links, link.peer: link}
            link.hold(link.peer in self._held)
        self._dialing.met(record.endpoint, record.member)
        self._counters["links_made"] += 1
        self._news.append(link.peer)

    def _lose(self, link: Link) -> None:
        """It has ended, or another takes its place."""
        del self._reading[link.fd]
        link.close()
        with self._lock:                    # what it did is counted here or there, never twice
            with self._holding:
                self._links = {member: each for member, each in self._links.items()
                               if each is not link}
            self._counters["links_lost"] += 1
            self._counters["links_cut_slow"] += link.slow
            self._add_up(link)
        if link.slow:
            log.warning("member %016x at %s:%d takes nothing: its connection is cut, because more "
                        "than %d bytes wait for it; it gets another",
                        link.peer, *link.endpoint, self._max_unsent)
        peer = self._dialing.peer(link.peer)
        peer.link = None
        self._plan_dial(link)

    def _plan_dial(self, link: Link) -> None:
        self._dialing.lost(link.peer, time.monotonic_ns())
        self._timer = 0

    def _add_up(self, link: Link) -> None:
        """What a link that is no more has done."""
        self._counters["frames_sent"] += link.frames_sent
        self._counters["bytes_sent"] += link.bytes_sent
        self._counters["send_lost_bytes"] += link.lost

