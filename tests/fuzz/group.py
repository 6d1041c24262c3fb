"""The target `stack`: bytes as a program for a group of three, A and C honest (the stacks that are shipped), B hostile.

The program says what happens next: B, or somebody who is no member, puts datagrams of any kind and content into what an honest member
receives; the honest ones send, deliver and finish; the network loses, repeats and reorders; time passes. After every turn the
promises are checked, and at the end, when B has said its last and was taken out, that nothing is owed to anybody.

What is *not* promised, because nothing is authenticated: that B's own messages make sense; that somebody stays in the view whom
B calls vacant or replaced; that C's messages are C's once B has sent something well formed in C's name. From there on only those
promises are checked that hold all the same.
"""

import struct

import msgspec
import reference
from reference import MODULUS

from ringcast import Address
from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.config import MAX_MEMBERS, configure, milliseconds
from ringcast.protocols import mcast as protocol
from ringcast.protocols.mcast import Mcast
from ringcast.protocols.seqnos import precedes
from ringcast.protocols.static_members import HELLO, Hello, Line, StaticMembers
from ringcast.stack import EVERYONE, Effects, Kind, Stack, group_id

NAMES = ("A", "B", "C")
INCARNATIONS = {"A": 0x1111_0000_0001, "B": 0x2222_0000_0002, "C": 0x3333_0000_0003}
HOSTILE, STRANGER = INCARNATIONS["B"], 0x4444_0000_0004
CONFIG = configure({"capacity": 8, "max_bytes": 1500, "xmit_interval": 3, "hello_interval": 20, "max_bundle_size": 600,
                    "ack_threshold": 3})
LOOK, GREETING = milliseconds(CONFIG.xmit_interval), milliseconds(CONFIG.hello_interval) // 10
LARGEST = 700                           # bytes of a data datagram here: a bundle, or one payload
EDGES = [0, 1, 2, 3, 7, 8, 9, 63, 64, 255, 256, 2**22 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1,
         -1, -2**31, -2**63]
BODIES = {Kind.HELLO: HELLO, Kind.START: protocol.START, Kind.ACK: protocol.ACK, Kind.XMIT_REQ: protocol.XMIT_REQ,
          Kind.HIGHEST: protocol.HIGHEST}


