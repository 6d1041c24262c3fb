"""Membership by a list given at start: tables become equal, views follow from them, a
later incarnation replaces an earlier one."""

import re

import pytest

from ringcast import Address, ConfigError, Digest
from ringcast.config import configure
from ringcast.protocols.multicast import mcast
from ringcast.protocols.static_members import HELLO, Hello, Line, StaticMembers
from ringcast.sim.cluster import Cluster
from ringcast.sim.member import Member
from ringcast.sim.network import MS, Network
from ringcast.stacks import STACKS


def views(group, name):
    return [view.names for view in group[name].views]


@pytest.mark.parametrize("seed", range(20))
def test_all_members_install_the_same_view_whatever_is_lost(seed):
    network = Network(loss=0.3, duplicate=0.1, delay=(50_000, 20 * MS))
    group = Cluster("ABCDE", seed=seed, network=network).start()
    group.run(10_000)
    group.network.loss = 0
    group.settle(20_000)
    for name in "ABCDE":
        assert group[name].views == group["A"].views
        assert group[name].views[-1].names == tuple("ABCDE")


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp", "nakack2-tcp"])
def test_members_that_list_each_other_in_different_orders_agree_on_one_view(stack):
    group = Cluster("DBAC", seed=3, stack=stack, capacity=4)
    lists = {group.listed() for _ in range(8)}
    assert len(lists) > 1 and all(sorted(names) == list("ABCD") for names in lists)
    group.start()
    group.run(2000)
    assert {view for name in "ABCD" for view in group[name].views} == {group["A"].views[0]}
    assert group["A"].views[0].names == tuple("ABCD")
    for name in "ABCD":
        group[name].offer(40, 10)                       # ten windows full
    group.run(20_000)
    assert group.owed() is None


def test_nobody_has_a_view_before_all_are_there():
    group = Cluster("ABC").start("A", "B")
    group.run(5000)
    assert group["A"].views == group["B"].views == []
    assert group["A"].members.missing() == ["C"]
    group.start("C")
    group.run(500)
    assert views(group, "A") == views(group, "C") == [("A", "B", "C")]


def test_members_know_where_the_others_can_be_reached():
    group = Cluster("AB").start()
    group.run(500)
    assert group["A"].transport.routes == {group["B"].address.incarnation: "B"}


def test_there_is_silence_once_all_agree():
    group = Cluster("ABC").start()
    group.settle()
    sent = group.sent_datagrams
    group.run(60_000)
    assert group.sent_datagrams == sent


def test_a_leaver_is_taken_out_everywhere_and_knows_that_they_know():
    group = Cluster("ABC", network=Network(loss=0.3), seed=5).start()
    group.run(3000)
    group["C"].members.leave(group.now)
    group["C"].turn([])
    group.run(3000)
    assert group["C"].members.agreed()
    assert views(group, "A")[-1] == views(group, "B")[-1] == ("A", "B")
    assert group["A"].views[-1].id == group["B"].views[-1].id


def test_exclude_reaches_everybody_and_stops_the_one_that_is_alive_after_all():
    group = Cluster("ABC", network=Network(loss=0.2), seed=1).start()
    group.run(3000)
    group["A"].exclude("C")
    group.run(5000)
    assert views(group, "B")[-1] == ("A", "B")
    assert "was taken out of the group" in group["C"].fault


def test_decision_23_a_later_incarnation_replaces_the_former_and_has_a_window_of_its_own():
    group = Cluster("AB").start()
    group.run(500)
    former = group["B"].address
    group["B"].crash()
    group.start("B")
    group.run(500)
    assert group["B"].address in group["A"].views[-1]
    assert former not in group["A"].views[-1]
    assert former.incarnation not in group["A"].multicast.windows
    assert group["A"].multicast.acks.get(former.incarnation) is None


def test_decision_23_a_former_incarnation_that_is_still_alive_stops():
    group = Cluster("AB").start()
    group.run(500)
    former = group["B"]
    group.start("B", physical="another machine")
    group.run(2000)
    assert "another process has joined as 'B'" in former.fault
    assert group["B"].fault is None
    assert group["B"].address in group["A"].views[-1]


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_incarnations_later_all_agree(seed):
    group = Cluster("ABC", seed=seed, network=Network(loss=0.2, delay=(50_000, 30 * MS))).start()
    for _ in range(6):
        group.run(group.rng.randint(1, 800))
        name = group.rng.choice("BC")
        group[name].crash()
        if group.rng.random() < 0.5 and group["A"].views:
            group["A"].exclude(name)
        group.start(name)
    group.network.loss = 0
    group.settle(20_000)
    for name in "ABC":
        assert group[name].fault is None
        assert group[name].views[-1] == group["A"].views[-1]
        assert group[name].views[-1].members == tuple(group[each].address for each in "ABC")


