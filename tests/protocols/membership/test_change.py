"""One view change, as its coordinator decides it; and what members do that others must
not take for the whole truth."""

import pytest
from membership_world import MS, World
from msgspec.structs import replace

from ringcast._core import wire
from ringcast.protocols.membership.change import LEAST_PAUSE, MOST_PAUSE, Change
from ringcast.protocols.membership.coordinator import MAKER, finishing
from ringcast.protocols.membership.layer import WAIT
from ringcast.protocols.membership.messages import (
    INSTALL,
    MAX_STREAMS,
    PREPARE,
    SUSPECTS,
    Install,
    Prepare,
    Report,
    Seat,
    Suspects,
)
from ringcast.protocols.membership.primary import Verdict
from ringcast.protocols.membership.sense import COUNTER

WINDOW, NOT_PRIMARY = 8, Verdict(False, [])
BEFORE, NEXT = 1 << 32, 2 << 32


def seat(number, before=BEFORE):
    return Seat(f"m{number}", number, "x", before)


def change(*members):
    return Change(NEXT, [seat(member) for member in members], {}, 0, WINDOW)


def reported(change, digests):
    """Let members report."""
    for member, digest in digests.items():
        change.reports[member] = Report(NEXT, BEFORE, digest, [])
    return change


def test_the_cut_is_the_highest_of_all_reports_and_its_reporter_holds_it():
    attempt = reported(change(1, 2), {1: {1: 5, 2: 7, 3: 1}, 2: {1: 5, 2: 7, 3: 4}})
    install = attempt.decide(None, NOT_PRIMARY)
    assert [seat.cut for seat in install.seats] == [5, 7]
    assert [(gone.incarnation, gone.cut, gone.holder) for gone in install.gone] == [(3, 4, 2)]


def test_an_observer_holds_only_what_nobody_else_has():
    """Others would wait for it."""
    for cut, holder in [(4, 2), (5, 1)]:
        attempt = Change(NEXT, [replace(seat(1), observes=True), seat(2)], {}, 0, WINDOW)
        reported(attempt, {1: {1: 0, 2: 0, 3: cut}, 2: {1: 0, 2: 0, 3: 4}})
        gone, = attempt.decide(None, NOT_PRIMARY).gone
        assert (gone.cut, gone.holder) == (cut, holder)


@pytest.mark.parametrize("begins", [{1: 4, 2: 7}, {1: 7, 2: 4}, {1: 4}, {2: 4}])
def test_a_stream_that_nobody_reports_and_somebody_lacks_ends_where_it_begins(begins):
    """It begins there for who came first. If somebody reports it, it ends there."""
    for digest, end, holder in [({}, 4, 1 if begins.get(1) == 4 else 2), ({3: 9}, 9, 1)]:
        attempt = reported(change(1, 2), {1: {1: 0, 2: 0, **digest}, 2: {1: 0, 2: 0}})
        for member, begin in begins.items():
            attempt.reports[member].lacking[3] = begin
        gone, = attempt.decide(None, NOT_PRIMARY).gone
        assert (gone.incarnation, gone.cut, gone.holder, gone.over) == (3, end, holder, False)


@pytest.mark.parametrize("lacking", [{}, {3: 1}])
def test_what_only_an_observer_reports_is_over_unless_somebody_lacks_it(lacking):
    attempt = Change(NEXT, [replace(seat(1), observes=True), seat(2)], {}, 0, WINDOW)
    reported(attempt, {1: {1: 0, 2: 0, 3: 4}, 2: {1: 0, 2: 0}}).reports[2].lacking |= lacking
    gone, = attempt.decide(None, NOT_PRIMARY).gone
    assert (gone.cut, gone.holder, gone.over) == (4, 1, not lacking)


def test_nobody_can_have_more_than_a_window_beyond_what_the_sender_has_reported():
    """One report far ahead would have all wait for what is never sent."""
    for far in (5 + WINDOW + 1, 1 << 40, (1 << 63) + 4):
        attempt = reported(change(1, 2), {1: {1: 5, 2: 0}, 2: {1: far, 2: 0}})
        assert attempt.decide(None, NOT_PRIMARY).seats[0].cut == 5, far
    attempt = reported(change(1, 2), {1: {1: 5, 2: 0}, 2: {1: 5 + WINDOW, 2: 0}})
    assert attempt.decide(None, NOT_PRIMARY).seats[0].cut == 5 + WINDOW


