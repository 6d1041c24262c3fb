"""Figures of a steady load: deterministic, and what one would expect of windows, wires,
loss and intervals."""

from array import array
from functools import cache

import msgspec
import pyarrow as pa
import pytest

from ringcast import ConfigError
from ringcast.histogram import count_latencies
from ringcast.sim.network import MS
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.measure import latencies
from ringcast.sim.runs.run import Run, simulate
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace

SIZE = 1000


@cache
def outcome(capacity=1024, xmit_interval=3.0, seed=1, **settings):
    """Simulate a steady load, of 100 milliseconds by default."""
    fixed = Settings(**{"steady": 0.0, "duration": 0.1, "size": SIZE,
                        "options": {"capacity": capacity, "xmit_interval": xmit_interval}}
                     | settings)
    fixed.check()
    result = simulate(seed, fixed)
    assert not result.check, result.sentence
    return result


def measured(**settings):
    return outcome(**settings).measured


def test_the_same_seed_measures_the_same_and_another_seed_something_else():
    settings = Settings(steady=0.0, duration=0.1, loss=0.05)
    one, again, another = (simulate(seed, settings).measured for seed in (3, 3, 4))
    assert one == again != another


def test_a_window_of_one_round_trip_limits_throughput():
    """On a fast wire a sender sends at most a window in a round trip; with twice the
    window it sends twice as much."""
    throughput = [measured(capacity=capacity, delay=1.0, bandwidth=10_000).throughput
                  for capacity in (32, 64, 128)]
    for capacity, each in zip((32, 64, 128), throughput, strict=True):
        assert 0.8 * capacity / 0.002 < each <= capacity / 0.002
    assert throughput[2] / throughput[0] == pytest.approx(4, rel=0.1)


def test_the_wire_limits_throughput_and_a_larger_window_only_waits_longer():
    small, large = measured(capacity=256, bandwidth=50), measured(capacity=2048, bandwidth=50)
    for each in (small, large):
        assert 0.9 * 50e6 / SIZE < each.throughput < 50e6 / SIZE
    assert large.percentile(0.5) / small.percentile(0.5) == pytest.approx(8, rel=0.25)
    # a window's way through the wire
    assert large.slowest == pytest.approx(2048 * SIZE / 50e6 * 1e9, rel=0.15)


def test_more_loss_is_more_overhead_and_less_throughput():
    of_loss = [measured(loss=loss) for loss in (0.0, 0.02, 0.1)]
    assert sorted(of_loss, key=lambda each: each.overhead) == of_loss
    assert sorted(of_loss, key=lambda each: -each.throughput) == of_loss
    repeats = [each.datagrams.get("repeat", 0) for each in of_loss]
    assert repeats[0] == 0 < repeats[1] < repeats[2]


def test_under_loss_a_longer_interval_is_a_longer_tail():
    short, long = (measured(loss=0.05, xmit_interval=interval, duration=0.5,
                            seed=7).percentile(0.99) for interval in (1.0, 100.0))
    assert long > 2 * short
    without = {measured(xmit_interval=interval).percentile(0.99) for interval in (1.0, 30.0)}
    assert max(without) < 1.1 * min(without)  # nothing waits for a repeat


def test_a_given_rate_is_what_arrives_and_nobody_is_blocked():
    at_ease = measured(steady=10_000.0)
    assert at_ease.throughput == pytest.approx(10_000, rel=0.02)
    assert at_ease.messages == 1000 and at_ease.blocked == 0
    assert 0.2 * MS <= at_ease.percentile(0.5) <= at_ease.slowest < 1 * MS
    too_much = measured(steady=10_000.0, bandwidth=5)
    assert too_much.throughput < 5001 and too_much.blocked == 0     # all finds room in the window
    blocked = measured(steady=10_000.0, bandwidth=5, capacity=16)
    assert 0.09 < blocked.blocked <= 0.1


def test_every_message_is_counted_once_for_each_receiver_of_others():
    for settings in ({"members": 2}, {"members": 4, "loss": 0.1}, {"members": 3, "senders": 3},
                     # Most of it comes long after the load has ended.
                     {"members": 3, "bandwidth": 1, "loss": 0.2}):
        each = measured(**settings)
        senders = settings.get("senders", 1)
        assert sum(each.latency.values()) == each.messages * (settings["members"] - 1)
        assert each.payload >= each.messages * SIZE
        assert len(each.delivered) == settings["members"] - (senders == 1)
        assert each.throughput == min(each.delivered.values()) / each.seconds


def test_several_senders_share_the_receivers_wires():
    together = measured(members=3, senders=3, bandwidth=20)
    assert together.throughput < 20e6 / SIZE
    assert sum(together.delivered.values()) / together.seconds > 0.8 * 3 * 20e6 / SIZE


def test_over_connections_every_receiver_has_a_copy():
    for members in (2, 4):
        each = measured(stack="nakack2-tcp", members=members, xmit_interval=0)
        assert members - 2 < each.overhead < members - 1.8


@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-udp"])
def test_every_stack_can_be_measured(stack):
    assert measured(stack=stack).throughput > 1000


def test_faults_are_only_those_that_were_asked_for():
    load = {"send", "stop sending"}
    assert {action.what for action in draw(5, Settings(steady=0.0)).actions} == load
    asked = draw(5, Settings(steady=0.0, crashes=2, pauses=1))
    kinds = {action.what for action in asked.actions}
    assert load | {"pause"} < kinds <= load | {"pause", "crash", "crash at", "restart"}
    settings = Settings(steady=0.0, duration=0.1, crashes=1, pauses=1, unicast=20)
    assert not simulate(5, settings).check


def test_latencies_are_of_messages_that_were_sent_before_the_load_ended():
    counted, slowest = latencies(array("q", [5, 5, 7]), array("q", [6, 1005, 10**9]), 6)
    assert counted == count_latencies(pa.array([1, 1000])) and slowest == 1000
    assert latencies(array("q"), array("q"), 6) == ({}, 0)


def test_a_trace_beside_the_measurement_changes_neither(tmp_path):
    settings = Settings(steady=0.0, duration=0.05)
    run = Run(draw(1, settings))
    with Trace(run.cluster, tmp_path) as trace:
        traced = run.outcome()
    assert trace.num_events > 100 and traced.measured == simulate(1, settings).measured


def test_a_prefix_ends_the_load_when_it_ends():
    settings = Settings(steady=0.0, duration=0.1)
    whole, part = simulate(1, settings).measured, simulate(1, settings, 50).measured
    assert part.seconds == pytest.approx(0.05) and part.messages < whole.messages
    assert simulate(1, settings, 0).measured is None


@pytest.mark.parametrize(("settings", "says"), [
    (Settings(steady=-1.0), "steady cannot be -1"),
    (Settings(senders=1), "senders is for a steady load"),
    (Settings(bandwidth=1.0), "bandwidth is for a steady load"),
    (Settings(steady=0.0, members=1), "2 members or more"),
    (Settings(steady=0.0, senders=4), "from 1 to the number of members, 3"),
    (Settings(steady=0.0, messages=9), "no number of messages"),
    (Settings(steady=0.0, bandwidth=0.0), "bandwidth is megabytes"),
])
def test_what_cannot_be_measured_is_a_mistake_of_the_caller(settings, says):
    with pytest.raises(ConfigError, match=says):
        settings.check()


def test_what_was_measured_can_be_written_down():
    each = measured()
    assert msgspec.json.decode(msgspec.json.encode(each), type=type(each)) == each
