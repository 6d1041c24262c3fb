"""Who polls: the driver, or whoever waits for messages; never both, never nobody."""

import threading
import time

import pytest

from ringcast.channel.poller import PATIENCE, Poller

LONG = 30                               # seconds after which something that must happen has not


class Network:
    """Something to poll: a turn ends when something came or somebody woke it; it notes
    who polls."""

    def __init__(self):
        self.seat = Poller(self.turn, self.wake)
        self.something = threading.Semaphore(0)
        self.polling = threading.Lock()
        self.turns = []
        self.came = 0
        self.polled = threading.Event()
        self.gone = False                       # there is nobody to poll for

    def turn(self, visiting):
        assert self.polling.acquire(blocking=False), "two poll at once"
        self.turns.append(visiting)
        self.polled.set()
        self.something.acquire(timeout=LONG)
        self.came += 1
        self.polling.release()
        return not self.gone

    def wake(self):
        self.something.release()


@pytest.fixture
def network():
    network = Network()
    driver = threading.Thread(target=network.seat.run_driver)
    driver.start()
    yield network
    network.seat.stop()
    driver.join(LONG)
    assert not driver.is_alive()


def until(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(PATIENCE)


def test_the_driver_ends_when_there_is_nobody_to_poll_for():
    network = Network()
    network.gone = True
    network.wake()
    network.seat.run_driver()
    assert network.turns == [False]


def test_a_driver_that_is_stopped_in_its_turn_ends(network):
    network.polled.wait(LONG)
    network.seat.stop()


def test_the_driver_polls_while_nobody_visits(network):
    until(lambda: network.turns)
    network.wake()
    until(lambda: len(network.turns) > 1)
    assert set(network.turns) == {False}


def test_a_visitor_gets_the_seat_and_the_driver_takes_it_back(network):
    until(lambda: network.turns)
    visited = threading.Event()
    visitor = threading.Thread(target=lambda: (network.seat.poll_from_caller(visited.is_set), None))
    visitor.start()
    until(lambda: True in network.turns)
    visited.set()
    network.wake()
    visitor.join(LONG)
    drivers_turns = network.turns.count(False)
    until(lambda: network.turns.count(False) > drivers_turns)


def test_a_visitor_that_is_done_at_once_polls_nothing(network):
    until(lambda: network.turns)
    network.seat.poll_from_caller(lambda: True)
    assert True not in network.turns


def test_stop_releases_a_visitor_and_a_driver_that_stands_by(network):
    until(lambda: network.turns)
    visitor = threading.Thread(target=lambda: network.seat.poll_from_caller(lambda: False))
    visitor.start()
    until(lambda: network.turns[-1:] == [True])
    until(lambda: network.seat._is_asleep)
    network.seat.stop()
    visitor.join(LONG)
    assert not visitor.is_alive()


@pytest.mark.prove
def test_nobody_is_forgotten_however_often_visitors_come_and_go(network):
    """The seat changes hands a thousand times beside a thread that hogs the
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
        for visit in range(300):
            before = network.came
            feeder = threading.Thread(target=network.wake)
            feeder.start()
            network.seat.poll_from_caller(lambda before=before: network.came > before + 1
                                          or network.turns[-1:] == [True])
            feeder.join()
            if visit % 50 == 0:
                count = len(network.turns)
                until(lambda count=count: network.turns[count:] and not network.turns[-1])
    finally:
        hogging = False
        for thread in hogs:
            thread.join()