def test_departed_senders_that_one_member_makes_up_keep_no_view_from_being_read():
    """An INSTALL of more than it may have is decoded by nobody."""
    world = World(5).start(*"ABCDE")
    assert world.run_until_one(5000) is not None
    world.run(500)
    names = world["A"].view.names
    world[names[2]].paper.has = dict.fromkeys(range(1000, 999 + MAX_STREAMS), 0)
    for name in names[3:]:
        world[name].crash()
    world.run(10_000)
    assert world.is_one() and {node.layer.num_views for node in world.living()} <= {2, 3}
    departed = {world[name].address.incarnation for name in names[3:]}
    assert departed <= world[names[0]].paper.agreed[1].cuts.keys()


def test_what_a_coordinator_that_died_has_begun_is_finished_first():
    """Member 1 has installed a view that 2, who is in it, has not."""
    begun = Install(NEXT - 1, [seat(1), seat(2)], [], [])
    attempt = change(1, 2)
    attempt.reports[1] = Report(NEXT, begun.id, {1: 0}, [], False, begun)
    attempt.reports[2] = Report(NEXT, BEFORE, {2: 0}, [])
    assert attempt.unfinished(None) is begun
    attempt.reports[2] = Report(NEXT, begun.id, {2: 0}, [])
    assert attempt.unfinished(begun) is None


def test_who_has_gone_on_from_a_view_is_not_thought_to_come_from_it():
    """Only 1 will have installed it; 2 has installed a later one, and 3 is not in
    it."""
    begun = Install(NEXT - 1, [seat(1), seat(2)], [], [])
    seats = finishing([seat(1), seat(2, before=NEXT), seat(3)], begun)
    assert [each.before for each in seats] == [begun.id, NEXT, BEFORE]


def test_what_is_not_answered_is_repeated_ever_more_rarely():
    attempt, now, times = change(1, 2), 0, []
    while now < 10 * MOST_PAUSE:
        if attempt.is_repeat_due(now):
            times.append(now)
        now += MS
    pauses = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert pauses == sorted(pauses) and pauses[0] < pauses[-1] == MOST_PAUSE


def test_nothing_is_repeated_while_others_answer():
    """In a group of a hundred on two cores, who is missing is just about to."""
    attempt = change(*range(1, 9))
    assert attempt.is_repeat_due(0)
    for number in range(1, 8):
        now = (LEAST_PAUSE - MS) * number
        assert not attempt.is_repeat_due(now)
        attempt.note_answer(now)
        attempt.reports[number] = Report(NEXT, BEFORE, {number: 0}, [])
    assert not attempt.is_repeat_due(now + LEAST_PAUSE - 1)
    assert attempt.is_repeat_due(now + LEAST_PAUSE)


# --------------------------------------------------------------------------------------- in a group

def formed(names="ABCDE", **options):
    world = World(3, **options).start(*names)
    assert world.run_until_one(5000) is not None
    world.run(500)
    return world


def others(world):
    """Return the members that do not coordinate, the oldest first."""
    return [world[name] for name in world["A"].view.names[1:]]


def num_views(world):
    return {len(node.views) for node in world.nodes.values()}


def test_a_group_is_settled_only_when_all_have_what_comes_before():
    world = World(3).start(*"ABC")
    slow = world["B"].paper
    slow.complete = False
    world.run(3000)
    assert [node.paper.num_settled for node in world.nodes.values()] == [0, 0, 0]
    slow.complete = True
    world.run(500)
    assert [node.paper.num_settled for node in world.nodes.values()] == [1, 1, 1]


def test_a_leave_that_is_lost_is_said_again():
    world = formed()
    leaver = others(world)[1]
    world.cut = {(leaver.name, name) for name in world.nodes}
    leaver.leave()
    world.run(1)
    world.cut.clear()
    world.run(1000)
    assert leaver.layer.has_left


