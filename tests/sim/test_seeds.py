"""A few hundred seeds, as many as a run of the tests has time for.

`ringcast simulate --seeds 100000` runs for a night.
"""

from collections import Counter
from functools import cache

import msgspec
import pytest

from ringcast.sim.runs.run import simulate
from ringcast.sim.runs.settings import Settings


def as_it_was(settings):
    """Return the settings without what was added later: incarnations that come back,
    bundling, frames, and large messages. A seed that failed earlier had none of it."""
    return msgspec.structs.replace(settings, returns=0, threads=0, joins=0, mtu=0, large=0)


HARSH = Settings(loss=0.2, crashes=2, partitions=2)
UNICAST = Settings(unicast=200)
HARSH_UNICAST = Settings(unicast=200, splits=2, loss=0.2, crashes=2, partitions=2)
SPLITS = Settings(unicast=500, splits=4, reorder=0.3, duplicate=0.2)
LOST = Settings(stack="nakack2-udp", unicast=0, loss=0.2, crashes=2, partitions=2)
KEPT_LONGER = Settings(stack="nakack2-udp", unicast=0,
                       options={"use_ring_buffer": True, "discard_delivered_msgs": False})
LINKS = Settings(stack="nakack2-tcp", unicast=0, breaks=20)
TORN = Settings(stack="nakack2-tcp", unicast=0, breaks=200, delay=30, messages=500,
                options={"xmit_interval": 0})
CROWD = Settings(stack="nakack2-tcp", unicast=0, crashes=3, exclusions=3)
SLOW = Settings(stack="nakack2-tcp", unicast=0, breaks=20, slow=3, messages=500)
BUNDLING = {"threads": 2, "joins": 8, "unicast": 0, "crashes": 0}
RETURNS = {"returns": 4, "unicast": 0}
EXCLUDED = {"returns": 6, "exclusions": 2, "crashes": 2, "messages": 300}

# What a campaign must have reached, or it has not tested that: counters of the stacks,
# of the network, of the processes.
EVERYTHING = [
    "num_lost", "num_cut", "num_duplicated", "num_reordered", "num_damaged", "num_clogged",
    "num_overflows", "num_unsent", "num_congested", "num_blockings", "num_views", "num_faults",
    "num_left", "num_duplicates", "num_out_of_window", "num_unknown_sender", "xmit_reqs_received",
    "xmit_rsps_received", "num_gone_undelivered", "malformed", "not_for_me",
    "unicast_msgs_delivered", "unicast_duplicates", "unicast_early", "unicast_late",
    "unicast_undelivered", "unicast_xmit_rsps_sent", "unicast_highest_resent", "syncs_sent",
    "syncs_answered", "closes_received"]
EVERYTHING_OF_NAKACK2 = [
    "num_blockings", "num_left", "num_held", "num_dropped_for_resync", "num_queued",
    "num_queue_dropped",
    "num_out_of_window", "num_duplicates", "resyncs_sent", "resyncs_received", "xmit_reqs_received",
    "xmit_rsps_received", "votes_received", "stability_received", "num_gone_undelivered",
    "unicast_msgs_delivered"]

# Settings, and how many seeds are simulated with them, from seed 0 on.
CAMPAIGNS = {"all kinds of faults": (Settings(), 240), "harsh": (HARSH, 120),
             "harsh unicast": (HARSH_UNICAST, 80)}
CAMPAIGNS_OF_NAKACK2 = {
    "lost": (LOST, 16), "kept longer": (KEPT_LONGER, 16), "links": (LINKS, 16), "torn": (TORN, 16),
    "crowd": (CROWD, 16), "torn, as it was": (as_it_was(TORN), 16), "slow": (SLOW, 12)} | {
    f"unicast, {stack}": (Settings(stack=stack, unicast=200, messages=300), 10)
    for stack in ("mcast-tcp", "nakack2-udp", "nakack2-tcp")}
AT_ONCE = 20                            # seeds that one test simulates
# Of these, `make test` runs only some parts. It runs all seeds that failed once.
QUICK = [("all kinds of faults", 0), ("harsh", 0), ("lost", 0), ("torn", 0),
         ("unicast, mcast-tcp", 0)]

