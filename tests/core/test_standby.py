"""Standby: the driver waits there until no caller polls any more."""

import random
import threading
import time

import pytest

from ringcast._core.standby import Standby

MOMENT = 1_000_000                      # nanoseconds
LONG = 500 * MOMENT                     # longer than a test's thread is kept from running
FOREVER = 1 << 50
PATIENCE = 60                           # seconds after which what should happen has not


class Driver:
    """A thread in wait()."""

    def __init__(self, standby, patience_ns):
        self.standby = standby
        self.thread = threading.Thread(target=standby.wait, args=(patience_ns,))
        self.thread.start()

    def until_idle(self):
        deadline = time.monotonic() + PATIENCE
        while not self.standby.is_idle:
            assert self.thread.is_alive() and time.monotonic() < deadline

    def returns(self):
        self.thread.join(PATIENCE)
        return not self.thread.is_alive()


@pytest.fixture
def standby():
    standby = Standby()
    yield standby
    standby.stop()                      # a test that failed leaves no thread behind


def test_a_wait_takes_no_less_than_its_patience(standby):
    for patience in (MOMENT, 20 * MOMENT):
        began = time.monotonic_ns()
        standby.wait(patience)
        assert time.monotonic_ns() - began >= patience


@pytest.mark.parametrize("come", [lambda standby: (standby.enter(), standby.leave()),
                                  Standby.hurry], ids=["visits", "hurry"])
def test_a_wait_goes_on_while_callers_come_and_go(standby, come):
    driver = Driver(standby, LONG)
    end = time.monotonic_ns() + 3 * LONG
    while time.monotonic_ns() < end:
        come(standby)
        assert driver.thread.is_alive()
    assert driver.returns()


def assert_a_leave_ends_a_wait(standby):
    """A caller polls. The driver stops to look if it still does, and waits for it."""
    driver = Driver(standby, MOMENT)
    driver.until_idle()
    assert driver.thread.is_alive()
    standby.leave()
    assert driver.returns()


def test_a_wait_ends_after_the_caller_has_left_that_polled_for_long(standby):
    standby.enter()
    assert_a_leave_ends_a_wait(standby)


def test_a_caller_that_leaves_twice_is_gone_and_the_next_one_counts(standby):
    standby.enter()
    standby.leave()
    standby.leave()
    assert Driver(standby, MOMENT).returns()
    standby.enter()
    assert_a_leave_ends_a_wait(standby)


def test_a_caller_that_was_killed_while_it_left_does_not_hide_the_next_one(standby):
    """An exception of a signal handler can keep a caller from leave()."""
    standby.enter()
    standby.enter()
    assert_a_leave_ends_a_wait(standby)


def test_stop_ends_a_wait_that_looks_one_that_does_not_and_all_later_ones(standby):
    looking = Driver(standby, FOREVER)
    standby.stop()
    assert looking.returns()
    standby.wait(FOREVER)
    other = Standby()
    other.enter()
    idle = Driver(other, MOMENT)
    idle.until_idle()
    other.stop()
    assert idle.returns()


def test_no_leave_is_lost_however_it_meets_the_look(standby):
    """Visits last about as long as the patience of the driver, so that many end just
    when it stops looking. A leave() that it missed would make it wait for ever."""
    chance, waits = random.Random(1), []

    def drive():
        while not waits or waits[-1] < 3000:
            standby.wait(20_000)
            waits.append(len(waits) + 1)
    thread = threading.Thread(target=drive)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while thread.is_alive() and time.monotonic() < deadline:
        standby.enter()
        until = time.monotonic_ns() + chance.randrange(40_000)
        while time.monotonic_ns() < until:
            pass
        standby.leave()
        if chance.random() < 0.5:
            thread.join(0.0001)
    assert not thread.is_alive(), f"it hangs after {len(waits)} waits"
