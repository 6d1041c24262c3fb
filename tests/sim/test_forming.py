"""Groups form, and go on, whoever dies at whatever step: each step of a test is
scripted."""

import pytest
from forming_group import FormingGroup

from ringcast.sim.network import MS, Network

STACKS = ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"]


class Group(FormingGroup):
    def __init__(self, names, stack, **options):
        super().__init__(names, stack, capacity=16, **options)

    def formed(self, names):
        """Return whether these members have one view, once all is settled."""
        self.settle(20_000)
        views = {member.views[-1] for member in self.living()}
        return len(views) == 1 and sorted(views.pop().names) == sorted(names)

    def cut_off(self, away, is_both_ways=True, here=None):
        """Cut the links to these members, and those back, from all others, or from
        those in `here`."""
        self.checkers.note_cause()
        here = set(self.members) - set(away) if here is None else here
        self.network.cut |= {(a, b) for a in here for b in away}
        if is_both_ways:
            self.network.cut |= {(b, a) for a in here for b in away}
        if self.links is not None:
            self.links.break_all_cut()


@pytest.fixture(params=STACKS)
def group(request):
    group = Group("ABCD", request.param).start()
    assert group.formed("ABCD")
    return group


def coordinator(group):
    return group.living()[0].views[-1].coordinator.name


def test_members_that_start_at_once_form_one_group(group):
    assert [len(member.views) for member in group.living()] == [1, 1, 1, 1]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("how", ["sealed", "trusted"])
def test_members_that_must_prove_first_that_they_are_there_form_one_group_too(stack, how):
    """What they say of themselves comes after three HELLOs, so after the margin."""
    network = Network(delay=(20 * MS, 20 * MS))
    group = Group("ABCDEFGH", stack, **{how: True}, network=network).start()
    assert group.formed("ABCDEFGH")
    assert [len(member.views) for member in group.living()] == [1] * 8


@pytest.mark.parametrize("stack", STACKS)
def test_members_that_start_one_after_the_other_form_one_group(stack):
    group = Group("ABC", stack).start("A")
    assert group.formed("A")
    group.start("B")
    assert group.formed("AB")
    group.load(20)
    group.start("C")
    assert group.formed("ABC") and coordinator(group) == "A"


@pytest.mark.parametrize("stack", STACKS)
def test_who_should_form_the_group_and_hears_nobody_keeps_the_others_from_no_view(stack):
    group = Group("ABC", stack, min_members=2).start()
    go_on_without(group, "ABC", 0, "deaf")


@pytest.mark.parametrize(("names", "unheard", "seconds"), [
    ("ABC", 1, 6), pytest.param("ABCDE", 3, 40, marks=pytest.mark.prove)])
@pytest.mark.parametrize("stack", STACKS)
def test_who_should_form_the_group_and_is_not_heard_by_one_lets_another_one_do_it(
        stack, names, unheard, seconds):
    """All are needed. The last one does not hear those who should form the group."""
    group = Group(names, stack, min_members=len(names)).start()
    *others, last = [member.name for member in sorted(group.living(), key=lambda member:
                                                      member.address.incarnation)]
    group.cut_off([last], is_both_ways=False, here=others[:unheard])
    group.run(1000 * seconds)
    for member in group.living():
        assert any(len(view) == len(names) for view in member.views)


@pytest.mark.prove
@pytest.mark.parametrize("min_members", [1, 2])
@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("how", ["deaf", "mute"])
@pytest.mark.parametrize("has_view", [False, True])
@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_who_hears_nobody_or_is_not_heard_keeps_the_others_from_no_view(stack, has_view, how, rank,
                                                                        min_members):
    group = Group("ABCD", stack, min_members=min_members).start()
    assert not has_view or group.formed("ABCD")
    go_on_without(group, "ABCD", rank, how)


def go_on_without(group, names, rank, how):
    """Cut off the member of this rank in one direction. The others have a view without
    it, and all are one group when the cut is over."""
    away = sorted(group.living(), key=lambda member: member.address.incarnation)[rank].name
    others = set(names) - {away}
    group.cut_off(away if how == "deaf" else others, is_both_ways=False)
    group.run(5000)
    assert all(set(group[name].views[-1].names) == others for name in others)
    group.heal()
    assert group.formed(names)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["prepare", "install", "report", "installed"])
def test_the_death_of_a_member_at_each_step_while_another_one_dies(group, kind, after):
    first = coordinator(group)
    gone = next(name for name in "ABCD" if name != first)
    group.deaths.set(first if kind in ("prepare", "install") else "", kind, after)
    group.load(10)
    group[gone].crash()
    group.load(400)
    left = [member.name for member in group.living()]
    assert group.deaths.num_sprung == 1 and len(left) == 2 and group.formed(left)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["prepare", "install", "installed"])
