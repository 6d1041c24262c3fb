"""Groups on a simulated wire that carries frames, loses some, and lets only so much
wait."""

import pytest

from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS, Network
from ringcast.sim.runs.run import simulate
from ringcast.sim.runs.settings import Settings

STACKS = ["mcast-udp", "nakack2-udp"]


def talk(stack, network, count, size=1000, receivers=2, **options):
    """One sends as fast as it can to all, and the same to one; the group when all has
    come, in order."""
    names = "ABCDE"[:1 + receivers]
    cluster = Cluster(names, network=network, stack=stack, **options).start()
    cluster.run(1000)
    # A new connection is asked for what overtook its first message.
    cluster["A"].send_unicast("B", 1, 10)
    cluster.run(100)
    cluster["A"].offer(count, size)
    cluster["A"].send_unicast("B", count, size)
    began = cluster.now
    while cluster.owed() is not None:
        assert cluster.now < began + 60 * 10**9, cluster.owed()
        cluster.run(50)
    return cluster, (cluster.now - began) / 1e9


def repeated(cluster):
    """Messages that were sent again."""
    return sum(member.multicast.counters.xmit_rsps_sent
               + member.unicast.counters.unicast_xmit_rsps_sent
               for member in cluster.living())


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_frames_that_are_lost_keep_nobody_waiting(stack, loss):
    network = Network(mtu=1500, loss=loss)
    cluster, seconds = talk(stack, network, 3000)
    assert seconds < 1.0
    assert network.num_in_pieces == 0
    assert repeated(cluster) < 1.5 * network.num_lost


@pytest.mark.parametrize("stack", STACKS)
def test_on_a_long_way_what_is_lost_is_repeated_about_once(stack):
    """Repeats take 20 looks."""
    network = Network(mtu=1500, loss=0.05, delay=(30 * MS, 31 * MS))
    cluster, _ = talk(stack, network, 3000, max_bytes=200_000)
    assert repeated(cluster) < 1.5 * network.num_lost


@pytest.mark.parametrize("stack", STACKS)
def test_behind_a_long_queue_repeats_do_not_pile_up(stack):
    """At 10 Mb/s all that is sent waits its turn for up to 1.6 s: no repeat can come
    before."""
    network = Network(mtu=1500, bandwidth=1_250_000, loss=0.01)
    cluster, seconds = talk(stack, network, 1000)
    assert seconds < 3.0
    assert repeated(cluster) < 8 * network.num_lost


@pytest.mark.prove
@pytest.mark.parametrize("stack", STACKS)
def test_no_promise_is_broken_on_a_wire(stack):
    congested = 0
    for seed in range(8):
        outcome = simulate(seed, Settings(stack=stack, mtu=1500, unicast=100, duration=0.5))
        assert not outcome.check, outcome.sentence
        congested += outcome.counters["num_congested"]
    assert congested > 100
