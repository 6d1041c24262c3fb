"""What is in the send window and not framed yet: it waits for company, while its own
sender may have finished it already, for that copy comes without a network. Nobody else
has it."""

import pytest

from ringcast.sim.cluster import Cluster

OPTIONS = {"capacity": 64, "ack_threshold": 8, "max_bundle_size": 600}
PAYLOADS = [b"%d" % number for number in range(1, 11)]

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]
pytestmark = pytest.mark.parametrize("stack", STACKS)


def joined(stack, names="AB", receiving=True):
    group = Cluster(names, stack=stack, **OPTIONS).start("A")
    if "B" in names:
        group.start("B", receiving=receiving)
    group.run(500)
    return group


def push(member):
    """Its application sends, and nobody has framed that yet."""
    member.multicast.send_window.push_many(PAYLOADS)
    member.log += PAYLOADS
    member.turn()
    assert member.consumer.got[member.address] == PAYLOADS
    assert member.multicast.send_window.sent == 0


def joined_with_unframed(stack, names, receiving):
    """Return a group, and its member A that has pushed."""
    group = joined(stack, names, receiving)
    push(group["A"])
    return group, group["A"]


def flush(member):
    member.multicast.flush(member.now)
    member.turn()


def test_what_its_sender_alone_has_finished_comes_before_the_view_of_who_joins(stack):
    group = joined(stack)
    group["B"].leave()
    group.run(500)
    a = group["A"]
    push(a)
    assert a.multicast.send_window.ring.low == 0
    group.start("B")
    group.run(500)
    assert len(a.views[-1]) == 2 and a.multicast.send_window.sent == 10
    flush(a)
    group.settle()
    assert a.address not in group["B"].consumer.got and a.multicast.unacked() == 0


@pytest.mark.parametrize("receiving", [True, False])
@pytest.mark.parametrize("names", ["AB", "BA"])
def test_what_its_sender_had_finished_before_is_given_up_once_all_have_it(stack, names, receiving):
    group, a = joined_with_unframed(stack, names, receiving)
    group.run(500)
    assert a.multicast.unacked() == 10
    flush(a)
    group.settle()
    assert a.multicast.unacked() == 0


@pytest.mark.parametrize("names", ["A", "AB"])
def test_who_is_blocked_goes_on_when_it_is_framed_and_nobody_is_waited_for(stack, names):
    group, a = joined_with_unframed(stack, names, receiving=False)
    writable = a.producer.num_rooms
    group.run(500)
    assert a.producer.num_rooms == writable
    flush(a)
    group.settle()
    assert a.producer.num_rooms > writable


@pytest.mark.parametrize("receiving", [True, False])
@pytest.mark.parametrize("names", ["AB", "BA"])
def test_who_leaves_does_not_wait_in_vain(stack, names, receiving):
    group, a = joined_with_unframed(stack, names, receiving)
    a.leave()
    group.run(500)
    assert a.left and a.multicast.unacked() == 0
    if receiving:
        assert group["B"].consumer.got[a.address] == PAYLOADS
