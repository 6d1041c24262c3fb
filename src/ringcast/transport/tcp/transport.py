"""The TCP transport, over IPv4, on Linux: one connection, the link, between each two
members.

**While a link is up, every datagram arrives, once and in order. When a link ends or is
replaced, the datagrams on their way to or from that member may be lost.** `links`
reports each new link; the layers above repair what was lost (decision 21).

Only the datagrams of the kinds that are `control` need not arrive, nor in order. Soon
after a link is up, it has a second connection, for these alone. So they do not wait
behind messages, of which many megabytes may be in the kernels' buffers and in our
queue. If that connection ends, control is on the link again until there is another one.

Members find each other by dialing: first every address where a member may be, then the
members of the table of routes, and always the places that are sought (tcp/dialing.py).
Two members agree on one connection (tcp/handshake.py, tcp/handshaking.py), which then
carries frames (tcp/link.py). All this happens inside `poll` and `put`. There are no
threads, and `poll` serves the timers, so nobody finds a member whose channel does not
poll.

No member waits for a slow peer: what the peer does not take is queued, and if more than
`max_unsent` bytes are queued, its link is cut. tcp/liveness.py notices peers that have
vanished.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from ringcast._core.spinning import Spinning
from ringcast._core.wire import HEADER_SIZE
from ringcast.address import EVERYONE
from ringcast.config import DEFAULTS, MAX_DATAGRAM
from ringcast.errors import ConfigError, MessageTooLargeError
from ringcast.logs import log
from ringcast.status import TcpStatus
from ringcast.transport.ipv4 import (
    HostPort,
    check_interface,
    check_range,
    os_errors_as,
    parse_host_port,
    parse_places,
)
from ringcast.transport.lifetime import RefCountedTransport, handover, spin_time
from ringcast.transport.tcp import liveness
from ringcast.transport.tcp.dialing import FOREVER, MILLISECOND, Dialing
from ringcast.transport.tcp.handshaking import Agreement, Handshaking
from ringcast.transport.tcp.link import ENDED, READ, Link, Piece, ReadBuffer
from ringcast.transport.tcp.listening import listen, widen

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ringcast.protocols.security.identity import Identity

EVENTS = 64         # handled between two readings of the clock; epoll takes turns among the ready
EXACT = 10 * MILLISECOND                # shorter sleeps end on time
LONGEST = 1_000_000 * MILLISECOND       # sleep, which is as good as for ever
UNREAD = 4 * READ                       # bytes that may wait in the kernel for a late turn
KIND_AT = 3                             # where the kind is in a datagram


class TcpTransport(RefCountedTransport):
    """A `Transport` over TCP. Datagrams to a member arrive, once and in order, as long
    as `links` reports no new connection to it.

    Args:
        group: the 32 bits by which groups are told apart. Members of other groups are
            refused.
        member: this member's incarnation.
        interface: IPv4 address of the network interface to use. With the default,
            loopback, no datagram leaves this machine.
        port, port_range: this member listens on the first free port of port .. port +
            port_range - 1.
        hosts: where other members may be, each as "address:port". Without any: at this
            interface, on every port of the range.
        max_unsent: bytes that may be queued for one member; with more its link is cut.
        link_timeout: seconds after which a peer that has vanished loses its link; whole
            seconds if the link is idle. A peer that is slow or stopped has not
            vanished: its kernel answers. If a peer had taken nothing for long and then
            vanishes, this takes longer, because the kernel probes ever more rarely (at
            least every two minutes).
        handshake_timeout: seconds within which a connection must become a link.
        receive_buffer, send_buffer: bytes asked of the kernel for each link; 0: the
            kernel chooses and adapts the size.
        control: kinds of datagrams that pass all others, and may be lost. Of sealed
            ones, their channel stands in the place of the kind.
        busy_poll: nanoseconds for which a `poll` that is `expecting` a datagram polls
            without sleeping; 0: it sleeps at once.
        key: authenticates the handshakes of a sealed group, whose datagrams are sealed
            before they come here.
        identity: signs the handshakes, and says whose are believed, where keys are
            trusted.
        insecure: True allows an interface other than loopback without a key.

    Raises ConfigError for a value outside its range, and TransportError if the machine
    refuses.

    `put` takes only datagrams of this member: at least 32 bytes, with `member` as the
    sender in their header; others raise ValueError. The budgets set no limit, because
    nothing is lost when much is on its way.

    Threads: as `Transport` says. `close` never waits: the last thread that returns from
    `poll` or `put` closes the sockets. The table of links is replaced, never changed;
    each link has a lock for its sending side; everything else belongs to the thread
    that polls.
    """

    max_datagram = MAX_DATAGRAM
    lossless = True
    receive_budget = send_budget = 1 << 40

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
        control: Collection[int] = (),
        busy_poll: int = 0,
        key: bytes = b"",
        identity: Identity | None = None,
        insecure: bool = False,
    ) -> None:
        super().__init__()      # its `_lock` also guards the counters, and what `wake` does
        self._loopback = check_interface(interface, insecure or bool(key)).is_loopback
        check_range("group", group, 0, (1 << 32) - 1)
        check_range("member", member, 1, (1 << 64) - 1)
        check_range("port", port, 1, 65535)
        check_range("port_range", port_range, 1, 65535)
        if port + port_range > 65536:
            raise ConfigError(f"port={port} and port_range={port_range} reach beyond port 65535; "
                              f"choose a port up to {65536 - port_range}, or a smaller port_range")
        check_range("max_unsent", max_unsent, MAX_DATAGRAM, 1 << 40)
        for name, size in (("receive_buffer", receive_buffer), ("send_buffer", send_buffer)):
            check_range(name, size, 0, 1 << 30)
        for name, seconds in (("link_timeout", link_timeout),
                              ("handshake_timeout", handshake_timeout)):
            if not 0 < seconds <= 86_400:
                raise ConfigError(f"{name}={seconds!r} is not a number of seconds above 0 "
                                  "and up to 86400")
        self._ports = range(port, port + port_range)
        candidates = ([self._candidate(host) for host in hosts]
                      or [(interface, each) for each in self._ports])
        self._member, self._sender = member, member.to_bytes(8, "little")
        self._control = frozenset(control)
        self._max_unsent, self._link_timeout = max_unsent, int(link_timeout * 1e9)
        buffers = {socket.SO_RCVBUF: receive_buffer, socket.SO_SNDBUF: send_buffer}
        with ExitStack() as undo:
            listener = undo.enter_context(listen(interface, port, port_range, buffers))
            with os_errors_as("TCP", {}):
                self._epoll = undo.enter_context(select.epoll())
                self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.pop_all()
        self._epoll.register(self._event, select.EPOLLIN)
        self._own: HostPort = listener.getsockname()
        self.physical = f"{self._own[0]}:{self._own[1]}"
        self._counters = dict.fromkeys(TcpStatus.__struct_fields__, 0)
        self._identity = identity
        self._dialing = Dialing(member, self._own, candidates)
        self._handshaking = Handshaking(group, member, listener, self._epoll, self._dialing,
                                        int(handshake_timeout * 1e9), buffers, self._counters, key,
                                        identity)
        self._spin = spin_time(busy_poll)
        self._spinning = Spinning()             # whether a wait spins first
        self._links: dict[int, Link] = {}       # by member; replaced as a whole
        self._links_by_fd: dict[int, Link] = {}
        self._buffered: list[Link] = []         # that have a read buffer
        self.emptied = True                     # see Transport.emptied
        self._spare: list[ReadBuffer] = []
        self._new_links: list[int] = []         # members, for links()
        self._routes: dict[int, HostPort] | None = None     # a new table, for the polling thread
        self._sought: list[HostPort] = []                   # the last list of seek()
        self._places: list[HostPort] | None = None          # it, for the polling thread
        self._timer = 0                         # when _tick() has something to do
        self._check_links_at = 0                # when to check whether peers have vanished
        self._woken = False
        self._is_torn = False                   # all connections must be made anew

    def _candidate(self, host: str) -> HostPort:
        """Return an address that the option hosts gives."""
        found = parse_host_port(host, self._loopback)
        if found is None:
            raise ConfigError(f"hosts: {host!r} is not address:port of a host that the interface "
                              "reaches, as in 127.0.0.1:7700")
        return found

    # ------------------------------------------------------------------------------- for any thread

    def connect(self, routes: Mapping[int, str]) -> None:
        """See `Transport.connect`. Members that are not in the table keep their links:
        they may have to be told that they are excluded."""
        table = {}
        for member, physical in routes.items():
            found = parse_host_port(physical, self._loopback)
            if found is not None and isinstance(member, int) and 0 < member < 1 << 64:
                table[member] = found
        with self._lock:
            self._counters["bad_routes"] += len(routes) - len(table)
            self._routes = table
        self.wake()

    def seek(self, addresses: Collection[str]) -> list[str]:
        """See `Transport.seek`. The places are dialed until a member that is there has
        a link. An address without a port stands for all ports of the range."""
        places, bad = parse_places(addresses, self._loopback, self._ports)
        with self._lock:
            self._counters["bad_addresses"] += len(bad)
            if places == self._sought:      # nothing to wake anybody for
                return bad
            self._places = self._sought = places
        self.wake()
        return bad

    def put(self, packets: Sequence[tuple[int, Buffer]]) -> None:
        """See `Transport.put`. What the kernel does not take at once is queued at its
        link. Datagrams to a member without a link are counted and dropped."""
        use = object()
        try:
            self._begin_use(use)
            batches = self._batches(packets)
            for link, buffers in batches.items():
                if not link.put(buffers, len(buffers) // 2, sum(map(len, buffers))):
                    self._count("send_unlinked", len(buffers) // 2)
        finally:
            self._uses.discard(use)
            self._close_if_unused()

    def _batches(self, packets: Sequence[tuple[int, Buffer]]) -> dict[Link, list[Piece]]:
        """Return the buffers for each connection, in order. Raises before anything is
        sent."""
        links = self._links
        batches: dict[Link, list[Piece]] = {}
        unlinked = 0
        for dest, given in packets:
            datagram = given if type(given) is bytes else memoryview(given).cast("B")
            size = self._frame_length(datagram)
            if dest == EVERYONE:
                targets: Collection[Link] = links.values()
            else:
                link = links.get(dest)
                targets = () if link is None else (link,)
            unlinked += dest != EVERYONE and not targets
            is_control = datagram[KIND_AT] in self._control
            for link in targets:
                connection = (is_control and link.control) or link
                batches.setdefault(connection, []).extend((size, datagram))
        if unlinked:
            self._count("send_unlinked", unlinked)
        return batches

    def _frame_length(self, datagram: Piece) -> bytes:
        """Return a datagram's length as it is in a frame; raise if it cannot be
        sent."""
        size = len(datagram)
        if size > MAX_DATAGRAM:
            raise MessageTooLargeError(f"a datagram of {size} bytes is above the {MAX_DATAGRAM} "
                                       "that a frame holds; nothing was sent")
        if size < HEADER_SIZE or datagram[8:16] != self._sender:
            raise ValueError(f"this is no datagram of member {self._member}: the others would "
                             "close the link; nothing was sent")
        return size.to_bytes(4, "little")

    def wake(self) -> None:
        """See `Transport.wake`."""
        with self._lock:
            if not (self._woken or self._is_released):
                self._woken = True
                os.eventfd_write(self._event, 1)

    def status(self) -> TcpStatus:
        """See `Transport.status`. Bytes are those of whole frames; `unsent_bytes` were
        put and wait for the kernel."""
        with self._lock:
            links = list(self._links.values())
            every = [each for link in links for each in link.connections()]
            status = TcpStatus(**self._counters)
            status.links, status.control_links = len(links), len(every) - len(links)
            status.unsent_bytes = sum(each.unsent_bytes for each in every)
            status.frames_sent += sum(each.frames_sent for each in every)
            status.bytes_sent += sum(each.bytes_sent for each in every)
        return status

    def _close_sockets(self) -> None:
        """Offer what is queued to the kernel once more, which delivers it if the peer
        lives; then close everything."""
        self._handshaking.close()
        for link in self._links_by_fd.values():
            link.finish()
            self._add_counters(link)
        self._links = {}
        self._links_by_fd.clear()
        self._buffered, self._spare, self._new_links = [], [], []
        self._epoll.close()
        os.close(self._event)

    def _close_descriptors(self) -> None:
        """See RefCountedTransport. Do not unregister anything, because the parent's
        epoll is the same; the parent's sockets stay open."""
        self._handshaking.close()
        for link in self._links_by_fd.values():
            link.socket.close()
        self._epoll.close()
        os.close(self._event)

    def _count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counters[name] += number

    # -------------------------------------------------------------------------------------- polling

    def links(self) -> list[int]:
        """See `Transport.links`."""
        news, self._new_links = self._new_links, []
        return news

    def refused(self) -> list[int]:
        """See `Transport.refused`. A link that ended is no refusal, whoever ended it:
        its member is dialed at once, and only that dial can be refused."""
        return self._dialing.take_gone()

    def lose(self) -> None:
        """See `Transport.lose`. The next poll makes all connections anew."""
        self._is_torn = True

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> list[memoryview]:
        """See `Transport.poll`. Reads at most one buffer full from each link. After an
        exception, of a signal handler say, as after `lose`."""
        use = object()
        try:
            try:
                self._begin_use(use)
                return self._poll(timeout_ns, self._spin if expecting else 0)
            finally:
                self._uses.discard(use)
                self._close_if_unused()
        except BaseException:
            self._is_torn = True
            raise

    def _poll(self, timeout_ns: int | None, spin: int) -> list[memoryview]:
        if self._is_torn:
            self._start_anew()
            timeout_ns = 0                  # a wake() may have found _woken set, and done nothing
        if self._buffered:
            self._buffered = [link for link in self._buffered if link.release_buffer(self._spare)]
        frames: list[memoryview] = []
        control: list[memoryview] = []
        self.emptied = True
        now = time.monotonic_ns()
        until = FOREVER if timeout_ns is None else now + max(0, timeout_ns)
        returning = False
        while not returning:
            if self._routes is not None or self._places is not None:
                self._apply_lists()
            if now >= self._timer:
                self._tick(now)
            for fd, events in self._wait_for_events(min(until, self._timer), now, spin):
                returning |= self._on_event(fd, events, frames, control)
            now = time.monotonic_ns()
            returning |= (bool(frames or control or self._new_links) or self._dialing.has_gone
                          or self._closed or now >= until)
        if control:
            frames[:0] = control
        if frames:
            self._counters["frames_received"] += len(frames)
            self._counters["bytes_received"] += sum(map(len, frames)) + 4 * len(frames)
        return frames

    def _wait_for_events(self, until: int, now: int, spin: int) -> list[tuple[int, int]]:
        """Return events, or none at the instant `until`. The wait may poll without
        sleeping for `spin` nanoseconds first (spinning.pyx)."""
        began = now
        if self._spinning.begin_wait(spin):
            end = min(until, now + spin)
            while now < end:
                events = self._epoll.poll(0, EVENTS)
                if events:
                    self._spinning.end_spin(True)
                    return events
                os.sched_yield()                        # the peer may need this very core
                now = time.monotonic_ns()
            self._spinning.end_spin(False)
        events = self._sleep(until - now)
        if spin:
            self._spinning.end_sleep(time.monotonic_ns() - began, bool(events))
        return events

    def _sleep(self, wait: int) -> list[tuple[int, int]]:
        """Sleep for at most `wait` nanoseconds; return events. epoll rounds up to
        milliseconds, so select() on its descriptor waits for the layers' short
        timers."""
        if 0 < wait < EXACT and self._epoll.fileno() < 1024:            # the limit of select()
            select.select((self._epoll,), (), (), wait / 1e9)
            wait = 0
        return self._epoll.poll(min(max(wait, 0), LONGEST) / 1e9, EVENTS)

    def _on_event(self, fd: int, events: int, frames: list[memoryview],
                  control: list[memoryview]) -> bool:
        """Handle one event; return whether poll() must return for it. The event may be
        of an earlier owner of the descriptor: then there is nothing to read or to
        write, which does no harm."""
        link = self._links_by_fd.get(fd)
        if link is not None:
            is_main = self._links[link.peer] is link
            self._on_link_event(link, events, frames if is_main else control)
        elif fd == self._event:
            with suppress(BlockingIOError):
                os.eventfd_read(fd)
            # A wake() from here on makes the next poll() return; this one returns
            # anyway.
            self._woken = False
            return True
        else:
            with handover:
                agreement = self._handshaking.on_event(fd, self._links)
                if agreement is not None and agreement.is_control:
                    self._add_control(agreement)
                elif agreement is not None:
                    self._add_link(agreement)
            self._timer = 0 if self._dialing.lacks_room else min(self._timer,
                                                                 self._handshaking.deadline())
        return False

    def _on_link_event(self, link: Link, events: int, frames: list[memoryview]) -> None:
        if events & ~select.EPOLLOUT:
            self._read(link, frames, bool(events & ENDED))
        if events & select.EPOLLOUT:
            link.flush()

    def _read(self, link: Link, frames: list[memoryview], has_ended: bool) -> None:
        """Read a buffer full; if the peer has ended the connection, all that is left of
        it. Else the end would be noticed many turns later, and until then what the peer
        sent before it died would show that it lives."""
        well = link.read(frames, self._spare)
        while well and has_ended and not link.is_drained:
            well = link.read_on(frames, self._spare)
        if well and has_ended:
            well = link.read_on(frames, self._spare)    # the end itself
        if link not in self._buffered:
            self._buffered.append(link)
        if link.has_received:
            self._dialing.peer(link.peer).attempts = 0
        self.emptied = self.emptied and link.is_drained
        if not well:
            self._counters["frames_refused"] += well is None
            owner = self._links[link.peer]
            if link is owner:
                self._remove_link(link)
            else:
                self._remove_control(owner)

    def _start_anew(self) -> None:
        """Close all connections, because an exception came in the middle of a poll:
        bytes that were read may be lost, and our tables may not agree. Links to members
        of the table are made again at once."""
        links = {*self._links.values(), *self._links_by_fd.values()}
        with handover:
            self._handshaking.start_anew()
            for link in links:
                link.close()
        with self._lock:
            self._counters["links_lost"] += len(self._links)
            for link in links:
                self._add_counters(link)
            self._links = {}
            self._woken = False
        self._links_by_fd.clear()
        self._dialing.start_anew(time.monotonic_ns())
        self._timer = 0
        self._is_torn = False

    # --------------------------------------------------------------------------------------- timers

    def _apply_lists(self) -> None:
        """Take the table of routes, and the places to seek, that another thread has
        left."""
        with self._lock:
            routes, places = self._routes, self._places
        if routes is not None:
            self._dialing.set_routes(routes)
        if places is not None:
            self._dialing.seek(places)
        self._timer = 0
        with self._lock:                    # only now: an exception may have come before
            self._routes = None if self._routes is routes else self._routes
            self._places = None if self._places is places else self._places

    def _tick(self, now: int) -> None:
        """Do everything that is due, and set the timer for what is next."""
        if now >= self._check_links_at:
            self._check_links_at = self._cut_dead_links(now)
        with handover:
            self._handshaking.tick(now)
            while due := self._dialing.due_members(now, self._handshaking.dialed()):
                for where in due:           # a dial that fails at once leaves its room to another
                    self._handshaking.dial(where, now)
            for where in self._dialing.due_candidates(now, self._handshaking.room_to_seek()):
                self._handshaking.dial(where, now)
            for member, where in self._dialing.due_controls(now):
                self._handshaking.dial(where, now, control_of=member)
            for where in self._dialing.due_places(now, self._handshaking.room_to_seek()):
                self._handshaking.dial(where, now)
        self._timer = min(self._handshaking.deadline(), self._check_links_at,
                          self._dialing.deadline())

    def _cut_dead_links(self, now: int) -> int:
        """Cut the links whose peers have vanished, or whose keys are not trusted any
        more; return when to check again."""
        next_scan = now + self._link_timeout // 4
        for link in self._links_by_fd.values():
            if link.is_up and self._identity is not None and (
                    link.key not in self._identity.trusted):
                log.warning("the key of member %016x at %s:%d is not trusted any more; its "
                            "connection is cut", link.peer, *link.endpoint)
                link.cut()
            elif link.is_up:
                left = liveness.time_left(link.socket, self._link_timeout)
                if left == 0:
                    self._counters["links_cut_dead"] += 1
                    log.warning("member %016x at %s:%d does not answer any more; its connection "
                                "is cut", link.peer, *link.endpoint)
                    link.cut()
                elif left is not None:
                    next_scan = min(next_scan, now + left)
        return next_scan

    # ---------------------------------------------------------------------------------------- links

    def _add_link(self, agreement: Agreement) -> None:
        """Use this connection as the link to its peer, in the place of any other."""
        record = agreement.peer
        peer = self._dialing.peer(record.member)
        if peer.link is not None:
            self._counters["links_replaced"] += 1
            self._remove_link(peer.link)
        peer.numbers.establish(agreement.number)
        peer.host = agreement.host
        peer.link = link = self._new_connection(agreement)
        widen(link.socket, UNREAD)
        self._links = {**self._links, link.peer: link}
        if agreement.dialed is not None and self._control:
            self._dialing.want_control(link.peer, agreement.dialed)
            self._timer = 0
        self._dialing.on_found(record.endpoint, record.member)
        self._dialing.on_link(record.member)
        self._counters["links_made"] += 1
        self._new_links.append(link.peer)

    def _new_connection(self, agreement: Agreement) -> Link:
        record = agreement.peer
        made = Link(agreement.socket, record.member, record.endpoint, self._epoll,
                    self._max_unsent, agreement.dialed, record.key)
        liveness.set_up(made.socket, self._link_timeout)
        self._links_by_fd[made.fd] = made
        return made

    def _add_control(self, agreement: Agreement) -> None:
        """Use this connection for the control of the link to its peer, in the place of
        any other."""
        link = self._links[agreement.peer.member]
        if link.control is not None:
            self._remove_control(link)
        link.control = self._new_connection(agreement)
        self._dialing.on_control(link.peer)

    def _remove_control(self, link: Link) -> None:
        """Close the connection for control of a link. Who dialed the link dials
        again."""
        control = link.control
        assert control is not None
        with handover:
            del self._links_by_fd[control.fd]
            control.close()
        with self._lock:
            link.control = None
            self._add_counters(control)
        if link.dialed is not None and link.is_up:
            self._dialing.want_control(link.peer, link.dialed, control.has_received)
            self._timer = 0

    def _remove_link(self, link: Link) -> None:
        """Close a link that has ended, or that another one replaces."""
        if link.control is not None:
            self._remove_control(link)
        with handover:
            del self._links_by_fd[link.fd]
            link.close()
        with self._lock:                    # status() counts the link in one place, never in two
            self._links = {member: each for member, each in self._links.items()
                           if each is not link}
            self._counters["links_lost"] += 1
            self._counters["links_cut_slow"] += link.is_slow
            self._add_counters(link)
        if link.is_slow:
            log.warning("member %016x at %s:%d reads too slowly: its connection is cut, because "
                        "more than %d bytes wait for it; it gets a new one",
                        link.peer, *link.endpoint, self._max_unsent)
        self._dialing.peer(link.peer).link = None
        self._dialing.on_link_lost(link.peer, time.monotonic_ns())
        self._timer = 0

    def _add_counters(self, link: Link) -> None:
        """Add a closed link's counters to those of the transport."""
        self._counters["frames_sent"] += link.frames_sent
        self._counters["bytes_sent"] += link.bytes_sent
        self._counters["send_lost_bytes"] += link.lost_bytes

