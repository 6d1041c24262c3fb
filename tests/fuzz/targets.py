"""What the fuzzer calls with arbitrary bytes, and what must hold whatever they are. Plain functions: the tests call them too.

`decoder` compares the compiled decoder with a reference of a few lines, and damages what it sealed. `stack` reads the bytes as a
program: datagrams of every kind, forged or plain nonsense, between an honest member's messages, the application's own, and time.
"""

import struct

import msgspec

from ringcast import Address
from ringcast._core import wire
from ringcast._core.ring_buffer import RingBuffer
from ringcast.config import configure
from ringcast.protocols.mcast import Mcast
from ringcast.protocols.static_members import Hello, Line, StaticMembers
from ringcast.stack import Kind, Stack

GROUP = 0xABCD1234
MODULUS = 1 << 64


# ------------------------------------------------------------------------------------------------------------- decoder

def reference(body: bytes, low: int, capacity: int) -> tuple[dict[int, bytes], int, int] | None:
    """The messages of a data body that the window may accept, how many are old, how many beyond; None when it is not well formed."""
    accepted: dict[int, bytes] = {}
    old = beyond = at = 0
    if not body:
        return None
    while at < len(body):
        if len(body) - at < 16:
            return None
        first, count, size = struct.unpack_from("<QII", body, at)
        lengths_at, payload_at = at + 16, at + 16 + 2 * count
        at = payload_at + size
        if count == 0 or at > len(body):
            return None
        lengths = struct.unpack_from(f"<{count}H", body, lengths_at)
        if sum(lengths) != size:
            return None
        leading = True                          # what is old stands in front of a run: behind what is not, nothing is old any more
        for step, length in enumerate(lengths):
            ahead = (first + step - low) % MODULUS
            leading = leading and 0 < (1 - ahead) % MODULUS < MODULUS // 2
            if leading:
                old += 1
            elif ahead > capacity:
                beyond += 1
            else:
                accepted.setdefault((first + step) % MODULUS, body[payload_at:payload_at + length])
            payload_at += length
    return accepted, old, beyond


def decoder(data: bytes) -> None:
    """Bytes: low u64, capacity u16, a place to damage u16, then the body."""
    if len(data) < 12:
        assert wire.open_datagram(data, GROUP) is None
        return
    low, capacity, place = struct.unpack_from("<QHH", data)
    capacity += 1
    body = data[12:]
    datagram = wire.make_datagram(Kind.DATA, GROUP, low, place, body)
    header = wire.open_datagram(datagram, GROUP)
    assert header is not None and (header.kind, header.sender, header.dest) == (Kind.DATA, low, place)
    assert wire.open_datagram(datagram, GROUP ^ 1) is None
    damaged = bytearray(datagram)
    damaged[place % len(damaged)] ^= 1 + place % 255
    assert wire.open_datagram(damaged, GROUP) is None
    wire.open_datagram(data, GROUP)
    wire.read_data(data, low, capacity)

    arrivals, expected = wire.read_data(datagram, low, capacity), reference(body, low, capacity)
    if expected is None:
        assert arrivals is None
        return
    accepted, old, beyond = expected
    found: dict[int, bytes] = {}
    for batch in arrivals.batches:
        for step, payload in enumerate(batch.payloads):
            found.setdefault((batch.first + step) % MODULUS, payload)
    assert (found, arrivals.old, arrivals.beyond) == (accepted, old, beyond)
    packed_again(found, low, capacity)


def packed_again(messages: dict[int, bytes], low: int, capacity: int) -> None:
    """What was read, put into a ring and packed, is read again as it was."""
    ring = RingBuffer(capacity, low)
    for seqno, payload in messages.items():
        assert ring.add(seqno, payload)
    datagrams, count = wire.pack(ring, [((low + 1) % MODULUS, (low + capacity) % MODULUS)] if messages else [], 2000,
                                 wire.make_header(Kind.REPEAT, GROUP, 1, 0), 1 << 30)
    again = {}
    for datagram in datagrams:
        for batch in wire.read_data(datagram, low, capacity).batches:
            again |= {(batch.first + step) % MODULUS: payload for step, payload in enumerate(batch.payloads)}
    assert again == messages and count == len(messages)


# --------------------------------------------------------------------------------------------------------------- stack

