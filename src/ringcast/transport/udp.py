"""The UDP transport, over IPv4 multicast, on Linux: one datagram reaches every member,
and any datagram may be lost.

A transport has a unicast socket and two multicast sockets. The unicast socket is bound
to the chosen interface and a port of its own. It receives what is meant for this member
alone, and sends everything, so that its address and port identify this member's
datagrams. The multicast sockets are bound to the group's address and port, which all
members on a host share. The kernel loops multicasts back, because other members may run
on this host; a filter in the kernel removes this member's own datagrams again.

The filters also share the multicasts between the two sockets: one has the bulk,
datagrams with messages, the other all the rest. The bulk is read last. So under load,
when many megabytes of messages wait, what controls the group does not wait behind them.

Off loopback no datagram is larger than one frame of the interface, and routers may not
cut it (IP_MTU_DISCOVER). A datagram of 60,000 bytes would travel in 41 frames and be
lost with any of them, and the frames that came would fill the kernel's memory for
fragments for 30 s, in which nothing else gets through. Many small datagrams cost little
more than a large one, because the kernel takes a burst of them in one piece (see
Sender).

If a datagram comes to a port that no socket has, the kernel there says so (ICMP port
unreachable). So the end of a process shows when something is sent to it alone. A
multicast is never answered in this way.

The constructor checks all that can be checked without sending anything, and fails with
one sentence that says what to do. Later failures of the network are only counted.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ringcast._core.receiver import Receiver
from ringcast._core.sender import Sender
from ringcast._core.sockets import SockAddr, drop_own, size_receive_buffer
from ringcast.address import EVERYONE
from ringcast.config import DEFAULTS, MAX_DATAGRAM, MIN_DATAGRAM, UDP_HEADERS
from ringcast.errors import ConfigError, TransportError
from ringcast.status import UdpStatus
from ringcast.transport.ipv4 import (
    HostPort,
    check_interface,
    check_range,
    no_permission,
    no_such_interface,
    os_errors_as,
    parse_address,
    parse_host_port,
    parse_places,
)
from ringcast.transport.lifetime import RefCountedTransport, spin_time

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Linux; the socket module does not name them.
IP_MTU_DISCOVER, IP_RECVERR, IP_MTU = 10, 11, 14
IP_MULTICAST_ALL = 49
# Fragment nothing, and believe no ICMP message about the path's MTU: anybody could send
# one.
IP_PMTUDISC_PROBE = 3


class UdpTransport(RefCountedTransport):
    """A `Transport` over UDP multicast. Datagrams may be lost, duplicated or reordered,
    and those that `poll` returns may come from anybody.

    Args:
        group_address: IPv4 multicast address of the group, 224.0.0.0 ..
            239.255.255.255.
        port: UDP port of the group, 1 .. 65535.
        interface: IPv4 address of the network interface to use. With the default,
            loopback, no datagram leaves this machine.
        ttl: routers that a multicast datagram may pass, plus one; 0 .. 255.
        receive_buffer: bytes of datagrams that each socket keeps until `poll` takes
            them; 65,536 .. 1 GiB. The kernel may grant less (`net.core.rmem_max`);
            `receive_budget` tells.
        send_buffer: bytes of datagrams that may be on their way to the interface;
            65,536 .. 1 GiB. What `put` sends beyond is dropped and counted.
        max_datagram: bytes of the largest datagram, 512 .. 65,507. Off loopback it is
            limited to what fits one frame of the interface.
        bulk: kinds of datagrams that are read after all others; a sealed datagram has
            its channel in the place of the kind.
        busy_poll: nanoseconds for which a `poll` that is `expecting` a datagram polls
            without sleeping; 0: it sleeps at once.
        insecure: True allows an interface other than loopback; False says that the
            datagrams are not sealed.

    Raises ConfigError for a value outside its range, and TransportError if the machine
    refuses: no interface that is up has this address, another program owns the port,
    there is no multicast route, or no permission.

    `receive_budget` is half of the smaller receive buffer that the kernel granted. The
    kernel charges its own overhead: a buffer holds at least that much of datagrams of 8
    KB and more (measured: 0.96 to 1.97 times), 0.87 of it of datagrams of 1,000 bytes,
    and a quarter of it of datagrams of 100 bytes. `send_budget` is three eighths of the
    send buffer: a datagram that fits a frame is charged with 2,304 bytes, one of 1,000
    bytes with 0.43 bytes a byte.

    Threads: as `Transport` says. `close` never waits: the last thread that returns from
    `poll` or `put` closes the sockets.
    """

    lossless = False

    def __init__(
        self,
        *,
        group_address: str,
        port: int = DEFAULTS.port,
        interface: str = DEFAULTS.interface,
        ttl: int = DEFAULTS.ttl,
        receive_buffer: int = DEFAULTS.receive_buffer,
        send_buffer: int = 4 << 20,
        max_datagram: int = DEFAULTS.max_datagram,
        bulk: Collection[int] = (),
        busy_poll: int = 0,
        insecure: bool = False,
    ) -> None:
        super().__init__()
        _check_group(group_address, port)
        self._loopback = check_interface(interface, insecure).is_loopback
        check_range("ttl", ttl, 0, 255)
        check_range("receive_buffer", receive_buffer, 1 << 16, 1 << 30)
        check_range("send_buffer", send_buffer, 1 << 16, 1 << 30)
        check_range("max_datagram", max_datagram, MIN_DATAGRAM, MAX_DATAGRAM)
        with ExitStack() as undo:
            self._unicast = undo.enter_context(_socket())
            own_port = _open_unicast(self._unicast, interface, ttl, send_buffer)
            self._multicasts = [undo.enter_context(_socket()) for _ in range(2)]
            for multicast in self._multicasts:
                _open_multicast(multicast, group_address, port, interface)
            self.max_datagram = min(max_datagram, _probe_route(group_address, port, interface))
            if not self._loopback:
                _forbid_fragments(self._unicast)
            with os_errors_as("UDP", {}):
                for is_bulk, multicast in enumerate(self._multicasts):
                    drop_own(multicast.fileno(), interface, own_port, bulk, bool(is_bulk))
                sockets = [self._unicast, *self._multicasts]        # in the order of their reading
                granted = [size_receive_buffer(each, receive_buffer) for each in sockets]
                self._receiver = Receiver([each.fileno() for each in sockets])
            undo.pop_all()
        self._spin = spin_time(busy_poll)
        self._sender = Sender(self._unicast.fileno(), self.max_datagram,
                              segments=not self._loopback)
        self._everyone = SockAddr(group_address, port)
        self._own: HostPort = (interface, own_port)
        self._routes: dict[int, str] = {}           # that were told last ...
        self._members: dict[int, SockAddr] = {}     # ... and those of them that can be used
        self._sought: list[HostPort] = []
        self._bad_routes = self._bad_addresses = 0
        self._address_all()
        self.physical = f"{interface}:{own_port}"
        self.receive_budget = min(granted) // 2
        self.send_budget = self._size_send_budget()

    def connect(self, routes: Mapping[int, str]) -> None:
        """See `Transport.connect`. A `physical` is `address:port` of one IPv4 host,
        which is on loopback if and only if this member is.

        While a large group forms, this is called for each member that is heard, with
        all of them; so what is known is not parsed again."""
        with self._lock:
            known, former = self._routes, self._members
            table = {}
            for member, physical in routes.items():
                if known.get(member) == physical:
                    address = former.get(member)
                else:
                    address = self._address(member, physical)
                if address is not None:
                    table[member] = address
            self._bad_routes += len(routes) - len(table)
            self._routes, self._members = dict(routes), table
            self._address_all()

    def _address(self, member: int, physical: str) -> SockAddr | None:
        """Return the address of a member; None if there is none that can be used."""
        address = parse_host_port(physical, self._loopback)
        return None if address is None or member == EVERYONE else SockAddr(*address)

    def seek(self, addresses: Collection[str]) -> list[str]:
        """See `Transport.seek`: each datagram to EVERYONE also goes by unicast to each
        of these addresses, unless it is this member's own or in the table of routes. An
        address needs a port, which is the one of a member's `physical`."""
        places, bad = parse_places(addresses, self._loopback, ())
        with self._lock:
            self._bad_addresses += len(bad)
            self._sought = [place for place in places if place != self._own]
            self._address_all()
        return bad

    def _address_all(self) -> None:
        """Make the addresses of all destinations: of members, of EVERYONE, and of each
        place that is sought, under the place itself."""
        sought = self._sought
        if sought:
            known = {(address.host, address.port) for address in self._members.values()}
            sought = [place for place in sought if place not in known]
        addresses: dict[Hashable, SockAddr] = {place: SockAddr(*place) for place in sought}
        addresses.update(self._members.items())
        addresses[EVERYONE] = self._everyone
        self._destinations = addresses, sought

    def poll(self, timeout_ns: int | None, expecting: bool = False) -> list[memoryview]:
        """See `Transport.poll`. Returns early and empty if all that came was an ICMP
        error, of whatever kind."""
        use = object()
        try:
            self._begin_use(use)
            return self._receiver.receive(timeout_ns, self._spin if expecting else 0)
        finally:
            self._uses.discard(use)
            self._close_if_unused()

    def put(self, packets: Sequence[tuple[int, Buffer]]) -> None:
        """See `Transport.put`. If the send buffer is full, the rest of the packets is
        dropped. The counters tell why datagrams were lost."""
        use = object()
        try:
            self._begin_use(use)
            addresses, sought = self._destinations
            self._sender.send_many(_with_copies(packets, sought) if sought else packets, addresses)
        finally:
            self._uses.discard(use)
            self._close_if_unused()

    def _size_send_budget(self) -> int:
        """Return `send_budget`. On loopback nothing waits: what is sent is received."""
        if self._loopback:
            return 1 << 40
        granted = self._unicast.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        return granted * 3 // 8

    @property
    def emptied(self) -> bool:
        """See `Transport.emptied`."""
        return self._receiver.emptied

    def links(self) -> list[int]:
        """See `Transport.links`: there are no connections."""
        return []

    def refused(self) -> list[int]:
        """See `Transport.refused`."""
        if not (gone := self._receiver.refused()):
            return []
        return [member for member, address in self._members.items()
                if (address.host, address.port) in gone]

    def wake(self) -> None:
        """See `Transport.wake`."""
        self._receiver.wake()

    def status(self) -> UdpStatus:
        """See `Transport.status`."""
        receiver, sender = self._receiver, self._sender
        return UdpStatus(
            datagrams_received=receiver.datagrams,
            bytes_received=receiver.bytes,
            receive_calls=receiver.calls,
            receive_truncated=receiver.truncated,
            receive_errors=receiver.errors,
            datagrams_sent=sender.datagrams,
            bytes_sent=sender.bytes,
            send_calls=sender.calls,
            send_unknown=sender.unknown,
            send_errors=sender.errors,
            send_dropped=sender.dropped,
            bad_routes=self._bad_routes,
            bad_addresses=self._bad_addresses,
        )

    def _close_sockets(self) -> None:
        self._receiver.close()
        self._close_all()

    def _close_descriptors(self) -> None:
        self._receiver.forget()
        self._close_all()

    def _close_all(self) -> None:
        for each in (self._unicast, *self._multicasts):
            each.close()


