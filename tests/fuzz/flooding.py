"""A hostile member of the view that does not stop: B floods A and C for some simulated
seconds with what a member may say, and with what it may not.

Each round, B sends the next of its messages in order, large ones, and never says that
all have them. It acknowledges too little and too much, asks for everything, announces
what it will never send, opens connection after connection, and begins messages and
control datagrams that do not end. Where it may lie, it also floods with all that is
said about the group. The bounds of decision 24 (bounds.py) are checked after every
turn. At the end B is excluded, and the honest members deliver what they send each
other, once and in order. Where B did not lie, that holds for all that they sent.

As a program, `python flooding.py STACK FLOOD` floods with EVERYTHING, or with one of
FLOODS alone, and may take MORE bytes of address space beyond those that it had before.
What B sends is many times that, so whatever keeps it without a bound ends the process.
"""

import gc
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import msgspec
from group import LIES, MS, Group, Linked, LinkedNakack2, Nakack2Group
from honest import HONEST, LARGE, Honest
from hostile import HOSTILE, STRANGER, Hostile, Program, is_well_formed, make_run
from hostile_member import HostileMember

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols import parts
from ringcast.protocols.frag import HEAD
from ringcast.protocols.membership import ends, messages, state
from ringcast.protocols.multicast import base as multicast, fetching, mcast, stable
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unreliable import UNRELIABLE

BODILESS = (UNRELIABLE, parts.PART, parts.VIEW_PART)    # any bytes are well formed
SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)  # what is there once for all
ROUNDS = 200                            # of 5 ms each

EVERYTHING = "everything"
MORE = 16 << 20                         # bytes
SENT = 8 * MORE                         # bytes that a flood has, at least ...
MOST = 30_000                           # ... or so many datagrams
SIZE = 60_000                           # bytes of the largest messages
STEP = 2_000                            # nanoseconds from one datagram to the next
Said = tuple[int, bytes, int]           # kind, body, sender


class Endless(Program):
    """A program that does not end, drawn from a seed."""

    def __init__(self, seed: str) -> None:
        super().__init__(b"")
        self.rng = Random(seed)

    def is_over(self) -> bool:
        return False

    def byte(self) -> int:
        return self.rng.randrange(256)

    def bytes(self, most: int) -> bytes:
        return self.rng.randbytes(self.rng.randrange(most + 1))


