"""Handshakes: connections on which the two ends have not agreed yet.

handshake.py says which records are sent when, and which connection wins if both sides
dial. This file handles what goes wrong with connections. Each handshake has a deadline.
At most MOST_HANDSHAKES of those that others began are open. The oldest of the host that
has most of them makes room for the next one after GRACE; until then new connections
wait in the kernel. So a peer that connects and sends nothing keeps nobody out, and ends
no handshake of another host that has fewer. A member that has no descriptor left
accepts again later.

The bytes behind a record are not read here: they belong to the link.
"""

from __future__ import annotations

import errno
import secrets
import select
import socket
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ringcast.transport.ipv4 import HostPort
from ringcast.transport.tcp.dialing import FOREVER, MILLISECOND, MOST_DIALS, Dialing
from ringcast.transport.tcp.handshake import (
    NONCE_SIZE,
    Kind,
    Record,
    decode,
    encode,
    size_of,
)
from ringcast.transport.tcp.link import ARRIVES
from ringcast.transport.tcp.listening import open_socket

if TYPE_CHECKING:
    from ringcast.protocols.security.identity import Identity

# Linux; the socket module does not name it. It lets ports of former connections be used
# again.
IP_BIND_ADDRESS_NO_PORT = 24
MOST_LINKS = 1024
MOST_HANDSHAKES = 64                    # that others began; those that we began: MOST_DIALS
GRACE = 250 * MILLISECOND               # that every handshake gets before it makes room for another
RETRY_ACCEPT = 250 * MILLISECOND        # until it accepts again, after it had no descriptor left
ACCEPTS = 16                            # connections accepted before other events are handled
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshake:
    """A connection on which the two ends have not agreed yet."""

    def __init__(self, connection: socket.socket, host: str, began: int, deadline: int,
                 dialed: HostPort | None, control_of: int = 0) -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.host = host                # of the other end, as the kernel knows it
        self.began = began
        self.deadline = deadline
        self.dialed = dialed            # the address; None if the connection was accepted
        self.received = b""
        self.said = b""                 # our last record ...
        self.heard = b""                # ... and the peer's, complete
        self.nonce = secrets.token_bytes(NONCE_SIZE)
        self.peer: Record | None = None     # the peer's HELLO, once we have sent our proposal
        self.number = 0                     # of the proposal, or of the link that wants control
        self.control_of = control_of        # the member, if it was dialed for control


class Agreement(NamedTuple):
    """A connection that both ends take for the link, or for the control of their
    link."""

    socket: socket.socket
    host: str                           # of the other end, as the kernel knows it
    peer: Record                        # what the peer said about itself
    number: int                         # of the link
    dialed: HostPort | None = None      # the address, if this side dialed
    is_control: bool = False


