"""Single datagrams in the name of the other honest member (docs/threats.md), each that
has a bound, once in a program. They must not make a message lost, repeated or late. So
they break no promise, unlike what Hostile sends in another's name."""

import msgspec
from group import Group, Linked, LinkedNakack2, Nakack2Group
from honest import Honest

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.protocols.multicast import base as multicast, mcast, stable
from ringcast.protocols.unicast3 import control


class Forger(Group):
    """A group in which B, besides all else, sends one thing of each kind in the name of
    A or C."""

    def __init__(self, data: bytes, *arguments: str) -> None:
        self.forged: set[str] = set()
        super().__init__(data, *arguments)

    def forge_once(self, target: Honest) -> None:
        word = self.program.choice(self.WORDS)
        other = self.members[target is self.members[0]]
        if target.stopped or target.view_id == 0 or word.__name__ in self.forged:
            return
        if other.incarnation not in target.multicast.members:
            return
        if (forged := word(self, target, other)) is not None:
            self.forged.add(word.__name__)
            kind, body = forged
            datagram = wire.make_datagram(kind, self.id, other.incarnation, EVERYONE,
                                          msgspec.msgpack.encode(body))
            target.arriving.insert(0, datagram)     # at once, so that the network repeats it never
            self.turn(target, 1)

    def make_refusal(self, target: Honest, other: Honest) -> "tuple[int, object]":
        if mcast.ACK in target.stack.kinds:
            return mcast.ACK, [{}, 0]
        return stable.VOTE, [target.view_id, False, 0, {other.incarnation: (0, 0)}]

    def make_timestamp(self, target: Honest, other: Honest) -> "tuple[int, object] | None":
        entry = target.unicast.senders.get(other.incarnation)
        if entry is None or entry.last_timestamp_received is None:
            return None
        step = self.program.choice((1 << 62, 1 << 32, (1 << 63) - 1))
        timestamp = (entry.last_timestamp_received + step) % 2**64
        if self.program.byte() & 1:
            return control.SEND_FIRST_SEQNO, [entry.conn_id, timestamp]
        return control.ACK, [entry.conn_id, entry.highest_acked, timestamp, 1 + self.program.byte()]

    def make_refusal_of_one(self, target: Honest, other: Honest) -> "tuple[int, object] | None":
        entry = target.unicast.senders.get(other.incarnation)
        if entry is None or not entry.was_granted:
            return None
        timestamp = ((entry.last_timestamp_received or 0) + 1) % 2**64
        return control.ACK, [entry.conn_id, 0, timestamp, 0]

    def make_request(self, target: Honest, other: Honest) -> "tuple[int, object]":
        ring = target.multicast.send_window.ring
        return multicast.XMIT_REQ, [[(ring.low, ring.hr)] * 100]

    def make_far_vote(self, target: Honest, other: Honest) -> "tuple[int, object] | None":
        if stable.VOTE not in target.stack.kinds:
            return None
        far = self.program.choice((1 << 20, 1 << 61, 1 << 62, 1 << 63))
        return stable.VOTE, [target.view_id, True, 1500, {target.incarnation: (far, far)}]

    WORDS = (make_refusal, make_timestamp, make_refusal_of_one, make_request, make_far_vote)
    TALK = (*(Group.send_anywhere, Group.take_all, Group.finish, forge_once) * 8,
            *(Group.wait,) * 4)
    ACTS = (*Group.ACTS, *TALK)


class ForgerLinked(Forger, Linked):
    ACTS = (*Linked.ACTS, *Forger.TALK)


class ForgerNakack2(Forger, Nakack2Group):
    ACTS = (*Nakack2Group.ACTS, *Forger.TALK)


class ForgerLinkedNakack2(Forger, LinkedNakack2):
    ACTS = (*LinkedNakack2.ACTS, *Forger.TALK)


FORGERS: dict[str, type[Forger]] = {"mcast-udp": Forger, "mcast-tcp": ForgerLinked,
                                    "nakack2-udp": ForgerNakack2,
                                    "nakack2-tcp": ForgerLinkedNakack2}