class Flooding(Group):
    """B has a seat in the view from the beginning. `kinds` are those of which something
    well formed has reached an honest member."""

    def __init__(self, stack: str, lies: bool) -> None:
        self.kinds: set[int] = set()
        super().__init__(bytes([LIES * lies]), stack)
        self.program = Endless(f"flood {stack} {lies}")
        self.num_begun = 0                      # connections and messages that B began
        self.num_parts = 0

    def flood(self, rounds: int) -> None:
        for _ in range(rounds):
            for member in self.members:
                self.send(member)
                for act in (*self.FLOOD, *(self.LIES if self.may_lie else ())):
                    act(self, member)
            self.pass_time(5 * MS)

    def end(self) -> None:
        """Exclude B, and check that the others go on. A lie about the end of a stream
        may last until this view (docs/threats.md), so settle() stops at it."""
        self.settle()
        if self.misled:
            assert self.lied
            end = self.now + 2_000 * MS
            while self.now < end and not self.is_alone():
                self.pass_time(20 * MS)
            assert self.is_alone()
            self.go_on()

    def count_arrived(self, member: Honest, datagrams: list[bytes]) -> None:
        super().count_arrived(member, datagrams)
        for datagram in datagrams:
            header = wire.open_datagram(datagram, self.id)
            if header is not None and header.sender not in HONEST and (
                    header.kind in BODILESS or is_well_formed(
                        member.stack.kinds.get(header.kind), datagram[wire.HEADER_SIZE:])):
                self.kinds.add(header.kind)

    def tell(self, target: Honest, kind: int, body: object) -> None:
        self.say(target, kind, body, self.incarnation_of(target))

    def tell_raw(self, target: Honest, kind: int, body: bytes, sender: int = 0) -> None:
        target.arriving.append(wire.make_datagram(
            kind, self.id, sender or self.incarnation_of(target), EVERYONE, body))

    # ------------------------------------------------------------------------------------- its acts

    def next_in_order(self, target: Honest) -> None:
        """Send what the target needs next, and more behind it."""
        window = target.multicast.windows.get(self.incarnation_of(target))
        first = 1 + (window.ring.hr if window else 0)
        self.tell_raw(target, multicast.DATA, make_run(first, 0, [bytes(LARGE)] * 3))

    def announce(self, target: Honest) -> None:
        window = target.multicast.windows.get(self.incarnation_of(target))
        known = window.ring.hr if window else 0
        for far in (1, 1 << 20, 1 << 62):
            self.tell(target, multicast.HIGHEST, multicast.Highest(known + far, 0, target.view_id))

    def ask_for_everything(self, target: Honest) -> None:
        ring = target.multicast.send_window.ring
        for ranges in ([(1, 2**63)], [(ring.low, ring.hr)] * 2048):
            self.tell(target, multicast.XMIT_REQ, [ranges])

    def open_many(self, target: Honest) -> None:
        """Open one connection after the other, with a message that does not end in
        each."""
        for _ in range(4):
            self.num_begun += 1
            conn_id = ((1 << 40) + self.num_begun).to_bytes(8, "little")
            part = HEAD.pack(self.num_begun, 0, 1000) + bytes(LARGE)
            for kind in (control.FIRST, control.MESSAGE):
                self.tell_raw(target, kind, conn_id + make_run(1, FRAGMENT, [part]))
            # the same of processes that are in no view: kept until they are, or not
            for process in range(3):
                self.tell_raw(target, control.FIRST, conn_id + make_run(1, 0, [bytes(LARGE)]),
                              STRANGER + (self.num_begun << 20) + process)

    def begin_many(self, target: Honest) -> None:
        """Begin messages to all, out of order, that do not end."""
        window = target.multicast.windows.get(self.incarnation_of(target))
        first = 1 + (window.ring.hr if window else 0)
        for step in range(4):
            self.num_begun += 1
            part = HEAD.pack(self.num_begun, 0, 2**32 - 1) + bytes(LARGE)
            self.tell_raw(target, multicast.DATA, make_run(first + step, FRAGMENT | 1, [part]))

    def send_parts(self, target: Honest) -> None:
        """Send large parts of datagrams that do not end, and tiny ones of others."""
        self.num_parts += 1
        number, index = divmod(self.num_parts, 255)
        for kind in (parts.PART, parts.VIEW_PART):
            for size, sender in ((60_000, 0), (1, STRANGER + (self.num_parts << 20))):
                head = parts.HEAD.pack(number, index, 256)
                self.tell_raw(target, kind, head + bytes(size), sender)

    def tell_of_the_departed(self, target: Honest) -> None:
        """Say what members say of senders that have gone, and of a state."""
        self.lied = True
        view_id, whom, seqno = self.view_number(target), self.anybody(), self.place(target)
        self.tell(target, state.NEED, state.Need(view_id))
        self.tell(target, ends.ASK_END, ends.AskEnd(whom))
        self.tell(target, ends.END, ends.End(whom, True, 0, seqno))
        self.tell_raw(target, fetching.HELD,
                      whom.to_bytes(8, "little") + make_run(seqno, 0, [bytes(LARGE)]))

    FLOOD: Any = (send_parts, next_in_order, announce, ask_for_everything, open_many, begin_many,
                  *(Hostile.forged_messages,) * 2, *(Hostile.forged_control,) * 4,
                  Hostile.forged_numbers, Hostile.forged_request, Hostile.acknowledge,
                  Hostile.forged_unreliable, Hostile.sealed_nonsense)
    LIES = (*HostileMember.LIES, HostileMember.come_back, tell_of_the_departed)


def size_of(member: Honest) -> int:
    """Return the bytes of all objects that the endpoint of a member refers to."""
    seen: set[int] = set()
    todo, size = [member.endpoint], 0
    while todo:
        found = todo.pop()
        if id(found) not in seen and not isinstance(found, SHARED):
            seen.add(id(found))
            size += sys.getsizeof(found)
            todo += gc.get_referents(found)
    return size


class FloodingNakack2(Flooding, Nakack2Group):
    FLOOD = (*Flooding.FLOOD, *Nakack2Group.ACTS[-1:], Nakack2Group.forged_word)


class FloodingLinked(Flooding, Linked):
    FLOOD = (*Flooding.FLOOD, Linked.link_event)


class FloodingLinkedNakack2(Flooding, LinkedNakack2):
    FLOOD = (*FloodingNakack2.FLOOD, Linked.link_event)


GROUPS: dict[str, type[Flooding]] = {
    "mcast-udp": Flooding, "mcast-tcp": FloodingLinked,
    "nakack2-udp": FloodingNakack2, "nakack2-tcp": FloodingLinkedNakack2}


# ------------------------------------------------------------------------------- floods of one kind


class Roomy:
    """A group whose windows have so much room that a leak is seen: more than bounds.py
    is about."""

    def honest(self, name: str, stack: str, options: dict[str, Any]) -> Honest:
        return Honest(name, stack, **options | {
            "capacity": 8192, "max_bytes": 1 << 20, "max_bundle_size": SIZE,
            "max_message_size": 1 << 20, "max_closed_connections": 1000,
            "become_server_queue_size": 1000})

    def check(self, member: Honest) -> None:
        pass


def never_low(group: Group) -> Iterator[Said]:
    """Say large messages in order, and never that all have them."""
    for seqno in range(1, MOST):
        yield multicast.DATA, make_run(seqno, 0, [bytes(SIZE)]), HOSTILE


def first_fragments(group: Group) -> Iterator[Said]:
    """Say the first part of messages in order, or out of order, and no second one."""
    for seqno in range(1, MOST):
        part = HEAD.pack(seqno, 0, 1000) + bytes(4_000)
        flags = FRAGMENT | (int(Flag.OOB) if seqno % 2 else 0)
        yield multicast.DATA, make_run(seqno, flags, [part] * 1), HOSTILE
        if seqno % 8 == 0:
            yield highest(group, seqno)


