"""Receiving: what is in the inbox goes to tasks, as it goes to threads.

A task takes from the inbox without waiting. If there is nothing, it waits for the bell,
and holds nothing meanwhile: so whoever cancels it loses nothing. Between taking and
handing out there is no await.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from ringcast._core.batch import Batch, Message
from ringcast.aio.wakeups import Wakeups
from ringcast.channel.closing import to_seconds
from ringcast.channel.inbox import HANDED_OUT, Inbox, Outstanding, deadline
from ringcast.errors import RingcastError
from ringcast.stack import Instant

Item = TypeVar("Item")


class Receiving:
    """Takes from `inbox` for the tasks of a loop, each in its own name.

    `check()` raises if there is nothing to receive from. `poll(done)` polls the network
    from this thread, without waiting. While messages come all the time, this costs less
    than to wait for the driver's thread, as for threads that iterate (poller.py).
    """

    def __init__(self, inbox: Inbox, wakeups: Wakeups, check: Callable[[], None],
                 poll: Callable[[Callable[[], bool]], None]) -> None:
        self.inbox, self._wakeups, self._check = inbox, wakeups, check
        self._poll, self._is_busy = poll, False         # whether messages come all the time
        inbox.bell = wakeups.bell
        inbox.asker = asyncio.current_task
        inbox.is_gone = is_done

    async def take(self, taken: list[Outstanding], timeout: Instant | None,
                   last_view: int | None) -> bool:
        """Wait for messages; see Inbox.take. Let other tasks go on, although there may
        be messages all the time."""
        self._check()
        inbox, by = self.inbox, deadline(timeout)
        inbox.finish_asked()
        if self._is_busy and not inbox.has_news():
            self._poll(inbox.has_news)
        self._is_busy = inbox.has_news()
        if self._is_busy:
            await asyncio.sleep(0)
        is_in_time = True
        while True:
            is_last_look = inbox.is_last_look(last_view)
            if inbox.take_some(taken, last_view):
                return True
            if is_last_look or inbox.is_later(last_view) or not is_in_time:
                return False
            is_in_time = await self._wakeups.wait_for(lambda: inbox.has_news_in(last_view),
                                                      lambda: to_seconds(by),
                                                      ("messages", last_view))

    async def receive(self, timeout: Instant | None) -> Message | None:
        """Return the next message; None at the end and after `timeout`."""
        if (message := self.inbox.receive_more()) is not None:
            return message
        taken: list[Outstanding] = []
        while await self.take(taken, timeout, None):
            if (message := self.inbox.lend(taken)) is not None:
                return message
        return None


def is_done(task: object) -> bool:
    """Return whether a task has ended. wait_for() may run each call in a task of its
    own."""
    return not isinstance(task, asyncio.Task) or task.done()


class Iteration(ABC, Generic[Item]):
    """An iterator for `async for`. When it is dropped, what it has not handed out goes
    to the next one."""

    def __init__(self, receiving: Receiving, timeout: Instant | None,
                 last_view: int | None) -> None:
        self._receiving, self._timeout, self._last_view = receiving, timeout, last_view
        self._taken: list[Outstanding] = []
        self._is_taking = self._is_over = False

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Item:
        """Return the next item."""

    async def aclose(self) -> None:
        """Leave what was not handed out to the next iterator now."""
        self._is_over = True
        self._abandon()

    def __del__(self) -> None:
        self._abandon()

    def _abandon(self) -> None:
        while self._taken:
            self._receiving.inbox.abandon(self._taken.pop())

    async def _take(self) -> Outstanding:
        """Finish what this iterator has, and take more; StopAsyncIteration at the
        end."""
        if self._is_taking:
            raise RingcastError("two tasks wait for one iterator; give each task its own")
        if self._taken:
            self._receiving.inbox.mark_finished(self._taken.pop())
        self._is_taking = True
        try:
            if self._is_over or not await self._receiving.take(self._taken, self._timeout,
                                                               self._last_view):
                self._is_over = True
                raise StopAsyncIteration
        finally:
            self._is_taking = False
        return self._taken[0]


class Messages(Iteration[Message]):
    """Iterates over messages."""

    _messages = HANDED_OUT

    async def aclose(self) -> None:
        """See Iteration."""
        await super().aclose()
        self._messages = HANDED_OUT

    async def __anext__(self) -> Message:
        while True:
            for message in self._messages:
                return message
            if self._taken and (at := self._taken[0].at + 1) < len(self._taken[0].batches):
                taken = self._taken[0]
            else:
                taken, at = await self._take(), 0
            taken.at, taken.messages = at, iter(taken.batches[at])
            self._messages = taken.messages


class Batches(Iteration[Batch]):
    """Iterates over batches."""

    async def __anext__(self) -> Batch:
        if self._taken and (at := self._taken[0].at + 1) < len(self._taken[0].batches):
            taken = self._taken[0]
        else:
            taken, at = await self._take(), 0
        taken.at, taken.messages = at, HANDED_OUT
        return taken.batches[at]


class Deliveries(Iteration[list[Batch]]):
    """Iterates over lists of batches."""

    async def __anext__(self) -> list[Batch]:
        taken = await self._take()
        taken.at, taken.messages = len(taken.batches) - 1, HANDED_OUT
        return taken.batches
