"""A member of a group in a thread with an event loop of its own: for programs that call
from several loops, or from loops that end."""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakMethod

from ringcast import ClosedError
from ringcast.aio import Channel
from ringcast.logs import log

Result = TypeVar("Result")
PATIENCE = 5.0          # seconds until the last messages have come to all, at the end


async def answer(waiting: Awaitable[Result]) -> Result:
    """Return what the thread's loop returns. Raises ClosedError if it has ended
    before."""
    try:
        return await waiting
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise                               # we are cancelled, and not what we wait for
        raise ClosedError("the channel has closed") from None


def call_after_fork(method: Callable[[], None]) -> None:
    """Call a method in each child after a fork, as long as its object lives."""
    reference = WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    os.register_at_fork(after_in_child=call)


class Home:
    """Opens a channel when it is first asked for, and runs `live(channel)` until it is
    closed. Then it calls `ended()`; whoever asks after that gets a new channel.

    Threads: any thread may call everything.
    """

    def __init__(self, open_channel: Callable[[], Channel],
                 live: Callable[[Channel], Coroutine[Any, Any, None]],
                 ended: Callable[[], None]) -> None:
        self._open_channel, self._live, self._ended = open_channel, live, ended
        self._lock = threading.Lock()
        self._channel: Future[Channel] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def channel(self) -> Channel:
        """Return the channel as soon as it is connected. Raises what connect()
        raises; then the next call tries again, as after a channel that has closed by
        itself."""
        with self._lock:
            if self._channel is None:
                self._channel = Future()
                self._thread = threading.Thread(target=asyncio.run, name="ringcast home",
                                                args=(self._run(self._channel),), daemon=True)
                self._thread.start()
                atexit.register(self.stop)
            connecting = self._channel
        if connecting.done() and not connecting.cancelled():
            return connecting.result()
        return await answer(asyncio.shield(asyncio.wrap_future(connecting)))

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread's loop. Raises ClosedError if the channel has
        closed."""
        with self._lock:
            if self._loop is None:
                work.close()
                raise ClosedError("the channel has closed")
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await answer(asyncio.wrap_future(running))

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the thread's loop, if a channel is open."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """Close the channel, and wait for the end of the thread."""
        atexit.unregister(self.stop)
        if self._thread is None or not self._thread.is_alive():
            return                  # a forked child has no threads, but a lock that one may hold
        with self._lock:
            connecting, thread, self._channel = self._channel, self._thread, None
        if connecting is not None and not connecting.cancel() and not connecting.exception():
            self.call_soon(lambda: asyncio.ensure_future(connecting.result().close(PATIENCE)))
        thread.join()

    async def _run(self, connecting: Future[Channel]) -> None:
        """Join, and live. Whoever calls run() after that finds no loop: what a loop is
        given when it has cancelled its tasks, and closes, never ends."""
        self._loop = loop = asyncio.get_running_loop()
        try:
            await self._join_and_live(connecting, loop)
        finally:
            with self._lock:
                if self._loop is loop:          # else another thread has begun
                    self._loop = None

    async def _join_and_live(self, connecting: Future[Channel],
                             loop: asyncio.AbstractEventLoop) -> None:
        try:
            joining = loop.create_task(self._open_channel().connect())
            connecting.add_done_callback(lambda _: loop.call_soon_threadsafe(joining.cancel))
            channel = await joining
        except BaseException as error:
            self._forget(connecting)
            if connecting.set_running_or_notify_cancel():
                connecting.set_exception(error)
            return
        living = asyncio.create_task(self._live(channel))
        await asyncio.sleep(0)                  # it has begun when others hear of the channel
        if connecting.set_running_or_notify_cancel():
            connecting.set_result(channel)
        else:
            await channel.close(0)
        try:
            await living
        except Exception:
            await channel.close(0)              # nobody takes what comes any more
            raise
        finally:
            self._forget(connecting)
            self._ended()
        if channel.fault is not None:
            log.warning("group %s: this process is out of it, and joins it again at the next call: "
                        "%s", channel.group, channel.fault)
        await channel.close(PATIENCE)           # or wait for who closes it

    def _forget(self, connecting: Future[Channel]) -> None:
        """Let the next call join again."""
        with self._lock:
            if self._channel is connecting:
                self._channel = None