def highest(group: Group, low: int) -> Said:
    body = multicast.Highest(low, low, group.members[0].view_id)
    return multicast.HIGHEST, msgspec.msgpack.encode(body), HOSTILE


def of_strangers(group: Group) -> Iterator[Said]:
    """Say messages as members that no view has."""
    for number in range(MOST):
        kind = (multicast.DATA, control.FIRST, control.MESSAGE, UNRELIABLE)[number % 4]
        body = make_run(1, 0, [bytes(5_000)])
        if kind in (control.FIRST, control.MESSAGE):
            body = number.to_bytes(8, "little") + body
        yield kind, body, STRANGER + (number << 32)


def of_connections(group: Group) -> Iterator[Said]:
    """Open one connection after the other, with messages behind a gap."""
    for conn_id in range(1, MOST):
        body = conn_id.to_bytes(8, "little") + make_run(2 + conn_id % 3, 0, [bytes(5_000)])
        yield (control.FIRST, control.MESSAGE)[conn_id % 2], body, HOSTILE


def of_joiners(group: Group) -> Iterator[Said]:
    """Seek, and say that there are other views, as ever more members."""
    layer = group.members[0].members
    terms, view_id = layer.meeting.terms, layer.view_id
    for number in range(MOST):
        sender, name, far = STRANGER + (number << 32), f"{number:060}", view_id + (number << 32)
        where = chr(0x1F600) * 240 + f"{number}"                # four bytes each
        kind, body = ((messages.SEEK, messages.Seek(name, where, terms, 2)),
                      (messages.PRESENT, messages.Present(name, where, terms, far, 9, 5, None, [])),
                      (messages.ALIVE, messages.Alive(far, far)))[number % 3]
        yield kind, msgspec.msgpack.encode(body), sender


def of_views(group: Group) -> Iterator[Said]:
    """Say views of 50 members, one after the other, none of which is there."""
    view_id = group.members[0].members.view_id
    for number in range(MOST // 6):
        sender, far = STRANGER + (number << 32), view_id + (number << 32)
        seats = [messages.Seat(f"{number:050}/{each}", sender + each, "x" * 100, 0)
                 for each in range(50)]
        kind, body = ((messages.OFFER, messages.Install(far, seats, [], [])),
                      (messages.PREPARE, messages.Prepare(far, seats)))[number % 2]
        yield kind, msgspec.msgpack.encode(body), sender


def numbers(group: Group) -> Iterator[Said]:
    """Say acks, votes, announcements and requests, with numbers far away and tables as
    large as they may be."""
    target, view_id = group.members[0].incarnation, group.members[0].view_id
    for number in range(MOST // 3):
        far = number << 40
        digest = {far + each: (far, far) for each in range(MAX_MEMBERS)}
        some: tuple[tuple[int, Any], ...] = (
            (mcast.ACK, [{target: far} | dict.fromkeys(range(MAX_MEMBERS - 1), far), far]),
            (multicast.HIGHEST, [far, far, view_id]),
            (multicast.XMIT_REQ, [[(1, far)] * 2000]),
            (fetching.FETCH, fetching.Fetch(far, [(1, far)])),
            (stable.VOTE, [view_id + number, True, 1500, digest]),
            (stable.STABILITY, [view_id + number, 1500, digest, {}]))
        kind, body = some[number % len(some)]
        yield kind, msgspec.msgpack.encode(body), HOSTILE


FLOODS: dict[str, Callable[[Group], Iterator[Said]]] = {
    flood.__name__: flood for flood in (never_low, first_fragments, of_strangers, of_connections,
                                        of_joiners, of_views, numbers)}


def flood(group: Group, said: Iterator[Said]) -> None:
    """Let a member hear it. Its application takes and finishes all that comes."""
    member = group.members[0]
    count = size = 0
    for kind, body, sender in said:
        if kind in member.stack.kinds and size < SENT:
            datagram = wire.make_datagram(kind, group.id, sender, EVERYONE, body)
            count, size = count + 1, size + len(datagram)
            hear(member, datagram, group.now + count * STEP)


def hear(member: Honest, datagram: bytes, now: int) -> None:
    endpoint = member.endpoint
    endpoint.receive([datagram], [], now)
    endpoint.tick(now)
    endpoint.deliver(now)
    endpoint.finish(endpoint.take(now).deliveries, now)


def space() -> int:
    """Return how many bytes of address space this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    _, stack, name = sys.argv
    group = type("Flooded", (Roomy, GROUPS[stack]), {})(stack, lies=False)
    resource.setrlimit(resource.RLIMIT_AS, (space() + MORE, resource.RLIM_INFINITY))
    before = space()
    if name == EVERYTHING:
        group.flood(2 * ROUNDS)
        group.end()
    else:
        flood(group, FLOODS[name](group))
    print(f"it had room in {(space() - before) >> 20} MiB more")
