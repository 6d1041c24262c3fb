"""The fault layers do what they say, to as many datagrams as they say, and the same for
the same seed."""

from random import Random

import pytest

from ringcast import ConfigError
from ringcast.protocols.faults import Delay, Discard, Duplicate, Shuffle
from ringcast.stack import Layer, Packet
from ringcast.status import Layers

MS = 1_000_000


class Above(Layer):
    def __init__(self):
        self.got = []

    def receive(self, packets, now):
        self.got += [packet.data for packet in packets]


def through(fault, count=1000, at_once=10):
    """What comes out of a fault layer when datagrams 0..count-1 go in, some at a time,
    a millisecond apart."""
    fault.above = above = Above()
    for now in range(0, count, at_once):
        fault.receive([Packet(1, 1, 0, b"%d" % k) for k in range(now, now + at_once)], now * MS)
        if fault.deadline() is not None and fault.deadline() <= now * MS:
            fault.tick(now * MS)
    while fault.deadline() is not None:
        fault.tick(fault.deadline())
    return [int(data) for data in above.got]


def test_discard_loses_about_its_rate_and_keeps_the_order():
    out = through(Discard(0.2, Random(1)))
    assert 150 < 1000 - len(out) < 250
    assert out == sorted(set(out))


def test_duplicate_repeats_about_its_rate_right_behind():
    fault = Duplicate(0.2, Random(1))
    out = through(fault)
    assert len(out) == 1000 + fault.hits and 150 < fault.hits < 250
    assert out == sorted(out) and set(out) == set(range(1000))


@pytest.mark.parametrize("make",
                         [lambda rng: Delay(0.2, rng, 5 * MS), lambda rng: Shuffle(0.2, rng)],
                         ids=["Delay", "Shuffle"])
def test_delay_and_shuffle_change_the_order_and_lose_nothing(make):
    out = through(make(Random(1)), at_once=1)
    assert sorted(out) == list(range(1000))
    assert sum(a > b for a, b in zip(out, out[1:], strict=False)) > 50


@pytest.mark.parametrize("make", [
    lambda rng: Discard(0.3, rng), lambda rng: Duplicate(0.3, rng), lambda rng: Delay(0.3, rng, MS),
    lambda rng: Shuffle(0.3, rng)])
def test_the_same_seed_does_the_same(make):
    assert through(make(Random(7))) == through(make(Random(7))) != through(make(Random(8)))


def test_shuffle_lets_a_lonely_datagram_go_after_a_while():
    fault = Shuffle(1.0, Random(1), longest=5 * MS)
    fault.above = above = Above()
    fault.receive([Packet(1, 1, 0, b"only")], 0)
    assert above.got == [] and fault.deadline() == 5 * MS
    fault.tick(5 * MS)
    assert above.got == [b"only"] and fault.deadline() is None


def test_what_is_held_is_copied_out_of_the_transports_memory():
    memory = bytearray(b"first")
    fault = Delay(1.0, Random(1), MS)
    fault.above = above = Above()
    fault.receive([Packet(1, 1, 0, memoryview(memory))], 0)
    memory[:] = b"other"
    fault.tick(fault.deadline())
    assert above.got == [b"first"]


def test_hits_are_counted_in_the_status():
    fault = Discard(1.0, Random(1))
    through(fault, 20)
    status = Layers()
    fault.describe(status)
    assert status.faults == {"discard": 20}


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_a_rate_that_is_no_probability_is_a_mistake_of_the_caller(rate):
    with pytest.raises(ConfigError, match="probability"):
        Discard(rate, Random(1))
