"""Wakeups: threads of a channel wake the tasks that wait for it.

The loop watches one descriptor. Whatever changes rings its bell, but only if a task has
waited since the bell was last answered: while all tasks work, nothing costs a system
call. A task arms the bell *before* it looks, and who changes something rings *after*
the change. So one of the two sees the other.
"""

import asyncio
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ringcast.channel.bell import Bell
from ringcast.channel.state import State
from ringcast.errors import RingcastError


class AlarmBell(Bell):
    """A bell that rings once for each time that it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self._is_armed = False

    def arm(self) -> None:
        """Let the next ring() be heard."""
        self._is_armed = True

    def ring(self) -> None:
        """Ring, if the bell is armed."""
        if self._is_armed:
            self._is_armed = False
            super().ring()

    def silence(self) -> None:
        """Do nothing: only the loop silences this bell."""

    def answer(self) -> None:
        """Silence the bell, from the loop."""
        super().silence()


class Wakeups:
    """The tasks of one event loop that wait for the channel whose state this is.

    Threads: only the thread of the loop may call, but any thread drop().
    """

    def __init__(self, state: State) -> None:
        self.bell = AlarmBell()
        self._state = state
        self._loop: AbstractEventLoop | None = None
        # In the order in which they began to wait, so that each has its turn.
        self._waiting: dict[Future[None], None] = {}
        for condition in (state.room, state.settled):
            condition.watch(self.bell)

    def attach(self) -> AbstractEventLoop:
        """Return the running loop, which watches the bell from now on."""
        self._state.check_not_forked()          # the loop belongs to the parent
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self.bell.fileno(), self._answer)
        if loop is not self._loop:
            raise RingcastError("this channel belongs to another event loop; open a channel in "
                                "the loop that uses it")
        return loop

    def detach(self) -> None:
        """Let the loop watch the bell no more, because the channel is closed. Wake all
        tasks: the loop may not have heard the last ring."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self.bell.fileno())
            self._wake_all()

    def drop(self) -> None:
        """Do so soon, because the channel was dropped, in any thread. In a forked child
        the loop is not ours."""
        if self._loop is not None and not self._state.closed:
            with suppress(RuntimeError):                # the loop is closed
                self._loop.call_soon_threadsafe(self.detach)

    async def wait_for(self, ready: Callable[[], bool],
                       deadline: Callable[[], float | None]) -> bool:
        """Wait for the condition; return False if it does not hold at `deadline()`, by
        time.monotonic(); None is never."""
        loop = self.attach()
        while True:
            woken, timer = loop.create_future(), None
            self._waiting[woken] = None
            try:
                self.bell.arm()
                if ready():
                    return True
                if (end := deadline()) is not None:
                    if (left := end - time.monotonic()) <= 0:
                        return False
                    timer = loop.call_later(left, partial(wake, woken))
                await woken
            finally:
                del self._waiting[woken]
                if timer is not None:
                    timer.cancel()

    def _answer(self) -> None:
        """Wake all tasks: each of them looks if it may go on."""
        self.bell.answer()
        self._wake_all()
        if self._state.closing:         # somebody closes it; nobody needs to wait for that
            self.bell.arm()
        if self._state.closed:
            self.detach()

    def _wake_all(self) -> None:
        for woken in self._waiting:
            wake(woken)


def wake(woken: "Future[None]") -> None:
    """Let the task that waits for this go on."""
    if not woken.done():
        woken.set_result(None)