def test_a_new_member_need_not_wait_for_members_that_left():
    group = Cluster("ABC").start()
    group.run(500)
    group["C"].members.leave(group.now)
    group["C"].turn([])
    group.run(500)
    group["B"].crash()
    group.start("B")
    group.run(1000)
    assert views(group, "B") == [("A", "B")]


def test_view_ids_only_grow():
    group = Cluster("ABC").start()
    for name in "BCBC":
        group.run(700)
        group[name].crash()
        group.start(name)
    group.settle()
    ids = [view.id for view in group["A"].views]
    assert len(ids) > 3 and ids == sorted(set(ids))


def test_a_stranger_is_counted_and_not_let_in():
    group = Cluster("AB").start()
    group.run(500)
    other = Cluster("AX", seed=99).start("X")
    hello = Hello("X", "x", {"A": Line(), "X": Line(1, 5)}, True, {})
    group["A"].turn([other["X"].stack.control(HELLO, hello).data])
    assert group["A"].members.num_strangers == 1
    assert views(group, "A") == [("A", "B")]


def test_that_a_name_is_occupied_is_believed_only_from_its_owner():
    group = Cluster("ABC").start()
    group.run(500)
    hello = Hello("B", "b", group["B"].members.table | {"C": Line(7, 999)}, False, {})
    group["A"].turn([group["B"].stack.control(HELLO, hello).data])
    assert group["A"].members.table["C"].incarnation == group["C"].address.incarnation


@pytest.mark.parametrize("hello", [
    Hello("B", "b", {"B": Line(1, -1)}, True, {}), Hello("B", "b", {"B": Line(-1, 1)}, True, {}),
    Hello("B", "b", {"B": Line(1, 1)}, True, {-1: 1}),
    Hello("B", "b", {"B": Line(1, 1)}, True, {1: -1}),
    Hello("", "b", {}, True, {}), Hello("B", "b" * 300, {}, True, {}),
    Hello("B", "b", {str(k): Line() for k in range(300)}, True, {}),
    Hello("B", "b", {}, True, dict.fromkeys(range(1100), 1)),
], ids=["negative incarnation", "negative generation", "negative sender", "negative seqno",
        "no name", "long address", "many names", "many resumes"])
def test_decision_24_a_hello_out_of_bounds_is_counted(hello):
    group = Cluster("AB").start()
    group.run(500)
    before = dict(group["A"].members.table)
    group["A"].turn([group["B"].stack.control(HELLO, hello).data])
    assert group["A"].members.num_strangers == 1
    assert group["A"].members.table == before


def test_decision_24_hellos_are_answered_at_a_bounded_rate():
    group = Cluster("AB").start()
    group.run(500)
    before = group["A"].members.num_hellos_sent
    hello = group["B"].stack.control(HELLO, Hello("B", "b", {}, True, {})).data
    for _ in range(1000):
        group["A"].turn([hello] * 10)
        group.now += MS // 10
    assert group["A"].members.num_hellos_sent - before <= 11


def test_a_resume_is_told_to_the_senders():
    group = Cluster("AB").start()
    group.run(500)
    group["B"].crash()
    sent = []
    group.observer.sent = lambda source, dest, datagram: sent.append(datagram)
    group.start("B", resume=Digest({group["A"].address: 7, Address("gone", 3): 9}))
    hello = Hello("B", "B", {}, True, group["B"].members.resume)
    hello = HELLO.decode(group["B"].stack.control(HELLO, hello).data)
    assert hello.resume == {group["A"].address.incarnation: 7, 3: 9}
    assert any(b"gone" not in data for data in sent)


@pytest.mark.parametrize(("names", "says"), [
    (("B", "C"), "lacks this member's own name"), (("A", "B", "B"), "names somebody twice"),
    (tuple("A") + tuple(str(k) for k in range(300)), "at most 256"), (("A", "x" * 65), "1 to 64"),
    (("A", ""), "1 to 64"),
])
def test_a_wrong_list_is_a_mistake_of_the_caller(names, says):
    with pytest.raises(ConfigError, match=says):
        StaticMembers(Address("A", 1), names, configure({}))


def test_a_resume_of_too_many_senders_is_a_mistake_of_the_caller():
    with pytest.raises(ConfigError, match="1024"):
        StaticMembers(Address("A", 1), ("A",), configure({}),
                      Digest({Address("x", k): 1 for k in range(2000)}))


def test_excluding_somebody_unknown_is_a_mistake_of_the_caller():
    group = Cluster("AB").start()
    with pytest.raises(ConfigError, match="not in the list"):
        group["A"].members.exclude("Z", group.now)


# ------------------------------------------------------------ found by the simulator, kept as cases