def _with_copies(packets: Sequence[tuple[int, Buffer]],
                 sought: Sequence[HostPort]) -> list[tuple[Hashable, Buffer]]:
    """Return the packets, with a copy of each packet to EVERYONE for each place that is
    sought."""
    return [(to, datagram) for dest, datagram in packets
            for to in ((dest, *sought) if dest == EVERYONE else (dest,))]


def _check_group(group_address: str, port: int) -> None:
    check_range("port", port, 1, 65535)
    if not parse_address("group_address", group_address).is_multicast:
        raise ConfigError(f"group_address={group_address!r} is not a multicast address; choose one "
                          "in 239.0.0.0 .. 239.255.255.255")


def _socket() -> socket.socket:
    """Return a UDP socket that does not block and is closed on exec."""
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with os_errors_as("UDP", {}):
        return socket.socket(socket.AF_INET, kind)


def _open_unicast(unicast: socket.socket, interface: str, ttl: int, send_buffer: int) -> int:
    """Bind and set up the socket that sends; return its port."""
    with os_errors_as("UDP", no_such_interface(interface)):
        unicast.bind((interface, 0))
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        unicast.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        unicast.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        port: int = unicast.getsockname()[1]
        return port


def _open_multicast(multicast: socket.socket, group_address: str, port: int,
                    interface: str) -> None:
    """Bind the socket that receives the group's datagrams to the address and port that
    all members on this host share, and join the group."""
    group = f"{group_address}:{port}"
    sentences = {
        **no_permission(port),
        errno.EADDRINUSE: f"another program uses {group} and does not share it; stop it or choose "
                          "another port",
        errno.EPERM: f"no permission to join {group}; ask for it to be allowed here (a sandbox or "
                     "firewall forbids it)",
        errno.ENODEV: f"the interface {interface} cannot join {group_address}; choose one that is "
                      "up and has multicast",
        errno.ENOBUFS: "this machine is in too many multicast groups; raise "
                       "net.ipv4.igmp_max_memberships",
    }
    with os_errors_as("UDP", sentences):
        multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        multicast.bind((group_address, port))
        # Receive only from groups that this socket itself has joined.
        multicast.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        membership = socket.inet_aton(group_address) + socket.inet_aton(interface)
        multicast.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)


