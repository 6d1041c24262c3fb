"""A few hundred seeds, as many as a run of the tests can afford; `ringcast simulate --seeds 100000` takes the rest of the night."""

from collections import Counter

import pytest

from ringcast.sim.plan import Settings
from ringcast.sim.run import simulate

HARSH = Settings(loss=0.2, crashes=2, partitions=2)
reached = Counter()

# What a campaign must have seen, or it has tested nothing: counters of the stacks, of the network, of the processes.
EVERYTHING = ["num_lost", "num_cut", "num_duplicated", "num_reordered", "num_damaged", "num_clogged", "num_overflows", "num_unsent",
              "num_blockings", "num_views", "num_faults", "num_left", "num_duplicates", "num_out_of_window", "num_unknown_sender",
              "xmit_reqs_received", "xmit_rsps_received", "num_gone_undelivered", "malformed", "not_for_me"]


def check(seeds, settings):
    for seed in seeds:
        outcome = simulate(seed, settings)
        assert not outcome.check, f"{outcome.sentence}\nreplay: ringcast simulate --seed {seed}, with {settings}"
        reached.update(outcome.counters, void=outcome.is_void, runs=1)


@pytest.mark.parametrize("first", range(0, 240, 20))
def test_no_promise_is_broken(first):
    check(range(first, first + 20), Settings())


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_promise_is_broken_at_a_fifth_lost_with_crashes_and_partitions(first):
    check(range(first, first + 20), HARSH)


def test_every_fault_and_every_remedy_was_reached():
    if reached["runs"] < 300:
        pytest.skip("the seeds did not run before this")
    assert [name for name in EVERYTHING if not reached[name]] == []
    assert reached["void"] < reached["runs"] / 20
