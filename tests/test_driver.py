"""Turns that other threads ask for while the polling thread begins one."""

import time

from ringcast import Channel
from ringcast.channel.driver import Driver


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
