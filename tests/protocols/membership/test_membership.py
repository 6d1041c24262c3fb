"""The membership layer alone: groups form, agree, heal, and exclude whom they
should."""

from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
from membership_world import MS, Node, World

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.errors import ConfigError
from ringcast.protocols.membership import discovery
from ringcast.protocols.membership.detection import WATCHERS
from ringcast.protocols.membership.messages import ALIVE, INSTALL, PRESENT, SEEK, Present, Seek

FIVE = "ABCDE"


def formed(seed=0, names=FIVE, **options):
    world = World(seed, **options).start(*names)
    assert world.run_until_one(5000) is not None
    return world


def large(count):
    return formed(7, [f"m{number}" for number in range(count)])


def oldest(world):
    return world[world.living()[0].view.coordinator.name]


def check_histories(nodes):
    """Ids grow, one id means one list of members, and everybody is in its own views."""
    members = {}
    for node in nodes:
        assert all(before.id < after.id for before, after in pairwise(node.views))
        for view in node.views:
            assert node.address in view
            assert members.setdefault(view.id, view.members) == view.members


def views(world):
    return {node.name: len(node.views) for node in world.nodes.values()}


# ------------------------------------------------------------------------------------------ forming

def test_a_member_that_is_alone_forms_a_group_of_one_after_the_margin():
    world = World().start("A")
    assert world.run_until_one(5000) == pytest.approx(300, abs=2)
    assert world["A"].view.primary and world["A"].view.joined == (world["A"].address,)


def test_a_member_that_is_alone_looks_for_no_next_one():
    """It wakes only to say that it is there. In a small group, a member looks several
    times as often if the next one is gone."""
    world = World().start("A")
    assert world.run_until_one(1000) is not None
    detection = world["A"].layer.detection
    assert detection.deadline() == detection.next_beat
    world.start("B")
    assert world.run_until_one(1000) is not None
    assert detection.deadline() == detection.next_nudge < detection.next_beat


def test_what_is_left_unread_keeps_a_group_from_forming_but_not_for_ever():
    """Anybody can fill a socket."""
    world = World().start("A")
    leave_unread = partial(world["A"].stack.receive, [], emptied=False)
    for milliseconds in range(0, 20_000, 100):
        world.at(milliseconds * MS, lambda: leave_unread(now=world.now))
    world.run(5000)
    assert world["A"].view is None
    assert world.run_until_one(5000) == pytest.approx(300, abs=10)


def test_members_that_start_together_form_one_view_at_once():
    world = formed(names=[f"m{number}" for number in range(10)])
    assert set(views(world).values()) == {1}
    assert world.now <= 1000 * MS


@pytest.mark.parametrize("spread", [0, 50, 300, 2000])
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.prove)
                                        for first in range(25, 250, 25))])
def test_no_group_splits_however_its_members_start(spread, first):
    """A thousand groups, in all."""
    for seed in range(first, first + 25):
        world = World((spread, seed), loss=0.1)
        world.start(*(f"m{number}" for number in range(10)), within=spread)
        assert world.run_until_one(8000) is not None, seed
        assert not any(view.subgroups for node in world.nodes.values() for view in node.views), seed
        check_histories(world.nodes.values())


def test_a_group_forms_though_a_third_of_everything_is_lost():
    for seed in range(10):
        world = World(seed, loss=0.3).start(*(f"m{number}" for number in range(10)), within=500)
        assert world.run_until_one(3000) is not None, seed


class SlowLinks(World):
    """Members that reach each other one after the other, as over connections, and are
    slow to answer."""

    def __init__(self, seed):
        super().__init__(seed, delay=(10 * MS, 200 * MS))
        self.ready_at = {}

    def put(self, source, dest, datagram):
        self.cut = {(source.name, name) for name in self.nodes if self.now < (
            self.ready_at.setdefault(frozenset((source.name, name)),
                                     self.rng.random() * 1500 * MS))}
        super().put(source, dest, datagram)


