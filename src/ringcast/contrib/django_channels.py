"""A channel layer for Django Channels: the processes of a site are the members of a
group, and no broker is between them.

    CHANNEL_LAYERS = {"default": {
        "BACKEND": "ringcast.contrib.django_channels.RingcastChannelLayer",
        "CONFIG": {"group": "site"}}}

What is sent to a channel with a "!" goes to the process that made its name, alone. What
is sent to a group goes to all processes; each knows the groups of its own channels.
Other channels, those of workers, are in work_queue.py.

Django calls from several threads and event loops. So the member of the group lives in a
thread with a loop of its own, and what comes waits in mailboxes.
"""

import asyncio
import secrets
from contextlib import suppress
from typing import Any

import msgspec
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

from ringcast import Batch, ClosedError
from ringcast.aio import Channel
from ringcast.contrib.home import Home, call_after_fork
from ringcast.contrib.notes import Note, encode
from ringcast.contrib.site import Site, home_of

decode = msgspec.msgpack.Decoder(dict[str, Any]).decode     # nothing is pickled


class RingcastChannelLayer(BaseChannelLayer):   # type: ignore[misc]     # it has no types
    """`capacity` and `channel_capacity` are messages that may wait on a channel,
    `expiry` is how many seconds they wait. A channel with a "!" whose messages expire,
    and of which nobody receives for `group_expiry` seconds, is taken out of its groups.
    `options` are those of ringcast.Channel."""

    extensions = ["groups", "flush"]

    def __init__(self, group: str = "channels", expiry: float = 60, capacity: int = 100,
                 channel_capacity: dict[str, int] | None = None, group_expiry: float = 86_400,
                 **options: Any) -> None:
        super().__init__(expiry, capacity, self.compile_capacities(channel_capacity or {}))
        self._open = lambda: Channel(group, on_undelivered=self._undelivered, **options)
        self._group_expiry = group_expiry
        self.begin()
        call_after_fork(self.begin)

    def begin(self) -> None:
        """Begin with nothing: at first, and in a child after a fork, since what waited
        is the parent's."""
        self._site = Site(self.get_capacity, self.expiry, self._group_expiry)
        self._home = Home(self._open, self._site.live, self._site.boxes.wake_all)

    async def new_channel(self, prefix: str = "specific") -> str:
        """Return the name of a new channel of this process."""
        return f"{prefix}.{await self._here():016x}!{secrets.token_hex(6)}"

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send to one channel. ChannelFull if it is full, as far as this process
        knows."""
        assert isinstance(message, dict), "message is not a dict"
        self.require_valid_channel_name(channel)
        here, note = await self._here(), Note("send", channel, message=encode(message))
        if "!" in channel and home_of(channel) != here:
            await self._tell(note, home_of(channel))
            return
        self._site.check_size(note)
        box = self._site.boxes if "!" in channel else self._site.held
        if not box.put(channel, note.message):
            raise ChannelFull(channel)
        if box is self._site.held:      # whoever cancels us has not cancelled that
            self._home.call_soon(self._site.work.serve_soon, channel)

    async def receive(self, channel: str) -> dict[str, Any]:
        """Return the next message of a channel. Whoever cancels it loses nothing.
        Raises ClosedError if nothing can come any more: the name is of another process,
        or of this one before it joined the group again."""
        self.require_valid_channel_name(channel)
        try:
            while (message := self._site.boxes.take(channel)) is None:
                with self._site.boxes.waiting(channel) as waiter:
                    await self._ask_for(channel)
                    await waiter
        except asyncio.CancelledError:
            if "!" not in channel:
                self._home.call_soon(self._site.work.give_away, channel)
            raise
        return decode(message)

    async def _ask_for(self, channel: str) -> None:
        await self._here()
        self._site.check_is_here(channel)
        if "!" not in channel:
            with suppress(ClosedError):         # then we are woken, and join again
                await self._home.run(self._site.work.want(channel))

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group. One without a "!" is in it while this process
        runs."""
        await self._change("add", group, channel)

    async def group_discard(self, group: str, channel: str) -> None:
        """Take a channel out of a group."""
        await self._change("discard", group, channel)

    async def _change(self, kind: str, group: str, channel: str) -> None:
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        here, note = await self._here(), Note(kind, group, channel)
        if "!" not in channel or home_of(channel) == here:
            await self._home.run(self._site.change(note))
        else:
            await self._tell(note)      # to all, so that it comes before what we send to the group

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send to all channels of a group, in all processes."""
        assert isinstance(message, dict), "message is not a dict"
        self.require_valid_group_name(group)
        await self._here()
        await self._tell(Note("group", group, message=encode(message)))

    async def flush(self) -> None:
        """Forget all messages and groups, in all processes."""
        here = await self._here()
        await self._home.run(self._site.change(Note("flush")))
        await self._tell(Note("flush", to=here))

    async def close(self) -> None:
        """Leave the group. The next call joins it again, and the names of clients are
        new then."""
        await asyncio.to_thread(self._home.stop)

    async def _tell(self, note: Note, home: int | None = None) -> None:
        """Send a note from this thread; from the other one if it must wait for
        room."""
        if not self._site.try_tell(note, home):
            await self._home.run(self._site.tell(note, home))

    async def _here(self) -> int:
        """Return the number of this process in the group, which it joins if it must."""
        return (await self._home.channel()).address.incarnation

    def _undelivered(self, batch: Batch) -> None:
        """Take back what a process has not got that is gone."""
        self._home.call_soon(self._site.work.take_back, batch)
