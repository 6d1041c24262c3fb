"""The target `tcp`: what a peer may send over a TCP connection, before it is a link and
after. A record may be of a group with a key, or where keys are trusted, or both: the
first byte tells.

What a link reads must not depend on how the bytes were cut into reads: it is compared
with a reference that sees all of them at once. Bytes that are no frame end the link,
after all whole frames before them. Nothing raises, and a link keeps one buffer or the
part of one frame.
"""

import hashlib
import struct
from collections import deque

import reference
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hostile import EDGES, Program
from trusting import KEYS, PRIVATE, TRUSTED

from ringcast._core.wire import HEADER_SIZE
from ringcast.config import IDENTITY_SIZE, MAX_DATAGRAM
from ringcast.protocols.security.identity import Identity, Proved
from ringcast.transport.tcp.handshake import (
    SIZE,
    Kind,
    LinkNumbers,
    Record,
    decode,
    encode,
    size_of,
)
from ringcast.transport.tcp.link import READ, SPARE_BUFFERS, Link, ReadBuffer

GROUP, PEER = 0xABCD1234, 0x2222_0000_0002
KEYED, TRUSTS = 64, 128                 # bits of the first byte
UNKNOWN = Ed25519PrivateKey.from_private_bytes(bytes([3] * 32))     # that nobody trusts
SIZES = (HEADER_SIZE, HEADER_SIZE + 1, 40, 100, 600, MAX_DATAGRAM - 1, MAX_DATAGRAM)
LENGTHS = (0, 1, HEADER_SIZE - 1, MAX_DATAGRAM + 1, 1 << 16, 1 << 31, (1 << 32) - 1)
CUTS = (1, 2, 3, 4, 5, 12, 19, 20, 21, 36, 1000, READ, READ + 1)
# classes, not instances: an instance would collect the traceback of each raise
WAIT, ERROR = BlockingIOError, ConnectionResetError


class Socket:
    """A socket that has nothing to send and gives what `arrivals` hold, read by read:
    bytes, or an error to raise."""

    def __init__(self) -> None:
        self.arrivals: deque[bytes | type[OSError]] = deque()

    def fileno(self) -> int:
        return 7

    def recv_into(self, buffer: memoryview) -> int:
        assert len(buffer) > 0, "without room the link would see the end"
        if not self.arrivals:
            return 0
        arrival = self.arrivals.popleft()
        if isinstance(arrival, type):
            raise arrival
        if len(arrival) > len(buffer):
            self.arrivals.appendleft(arrival[len(buffer):])
        count = min(len(arrival), len(buffer))
        buffer[:count] = arrival[:count]
        return count


def run(data: bytes) -> None:
    program = Program(data)
    numbers, first = LinkNumbers(), program.byte()
    identity = Identity(PRIVATE[0], TRUSTED) if first & TRUSTS else None
    key = KEYS.link if first & KEYED else b""
    for _ in range(first % 8):
        handshake(program, numbers, key, identity)
    stream = b"".join(draw_piece(program) for _ in range(program.byte() % 24))
    split(program, stream, [program.choice(CUTS) for _ in range(program.byte() % 16)])


# --------------------------------------------------------------------------------------- handshakes

def handshake(program: Program, numbers: LinkNumbers, key: bytes = b"",
              identity: Identity | None = None) -> None:
    """Check that a record, or nearly one, is read as the reference does, and that what
    we propose is above our link's number, whatever the record says. Where keys are
    trusted, no other bytes are read than those that were signed."""
    number, member = (abs(program.choice([*EDGES, 1 << 62, (1 << 62) + 1, numbers.highest,
                                          numbers.established + 1])) for _ in range(2))
    kind, before = program.byte(), b"before" if key else b""
    made = Record(kind, member, number, ("127.0.0.1", 7700), bytes(range(16)))
    peer = None if identity is None else Identity(PRIVATE[1], TRUSTED)
    raw = encode(GROUP, made, before, key, peer)
    assert len(raw) == size_of(identity)
    damaged = bytearray(raw)
    for _ in range(program.byte() % 3):
        damaged[program.byte() % len(raw)] = program.byte()
    others = [] if identity is None else [
        encode(GROUP, made, before, key, Identity(UNKNOWN, TRUSTED)),
        raw[:SIZE] + identity.key + raw[SIZE + IDENTITY_SIZE:], raw[:SIZE]]
    for each in (raw, bytes(damaged), resealed(bytes(damaged), before, key),
                 (program.bytes(SIZE) + bytes(len(raw)))[:len(raw)], *others):
        record = decode(each, GROUP, before, key, identity)
        is_signed = identity is None or each == raw
        read = reference.record(each[:SIZE], GROUP, before, key) if is_signed else None
        assert (record and tuple(record)) == (read and (*read, b"" if peer is None else peer.key))
        if record is not None:
            apply(record, numbers, member < PEER)
    if identity is not None:
        identity.proved[member] = Proved(identity.key, b"")     # the process has another key
        assert decode(raw, GROUP, before, key, identity) is None
        del identity.proved[member]