def test_the_death_of_a_coordinator_while_a_member_joins(group, kind, after):
    group[other := next(name for name in "ABCD" if name != coordinator(group))].crash()
    assert group.formed(set("ABCD") - {other})
    group.deaths.set("" if kind == "installed" else coordinator(group), kind, after)
    group.start(other)
    group.load(500)
    left = [member.name for member in group.living()]
    assert group.deaths.num_sprung == 1 and len(left) == 3 and group.formed(left)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "away"), [("probe", "D"), ("suspects", "D"), ("present", "CD"),
                                            ("offer", "CD")])
def test_the_death_of_a_member_at_each_step_of_a_partition(group, kind, away, after):
    group.deaths.set("", kind, after)
    group.cut_off(away)
    group.load(1000)
    group.heal()
    group.load(100)
    left = [member.name for member in group.living()]
    assert group.deaths.num_sprung == 1 and len(left) == 3 and group.formed(left)


@pytest.mark.parametrize("is_both_ways", [True, False], ids=["both ways", "one way"])
def test_two_sides_of_a_partition_become_one_group_again(group, is_both_ways):
    group.cut_off("CD", is_both_ways)
    group.load(1000)
    assert any(len(member.views[-1]) < 4 for member in group.living())
    group.heal()
    group.load(100)
    assert group.formed("ABCD")


@pytest.mark.parametrize("stack", STACKS)
def test_only_the_side_with_the_majority_sends(stack):
    group = Group("ABCDE", stack, partition="primary", min_members=3).start()
    assert group.formed("ABCDE")
    group.cut_off("AB")
    group.load(1000)
    sent = {name: group[name].last for name in "ABCDE"}
    group.load(100)
    assert {name for name in sent if group[name].last != sent[name]} == set("CDE")
    group.heal()
    group.load(100)
    assert group.formed("ABCDE")
    assert all(group[name].last != sent[name] for name in sent)


def test_a_coordinator_that_was_paused_comes_back_into_the_group(group):
    group.checkers.note_cause()
    first = coordinator(group)
    group[first].pause(1000 * MS)
    group.load(800)
    assert all(first not in member.views[-1].names for member in group.living()
               if member.name != first)
    group.load(400)
    assert group.formed("ABCD")


def test_a_member_that_leaves_has_all_its_messages_delivered(group):
    group.load(10)
    leaver = group["B"]
    leaver.offer(50, 10)
    leaver.leave()
    group.load(100)
    assert group.formed("ACD") and leaver.left
    group.checkers.check_agreement()


def test_an_excluded_member_comes_back(group):
    group.checkers.note_cause()
    first = coordinator(group)
    other = next(name for name in "ABCD" if name != first)
    group[first].exclude(other)
    group.load(1000)
    assert group.formed("ABCD") and len(group[first].views) > 2


def exclude_under_load(group):
    """A excludes L while all have more to send than finds room."""
    group.checkers.note_cause()
    for member in group.living():
        member.producer.offer_all([bytes(100)] * 500)
        member.request_turn()
    group.run(5)
    group["A"].exclude("L")


@pytest.mark.parametrize("stack", STACKS)
def test_twelve_members_under_load_change_their_view_in_20_ms(stack):
    group = Group("ABCDEFGHIJKL", stack).start()
    assert group.formed("ABCDEFGHIJKL")
    exclude_under_load(group)
    asked = group.now
    while {len(member.views[-1]) for member in group.living()} != {1, 11}:
        group.run(1)
    assert group.now <= asked + 20 * MS
    assert any(member.multicast.unacked() for member in group.living())         # there is load
    assert group.formed("ABCDEFGHIJKL")         # L is back


@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-tcp"])
def test_no_round_nor_timer_of_a_view_change_takes_longer_than_2_ms(stack):
    """What takes the rest of the 20 ms are messages in the buffers of connections."""
    group = Group("ABCDEFGHIJKL", stack)
    group.links.buffers = lambda: 0
    group.start()
    assert group.formed("ABCDEFGHIJKL")
    exclude_under_load(group)
    group.run(2)
    assert all(any(len(view) == 11 for view in group[name].views[1:]) for name in "ABCDEFGHIJK")


def test_a_member_that_is_restarted_under_its_name_is_a_new_one(group):
    former = group["C"].address
    group["C"].crash()
    group.load(20)
    group.start("C")
    group.load(500)
    assert group.formed("ABCD") and former not in group["A"].views[-1]


def test_a_clock_that_jumps_does_no_harm(group):
    group.checkers.note_cause()
    group["B"].clock.jump(group.now, 3_600_000 * MS)
    group["B"].request_turn()
    group.load(1000)
    assert group.formed("ABCD")
