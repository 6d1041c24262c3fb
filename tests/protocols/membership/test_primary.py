"""Which view is primary: at most one at a time, whoever dies, leaves or is cut off at
whatever moment."""

from itertools import combinations
from types import SimpleNamespace

import pytest
from membership_world import MS, World

from ringcast._core import wire
from ringcast.config import configure
from ringcast.protocols.membership.change import Change
from ringcast.protocols.membership.coordinator import finishing
from ringcast.protocols.membership.messages import (
    INSTALL,
    MAX_QUORUMS,
    PREPARE,
    Install,
    Prepare,
    Quorum,
    Seat,
)
from ringcast.protocols.membership.primary import Voting, has_majority, judge_view, merged_roots

A, B, C, D, E, F = range(1, 7)


def sure(view_id, *voters, roots=(1,)):
    return Quorum(view_id, list(voters), list(roots), True)


def attempt(view_id, *voters, roots=(1,)):
    return Quorum(view_id, list(voters), list(roots))


def is_primary(members, reported, left=None, min_members=1, leaving=()):
    """Return whether a view of those who report is primary."""
    present = set(members) - set(leaving)
    return judge_view(members, min_members, reported, left or {}, present).is_primary


FIVE = sure(1, A, B, C, D, E)


# ------------------------------------------------------------------------------------- majorities

@pytest.mark.parametrize(("voters", "present", "expected"), [
    ([A], [A], True), ([A, B], [A], True), ([A, B], [B], False), ([A, B, C], [A], False),
    ([A, B, C], [B, C], True), ([B, A, C, D], [A, C], False), ([B, A, C, D], [B, D], True),
    ([A, B, C, D, E], [A, B], False), ([A, B, C], [D, E, F], False)])
def test_a_majority_is_more_than_half_or_half_with_the_oldest(voters, present, expected):
    assert has_majority(sure(1, *voters), present) is expected


def test_of_an_attempt_more_than_half_is_needed():
    """Who is the oldest is not known before it is installed."""
    assert not has_majority(attempt(1, A, B), [A])
    assert has_majority(attempt(1, A, B, C), [B, C])


def test_any_two_majorities_share_a_member():
    for size in range(1, 7):
        voters = list(range(size))
        majorities = [set(some) for count in range(size + 1) for some in combinations(voters, count)
                      if has_majority(sure(1, *voters), some)]
        assert all(one & other for one in majorities for other in majorities)


# --------------------------------------------------------------------------------------- verdicts

def test_a_first_view_needs_min_members():
    assert not is_primary([A, B], {A: [], B: []}, min_members=3)
    assert is_primary([A, B, C], {A: [], B: [], C: []}, min_members=3)
    assert not is_primary([A, B, C], {A: [], B: [], C: []}, min_members=3, leaving=[C])


def test_the_majority_of_the_last_primary_view_is_primary():
    assert is_primary([C, D, E], {who: [FIVE] for who in (C, D, E)})
    assert not is_primary([A, B], {who: [FIVE] for who in (A, B)})
    assert not is_primary([A, B, F], {A: [FIVE], B: [FIVE], F: []}, min_members=3)


def test_the_later_view_of_one_history_counts_alone():
    """D and E missed two changes: they may come back to A, and change nothing."""
    last = sure(3, A, B)
    assert is_primary([A, D], {A: [last], D: [FIVE]})
    assert not is_primary([B, C, D, E], {B: [last], C: [FIVE], D: [FIVE], E: [FIVE]})


def test_of_groups_that_formed_apart_a_majority_of_each_is_needed():
    other = sure(2, D, E, F, roots=[2])
    ours = sure(1, A, B, C)
    assert is_primary([A, B, D, E], {A: [ours], B: [ours], D: [other], E: [other]})
    assert not is_primary([A, B, D], {A: [ours], B: [ours], D: [other]})
    both = sure(3, A, B, C, D, E, roots=[1, 2])
    assert is_primary([A, B, C, F], {A: [both], B: [both], C: [both], F: [other]})


def test_an_attempt_that_may_have_been_installed_counts():
    """A made a view of A, B and C. C reported to it and heard no more: A and B may
    have it."""
    tried = attempt(2, A, B, C)
    assert not is_primary([C, D, E], {C: [FIVE, tried], D: [FIVE], E: [FIVE]})
    assert is_primary([B, C, D], {B: [FIVE, tried], C: [FIVE, tried], D: [FIVE]})


def test_the_oldest_of_a_view_is_who_was_the_oldest_when_it_was_installed():
    """C reported to what D had prepared, with D as the first member. By the reports A
    is older: so A and B are the majority, and C and D are not."""
    installed, tried = sure(2, A, B, C, D), attempt(2, D, A, B, C)
    assert is_primary([A, B], {A: [installed], B: [installed]})
    assert not is_primary([C, D], {C: [tried], D: [installed]})
    assert not is_primary([C, D], {D: [installed], C: [tried]})


