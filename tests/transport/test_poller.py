"""The driver polls, or a thread that waits for messages; never both, never none."""

import threading
import time

import pytest

from ringcast.channel.poller import PATIENCE, Poller

LONG = 30                               # seconds after which something that must happen has not


class Network:
    """A transport: a turn ends when a datagram came or somebody woke it, or if it has
    an instant to end by, at once. It notes who polls."""

    def __init__(self):
        self.poller = Poller(self.turn, self.wake)
        self.something = threading.Semaphore(0)
        self.polling = threading.Lock()
        self.turns = []
        self.came = 0
        self.polled = threading.Event()
        self.gone = False                       # there is nobody to poll for

    def turn(self, expecting, by=None):
        assert self.polling.acquire(blocking=False), "two poll at once"
        self.turns.append(expecting)
        self.polled.set()
        self.something.acquire(timeout=LONG if by is None else 0)
        self.came += 1
        self.polling.release()
        return not self.gone

    def wake(self):
        self.something.release()


@pytest.fixture
def network():
    network = Network()
    driver = threading.Thread(target=network.poller.run_driver)
    driver.start()
    yield network
    network.poller.stop()
    driver.join(LONG)
    assert not driver.is_alive()


def until(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(PATIENCE / 1e9)


def test_the_driver_ends_when_there_is_nobody_to_poll_for():
    network = Network()
    network.gone = True
    network.wake()
    network.poller.run_driver()
    assert network.turns == [False]


def test_a_driver_that_is_stopped_in_its_turn_ends(network):
    network.polled.wait(LONG)
    network.poller.stop()


def test_the_driver_polls_while_nobody_else_does(network):
    until(lambda: network.turns)
    network.wake()
    until(lambda: len(network.turns) > 1)
    assert set(network.turns) == {False}


def test_a_caller_polls_in_the_drivers_place_and_the_driver_takes_over_again(network):
    until(lambda: network.turns)
    done = threading.Event()
    caller = threading.Thread(target=lambda: (network.poller.poll_from_caller(done.is_set), None))
    caller.start()
    until(lambda: True in network.turns)
    drivers_turns = network.turns.count(False)
    done.set()
    network.wake()
    caller.join(LONG)
    until(lambda: network.turns.count(False) > drivers_turns)


def test_a_caller_that_is_done_at_once_polls_nothing(network):
    until(lambda: network.turns)
    network.poller.poll_from_caller(lambda: True)
    assert True not in network.turns


def test_stop_releases_a_caller_and_a_driver_that_stands_by(network):
    until(lambda: network.turns)
    caller = threading.Thread(target=lambda: network.poller.poll_from_caller(lambda: False))
    caller.start()
    until(lambda: network.turns[-1:] == [True])
    until(lambda: network.poller._standby.is_idle)
    network.poller.stop()
    caller.join(LONG)
    assert not caller.is_alive()


@pytest.mark.prove
def test_nobody_is_forgotten_however_often_callers_come_and_go(network):
    """Threads take over polling hundreds of times beside threads that hog the
    interpreter, as a busy sender does."""
    until(lambda: network.turns)
    hogging = True

    def hog():
        while hogging:
            sum(range(1000))

    hogs = [threading.Thread(target=hog) for _ in range(2)]
    for thread in hogs:
        thread.start()
    try:
        for round in range(300):
            before = network.came
            feeder = threading.Thread(target=network.wake)
            feeder.start()
            network.poller.poll_from_caller(lambda before=before: network.came > before + 1
                                          or network.turns[-1:] == [True])
            feeder.join()
            if round % 50 == 0:
                count = len(network.turns)
                until(lambda count=count: network.turns[count:] and not network.turns[-1])
    finally:
        hogging = False
        for thread in hogs:
            thread.join()


def test_a_caller_that_polls_briefly_hands_back_to_the_driver_if_nothing_came(network):
    until(lambda: network.turns)
    network.poller.poll_briefly(lambda: False)
    polled = len(network.turns)
    assert network.turns.count(True) == 1
    until(lambda: len(network.turns) > polled)
    assert network.turns[-1] is False