def test_a_silent_member_that_answers_a_probe_is_suspected_by_nobody():
    world = formed()
    others(world)[1].pause(2100)
    world.run(5000)
    assert num_views(world) == {1}
    assert sum(node.layer.detection.num_probes for node in world.nodes.values()) > 0
    assert not any(node.layer.detection.num_suspected for node in world.nodes.values())


def test_one_whose_datagram_is_refused_is_probed_before_it_is_suspected():
    world = formed("AB")
    for node, other in (world["A"], world["B"]), (world["B"], world["A"]):
        node.stack.refused([other.address.incarnation], world.now)
        node.end_turn()
        assert not node.layer.detection.silent and node.layer.detection.num_probes == 1
    world.run(1000)
    assert num_views(world) == {1}
    assert {node.layer.detection.num_probes for node in world.nodes.values()} == {1}


@pytest.mark.parametrize("events", ["refused, told", "told, refused"])
def test_a_refusal_is_enough_where_another_member_suspects_the_same(events):
    """Neither of the two alone is."""
    world = formed("ABC")
    witness, other = world["A"], world["B"].address.incarnation
    for event in events.split(", "):
        assert not witness.layer.detection.silent
        if event == "refused":
            witness.stack.refused([other], world.now)
        else:
            witness.layer.detection.take(world["C"].address.incarnation, [other], world.now)
    assert witness.layer.detection.silent == {other}


def test_what_comes_late_of_a_dead_member_does_not_keep_it_in_the_view():
    """It waited in a socket, and whoever reads it believes that the member lives. The
    others repeat that they suspect it, and suspect_timeout is not waited for."""
    world = formed("ABCDE")
    *rest, dead = (world[name] for name in world["A"].view.names)
    dead.crash()
    for node in rest[:2]:
        node.stack.refused([dead.address.incarnation], world.now)
        node.end_turn()
    for _ in range(70):
        world.run(1)
        for node in rest[2:]:
            node.layer.detection.hear([dead.address.incarnation], world.now)
    world.run(330)
    assert all(dead.address not in node.view for node in rest)


def test_what_comes_late_of_a_dead_member_does_not_hide_that_it_refused():
    """The system may refuse no more: Linux sends one refusal a second."""
    world = formed("ABCDE")
    *rest, dead = (world[name] for name in world["A"].view.names)
    dead.crash()
    for node in rest:
        node.stack.refused([dead.address.incarnation], world.now)
        node.end_turn()
    for _ in range(30):
        world.run(1)
        for node in rest:
            node.layer.detection.hear([dead.address.incarnation], world.now)
    world.run(90)
    assert all(dead.address not in node.view for node in rest)


def test_one_whose_connection_breaks_and_is_made_again_is_suspected_by_nobody():
    world = formed("AB")
    witness, other = world["A"], world["B"].address.incarnation
    for _ in range(10):
        witness.stack.refused([other], world.now)
        witness.stack.linked([other], world.now)
        witness.end_turn()
    assert not witness.layer.detection.silent and witness.layer.detection.num_probes == 10


def test_a_member_that_was_paused_begins_to_listen_anew_and_probes_nobody():
    world = formed()
    late = others(world)[1]
    for node in world.nodes.values():
        node.pause(10_000)
    world.run(12_000)
    assert late.layer.detection.num_pauses == 1 and late.layer.detection.num_probes == 0


def test_one_suspicion_is_not_enough_against_a_member():
    """If the path from one member to another is broken, the one who hears nothing
    goes, and first."""
    world = formed()
    unheard, deaf = others(world)[1:3]
    world.cut = {(unheard.name, deaf.name)}
    while num_views(world) == {1}:
        world.run(1)
    world.run(100)
    assert deaf.address not in others(world)[0].view and unheard.address in others(world)[0].view


def forge(world, source, kind, body):
    """All others hear what `source` has not said."""
    datagram = source.stack.control(kind, body).data
    for node in world.nodes.values():
        if node is not source:
            node.arrive(datagram)


def test_one_suspicion_that_is_not_repeated_excludes_nobody():
    world = formed()
    slandered, slanderer = others(world)[:2]
    forge(world, slanderer, SUSPECTS, Suspects(world["A"].view.id, [
        slandered.address.incarnation]))
    world.run(10_000)
    assert num_views(world) == {1}