def test_views_that_differ_have_different_ids():
    """Two members exclude two others at once: a sum of generations alone gave both
    views one id."""
    group = Cluster("ABCD").start()
    group.run(500)
    group.network.cut = {(a, b) for a in "ABCD" for b in "ABCD"}
    group["A"].exclude("C")
    group["B"].exclude("D")
    group.run(10)
    assert group["A"].views[-1].names == ("A", "B", "D") and group["B"].views[-1].names == ("A",
                                                                                            "B",
                                                                                            "C")
    assert group["A"].views[-1].id != group["B"].views[-1].id


def test_a_view_with_a_later_incarnation_has_a_later_id():
    for seed in range(10):                  # whichever of the two incarnations is the higher number
        group = Cluster("AB", seed=seed).start()
        group.run(500)
        group["B"].crash()
        group.start("B")
        group.run(500)
        ids = [view.id for view in group["A"].views]
        assert len(ids) == 2 and ids == sorted(set(ids))


def hello_of(member):
    """Return the HELLO that this member would send now."""
    hello = Hello(member.name, member.physical, dict(member.members.table), True, {})
    return member.stack.control(HELLO, hello).data


def test_a_hello_that_a_former_incarnation_sent_late_does_not_stop_the_present_one():
    for seed in range(10):
        group = Cluster("AB", seed=seed, network=Network(cut={("B", "A")})).start()
        late = hello_of(group["B"])
        group["B"].crash()
        group.network.heal()
        group.start("B")
        group.run(200)
        assert group["B"].views[-1].names == ("A", "B")
        group["A"].turn([late])
        group.run(500)
        assert group["B"].fault is None and group["A"].views[-1] == group["B"].views[-1]
        assert group["A"].views[-1].members[1] == group["B"].address


def test_a_member_that_began_alone_is_let_in_by_those_who_know_a_former_incarnation():
    """B came back while it could not hear A, and was told to go on without it: both
    names' lines are of the first generation."""
    for seed in range(10):
        group = Cluster("AB", seed=seed).start()
        group.run(500)
        group["B"].crash()
        group.network.cut = {("A", "B"), ("B", "A")}
        group.start("B")
        group["B"].exclude("A")
        group.run(100)
        assert group["B"].views[-1].names == ("B",)
        group["A"].crash()
        group.network.heal()
        group.start("A")
        group.run(1000)
        assert group["B"].fault is None and group["A"].views[-1] == group["B"].views[-1]


def test_the_first_view_waits_until_everybody_has_heard_of_this_incarnation():
    """A HELLO that A sent before it heard of B's former incarnation must not let the
    later one begin as if there had been none."""
    for seed in range(10):
        group = Cluster("AB", seed=seed).start("A")
        early = hello_of(group["A"])
        group.start("B")
        group.run(500)
        group["B"].crash()
        group.network.cut = {("A", "B")}
        group.start("B")
        group["B"].turn([early])
        assert group["B"].views == [] and group["B"].members.missing() == ["A"]
        group.network.heal()
        group.run(500)
        assert group["B"].fault is None and group["A"].views[-1] == group["B"].views[-1]


def test_who_was_excluded_while_out_of_reach_is_told_when_it_is_heard_of_again():
    group = Cluster("ABC").start()
    group.run(500)
    group.network.cut = {(a, b) for a in "ABC" for b in "ABC" if "C" in (a, b)}
    group["A"].exclude("C")
    group.run(5000)
    assert group["A"].members.agreed() and group["C"].fault is None
    group.network.heal()
    group["C"].send(b"am I still a member?")
    group.run(500)
    assert "was taken out of the group" in group["C"].fault


def test_strangers_are_answered_at_a_bounded_rate():
    group = Cluster("AB").start()
    group.run(500)
    before = group["A"].members.num_hellos_sent
    data = Cluster("AX", seed=99).start("X")["X"].stack.control(mcast.ACK, [1, 1]).data
    for _ in range(1000):
        group["A"].turn([data] * 10)
        group.now += MS // 10
    assert 0 < group["A"].members.num_hellos_sent - before <= 11


def test_excluding_a_name_that_was_never_heard_of_supersedes_its_first_incarnation():
    group = Cluster("ABC", network=Network(cut={("B", "A")})).start()
    group.run(500)
    assert group["C"].views[-1].names == ("A", "B", "C") and group["A"].members.missing() == ["B"]
    group["B"].crash()
    group["A"].exclude("B")
    group.run(1000)
    assert group["A"].views[-1] == group["C"].views[-1] and group["A"].views[-1].names == ("A", "C")


def test_exclusion_supersedes_an_incarnation_that_is_only_a_rumour():
    group = Cluster("ABC").start()
    group.run(500)
    group["B"].crash()
    group["A"].exclude("B")
    group.run(500)
    group.network.cut = {("B", "A")}
    group.start("B")
    group.run(500)
    assert group["C"].views[-1].names == ("A", "B", "C") and group["A"].views[-1].names == ("A",
                                                                                            "C")
    group["B"].crash()
    group["A"].exclude("B")
    group.run(1000)
    assert group["A"].views[-1] == group["C"].views[-1] and group["C"].views[-1].names == ("A", "C")


