"""Lose what is worst to lose, and see it sent again: cases that seeds do not reach,
because their network heals before they end."""

import pytest
from forming_group import FormingGroup

from ringcast._core import wire
from ringcast.protocols.budget import NO_LIMIT
from ringcast.sim.network import Network


def kind_of(group, datagram):
    stack = next(iter(group.members.values())).stack
    return stack.kind(wire.open_datagram(datagram, stack.group).kind).name


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_a_lost_tail_is_announced_until_the_announcement_arrives(stack):
    group = FormingGroup("AB", stack, network=Network()).start()
    group.settle()
    lost = []

    def discard(source, target, datagram):
        kind = kind_of(group, datagram)
        is_lost = source == "A" and (kind == "data" or kind == "highest" and len(lost) < 6)
        lost.extend([kind] * is_lost)
        return is_lost

    group.network.discard = discard
    group["A"].send(b"1")
    group.settle()
    assert lost.count("highest") >= 4 and lost[0] == "data"


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
@pytest.mark.parametrize("offset", [0, 2**63 + 100, 2**64 - 50])
def test_nobody_waits_for_a_member_that_takes_no_messages(stack, offset):
    group = FormingGroup("ABC", stack, capacity=8).start("A", "B", offset=offset)
    group.start("C", receiving=False)
    group.settle()
    group["A"].offer(100, 10)
    group.settle(1_000)
    assert group["A"].multicast.unacked() == 0


@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"])
def test_messages_larger_than_the_window_wait_for_no_timer(stack):
    """Others keep each one until they hear LOW. A message may overtake that."""
    group = FormingGroup("ABC", stack, network=Network(delay=(50_000, 200_000)), max_bytes=2000,
                         xmit_interval=100).start()
    group.settle()
    group["A"].offer(50, 8000)
    group.run(100)                              # 2 ms for each
    assert group.owed() is None
    requests = [member.multicast.counters.xmit_reqs_sent for member in group.living()]
    assert requests == [0, 0, 0]


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
@pytest.mark.parametrize("size", [100, 1000, 8000])
def test_who_knows_its_send_budget_drops_nothing_at_home(stack, size):
    """And the wire is busy. Who does not know it drops, and repeats that."""
    def times_of_wire(**budget):
        network = Network(bandwidth=12_500_000, send_buffer=500_000)
        group = FormingGroup("ABC", stack, network=network, **budget).start()
        group.settle()
        began = group.now
        group["A"].offer(3_000_000 // size, size)
        while group.owed() is not None:
            group.run(1)
        return (group.now - began) * 12_500_000 / 1e9 / 3_000_000, group["A"]

    times, sender = times_of_wire()
    assert sender.transport.num_unsent == sender.multicast.counters.xmit_rsps_sent == 0
    assert times < 1.5
    times, sender = times_of_wire(send_budget=NO_LIMIT)
    assert sender.transport.num_unsent > 100 and times > 2
