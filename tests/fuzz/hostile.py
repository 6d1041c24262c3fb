"""The acts of the hostile member B, and of a stranger: they put datagrams of any kind
and content into what an honest member receives."""

import struct
from functools import cache
from typing import Any

import msgspec
import reference
from honest import INCARNATIONS, Honest
from msgspec import inspect
from reference import MODULUS

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.kinds import Kind
from ringcast.protocols import parts
from ringcast.protocols.frag import HEAD
from ringcast.protocols.membership import Membership, messages
from ringcast.protocols.membership.state import NEED
from ringcast.protocols.multicast import base as multicast, fetching, mcast
from ringcast.protocols.seqnos import is_seqno
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unreliable import UNRELIABLE

HOSTILE, STRANGER = INCARNATIONS["B"], 0x4444_0000_0004
EDGES = [0, 1, 2, 3, 7, 8, 9, 63, 64, 255, 256, 2**22 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63,
         2**63 + 1, 2**64 - 2, 2**64 - 1, -1, -2**31, -2**63]
STAMP = 8                           # bytes in front of a message without a seqno: when it was sent
TEXTS = ("A", "B", "C", "", "127.0.0.1:7700", "x" * 64, "\0\x7f\n", "\U0001f600" * 64)
DEEP = b"\x91" * 3000 + b"\xc0"     # a list in a list in a list ...
STEPS = (0, 0, 0, 1, 1, 2, -1, 8)   # from a number that means something
MESSAGES = (multicast.DATA, multicast.REPEAT)
CONNECTIONS = (control.MESSAGE, control.FIRST)
# What is said about the group, and of departed senders; of the rest nothing is a lie.
POLITICS = (*(kind for kind in Membership.kinds
              if kind not in (messages.WHO, messages.ASK, messages.PROBE)), fetching.HELD)


class Program:
    """The bytes, and how many of them were read. After their end every byte is 0."""

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

    def choice(self, values: "list[Any] | tuple[Any, ...]") -> Any:
        return values[self.byte() % len(values)]


