"""An incarnation that comes back after its process died: it sends again what was not
acknowledged, and nobody gets anything twice."""

import pytest

from ringcast import Address, Batch
from ringcast.protocols.multicast.windows import MOST_DEPARTED
from ringcast.protocols.static_members import HELLO, Hello
from ringcast.sim.cluster import Cluster

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]


def group_of(stack, names="PAB", **options):
    """P only sends; everything else is as in any group."""
    group = Cluster(names, stack=stack, **options).start("P", receiving=False).start(*names[1:])
    group.run(1000)
    return group


def come_back(group, acked, **options):
    former = group["P"]
    if former.alive:
        former.crash()
    group.start("P", former=former, acked=acked, receiving=False, **options)


def got(group, name):
    return group[name].consumer.got.get(group["P"].address, [])


def numbered(first, last):
    return [b"%d" % number for number in range(first, last + 1)]


def all_have(group, messages, names="AB"):
    group.run(3000)
    assert group.owed() is None, group.owed()
    for name in names:
        assert got(group, name) == messages


@pytest.mark.parametrize("stack", STACKS)
def test_what_members_have_is_sent_again_and_dropped(stack):
    group = group_of(stack)
    group["P"].send(*numbered(1, 50))
    group.run(500)
    come_back(group, acked=10)
    group["P"].offer(0, 0)
    all_have(group, numbered(1, 50))
    assert group["P"].multicast.send_window.ring.low == 50


@pytest.mark.parametrize("stack", STACKS)
def test_the_group_keeps_its_view_and_learns_where_the_member_is_now(stack):
    group = group_of(stack)
    before = group["A"].views
    come_back(group, acked=0, physical="elsewhere")
    group.run(1000)
    assert group["A"].views == before and group["P"].views == before[-1:]
    assert group["A"].transport.routes[group["P"].incarnation] == "elsewhere"


@pytest.mark.parametrize("stack", STACKS)
def test_what_nobody_got_comes_with_the_next_process(stack):
    group = group_of(stack)
    group["P"].send(*numbered(1, 5))
    group.run(500)
    group.network.cut |= {("P", "A"), ("P", "B")}
    if group.links is not None:
        group.links.break_all_cut()
    group["P"].send(*numbered(6, 20))
    group.network.heal()
    come_back(group, acked=5)
    group["P"].send(*numbered(21, 25))
    all_have(group, numbered(1, 25))


@pytest.mark.parametrize("stack", STACKS)
def test_it_comes_back_after_it_was_taken_out_too(stack):
    group = group_of(stack)
    group["P"].send(*numbered(1, 30))
    group.run(500)
    group["P"].crash()
    group["A"].exclude("P")
    group.run(1000)
    assert group["B"].views[-1].names == ("A", "B") and not group["B"].multicast.windows.get(
        group["P"].incarnation)
    come_back(group, acked=7)
    group["P"].send(*numbered(31, 40))
    all_have(group, numbered(1, 40))


@pytest.mark.parametrize("stack", STACKS)
def test_it_leaves_like_any_other(stack):
    group = group_of(stack)
    come_back(group, acked=0)
    group.run(500)
    member = group["P"]
    member.leave()
    group.run(500)
    assert member.left and not member.alive
    assert group["A"].views[-1].names == group["B"].views[-1].names == ("A", "B")
    come_back(group, acked=0)
    group["P"].send(*numbered(1, 10))
    all_have(group, numbered(1, 10))


@pytest.mark.parametrize("stack", [stack for stack in STACKS if stack != "nakack2-tcp"])
def test_who_took_it_out_and_let_it_in_again_unnoticed_hears_where_its_stream_begins(stack):
    group = group_of(stack)
    come_back(group, acked=0)
    group["P"].send(*numbered(1, 10))
    group.run(500)
    layer, members = group["B"].multicast, dict(group["B"].multicast.members)
    layer.forget_leavers({incarnation: address for incarnation, address in members.items()
                           if address != group["P"].address})
    layer.windows.reopen(group["P"].address, True)
    assert not layer.windows[group["P"].incarnation].started
    group["P"].send(*numbered(11, 20))
    all_have(group, numbered(1, 20))


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_is_acknowledged_that_is_still_in_hand_from_before(stack):
    """A was handed 1 to 3 and has not finished them when P is taken out; P comes back
    and must not hear that A has them."""
    group = group_of(stack, "PA")
    group["A"].consumer.finish_after = None
    group["P"].send(*numbered(1, 3))
    group.run(500)
    outstanding = group["A"].endpoint.undelivered
    assert outstanding == 3
    group["P"].crash()
    group["A"].exclude("P")
    group.run(1000)
    come_back(group, acked=0)
    group.run(2000)
    assert group["P"].multicast.send_window.ring.low == 0
    old = group["A"].multicast.windows.departed[group["P"].incarnation]
    assert old.outstanding == 3 and group["A"].multicast.starts.deferred
    group["A"].consumer.finish_after = 0
    finish_what_is_in_hand(group["A"], group["P"].address, old)
    all_have(group, numbered(1, 3), "A")
    assert group["P"].multicast.send_window.ring.low == 3


def finish_what_is_in_hand(member, sender, stream):
    member.consumer.finish(Batch(sender, 1, numbered(1, 3), 1, None, 0, stream))


def test_a_hello_of_an_earlier_stint_changes_nothing():
    group = group_of("mcast-udp")
    old = group["P"].members
    stale = Hello("P", "P", old.table, False, {}, True)
    come_back(group, acked=0, physical="elsewhere")
    group.run(1000)
    receiver = group["A"]
    receiver.members.receive([group["P"].stack.control(HELLO, stale)],
                             receiver.now)
    assert receiver.members.heard["P"].physical == "elsewhere"


def test_whoever_hears_of_a_comeback_takes_it_for_a_link_that_broke(monkeypatch):
    group, linked = group_of("mcast-udp"), []
    monkeypatch.setattr(group["A"].members.above, "linked", lambda member,
                        now: linked.append(member))
    come_back(group, acked=0)
    group.run(1000)
    assert linked == [group["P"].incarnation]


@pytest.mark.parametrize("stack", STACKS)
def test_a_member_that_restarts_meanwhile_goes_on_from_its_journal(stack):
    group = group_of(stack)
    group["P"].send(*numbered(1, 20))
    group.run(500)
    group["P"].crash()
    kept = group["A"].consumer.durable()
    group["A"].crash()
    group.start("A", resume=kept)
    come_back(group, acked=20)
    group.run(1000)
    group["P"].send(*numbered(21, 30))
    group.run(2000)
    assert group.owed() is None
    assert got(group, "A") == numbered(21, 30) and got(group, "B") == numbered(1, 30)


def test_an_ack_beyond_what_was_sent_makes_sense_from_a_life_that_came_back_alone():
    group = group_of("mcast-udp")
    layer = group["P"].multicast
    assert layer.sent_of(5) is None
    come_back(group, acked=0)
    assert group["P"].multicast.sent_of(5) == 0


def test_what_is_remembered_of_those_who_left_is_bounded():
    group = group_of("mcast-udp", "PA")
    layer = group["A"].multicast
    for incarnation in range(1, MOST_DEPARTED + 10):
        layer.windows.leaving.append(layer.windows.open(Address("x", incarnation), 0))
        del layer.windows[incarnation]
        layer.windows.bound(0)
    assert len(layer.windows.departed) == MOST_DEPARTED and min(layer.windows.departed) == 10
