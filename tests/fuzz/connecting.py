"""The target `connecting`: a member that accepts and dials, and peers that say any
records on any of the connections, in any order, whole or cut or damaged. The first byte
says whether the group has a key, whether keys are trusted, and whether the peers have
what proves it.

Nothing raises. There are never more handshakes than the limits, each has a descriptor
that is watched, and each ends by its deadline. Who cannot prove anything gets no link.
A link has a number above the one before it.
"""

import errno
import select
from types import SimpleNamespace
from unittest.mock import patch

from byte_stream import ERROR, GROUP, PEER, UNKNOWN, WAIT, Socket
from hostile import EDGES, Program
from trusting import KEYS, PRIVATE, TRUSTED

from ringcast.protocols.security.identity import Identity
from ringcast.status import TcpStatus
from ringcast.transport.tcp import handshaking
from ringcast.transport.tcp.dialing import MOST_DIALS, Dialing
from ringcast.transport.tcp.handshake import Kind, Record, encode, size_of
from ringcast.transport.tcp.handshaking import MOST_HANDSHAKES, Agreement, Handshaking

KEYED, TRUSTS, PROVES = 1, 2, 4         # bits of the first byte
MEMBER, MS = 0x1111_0000_0001, 1_000_000
TIMEOUT = 1_000 * MS
MEMBERS = (PEER, PEER, PEER, PEER + 1, MEMBER, 0, (1 << 64) - 1)
HOSTS = ("127.0.0.1", "127.0.0.1", "127.0.0.2")
PLACES = tuple(("127.0.0.1", 7700 + number) for number in range(3))
PORT = 7710                             # where the member listens
MOST_ACTS = 300


class Connection(Socket):
    """The member's end of a connection, and what the peer has heard."""

    def __init__(self, fd: int, host: str) -> None:
        super().__init__()
        self.fd, self.host, self.heard = fd, host, b""
        self.is_open, self.connects_to_itself, self.is_refused = True, False, False

    def fileno(self) -> int:
        return self.fd

    def recv(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[:self.recv_into(memoryview(buffer))])

    def recv_into(self, buffer: memoryview) -> int:
        if not self.arrivals:
            raise BlockingIOError
        return super().recv_into(buffer)

    def send(self, data: bytes, flags: int) -> int:
        if self.is_refused:
            raise BrokenPipeError
        self.heard = data
        return len(data)

    def connect(self, where: tuple[str, int]) -> None:
        self.where = where
        if self.is_refused:
            raise ConnectionRefusedError
        raise BlockingIOError

    def getsockname(self) -> tuple[str, int]:
        return self.where if self.connects_to_itself else ("127.0.0.1", self.fd)

    def close(self) -> None:
        self.is_open = False

    def ignore(self, *_: object) -> None:
        pass

    setblocking = setsockopt = bind = ignore


class Listener:
    """Gives connections, or an error of the system."""

    def __init__(self) -> None:
        self.coming: list[Connection | OSError] = []
        self.is_open = True

    def fileno(self) -> int:
        return 3

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", PORT

    def accept(self) -> tuple[Connection, tuple[str, int]]:
        if not self.coming:
            raise BlockingIOError
        came = self.coming.pop(0)
        if isinstance(came, OSError):
            raise came
        return came, (came.host, 50_000)

    def close(self) -> None:
        self.is_open = False


class Watch(dict[int, int]):
    """The events that epoll reports of each descriptor."""

    def register(self, what: "Connection | Listener", events: int) -> None:
        assert what.fileno() not in self
        self[what.fileno()] = events

    def modify(self, what: Listener, events: int) -> None:
        assert what.fileno() in self
        self[what.fileno()] = events

    def unregister(self, fd: int) -> None:
        del self[fd]