def test_many_coordinators_do_not_outbid_each_other():
    """Several groups form, because not everybody is heard at first."""
    for seed in range(4):
        world = SlowLinks(seed).start(*(f"m{number}" for number in range(30)))
        assert world.run_until_one(5000) is not None, seed
        check_histories(world.nodes.values())


def test_no_group_forms_before_there_are_min_members():
    world = World(min_members=3).start("A", "B")
    world.run(3000)
    assert world["A"].view is None
    world.start("C")
    assert world.run_until_one(1000) is not None


def test_a_hundred_that_start_at_once_form_one_view_and_notice_who_dies():
    """So many that each is watched by ten others."""
    world = World(loss=0.1).start(*(f"m{number}" for number in range(100)))
    assert world.run_until_one(1000) is not None
    assert set(views(world).values()) == {1}
    assert {len(watchers) for node in world.nodes.values()
            for watchers in node.layer.detection.watchers.values()} == {WATCHERS}
    dead = {oldest(world).name, "m1", "m2"}
    for name in dead:
        world[name].crash()
    world.run(10_000)
    assert {tuple(sorted(node.view.names)) for node in world.living()} == {
        tuple(sorted(world.nodes.keys() - dead))}
    check_histories(world.nodes.values())


CROWD = 12


@pytest.fixture
def crowd(monkeypatch):
    """A world in which a few are a crowd, that wait for one more."""
    monkeypatch.setattr(discovery, "SHARE", 3 * MS)     # 400 ms between two SEEKs to everybody
    return World(1, seek_interval=50, min_members=CROWD + 1)


def test_in_a_crowd_a_seek_to_everybody_is_rare(crowd):
    """Each is work for everybody."""
    said = Counter()

    def tap(node, datagram):
        if datagram[3] == SEEK:
            said[int.from_bytes(datagram[16:24], "little")] += 1

    crowd.start(*(f"m{number}" for number in range(CROWD)))
    crowd.run(100)
    crowd.tap = tap
    crowd.run(800)
    lowest = min(node.address.incarnation for node in crowd.nodes.values())
    assert said.keys() == {EVERYONE, lowest}
    assert said[EVERYONE] <= 3 * CROWD + 800 / 50 + 1       # the lowest says it as before
    assert said[lowest] >= (CROWD - 1) * (800 / 50 - 3)
    crowd.tap = None
    crowd.start("last")
    assert crowd.run_until_one(500) is not None


def test_in_a_crowd_too_a_lost_seek_is_soon_said_again_to_who_forms_the_group(crowd):
    names = [f"m{number}" for number in range(CROWD + 1)]
    crowd.start(*names)
    lowest = min(names, key=lambda name: crowd[name].address.incarnation)
    other = next(name for name in names if name != lowest)
    crowd.cut = {(other, lowest)}
    crowd.run(60)
    crowd.cut = set()
    assert crowd.run_until_one(420) is not None


@pytest.mark.parametrize("seed", range(4))
def test_a_group_forms_as_soon_as_there_are_enough_for_one_of_those_who_seek(seed):
    world = World(seed).start("A", min_members=3).start("B", min_members=4)
    world.run(1000)
    world.start("C", min_members=2)
    assert world.run_until_one(1000) is not None
    assert all(len(node.view) == 3 for node in world.living())


def test_the_oldest_member_comes_first_and_coordinates():
    world = formed(names="A")
    for name in "BCD":
        world.start(name)
        assert world.run_until_one(1000) is not None
    assert world["D"].view.names == tuple("ABCD")
    assert world["D"].view.coordinator == world["A"].address
    assert world["A"].view.joined == (world["D"].address,)


def test_members_with_other_terms_are_not_let_in():
    world = formed(names="A")
    world.start("B")
    world["B"].layer.meeting.terms = {"stack": "glass"}
    world.run(2000)
    assert world["B"].fault == ("'A' has stack='paper' and this member, 'B', has stack='glass'; "
                                "give all members of the group the same stack")
    assert world["A"].view.names == ("A",)