def join_unheard(world):
    """Let C come into the view of A and B, and never have the INSTALL, because the
    coordinator dies. Return who has the view."""
    coordinator, witness = world[world["A"].view.names[0]], others(world)[0]

    def die(node, datagram):
        kind = node.stack.kind(wire.open_datagram(datagram, node.stack.group).kind).name
        if kind == "report" and node is world["C"]:
            world.cut.add((coordinator.name, "C"))
        elif kind == "installed" and node is witness:
            coordinator.crash()

    world.tap = die
    world.start("C")
    while coordinator.alive:
        world.run(1)
    return witness


def test_who_never_had_the_install_does_not_keep_a_dead_coordinator_in_the_view():
    """It seeks, so it is alive, and suspects nobody: it has no view. It forms none, nor
    does D, because the witness tells them that there is one."""
    world = formed("AB", suspect_timeout=300, heartbeat_interval=50)
    witness = join_unheard(world)
    assert "C" in witness.view.names and world["C"].view is None
    world.start("D")
    assert world.run_until_one(2000) is not None


def test_who_went_with_others_does_not_keep_a_dead_coordinator_in_the_view():
    """It is alive, and says so in a view that is not ours and has a lower id. Ours is
    not primary: else the other one would be above it."""
    world = formed("ABEFG", suspect_timeout=1000, heartbeat_interval=50)
    for name in "EFG":
        world[name].crash()
    assert world.run_until_one(5000) is not None and not world["A"].view.primary
    world.partition("ABC", "D")
    world.start("D")
    world.run(1000)
    witness = join_unheard(world)
    world.run(WAIT / MS)                                # what it has promised is void
    world.cut -= {("C", "D"), ("D", "C")}
    while world["C"].view is None:
        world.run(1)
    assert set(world["C"].view.names) == {"C", "D"} and world["C"].view.id < witness.view.id
    world.cut.clear()
    assert world.run_until_one(5000) is not None


def next_view(world, kind, counter):
    """Return a PREPARE or an INSTALL for the members of the view, with an id so far
    above it."""
    before = world["A"].view.id
    seats = [Seat(node.name, node.address.incarnation, node.physical, before)
             for node in world.nodes.values()]
    return kind(before + (counter << COUNTER), seats, *([[], []] if kind is Install else []))


def test_a_coordinator_that_is_alive_without_our_view_is_not_waited_for_for_ever():
    """After forged datagrams C has a view far ahead, in which A is the oldest. A does
    not hear C, and goes on alone. Then A is in C's view and C is not in A's: each would
    wait for the other."""
    world = formed("AC", suspect_timeout=300, heartbeat_interval=50)
    coordinator, member = world[world["A"].view.names[0]], others(world)[0]
    world.cut.add((member.name, coordinator.name))
    for kind, body in ((PREPARE, next_view(world, Prepare, 9)),
                       (INSTALL, next_view(world, Install, 9))):
        member.arrive(coordinator.stack.control(kind, body).data)
        member.turn()
    while len(coordinator.view.names) > 1:
        world.run(1)
    assert len(member.view.names) == 2 and member.view.id > coordinator.view.id
    world.cut.clear()
    assert world.run_until_one(5000) is not None


def test_a_prepare_that_comes_late_takes_no_promise_back():
    """Else the member would not install what it has promised, and be excluded."""
    world = formed("ABC")
    coordinator, member = world[world["A"].view.names[0]], others(world)[0]
    later, late = next_view(world, Prepare, 2), next_view(world, Prepare, 1)
    for kind, body in ((PREPARE, later), (PREPARE, late),
                       (INSTALL, next_view(world, Install, 2))):
        member.arrive(coordinator.stack.control(kind, body).data)
        member.turn()
    assert member.view.id == later.id


def test_members_that_have_promised_a_view_that_never_comes_get_another_one():
    """Until then they deliver and purge nothing beyond their reports."""
    world = formed("ABC")
    forge(world, world[world["A"].view.names[0]], PREPARE, next_view(world, Prepare, 1))
    world.run(10)
    assert all(node.paper.frozen is not None for node in others(world))
    world.run(2000)
    assert all(node.paper.frozen is None for node in others(world)) and num_views(world) == {2}


