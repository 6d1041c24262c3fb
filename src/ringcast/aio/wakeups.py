"""Wakeups: threads of a channel wake the tasks that wait for it.

The loop watches one descriptor. Whatever changes rings its bell, but only if a task has
waited since the bell was last answered: while all tasks work, nothing costs a system
call. A task arms the bell *before* it looks, and who changes something rings *after*
the change. So one of the two sees the other.

Tasks that wait for the same thing stand in a line, and only the first of each line is
woken. Who leaves a line wakes the next one. So they go on in their order, and room for
one does not wake thousands in vain.
"""

import asyncio
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self

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
        # What wakes the tasks of each line, in the order in which they came.
        self.lines: dict[object, dict[Place, Future[None]]] = {}
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

    async def wait_for(self, ready: Callable[[], bool], deadline: Callable[[], float | None],
                       line: object = None) -> bool:
        """Wait in a line, and leave it; see Place.wait_for."""
        with Place(self) as place:
            return await place.wait_for(ready, deadline, line)

    def _answer(self) -> None:
        """Wake the first task of each line: it looks if it may go on."""
        self.bell.answer()
        self._wake_all()
        if self._state.closing:         # somebody closes it; nobody needs to wait for that
            self.bell.arm()
        if self._state.closed:
            self.detach()

    def _wake_all(self) -> None:
        for line in self.lines.values():
            wake(next(iter(line.values())))


class Place:
    """The place of a task in a line: from when it waits there until it waits in another
    line, or this context ends. A task that was woken in vain keeps its place.

    Who leaves wakes the next one, also if it was cancelled or its time is over: it may
    have been woken, and nobody else would hear of it.
    """

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._line: object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._leave()

    def _leave(self) -> None:
        lines = self._wakeups.lines
        line, self._line = self._line, None
        if line in lines:
            del lines[line][self]
            if lines[line]:
                wake(next(iter(lines[line].values())))
            else:
                del lines[line]

    async def wait_for(self, ready: Callable[[], bool], deadline: Callable[[], float | None],
                       line: object) -> bool:
        """Wait for the condition; return False if it does not hold at `deadline()`, by
        time.monotonic(); None is never. `line` names what all who wait there wait for;
        None if one that goes on takes nothing from others."""
        loop, bell = self._wakeups.attach(), self._wakeups.bell
        line = self if line is None else line
        if line != self._line:
            self._leave()
            self._line = line
        while True:
            woken, timer = loop.create_future(), None
            self._wakeups.lines.setdefault(line, {})[self] = woken
            try:
                bell.arm()
                if ready():
                    return True
                if (end := deadline()) is not None:
                    if (left := end - time.monotonic()) <= 0:
                        await asyncio.sleep(0)      # calls with timeout=0 are made in a loop
                        return False
                    timer = loop.call_later(left, partial(wake, woken))
                await woken
            finally:
                if timer is not None:
                    timer.cancel()


def wake(woken: "Future[None]") -> None:
    """Let the task that waits for this go on."""
    if not woken.done() and not woken.get_loop().is_closed():
        woken.set_result(None)
