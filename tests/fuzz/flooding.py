"""A hostile member of the view that does not stop: B floods A and C for some simulated
seconds with what a member may say, and with what it may not.

Each round, B sends the next of its messages in order, large ones, and never says that
all have them. It acknowledges too little and too much, asks for everything, announces
what it will never send, opens connection after connection, and begins messages and
control datagrams that do not end. Where it may lie, it also floods with all that is
said about the group. The bounds of decision 24 (bounds.py) are checked after every
turn. At the end B is excluded, and the honest members deliver what they send each
other, once and in order. Where B did not lie, that holds for all that they sent.
"""

import gc
import sys
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from group import LIES, MS, Group, Linked, LinkedNakack2, Nakack2Group
from honest import HONEST, LARGE, Honest
from hostile import STRANGER, Hostile, Program, is_well_formed, make_run
from hostile_member import HostileMember

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.flags import FRAGMENT
from ringcast.protocols import parts
from ringcast.protocols.frag import HEAD
from ringcast.protocols.membership import ends, state
from ringcast.protocols.multicast import base as multicast, fetching
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unreliable import UNRELIABLE

BODILESS = (UNRELIABLE, parts.PART, parts.VIEW_PART)    # any bytes are well formed
SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)  # what is there once for all


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


FLOODS: dict[str, type[Flooding]] = {
    "mcast-udp": Flooding, "mcast-tcp": FloodingLinked,
    "nakack2-udp": FloodingNakack2, "nakack2-tcp": FloodingLinkedNakack2}
