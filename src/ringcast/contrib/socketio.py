"""A client manager for python-socketio: the servers are the members of a group, and no
broker is between them.

    manager = RingcastManager("site", name="server-1")
    server = socketio.AsyncServer(client_manager=manager, async_mode="asgi")

What one server emits to a room comes to all servers once, and in order, whatever the
network loses. A server that dies is gone from the group; nothing of the others is lost.
One whose channel closes by itself joins again. Events are msgpack, never pickled.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from socketio.async_pubsub_manager import AsyncPubSubManager

from ringcast import ClosedError, Flag, RingcastError
from ringcast.aio import Channel
from ringcast.decoding import UNDECODABLE
from ringcast.logs import log

LEAST_PAUSE, MOST_PAUSE = 1.0, 60.0     # seconds until we try again to join the group

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class RingcastManager(AsyncPubSubManager):      # type: ignore[misc]     # it has no types
    """Shares rooms and events between servers that have the same `group`.

    `options` are those of ringcast.Channel. With `write_only` a process without a
    server emits: nobody waits for it, and it must call close() at its end. `json`
    writes what is sent to clients, as in other managers.
    """

    name = "ringcast"

    def __init__(self, group: str = "socketio", write_only: bool = False, logger: Any = None,
                 json: Any = None, **options: Any) -> None:
        super().__init__(channel=group, write_only=write_only, logger=logger, json=json)
        self._options = options
        self._connecting: asyncio.Task[Channel] | None = None
        self._latest: Channel                   # that joins, or has joined
        self._is_closed = False

    async def connected(self) -> Channel:
        """Return the channel of this process; join the group, if that has not happened,
        or if the channel has closed by itself. ClosedError after close()."""
        if self._is_closed:
            raise ClosedError("this manager is closed; make a new one")
        connecting, before = self._connecting, joined(self._connecting)
        if connecting is None or (connecting.done() and (
                before is None or before.fault is not None)):
            self._latest = Channel(self.channel, deliver=not self.write_only, **self._options)
            connecting = self._connecting = asyncio.create_task(self._latest.connect())
            if before is not None:
                await before.close(0)
        return await asyncio.shield(connecting)         # others wait for it, too

    async def close(self, timeout: float | None = 5.0) -> int:
        """Leave the group. Return how many events somebody has not got; 0 if it never
        joined. Whoever waits until it joins gets ClosedError."""
        self._is_closed = True
        if self._connecting is None:
            return 0
        unacked = await self._latest.close(timeout)
        await asyncio.gather(self._connecting, return_exceptions=True)      # nobody else may ask
        return unacked

    async def _publish(self, data: dict[str, Any]) -> None:
        """Send to all other servers. This one has done its part already."""
        await (await self.connected()).send(encode(data), flags=Flag.DONT_LOOPBACK)

    async def _listen(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what other servers have sent, until close()."""
        pause = LEAST_PAUSE
        while not self._is_closed:
            try:
                channel = await self.connected()
                pause = LEAST_PAUSE
                async for message in channel:
                    try:
                        yield decode(message.payload)
                    except UNDECODABLE as error:
                        log.warning("%s sent no event: %s", message.sender, error)
                fault = channel.fault
            except RingcastError as error:
                fault = str(error)
            if fault is None or self._is_closed:
                return
            log.warning("%s does not hear other servers, and tries again in %g s: %s",
                        self.channel, pause, fault)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE)


def joined(connecting: asyncio.Task[Channel] | None) -> Channel | None:
    """Return the channel that has joined; None if it has not, or not yet."""
    if connecting is None or not connecting.done() or connecting.cancelled() or (
            connecting.exception()):
        return None
    return connecting.result()
