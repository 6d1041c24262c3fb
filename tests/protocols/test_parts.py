"""PARTS: a control datagram that is larger than a frame arrives whole, or not at
all."""

import pytest
from hypothesis import given, strategies as st

from ringcast._core import wire
from ringcast.address import EVERYONE, Address
from ringcast.kinds import takes
from ringcast.protocols.membership.messages import INSTALL, SUSPECTS
from ringcast.protocols.multicast.base import DATA
from ringcast.protocols.parts import (
    HEAD,
    MOST_BYTES,
    MOST_OPEN,
    OVERHEAD,
    PART,
    VIEW_PART,
    Parts,
)
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unreliable import UNRELIABLE
from ringcast.sim.cluster import Cluster
from ringcast.stack import Layer, Packet, Stack

DATAGRAM = 512
ROOM = DATAGRAM - wire.HEADER_SIZE - HEAD.size


class Top(Layer):
    """The layer above: sends, and keeps what comes."""

    def __init__(self):
        self.got = []

    @takes(INSTALL)
    def _on_install(self, sender, install, now):
        """So the stack knows the kind. But all goes to `receive`."""

    def receive(self, packets, now):
        self.got += [(packet.kind, packet.sender, packet.dest, bytes(packet.data))
                     for packet in packets]


class End:
    """A member whose stack is the layer, and something above it."""

    def __init__(self, incarnation):
        self.address = Address(f"m{incarnation}", incarnation)
        self.top, self.parts = Top(), Parts(DATAGRAM)
        self.stack = Stack([self.top, self.parts], local=self.address, group="g")

    def send(self, size, dest=EVERYONE, kind=INSTALL):
        """Send a datagram of about this size. Return it as its receiver must see it,
        and the datagrams on the wire."""
        data = wire.make_datagram(kind, self.stack.group, self.address.incarnation, dest,
                                  bytes(range(256)) * (size // 256 + 1))
        self.top.below.send([Packet(kind, self.address.incarnation, dest, data)], 0)
        sent = [datagram for _, datagram in self.stack.take().packets]
        assert all(len(each) <= DATAGRAM for each in sent)
        return (kind, self.address.incarnation, dest, data), sent


@given(st.lists(st.tuples(st.integers(2, 4), st.sampled_from([0, 300, 5000, 60_000])), min_size=1,
                max_size=3),
       st.randoms(use_true_random=False))
def test_parts_in_any_order_come_together_as_what_they_are_of(plan, rng):
    receiver, senders = End(1), {number: End(number) for number in (2, 3, 4)}
    wholes, wires = [], []
    for number, size in plan:
        whole, sent = senders[number].send(size)
        wholes.append(whole)
        wires += sent
    wires += rng.sample(wires, len(wires) // 4)                 # some come twice
    rng.shuffle(wires)
    receiver.stack.receive(wires, 0)
    assert set(receiver.top.got) == set(wholes)
    assert receiver.parts.size == sum(partial.size for partial in receiver.parts.partials.values())


def test_what_fits_goes_as_it_is():
    receiver, sender = End(1), End(2)
    whole, sent = sender.send(100)
    assert sent == [whole[3]]
    receiver.stack.receive(sent, 0)
    assert receiver.top.got == [whole]


def test_a_lost_part_loses_the_whole_and_nothing_else():
    receiver, sender = End(1), End(2)
    _, sent = sender.send(5000)
    receiver.stack.receive(sent[:3] + sent[4:], 0)
    assert receiver.top.got == []
    again, sent = sender.send(5000)
    receiver.stack.receive(sent, 0)
    assert receiver.top.got == [again]


def test_parts_of_different_datagrams_do_not_come_together():
    """A process that came back counts from the start again."""
    receiver, first, second = End(1), End(2), End(2)
    _, one = first.send(2000)
    _, other = second.send(2200)
    receiver.stack.receive([*one[:2], *other[2:]], 0)
    assert receiver.top.got == [] and receiver.parts.num_bad == 1


def test_who_floods_us_with_parts_fills_no_memory():
    receiver, sender = End(1), End(2)
    for number in range(1000):
        parts = sender.send(60_000)[1]
        receiver.stack.receive([parts[number % len(parts)]], 0)
    assert len(receiver.parts.partials) <= MOST_OPEN
    for incarnation in range(3, 300):
        receiver.stack.receive(End(incarnation).send(60_000)[1][:-1], 0)
    assert receiver.parts.size <= MOST_BYTES
    assert receiver.parts.size == sum(partial.size for partial in receiver.parts.partials.values())


@pytest.mark.parametrize("size", [1, 65_000])
@pytest.mark.parametrize("of_one", [True, False])
def test_parts_of_any_size_and_of_anybody_fill_no_more_than_the_limit(size, of_one):
    """Many small parts take memory, too, and so does one datagram of large ones."""
    receiver = End(1)
    for step in range(3000):
        sender, number = (2, step // 255) if of_one else (2 + step, 1)
        body = HEAD.pack(number, step % 255, 256) + bytes(size)
        receiver.stack.receive([wire.make_datagram(PART, receiver.stack.group, sender, 0, body)], 0)
        partials = receiver.parts.partials.values()
        assert receiver.parts.size <= MOST_BYTES
    assert receiver.parts.size == sum(partial.size for partial in partials)
    assert sum(len(partial.parts) for partial in partials) <= MOST_BYTES // OVERHEAD
    whole, sent = End(5000).send(60_000)
    receiver.stack.receive(sent, 0)
    assert receiver.top.got == [whole]


@pytest.mark.parametrize("body", [b"", HEAD.pack(1, 0, 2), HEAD.pack(1, 0, 0) + b"x",
                                  HEAD.pack(1, 0, 1) + b"x",
                                  HEAD.pack(1, 5, 5) + b"x", HEAD.pack(1, 0, 65_535) + b"x"])
def test_parts_that_make_no_sense_are_counted(body):
    receiver = End(1)
    receiver.stack.receive([wire.make_datagram(PART, receiver.stack.group, 2, 0, body)], 0)
    assert (receiver.parts.num_bad, receiver.parts.partials, receiver.top.got) == (1, {}, [])


@pytest.mark.parametrize("kind, sender, dest", [(PART, 2, 0), (INSTALL, 3, 0), (INSTALL, 2, 1)])
def test_nobody_speaks_for_another_in_parts(kind, sender, dest):
    receiver = End(1)
    whole = wire.make_datagram(kind, receiver.stack.group, sender, dest, bytes(600))
    for index, start in enumerate(range(0, len(whole), ROOM)):
        body = HEAD.pack(7, index, 2) + whole[start:start + ROOM]
        receiver.stack.receive([wire.make_datagram(PART, receiver.stack.group, 2, 0, body)], 0)
    assert (receiver.parts.num_bad, receiver.top.got) == (1, [])


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_group_whose_tables_are_larger_than_a_frame_meets_and_talks(stack):
    cluster = Cluster([f"{name:x<60}" for name in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"], stack=stack,
                      max_datagram=DATAGRAM)
    cluster.network.loss = 0.02
    cluster.start()
    cluster.run(3000)
    for member in cluster.living():
        member.offer(3, 300)
    cluster.settle(60_000)
    assert all(len(member.views[-1]) == 26 for member in cluster.living())
    assert cluster.owed() is None
    assert sum(member.stack.status().parts.num_joined for member in cluster.living()) > 26


@pytest.mark.parametrize("kind", [DATA, control.FIRST, UNRELIABLE])
def test_messages_do_not_come_in_parts(kind):
    """Else a datagram with messages could have a megabyte, and 256 of those that come
    too early are kept."""
    cluster = Cluster("AB", max_datagram=DATAGRAM).start()
    cluster.run(500)
    a, b = cluster["A"], cluster["B"]
    whole = wire.make_datagram(kind, a.stack.group, b.incarnation, 0, bytes(600))
    parts = [HEAD.pack(1, index, 2) + whole[index * ROOM:][:ROOM] for index in range(2)]
    a.turn([wire.make_datagram(VIEW_PART, a.stack.group, b.incarnation, 0, part)
            for part in parts])
    status = a.stack.status().parts
    assert (status.num_bad_parts, status.num_joined) == (1, 0)


def test_what_only_members_may_say_goes_in_parts_of_its_own():
    """In a group with a secret a view's key seals them, and the secret alone the
    others. So neither carries what belongs into the other."""
    sender, receiver = End(2), End(1)
    for kind, part in ((INSTALL, PART), (SUSPECTS, VIEW_PART)):
        whole, sent = sender.send(2000, kind=kind)
        assert {each[3] for each in sent} == {part}
        receiver.stack.receive(sent, 0)
        assert receiver.top.got.pop() == whole
        other = VIEW_PART if part == PART else PART
        receiver.stack.receive([wire.make_datagram(other, receiver.stack.group, 2, 0,
                                                   each[wire.HEADER_SIZE:]) for each in sent], 0)
        assert not receiver.top.got
    assert receiver.parts.num_bad == 2
