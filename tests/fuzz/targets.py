"""What the fuzzer calls with arbitrary bytes, and what must hold for all of them. The
tests call these functions too."""

import struct
from array import array
from collections.abc import Callable
from functools import partial

import byte_stream
import connecting
import files
import outsider
import sealed
import trusting
from group import GROUPS
from insider import INSIDERS
from reference import (
    CONNECTION,
    HEADER,
    MAGIC,
    MODULUS,
    OOB,
    VERSION,
    WIRE_FLAGS,
    accepted,
    first_seqno,
    messages,
    opened,
    seal,
)

from ringcast._core import wire
from ringcast._core.marks import Marks
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.stamps import Stamps
from ringcast._core.window import Window
from ringcast.protocols.multicast import base as multicast
from ringcast.protocols.unicast3 import control

GROUP = 0xABCD1234
INPUT = 12                              # bytes in front of the body
LIMIT = 200                             # bytes of a datagram that is packed again


def decoder(data: bytes) -> None:
    """Take low u64, capacity u16, a place to damage u16, then a body. The first of all
    these bytes are also taken for a datagram."""
    check_verdict(data)
    if len(data) >= HEADER:
        # the reference is slow; so few bytes have everything that a check can meet
        short = data[:3 * HEADER + data[3] % HEADER]
        check_verdict(seal(short))
        ours = seal(struct.pack("<HBBI", MAGIC, VERSION, data[3], GROUP) + short[8:])
        check_verdict(ours)
        assert wire.open_datagram(ours, GROUP)
    if len(data) < INPUT:
        return
    low, capacity, place = struct.unpack_from("<QHH", data)
    check_seal(data[INPUT:], low, place)
    capacity = 1 + capacity % 128
    check_window(data[INPUT:], RingBuffer(capacity, low),
                 wire.make_header(multicast.REPEAT, GROUP, 1, 0))
    check_window(data[INPUT:], SeqnoTable(low, capacity=capacity),
                 wire.make_header(control.MESSAGE, GROUP, 1, 2) + data[:8])
    for prefix in (HEADER, CONNECTION, HEADER + place % 64):        # whatever stands there
        check_reading(data, low, capacity, prefix)


def exact(datagram: bytes) -> array:
    """Return a copy in memory that ends where the datagram ends, so that
    AddressSanitizer sees a read of the byte behind it. `bytes` have one more."""
    return array("B", datagram)[:]          # the array itself has room to grow, its copy has none


def check_verdict(datagram: bytes) -> None:
    header, expected = wire.open_datagram(exact(datagram), GROUP), opened(datagram, GROUP)
    assert (header and (header.kind, header.sender, header.dest)) == expected
    assert not (header and wire.is_foreign(exact(datagram), GROUP))


def check_reading(datagram: bytes, low: int, capacity: int, prefix: int) -> "wire.Arrivals | None":
    """Check that exactly that is read which the body says."""
    assert wire.first_seqno(exact(datagram), prefix) == first_seqno(datagram, prefix)
    arrivals = wire.read_data(exact(datagram), low, capacity, prefix)
    expected = accepted(datagram, low, capacity, prefix)
    if expected is None:
        assert arrivals is None
        return None
    inside, old, beyond = expected
    assert [(batch.first, batch.flags, batch.payloads) for batch in arrivals.batches] == inside
    count = sum(len(payloads) for _, _, payloads in inside)
    assert (arrivals.inside, arrivals.old, arrivals.beyond) == (count, old, beyond)
    return arrivals


def check_seal(body: bytes, low: int, place: int) -> None:
    """Check that what the core sealed is opened again, and that damage is found."""
    datagram = wire.make_datagram(multicast.DATA, GROUP, low, place, body)
    header = wire.open_datagram(exact(datagram), GROUP)
    assert header is not None
    assert (header.kind, header.sender, header.dest) == (multicast.DATA, low, place)
    damaged = bytearray(datagram)
    damaged[place % len(damaged)] ^= 1 + place % 255
    assert wire.open_datagram(damaged, GROUP) is None


def check_window(body: bytes, ring: Window, prefix: bytes) -> None:
    """Check that what was read behind `prefix` is in the window with its flags, is read
    again the same after it is packed from there, and comes out once."""
    arrivals = check_reading(prefix + body, ring.low, ring.capacity, len(prefix))
    if arrivals is None or not arrivals.batches:
        return
    expected = messages([(batch.first, batch.flags, batch.payloads) for batch in arrivals.batches])
    marks, early, new = Marks(), [], 0
    for batch in arrivals.batches:
        if batch.flags:
            added, runs = marks.accept(ring, batch)
            early += [(run.first, run.flags, run.payloads) for run in runs]
        else:
            added = ring.add_many(batch.first, batch.payloads)
        new += added
    assert new == len(expected) and expected == {
        seqno: (ring.get(seqno), marks.flags.get(seqno, 0) & WIRE_FLAGS) for seqno in expected}
    out_of_order = {seqno: message for seqno, message in expected.items() if message[1] & OOB}
    assert messages(early) == out_of_order
    assert sum(len(payloads) for _, _, payloads in early) == len(out_of_order)
    check_packing(ring, marks, prefix, expected)
    first = (ring.hd + 1) % MODULUS
    taken = ring.remove_many(nullify=False)
    in_order = messages([(run.first, run.flags, run.payloads) for run in marks.split(first, taken)])
    assert in_order == {seqno: message for seqno, message in expected.items()
                        if seqno not in out_of_order and (seqno - first) % MODULUS < len(taken)}


def check_packing(ring: Window, marks: Marks, prefix: bytes,
                  expected: dict[int, tuple[bytes, int]]) -> None:
    first, last = (ring.low + 1) % MODULUS, (ring.low + ring.capacity) % MODULUS
    datagrams, count = wire.pack(ring, marks, Stamps(), [(first, last)], LIMIT, prefix, 1 << 30)
    again: dict[int, tuple[bytes, int]] = {}
    for datagram in datagrams:
        assert wire.open_datagram(datagram, GROUP) is not None and datagram.startswith(prefix[:24])
        inside, old, beyond = accepted(datagram, ring.low, ring.capacity, len(prefix))
        assert not old and not beyond and (len(datagram) <= LIMIT or len(messages(inside)) == 1)
        again |= messages(inside)
    assert again == expected and count == len(expected)


def group(stack: str, data: bytes) -> None:
    """Run a program for two honest members and a hostile one (group.py)."""
    GROUPS[stack](data, stack).run()


def insider(stack: str, data: bytes) -> None:
    """Run the same in a sealed group, whose key the hostile one has (insider.py)."""
    INSIDERS[stack](data, stack).run()


def tcp(data: bytes) -> None:
    """Send what a peer may send over TCP, cut anywhere (byte_stream.py)."""
    byte_stream.run(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decoder": decoder, **{stack: partial(group, stack) for stack in GROUPS}, "tcp": tcp,
    "connecting": connecting.run, "files": files.run, "sealed": sealed.run,
    "trusting": trusting.run, "outsider": outsider.run,
    **{f"insider-{stack}": partial(insider, stack) for stack in INSIDERS}}
