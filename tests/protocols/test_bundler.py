"""When a datagram leaves, to the nanosecond: a message that waits leaves when it is
due, whatever other threads push meanwhile."""

import pytest

from ringcast import Address
from ringcast.protocols.bundler import Bundler

DELAY = 300_000
B = Address("B", 2)

pytestmark = pytest.mark.parametrize("dest", [None, B])


class Layers:
    """Note what the bundler lets them frame: (destination, instant, full_only)."""

    def __init__(self):
        self.framed = []

    def flush(self, *call):
        *dest, now, full_only = call
        self.framed.append((dest[0] if dest else None, now, full_only))

    def addresses(self):
        return [B]


@pytest.fixture
def layers():
    return Layers()


@pytest.fixture
def bundler(layers):
    return Bundler(layers, layers, DELAY)


def test_a_message_goes_at_once_unless_sending_took_more_than_half_of_the_time(
        bundler, layers, dest):
    now, took = 1_000_000_000, 40_000
    assert bundler.schedule(dest, now) is None and bundler.deadline() is None
    bundler.flush(dest, now)
    bundler.rest(dest, now, now + took)
    assert bundler.schedule(dest, now + 2 * took) is None and bundler.deadline() is None
    at = now + 2 * took - 1
    assert bundler.schedule(dest, at) == at == bundler.deadline()
    assert bundler.schedule(dest, at + 5) == at         # the driver has not come to it
    bundler.flush_due(at - 1)
    assert layers.framed == [(dest, now, False)]
    bundler.flush_due(at)
    assert layers.framed == [(dest, now, False), (dest, at, False)]
    assert bundler.deadline() is None


def test_after_a_full_datagram_messages_wait_for_another(bundler, layers, dest):
    bundler.flush(dest, 5, full_only=True)
    assert bundler.schedule(dest, 5 + DELAY - 1) == 5 + DELAY == bundler.deadline()


def test_what_no_full_datagram_takes_is_due_a_delay_later(bundler, layers, dest):
    bundler.flush(dest, 5, full_only=True)
    assert bundler.deadline() == 5 + DELAY
    bundler.flush_due(5 + DELAY)
    assert layers.framed == [(dest, 5, True), (dest, 5 + DELAY, False)]


def test_what_is_pushed_as_soon_as_the_window_is_framed_is_not_forgotten(layers, dest):
    class Preempted(Bundler):
        def frame(self, dest, now, full_only):
            super().frame(dest, now, full_only)
            if now == 1_000_000:
                # another thread, whose message is the first to wait
                assert self.schedule(dest, now + 10) == now + 10

    bundler = Preempted(layers, layers, DELAY)
    bundler.rest(dest, 0, 1_000_000)
    bundler.flush(dest, 1_000_000)
    assert bundler.deadline() == 1_000_010


def test_who_closes_sends_all_that_waits_and_who_is_gone_is_forgotten(bundler, layers, dest):
    bundler.flush_all(5)
    assert layers.framed == [(None, 5, False), (B, 5, False)]
    bundler.rest(B, 0, 5)
    bundler.schedule(B, 6)
    bundler.forget(B)
    assert B not in bundler.rests and bundler.deadline() is None