def test_a_name_that_is_taken_is_refused_and_one_whose_owner_died_is_not():
    world = formed()
    former = world["B"]
    world.nodes["former"] = former
    world.start("B")
    world.run(3000)
    assert world["B"].fault == ("another member has the name 'B'; give every member its own name")
    assert former.fault is None and views(world)["A"] == 1
    former.crash()
    world.start("B")
    assert world.run_until_one(1000) is not None


# ----------------------------------------------------------------------------------- leaving, dying

def test_a_leaver_is_out_in_one_view_and_knows_it():
    world = formed(loss=0.2)
    world["C"].leave()
    world.run(500)
    assert world["C"].layer.has_left
    world["C"].crash()
    assert world.run_until_one(1000) is not None
    assert world["A"].view.left == (world["C"].address,)
    assert world["A"].view.departed == {world["C"].address: 0}


def test_a_coordinator_may_leave_and_so_may_all():
    world = formed()
    for _ in range(5):
        node = oldest(world)
        node.leave()
        world.run(300)
        assert node.layer.has_left
        node.crash()
    assert not world.living()


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("milliseconds", range(0, 150, 5))
def test_who_leaves_while_it_joins_holds_nobody_up(milliseconds, durable):
    """Its way to the others takes 20 ms: they are in the middle of the change that lets
    it in, or have just installed that view."""
    world = formed("ABC", delay=(20 * MS, 20 * MS))
    world.start("J", durable=durable).run(milliseconds)
    world["J"].leave()
    world.run(1)
    world["J"].crash()
    world.run(300)
    assert world.is_one() and not any(node.layer.coordinator.is_changing
                                      or not node.layer.agreed() for node in world.living())
    assert world["A"].view.absent == ()


@pytest.mark.parametrize("who", ["the coordinator", "another"])
def test_a_member_that_vanishes_is_excluded_within_three_seconds(who):
    world = formed()
    node = oldest(world) if who == "the coordinator" else world[oldest(world).view.names[2]]
    node.crash()
    assert world.run_until_one(3000) is not None
    assert views(world)[world.living()[0].name] == 2


def test_a_member_that_is_refused_is_excluded_within_100_milliseconds():
    world = formed()
    world["B"].crash()
    witness = next(node for node in world.living())
    witness.stack.refused([world["B"].address.incarnation], world.now)
    witness.end_turn()
    assert world.run_until_one(100) is not None


