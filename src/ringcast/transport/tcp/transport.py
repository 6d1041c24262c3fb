"""TCP over IPv4, on Linux: one connection, the link, between each two members.

**Between two link events a link is a lossless FIFO; at a link event, whatever was on its way to or from that member may be lost.**
Nothing is dropped while a link stands. `links` tells the events; what loses by them is for the layers above (decision 21).

Members find each other by dialing: first all places where one may be, then who is in the table of routes (tcp/dialing.py). They agree
on one connection (tcp/handshake.py), which then carries frames (tcp/link.py). All this happens in `poll` and `put`: there are no
threads, and the timers live inside `poll`, so a member whose channel does not poll is not found.

A peer that takes nothing is not waited for: what it is owed is queued up to `max_unsent`, then its link is cut. A member that is held
(`hold`) takes nothing either, for as long as it is held; TCP_USER_TIMEOUT would break such a link, so who vanished without a word is
found by looking at what the kernel knows instead: acknowledgements of data or probes that are overdue.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from struct import Struct
from typing import TYPE_CHECKING

from ringcast.errors import ClosedError, ConfigError, MessageTooLargeError
from ringcast.transport import EVERYONE
from ringcast.transport.ipv4 import absent, check_interface, check_range, endpoint, explained
from ringcast.transport.lifetime import Shared
from ringcast.transport.tcp.dialing import FOREVER, MILLISECOND, Dialing, Endpoint
from ringcast.transport.tcp.handshake import SIZE, Kind, Record, read, write
from ringcast.transport.tcp.link import LARGEST, SMALLEST, Link, ReadBuffer

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger("ringcast")

IP_BIND_ADDRESS_NO_PORT = 24            # Linux; the socket module does not name it. Ports of former connections can be used again
MEBIBYTE = 1 << 20
MOST_LINKS = 1024
MOST_HANDSHAKES = 64                    # that others began; as many of our own
GRACE = 250 * MILLISECOND               # a handshake that took longer makes room for another when there is none
RETRY_ACCEPT = 250 * MILLISECOND        # after the machine refused another descriptor
EVENTS = 64                             # handled between two looks at the clock; epoll goes round among the ready ones
ACCEPTS = 16                            # of them
EXACT = 10 * MILLISECOND                # below which a sleep is to end on time
LONGEST = 1_000_000 * MILLISECOND       # sleep, which is as good as for ever
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
UNANSWERED = 3                          # repeats, or probes of its window, that a peer left unanswered: it may be gone

_TCP_INFO = Struct("<2xBB52xI")         # retransmits and probes without an answer, last_ack_recv (ms)
COUNTERS = (
    "links_made", "links_lost", "links_cut_slow", "links_cut_dead", "links_replaced", "dials", "dials_failed",
    "handshakes_accepted", "handshakes_refused", "handshakes_timed_out", "self_connections", "accept_errors", "frames_received",
    "bytes_received", "frames_refused", "frames_sent", "bytes_sent", "send_unlinked", "send_lost_bytes", "bad_routes",
)


class Handshake:
    """A connection on which the two ends have not agreed yet."""

    def __init__(self, connection: socket.socket, host: str, began: int, deadline: int, dialed: Endpoint | None) -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.host = host                # at the other end, as the kernel knows it
        self.began = began
        self.deadline = deadline
        self.dialed = dialed            # where to, or None for one that was accepted
        self.received = b""
        self.peer: Record | None = None                 # to whom we have proposed
        self.number = 0


class TcpTransport(Shared):
    """A `Transport` over TCP. Between two events that `links` tells, what was put to a member arrives, once and in order.

    Args:
        group: the 32 bits by which groups are told apart; members of another are refused.
        member: this member's incarnation.
        interface: IPv4 address of the interface to use. The default never leaves this machine.
        port, port_range: this member listens on the first port of port .. port + port_range - 1 that is free.
        hosts: "address:port" of where other members may be; without any, the own interface with every port of the range.
        max_unsent: bytes that are queued for one member before its link is cut.
        link_timeout: seconds after which a peer that vanished without a word has lost its link;
            whole seconds for one that is idle. A peer that is slow, held or stopped has not
            vanished: its kernel answers. One that vanished after it had taken nothing for long
            is noticed later, because the kernel asks ever more rarely (up to every two minutes)
            whether there is room.
        handshake_timeout: seconds that a connection has to become a link.
        receive_buffer, send_buffer: bytes asked of the kernel for each link; 0 leaves the size to the kernel, which adapts it.
        busy_poll: nanoseconds that a poll which is `expecting` looks again and again before it sleeps.
        insecure: say True to use an interface other than loopback: nothing is encrypted or authenticated yet.

    Raises ConfigError for a value outside its range, TransportError when the machine refuses.

    What is put must be datagrams of this member: of 32 bytes and more, with `member` as the sender in their header (ValueError).
    `receive_budget` never binds: nothing is lost when much is on its way.

    Threads: as `Transport` says. `close` never waits: the thread that leaves `poll` or `put` last gives the sockets back. The table
    of links is replaced, never changed; each link has a lock for its sending side; all else belongs to the polling thread.
    """

    max_datagram = LARGEST
    lossless = True
    receive_budget = 1 << 40

    def __init__(
        self,
        *,
        group: int,
        member: int,
        interface: str = "127.0.0.1",
        port: int = 7700,
        port_range: int = 32,
        hosts: Sequence[str] = (),
        max_unsent: int = 64 * MEBIBYTE,
        link_timeout: float = 5.0,
        handshake_timeout: float = 5.0,
        receive_buffer: int = 0,
        send_buffer: int = 0,
        busy_poll: int = 0,
        insecure: bool = False,
    ) -> None:
        super().__init__()                      # `_lock` is also of the counters, and of what `wake` does
        self._loopback = check_interface(interface, insecure).is_loopback
        check_range("group", group, 0, (1 << 32) - 1)
        check_range("member", member, 1, (1 << 64) - 1)
        check_range("port", port, 1, 65535)
        check_range("port_range", port_range, 1, 65536 - port)
        check_range("max_unsent", max_unsent, LARGEST, 1 << 40)
        for name, size in (("receive_buffer", receive_buffer), ("send_buffer", send_buffer)):
            check_range(name, size, 0, 1024 * MEBIBYTE)
        for name, seconds in (("link_timeout", link_timeout), ("handshake_timeout", handshake_timeout)):
            if not 0 < seconds <= 86_400:
                raise ConfigError(f"{name}={seconds!r} is not a number of seconds above 0 and up to 86400")
        candidates = [self._candidate(host) for host in hosts] or [(interface, port + index) for index in range(port_range)]
        self._group, self._member, self._sender = group, member, member.to_bytes(8, "little")
        self._interface, self._max_unsent = interface, max_unsent
        self._link_timeout, self._handshake_timeout = int(link_timeout * 1e9), int(handshake_timeout * 1e9)
        self._buffers = {socket.SO_RCVBUF: receive_buffer, socket.SO_SNDBUF: send_buffer}
        with ExitStack() as undo:
            self._listener = undo.enter_context(self._listen(port, port_range))
            with explained("TCP", {}):
                self._epoll = undo.enter_context(select.epoll())
                self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.pop_all()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(self._event, select.EPOLLIN)
        self._own: Endpoint = self._listener.getsockname()
        self.physical = f"{self._own[0]}:{self._own[1]}"
        self._dialing = Dialing(member, self._own, candidates)
        self._spin = busy_poll if len(os.sched_getaffinity(0)) > 1 else 0
        self._quick = False                     # the last wait ended within that time
        self._links: dict[int, Link] = {}       # by member; replaced as a whole
        self._reading: dict[int, Link] = {}     # by descriptor
        self._handshakes: dict[int, Handshake] = {}
        self._read_from: list[Link] = []        # that have a buffer
        self._spare: list[ReadBuffer] = []
        self._news: list[int] = []
        self._held: frozenset[int] = frozenset()
        self._routes: dict[int, Endpoint] | None = None         # a new table, for the polling thread
        self._timer = 0                         # when tick() has something to do
        self._listening = True
        self._accept_at = FOREVER               # when to listen again
        self._look_at = 0                       # when to look for links that are dead
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._woken = False
        self._holding = threading.Lock()        # of `_held`, and of making links hold

    def _candidate(self, host: str) -> Endpoint:
        found = endpoint(host, self._loopback)
        if found is None:
            raise ConfigError(f"hosts: {host!r} is not address:port of a host that the interface reaches, as in 127.0.0.1:7700")
        return found

    def _listen(self, port: int, port_range: int) -> socket.socket:
        last = port + port_range - 1
        busy = f"other programs use all ports {port}..{last} of {self._interface}; stop one, or choose another port or port_range"
        sentences = {errno.EADDRINUSE: busy, errno.EACCES: f"no permission to use port {port}; choose a port above 1023",
                     **absent(self._interface)}
        with explained("TCP", sentences):
            for candidate in range(port, last + 1):
                listener = self._socket()
                try:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    listener.bind((self._interface, candidate))
                    listener.listen(128)
                    return listener
                except OSError as error:
                    listener.close()
                    if error.errno != errno.EADDRINUSE or candidate == last:
                        raise
        raise AssertionError("a range has a last port")

    def _socket(self) -> socket.socket:
        """Non-blocking. The buffers are set before there is a connection, because its window scale depends on them."""
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        for option, size in self._buffers.items():
            if size:
                made.setsockopt(socket.SOL_SOCKET, option, size)
        return made

    # ------------------------------------------------------------------------------------------------ for any thread

    def connect(self, routes: Mapping[int, str]) -> None:
        """See `Transport.connect`. Members that are not in the table keep their links: they may have to hear that they are out."""
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
        """See `Transport.put`. What the kernel does not take at once is queued for its link; without a link it is counted."""
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
        if size > LARGEST:
            raise MessageTooLargeError(f"a datagram of {size} bytes is above the {LARGEST} that a frame holds; nothing was sent")
        if size < SMALLEST or datagram[8:16] != self._sender:
            raise ValueError(f"this is no datagram of member {self._member}: the others would close the link; nothing was sent")
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
        """See `Transport.status`. `bytes` are those of whole frames; what was sent but is in no socket yet is `unsent_bytes`."""
        with self._lock:
            links = list(self._links.values())
            counters = {"links": len(links), "unsent_bytes": sum(link.unsent for link in links), **self._counters}
            counters["frames_sent"] += sum(link.frames_sent for link in links)
            counters["bytes_sent"] += sum(link.bytes_sent for link in links)
        return counters

    def _release(self) -> None:
        """What is queued is offered to the kernel once more, which delivers what it took if the peer lives."""
        self._listener.close()
        for shake in self._handshakes.values():
            shake.socket.close()
        for link in self._reading.values():
            link.finish()
            self._add_up(link)
        with self._holding:
            self._links = {}
        self._handshakes.clear()
        self._reading.clear()
        self._read_from, self._spare, self._news = [], [], []
        self._epoll.close()
        os.close(self._event)

    def _drop(self) -> None:
        """Not even `unregister`: the parent's epoll is the same. A socket that is closed here stays open there."""
        self._listener.close()
        for connection in [*(shake.socket for shake in self._handshakes.values()), *(link.socket for link in self._reading.values())]:
            connection.close()
        self._epoll.close()
        os.close(self._event)

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counters[name] += number

    # ------------------------------------------------------------------------------------------------------- polling

    def links(self) -> list[int]:
        """See `Transport.links`."""
        news, self._news = self._news, []
        return news

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> list[memoryview]:
        """See `Transport.poll`. One turn reads at most one buffer full of each link."""
        self._enter()
        try:
            return self._poll(timeout_ns, self._spin if expecting else 0)
        except BaseException:                           # a signal handler's, say, and what was read may be lost with it
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
        """Events, or none when it is `until`. To be woken takes longer than an answer that is nearly there, hence the spin."""
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
        """epoll counts in milliseconds, and rounds up; for the short timers of the layers select() on its descriptor is exact."""
        if 0 < wait < EXACT and self._epoll.fileno() < 1024:            # select() can name no more
            select.select((self._epoll,), (), (), wait / 1e9)
            wait = 0
        return self._epoll.poll(min(max(wait, 0), LONGEST) / 1e9, EVENTS)

    def _happen(self, fd: int, events: int, frames: list[memoryview]) -> bool:
        """Deal with one event; whether poll is to return for it. An event may be of an earlier owner of the number: then nothing is
        there to read or to write, which is no harm."""
        link = self._reading.get(fd)
        if link is not None:
            self._serve(link, events, frames)
        elif fd in self._handshakes:
            self._continue(self._handshakes[fd])
        elif fd == self._event:
            with suppress(BlockingIOError):
                os.eventfd_read(fd)
            self._woken = False                 # a wake from here on finds this poll on its way out, or the next one
            return True
        elif fd == self._listener.fileno():
            self._accept()
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

    # ------------------------------------------------------------------------------------------------------- timers

    def _take_routes(self) -> None:
        with self._lock:
            routes, self._routes = self._routes, None
        if routes is not None:
            self._dialing.set_routes(routes)
        self._timer = 0

    def _tick(self, now: int) -> None:
        """Everything that is due; says when the next thing is."""
        for shake in [shake for shake in self._handshakes.values() if now >= shake.deadline]:
            self._end(shake, "dials_failed" if shake.dialed else "handshakes_timed_out")
        if now >= self._accept_at:
            self._listen_again()
        if now >= self._look_at:
            self._look_at = self._look_for_the_dead(now)
        for where in list(self._dialing.dials(now)):
            self._dial(where, now)
        handshakes = min((shake.deadline for shake in self._handshakes.values()), default=FOREVER)
        self._timer = min(handshakes, self._accept_at, self._look_at, self._dialing.deadline())

    def _look_for_the_dead(self, now: int) -> int:
        """Cut links whose peer has left repeats unanswered for too long, and return when to look
        again. That it has been silent does not suffice: perhaps nobody has asked it. One that is
        idle is watched by keepalive; one that holds us answers the probes of its window.
        """
        next_look = now + self._link_timeout // 4
        for link in self._links.values():
            if link.standing:
                repeats, probes, silent_ms = _TCP_INFO.unpack_from(link.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64))
                unanswered = max(repeats, probes)
                left = self._link_timeout - silent_ms * MILLISECOND
                if unanswered >= UNANSWERED and left <= 0:
                    self._counters["links_cut_dead"] += 1
                    log.warning("member %016x at %s:%d answers nothing any more; its connection is cut", link.peer, *link.endpoint)
                    link.cut()
                elif unanswered and left > 0:
                    next_look = min(next_look, now + left)
        return next_look

    # ---------------------------------------------------------------------------------------------------- handshakes

    def _dial(self, where: Endpoint, now: int) -> None:
        dialed = [shake.dialed for shake in self._handshakes.values() if shake.dialed]
        if where in dialed or len(dialed) >= MOST_HANDSHAKES:
            return
        self._counters["dials"] += 1
        try:
            connection = self._socket()
        except OSError:
            self._counters["dials_failed"] += 1
            return
        try:
            connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((self._interface, 0))
            with suppress(BlockingIOError):
                connection.connect(where)
            if connection.getsockname() == where:       # nobody listens there, and TCP has connected it to itself
                raise ConnectionRefusedError
            self._epoll.register(connection, select.EPOLLIN)
        except OSError:
            connection.close()
            self._counters["dials_failed"] += 1
            return
        self._handshakes[connection.fileno()] = Handshake(connection, where[0], now, now + self._handshake_timeout, where)

    def _accept(self) -> None:
        now = time.monotonic_ns()
        for _ in range(ACCEPTS):
            if not self._make_room(now):
                return
            try:
                connection, (host, _) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._counters["accept_errors"] += 1
                if error.errno in NO_DESCRIPTORS:
                    self._stop_listening(now + RETRY_ACCEPT)
                    return
                continue
            self._welcome(connection, host, now)

    def _welcome(self, connection: socket.socket, host: str, now: int) -> None:
        self._counters["handshakes_accepted"] += 1
        connection.setblocking(False)
        try:
            self._epoll.register(connection, select.EPOLLIN)
        except OSError:                                 # no more room to watch
            connection.close()
            self._counters["accept_errors"] += 1
            return
        shake = Handshake(connection, host, now, now + self._handshake_timeout, None)
        self._handshakes[shake.fd] = shake
        self._timer = min(self._timer, shake.deadline)
        if not self._say(shake, Kind.HELLO, 0):
            self._end(shake, "handshakes_refused")

    def _make_room(self, now: int) -> bool:
        """Whether another handshake may begin. What is slow goes for what comes, but everybody has a moment."""
        accepted = [shake for shake in self._handshakes.values() if not shake.dialed]
        if len(accepted) < MOST_HANDSHAKES:
            return True
        oldest = accepted[0]
        if now - oldest.began < GRACE:
            self._stop_listening(oldest.began + GRACE)
            return False
        self._end(oldest, "handshakes_timed_out")
        return True

    def _stop_listening(self, until: int) -> None:
        """What comes waits in the kernel."""
        self._listening = False
        self._epoll.modify(self._listener, 0)
        self._accept_at = until
        self._timer = min(self._timer, until)

    def _listen_again(self) -> None:
        self._accept_at = FOREVER
        if not self._listening:
            self._listening = True
            self._epoll.modify(self._listener, select.EPOLLIN)

    def _say(self, shake: Handshake, kind: Kind, number: int) -> bool:
        """A fresh connection has room for a record; one that has not is given up."""
        record = write(self._group, Record(kind, self._member, number, self._own))
        try:
            return shake.socket.send(record, socket.MSG_NOSIGNAL) == len(record)
        except OSError:
            return False

    def _continue(self, shake: Handshake) -> None:
        """Read on, but nothing that stands behind the record."""
        failed = "dials_failed" if shake.dialed else "handshakes_refused"
        try:
            part = shake.socket.recv(SIZE - len(shake.received))
        except BlockingIOError:
            return
        except OSError:
            part = b""
        shake.received += part
        if not part:
            self._end(shake, failed)
        elif len(shake.received) == SIZE:
            record, shake.received = read(shake.received, self._group), b""
            if record is None:
                self._end(shake, "handshakes_refused")
            elif record.member == self._member:
                self._meet_myself(shake)
            elif shake.dialed is None and record.kind == Kind.PROPOSE:
                self._judge(shake, record)
            elif shake.dialed and shake.peer is None and record.kind == Kind.HELLO:
                self._propose(shake, shake.dialed, record)
            elif shake.peer is not None and record.kind in (Kind.ACCEPT, Kind.REFUSE):
                self._conclude(shake, shake.peer, record)
            else:
                self._end(shake, "handshakes_refused")

    def _meet_myself(self, shake: Handshake) -> None:
        if shake.dialed:
            self._dialing.met(shake.dialed, self._member)
        self._end(shake, "self_connections")

    def _propose(self, shake: Handshake, where: Endpoint, hello: Record) -> None:
        """We know whom we have reached. Who has a link already is left alone: if he had lost it he would dial."""
        self._dialing.met(where, hello.member)
        peer = self._dialing.peer(hello.member)
        if peer.linked or peer.numbers.proposed:
            self._end(shake)
            return
        if self._is_full(hello.member):
            self._end(shake, "handshakes_refused")
            return
        shake.peer, shake.number = hello, peer.numbers.propose()
        if not self._say(shake, Kind.PROPOSE, shake.number):
            self._end(shake, "dials_failed")

    def _judge(self, shake: Handshake, proposal: Record) -> None:
        """Somebody proposes this connection. Anybody can, in any name: so while a link stands, only the host where it ends may replace
        it. (Who goes on as the same life on another host waits until the link of its former process has ended.)"""
        peer = self._dialing.peer(proposal.member)
        numbers = peer.numbers
        is_elsewhere = peer.linked and shake.host != peer.host
        if is_elsewhere or self._is_full(proposal.member) or not numbers.allows(proposal.number, proposal.member < self._member):
            self._say(shake, Kind.REFUSE, numbers.highest)
            self._end(shake, "handshakes_refused")
        elif self._say(shake, Kind.ACCEPT, proposal.number):
            self._establish(shake, proposal, proposal.number)
        else:
            self._end(shake, "handshakes_refused")

    def _conclude(self, shake: Handshake, peer: Record, answer: Record) -> None:
        """The answer to our proposal."""
        numbers = self._dialing.peer(peer.member).numbers
        if answer.kind == Kind.ACCEPT and (answer.member, answer.number) == (peer.member, shake.number):
            self._establish(shake, peer, shake.number)
            return
        if answer.kind == Kind.REFUSE and answer.member == peer.member:
            numbers.told(answer.number)
        self._end(shake, "dials_failed")

    def _is_full(self, member: int) -> bool:
        return member not in self._links and len(self._links) >= MOST_LINKS

    def _end(self, shake: Handshake, counter: str | None = None) -> None:
        """It does not become a link."""
        if counter:
            self._counters[counter] += 1
        if shake.peer is not None:
            self._dialing.peer(shake.peer.member).numbers.give_up()
        self._forget(shake)
        self._epoll.unregister(shake.fd)
        shake.socket.close()

    def _forget(self, shake: Handshake) -> None:
        del self._handshakes[shake.fd]
        if self._accept_at != FOREVER and not shake.dialed:
            self._accept_at = self._timer = 0           # there is room again

    # --------------------------------------------------------------------------------------------------------- links

    def _establish(self, shake: Handshake, record: Record, number: int) -> None:
        """This connection is the link from here on, and no other."""
        peer = self._dialing.peer(record.member)
        self._forget(shake)
        rivals = [each for each in self._handshakes.values() if each.peer is not None and each.peer.member == record.member]
        for rival in rivals:
            self._end(rival)
        if peer.link is not None:
            self._counters["links_replaced"] += 1
            self._lose(peer.link)
        peer.numbers.stand(number)
        peer.host = shake.host
        peer.link = link = Link(shake.socket, record.member, record.endpoint, self._epoll, self._max_unsent)
        self._set_up(link.socket)
        self._reading[link.fd] = link
        with self._holding:
            self._links = {**self._links, link.peer: link}
            link.hold(link.peer in self._held)
        self._dialing.met(record.endpoint, record.member)
        self._counters["links_made"] += 1
        self._news.append(link.peer)

    def _set_up(self, connection: socket.socket) -> None:
        """Small frames go at once, and an idle peer that is gone is found out."""
        seconds = self._link_timeout // 1_000_000_000
        interval = max(1, seconds // 5)
        options = {socket.TCP_KEEPIDLE: seconds - UNANSWERED * interval,
                   socket.TCP_KEEPINTVL: interval, socket.TCP_KEEPCNT: UNANSWERED}
        with suppress(OSError):                         # of a connection that has broken already
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in options.items():
                connection.setsockopt(socket.IPPROTO_TCP, option, min(max(1, value), 32_767))

    def _lose(self, link: Link) -> None:
        """It has ended, or another takes its place."""
        del self._reading[link.fd]
        link.close()
        with self._lock:                                # what it did is counted here or there, never twice
            with self._holding:
                self._links = {member: each for member, each in self._links.items() if each is not link}
            self._counters["links_lost"] += 1
            self._counters["links_cut_slow"] += link.slow
            self._add_up(link)
        if link.slow:
            log.warning("member %016x at %s:%d takes nothing: its connection is cut, because more than %d bytes wait for it; it gets "
                        "another", link.peer, *link.endpoint, self._max_unsent)
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