def largest_datagram(group_address: str, port: int, interface: str, insecure: bool) -> int:
    """Return the bytes of the largest datagram that this interface carries. Errors as
    UdpTransport's."""
    _check_group(group_address, port)
    check_interface(interface, insecure)
    return _probe_route(group_address, port, interface)


def _probe_route(group_address: str, port: int, interface: str) -> int:
    """Look up the route without sending, as connect() of a UDP socket does. Return the
    bytes that fit one packet of it."""
    lost = (f"no multicast route to {group_address}: the interface of {interface} is down; "
            "bring it up (`ip link set`)")
    down = {errno.ENETUNREACH: lost, errno.EHOSTUNREACH: lost, errno.ENODEV: lost}
    with os_errors_as("UDP", down | no_such_interface(interface)), _socket() as probe:
        probe.bind((interface, 0))
        probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        probe.connect((group_address, port))
        mtu = probe.getsockopt(socket.IPPROTO_IP, IP_MTU)
    if mtu - UDP_HEADERS < MIN_DATAGRAM:
        least = MIN_DATAGRAM + UDP_HEADERS
        raise TransportError(errno.EMSGSIZE,
                             f"the interface {interface} carries packets of {mtu} bytes, and "
                             f"ringcast needs {least}; raise its MTU (`ip link set`)")
    return min(mtu - UDP_HEADERS, MAX_DATAGRAM)


def _forbid_fragments(unicast: socket.socket) -> None:
    with os_errors_as("UDP", {}):
        unicast.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
