"""The targets `nakack2-udp` and `nakack2-tcp`: the group of group.py on these stacks.
The first byte of the input says how it is set up, the rest is the program.

Over TCP an honest member receives what B sends in B's order, and loses it only when the
connection breaks, which B may cause at any time. Between the honest members nothing is
lost. A member reads nothing of a sender that it holds, and later all in its order.

Besides what group.py says this is not promised: when B is the coordinator, that nobody
purges before all have finished (a coordinator is trusted with STABILITY), and so that
everything arrives. Everything else holds then too. In about half of all programs B
never sends in C's name, so that the promises hold to the end.
"""

from typing import Any

import msgspec
from group import Group
from honest import CONFIG, NAMES, Honest
from hostile import Hostile
from hostile_nakack2 import HostileNakack2

from ringcast._core import wire
from ringcast.protocols.multicast import base as multicast, stable
from ringcast.protocols.multicast.resync import RESYNC
from ringcast.protocols.seqnos import precedes
from ringcast.stacks import STACKS

# bits of the first byte
LEADS, RING_BUFFER, KEEPS, RETRANSMITS, SPOOFS, EARLY, IMPATIENT = (1 << bit for bit in range(7))
MOST_EARLY = 4                          # acts of B between two HELLOs


class Nakack2Group(HostileNakack2, Group):
    """One run of a program."""

    def __init__(self, data: bytes, stack: str = "nakack2-udp") -> None:
        modes = data[0] if data else 0
        self.leads, self.may_spoof = bool(modes & LEADS), bool(modes & SPOOFS)
        self.spoke_early = bool(modes & EARLY)
        names = ("B", "A", "C") if self.leads else NAMES
        options: dict[str, Any] = {
            "use_ring_buffer": bool(modes & RING_BUFFER),
            "discard_delivered_msgs": not modes & KEEPS,
            "gap_timeout": CONFIG.gap_timeout if modes & IMPATIENT else 1000}
        if STACKS[stack].is_lossless:
            options["xmit_interval"] = 3 if modes & RETRANSMITS else 0
        super().__init__(data[1:], (Honest("A", stack, names, **options),
                                    Honest("C", stack, names, **options)))

    def before_views(self) -> None:
        if self.spoke_early:
            for member in self.members:
                for _ in range(self.program.byte() % (MOST_EARLY + 1)):
                    self.program.choice(self.EARLY_ACTS)(self, member)

    def settle(self) -> None:
        """Deliver the rest in this view: votes count in a view that both have."""
        for member in self.members:
            self.take_all(member)
        if self.waits_for_the_unsent():
            assert self.leads or self.spoofed or self.apart
            self.misled = True
        super().settle()

    def waits_for_the_unsent(self) -> bool:
        """Say whether an honest member expects more than another has sent."""
        sent = {each.incarnation: each.multicast.send_window.sent for each in self.members}
        return any(precedes(sent[sender], window.ring.hr) for each in self.members
                   for sender, window in each.multicast.windows.items() if sender in sent)

    def ask_repeatedly(self, member: Honest) -> None:
        """Let B ask for everything again and again, in turns of their own."""
        ring = member.multicast.send_window.ring
        words = [(RESYNC, [ring.low]), (multicast.XMIT_REQ, [[(ring.low, ring.hr)]]),
                 (stable.VOTE, [member.view_id, True, 1500, {}])]
        first, step = self.program.byte(), self.program.byte()
        for number in range(1 + self.program.byte() % 24):
            kind, fields = words[(first + step * number) % 3]
            self.put_last(member, kind, msgspec.msgpack.encode(fields))
            self.turn(member, len(member.arriving))

    EARLY_ACTS = (*HostileNakack2.ACTS, Hostile.forged_data, Hostile.forged_numbers,
                  Hostile.come_back)
    ACTS = (*Group.ACTS, *HostileNakack2.ACTS, ask_repeatedly)


class LinkedGroup(Nakack2Group):
    """A group over TCP connections."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, "nakack2-tcp")

    def begin(self) -> None:
        for member in self.members:
            others = [other.incarnation for other in self.members if other is not member]
            member.news = [*others, self.incarnation_of(member)]
        super().begin()

    def put(self, target: Honest, datagram: bytes) -> None:
        self.program.byte()
        target.arriving.append(datagram)

    def read(self, member: Honest, count: int) -> list[bytes]:
        taken: list[bytes] = []
        left: list[bytes] = []
        for datagram in member.arriving:
            header = wire.open_datagram(datagram, self.id)
            is_held = header is not None and header.sender in member.held
            (left if is_held or len(taken) == count else taken).append(datagram)
        member.arriving = left
        return taken

    def break_link(self, member: Honest) -> None:
        """Lose the last of what B has sent. There is a new connection at once, or
        nobody notices before it is used."""
        incarnation, most = self.incarnation_of(member), self.program.byte()
        for at in range(len(member.arriving) - 1, -1, -1):
            header = wire.open_datagram(member.arriving[at], self.id)
            if most and header is not None and header.sender == incarnation:
                del member.arriving[at]
                most -= 1
        member.news.append(incarnation)

    def link_event(self, member: Honest) -> None:
        """Report new connections to any member, often."""
        other = self.members[member is self.members[0]]
        whom = self.program.choice((self.incarnation_of(member), other.incarnation,
                                    self.somebody(member)))
        member.news += [whom] * (1 + self.program.byte() % 9)

    def switch_interval(self, member: Honest) -> None:
        member.num_switches += 1
        member.multicast.change_interval(self.program.choice((0, 3_000_000)), self.now)

    def take_one(self, member: Honest) -> None:
        """Take one datagram, so that there is time for it."""
        self.turn(member, 1)

    ACTS = (*(act for act in Nakack2Group.ACTS if act not in (Group.lose, Group.disorder)),
            break_link, break_link, link_event, switch_interval, take_one)
