"""A process of a site, as a member of the group: the groups of its channels, what it
tells the others, and what comes from them."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

from ringcast import ClosedError, MessageTooLargeError, NotMemberError
from ringcast.aio import Channel
from ringcast.contrib.mailboxes import Mailboxes
from ringcast.contrib.notes import Note, decode, encode
from ringcast.contrib.unread import Unread
from ringcast.contrib.work_queue import WorkQueue
from ringcast.decoding import UNDECODABLE
from ringcast.logs import log
from ringcast.protocols.frag import check_size


class Site:
    """Puts what comes for channels of this process into `boxes`, and what waits for
    workers into `held`.

    Threads: only the one of the channel's loop, but for try_tell().
    """

    def __init__(self, capacity: Callable[[str], int], expiry: float, patience: float) -> None:
        self._unread = Unread(patience)
        self.boxes, self.held = (Mailboxes(capacity, expiry, self._unread) for _ in range(2))
        self._groups: defaultdict[str, set[str]] = defaultdict(set)
        self.work = WorkQueue(self.held, self.boxes)
        self._channel: Channel

    async def live(self, channel: Channel) -> None:
        """Take what comes, until the channel is closed."""
        self._channel = channel
        for group in list(self._groups):        # to names of before nobody can send
            self._discard(group, {name for name in self._groups[group] if "!" in name})
        self.work.begin(channel)
        following = asyncio.create_task(self._follow_views(channel))
        async for message in channel:
            try:
                await self.change(note := decode(message.payload))
                self.work.on_note(note, message.sender)
            except UNDECODABLE as error:
                log.warning("%s sent no note of a channel layer: %s", message.sender, error)
        await following

    async def _follow_views(self, channel: Channel) -> None:
        view = channel.view
        with suppress(ClosedError):
            while True:
                view = await channel.view_changed(view)
                self.work.on_view(view.members)

    def try_tell(self, note: Note, home: int | None = None) -> bool:
        """Send a note to all processes, or to one, if there is room now and it fits a
        datagram. Nothing is to be sent to one that is gone. Any thread may call
        this."""
        try:
            dest = None if home is None else next(
                member for member in self._channel.view.members if member.incarnation == home)
            return self._channel.try_send(encode(note), dest)
        except (NotMemberError, StopIteration):
            return True
        except MessageTooLargeError:            # tell() sends it in fragments, or refuses it
            return False

    async def tell(self, note: Note, home: int | None = None) -> None:
        """Send a note to all processes, or to one, as soon as there is room."""
        members = {member.incarnation: member for member in self._channel.view.members}
        if home is None or home in members:
            with suppress(NotMemberError):
                await self._channel.send(encode(note), None if home is None else members[home])

    def check_size(self, note: Note) -> None:
        """Raise MessageTooLargeError if a note cannot be sent. Any thread may call
        this."""
        check_size(encode(note), self._channel.config.max_message_size)

    def check_is_here(self, channel: str) -> None:
        """Raise ClosedError if nothing can come to a channel here. Any thread may call
        this."""
        if "!" in channel and home_of(channel) != self._channel.address.incarnation:
            raise ClosedError(f"nothing comes to {channel} here: it is of another process, or of "
                              "this one before it joined the group again; ask new_channel() for a "
                              "name")

    async def change(self, note: Note) -> None:
        """Change what is here, as a note says."""
        if note.kind == "send" and "!" in note.name:
            self._deliver([note.name], note.message)
        elif note.kind == "group":
            self._drop_abandoned()
            channels = self._groups.get(note.name, set())
            self._deliver([name for name in channels if "!" in name], note.message)
            for channel in channels:
                if "!" not in channel and self.held.put(channel, note.message):
                    self.work.serve_soon(channel)
        elif note.kind == "add":
            here = self._channel.address.incarnation
            if "!" not in note.channel or home_of(note.channel) == here:
                self._groups[note.name].add(note.channel)
        elif note.kind == "discard":
            self._discard(note.name, {note.channel})
        elif note.kind == "flush" and note.to != self._channel.address.incarnation:
            for each in (self._groups, self.boxes, self.held):
                each.clear()

    def _drop_abandoned(self) -> None:
        """Take channels out of their groups whose readers have gone without a word."""
        for channel in (abandoned := self._unread.take_abandoned()):
            log.warning("channel %s: nobody has received for long; it is in no group any more",
                        channel)
        for group in list(self._groups) if abandoned else ():
            self._discard(group, set(abandoned))

    def _discard(self, group: str, channels: set[str]) -> None:
        if group in self._groups:
            self._groups[group] -= channels
            if not self._groups[group]:
                del self._groups[group]

    def _deliver(self, channels: list[str], message: bytes) -> None:
        """Put a message into mailboxes here; drop it where one is full."""
        for channel in self.boxes.put_all(channels, message):
            log.warning("channel %s is full: a message is dropped", channel)


def home_of(channel: str) -> int:
    """Return the number of the process that a channel with a "!" belongs to; 0 if its
    name is not one of new_channel()."""
    try:
        return int(channel.partition("!")[0].rpartition(".")[2], 16)
    except ValueError:
        return 0
