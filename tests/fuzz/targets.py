"""What the fuzzer calls with arbitrary bytes, and what must hold whatever they are. Plain functions: the tests call them too."""

import struct
from array import array

from group import Group
from reference import HEADER, MODULUS, accepted, opened, seal

from ringcast._core import wire
from ringcast._core.ring_buffer import RingBuffer
from ringcast.stack import Kind

GROUP = 0xABCD1234
INPUT = 12                              # bytes in front of the body


def decoder(data: bytes) -> None:
    """Bytes: low u64, capacity u16, a place to damage u16, then a body; the first of all of them are also taken for a datagram."""
    same_verdict(data)
    if len(data) >= HEADER:
        short = data[:2 * HEADER + data[3] % 8]         # the reference is slow; eight lengths have all that a check can meet
        same_verdict(seal(short))
        same_verdict(seal(struct.pack("<HBBI", 0x4352, 1, data[3], GROUP) + short[8:]))
    if len(data) < INPUT:
        return
    low, capacity, place = struct.unpack_from("<QHH", data)
    sealed_datagram(data[INPUT:], low, 1 + capacity % 128, place)


def exact(datagram: bytes) -> array:
    """In memory that ends where the datagram ends, so that a read of the byte behind it is seen; `bytes` have one more."""
    return array("B", datagram)[:]          # the array itself has room to grow, its copy has none


def same_verdict(datagram: bytes) -> None:
    header, expected = wire.open_datagram(exact(datagram), GROUP), opened(datagram, GROUP)
    assert (header and (header.kind, header.sender, header.dest)) == expected


def sealed_datagram(body: bytes, low: int, capacity: int, place: int) -> None:
    """What the compiled core sealed is opened again, damage is found, and of the body exactly that is read which it says."""
    datagram = wire.make_datagram(Kind.DATA, GROUP, low, place, body)
    header = wire.open_datagram(exact(datagram), GROUP)
    assert header is not None and (header.kind, header.sender, header.dest) == (Kind.DATA, low, place)
    damaged = bytearray(datagram)
    damaged[place % len(damaged)] ^= 1 + place % 255
    assert wire.open_datagram(damaged, GROUP) is None

    arrivals, expected = wire.read_data(exact(datagram), low, capacity), accepted(body, low, capacity)
    if expected is None:
        assert arrivals is None
        return
    messages, old, beyond = expected
    ring, new = RingBuffer(capacity, low), 0
    for batch in arrivals.batches:
        new += ring.add_many(batch.first, batch.payloads)
    assert (arrivals.old, arrivals.beyond, new) == (old, beyond, len(messages))
    assert {seqno: ring.get(seqno) for seqno in messages} == messages
    if messages:
        packed_again(ring, messages)


def packed_again(ring: RingBuffer, messages: dict[int, bytes]) -> None:
    """What was read, packed from its window, is read again as it was."""
    first, last = (ring.low + 1) % MODULUS, (ring.low + ring.capacity) % MODULUS
    datagrams, count = wire.pack(ring, [(first, last)], 200, wire.make_header(Kind.REPEAT, GROUP, 1, 0), 1 << 30)
    again: dict[int, bytes] = {}
    for datagram in datagrams:
        assert wire.open_datagram(datagram, GROUP) is not None
        again |= accepted(datagram[HEADER:], ring.low, ring.capacity)[0]
    assert again == messages and count == len(messages)


def stack(data: bytes) -> None:
    """Bytes: a program for two honest members and a hostile one (group.py)."""
    Group(data).run()


TARGETS = {"decoder": decoder, "stack": stack}
