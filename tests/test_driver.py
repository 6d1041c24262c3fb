"""Turns that other threads ask for while the polling thread begins one, or sleeps."""

import threading
import time

import pytest

from ringcast import Address, Channel
from ringcast.channel.driver import FOREVER, Driver


class Met(Driver):
    """Another thread asks for a turn at the moment when the polling thread notes that
    it is awake. The GIL lets no thread in there."""

    is_met = False

    @property
    def _wakes_at(self):
        if self.is_met:
            self.is_met = False
            self.request_turn()
        return self.__dict__["wakes_at"]

    @_wakes_at.setter
    def _wakes_at(self, value):
        self.__dict__["wakes_at"] = value


def test_a_request_that_comes_while_a_turn_begins_is_not_lost():
    channel = Channel("driver", name="A", stack="inproc")
    driver, ticks = channel._driver, []
    driver.__class__ = Met
    driver._wakes_at = 0
    channel._endpoint.tick = ticks.append
    driver.poll(False, time.monotonic_ns())
    driver.is_met = True
    driver.poll(False, time.monotonic_ns())
    ticks.clear()
    driver.poll(False, time.monotonic_ns())         # nothing else is due
    assert len(ticks) == 1
    channel.close()


class Lock:
    """A lock that calls a function before it is taken."""

    def __init__(self, before):
        self.lock, self.before = threading.Lock(), before

    def __enter__(self):
        self.before(self.lock.locked())
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_a_sender_does_not_pass_the_polling_thread_that_waits_for_the_turn():
    """The polling thread has waited for the turn for long, and is not run before the
    sender has asked for another one."""
    channel = Channel("driver", name="A", stack="inproc")
    driver, turns = channel._driver, []
    waits, asked = threading.Event(), threading.Event()

    def before_turn(is_held):
        if threading.current_thread() is polling:
            waits.set()
            assert asked.wait(60)
        elif waits.is_set():
            asked.set()

    driver.turn = Lock(before_turn)
    driver._gate = Lock(lambda is_held: asked.set() if is_held else None)
    driver.endpoint.tick = lambda now: turns.append("poll")
    driver.endpoint.bundler.flush = lambda *_, **__: turns.append("flush")
    driver.request_turn()
    polling = threading.Thread(target=driver.poll, args=(False, time.monotonic_ns()))

    def hold(now):
        polling.start()
        assert waits.wait(60)
        driver._waits_since = 0

    driver.run_in_turn(hold)
    driver.flush(None, full_only=False)
    polling.join()
    assert turns == ["poll", "flush"]
    channel.close()


@pytest.mark.parametrize("wakes_at", [FOREVER, 0], ids=["asleep", "awake"])
def test_a_flush_wakes_the_polling_thread_if_it_sleeps_past_the_deadline(wakes_at):
    """If it is awake, it looks at the deadline before it sleeps."""
    channel, woken = Channel("driver", name="A", stack="inproc"), []
    driver = channel._driver
    driver.run_in_turn(channel._endpoint.start)
    assert channel._endpoint.stack.deadline() is not None
    driver._wakes_at = wakes_at
    channel._transport.wake = lambda: woken.append(True)
    driver.flush(Address("B", 2), full_only=False)
    assert bool(woken) == (wakes_at == FOREVER) and driver._wakes_at == 0
    channel.close()