# Seeds that failed once, and why. The first fifteen failed while UNICAST3 was built,
# before it was committed; the reasons were not noted.
KEPT = [(UNICAST, seed) for seed in (2, 4, 25, 32, 52, 112, 190, 237, 264, 845)] + [
    (SPLITS, 13), (SPLITS, 43),
    (HARSH_UNICAST, 3682), (HARSH_UNICAST, 4522), (HARSH_UNICAST, 4830),
    # A HELLO of a member's second incarnation came late. It excluded the third
    # incarnation, whose generation was the same.
    (HARSH_UNICAST, 4816),
    # The checkers did not know that messages are owed that were sent before the credit
    # became smaller. Later: if a paced sender left a message out of a repeat, it was
    # asked for again far too late.
    (HARSH_UNICAST, 7584),
]
KEPT_OF_NAKACK2 = [
    # Messages behind a gap filled the bytes of a small window, and the answer to RESYNC
    # found no room. Or, at the same time: a large message stalled when a whole window
    # of it came in one turn; repeats had no pace where xmit_interval is 0. Which seed
    # found which was not noted.
    (TORN, 0), (TORN, 6), (TORN, 8), (CROWD, 37), (Settings(stack="nakack2-tcp", unicast=200), 10),
    # A message that found no room in bytes was not asked for (UNICAST3). A receiver
    # that keeps messages until they are stable took new ones beside all that it had
    # finished.
    *((Settings(stack="nakack2-tcp"), seed) for seed in (10127, 10516, 10624, 10842)),
    # The simulated application finished a batch before earlier ones.
    (Settings(stack="nakack2-tcp"), 11400),
    # A member that switched retransmission off did not ask for the last messages, which
    # its full queue had dropped.
    (Settings(stack="nakack2-tcp"), 12571),
]
KEPT_OF_BUNDLING = [
    # A sender purged messages that waited in its window to be bundled: a joiner asked
    # for them for ever.
    (Settings(members=2, loss=0, **BUNDLING), 4),
    (Settings(stack="mcast-tcp", members=3, partitions=0, **BUNDLING), 8),
    # A message that was framed when its receiver had left opened the connection again.
    (Settings(stack="mcast-tcp"), 121),
    # An incarnation came back and heard that its messages were stable before it sent
    # them again. It never purged them.
    (Settings(stack="nakack2-udp"), 52456),
    # A leaver gave up a large message after two fragments, and sent another one.
    (Settings(), 51707),
]
KEPT_OF_RETURNS = [
    # The checkers did not know that a process may exclude a member that it has not met.
    (Settings(stack="nakack2-tcp", exclusions=4, breaks=5, **RETURNS), 240),
    # A member let an incarnation in again that had seen no change of its view. The
    # member waited for a START for ever, and the incarnation for its ack.
    (Settings(), 40480),
]


def check(seeds, settings):
    """Simulate, and check that no promise is broken; return what was reached."""
    reached = Counter()
    for seed in seeds:
        outcome = simulate(seed, settings)
        replay = f"replay: ringcast simulate --seed {seed}, with {settings}"
        assert not outcome.check, f"{outcome.sentence}\n{replay}"
        reached.update(outcome.counters, void=outcome.is_void, runs=1)
    return reached


@cache
def reached(name, first):
    """Simulate a part of a campaign, once; return what it reached."""
    settings, count = (CAMPAIGNS | CAMPAIGNS_OF_NAKACK2)[name]
    return check(range(first, min(first + AT_ONCE, count)), settings)


def reached_by(campaigns):
    """Return what all seeds of some campaigns reached together."""
    return sum((reached(*part) for part in parts(campaigns)), Counter())


def parts(campaigns):
    return [(name, first) for name, (_, count) in campaigns.items()
            for first in range(0, count, AT_ONCE)]


def each_part(campaigns):
    return pytest.mark.parametrize(("name", "first"), [
        pytest.param(*part, marks=[] if part in QUICK else pytest.mark.prove)
        for part in parts(campaigns)])


@pytest.mark.parametrize(("settings", "seed"), KEPT_OF_RETURNS)
def test_what_failed_once_for_incarnations_that_come_back_stays_mended(settings, seed):
    check([seed], msgspec.structs.replace(settings, threads=0, joins=0, mtu=0, large=0))


@pytest.mark.parametrize(("settings", "seed"), KEPT_OF_BUNDLING)
def test_what_failed_once_for_bundled_messages_stays_mended(settings, seed):
    check([seed], msgspec.structs.replace(settings, mtu=0))


@pytest.mark.parametrize(("settings", "seed"), KEPT)
def test_what_failed_once_stays_mended(settings, seed):
    check([seed], as_it_was(settings))


@pytest.mark.parametrize(("settings", "seed"), KEPT_OF_NAKACK2)
def test_what_failed_once_with_nakack2_stays_mended(settings, seed):
    check([seed], as_it_was(settings))


@each_part(CAMPAIGNS | CAMPAIGNS_OF_NAKACK2)
def test_no_promise_is_broken(name, first):
    reached(name, first)


@pytest.mark.prove
@pytest.mark.timeout(900)               # alone, it simulates them all
@pytest.mark.parametrize(("campaigns", "counters"), [
    (CAMPAIGNS, EVERYTHING), (CAMPAIGNS_OF_NAKACK2, EVERYTHING_OF_NAKACK2)], ids=["all", "nakack2"])
def test_every_fault_and_every_remedy_was_reached(campaigns, counters):
    seen = reached_by(campaigns)
    assert [name for name in counters if not seen[name]] == []
    assert seen["void"] < seen["runs"] / 20


@pytest.mark.prove
@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"])
@pytest.mark.parametrize("settings", [RETURNS, EXCLUDED], ids=["returns", "excluded"])
def test_no_promise_is_broken_by_incarnations_that_come_back(stack, settings):
    of_this = check(range(12), Settings(stack=stack, **settings))
    assert of_this["num_comebacks"] > 20


@pytest.mark.prove
@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp"])
def test_no_promise_is_broken_when_a_member_joins_while_messages_are_bundled(stack):
    of_this = check(range(12), Settings(stack=stack, **BUNDLING))
    assert of_this["num_waits"] > 100 and of_this["num_ahead"] > 100 and of_this["num_left"] > 20