class Run:
    """One run of a program."""

    def __init__(self, data: bytes) -> None:
        self.program = program = Program(data)
        modes = program.byte()
        self.key = KEYS.link if modes & KEYED else b""
        self.identity = Identity(PRIVATE[0], TRUSTED) if modes & TRUSTS else None
        self.proves = bool(modes & PROVES) or not modes & (KEYED | TRUSTS)
        self.peer_key, self.peer = self.key, self.identity and Identity(PRIVATE[1], TRUSTED)
        if not self.proves and self.identity is not None:
            self.peer = Identity(UNKNOWN, TRUSTED)
        elif not self.proves:
            self.peer_key = b"l" * 32
        self.now, self.watch, self.listener = 1_000 * MS, Watch(), Listener()
        self.connections: dict[int, Connection] = {}
        self.links: dict[int, Connection] = {}
        self.controls: list[Connection] = []
        self.dialing = Dialing(MEMBER, ("127.0.0.1", PORT), PLACES)
        self.counters = dict.fromkeys(TcpStatus.__struct_fields__, 0)
        self.handshaking = Handshaking(
            GROUP, MEMBER, self.listener, self.watch, self.dialing, TIMEOUT, {},  # type: ignore
            self.counters, self.key, self.identity)

    def run(self) -> None:
        with patch.multiple(handshaking, open_socket=self.open,
                            time=SimpleNamespace(monotonic_ns=lambda: self.now)):
            for _ in range(MOST_ACTS):
                if self.program.is_over():
                    break
                self.program.choice(self.ACTS)(self)
                self.check()
            self.now += TIMEOUT
            self.handshaking.tick(self.now)
            self.check()
        assert not self.handshaking.handshakes
        kept = {*self.links.values(), *self.controls, *self.listener.coming}
        assert all(each in kept for each in self.connections.values() if each.is_open)
        self.handshaking.close()
        assert not self.listener.is_open

    def check(self) -> None:
        shakes = self.handshaking.handshakes
        dialed = sum(shake.dialed is not None for shake in shakes.values())
        assert dialed <= MOST_DIALS and len(shakes) - dialed <= MOST_HANDSHAKES
        watched = [each.fd for each in (*self.links.values(), *self.controls)]
        assert self.watch.keys() == {3, *shakes, *watched}
        assert all(shake.deadline <= self.now + TIMEOUT for shake in shakes.values())
        assert all(len(shake.received) < size_of(self.identity) for shake in shakes.values())
        proposed = {shake.peer.member for shake in shakes.values() if shake.peer is not None}
        for member, peer in self.dialing.peers.items():
            numbers = peer.numbers
            assert numbers.established <= numbers.highest < 1 << 63
            assert not numbers.proposed or member in proposed
        assert self.proves or not self.links

    # ----------------------------------------------------------------------------------------- acts

    def open(self, buffers: object = None) -> Connection:
        if self.program.byte() == 255:
            raise OSError(errno.EMFILE, "no descriptor is left")
        fd = 10 + len(self.connections)
        made = self.connections[fd] = Connection(fd, self.program.choice(HOSTS))
        fate = self.program.byte()
        made.connects_to_itself, made.is_refused = fate == 1, fate == 2
        return made

    def accept(self) -> None:
        for _ in range(1 if self.program.byte() < 240 else 70):
            fd = 10 + len(self.connections)
            self.connections[fd] = Connection(fd, HOSTS[fd % 3])
            self.listener.coming.append(self.connections[fd])
        if (fault := self.program.byte()) > 250:
            code = (errno.EMFILE, errno.ECONNABORTED)[fault & 1]
            self.listener.coming.insert(0, OSError(code, "accept"))
        while self.listener.coming and self.watch[3] & select.EPOLLIN:
            self.handshaking.on_event(3, self.links)

    def dial(self) -> None:
        control_of = self.program.choice((0, 0, *MEMBERS[:4]))
        if not control_of or control_of in self.links:
            self.handshaking.dial(self.program.choice(PLACES), self.now, control_of)

    def say(self) -> None:
        """Say a record, which mostly answers the last one of the member."""
        shakes = list(self.handshaking.handshakes.values())
        if not shakes:
            return
        shake = shakes[-1 - self.program.byte() % min(4, len(shakes))]
        kind = self.program.choice((shake.dialed and Kind.HELLO, *Kind, *Kind, 0, 6))
        member = self.program.choice(MEMBERS)
        numbers = self.dialing.peer(member).numbers
        number = abs(self.program.choice((
            shake.number, numbers.highest + 1, numbers.established, numbers.proposed,
            numbers.highest, *EDGES[:6], 1 << 62, (1 << 62) + 1, 1 << 32)))
        record = Record(kind or 2, member, number, self.program.choice(PLACES), bytes(16))
        raw = encode(GROUP, record, shake.said, self.peer_key, self.peer)
        how = self.program.byte()
        if how > 250:
            raw = encode(GROUP, record, b"another", self.peer_key, self.peer)
        elif how > 240:
            at = self.program.byte() % len(raw)
            raw = raw[:at] + bytes([raw[at] ^ 1 << how % 8]) + raw[at + 1:]
        elif how > 220:
            raw = raw[:self.program.byte()]
        elif how > 210:
            raw += bytes(how)
        self.arrive(shake, [raw[:how], raw[how:]] if how < len(raw) else [raw])

    def end(self) -> None:
        """End or break a connection, or let its next send fail."""
        shakes = list(self.handshaking.handshakes.values())
        if shakes:
            shake = shakes[self.program.byte() % len(shakes)]
            how = self.program.choice((b"", ERROR, WAIT))
            self.connections[shake.fd].is_refused = how is WAIT
            self.arrive(shake, [how])

    def arrive(self, shake: handshaking.Handshake, pieces: list[bytes | type[OSError]]) -> None:
        """Let the member read these, one by one."""
        connection = self.connections[shake.fd]
        for piece in pieces:
            connection.arrivals.append(piece)
            while connection.arrivals and self.handshaking.handshakes.get(shake.fd) is shake:
                agreement = self.handshaking.on_event(shake.fd, self.links)
                if agreement is not None:
                    self.agree(agreement)

    def agree(self, agreement: Agreement) -> None:
        """Do what transport.py does."""
        member = agreement.peer.member
        assert member not in (MEMBER, 0)
        peer = self.dialing.peer(member)
        connection = self.connections[agreement.socket.fileno()]
        if agreement.is_control:
            assert member in self.links and agreement.number == peer.numbers.established
            self.controls.append(connection)
            self.dialing.on_control(member)
            return
        if peer.link is not None:
            self.unlink(member)
        peer.numbers.establish(agreement.number)
        peer.host, peer.link = agreement.host, SimpleNamespace(is_up=True)
        self.links[member] = connection
        self.dialing.on_found(agreement.peer.endpoint, member)
        self.dialing.on_link(member)

    def unlink(self, member: int) -> None:
        connection = self.links.pop(member)
        self.watch.unregister(connection.fd)
        connection.close()
        self.dialing.peer(member).link = None
        self.dialing.on_link_lost(member, self.now)

    def lose(self) -> None:
        """End a link."""
        if self.links:
            self.unlink(self.program.choice(sorted(self.links)))

    def wait(self) -> None:
        self.now += self.program.choice((1, MS, 300 * MS, TIMEOUT))
        self.handshaking.tick(self.now)
        for where in self.dialing.due_members(self.now, self.handshaking.dialed()):
            self.handshaking.dial(where, self.now)
        for where in self.dialing.due_candidates(self.now, self.handshaking.room_to_seek()):
            self.handshaking.dial(where, self.now)
        for where in self.dialing.due_places(self.now, self.handshaking.room_to_seek()):
            self.handshaking.dial(where, self.now)
        self.dialing.deadline()

    def route(self) -> None:
        """Take a table of routes, or places to seek."""
        members = MEMBERS[:self.program.byte() % 5]
        if self.program.byte() & 1:
            self.dialing.seek(PLACES[:len(members)])
        else:
            self.dialing.set_routes({member: self.program.choice(PLACES) for member in members})

    ACTS = (accept, dial, *(say,) * 8, end, wait, wait, route, lose)


def run(data: bytes) -> None:
    Run(data).run()


def examples() -> list[bytes]:
    """Return inputs to begin with: in each kind of group what makes a link, whoever
    dials, and for each number of each record."""
    found = []
    for mode in range(8):
        for kind in range(13):
            for number in (0, 1, 2, 5):
                accepted = bytes([0, 0, 0, 2, 0, kind, 0, number, 0, 200])
                dialed = bytes([1, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 200, 2, 0, kind, 0, number, 0,
                                200, 1, 2, 0, 0, 0, 3, *[2, 0, 0, 0, 0, 0, 200] * 2])
                found += [bytes([mode]) + accepted + dialed, bytes([mode]) + dialed + accepted]
    return found


if __name__ == "__main__":
    for line in sorted({data.hex() for data in examples()}, key=lambda line: (len(line), line)):
        print(line)
