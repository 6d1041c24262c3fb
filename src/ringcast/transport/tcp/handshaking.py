"""Connections on which the two ends have not agreed yet: dialed, accepted, and what is
said on them.

What is said when, and who wins when both dial, stands in handshake.py. Here is what
goes wrong with connections. Each has until its deadline. At most MOST_HANDSHAKES that
others began are open: the oldest makes room for the next once it has had GRACE, and
until then what comes waits in the kernel. So who connects and says nothing keeps nobody
out. A member that has no descriptor left accepts again later.

Nothing that stands behind a record is read here: it belongs to the link.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from ringcast.transport.tcp.dialing import FOREVER, MILLISECOND, Dialing, Endpoint
from ringcast.transport.tcp.handshake import SIZE, Kind, Record, read, write
from ringcast.transport.tcp.listening import open_socket

# Linux; the socket module does not name it. Ports of former connections can be used
# again.
IP_BIND_ADDRESS_NO_PORT = 24
MOST_LINKS = 1024
MOST_HANDSHAKES = 64                    # that others began; as many of our own
GRACE = 250 * MILLISECOND               # that every handshake gets before it makes room for another
RETRY_ACCEPT = 250 * MILLISECOND        # after the machine refused another descriptor
ACCEPTS = 16                            # connections accepted between two looks at other events
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshake:
    """A connection on which the two ends have not agreed yet."""

    def __init__(self, connection: socket.socket, host: str, began: int, deadline: int,
                 dialed: Endpoint | None) -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.host = host                # at the other end, as the kernel knows it
        self.began = began
        self.deadline = deadline
        self.dialed = dialed            # where to, or None for one that was accepted
        self.received = b""
        self.peer: Record | None = None                 # to whom we have proposed
        self.number = 0


class Agreement(NamedTuple):
    """Both ends take this connection for the link."""

    socket: socket.socket
    host: str                           # at the other end, as the kernel knows it
    peer: Record                        # who that is
    number: int


class Handshaking:
    """The handshakes of `member`, which listens at `listener`. Of `counters` it counts
    what begins with handshakes or dials, self_connections and accept_errors. It watches
    its sockets with `epoll`.

    Single owner: the polling thread.
    """

    def __init__(self, group: int, member: int, listener: socket.socket, epoll: select.epoll,
                 dialing: Dialing, timeout: int, buffers: Mapping[int, int],
                 counters: dict[str, int]) -> None:
        self._group, self._member = group, member
        self._listener, self._epoll, self._dialing = listener, epoll, dialing
        self._own: Endpoint = listener.getsockname()
        self._timeout, self._buffers, self._counters = timeout, buffers, counters
        self.handshakes: dict[int, Handshake] = {}      # by descriptor
        self._listening = True
        self._accept_at = FOREVER                       # when to listen again
        epoll.register(listener, select.EPOLLIN)

    def deadline(self) -> int:
        """Return when `tick` has something to do."""
        first = min((shake.deadline for shake in self.handshakes.values()), default=FOREVER)
        return min(first, self._accept_at)

    def tick(self, now: int) -> None:
        """End what takes too long, and listen again when there is room."""
        late = [shake for shake in self.handshakes.values() if now >= shake.deadline]
        for shake in late:
            self._end(shake, "dials_failed" if shake.dialed else "handshakes_timed_out")
        if now >= self._accept_at:
            self._listen_again()

    def on_event(self, fd: int, linked: Collection[int]) -> Agreement | None:
        """Deal with an event of this descriptor, if it is one of ours. `linked` are the
        members to which there is a link."""
        if fd in self.handshakes:
            return self._continue(self.handshakes[fd], linked)
        if fd == self._listener.fileno():
            self._accept()
        return None

    def close(self) -> None:
        """Close all sockets. Nothing is unregistered: in a forked child the epoll is
        the parent's."""
        self._listener.close()
        for shake in self.handshakes.values():
            shake.socket.close()
        self.handshakes.clear()

    # --------------------------------------------------------------------------------- dialing

    def dial(self, where: Endpoint, now: int) -> None:
        """Connect to an endpoint, unless that is on its way or there are too many."""
        dialed = [shake.dialed for shake in self.handshakes.values() if shake.dialed]
        if where in dialed or len(dialed) >= MOST_HANDSHAKES:
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
            self._epoll.register(connection, select.EPOLLIN)
        except OSError:
            connection.close()
            self._counters["dials_failed"] += 1
            return
        shake = Handshake(connection, where[0], now, now + self._timeout, where)
        self.handshakes[shake.fd] = shake

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
        shake = Handshake(connection, host, now, now + self._timeout, None)
        self.handshakes[shake.fd] = shake
        if not self._say(shake, Kind.HELLO, 0):
            self._end(shake, "handshakes_refused")

    def _make_room(self, now: int) -> bool:
        """Return whether another handshake may begin. What is slow goes for what comes,
        but everybody has a moment."""
        accepted = [shake for shake in self.handshakes.values() if not shake.dialed]
        if len(accepted) < MOST_HANDSHAKES:
            return True
        oldest = accepted[0]
        if now - oldest.began < GRACE:
            self._stop_listening(oldest.began + GRACE)
            return False
        self._end(oldest, "handshakes_timed_out")
        return True

    def _stop_listening(self, until: int) -> None:
        """Let what comes wait in the kernel."""
        self._listening = False
        self._epoll.modify(self._listener, 0)
        self._accept_at = until

    def _listen_again(self) -> None:
        self._accept_at = FOREVER
        if not self._listening:
            self._listening = True
            self._epoll.modify(self._listener, select.EPOLLIN)

    # --------------------------------------------------------------------------------- records

    def _say(self, shake: Handshake, kind: Kind, number: int) -> bool:
        """Send a record; False if the connection is to be given up. A fresh one has
        room for a record."""
        record = write(self._group, Record(kind, self._member, number, self._own))
        try:
            return shake.socket.send(record, socket.MSG_NOSIGNAL) == len(record)
        except OSError:
            return False

    def _continue(self, shake: Handshake, linked: Collection[int]) -> Agreement | None:
        """Read on, but nothing that stands behind the record."""
        try:
            part = shake.socket.recv(SIZE - len(shake.received))
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        shake.received += part
        if not part:
            self._end(shake, "dials_failed" if shake.dialed else "handshakes_refused")
        elif len(shake.received) == SIZE:
            record, shake.received = read(shake.received, self._group), b""
            return self._on_record(shake, record, linked)
        return None

    def _on_record(self, shake: Handshake, record: Record | None,
                   linked: Collection[int]) -> Agreement | None:
        if record is None:
            self._end(shake, "handshakes_refused")
        elif record.member == self._member:
            self._on_self_connection(shake)
        elif shake.dialed is None and record.kind == Kind.PROPOSE:
            return self._on_propose(shake, record, linked)
        elif shake.dialed and shake.peer is None and record.kind == Kind.HELLO:
            self._propose(shake, shake.dialed, record, linked)
        elif shake.peer is not None and record.kind in (Kind.ACCEPT, Kind.REFUSE):
            return self._conclude(shake, shake.peer, record)
        else:
            self._end(shake, "handshakes_refused")
        return None

    def _on_self_connection(self, shake: Handshake) -> None:
        if shake.dialed:
            self._dialing.met(shake.dialed, self._member)
        self._end(shake, "self_connections")

    def _propose(self, shake: Handshake, where: Endpoint, hello: Record,
                 linked: Collection[int]) -> None:
        """Propose the connection to whom we have reached. A peer that has a link
        already is left alone: if it had lost the link it would dial."""
        self._dialing.met(where, hello.member)
        peer = self._dialing.peer(hello.member)
        if peer.linked or peer.numbers.proposed:
            self._end(shake)
            return
        if _is_full(linked, hello.member):
            self._end(shake, "handshakes_refused")
            return
        shake.peer, shake.number = hello, peer.numbers.propose()
        if not self._say(shake, Kind.PROPOSE, shake.number):
            self._end(shake, "dials_failed")

    def _on_propose(self, shake: Handshake, proposal: Record,
               linked: Collection[int]) -> Agreement | None:
        """Accept or refuse a proposal. Anybody can propose, in any name: so while a
        link stands, only the host where it ends may replace it. (Who goes on as the
        same incarnation on another host waits until the link of its former process has
        ended.)"""
        peer = self._dialing.peer(proposal.member)
        numbers = peer.numbers
        is_elsewhere = peer.linked and shake.host != peer.host
        is_allowed = numbers.allows(proposal.number, proposal.member < self._member)
        if is_elsewhere or _is_full(linked, proposal.member) or not is_allowed:
            self._say(shake, Kind.REFUSE, numbers.highest)
        elif self._say(shake, Kind.ACCEPT, proposal.number):
            return self._agree(shake, proposal, proposal.number)
        self._end(shake, "handshakes_refused")
        return None

    def _conclude(self, shake: Handshake, peer: Record, answer: Record) -> Agreement | None:
        """Take the answer to our proposal."""
        said = (answer.kind, answer.member, answer.number)
        if said == (Kind.ACCEPT, peer.member, shake.number):
            return self._agree(shake, peer, shake.number)
        if answer.kind == Kind.REFUSE and answer.member == peer.member:
            self._dialing.peer(peer.member).numbers.told(answer.number)
        self._end(shake, "dials_failed")
        return None

    # ------------------------------------------------------------------------------------- end

    def _agree(self, shake: Handshake, peer: Record, number: int) -> Agreement:
        """Hand over the connection, and end all others to that peer."""
        self._forget(shake)
        rivals = [each for each in self.handshakes.values()
                  if each.peer is not None and each.peer.member == peer.member]
        for rival in rivals:
            self._end(rival)
        return Agreement(shake.socket, shake.host, peer, number)

    def _end(self, shake: Handshake, counter: str | None = None) -> None:
        """Close a connection that does not become a link."""
        if counter:
            self._counters[counter] += 1
        if shake.peer is not None:
            self._dialing.peer(shake.peer.member).numbers.give_up()
        self._forget(shake)
        self._epoll.unregister(shake.fd)
        shake.socket.close()

    def _forget(self, shake: Handshake) -> None:
        del self.handshakes[shake.fd]
        if self._accept_at != FOREVER and not shake.dialed:
            self._accept_at = 0                         # there is room again


def _is_full(linked: Collection[int], member: int) -> bool:
    """Return whether there is no room for a link to this member."""
    return member not in linked and len(linked) >= MOST_LINKS
