"""NO_RELIABILITY: one datagram, no seqno."""

from ringcast._core import wire
from ringcast.address import Address
from ringcast.flags import Flag
from ringcast.protocols.unreliable import MOST_WAITING, UNRELIABLE, Unreliable
from ringcast.stack import Stack
from ringcast.view import View

A, B = Address("A", 1), Address("B", 2)


def stack_of(address, receiving=True):
    layer = Unreliable(address, receiving=receiving)
    stack = Stack([layer], local=address, group="g")
    layer.view(View(5, (A, B)), 0)
    return layer, stack


def got(stack, limit=100):
    stack.deliver(limit, 0)
    return [(batch.sender, batch.first, batch.payloads, batch.view_id, batch.dest, batch.flags)
            for batch in stack.take().deliveries]


def test_it_comes_to_everybody_oneself_included_with_no_seqno():
    (layer, a), (_, b) = stack_of(A), stack_of(B)
    layer.send_one(b"m", None, 0, 0)
    effects_of_a = a.effects
    [(dest, datagram)] = effects_of_a.packets
    assert dest == 0
    expected = [(A, 0, [b"m"], 5, None, Flag.NO_RELIABILITY)]
    assert got(a) == expected
    b.receive([datagram, datagram], 0)
    assert got(b) == expected * 2, "nobody looks whether it was there before"


def test_to_one_member_and_not_to_oneself():
    (layer, a), (_, b) = stack_of(A), stack_of(B)
    layer.send_one(b"m", B, 0, 0)
    b.receive([datagram for _, datagram in a.effects.packets], 0)
    assert got(b) == [(A, 0, [b"m"], 5, B, Flag.NO_RELIABILITY)] and got(a) == []
    layer.send_one(b"to me", A, 0, 0)
    assert [payloads for _, _, payloads, *_ in got(a)] == [[b"to me"]]
    layer.send_one(b"others only", None, Flag.DONT_LOOPBACK, 0)
    assert got(a) == []


def test_what_nobody_has_room_for_or_what_strangers_send_is_dropped_and_counted():
    layer, b = stack_of(B)
    group = b.group
    b.receive([wire.make_datagram(UNRELIABLE, group, 77, 0, b"stranger")], 0)
    assert layer.num_dropped == 1
    b.receive([wire.make_datagram(UNRELIABLE, group, A.incarnation, 0, bytes(8) + b"m")]
              * (MOST_WAITING + 10), 0)
    assert len(got(b, limit=3)) == 3 and layer.num_dropped == 1 + 10 + MOST_WAITING - 3
    deaf, stack = stack_of(B, receiving=False)
    stack.receive([wire.make_datagram(UNRELIABLE, group, A.incarnation, 0, b"m")], 0)
    assert got(stack) == [] and deaf.num_dropped == 1