class Handshaking:
    """The handshakes of `member`, which listens at `listener`. Their sockets are
    watched with `epoll`. `key` is the group's, if it has one, and `identity` is ours,
    where keys are trusted. In `counters` they count under the names that begin with
    handshakes or dials, self_connections and accept_errors.

    Single owner: the polling thread.
    """

    def __init__(self, group: int, member: int, listener: socket.socket, epoll: select.epoll,
                 dialing: Dialing, timeout: int, buffers: Mapping[int, int],
                 counters: dict[str, int], key: bytes = b"",
                 identity: Identity | None = None) -> None:
        self._group, self._member, self._key = group, member, key
        self._identity, self._size = identity, size_of(identity)
        self._listener, self._epoll, self._dialing = listener, epoll, dialing
        self._own: HostPort = listener.getsockname()
        self._timeout, self._buffers, self._counters = timeout, buffers, counters
        self.handshakes: dict[int, Handshake] = {}      # by descriptor
        self._listening = True
        self._accept_at = FOREVER                       # when to listen again, after a pause
        epoll.register(listener, select.EPOLLIN)

    def deadline(self) -> int:
        """Return when `tick` has something to do."""
        first = min((shake.deadline for shake in self.handshakes.values()), default=FOREVER)
        return min(first, self._accept_at)

    def tick(self, now: int) -> None:
        """Close the handshakes that take too long, and listen again if there is
        room."""
        late = [shake for shake in self.handshakes.values() if now >= shake.deadline]
        for shake in late:
            self._close_handshake(shake, "dials_failed" if shake.dialed else "handshakes_timed_out")
        if now >= self._accept_at:
            self._listen_again()

    def on_event(self, fd: int, linked: Collection[int]) -> Agreement | None:
        """Handle an event of a descriptor, if it is of a handshake; else watch it no
        more. `linked` are the members that have a link. Return the connection that has
        become a link, if one has."""
        if fd in self.handshakes:
            return self._read_record(self.handshakes[fd], linked)
        if fd == self._listener.fileno():
            self._accept()
        else:                           # a call was interrupted that had begun to watch it
            with suppress(OSError):
                self._epoll.unregister(fd)
        return None

    def start_anew(self) -> None:
        """Close all handshakes, and listen again: an exception may have come in the
        middle of any call here."""
        for shake in list(self.handshakes.values()):
            self._close_handshake(shake)
        self._accept_at = 0

    def close(self) -> None:
        """Close all sockets. Do not unregister them: a forked child shares its parent's
        epoll."""
        self._listener.close()
        for shake in self.handshakes.values():
            shake.socket.close()
        self.handshakes.clear()

    # --------------------------------------------------------------------------------- dialing

    def dialed(self) -> list[HostPort]:
        """Return the addresses that are dialed now."""
        return [shake.dialed for shake in self.handshakes.values() if shake.dialed]

    def room_to_seek(self) -> int:
        """Return how many places that are sought may be dialed now. They leave half of
        the room to members of the table."""
        return max(0, MOST_DIALS // 2 - len(self.dialed()))

    def dial(self, where: HostPort, now: int, control_of: int = 0) -> None:
        """Connect to an address, unless there is such an attempt already, or there are
        too many attempts. `control_of` is the member whose link wants a connection for
        control."""
        dialed = [(shake.dialed, shake.control_of) for shake in self.handshakes.values()
                  if shake.dialed]
        if (where, control_of) in dialed or len(dialed) >= MOST_DIALS:
            return
        self._counters["dials"] += 1
        try:
            connection = open_socket(self._buffers)
        except OSError:
            self._counters["dials_failed"] += 1
            return
        try:
            connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((self._own[0], 0))
            with suppress(BlockingIOError):
                connection.connect(where)
            if connection.getsockname() == where:
                # Nobody listens there, and TCP has connected the socket to itself.
                raise ConnectionRefusedError
            self._epoll.register(connection, ARRIVES)
        except OSError as error:
            connection.close()
            self._on_dial_failed(where, error)
            return
        shake = Handshake(connection, where[0], now, now + self._timeout, where, control_of)
        self.handshakes[shake.fd] = shake

    def _on_dial_failed(self, where: HostPort, error: OSError) -> None:
        self._counters["dials_failed"] += 1
        if isinstance(error, ConnectionRefusedError):
            self._dialing.on_answer(where, 0)

    # ------------------------------------------------------------------------------- accepting

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
            self._add_accepted(connection, host, now)

    def _add_accepted(self, connection: socket.socket, host: str, now: int) -> None:
        self._counters["handshakes_accepted"] += 1
        connection.setblocking(False)
        try:
            self._epoll.register(connection, ARRIVES)
        except OSError:                                 # no more room to watch
            connection.close()
            self._counters["accept_errors"] += 1
            return
        shake = Handshake(connection, host, now, now + self._timeout, None)
        self.handshakes[shake.fd] = shake
        if not self._send_record(shake, Kind.HELLO, 0):
            self._close_handshake(shake, "handshakes_refused")

    def _make_room(self, now: int) -> bool:
        """Return whether another handshake may begin. If there are too many, close the
        oldest of the host that has most of them; but each has at least GRACE."""
        accepted = [shake for shake in self.handshakes.values() if not shake.dialed]
        if len(accepted) < MOST_HANDSHAKES:
            return True
        (host, _), = Counter(shake.host for shake in accepted).most_common(1)
        oldest = next(shake for shake in accepted if shake.host == host)
        if now - oldest.began < GRACE:
            self._stop_listening(oldest.began + GRACE)
            return False
        self._close_handshake(oldest, "handshakes_timed_out")
        return True

    def _stop_listening(self, until: int) -> None:
        """Leave new connections in the kernel until an instant."""
        self._listening = False
        self._epoll.modify(self._listener, 0)
        self._accept_at = until

    def _listen_again(self) -> None:
        self._accept_at = FOREVER
        if not self._listening:
            self._listening = True
            self._epoll.modify(self._listener, select.EPOLLIN)

    # --------------------------------------------------------------------------------- records

    def _send_record(self, shake: Handshake, kind: Kind, number: int) -> bool:
        """Send a record; return False if the connection has failed. The kernel has room
        for a record on a new connection."""
        record = Record(kind, self._member, number, self._own, shake.nonce)
        shake.said = encode(self._group, record, shake.heard, self._key, self._identity)
        try:
            return shake.socket.send(shake.said, socket.MSG_NOSIGNAL) == self._size
        except OSError:
            return False

    def _read_record(self, shake: Handshake, linked: Collection[int]) -> Agreement | None:
        """Read on, but nothing behind the record, and handle the record when it is
        complete."""
        try:
            part = shake.socket.recv(self._size - len(shake.received))
        except BlockingIOError:
            return None
        except OSError as error:
            part = b""
            if shake.dialed:
                self._close_handshake(shake)
                self._on_dial_failed(shake.dialed, error)
                return None
        shake.received += part
        if not part:
            self._close_handshake(shake, "dials_failed" if shake.dialed else "handshakes_refused")
        elif len(shake.received) == self._size:
            shake.heard, shake.received = shake.received, b""
            record = decode(shake.heard, self._group, shake.said, self._key, self._identity,
                            time.monotonic_ns())
            return self._on_record(shake, record, linked)
        return None

    def _on_record(self, shake: Handshake, record: Record | None,
                   linked: Collection[int]) -> Agreement | None:
        if record is None:
            if shake.dialed:                            # a member of another group, say
                self._dialing.on_answer(shake.dialed, 0)
            self._close_handshake(shake, "handshakes_refused")
        elif record.member == self._member:
            self._on_self_connection(shake)
        elif shake.dialed is None and record.kind == Kind.PROPOSE:
            return self._on_propose(shake, record, linked)
        elif shake.dialed is None and record.kind == Kind.CONTROL:
            return self._on_control(shake, record)
        elif shake.control_of:
            return self._on_answer_for_control(shake, record)
        elif shake.dialed and shake.peer is None and record.kind == Kind.HELLO:
            self._propose(shake, shake.dialed, record, linked)
        elif shake.peer is not None and record.kind in (Kind.ACCEPT, Kind.REFUSE):
            return self._on_answer(shake, shake.peer, record)
        else:
            self._close_handshake(shake, "handshakes_refused")
        return None

    def _on_self_connection(self, shake: Handshake) -> None:
        if shake.dialed:
            self._dialing.on_answer(shake.dialed, self._member)
        self._close_handshake(shake, "self_connections")

    def _propose(self, shake: Handshake, where: HostPort, hello: Record,
                 linked: Collection[int]) -> None:
        """Propose the connection that we dialed to the member that we have reached,
        unless it has a link already: if it had lost the link, it would dial."""
        self._dialing.on_answer(where, hello.member)
        peer = self._dialing.peer(hello.member)
        if peer.is_linked or peer.numbers.proposed:
            self._close_handshake(shake)
            return
        if _is_at_limit(linked, hello.member):
            self._close_handshake(shake, "handshakes_refused")
            return
        shake.peer, shake.number = hello, peer.numbers.propose()
        if not self._send_record(shake, Kind.PROPOSE, shake.number):
            self._close_handshake(shake, "dials_failed")

    def _on_propose(self, shake: Handshake, proposal: Record,
                    linked: Collection[int]) -> Agreement | None:
        """Accept or refuse a proposal. Anybody can propose in any name, so while a link
        is up, only the host where it ends may replace it. (A process that continues an
        incarnation on another host waits until the former process's link has ended.)"""
        peer = self._dialing.peer(proposal.member)
        numbers = peer.numbers
        is_elsewhere = peer.is_linked and shake.host != peer.host
        is_allowed = numbers.allows(proposal.number, proposal.member < self._member)
        if is_elsewhere or _is_at_limit(linked, proposal.member) or not is_allowed:
            self._send_record(shake, Kind.REFUSE, numbers.highest)
        elif self._send_record(shake, Kind.ACCEPT, proposal.number):
            return self._take_for_link(shake, proposal, proposal.number)
        self._close_handshake(shake, "handshakes_refused")
        return None

    def _on_answer(self, shake: Handshake, peer: Record, answer: Record) -> Agreement | None:
        """Handle the answer to our proposal."""
        said = (answer.kind, answer.member, answer.number)
        if said == (Kind.ACCEPT, peer.member, shake.number):
            return self._take_for_link(shake, peer, shake.number)
        if answer.kind == Kind.REFUSE and answer.member == peer.member:
            self._dialing.peer(peer.member).numbers.learn(answer.number)
        self._close_handshake(shake, "dials_failed")
        return None

    # --------------------------------------------------------------------------------- control

    def _on_control(self, shake: Handshake, record: Record) -> Agreement | None:
        """Accept a connection for the control of our link, if it comes from where the
        link ends."""
        if self._is_of_link(shake, record) and self._send_record(shake, Kind.ACCEPT, record.number):
            return self._take_for_control(shake, record)
        self._close_handshake(shake, "handshakes_refused")
        return None

    def _on_answer_for_control(self, shake: Handshake, record: Record) -> Agreement | None:
        """Handle HELLO and ACCEPT on a connection that we dialed for control."""
        if record.member == shake.control_of:
            numbers = self._dialing.peer(record.member).numbers
            if record.kind == Kind.HELLO and not shake.number:
                shake.number = numbers.established
                if self._send_record(shake, Kind.CONTROL, shake.number):
                    return None
            elif record.kind == Kind.ACCEPT and record.number == shake.number and (
                    self._is_of_link(shake, record)):
                return self._take_for_control(shake, record)
        self._close_handshake(shake, "dials_failed")
        return None

    def _is_of_link(self, shake: Handshake, record: Record) -> bool:
        peer = self._dialing.peer(record.member)
        return (peer.is_linked and record.number == peer.numbers.established
                and shake.host == peer.host)

    def _take_for_control(self, shake: Handshake, record: Record) -> Agreement:
        self._remove(shake)
        return Agreement(shake.socket, shake.host, record, record.number, is_control=True)

    # ------------------------------------------------------------------------------------- end

    def _take_for_link(self, shake: Handshake, peer: Record, number: int) -> Agreement:
        """Return the connection as the link, and close all other handshakes with that
        peer."""
        self._remove(shake)
        rivals = [each for each in self.handshakes.values()
                  if each.peer is not None and each.peer.member == peer.member]
        for rival in rivals:
            self._close_handshake(rival)
        return Agreement(shake.socket, shake.host, peer, number, shake.dialed)

    def _close_handshake(self, shake: Handshake, counter: str | None = None) -> None:
        """Close a connection that does not become a link, and count it."""
        if counter:
            self._counters[counter] += 1
        if shake.peer is not None:
            self._dialing.peer(shake.peer.member).numbers.give_up()
        self._remove(shake)
        self._epoll.unregister(shake.fd)
        shake.socket.close()

    def _remove(self, shake: Handshake) -> None:
        del self.handshakes[shake.fd]
        if self._accept_at != FOREVER and not shake.dialed:
            self._accept_at = 0                         # at once: there is room again


def _is_at_limit(linked: Collection[int], member: int) -> bool:
    """Return whether a link to this member would be one too many."""
    return member not in linked and len(linked) >= MOST_LINKS