def test_an_attempt_that_somebody_of_it_does_not_know_was_never_installed():
    tried = attempt(2, A, B, C)
    assert is_primary([B, D, E], {B: [FIVE], D: [FIVE], E: [FIVE, tried]})


def test_an_attempt_before_a_later_primary_view_does_not_count():
    tried = attempt(2, A, B, D)
    last = sure(3, A, C)
    assert is_primary([A, D], {A: [last], D: [FIVE, tried]})
    unrelated = attempt(2, D, E, F, roots=[2])
    assert not is_primary([A, D], {A: [last], D: [unrelated]})


def test_an_attempt_that_nobody_may_have_does_not_take_the_place_of_another_group():
    """A formed alone, and prepared a view with C and D, who had formed apart. Nobody
    installed it. C and D go on with what was theirs. So does A, which knows that there
    was no such view. B was with A, and observes."""
    alone, pair = sure(1, A, roots=[1]), sure(2, C, D, roots=[2])
    tried = attempt(3, A, C, D, roots=[1, 2])
    verdict = judge_view([C, D], 1, {C: [pair, tried], D: [pair, tried]}, {}, [C, D])
    assert verdict.is_primary and verdict.roots(4) == [2]
    assert is_primary([A], {A: [alone]})
    later = sure(4, C, D, roots=[2])
    assert not is_primary([B, C, D], {B: [alone], C: [later], D: [later]}, leaving=[B])
    assert is_primary([A, C, D], {A: [alone], C: [later], D: [later]})


def attempted(*quorums, view_id, seats, roots):
    """Return what a member knows of an attempt to which it reports."""
    voting = Voting(SimpleNamespace(), configure({}))
    voting.quorums = list(quorums)
    voting.attempt(Prepare(view_id, [Seat(f"{who}", who, "", 0) for who in seats], roots=roots))
    return voting.quorums[-1]


def test_an_attempt_is_no_heir_of_one_that_nobody_had():
    """D prepared a view of all, then one with E and F alone. It knows that nobody had
    the first one. A, B and C do not, and follow it. To E, which had reported to both,
    theirs does not take the place of that of D, E and F."""
    tried, last = attempt(1, D, E, F, A, B, C), sure(1, A, B, C)
    again = attempted(tried, view_id=2, seats=[D, E, F], roots=[2])
    assert again == Quorum(2, [D, E, F], [2])
    theirs = sure(3, A, B, C, roots=[1])
    assert not is_primary([A, B, C, E], {A: [theirs], B: [theirs], C: [theirs], E: [tried, again]})
    assert attempted(last, view_id=2, seats=[A, B, C], roots=[2]).roots == [1, 2]


def test_members_are_told_again_if_a_view_follows_no_attempt():
    """The coordinator A knew of an attempt, and told that its view follows that. B
    should have known of it, too, and does not: so there was none."""
    tried, own = attempt(1, A, B), 2
    change = Change(own, [], {}, 0, 0, roots=judge_view([A, B], 1, {A: [tried]}, {}, [A, B])
                    .roots(own))
    assert change.roots == [1]
    assert change.has_told(judge_view([A, B], 1, {A: [tried], B: [tried]}, {}, [A, B]))
    assert not change.has_told(judge_view([A, B], 1, {A: [tried], B: []}, {}, [A, B]))
    assert not Change(own, [], {}, 0, 0).has_told(judge_view([A], 1, {A: []}, {}, [A]))


def test_a_view_that_follows_attempts_only_needs_min_members():
    """A was the last of its group. D, E and F reported to a view with it, and heard no
    more. If it was never installed, theirs is a first view."""
    tried = attempt(2, A, D, E, F)
    reported = {who: [tried] for who in (D, E, F)}
    assert not is_primary([D, E, F], reported, min_members=4)
    assert is_primary([D, E, F], reported, min_members=3)
    verdict = judge_view([D, E, F], 3, reported, {}, [D, E, F])
    later = sure(3, D, E, F, roots=verdict.roots(3))
    assert is_primary([D, E, B], {D: [later], E: [later], B: [tried]})


def test_who_leaves_in_good_order_does_not_count():
    assert not is_primary([A, B], {A: [FIVE], B: [FIVE]})
    assert is_primary([A, B], {A: [FIVE], B: [FIVE]}, left={D: [FIVE], E: [FIVE]})
    assert is_primary([B], {B: [sure(1, A, B)]}, left={A: [sure(1, A, B)]})


