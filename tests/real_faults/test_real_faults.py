"""Groups of real processes on a network with faults: whatever happens, members that go
together from view to view are given the same messages, and in the end all are in one
view."""

import pytest
from namespaces import refusal

pytestmark = [pytest.mark.faults, pytest.mark.kill,
              pytest.mark.skipif(bool(refusal()), reason=f"no network of namespaces: {refusal()}")]
NAMES = "ABCDE"
# Seconds that were set as goals: docs/performance.md.
KILL_GOAL, SILENCE_GOAL, HEAL_GOAL = 0.1, 3.0, 2.0
FULL = 0                # the rate of a full load: as many messages as find room
short = pytest.mark.prove
PLACES = {"coordinator": 0, "second": 1, "third": 2, "fourth": 3, "youngest": 4}     # by age

# When much is lost, a TCP connection stalls for many seconds: each frame that is lost
# again doubles the time until the next attempt. With the default timeouts and load,
# members exclude each other at 20 %.
STALLS = {"rate": 100, "suspect_timeout": 20_000, "link_timeout": 120_000}


def rest(name):
    return [each for each in NAMES if each != name]


@pytest.mark.parametrize("loss", [0.0, pytest.param(0.05, marks=short), 0.2, 0.3])
def test_loss(start, stack, loss):
    """Nobody is excluded because frames get lost, and the flush works all the same."""
    stalls = stack.endswith("tcp") and loss > 0.1
    group = start(NAMES, loss=loss, **(STALLS if stalls else {}))
    group.run(10)
    victim = group.names("A")[-1]
    group.wait_for_view(rest(victim), rest(victim), "killed", group.kill(victim))
    group.run(2)
    group.finish(rest(victim))


@pytest.mark.parametrize("which", ["nobody hears the", "nobody is heard by the"])
@pytest.mark.parametrize("place", ["coordinator", "youngest"])
def test_one_way_cut(start, which, place):
    group = start(NAMES)
    group.run(2)
    victim = group.names("A")[PLACES[place]]
    ends = (victim, NAMES) if which == "nobody hears the" else (NAMES, victim)
    group.wait_for_view(rest(victim), rest(victim), "excluded", group.cut(*ends))
    group.run(2)
    group.wait_for_view(NAMES, NAMES, "healed", group.heal())
    group.run(2)
    group.finish(rest(victim))


def test_cut_of_one_link_in_one_direction(start):
    """One of the two has to go, and the others stay together."""
    group = start(NAMES)
    group.run(2)
    first, *others, silent, deaf = group.names("A")
    group.cut(silent, deaf)
    group.wait_until(lambda: len(group.names(first)) == 4, "one is excluded")
    group.wait_for_view(NAMES, NAMES, "healed", group.heal())
    group.run(2)
    group.finish([first, *others])


@short
def test_partition_and_heal(start):
    group = start(NAMES)
    group.run(2)
    order = group.names("A")
    few, many = order[:2], order[2:]
    at = group.part(few, many)
    for side, what in ((few, "two alone"), (many, "three alone")):
        group.wait_for_view(side, side, what, at, goal=SILENCE_GOAL)
    group.run(2)
    group.wait_for_view(NAMES, NAMES, "healed", group.heal(), goal=HEAL_GOAL)
    group.run(2)
    group.finish(few, many)


@pytest.mark.parametrize("place", ["coordinator", "youngest"])
def test_machine_that_vanishes(start, place):
    """Nothing answers for it: only silence tells, and its frames come back later."""
    group = start(NAMES)
    group.run(2)
    victim = group.names("A")[PLACES[place]]
    at = group.part([victim], rest(victim))
    group.wait_for_view(rest(victim), rest(victim), "excluded", at, goal=SILENCE_GOAL)
    group.run(2)
    group.wait_for_view(NAMES, NAMES, "healed", group.heal(), goal=HEAL_GOAL)
    group.run(2)
    group.finish([victim], rest(victim))


@pytest.mark.parametrize("place, seconds", [
    pytest.param("coordinator", 5, marks=short), ("youngest", 5), ("coordinator", 30),
    ("youngest", 30)])
def test_pause(start, place, seconds):
    group = start(NAMES)
    group.run(2)
    victim = group.names("A")[PLACES[place]]
    with group.paused(victim) as at:
        group.wait_for_view(rest(victim), rest(victim), "excluded", at, goal=SILENCE_GOAL)
        group.run(seconds, at)
    group.wait_for_view(NAMES, NAMES, "back")
    group.run(2)
    group.finish(rest(victim))


@pytest.mark.parametrize("place", [pytest.param("coordinator", marks=short), "second", "third",
                                   "fourth", "youngest"])
def test_kill_under_full_load(start, place):
    group = start(NAMES, rate=FULL)
    group.run(3)
    victim = group.names("A")[PLACES[place]]
    group.wait_for_view(rest(victim), rest(victim), "killed", group.kill(victim), goal=KILL_GOAL)
    group.run(3)
    group.finish(rest(victim))


@pytest.mark.parametrize("place", [pytest.param("coordinator", marks=short), "youngest"])
def test_restart_under_the_same_name(start, place):
    group = start(NAMES)
    group.run(2)
    victim = group.names("A")[PLACES[place]]
    at = group.kill(victim)
    group.start(victim)
    group.wait_for_view(NAMES, NAMES, "back", at)
    group.run(2)
    group.finish(rest(victim))


@pytest.mark.parametrize("count", [10, 20])
def test_starts_at_once(start, count):
    names = [f"m{number}" for number in range(count)]
    group = start(names, rate=50)
    group.run(2)
    group.finish(names)
