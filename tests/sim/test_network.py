"""The simulated network does what it says, as often as it says, and the same for the
same seed."""

from random import Random

import pytest

from ringcast.sim.network import MS, Network

DATAGRAM = bytes(range(100))


def carried(network, count=20_000, seed=1, link=("A", "B"), now=0):
    """What became of so many datagrams: a list of arrivals for each."""
    rng = Random(seed)
    return [network.carry(*link, DATAGRAM, now, rng) for _ in range(count)]


def about(rate):
    return pytest.approx(rate, rel=0.1)


def test_a_healthy_network_delivers_everything_once_within_its_delay():
    for (instant, datagram), in carried(Network(delay=(100, 300)), now=1000):
        assert 1100 <= instant <= 1300 and datagram == DATAGRAM


def test_loss_hits_its_share():
    network = Network(loss=0.2)
    assert sum(not arrivals for arrivals in carried(network)) / 20_000 == about(0.2)
    assert network.num_lost / 20_000 == about(0.2)


def test_bursts_come_in_runs_of_their_length():
    fates = [bool(arrivals) for arrivals in carried(Network(burst=0.01, burst_length=20), 100_000)]
    lost = fates.count(False)
    runs = sum(before and not after for before, after in zip(fates, fates[1:], strict=False))
    assert lost / runs == pytest.approx(20, rel=0.15)


def test_a_burst_is_one_link_s_own():
    network = Network(burst=0.5, burst_length=1e9)
    carried(network, 50, link=("A", "B"))
    assert network.bad == {("A", "B")}


def test_duplicates_are_two_arrivals_and_the_second_is_late():
    arrivals = carried(Network(duplicate=0.3, delay=(0, 0), late=5 * MS))
    twice = [each for each in arrivals if len(each) == 2]
    assert len(twice) / 20_000 == about(0.3)
    assert max(second for _, (second, _) in twice) > 4 * MS
    assert all(first == 0 for (first, _), _ in twice)


def test_reordering_holds_its_share_back():
    held = [each for each in carried(Network(reorder=0.25, delay=(0, 0), late=5 * MS))
            if each[0][0] > 0]
    assert len(held) / 20_000 == about(0.25)


def test_corruption_flips_bits_and_keeps_the_length():
    damaged = [data for (_, data), in carried(Network(corrupt=0.1)) if data != DATAGRAM]
    assert len(damaged) / 20_000 == about(0.1)
    assert {len(data) for data in damaged} == {100}


def test_truncation_cuts_the_end_off():
    cut = [data for (_, data), in carried(Network(truncate=0.1)) if data != DATAGRAM]
    assert len(cut) / 20_000 == about(0.1)
    assert all(DATAGRAM.startswith(data) for data in cut)


def test_a_cut_is_one_way():
    network = Network(cut={("A", "B")})
    assert carried(network, 10) == [[]] * 10 and network.num_cut == 10
    assert all(carried(network, 10, link=("B", "A")))


def test_a_clogged_link_delivers_late_what_it_held():
    network = Network(clogged={("A", "B"): 7 * MS}, delay=(0, 1 * MS))
    assert {instant for (instant, _), in carried(network, 100)} == {7 * MS}
    assert all(instant >= 8 * MS for (instant, _), in carried(network, 100, now=8 * MS))


def test_scripted_loss_sees_link_and_datagram():
    network = Network(discard=lambda source, target, datagram: source == "A"
                      and datagram == DATAGRAM)
    assert carried(network, 3) == [[]] * 3
    assert all(carried(network, 3, link=("B", "A")))


def test_healing_ends_all_faults_and_keeps_the_delay():
    network = Network(loss=0.9, burst=0.9, duplicate=0.9, reorder=0.9, corrupt=0.9, truncate=0.9,
                      delay=(5, 5), cut={("A", "B")},
                      clogged={("A", "B"): 99}, discard=lambda *_: True)
    carried(network, 100, link=("B", "A"))
    network.heal()
    assert carried(network, 100) == [[(5, DATAGRAM)]] * 100


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_does_the_same(seed):
    faults = {"loss": 0.2, "burst": 0.05, "duplicate": 0.2, "reorder": 0.2, "corrupt": 0.2,
              "truncate": 0.2}
    assert carried(Network(**faults), 500, seed) == carried(Network(**faults), 500, seed)
    assert carried(Network(**faults), 500, seed) != carried(Network(**faults), 500, seed + 1)


def test_a_wire_carries_one_datagram_after_the_other():
    """A thousand bytes at a megabyte a second take a millisecond: on the way out, and
    on the way in where several come together."""
    network, rng = Network(bandwidth=1_000_000, delay=(5 * MS, 5 * MS)), Random(1)
    datagram = bytes(1000)
    assert [network.leaves("A", 1000, now) for now in (0, 0, 10 * MS)] == [1 * MS, 2 * MS, 11 * MS]
    assert network.leaves("B", 1000, 0) == 1 * MS
    sent = (("A", 1 * MS), ("B", 1 * MS), ("A", 2 * MS))
    arrivals = [network.carry(source, "C", datagram, leaves, rng)[0][0] for source, leaves in sent]
    assert arrivals == [6 * MS, 7 * MS, 8 * MS]
    assert network.carry("A", "D", datagram, 1 * MS, rng)[0][0] == 6 * MS
    assert Network().leaves("A", 1000, 3) == 3


# ------------------------------------------------------------------------------------------- frames

LARGE = bytes(60_000)


def fates(network, datagram, count=5000, every=1 * MS):
    rng = Random(1)
    return [bool(network.carry("A", "B", datagram, number * every, rng)) for number in range(count)]


def test_a_datagram_that_fits_a_frame_is_lost_as_a_frame_is():
    network = Network(mtu=1500, loss=0.05)
    assert network.largest == 1472
    assert fates(network, bytes(1472)).count(False) / 5000 == about(0.05)
    assert network.num_in_pieces == 0


def test_a_datagram_of_many_frames_is_lost_with_any_of_them():
    network = Network(mtu=1500, loss=0.01, memory=1 << 40)
    assert fates(network, LARGE).count(False) / 5000 == about(1 - 0.99**41)


def test_what_came_of_large_datagrams_fills_the_memory_for_half_a_minute():
    """One in three loses a frame; 70 of those are 4 MB. Then nothing large gets
    through, until they are given up."""
    network = Network(mtu=1500, loss=0.01)
    first = fates(network, LARGE, 1000)
    assert 100 < first.index(True) + len(first) - first[::-1].index(True) < 400 and not any(
        first[500:])
    assert all(fates(network, bytes(1400), 5)) or network.num_in_pieces
    network.loss = 0.0
    assert network.carry("A", "B", LARGE, 29_000 * MS, Random(1)) == []
    assert len(network.carry("A", "B", LARGE, 32_000 * MS, Random(1))) == 1


def test_another_s_memory_is_another_s():
    network = Network(mtu=1500, loss=0.01)
    fates(network, LARGE, 1000)
    network.loss = 0.0
    assert network.carry("A", "B", LARGE, 0, Random(1)) == []
    assert len(network.carry("A", "C", LARGE, 0, Random(1))) == 1


def test_what_finds_the_queue_full_is_lost():
    """1 MB/s, 10 KB may wait: of 100 datagrams of 1 KB at once 11 get through."""
    network = Network(bandwidth=1_000_000, queue=10_000, delay=(0, 0))
    assert 10 <= sum(fates(network, bytes(1000), 100, every=0)) <= 12
    assert network.num_congested == 100 - 11