def test_the_id_of_a_view_is_above_all_that_its_members_have_promised():
    world = formed("ABC")
    others(world)[0].arrive(others(world)[1].stack.control(
        PREPARE, next_view(world, Prepare, 5)).data)
    world.run(10)
    world.start("D")
    assert world.run_until_one(500) is not None


def test_who_cannot_finish_a_view_that_another_one_has_goes_another_way():
    """As if a hostile member had told one of the others a view, and kept its key from
    the rest."""
    world = formed("ABC")
    first, last = (world[name] for name in world["A"].view.names[::2])
    last.layer.rekeying.fits = lambda install: all(seat.name != "D" for seat in install.seats)
    world.start("D")
    world.tap = lambda node, datagram: datagram[3] == INSTALL and world["D"].crash()
    while "D" not in first.view.names:
        world.run(1)
    world.tap, before = None, first.layer.coordinator.num_changes
    assert "D" not in last.view.names
    first.layer.exclude("D", world.now)
    assert world.run_until_one(8000) is not None
    assert first.layer.coordinator.num_changes - before < 20


def test_the_id_of_a_view_says_who_made_it():
    """So no two coordinators make the same."""
    view = formed("AB")["A"].view
    assert view.id & MAKER == view.coordinator.incarnation & MAKER != 0


def test_a_coordinator_makes_no_id_twice():
    """What it has promised is void after a while, as it has no view. But others know
    the id, and hold its key."""
    world = World(min_members=2).start("A")
    layer = world["A"].layer
    seats = [Seat("A", layer.local.incarnation, "x", 0), seat(7, before=0)]
    made = []
    for _ in range(3):
        layer.coordinator.begin(seats, None, world.now)
        made.append(layer.coordinator.change.id)
    layer.coordinator.stop()
    world.run(WAIT / MS + 1)
    low = 1 << COUNTER | 7
    layer.take_prepare(7, Prepare(low, seats, None, []), world.now)
    assert layer.promised == low < made[0] < made[1] < made[2]
    layer.coordinator.begin(seats, None, world.now)
    assert layer.coordinator.change.id > made[2]


def slow_to_answer(world, names):
    """Have these members pause, each by 300 ms longer, as soon as they have heard
    PREPARE."""
    def tap(node, datagram):
        if datagram[3] == PREPARE and waiting:
            for number, name in enumerate(waiting, 1):
                world[name].pause(300 * number)
            waiting.clear()

    waiting, world.tap = sorted(names), tap


def test_the_first_view_waits_for_all_while_they_answer_one_by_one():
    world = World(3, min_members=6).start(*"ABCDEF")
    first = min("ABCDEF", key=lambda name: world[name].address.incarnation)
    slow_to_answer(world, set("ABCDEF") - {first})
    assert world.run_until_one(5000) is not None
    assert sum(world[name].layer.coordinator.num_changes for name in "ABCDEF") == 1


def test_a_view_waits_for_all_who_come_while_they_answer_one_by_one():
    world = formed("A")
    before = world["A"].layer.coordinator.num_changes
    slow_to_answer(world, "BCDEF")
    world.start(*"BCDEF")
    assert world.run_until_one(5000) is not None
    assert world["A"].layer.coordinator.num_changes == before + 1


@pytest.mark.parametrize("has_view", [False, True])
def test_who_is_behind_with_reading_gives_nobody_up_but_not_for_ever(has_view):
    """What is not read may be the answer; but anybody can send. Once there is a view,
    members under load are always behind, and deliver nothing while they wait."""
    world = formed("AB") if has_view else World(3).start(*"AB")
    names = sorted("AB", key=lambda name: world[name].address.incarnation)
    first, other = world[names[0]], world[names[1]]
    if has_view:
        first = world[first.view.coordinator.name]
        other = world.start("C")["C"]
    world.tap = lambda node, datagram: datagram[3] == PREPARE and other.pause(60_000)

    while not first.layer.coordinator.is_changing:
        world.run(5)

    def waits(milliseconds):
        for _ in range(0, milliseconds, 100):
            world.run(100)
            first.stack.receive([], world.now, emptied=False)
        change = first.layer.coordinator.change
        return change is not None and other.address.incarnation in change.missing()

    assert waits(300)
    if has_view:
        assert not waits(700)
    else:
        assert waits(4000) and not waits(3000)
