"""A member of a group in a thread with an event loop of its own: for programs that call
from several loops, or from loops that end."""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ringcast.aio import Channel

Result = TypeVar("Result")
PATIENCE = 5.0          # seconds until the last messages have come to all, at the end


class Home:
    """Opens a channel when it is first asked for, and runs `live(channel)` until it is
    closed. After a fork the child has one of its own.

    Threads: any thread may call everything.
    """

    def __init__(self, open_channel: Callable[[], Channel],
                 live: Callable[[Channel], Coroutine[Any, Any, None]]) -> None:
        self._open_channel, self._live = open_channel, live
        self._lock = threading.Lock()
        self._channel: Future[Channel] | None = None
        self._process = 0                       # whose thread it is
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def channel(self) -> Channel:
        """Return the channel as soon as it is connected. Raises what connect()
        raises; then the next call tries again, as after a channel that has closed by
        itself."""
        with self._lock:
            if (self._channel is None or self._process != os.getpid() or self._thread is None
                    or not self._thread.is_alive()):
                self._channel, self._process = Future(), os.getpid()
                self._thread = threading.Thread(target=asyncio.run, name="ringcast home",
                                                args=(self._run(self._channel),), daemon=True)
                self._thread.start()
                atexit.register(self.stop)
            connecting = self._channel
        if connecting.done():
            return connecting.result()
        return await asyncio.shield(asyncio.wrap_future(connecting))

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread's loop."""
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call_soon(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the thread's loop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """Close the channel, and wait for the end of the thread."""
        atexit.unregister(self.stop)
        with self._lock:
            connecting, thread, self._channel = self._channel, self._thread, None
        if connecting is None or thread is None or self._process != os.getpid():
            return
        if connecting.exception() is None and self._loop is not None:
            asyncio.run_coroutine_threadsafe(connecting.result().close(PATIENCE), self._loop)
        thread.join()

    async def _run(self, connecting: Future[Channel]) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            channel = await self._open_channel().connect()
        except BaseException as error:
            connecting.set_exception(error)
            return
        living = asyncio.create_task(self._live(channel))
        await asyncio.sleep(0)                  # it has begun when others hear of the channel
        connecting.set_result(channel)
        try:
            await living
        except Exception:
            await channel.close(0)              # nobody takes what comes any more
            raise