def test_what_a_leaver_has_promised_counts_on():
    """D and E reported to a view of C, D and E, and then left. C may have that view."""
    tried = attempt(2, C, D, E)
    left = {D: [FIVE, tried], E: [FIVE, tried]}
    assert not is_primary([A, B], {A: [FIVE], B: [FIVE]}, left=left)
    assert is_primary([A, C], {A: [FIVE], C: [FIVE, tried]}, left=left)


def test_one_who_leaves_counts_for_no_view_any_more():
    three = {who: [FIVE] for who in (C, D, E)}
    assert not is_primary([C, D, E], three, leaving=[D, E])


def test_if_all_members_of_the_last_primary_view_have_left_a_new_first_one_is_needed():
    left = {who: [FIVE] for who in (A, B, C, D, E)}
    assert is_primary([F], {F: [FIVE]}, left=left)
    assert not is_primary([F], {F: [FIVE]}, left=left, min_members=2)


def test_what_is_remembered_has_a_bound():
    many = {A: [attempt(number, B, C, roots=[number]) for number in range(2, 100)]}
    assert [quorum.id for quorum in judge_view([A], 1, many, {}, [A]).needed] == list(
        range(100 - MAX_QUORUMS, 100))
    assert merged_roots(range(100)) == list(range(68, 100))


# ------------------------------------------------------------------------------------------ groups

PRIMARY = {"partition": "primary"}