def test_an_exclusion_that_crosses_a_restart_does_not_take_the_new_incarnation_out():
    for seed in range(10):
        network = Network(loss=0.2, delay=(50_000, 30 * MS))
        group = Cluster("ABC", seed=seed, network=network).start()
        group.run(2000)
        group["B"].crash()
        group["A"].exclude("B")
        group.start("B")
        group.network.loss = 0
        group.settle(20_000)
        assert group["B"].fault is None
        assert group["A"].views[-1] == group["B"].views[-1] == group["C"].views[-1]


# -- Members that do not fit together
# ----------------------------------------------------------------

def refused(ours, theirs):
    return (rf"has stack='{theirs}' and this member, '.', has stack='{ours}'; "
            "give all members of the group the same stack")


@pytest.mark.parametrize("stack, other", [
    ("mcast-udp", "nakack2-udp"), ("nakack2-udp", "mcast-udp"), ("mcast-tcp", "nakack2-tcp"),
    ("nakack2-tcp", "mcast-tcp")])
def test_a_joiner_on_another_stack_stops_with_a_sentence_and_the_group_stays(stack, other):
    group = Cluster("ABC", stack=stack).start("A", "B")
    group["A"].exclude("C")
    group.run(500)
    before = list(group["A"].views)
    group.stack = other
    group.start("C")
    group.run(2000)
    assert re.search(refused(other, stack), group["C"].fault)
    assert group["A"].views == group["B"].views[-len(before):] == before
    assert group["A"].fault is group["B"].fault is None
    warnings = [group[name].warnings for name in "AB" if group[name].members.num_refused]
    assert warnings or STACKS[stack].is_lossless           # a link may end with C before C is heard
    assert all(re.search("'C' has stack=.*, so it is not let in", warning) for warning, in warnings)


def test_two_joiners_on_different_stacks_both_stop_whoever_came_first():
    group = Cluster("AB").start("A")
    group.run(500)
    group.checkers.note_departure()         # members are to stop that nobody took out
    group.stack = "nakack2-udp"
    group.start("B")
    group.run(500)
    assert re.search(refused("mcast-udp", "nakack2-udp"), group["A"].fault)
    assert re.search(refused("nakack2-udp", "mcast-udp"), group["B"].fault)


def test_members_with_different_limits_of_a_message_do_not_join():
    group = Cluster("AB").start("A")
    group.checkers.note_departure()
    group.options["max_message_size"] = 1000
    group.start("B")
    group.run(500)
    assert ("'A' has max_message_size='16777216' and this member, 'B', has max_message_size='1000'"
            in group["B"].fault)


def test_a_forged_hello_on_another_stack_never_stops_a_member_that_has_a_view():
    group = Cluster("AB").start()
    group.settle()
    a, b = group["A"], group["B"]
    table, view, routes = dict(a.members.table), a.views[-1], dict(a.transport.routes)
    sent = group.sent_datagrams
    for number in range(1000):
        for physical, installed in (("elsewhere", False), ("B", True)):
            forged = Hello("B", physical, {"B": Line(5, number)}, True, {}, installed,
                           terms={"stack": "x" * 64})
            a.turn([b.stack.control(HELLO, forged).data])
        group.run(1)
    assert a.fault is None
    assert (a.members.table, a.views[-1], a.transport.routes) == (table, view, routes)
    assert len(a.warnings) == 1 and a.members.num_refused == 2000
    assert group.sent_datagrams - sent <= 2 * 10 * 10 + 10  # ten in a hello_interval, and answers
    group.settle()
    for name in "AB":
        group[name].offer(5, 10)
    group.run(1000)
    assert group.owed() is None


def test_a_member_of_a_version_that_does_not_name_its_stack_is_let_in():
    class Older(Member):
        def start(self):
            self.members.terms = {}
            super().start()

    class Mixed(Cluster):
        incarnation = Older

    group = Mixed("AB").start("A")
    group.incarnation = Member
    group.start("B")
    group.run(500)
    assert group["A"].views == group["B"].views != []


def test_terms_out_of_bounds_are_a_bad_hello():
    group = Cluster("AB").start()
    group.run(500)
    for terms in ({"stack": "x" * 65}, {str(k): "" for k in range(17)}, {"": "x"}):
        hello = Hello("B", "B", {}, True, {}, terms=terms)
        group["A"].turn([group["B"].stack.control(HELLO, hello).data])
    assert group["A"].members.num_strangers == 3 and group["A"].members.num_refused == 0
