"""A run is a function of its seed, and a failing one is cut to its shortest prefix."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from ringcast import ConfigError
from ringcast.protocols.multicast.gap_looks import GapLooks
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run, shortest_prefix, simulate
from ringcast.sim.runs.settings import Settings


def essence(outcome):
    return outcome.fingerprint, outcome.events, outcome.deliveries, outcome.counters


@pytest.mark.parametrize("seed", range(2))
def test_the_same_seed_is_the_same_run(seed):
    assert essence(simulate(seed, Settings())) == essence(simulate(seed, Settings()))
    assert essence(simulate(seed, Settings())) != essence(simulate(seed + 1, Settings()))


def test_the_same_seed_is_the_same_run_in_every_process():
    code = ("from ringcast.sim.runs.run import *\n"
            "print([simulate(seed, Settings(duration=0.5)).fingerprint for seed in range(4)])")
    printed = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env=os.environ | {"PYTHONHASHSEED": str(number)}, check=True).stdout
               for number in (1, 2)}
    here = [simulate(seed, Settings(duration=0.5)).fingerprint for seed in range(4)]
    assert printed == {f"{here}\n"}


def test_what_is_fixed_is_not_drawn_and_changes_nothing_else():
    free, fixed = draw(7, Settings()), draw(7, Settings(loss=0.123, options={"capacity": 5}))
    assert fixed.network["loss"] == 0.123 and fixed.options["capacity"] == 5
    assert fixed.names == free.names and fixed.starts == free.starts
    assert {name: rate for name, rate in fixed.network.items() if name != "loss"} == {
        name: rate for name, rate in free.network.items() if name != "loss"}


def test_an_option_of_the_stack_may_be_text():
    text, number = (Settings(late=1, options={"suspect_timeout": each, "form_margin": each})
                    for each in ("100", 100))
    assert draw(7, text) == draw(7, number)


def test_where_only_the_primary_part_goes_on_all_members_want_as_many():
    settings = Settings(options={"partition": "primary"})
    for plan in (draw(seed, settings) for seed in range(50)):
        assert 2 * plan.options["min_members"] > len(plan.names)
        assert not any(start.options for start in plan.starts.values())
    assert draw(7, Settings(options={"partition": "primary", "min_members": 1})).options[
        "min_members"] == 1


def test_seeds_differ_in_kind():
    plans = [draw(seed, Settings()) for seed in range(200)]
    assert {len(plan.names) for plan in plans} == {2, 3, 4, 5, 7, 9, 12}
    assert {plan.options["capacity"] for plan in plans} >= {1, 2, 3, 64, 32_768}
    assert {plan.options.get("partition") for plan in plans} == {None, "primary"}
    assert {plan.threads for plan in plans} == {0, 1, 2}
    assert {plan.refuses for plan in plans} == {True, False}
    assert 0.3 < sum(plan.network["loss"] > 0 for plan in plans) / 200 < 0.7
    kinds = {action.what for plan in plans for action in plan.actions}
    assert kinds == {"send", "send unicast", "cut", "mend", "clog", "crash", "crash at", "restart",
                     "pause", "slow", "send buffer", "exclude", "leave", "jump", "hide", "show",
                     "refuse"}


def test_over_connections_they_break_and_retransmission_is_switched_on_request():
    plans = [draw(seed, Settings(stack="nakack2-tcp", switches=3)) for seed in range(20)]
    kinds = Counter(action.what for plan in plans for action in plan.actions)
    assert kinds["break"] > 20 and kinds["break for"] > 10 and kinds["interval"] == 60
    assert all(set(plan.network) == {"delay"} for plan in plans)


def test_a_run_counts_the_members_that_die_at_a_step():
    run = Run(draw(3, Settings()))
    run.cluster.deaths.num_sprung = 2
    assert run.outcome().counters["num_deaths"] >= 2


@pytest.mark.parametrize(("settings", "says"), [
    (Settings(members=0), "1 to 26 members"), (Settings(members=27), "1 to 26 members"),
    (Settings(loss=1.0), "loss is a probability"),
    (Settings(corrupt=-0.1), "corrupt is a probability"),
    (Settings(crashes=-1), "crashes cannot be -1"),
    (Settings(duration=0), "duration"), (Settings(size=70_000), "at most 60000"),
    (Settings(options={"capacty": 3}), "capacity"),
    (Settings(stack="nakack2-udp", switches=1), "always retransmits"),
    (Settings(outages=1), "leave out outages"),
    (Settings(socket_buffer=65_000), "room for one datagram"),
])
def test_what_cannot_be_simulated_is_a_mistake_of_the_caller(settings, says):
    with pytest.raises(ConfigError, match=says):
        settings.check()


def done(cluster):
    """Return what happened in a cluster so far."""
    return (cluster.fingerprint, cluster.num_done,
            [member.log for member in cluster.incarnations.values()])


def test_a_prefix_is_the_beginning_of_the_run():
    """Up to the action that is left out, both runs do the same."""
    plan = draw(3, Settings())
    whole, part = Run(plan), Run(plan, 40)
    assert part.end == plan.actions[40].at
    for run in (whole, part):
        run._advance(part.end - 1)
    assert done(whole.cluster) == done(part.cluster)


def test_a_failure_is_cut_to_the_shortest_prefix_that_fails_alike(monkeypatch):
    monkeypatch.setattr(GapLooks, "ask", lambda *args: None)
    settings = Settings(loss=0.1, members=2, duration=1.0, unicast=0)
    failed = next(outcome for outcome in (simulate(seed, settings) for seed in range(20))
                  if outcome.check)
    shortest = shortest_prefix(failed.seed, settings, failed)
    assert shortest.check == failed.check == "liveness"
    assert 0 < shortest.actions < failed.actions / 2
    assert simulate(failed.seed, settings, shortest.actions).check == failed.check
    assert simulate(failed.seed, settings, shortest.actions - 1).check != failed.check
