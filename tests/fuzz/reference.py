"""The wire format in plain Python, written from the text at the top of wire.pyx. The
compiled decoder must agree with it."""

import hashlib
import struct

MODULUS = 1 << 64
MAGIC, VERSION = 0x4352, 2
HEADER = 32
RUN = struct.Struct("<QHHIq")
CONNECTION = 40     # bytes before the runs of a connection: the header, and the conn-id
OOB, FRAGMENT, STATE = 1, 8, 16
WIRE_FLAGS = OOB | FRAGMENT | STATE     # those that travel
ODD, SEED = 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15

Run = tuple[int, int, list[bytes]]      # first seqno, flags, payloads


def mixed(x: int) -> int:
    for _ in range(2):
        x = (x ^ x >> 32) * ODD % MODULUS
    return x ^ x >> 32


def folded(x: int, y: int) -> int:
    high, low = divmod(x * y, MODULUS)
    return high ^ low


def checksum(datagram: bytes) -> int:
    """Return the check of all but the check itself: the lanes take pairs of words in
    turn, the last pair padded by zeros."""
    head = struct.unpack_from("<QQQ", datagram)
    lanes = [SEED ^ len(datagram), *(folded(SEED ^ word, ODD) for word in head)]
    rest = datagram[HEADER:]
    for one, two in struct.iter_unpack("<QQ", rest + bytes(-len(rest) % 16)):
        lanes = [*lanes[1:], folded(lanes[0] ^ one, ODD ^ two)]
    total = 0
    for lane in lanes:
        total = mixed((total + lane) % MODULUS)
    return total


def seal(datagram: bytes) -> bytes:
    """Return the datagram with the check that it should have."""
    return datagram[:24] + struct.pack("<Q", checksum(datagram)) + datagram[HEADER:]


def opened(datagram: bytes, group: int) -> tuple[int, int, int] | None:
    """Return (kind, sender, dest), or None when it is not one of ours."""
    if len(datagram) < HEADER:
        return None
    magic, version, kind, its_group, sender, dest, check = struct.unpack_from("<HBBIQQQ", datagram)
    if (magic, version, its_group) != (MAGIC, VERSION, group) or check != checksum(datagram):
        return None
    return kind, sender, dest


def runs(body: bytes) -> list[Run] | None:
    """Return the runs of a data body, or None when it is not well formed."""
    found, at = [], 0
    while at < len(body) or not body:
        if len(body) - at < RUN.size:
            return None
        first, count, flags, size, _ = RUN.unpack_from(body, at)
        payload_at = at + RUN.size + 2 * count
        end = payload_at + size
        if count == 0 or flags & ~WIRE_FLAGS or end > len(body):
            return None
        lengths = struct.unpack_from(f"<{count}H", body, at + RUN.size)
        if sum(lengths) != size:
            return None
        payloads = []
        for length in lengths:
            payloads.append(body[payload_at:payload_at + length])
            payload_at += length
        found.append((first, flags, payloads))
        at = end
    return found


def first_seqno(datagram: bytes, prefix: int) -> int | None:
    """Return the first run's first seqno, or None when a run's head does not fit."""
    if len(datagram) < prefix + RUN.size:
        return None
    return int.from_bytes(datagram[prefix:prefix + 8], "little")


def accepted(datagram: bytes, low: int, capacity: int,
             prefix: int = HEADER) -> tuple[list[Run], int, int] | None:
    """Return what a window takes of a datagram: the runs without what is outside of it,
    how many messages are old, how many beyond. Return None when it is not well formed.

    Serial arithmetic decides for a run's first message whether it is old. The others
    are so many steps behind it, also across the other side of the circle.
    """
    found = runs(datagram[prefix:])
    if found is None:
        return None
    inside = []
    old = beyond = 0
    for first, flags, payloads in found:
        # how many steps before the first acceptable seqno the run begins
        behind = (low + 1 - first) % MODULUS
        if behind >= MODULUS // 2:
            behind -= MODULUS
        start, end = (min(max(0, behind + step), len(payloads)) for step in (0, capacity))
        old += start
        beyond += len(payloads) - end
        if start < end:
            inside.append(((first + start) % MODULUS, flags, payloads[start:end]))
    return inside, old, beyond


def messages(inside: list[Run]) -> dict[int, tuple[bytes, int]]:
    """Return payload and flags of each seqno, by its first message."""
    found: dict[int, tuple[bytes, int]] = {}
    for first, flags, payloads in inside:
        for step, payload in enumerate(payloads):
            found.setdefault((first + step) % MODULUS, (payload, flags))
    return found


def frames(stream: bytes, peer: int) -> tuple[list[bytes], bool]:
    """Return the whole frames at the beginning of what a TCP peer sends, and whether
    the bytes after them can still become one."""
    found, at = [], 0
    while len(stream) - at >= 4:
        length = int.from_bytes(stream[at:at + 4], "little")
        if not 32 <= length <= 65_507:
            return found, False
        if len(stream) - at < 20:
            break
        if int.from_bytes(stream[at + 12:at + 20], "little") != peer:
            return found, False
        if len(stream) - at < 4 + length:
            break
        found.append(stream[at + 4:at + 4 + length])
        at += 4 + length
    return found, True


def record(raw: bytes, group: int, before: bytes = b"",
           key: bytes = b"") -> tuple[int, int, int, tuple[str, int], bytes] | None:
    """Return (kind, member, number, endpoint, nonce) of a handshake's record that
    answers `before`, or None when it is not one of ours."""
    magic, version, kind, port, its_group = struct.unpack_from("<4sBBHI", raw)
    member, number = struct.unpack_from("<QQ", raw, 16)
    checked = hashlib.blake2b(before + raw[:48], digest_size=16, key=key).digest()
    if (magic, version, its_group, raw[48:]) != (b"RCtl", 2, group, checked):
        return None
    if not member or number > 1 << 62:
        return None
    return kind, member, number, (".".join(map(str, raw[12:16])), port), raw[32:48]