class Hostile:
    """The acts of B in a group of honest `members`. `spoofed` says that B sent
    something well formed in the name of one of them. Where it may not do that, it is a
    stranger instead. `lied` says that it said something well formed about the group
    that an honest member would not say, where it may do that."""

    may_spoof = may_lie = draws = True

    def __init__(self, data: bytes, members: tuple[Honest, ...], group: int) -> None:
        self.program = Program(data)
        self.members = members
        self.id = group
        self.spoofed = self.lied = False
        self.num_timestamps = 0             # of what B acknowledges and asks for

    # -------------------------------------------------------------------------------------- numbers

    def number(self, target: Honest) -> int:
        """Return an edge, or a number next to a pointer of the receiver."""
        which, windows, unicast = self.program.byte(), target.multicast.windows, target.unicast
        if which < 64:
            return EDGES[which % len(EDGES)]
        rings = [target.multicast.send_window.ring,
                 *(windows[sender].ring for sender in sorted(windows))]
        rings += [table[peer].ring for table in (unicast.receivers, unicast.senders)
                  for peer in sorted(table)]
        pointers = [target.view_id, *INCARNATIONS.values(),
                    *(each for ring in rings for each in (ring.low, ring.hd, ring.hr))]
        return (pointers[which % len(pointers)] + self.program.byte() % 32 - 8) % MODULUS

    def conn_id(self, target: Honest) -> int:
        """Return a number next to a conn-id of B and the target, or any."""
        which, unicast = self.program.byte(), target.unicast
        incarnation = self.incarnation_of(target)
        if which >= 240:
            return EDGES[which % len(EDGES)]
        tables = unicast.receivers, unicast.closed.entries, unicast.senders
        known = [table[incarnation].conn_id for table in tables if incarnation in table]
        known.append(unicast.senders.conn_ids.last)
        return (known[which // len(STEPS) % len(known)] + STEPS[which % len(STEPS)]) % MODULUS

    def timestamp(self, target: Honest) -> int:
        """Return the next timestamp, or any number."""
        self.num_timestamps += 1
        return self.num_timestamps if self.program.byte() & 3 else self.number(target)

    def incarnation_of(self, target: Honest) -> int:
        """Return the present incarnation of B, as the target knows it."""
        return next((member for member, address in target.multicast.members.items()
                     if address.name == "B"), HOSTILE)

    # ---------------------------------------------------------------------------------------- words

    def forge(self, target: Honest, kind: int, body: bytes) -> None:
        """Put a datagram into what the target receives, after the rest or before it."""
        other = self.members[target is self.members[0]]
        spoofed = other.incarnation if self.may_spoof else STRANGER
        sender = self.program.choice([self.incarnation_of(target)] * 10 + [
            STRANGER, STRANGER, 0, 2**64 - 1, target.incarnation, spoofed, HOSTILE])
        dest = self.program.choice((EVERYONE, target.incarnation, HOSTILE, 77))
        if kind in POLITICS and is_well_formed(target.stack.kinds.get(kind), body):
            if not self.may_lie:
                return
            self.lied = True
        if sender == other.incarnation and dest in (EVERYONE, target.incarnation):
            if kind == UNRELIABLE:
                other.sent_unreliable.add(body[STAMP:])         # nobody can tell the difference
            else:
                self.spoofed |= is_well_formed(target.stack.kinds.get(kind), body)
        self.put(target, wire.make_datagram(kind, self.id, sender, dest, body))

    def put(self, target: Honest, datagram: bytes) -> None:
        target.arriving.insert(len(target.arriving) * (self.program.byte() & 1), datagram)

    def nonsense(self, target: Honest) -> None:
        self.put(target, self.program.bytes(200))

    def sealed_nonsense(self, target: Honest) -> None:
        """Forge a datagram of one of the first kinds, as the inputs of the corpus have
        it, or of any kind that the target's stack knows: of any bytes, or with a body
        whose fields have the right types, also in parts."""
        number = self.program.byte()
        kind = number % 17 if number < 224 else self.program.choice(sorted(target.stack.kinds))
        if number < 232 or not self.draws or target.stack.kinds[kind].body is None:
            self.forge(target, kind, self.program.bytes(255))
            return
        drawn = self.drawn(target, type_of(target.stack.kinds[kind].body))
        body = msgspec.msgpack.encode(drawn)
        if number > 252:                                # one field more
            body = bytes([body[0] + 1]) + body[1:] + DEEP
        if number >= 240:
            self.forge(target, kind, body)
        elif kind != NEED:                              # whose bad ones are counted exactly
            self.forge_parts(target, target.stack.kinds[kind], body)

    def forge_parts(self, target: Honest, kind: Kind, body: bytes) -> None:
        """Forge a datagram of B in parts, now and then with another count or size."""
        if kind in POLITICS and is_well_formed(kind, body):
            if not self.may_lie:
                return
            self.lied = True
        target.arrived[kind] += 1
        sender, number = self.incarnation_of(target), self.program.byte() % 4
        whole = wire.make_datagram(kind, self.id, sender, EVERYONE, body)
        size, count = 20 + self.program.byte() % 40, self.program.byte()
        pieces = [whole[at:at + size] for at in range(0, len(whole), size)]
        for index, piece in enumerate(pieces):
            head = parts.HEAD.pack(number, index, count if count < 8 else len(pieces))
            part = parts.PART if kind.outside == (count < 250) else parts.VIEW_PART
            self.put(target, wire.make_datagram(part, self.id, sender, EVERYONE, head + piece))

    def drawn(self, target: Honest, kind: inspect.Type) -> Any:
        """Return a value of a type that a body has, with numbers that mean something or
        none."""
        program = self.program
        match kind:
            case inspect.StructType(fields=fields):
                values = [self.drawn(target, field.type) for field in fields]
                least = sum(field.required for field in fields)
                return values[:least + program.byte() % (len(values) - least + 1)]
            case inspect.ListType(item_type=item):
                return [self.drawn(target, item) for _ in range(program.byte() % 4)]
            case inspect.TupleType(item_types=items):
                return [self.drawn(target, item) for item in items]
            case inspect.DictType(key_type=key, value_type=value):
                return {self.drawn(target, key): self.drawn(target, value)
                        for _ in range(program.byte() % 4)}
            case inspect.UnionType(types=types):
                return self.drawn(target, program.choice(types))
            case inspect.IntType():
                return self.number(target)
            case inspect.BoolType():
                return bool(program.byte() & 1)
            case inspect.StrType():
                return program.choice(TEXTS)
            case inspect.BytesType():
                return program.bytes(40)
        assert isinstance(kind, inspect.NoneType), kind
        return None

    def forged_numbers(self, target: Honest) -> None:
        kind = self.program.choice((mcast.ACK, mcast.ACK, multicast.HIGHEST, multicast.HIGHEST))
        body = [self.number(target) for _ in range(3)]
        if kind == mcast.ACK:
            senders = [target.incarnation, *target.multicast.members][:1 + self.program.byte() % 3]
            body = [{sender: self.number(target) for sender in senders}, body[0]]
        self.forge(target, kind, msgspec.msgpack.encode(body))

    def forged_request(self, target: Honest) -> None:
        ranges = self.ranges(target, target.multicast.send_window.ring)
        self.forge(target, multicast.XMIT_REQ, msgspec.msgpack.encode([ranges]))

    def ranges(self, target: Honest, ring: Any) -> list[tuple[int, int]]:
        ranges = [(self.number(target), self.number(target))
                  for _ in range(self.program.byte() % 8)] or [(ring.low, ring.hr)]
        return ranges * self.program.choice((1, 1, 1, 400))

    def forged_data(self, target: Honest) -> None:
        body = b""
        for _ in range(1 + self.program.byte() % 3):
            payloads = [bytes(self.program.choice((0, 1, 20, 250)))
                        for _ in range(1 + self.program.byte() % 6)]
            body += make_run(self.number(target), 0, payloads)
        self.forge(target, self.program.choice(MESSAGES), body)

    # ------------------------------------------------------------------------- words of connections

    def forged_messages(self, target: Honest) -> None:
        """Forge runs with flags, in a connection or to everybody."""
        kind = self.program.choice((*CONNECTIONS, *CONNECTIONS, *MESSAGES))
        body = prefix = b""
        if kind in CONNECTIONS:
            prefix = (self.conn_id(target) % MODULUS).to_bytes(8, "little")
        for _ in range(1 + self.program.byte() % 3):
            flags = self.program.choice((0, 0, 16, 1, 1, 8, 9, 2, 24, 256, 0xFFFF))
            number, count = self.program.byte(), self.program.choice((2, 3, 1, 0, 9, 2**32 - 1))
            index = self.program.choice((0, 1, 2, self.next_part(target, number)))
            sizes = [self.program.choice((1, 0, 20, 256))
                     for _ in range(1 + self.program.byte() % 6)]
            heads = [HEAD.pack(number, index + step, count) if flags & 8 else b""
                     for step in range(len(sizes))]
            payloads = [head + bytes(size) for head, size in zip(heads, sizes, strict=True)]
            body += make_run(self.number(target), flags, payloads)
        self.forge(target, kind, prefix + body)

    def next_part(self, target: Honest, number: int) -> int:
        """Return the next part of a message that the target is putting together."""
        incarnation = self.incarnation_of(target)
        tables = target.unicast.receivers, target.multicast.windows
        streams = [table[incarnation].stream for table in tables if incarnation in table]
        found = [stream.reassembly.ordered[number] for stream in streams
                 if stream.reassembly is not None and number in stream.reassembly.ordered]
        return len(found[0].parts) if found else 0

    def forged_control(self, target: Honest) -> None:
        """Forge what the other end of a connection sends, now and then with a field too
        few or too many, or a wrong one."""
        kind = self.program.choice((control.ACK, control.XMIT_REQ, control.SEND_FIRST_SEQNO,
                                    control.CLOSE))
        fields: list[Any] = [self.conn_id(target)]
        if kind == control.ACK:
            fields += [self.number(target), self.timestamp(target),
                       self.program.choice((1500, 1, 300, 2**64 - 1, 0, -1))]
        elif kind == control.XMIT_REQ:
            entry = target.unicast.senders.get(self.incarnation_of(target))
            ring = target.multicast.send_window.ring if entry is None else entry.ring
            fields += [self.ranges(target, ring), self.timestamp(target)]
        elif kind == control.SEND_FIRST_SEQNO:
            fields.append(self.timestamp(target))
        damage = self.program.byte()
        if damage >= 240:
            fields[damage % len(fields)] = self.program.choice((None, "", -1, [], 2**64 - 1, 1.5))
        elif damage >= 230:
            fields = fields[:-1] if damage & 1 else [*fields, 0]
        self.forge(target, kind, msgspec.msgpack.encode(fields))

    def acknowledge(self, target: Honest) -> None:
        """Acknowledge what the target sent to B, or nearly all of it."""
        incarnation = self.incarnation_of(target)
        entry = target.unicast.senders.get(incarnation)
        if entry is not None:
            self.num_timestamps += 1
            seqno = (entry.highest_sent - self.program.byte() % 3) % MODULUS
            ack = msgspec.msgpack.encode([entry.conn_id, seqno, self.num_timestamps, 1500])
            target.arriving.append(wire.make_datagram(control.ACK, self.id, incarnation,
                                                      target.incarnation, ack))

    def forged_unreliable(self, target: Honest) -> None:
        self.forge(target, UNRELIABLE, self.program.bytes(20))


@cache
def type_of(body: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(body)


def make_run(first: int, flags: int, payloads: list[bytes]) -> bytes:
    lengths = list(map(len, payloads))
    head = reference.RUN.pack(first % MODULUS, len(payloads), flags, sum(lengths), first % 1000)
    return head + struct.pack(f"<{len(payloads)}H", *lengths) + b"".join(payloads)


def runs_of(kind: int, body: bytes) -> "list[reference.Run] | None":
    """Return the runs of a datagram with messages, if it is well formed."""
    if kind in (*CONNECTIONS, fetching.HELD):
        return reference.runs(body[8:]) if len(body) > 8 else None
    return reference.runs(body) if kind in MESSAGES else None


def is_well_formed(kind: Kind | None, body: bytes) -> bool:
    """Say whether a member that knows this kind would accept it."""
    if kind is None:
        return False
    if kind.messages_at:
        return runs_of(kind, body) is not None
    word = kind.decode(bytes(wire.HEADER_SIZE) + body)
    return word is not None and is_seqno(getattr(word, "conn_id", 0))
