"""The wire format in plain Python, written from the text at the top of wire.pyx: what the compiled decoder must agree with."""

import struct

MODULUS = 1 << 64
HEADER = 32
ODD = 0xD6E8FEB86659FD93


def mixed(x: int) -> int:
    for _ in range(2):
        x = (x ^ x >> 32) * ODD % MODULUS
    return x ^ x >> 32


def checksum(datagram: bytes) -> int:
    """Of all but the check itself; words that do not fill a row of four go to the first lane, the last one padded by zeros."""
    lanes = [0x9E3779B97F4A7C15 ^ len(datagram), *struct.unpack_from("<QQQ", datagram)]
    rest = datagram[HEADER:]
    rows = len(rest) // 32 * 4
    words = struct.unpack(f"<{(len(rest) + 7) // 8}Q", rest + bytes(-len(rest) % 8))
    for number, word in enumerate(words):
        lane = number % 4 if number < rows else 0
        lanes[lane] = (lanes[lane] ^ word) * ODD % MODULUS
    total = 0
    for lane in lanes:
        total = mixed((total + lane) % MODULUS)
    return total


def seal(datagram: bytes) -> bytes:
    """With the check that it should have."""
    return datagram[:24] + struct.pack("<Q", checksum(datagram)) + datagram[HEADER:]


def opened(datagram: bytes, group: int) -> tuple[int, int, int] | None:
    """(kind, sender, dest), or None when it is not one of ours."""
    if len(datagram) < HEADER:
        return None
    magic, version, kind, its_group, sender, dest, check = struct.unpack_from("<HBBIQQQ", datagram)
    if (magic, version, its_group) != (0x4352, 1, group) or check != checksum(datagram):
        return None
    return kind, sender, dest


def runs(body: bytes) -> list[tuple[int, list[bytes]]] | None:
    """The runs of a data body, (first seqno, payloads); None when it is not well formed."""
    found, at = [], 0
    while at < len(body) or not body:
        if len(body) - at < 16:
            return None
        first, count, size = struct.unpack_from("<QII", body, at)
        payload_at = at + 16 + 2 * count
        end = payload_at + size
        if count == 0 or end > len(body):
            return None
        lengths = struct.unpack_from(f"<{count}H", body, at + 16)
        if sum(lengths) != size:
            return None
        payloads = []
        for length in lengths:
            payloads.append(body[payload_at:payload_at + length])
            payload_at += length
        found.append((first, payloads))
        at = end
    return found


def accepted(body: bytes, low: int, capacity: int) -> tuple[dict[int, bytes], int, int] | None:
    """What a window takes of a body: the messages by seqno, how many are old, how many beyond; None when it is not well formed.

    Serial arithmetic says of a run's first message whether it is old; the others stand so many steps behind that one, also where the
    circle's other side lies between them.
    """
    found = runs(body)
    if found is None:
        return None
    messages: dict[int, bytes] = {}
    old = beyond = 0
    for first, payloads in found:
        behind = (low + 1 - first) % MODULUS            # how many steps before the first acceptable seqno the run begins
        if behind >= MODULUS // 2:
            behind -= MODULUS
        for step, payload in enumerate(payloads):
            if step < behind:
                old += 1
            elif step - behind >= capacity:
                beyond += 1
            else:
                messages.setdefault((first + step) % MODULUS, payload)
    return messages, old, beyond