class Program:
    """The bytes, and how far they were read; behind their end everything is 0."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def is_over(self) -> bool:
        return self.at >= len(self.data)

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def bytes(self, most: int) -> bytes:
        size = min(self.byte(), most)
        self.at += size
        return self.data[self.at - size:self.at]

    def choice(self, values: "list[object] | tuple[object, ...]") -> object:
        return values[self.byte() % len(values)]


class Honest:
    """A member as it is shipped, and what is known of it: what it sent, what it was handed, what may be expected of it."""

    def __init__(self, name: str) -> None:
        self.name, self.incarnation = name, INCARNATIONS[name]
        self.address = Address(name, self.incarnation)
        self.mcast = Mcast(self.address, CONFIG, 1 << 16)
        self.members = StaticMembers(self.address, NAMES, CONFIG)
        self.stack = Stack([self.mcast, self.members], local=self.address, group="fuzz", physical=name)
        self.log: list[bytes] = []              # what it sent
        self.got: dict[int, int] = {}           # how many messages it was handed, by the honest one who sent them
        self.finished = dict.fromkeys((INCARNATIONS["A"], INCARNATIONS["C"]), 0)
        self.in_hand: list[Batch] = []
        self.limit = 100
        self.arriving: list[bytes] = []         # on the network, or in its socket
        self.view_id = 0
        self.stopped = False
        self.refused = {"malformed": 0, "not_for_me": 0, "unhandled": 0}        # what its counters must say
        self.sent = dict.fromkeys(range(8), 0)  # packets, by kind
        self.repeats: list[tuple[int, int]] = []        # (when, bytes) in the last interval
        self.present: set[int] = set()          # who is in its view
        self.left: set[int] = set()             # who was in an earlier one and not in the next
        self.next: dict[int, int] = {}          # the seqno that comes next of each sender
        self.num_arrived = self.num_finished = self.num_views = 0


class Group:
    """One run of a program."""

    def __init__(self, data: bytes) -> None:
        self.program = Program(data)
        self.now = 0
        self.id = group_id("fuzz")
        self.members = (Honest("A"), Honest("C"))
        self.spoofed = False                    # B spoke in the name of an honest member, and well: its messages are B's then
        self.apart = False                      # a view without one of the honest members was installed
        for member in self.members:
            member.stack.start(self.now)
            self.turn(member)
        table = {name: Line(1, incarnation) for name, incarnation in INCARNATIONS.items()}
        hello = msgspec.msgpack.encode(Hello("B", "b", table, False, {}))
        for member in self.members:
            member.arriving.append(wire.make_datagram(Kind.HELLO, self.id, HOSTILE, EVERYONE, hello))
        for _ in range(4):
            for member in self.members:
                self.turn(member, len(member.arriving))
            self.now += GREETING
        for member in self.members:
            assert member.view_id and member.mcast.joiners.keys() == {HOSTILE}

    def run(self) -> None:
        while not self.program.is_over():
            act = self.program.choice(self.ACTS)
            act(self, self.program.choice(self.members))
        self.settle()

    # ------------------------------------------------------------------------------------------------- what B does

    def number(self, target: Honest) -> int:
        """An edge, or next to a pointer of the one who is to receive it."""
        which, windows = self.program.byte(), target.mcast.windows
        if which < 64:
            return EDGES[which % len(EDGES)]
        rings = [target.mcast.send_window.ring, *(windows[sender].ring for sender in sorted(windows))]
        pointers = [target.view_id, *INCARNATIONS.values(), *(each for ring in rings for each in (ring.low, ring.hd, ring.hr))]
        return (pointers[which % len(pointers)] + self.program.byte() % 32 - 8) % MODULUS

    def forge(self, target: Honest, kind: int, body: bytes) -> None:
        """Into what the target receives: behind the rest, or before it."""
        other = self.members[target is self.members[0]]
        sender = self.program.choice([HOSTILE] * 10 + [STRANGER, STRANGER, 0, 2**64 - 1, target.incarnation, other.incarnation])
        dest = self.program.choice((EVERYONE, target.incarnation, HOSTILE, 77))
        if sender == other.incarnation and dest in (EVERYONE, target.incarnation):
            self.spoofed |= is_well_formed(kind, body)
        self.put(target, wire.make_datagram(kind, self.id, sender, dest, body))

    def put(self, target: Honest, datagram: bytes) -> None:
        target.arriving.insert(len(target.arriving) * (self.program.byte() & 1), datagram)

    def nonsense(self, target: Honest) -> None:
        self.put(target, self.program.bytes(200))

    def sealed_nonsense(self, target: Honest) -> None:
        self.forge(target, self.program.byte() % 10, self.program.bytes(255))

    def forged_numbers(self, target: Honest) -> None:
        kind = self.program.choice((Kind.ACK, Kind.ACK, Kind.START, Kind.HIGHEST))
        count = 1 if kind == Kind.HIGHEST else 2
        self.forge(target, kind, msgspec.msgpack.encode([self.number(target) for _ in range(count)]))

    def forged_request(self, target: Honest) -> None:
        ring = target.mcast.send_window.ring
        ranges = [(self.number(target), self.number(target)) for _ in range(self.program.byte() % 8)] or [(ring.low, ring.hr)]
        self.forge(target, Kind.XMIT_REQ, msgspec.msgpack.encode([ranges * self.program.choice((1, 1, 1, 400))]))

    def forged_hello(self, target: Honest) -> None:
        names = ["B", "B", "B", "A", "C", "D", ""]
        incarnations = [HOSTILE, 0, STRANGER, *INCARNATIONS.values(), 2**64 - 1, -1]
        table = {self.program.choice(names): Line(self.program.choice((1, 1, 2, 3, 9, 2**22 - 1)), self.program.choice(incarnations))
                 for _ in range(self.program.byte() % 5)}
        resume = {self.number(target): self.number(target) for _ in range(self.program.byte() % 3)}
        hello = Hello(self.program.choice(names), "x", table, bool(self.program.byte() & 1), resume)
        self.forge(target, Kind.HELLO, msgspec.msgpack.encode(hello))

    def forged_data(self, target: Honest) -> None:
        body = b""
        for _ in range(1 + self.program.byte() % 3):
            payloads = [bytes(self.program.choice((0, 1, 20, 250))) for _ in range(1 + self.program.byte() % 6)]
            body += struct.pack("<QII", self.number(target) % MODULUS, len(payloads), sum(map(len, payloads)))
            body += b"".join(struct.pack("<H", len(payload)) for payload in payloads) + b"".join(payloads)
        self.forge(target, self.program.choice((Kind.DATA, Kind.REPEAT)), body)

    def a_life_of_b(self, target: Honest) -> None:
        """B comes back as somebody else, opens its stream and fills the window."""
        line = target.members.table["B"]
        life = HOSTILE + (self.program.byte() << 32)          # the upper half is what the id of a view sees
        table = target.members.table | {"B": Line(min(line.generation + 1, 2**22 - 1), life)}
        hello = msgspec.msgpack.encode(Hello("B", "b", table, False, {}))
        view_id = sum(line.weight for line in table.values())
        body = struct.pack("<QIIH", 1, 1, 100, 100) + bytes(100)
        for kind, content in ((Kind.HELLO, hello), (Kind.START, msgspec.msgpack.encode([0, view_id])), (Kind.DATA, body)):
            target.arriving.append(wire.make_datagram(kind, self.id, life, EVERYONE, content))

    # -------------------------------------------------------------------------------- what the honest ones and the network do

    def send(self, member: Honest) -> None:
        for _ in range(1 + self.program.byte() % 5):
            payload = b"%s%d." % (member.name.encode(), len(member.log)) + bytes(self.program.byte())
            if not member.stopped and member.mcast.send_window.push(payload) != 1:
                member.log.append(payload)
        member.mcast.flush(self.now)
        self.turn(member)

    def finish(self, member: Honest) -> None:
        if member.in_hand and not member.stopped:
            batch = member.in_hand.pop(0)
            sender = batch.sender.incarnation
            if sender in member.finished:
                member.finished[sender] = batch.last
            member.num_finished += 1
            member.mcast.delivered(batch, self.now)
        self.turn(member)

    def take_some(self, member: Honest) -> None:
        self.turn(member, 1 + self.program.byte() % 4)

    def take_all(self, member: Honest) -> None:
        self.turn(member, len(member.arriving))

    def lose(self, member: Honest) -> None:
        if member.arriving:
            del member.arriving[self.program.byte() % len(member.arriving)]

    def disorder(self, member: Honest) -> None:
        if member.arriving:
            datagram = member.arriving[self.program.byte() % len(member.arriving)]
            member.arriving.insert(self.program.byte() % len(member.arriving), datagram)

    def wait(self, member: Honest) -> None:
        self.now += self.program.choice((1, LOOK // 3, LOOK, LOOK, 3 * LOOK, 10 * GREETING, 1_000_000_000))
        for each in self.members:
            self.turn(each)

    def slow_down(self, member: Honest) -> None:
        member.limit = self.program.choice((0, 1, 3, 100))

    def exclude(self, member: Honest) -> None:
        if not member.stopped:
            member.members.exclude("B", self.now)
        self.turn(member)

    ACTS = (nonsense, sealed_nonsense, sealed_nonsense, forged_numbers, forged_numbers, forged_numbers, forged_request, forged_request,
            forged_hello, forged_hello, forged_data, forged_data, forged_data, a_life_of_b, send, send, send, finish, finish, take_some,
            take_all, take_all, lose, disorder, wait, wait, slow_down, exclude)

    # ------------------------------------------------------------------------------------------------------- a turn

    def turn(self, member: Honest, count: int = 0) -> None:
        """As the driver does it, with `count` of the datagrams that are arriving."""
        if member.stopped:
            member.arriving.clear()
            return
        datagrams, member.arriving = member.arriving[:count], member.arriving[count:]
        if datagrams:
            self.expect(member, datagrams)
            member.stack.receive(datagrams, self.now)
        member.stack.tick(self.now)
        member.mcast.deliver(member.limit - sum(map(len, member.in_hand)), self.now)
        effects = member.stack.take()
        self.perform(member, effects)
        self.check_member(member)
        self.check_answers(member)

    def expect(self, member: Honest, datagrams: list[bytes]) -> None:
        """Count what the stack must refuse, and say why."""
        member.num_arrived += len(datagrams)
        for datagram in datagrams:
            header = wire.open_datagram(datagram, self.id)
            if header is None:
                member.refused["malformed"] += 1
            elif header.sender == member.incarnation or header.dest not in (EVERYONE, member.incarnation):
                member.refused["not_for_me"] += 1
            elif not Kind.DATA <= header.kind <= Kind.HIGHEST:
                member.refused["unhandled"] += 1

    def perform(self, member: Honest, effects: Effects) -> None:
        for dest, datagram in effects.packets:
            header = wire.open_datagram(datagram, self.id)
            assert header.sender == member.incarnation and header.dest == dest and len(datagram) <= 65_507
            member.sent[header.kind] += 1
            if header.kind == Kind.REPEAT:
                member.repeats.append((self.now, len(datagram)))
            for other in self.members:
                if other is not member and dest in (EVERYONE, other.incarnation):
                    other.arriving.append(datagram)
        for view in effects.views:
            assert view.id > member.view_id and member.address in view
            member.view_id = view.id
            member.num_views += 1
            self.apart |= any(other.address not in view for other in self.members)
            present = {each.incarnation for each in view.members}
            member.left |= member.present - present
            member.present = present
        for batch in effects.deliveries:
            self.take(member, batch)
        if effects.fault is not None:
            self.apart = member.stopped = True

    def take(self, member: Honest, batch: Batch) -> None:
        """Of anybody: in order, without a gap. Of an honest member: everything, as it was sent."""
        source = batch.sender.incarnation
        assert batch.payloads and (source in member.left or batch.first == member.next.get(source, batch.first))
        member.next[source] = (batch.last + 1) % MODULUS
        member.in_hand.append(batch)
        for sender in self.members:
            if batch.sender == sender.address and not (self.spoofed and sender is not member):
                had = member.got.get(sender.incarnation, 0)
                assert batch.first == had + 1, (member.name, batch, had)
                assert batch.payloads == sender.log[had:batch.last], (member.name, batch)
                member.got[sender.incarnation] = batch.last

    # --------------------------------------------------------------------------------------------------------- checks

    def check_member(self, member: Honest) -> None:
        """The windows' bounds (R1), memory, what was given up."""
        mcast = member.mcast
        windows = [*mcast.windows.values(), *mcast.leaving]
        for ring in (mcast.send_window.ring, *(window.ring for window in windows)):
            assert (ring.hd - ring.low) % MODULUS <= (ring.hr - ring.low) % MODULUS <= ring.capacity == CONFIG.capacity
            assert ring.nbytes <= CONFIG.max_bytes + LARGEST
        others = mcast.members.keys() - {member.incarnation}
        assert mcast.windows.keys() | mcast.joiners.keys() | mcast.budgets.keys() <= others
        assert dict(mcast.acks.items()).keys() <= mcast.members.keys() and len(mcast.members) <= len(NAMES)
        assert not mcast.requests and len(mcast.leaving) <= protocol.MOST_LEAVING and len(mcast.early) <= MAX_MEMBERS
        assert member.members.table.keys() == set(NAMES) >= member.members.heard.keys() | member.members.rumours.keys()
        if not self.spoofed and not self.apart:
            for other in self.members:
                assert not precedes(other.finished[member.incarnation], mcast.send_window.ring.low), (member.name, other.finished)

    def check_answers(self, member: Honest) -> None:
        """No amplification: what goes out is bounded by what came in and by time, whatever it was."""
        sent, looks = member.sent, 1 + self.now // LOOK
        answers = member.num_arrived + member.num_finished
        assert sent[Kind.HELLO] <= 1 + self.now // GREETING
        assert sent[Kind.HIGHEST] <= looks
        assert sent[Kind.XMIT_REQ] <= (len(NAMES) - 1) * looks
        assert sent[Kind.START] <= len(NAMES) * (looks + member.num_views)
        assert sent[Kind.ACK] <= answers + (len(NAMES) - 1) * looks
        member.repeats = [(when, size) for when, size in member.repeats if when > self.now - LOOK]
        assert sum(size for _, size in member.repeats) <= 2 * (CONFIG.max_bytes + LARGEST)      # it may lie across two intervals

    def settle(self) -> None:
        """B is silent and taken out, the network loses nothing: the honest members get everything, and can go on."""
        for member in self.members:
            member.limit = 1000
            self.take_all(member)               # what B said last
        for member in self.members:
            self.exclude(member)
        for _ in range(10 if self.spoofed or self.apart else 400):
            for member in self.members:
                self.turn(member, len(member.arriving))
                while member.in_hand and not member.stopped:
                    self.finish(member)
            if not any(member.arriving for member in self.members):
                if self.owed() is None:
                    break
                self.now = max(self.now + 1, min(member.stack.deadline() or self.now + LOOK for member in self.members))
        for member in self.members:
            status = member.stack.status()
            assert {name: status[name] for name in member.refused} == member.refused
        if not self.spoofed and not self.apart:
            assert self.owed() is None, self.owed()

    def owed(self) -> str | None:
        """What is still to come, or None."""
        for sender in self.members:
            for receiver in self.members:
                if receiver.got.get(sender.incarnation, 0) < len(sender.log):
                    return f"{receiver.name} has {receiver.got.get(sender.incarnation, 0)} of {len(sender.log)} from {sender.name}"
            if sender.mcast.unacked():
                return f"{sender.mcast.unacked()} messages of {sender.name} are not acknowledged"
            if HOSTILE in sender.mcast.members:
                return f"{sender.name} still has B in its view"
        return None


def is_well_formed(kind: int, body: bytes) -> bool:
    """Whether a member would believe it."""
    if kind in (Kind.DATA, Kind.REPEAT):
        return reference.runs(body) is not None
    try:
        return kind in BODIES and BODIES[kind].decode(body) is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