def refuse_of_the_dead(world):
    """Refuse datagrams to one member that is dead, as its machine would; never
    multicasts."""
    put = world.put

    def put_or_refuse(source, dest, datagram):
        put(source, dest, datagram)
        physical = source.routes.get(dest)
        if any(node.physical == physical for node in world.nodes.values() if not node.alive):
            world.at(world.now + MS // 10, refuse, source, dest)

    def refuse(source, dest):
        if source.alive:
            source.stack.refused([dest], world.now)
            source.end_turn()

    world.put = put_or_refuse


@pytest.mark.parametrize("size", [2, 3, 5, 10])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_process_that_dies_in_a_group_that_says_nothing_is_out_in_100_milliseconds(size, place):
    world = formed(names="ABCDEFGHIJ"[:size])
    refuse_of_the_dead(world)
    world.run(500)
    world[oldest(world).view.names[place]].crash()
    assert world.run_until_one(100) is not None


def test_two_neighbours_that_die_together_are_found_one_after_the_other():
    world = formed(names="ABCDE")
    refuse_of_the_dead(world)
    world.run(500)
    for name in oldest(world).view.names[1:3]:
        world[name].crash()
    assert world.run_until_one(200) is not None


def exclude(world, by, name):
    world[by].layer.exclude(name, world.now)
    world[by].end_turn()


@pytest.mark.parametrize("by", ["the coordinator", "another"])
@pytest.mark.parametrize("who", ["the coordinator", "another"])
@pytest.mark.parametrize("loss", [0, 0.3])
def test_an_operator_excludes_at_any_member(by, who, loss):
    world = formed(loss=loss, suspect_timeout=1e6)      # nobody finds out by himself
    names = list(oldest(world).view.names)
    victim = names.pop(0 if who == "the coordinator" else 3)
    operator = names[0 if by == "the coordinator" else 2]
    if by == who == "the coordinator":
        operator = names[0]                             # coordinates when the victim is gone
    world[victim].crash()
    world.run(1000)
    assert set(views(world).values()) == {1}
    exclude(world, operator, victim)
    assert world.run_until_one(1000) is not None
    assert all(node.view.left == (world[victim].address,) for node in world.living())


@pytest.mark.parametrize("who", ["the coordinator", "another"])
def test_a_member_that_was_excluded_while_it_lived_comes_back(who):
    world = formed()
    names = oldest(world).view.names
    victim, operator = (names[0], names[4]) if who == "the coordinator" else (names[2], names[4])
    exclude(world, operator, victim)
    world.run(50)
    assert world.run_until_one(5000) is not None
    assert [view.left for view in world[operator].views] == [(), (world[victim].address,), ()]
    check_histories(world.nodes.values())


@pytest.mark.parametrize("pause", [0.01, 1, 20, 50])
def test_however_often_somebody_seeks_with_its_name_a_member_stays(pause):
    world = formed(names="ABC")
    namesake = Node(world, "A")
    world.nodes["another A"] = namesake
    seek = Seek("A", namesake.physical, {"stack": "paper"}, 1)
    for _ in range(20):
        namesake.layer.send_control(SEEK, seek, EVERYONE, world.now)
        namesake.end_turn()
        world.run(pause)
    del world.nodes["another A"]
    world.run(1000)
    assert [len(node.views) for node in world.living()] == [1, 1, 1]


def test_only_a_member_can_be_excluded():
    world = formed(names="AB")
    with pytest.raises(ConfigError, match="'C' is not in the view, which has "):
        world["A"].layer.exclude("C", world.now)


@pytest.mark.parametrize("interval", [0, 1, 10])        # milliseconds
def test_a_forged_refusal_excludes_nobody(interval):
    world = formed(names="AB")
    for _ in range(20):
        for node, other in (world["A"], world["B"]), (world["B"], world["A"]):
            node.stack.refused([other.address.incarnation], world.now)
            node.end_turn()
        if interval:
            world.run(interval)
    world.run(1000)
    assert set(views(world).values()) == {1}


STEPS = ["prepare", "report", "install", "installed"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("change", ["join", "leave", "death"])
@pytest.mark.parametrize("whose", ["the coordinator", "another"])
def test_whoever_dies_at_whatever_step_the_rest_has_one_view(change, step, when, whose):
    for nth in (1, 2, 3):
        world = formed((step, when, change, nth), suspect_timeout=300, heartbeat_interval=50)
        kill_at(world, step, when, whose, nth)
        victim = world[oldest(world).view.names[3]]
        if change == "join":
            world.start("F")
        else:
            {"leave": victim.leave, "death": victim.crash}[change]()
        everybody = list(world.nodes.values())
        world.run(500)
        if victim.layer.has_left:
            victim.crash()
        assert world.run_until_one(8000) is not None
        check_histories([*everybody, *world.nodes.values()])


def kill_at(world, step, when, whose, nth):
    """Kill the first member that sends a datagram of this kind for the nth time, before
    or after it leaves."""
    coordinator = oldest(world)
    count = 0

    def tap(node, datagram):
        nonlocal count
        kind = node.stack.kind(wire.open_datagram(datagram, node.stack.group).kind).name
        if kind != step or (node is coordinator) != (whose == "the coordinator"):
            return
        count += 1
        if count == nth and node.alive:
            if when == "before":
                node.crash()
            else:
                world.at(world.now, node.crash)

    world.tap = tap


# ------------------------------------------------------------------------------- pauses, partitions

@pytest.mark.parametrize("seconds", [5, 30])
@pytest.mark.parametrize("who", ["the coordinator", "another"])
def test_a_member_that_was_paused_is_out_learns_it_and_is_back(who, seconds):
    world = formed()
    node = oldest(world) if who == "the coordinator" else world[oldest(world).view.names[2]]
    others = [each for each in world.nodes.values() if each is not node]
    node.pause(1000 * seconds)
    world.run(1000 * seconds)
    assert all(node.address not in each.view for each in others)
    assert len({each.view for each in others}) == 1
    assert world.run_until_one(1000) is not None
    assert node.views[1].members == (node.address,)     # the others are gone, then all are there
    assert not node.views[1].primary and node.views[2].primary
    check_histories(world.nodes.values())


def test_a_short_pause_and_a_clock_that_jumps_exclude_nobody():
    world = formed()
    world["B"].pause(1000)
    world.run(3000)
    for node in world.nodes.values():
        node.pause(10_000)                              # all at once: a machine that slept
    world.run(30_000)
    assert set(views(world).values()) == {1}


def test_both_sides_of_a_partition_go_on_and_become_one_within_two_seconds():
    for seed in range(5):
        world = formed(seed)
        world.partition("AB", "CDE")
        world.run(5000)
        assert {world[name].view.primary for name in "AB"} == {False}
        assert {world[name].view.primary for name in "CDE"} == {True}
        assert len({world[name].view for name in "AB"}) == 1
        world.cut.clear()
        assert world.run_until_one(2000) is not None
        view = world["A"].view
        assert sorted(sorted(member.name for member in group) for group in view.subgroups) == [
            ["A", "B"], ["C", "D", "E"]]
        assert view.primary
        check_histories(world.nodes.values())


@pytest.mark.parametrize("parts", [("AB", "CDE"), ("A", "BCDE"), ("ABCD", "E")])
def test_a_group_that_comes_apart_again_and_again_is_one_as_quickly_each_time(parts):
    for seed in range(3):
        world = formed(seed)
        for _ in range(8):
            world.partition(*parts)
            world.run(4000 + world.rng.randint(0, 1000))
            world.cut.clear()
            assert world.run_until_one(2000) is not None
            world.run(world.rng.randint(0, 1000))


@pytest.mark.parametrize("cut", ["hears nobody", "is heard by nobody"])
def test_a_member_that_is_cut_off_one_way_goes_alone_and_once(cut):
    world = formed()
    world.cut = {("A", other) if cut == "is heard by nobody" else (other, "A") for other in "BCDE"}
    world.run(60_000)
    assert world["A"].view.names == ("A",)
    assert len({world[name].view for name in "BCDE"}) == 1
    assert set(views(world).values()) == {2}
    world.cut.clear()
    assert world.run_until_one(2000) is not None


def test_one_broken_path_excludes_one_member_and_does_not_flap():
    world = formed()
    world.cut = {("A", "B")}
    world.run(300_000)
    changes = max(views(world).values()) - 1
    assert 1 <= changes <= 12
    world.cut.clear()
    assert world.run_until_one(310_000) is not None
    check_histories(world.nodes.values())


def test_members_that_come_and_go_make_no_partition_last_longer():
    world = formed()
    for number in range(8):
        world.start(f"guest {number}").run(1500)
        world[f"guest {number}"].leave()
        world.run(1500)
        world[f"guest {number}"].crash()
    for _ in range(2):
        world.partition("AB", "CDE")
        world.run(4000)
        world.cut.clear()
        assert world.run_until_one(2000) is not None


def test_two_that_do_not_hear_each_other_do_not_make_all_others_change_their_view():
    """All others hear both, so the groups meet again and again, and part again."""
    world = formed()
    world.cut = {("C", "D"), ("D", "C")}
    world.run(300_000)
    assert 2 <= max(views(world).values()) - 1 <= 30
    world.cut.clear()
    assert world.run_until_one(310_000) is not None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_group_is_one_in_the_end(seed):
    world = World(seed, loss=0.1, suspect_timeout=400, heartbeat_interval=50)
    world.start(*"ABCDEF", within=200)
    everybody = list(world.nodes.values())
    for _ in range(12):
        world.run(world.rng.randint(1, 1500))
        living = world.living()
        what = world.rng.choice(["crash", "start", "leave", "pause", "cut", "one way", "heal"])
        if what == "crash" and len(living) > 1:
            world.rng.choice(living).crash()
        elif what == "start":
            name = world.rng.choice("ABCDEFG")
            if name not in world.nodes or not world[name].alive:
                world.start(name)
                everybody.append(world[name])
        elif what == "leave" and living:
            world.rng.choice(living).leave()
        elif what == "pause" and living:
            world.rng.choice(living).pause(world.rng.choice([50, 500, 3000]))
        elif what == "cut":
            some = world.rng.sample("ABCDEFG", 3)
            world.partition(some, [name for name in "ABCDEFG" if name not in some])
        elif what == "one way":
            world.cut.add(tuple(world.rng.sample("ABCDEFG", 2)))
        elif what == "heal":
            world.cut.clear()
    world.cut.clear()
    world.loss = 0
    world.run(10_000)
    for node in everybody:
        if node.layer.has_left:
            node.crash()
    assert world.run_until_one(30_000) is not None
    check_histories(everybody)


def test_nobody_is_excluded_in_an_hour_of_ten_members_that_lose_a_third():
    world = formed(names=[f"m{number}" for number in range(10)], loss=0.3)
    world.run(360_000)          # the hour is run with `make prove`
    assert max(views(world).values()) == min(views(world).values())
    assert world["m0"].view.names and len(world["m0"].view) == 10


def test_fifty_members_form_one_view_and_say_little():
    world = large(50)
    before, sent_before, began = world.num_bytes, world.num_sent, world.now
    world.run(10_000)
    headers = 28 * (world.num_sent - sent_before)       # of IPv4 and UDP
    sent = (world.num_bytes - before + headers) / 50 / ((world.now - began) / 1e9)
    assert sent < 1000                                  # bytes a second of one member


def beats(world, milliseconds):
    """Return when each member says ALIVE, in nanoseconds, by its name."""
    said = {name: [] for name in world.nodes}
    world.tap = lambda node, datagram: datagram[3] == ALIVE and (
        said[node.name][-1:] != [world.now]) and said[node.name].append(world.now)
    world.run(milliseconds)
    world.tap = None
    return said


@pytest.mark.parametrize("count", [11, 60])
def test_the_members_of_a_large_view_say_alive_when_the_coordinator_does(count):
    world = large(count)
    world.run(500)
    leader = oldest(world).name
    said = beats(world, 2000)
    assert 9 <= len(said[leader]) <= 11
    for times in said.values():
        assert all(min(at - each for each in said[leader] if each <= at) <= 200_000
                   for at in times if at >= said[leader][0])
        assert abs(len(times) - len(said[leader])) <= 1


def test_without_its_coordinator_a_large_view_says_alive_a_little_later():
    world = large(11)
    leader = oldest(world).name
    world[leader].pause(1600)
    said = beats(world, 1500)
    assert not said.pop(leader)
    interval = world["m0"].layer.detection.interval
    for times in said.values():
        pauses = [later - sooner for sooner, later in pairwise(times)]
        assert pauses and min(pauses) > 1.2 * interval and max(pauses) < 1.3 * interval
    world.run(3000)
    assert set(views(world).values()) == {1}


@pytest.mark.parametrize("age, most", [(0, 16), (5, 11)])
def test_who_forges_a_member_makes_nobody_say_alive_much_more_often(age, most):
    """The coordinator's ALIVE makes others say it sooner, but not any member's."""
    world = large(11)
    forged = world[world["m0"].view.members[age].name]

    def forge():
        forged.layer.settling.say(EVERYONE, world.now)
        forged.end_turn()

    for number in range(400):
        world.at(world.now + number * 5 * MS, forge)
    others = [times for name, times in beats(world, 2000).items() if name != forged.name]
    assert all(9 <= len(times) <= most for times in others)


# ------------------------------------------------------------------ who is heard and does not hear

def share_in_changes(world, names, milliseconds):
    """Return the largest share of the time in which one of these members has promised a
    view that it does not have: then it is given nothing."""
    waiting = dict.fromkeys(names, 0)
    for _ in range(milliseconds // 50):
        world.run(50)
        for name in names:
            waiting[name] += world[name].layer.promised > world[name].layer.view_id
    return max(waiting.values()) * 50 / milliseconds


def test_one_that_does_not_hear_a_group_does_not_keep_it_from_going_on():
    world = World(seed=1).start("A", "B", "C")
    assert world.run_until_one(5000) is not None
    world.cut |= {(name, "X") for name in "ABC"}
    world.start("X", min_members=2)
    assert share_in_changes(world, "ABC", 60_000) < 0.15
    world.cut.clear()
    assert world.run_until_one(15_000) is not None


def test_two_parts_that_cannot_become_one_go_on():
    """The leader of one is not heard by one member of the other."""
    world = World(seed=0, delay=(100_000, 200_000))
    world.partition("ABC", "YM")
    world.start(*"ABCYM").run(2000)
    leader, other = (world[name].view.members[0].name for name in "AY")
    mute = next(name for name in "YM" if name != other)
    world.cut = {(leader, mute)}
    assert share_in_changes(world, "ABCYM", 60_000) < 0.2
    world.cut.clear()
    assert world.run_until_one(20_000) is not None


# --------------------------------------------------------------------------------- one name twice

@pytest.mark.parametrize("others", ["", "A"])
@pytest.mark.parametrize("seed", range(3))
def test_of_two_that_come_at_once_with_one_name_one_goes_on(seed, others):
    world = World(seed=seed)
    one, two = Node(world, "P"), Node(world, "P")
    world.nodes |= {"P one": one, "P two": two}
    for node in (one, two):
        node.start()
    world.start(*others).run(5000)
    winner, loser = sorted((one, two), key=lambda node: node.address.incarnation)
    assert winner.fault is None and winner.address in winner.view
    assert "another member has the name 'P'" in loser.fault


def test_two_that_come_at_once_with_the_name_of_a_member_do_not_stop_it():
    world = formed(names="ABP")
    new = [Node(world, "P") for _ in range(2)]
    for number, node in enumerate(new):
        world.nodes[f"P{number}"] = node
        node.start()
    world.run(5000)
    assert all("another member has the name 'P'" in node.fault for node in new)
    forged = Present("Z", "Z.1", {"stack": "paper"}, 1, 3, new[0].address.incarnation, "P")
    world["P"].arrive(new[0].stack.control(PRESENT, forged).data)
    world.run(1000)
    assert world["P"].fault is None and world["P"].alive


# ---------------------------------------------------------------------------- who is expected back

def test_a_member_of_its_name_that_is_not_durable_does_not_replace_an_absent_one():
    """It comes with another part of the group."""
    world = World(seed=3, absence=3600).start("A", "B").start("P", durable=True)
    assert world.run_until_one(5000) is not None
    absent = world.nodes.pop("P")
    absent.crash()
    world.run(5000)
    world.partition("AB", "CP")
    world.start("C", "P").run(3000)
    world.cut.clear()
    assert world.run_until_one(20_000) is not None
    assert world["A"].view.absent == (absent.address,) and not world["A"].paper.agreed[-1].back


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_absent_member_is_excluded_also_while_a_view_is_on_its_way(is_busy):
    """B's operator says so, when A has the view and B has not."""
    world = World(seed=3, absence=3600, delay=(1_000_000, 1_000_001)).start("A")
    world.run(600)
    world.start("B", "C").start("P", durable=True)
    assert world.run_until_one(5000) is not None and world["A"].view.coordinator.name == "A"
    world.nodes.pop("P").crash()
    world.run(5000)
    said = []

    def exclude():
        world["B"].layer.exclude("P", world.now)
        world["B"].end_turn()

    def tap(node, datagram):
        if node is world["A"] and datagram[3] == INSTALL and not said:
            said.append(world.at(world.now + MS // 10, exclude))

    if is_busy:
        world.tap = tap
        world.start("D")
    else:
        exclude()
    world.run(10_000)
    assert not world["A"].view.absent and not world["B"].view.absent
    assert len(said) == is_busy