def resealed(raw: bytes, before: bytes, key: bytes) -> bytes:
    """Return a record with the check that it should have."""
    body = raw[:SIZE - 16]
    return body + hashlib.blake2b(before + body, digest_size=16, key=key).digest() + raw[SIZE:]


def apply(record: Record, numbers: LinkNumbers, peer_is_smaller: bool) -> None:
    """Do what tcp.py does with an allowed proposal, an answer or a refusal."""
    is_allowed = record.kind == Kind.PROPOSE and numbers.allows(record.number, peer_is_smaller)
    if is_allowed or (record.kind == Kind.ACCEPT and 0 < numbers.proposed == record.number):
        numbers.establish(record.number)
    elif record.kind == Kind.REFUSE:
        numbers.learn(record.number)
        numbers.give_up()
    elif record.kind == Kind.HELLO and not numbers.proposed:
        assert numbers.propose() > numbers.established
    assert numbers.established <= numbers.highest < 1 << 63
    assert not numbers.proposed or numbers.established < numbers.proposed <= numbers.highest


# ------------------------------------------------------------------------------------------- frames

def draw_piece(program: Program) -> bytes:
    """Draw a frame of the peer or of another member, no frame, or any bytes."""
    which, size = program.byte(), program.choice(SIZES)
    if which < 200:
        sender = PEER if which < 190 else program.choice((0, PEER ^ 1, PEER << 8, (1 << 64) - 1))
        return struct.pack("<IQQ", size, which, sender % (1 << 64)) + bytes([which]) * (size - 16)
    if which < 225:
        return program.choice(LENGTHS).to_bytes(4, "little") + bytes(program.byte() % 64)
    if which < 240:
        return (struct.pack("<IQQ", size, 0, PEER) + bytes(size - 16))[:program.byte()]
    return program.bytes(64)


def split(program: Program, stream: bytes, cuts: list[int]) -> None:
    """Read a stream in such parts, the last of which repeats, until it ends or the link
    refuses it."""
    expected, is_well = reference.frames(stream, PEER)
    socket, spare = Socket(), [ReadBuffer() for _ in range(program.byte() % 2)]
    for buffer in spare:
        buffer.writable[:100] = b"\xff" * 100                   # another link has used it
    ends = program.choice((None, WAIT, ERROR))
    at, rest = 0, deque(cuts or [READ])
    while at < len(stream):
        cut = rest.popleft() if len(rest) > 1 else max(rest[0], len(stream) // 500)
        socket.arrivals.append(stream[at:at + cut])
        at += cut
        if ends is WAIT and program.byte() & 1:
            socket.arrivals.append(WAIT)
    if ends is ERROR:
        socket.arrivals.append(ERROR)
    link = Link(socket, PEER, ("127.0.0.1", 7700), None, 1 << 20)       # type: ignore[arg-type]
    found: list[bytes] = []
    while True:
        views: list[memoryview] = []
        well = link.read(views, spare)
        assert all(view.readonly for view in views)
        found += map(bytes, views)
        if not well:
            break
        if views or program.byte() & 1:
            for _ in range(1 + program.byte() % 2):             # twice: nothing came meanwhile
                link.release_buffer(spare)
                check(link, spare)
    assert found == expected
    assert well is (False if is_well else None)


def check(link: Link, spare: list[ReadBuffer]) -> None:
    assert len(spare) <= SPARE_BUFFERS and len(link._rest) < 4 + MAX_DATAGRAM
    assert link._buffer is None or (len(link._buffer.writable) == READ and not link._rest
                                    and link._end - link._start < 4 + MAX_DATAGRAM)
    assert link._buffer not in spare
