"""Settings of which each seed draws some more."""

import pytest

from ringcast import ConfigError
from ringcast.config import NETWORKED
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.mixed import CHOICES, OPTIONS, Mixed

SEEDS = range(200)


def test_all_that_is_drawn_can_be_simulated_and_each_choice_is_reached():
    drawn = [Mixed().of_seed(seed) for seed in SEEDS]
    for settings in drawn:
        settings.check()
    assert {settings.stack for settings in drawn} == set(NETWORKED)
    for name, (_, values) in CHOICES.items():
        assert {getattr(settings, name) for settings in drawn} >= set(values)
    for name, (_, values) in OPTIONS.items():
        assert {settings.options.get(name) for settings in drawn} == {None, *values}


def test_a_seed_draws_the_same_each_time_and_its_plan_is_that_of_these_settings():
    assert Mixed().of_seed(7) == Mixed().of_seed(7) != Mixed().of_seed(8)
    assert draw(7, Mixed()) == draw(7, Mixed().of_seed(7))


def test_what_is_given_stays_and_changes_nothing_else_that_is_drawn():
    given = Mixed(members=9, options={"absence": "7"},
                  open=tuple(name for name in CHOICES if name not in ("members", "stack")))
    nothing_given = Mixed(open=given.open)
    for seed in SEEDS:
        settings, free = given.of_seed(seed), nothing_given.of_seed(seed)
        assert (settings.members, settings.stack) == (9, "mcast-udp")
        assert settings.options["absence"] == "7"
        assert all(getattr(settings, name) == getattr(free, name) for name in given.open)


@pytest.mark.parametrize(("given", "stacks"), [
    ({"loss": 0.2}, {"mcast-udp", "nakack2-udp"}),
    ({"breaks": 3}, {"mcast-tcp", "nakack2-tcp"}),
    ({"switches": 3}, {"nakack2-tcp"}),
    ({"options": {"xmit_interval": "0"}}, {"nakack2-tcp"}),
])
def test_only_stacks_are_drawn_that_allow_what_is_given(given, stacks):
    mixed = Mixed(**given, open=tuple(name for name in CHOICES if name not in given))
    mixed.check()
    assert {mixed.of_seed(seed).stack for seed in SEEDS} == stacks


@pytest.mark.parametrize(("given", "says"), [
    ({"members": 0}, "1 to 26 members"),
    ({"steady": 0}, "nothing is drawn"),
    ({"loss": 0.2, "breaks": 2}, "no connections"),
])
def test_what_no_seed_can_have_is_a_mistake_of_the_caller(given, says):
    with pytest.raises(ConfigError, match=says):
        Mixed(**given, open=tuple(name for name in CHOICES if name not in given)).check()
