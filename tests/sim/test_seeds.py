"""A few hundred seeds, as many as a run of the tests can afford; `ringcast simulate --seeds 100000` takes the rest of the night."""

from collections import Counter

import msgspec
import pytest

from ringcast.sim.runs.plan import Settings
from ringcast.sim.runs.run import simulate

HARSH = Settings(loss=0.2, crashes=2, partitions=2)
UNICAST = Settings(unicast=200)
TALKS = Settings(unicast=200, splits=2, loss=0.2, crashes=2, partitions=2)
SPLITS = Settings(unicast=500, splits=4, reorder=0.3, duplicate=0.2)
LOST = Settings(stack="nakack2-udp", unicast=0, loss=0.2, crashes=2, partitions=2)
KEPT_LONGER = Settings(stack="nakack2-udp", unicast=0, options={"use_ring_buffer": True, "discard_delivered_msgs": False})
LINKS = Settings(stack="nakack2-tcp", unicast=0, breaks=20)
TORN = Settings(stack="nakack2-tcp", unicast=0, breaks=200, delay=30, messages=500, options={"xmit_interval": 0})
CROWD = Settings(stack="nakack2-tcp", unicast=0, crashes=3, exclusions=3)
WAITING = {"threads": 2, "joins": 8, "unicast": 0, "crashes": 0}
RETURNS = {"returns": 4, "unicast": 0}
TAKEN_OUT = {"returns": 6, "exclusions": 2, "crashes": 2, "messages": 300}
reached = Counter()
reached_by_nakack2 = Counter()

# What a campaign must have seen, or it has tested nothing: counters of the stacks, of the network, of the processes.
EVERYTHING = ["num_lost", "num_cut", "num_duplicated", "num_reordered", "num_damaged", "num_clogged", "num_overflows", "num_unsent",
              "num_congested",
              "num_blockings", "num_views", "num_faults", "num_left", "num_duplicates", "num_out_of_window", "num_unknown_sender",
              "xmit_reqs_received", "xmit_rsps_received", "num_gone_undelivered", "malformed", "not_for_me",
              "unicast_msgs_delivered", "unicast_duplicates", "unicast_early", "unicast_late", "unicast_undelivered",
              "unicast_xmit_rsps_sent", "unicast_highest_resent", "syncs_sent", "syncs_answered", "closes_received"]
EVERYTHING_OF_NAKACK2 = ["num_blockings", "num_left", "num_held", "num_let_go", "num_queued", "num_queue_dropped", "num_out_of_window",
                         "num_duplicates", "resyncs_sent", "resyncs_received", "xmit_reqs_received", "xmit_rsps_received",
                         "votes_received", "stability_received", "num_gone_undelivered", "unicast_msgs_delivered"]

# Each of these failed once; what failed is in the note of its commit.
KEPT = [(UNICAST, seed) for seed in (2, 4, 25, 32, 52, 112, 190, 237, 264, 845)] + [
    (SPLITS, 13), (SPLITS, 43), (TALKS, 3682), (TALKS, 4522), (TALKS, 4816), (TALKS, 4830), (TALKS, 7584)]
KEPT_OF_NAKACK2 = [(TORN, 0), (TORN, 6), (TORN, 8), (CROWD, 37), (Settings(stack="nakack2-tcp", unicast=200), 10)] + [
    (Settings(stack="nakack2-tcp"), seed) for seed in (10127, 10516, 10624, 10842, 11400, 12571)]
# What waited for company, in the window and not yet framed. A sender purged what nobody else had (a joiner asked for it for ever); and
# a message that was framed when its receiver had left opened that connection again.
KEPT_OF_WAITING = [
    (Settings(members=2, loss=0, **WAITING), 4), (Settings(stack="mcast-tcp", members=3, partitions=0, **WAITING), 8),
    (Settings(stack="mcast-tcp"), 121)]
KEPT_OF_LIVES = [(Settings(stack="nakack2-tcp", exclusions=4, breaks=5, **RETURNS), 240), (Settings(), 40480)]


def check(seeds, settings, reached=reached):
    for seed in seeds:
        outcome = simulate(seed, settings)
        assert not outcome.check, f"{outcome.sentence}\nreplay: ringcast simulate --seed {seed}, with {settings}"
        reached.update(outcome.counters, void=outcome.is_void, runs=1)


@pytest.mark.parametrize(("settings", "seed"), KEPT_OF_LIVES)
def test_what_failed_once_for_lives_that_come_back_stays_mended(settings, seed):
    check([seed], msgspec.structs.replace(settings, threads=0, joins=0, mtu=0, large=0))


@pytest.mark.parametrize(("settings", "seed"), KEPT_OF_WAITING)
def test_what_failed_once_for_messages_that_wait_stays_mended(settings, seed):
    check([seed], msgspec.structs.replace(settings, mtu=0))


def as_it_was(settings):
    """Before there were lives that come back, messages that wait for company, and frames."""
    return msgspec.structs.replace(settings, returns=0, threads=0, joins=0, mtu=0, large=0)


@pytest.mark.parametrize("first", range(0, 240, 20))
def test_no_promise_is_broken(first):
    check(range(first, first + 20), Settings())


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_promise_is_broken_at_a_fifth_lost_with_crashes_and_partitions(first):
    check(range(first, first + 20), HARSH)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_no_promise_is_broken_among_single_members(first):
    check(range(first, first + 20), TALKS)


@pytest.mark.parametrize(("settings", "seed"), KEPT)
def test_what_failed_once_stays_mended(settings, seed):
    check([seed], as_it_was(settings))


@pytest.mark.parametrize("settings", [LOST, KEPT_LONGER, LINKS, TORN, CROWD], ids=["lost", "kept longer", "links", "torn", "crowd"])
def test_no_promise_of_nakack2_is_broken(settings):
    check(range(16), settings, reached_by_nakack2)


@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-udp", "nakack2-tcp"])
def test_no_promise_is_broken_among_single_members_of_other_stacks(stack):
    check(range(10), Settings(stack=stack, unicast=200, messages=300), reached_by_nakack2)


@pytest.mark.parametrize(("settings", "seed"), KEPT_OF_NAKACK2)
def test_what_failed_once_with_nakack2_stays_mended(settings, seed):
    check([seed], as_it_was(settings), reached_by_nakack2)


@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"])
@pytest.mark.parametrize("settings", [RETURNS, TAKEN_OUT], ids=["returns", "taken out"])
def test_no_promise_is_broken_by_lives_that_come_back(stack, settings):
    of_this = Counter()
    check(range(12), Settings(stack=stack, **settings), of_this)
    assert of_this["num_comebacks"] > 20


@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"])
def test_no_promise_is_broken_when_a_member_joins_while_messages_wait(stack):
    of_this = Counter()
    check(range(12), Settings(stack=stack, **WAITING), of_this)
    assert of_this["num_waits"] > 100 and of_this["num_ahead"] > 100 and of_this["num_left"] > 20


def test_every_remedy_of_nakack2_was_reached():
    if reached_by_nakack2["runs"] < 100:
        pytest.skip("the seeds did not run before this")
    assert [name for name in EVERYTHING_OF_NAKACK2 if not reached_by_nakack2[name]] == []
    assert reached_by_nakack2["void"] < reached_by_nakack2["runs"] / 20


def test_every_fault_and_every_remedy_was_reached():
    if reached["runs"] < 300:
        pytest.skip("the seeds did not run before this")
    assert [name for name in EVERYTHING if not reached[name]] == []
    assert reached["void"] < reached["runs"] / 20