def formed(names="ABCDE", seed=0, **options):
    world = World(seed, **({"min_members": len(names) // 2 + 1} | PRIMARY | options))
    world.start(*names)
    assert world.run_until_one(5000) is not None
    return world


def by_age(world):
    """Return the members, the oldest first."""
    return [world[name] for name in world.living()[0].view.names]


def sends(world):
    """Return the names of those who live and may send."""
    return {node.name for node in world.living() if node.layer.voting.may_send}


def check(world):
    """Check that who may send has a primary view, and that all have the same."""
    for node in world.living():
        may = node.layer.voting.may_send
        assert may == node.paper.send_window.is_open == (node.view is not None
                                                         and node.view.primary)
    assert len({node.view for node in world.living() if node.view and node.view.primary}) <= 1


def crash_at(world, node, kind, reaches=None):
    """Let a member die when it sends its next datagram of a kind, which reaches those
    who are named."""
    def tap(source, datagram):
        header = wire.open_datagram(datagram, source.stack.group)
        if source is node and node.alive and header.kind == kind:
            for other in world.living():
                if other.name in (reaches or ()):
                    other.arrive(datagram)
            node.crash()
    world.tap = tap


def test_nobody_may_send_before_the_first_primary_view():
    world = World(min_members=3, **PRIMARY).start("A", "B")
    world.run(2000)
    assert sends(world) == set()
    world.start("C")
    assert world.run_until_one(2000) is not None
    assert sends(world) == set("ABC")
    check(world)


def test_who_has_promised_a_lower_view_since_finishes_none_that_it_gave_up():
    """B promised a view of A's that did not come, and then a primary one of D's with
    a lower id. To finish the first one would make it forget that."""
    world = World(min_members=3).start("B")
    world.run(1)
    layer, gave_up, lower, next_id = world["B"].layer, 2 << 32 | A, 1 << 32 | D, 3 << 32 | A
    two = [Seat("A", A, "", 0), layer.seat()]

    def prepare(sender, *fields, after=0, **others):
        layer.take_prepare(sender, Prepare(*fields, **others), world.now + after * MS)
        return layer.promised
    assert prepare(A, gave_up, two) == gave_up
    three = [Seat("D", D, "", 0), Seat("E", E, "", 0), layer.seat()]
    assert prepare(D, lower, three, roots=[lower], after=600) == lower
    finish = Install(gave_up, two, [], [])
    assert prepare(A, next_id, finishing(two, finish), finish, after=1200) == next_id
    assert layer.install is None and [quorum.id for quorum in layer.voting.quorums] == [lower]


def test_the_minority_may_not_send_until_it_is_back():
    world = formed()
    world.partition("AB", "CDE")
    world.run(5000)
    assert sends(world) == set("CDE")
    check(world)
    world.cut.clear()
    assert world.run_until_one(2000) is not None
    assert sends(world) == set("ABCDE")
    check(world)


def test_two_minorities_that_meet_are_the_majority():
    world = formed()
    for one, other in [("AB", "CDE"), ("CD", "E")]:
        world.partition(one, other)
    world.run(5000)
    assert sends(world) == set()
    world.cut -= {(one, other) for one in "ABE" for other in "ABE"}
    assert world.run_until_one(0) is None
    world.run(3000)
    assert sends(world) == set("ABE")
    check(world)
    world.cut.clear()
    assert world.run_until_one(3000) is not None and sends(world) == set("ABCDE")


def test_a_group_may_shrink_to_one_step_by_step():
    world = formed()
    for count in range(4, 0, -1):
        by_age(world)[-1].crash()
        assert world.run_until_one(5000) is not None
        assert len(sends(world)) == count
    world.start("X", "Y")                               # and grow again
    assert world.run_until_one(2000) is not None
    assert len(sends(world)) == 3


def test_of_two_the_younger_one_does_not_go_on_alone():
    world = formed("AB")
    old, young = by_age(world)
    old.crash()
    world.run(5000)
    assert young.view.names == (young.name,) and not sends(world)
    world.start(old.name)                               # it has forgotten that it was a member
    assert world.run_until_one(5000) is not None
    assert not sends(world)
    check(world)


def test_members_that_leave_need_no_majority():
    world = formed()
    for node in by_age(world)[:4]:
        node.leave()
    world.run(2000)
    (last,) = [node for node in world.living() if not node.layer.has_left]
    assert last.view.names == (last.name,) and last.layer.voting.may_send


def test_when_the_majority_is_gone_for_ever_all_must_start_again():
    world = formed()
    nodes = by_age(world)
    for node in nodes[:3]:
        node.crash()
    world.run(5000)
    for node in nodes[:3]:
        world.start(node.name)
    assert world.run_until_one(5000) is not None
    assert not sends(world)                             # the old ones remember who is missing
    nodes[3].crash()
    world.start(nodes[3].name)
    assert world.run_until_one(5000) is not None
    assert not sends(world)                             # those who came have learned it
    for node in world.living():
        node.crash()
    world.start(*"ABCDE")
    assert world.run_until_one(5000) is not None
    assert sends(world) == set("ABCDE")


@pytest.mark.parametrize("kind", [PREPARE, INSTALL], ids=["prepare", "install"])
@pytest.mark.parametrize("reached", range(3))
def test_a_coordinator_that_dies_leaves_at_most_one_primary_view(kind, reached):
    """D dies. A prepares a view without it, and dies at a PREPARE or INSTALL that some
    have. B and those that had it cannot hear each other."""
    for seed in range(10):
        world = formed("ABCDE", seed)
        first, *others, last = by_age(world)
        last.crash()
        some = [node.name for node in others[:reached]]
        crash_at(world, first, kind, some)
        world.run(4000)
        world.tap = None
        assert not first.alive
        check(world)
        assert world.run_until_one(5000) is not None
        assert sends(world) == {node.name for node in others}
        check(world)


def cut_off_in_the_middle():
    """Return a group, whose coordinator installs a view with one other that has a
    majority of three of five. The third one is cut off before it hears of that."""
    world = formed("ABCDE")
    first, second, third, *rest = by_age(world)
    world.partition([first.name, second.name, third.name], [node.name for node in rest])

    def tap(source, datagram):
        header = wire.open_datagram(datagram, source.stack.group)
        if source is first and header.kind == INSTALL:
            world.partition([first.name, second.name], [third.name])
            world.cut -= {(one, other) for one in (third.name, *(node.name for node in rest))
                          for other in (third.name, *(node.name for node in rest))}
            world.tap = None

    world.tap = tap
    world.run(6000)
    assert world.tap is None
    return world, {first.name, second.name}, {third.name, *(node.name for node in rest)}


def test_who_missed_an_install_makes_no_second_primary_view():
    world, some, others = cut_off_in_the_middle()
    assert {world[name].view.names for name in others} == {world[min(others)].view.names}
    assert set(world[min(others)].view.names) == others
    assert sends(world) == some
    world.cut.clear()
    assert world.run_until_one(5000) is not None
    assert sends(world) == some | others
    check(world)


def test_a_first_view_that_somebody_may_have_is_before_the_one_that_follows_it():
    """A coordinator has the first view, and is cut off. The two others, who reported to
    it and have no view, form one with three who come. It follows that first view. If
    its id were lower, the first one would count as the later one, and the coordinator
    and one of the two would be primary beside the three."""
    for seed in range(10):
        world = World(seed, min_members=3, **PRIMARY).start(*"ABC")
        cut_off = []

        def tap(source, datagram, world=world, cut_off=cut_off):
            if wire.open_datagram(datagram, source.stack.group).kind == INSTALL:
                cut_off.append(source.name)
                world.partition(source.name, set("ABCDEF") - {source.name})
                world.tap = None

        world.tap = tap
        world.run(1500)
        world.start(*"DEF")
        world.run(1500)
        (first,), (second, third) = cut_off, sorted(set("ABC") - set(cut_off))
        assert sends(world) == {second, third, *"DEF"}
        world[third].crash()
        world.partition(second, "DEF")
        world.cut -= {(first, second), (second, first)}
        world.run(5000)
        assert sends(world) == set("DEF")
        check(world)
