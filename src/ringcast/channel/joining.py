"""Joining: a member has joined when it has its first view, on which the others agree,
and when min_members are in it. If only the primary part goes on, it must be primary.

Before connect() there are no threads and no turns: nothing that joining needs may run
earlier. A channel joins once.
"""

import time

from ringcast.channel.callbacks import Callbacks
from ringcast.channel.driver import Driver
from ringcast.channel.pauses import Steps
from ringcast.channel.publishing import Publishing
from ringcast.channel.reentry import deadline_after, refuses_reentry
from ringcast.channel.state import State
from ringcast.channel.threads import Threads
from ringcast.errors import ClosedError, JoinTimeoutError, RingcastError
from ringcast.view import listed

MOST_NAMED = 10                         # members that an error lists


class Joining:
    """Lets a channel, whose parts these are, join `group`.

    Threads: any thread may call.
    """

    def __init__(self, group: str, state: State, driver: Driver, threads: Threads,
                 callbacks: Callbacks, publishing: Publishing) -> None:
        self._group, self._state, self._driver = group, state, driver
        self._threads, self._callbacks, self._publishing = threads, callbacks, publishing
        self._inside = state.inside                     # for refuses_reentry

    @refuses_reentry
    def start(self) -> None:
        """Announce this member, and start the threads."""
        self._state.check_open()
        if self._threads.started:
            raise RingcastError("this channel is connected already; use it as it is")
        self._publishing.open()
        if self._driver.seeking is not None:
            self._driver.seeking.start(time.monotonic_ns())
        self._driver.run_in_turn(self._driver.endpoint.start)
        self._threads.start(self._driver.poller.run_driver, "driver")
        if self._callbacks.needs_thread:
            self._threads.start(self._callbacks.target(), "callbacks")
        self._state.settled.notify_all()                      # for threads that iterate already

    def wait(self, timeout: float | None) -> Steps[RingcastError | None]:
        """Wait for a view of enough members. Return an error if there is none."""
        endpoint = self._driver.endpoint
        seconds = endpoint.config.join_timeout / 1000 if timeout is None else timeout
        yield from self._state.settling(deadline_after(seconds), lambda: endpoint.has_joined)
        return None if endpoint.has_joined else self._error(seconds)

    def _error(self, seconds: float) -> RingcastError:
        """Return why there is no view after `seconds`, or too small a one."""
        if self._state.closing:
            return ClosedError(self._state.fault
                               or "the channel was closed while it joined; open a new one")
        endpoint, transfer = self._driver.endpoint, self._driver.endpoint.transfer
        present, enough = endpoint.members.present(), endpoint.config.min_members
        names = listed(present, MOST_NAMED)
        if transfer.installed and transfer.is_holding:
            return JoinTimeoutError(
                f"this member is in group {self._group!r} with {names}, and has not been given the "
                f"application's state within {seconds:g} s; give connect() more time, or see the "
                "logs of the others")
        if (counted := endpoint.members.num_counted()) < enough:
            besides = "" if counted == len(present) else " besides observers"
            return JoinTimeoutError(
                f"group {self._group!r} has {counted} of the {enough} members that "
                f"min_members asks for{besides}, {names}, after {seconds:g} s; start more, ask for "
                "fewer, or give connect() more time")
        if endpoint.view is not None and not endpoint.view.primary:
            return JoinTimeoutError(
                f"group {self._group!r} has no majority of its members after {seconds:g} s, only "
                f"{names}; bring the others back, or, if they never come back, stop all members "
                "and start them again")
        return JoinTimeoutError(
            f"group {self._group!r} has no view with this member after {seconds:g} s, although "
            f"it hears {names}; give connect() more time")