MEMBERS = {"A": 11, "B": 22, "C": 33}           # A is the member under test, B is hostile, C honest
NUMBERS = [0, 1, 2, 3, 7, 63, 64, 65, 255, 256, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
OPTIONS = {"capacity": 8, "max_bytes": 4000, "xmit_interval": 3, "hello_interval": 20, "max_bundle_size": 600, "ack_threshold": 3}
# What one turn may send at most: a window of repeats, a START, an ACK and a request for each member, a HELLO, what was sent new.
MOST_BYTES = 2 * OPTIONS["max_bytes"] + 65_507 + 10 * 2000


class Member:
    """The stack of A in a view with B and C, and the bytes of the program that is run on it."""

    def __init__(self, program: bytes) -> None:
        self.program = program
        self.at = 0
        config = configure(OPTIONS)
        local = Address("A", MEMBERS["A"])
        self.mcast = Mcast(local, config, 1 << 16)
        self.members = StaticMembers(local, tuple(MEMBERS), config)
        self.stack = Stack([self.mcast, self.members], local=local, group="fuzz", physical="a")
        self.now = 0
        self.delivered: list[bytes] = []        # of C
        self.sent = 0                           # by C
        self.view_id = 0
        self.in_hand = []
        self.stopped = False
        self.c_was_removed = False
        self.stack.start(self.now)
        table = {name: Line(1, incarnation) for name, incarnation in MEMBERS.items()}
        for name in "BC":
            self.feed(self.control(Kind.HELLO, Hello(name, name, table, False, {}), MEMBERS[name]))
        self.feed(self.control(Kind.START, [0, self.view_id], MEMBERS["C"]))

    # ------------------------------------------------------------------------------------------- reading the program

    def byte(self) -> int:
        self.at += 1
        return self.program[self.at - 1] if self.at <= len(self.program) else 0

    def bytes(self, most: int) -> bytes:
        size = min(self.byte(), most, max(0, len(self.program) - self.at))
        self.at += size
        return self.program[self.at - size:self.at]

    def number(self) -> int:
        """Something interesting: an edge, a pointer of the member under test, or next to one."""
        which, ring = self.byte(), self.mcast.send_window.ring
        pointers = [ring.low, ring.hr, self.mcast.send_window.sent, self.view_id, *MEMBERS.values()]
        if which < 128:
            return NUMBERS[which % len(NUMBERS)]
        return (pointers[which % len(pointers)] + self.byte() - 128) % MODULUS

    def datagram(self, kind: int, body: bytes, sender: int) -> bytes:
        dest = [0, MEMBERS["A"], MEMBERS["B"], 77][self.byte() % 4]
        return wire.make_datagram(kind, self.stack.group, sender, dest, body)

    def control(self, kind: int, body: object, sender: int) -> bytes:
        return wire.make_datagram(kind, self.stack.group, sender, 0, msgspec.msgpack.encode(body))

    # ------------------------------------------------------------------------------------------------ what happens

    def feed(self, *datagrams: bytes) -> None:
        self.stack.receive(datagrams, self.now)
        self.turn()

    def turn(self) -> None:
        """As the driver does; and whatever came in, the member's promises hold."""
        self.stack.tick(self.now)
        self.mcast.deliver(100 - sum(map(len, self.in_hand)), self.now)
        effects = self.stack.take()
        assert sum(len(data) for _, data in effects.packets) <= MOST_BYTES
        self.stopped |= effects.fault is not None
        for view in effects.views:
            assert view.id >= self.view_id and self.stack.local in view
            self.c_was_removed |= MEMBERS["C"] not in {member.incarnation for member in view.members}
            self.view_id = view.id
        for batch in effects.deliveries:
            if batch.sender.incarnation == MEMBERS["C"]:
                self.delivered += batch.payloads
            self.in_hand.append(batch)
        self.check()

    def check(self) -> None:
        mcast = self.mcast
        rings = [mcast.send_window.ring, *(window.ring for window in mcast.windows.values())]
        for ring in rings:
            assert (ring.hd - ring.low) % MODULUS <= (ring.hr - ring.low) % MODULUS <= ring.capacity
            assert ring.nbytes <= OPTIONS["max_bytes"] + 65_507
        assert len(mcast.windows) <= 2 and mcast.windows.keys() <= mcast.members.keys() and not mcast.requests
        assert len(mcast.leaving) <= 40
        assert {len(self.members.table), 3} == {3} and self.members.heard.keys() <= MEMBERS.keys() >= self.members.rumours.keys()
        assert self.delivered == [b"c%d" % number for number in range(len(self.delivered))]

    def forged_sender(self) -> int:
        return [MEMBERS["B"], MEMBERS["B"], MEMBERS["A"], 44, 0, 2**64 - 1][self.byte() % 6]

    def nonsense(self) -> None:
        self.feed(self.bytes(200))

    def sealed_nonsense(self) -> None:
        self.feed(self.datagram(self.byte() % 10, self.bytes(255), self.forged_sender()))

    def forged_numbers(self) -> None:
        """A control message whose form is right."""
        kind = [Kind.START, Kind.ACK, Kind.XMIT_REQ, Kind.HIGHEST][self.byte() % 4]
        body: list[object] = [self.number() for _ in range({Kind.START: 2, Kind.ACK: 2}.get(kind, 1))]
        if kind == Kind.XMIT_REQ:
            body = [[(self.number(), self.number()) for _ in range(self.byte() % 8)]]
        self.feed(self.datagram(kind, msgspec.msgpack.encode(body), self.forged_sender()))

    def forged_hello(self) -> None:
        names = ["B", "B", "A", "C", "D", ""]
        sender = self.forged_sender()
        table = {names[self.byte() % 6]: Line(self.byte() % 5, [0, sender, 44, MEMBERS["C"], 2**64 - 1][self.byte() % 5])
                 for _ in range(self.byte() % 5)}
        resume = {self.number(): self.number() for _ in range(self.byte() % 3)}
        self.feed(self.datagram(Kind.HELLO, msgspec.msgpack.encode(
            Hello(names[self.byte() % 6], "x", table, bool(self.byte() & 1), resume)), sender))

    def forged_data(self) -> None:
        count = 1 + self.byte() % 12
        payloads = [bytes(self.byte() % 40) for _ in range(count)]
        body = struct.pack("<QII", self.number(), count, sum(map(len, payloads)))
        body += b"".join(struct.pack("<H", len(payload)) for payload in payloads) + b"".join(payloads)
        self.feed(self.datagram([Kind.DATA, Kind.REPEAT][self.byte() & 1], body, self.forged_sender()))

    def honest_data(self) -> None:
        """The next message of C, which does not overrun the window; with a lost one now and then, repeated later."""
        ring = self.mcast.windows[MEMBERS["C"]].ring if MEMBERS["C"] in self.mcast.windows else None
        if ring is not None and self.sent - ring.low < OPTIONS["capacity"]:
            payload = b"c%d" % self.sent
            body = struct.pack("<QIIH", self.sent + 1, 1, len(payload), len(payload)) + payload
            self.sent += 1
            self.feed(wire.make_datagram(Kind.DATA, self.stack.group, MEMBERS["C"], 0, body))

    def own_send(self) -> None:
        for _ in range(self.byte() % 10):
            self.mcast.send_window.push(bytes(self.byte()))
        self.mcast.flush(self.now)
        self.turn()

    def time_passes(self) -> None:
        self.now += [1, 1_000_000, 3_000_000, 20_000_000, 10**9][self.byte() % 5]
        self.turn()

    def application_finishes(self) -> None:
        if self.in_hand:
            self.mcast.delivered(self.in_hand.pop(0), self.now)
        self.turn()

    def honest_ack(self) -> None:
        self.feed(self.control(Kind.ACK, [self.mcast.send_window.sent, 1 << 16], MEMBERS["C"]))

    ACTS = (nonsense, sealed_nonsense, forged_numbers, forged_numbers, forged_hello, forged_data, forged_data, honest_data, honest_data,
            own_send, time_passes, application_finishes, application_finishes, honest_ack)

    def run(self) -> None:
        while self.at < len(self.program) and not self.stopped:
            self.ACTS[self.byte() % len(self.ACTS)](self)
        if self.stopped or self.c_was_removed:
            return
        while self.in_hand:                     # whatever was forged, everything that the honest member sent is delivered
            self.application_finishes()
        assert len(self.delivered) == self.sent, (self.delivered, self.sent)


def stack(data: bytes) -> None:
    Member(data).run()


TARGETS = {"decoder": decoder, "stack": stack}
