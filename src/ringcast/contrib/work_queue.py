"""Channels that several processes read, as those of workers: each message goes to one.

A message waits in the process that sent it (`held`). A process in which somebody
receives tells all for how many messages it waits; the number of its telling is in
`wants`. Who holds a message sends it to one of these alone, and tells the others that
they need not.
- A process dies with a message on its way: it comes back as undelivered, and goes to
  another one. What the dead process had not asked for was never there.
- A message comes, and nobody waits any more: the receiver was cancelled, or another
  process gave it one at the same time. It goes back to where it was held. Held here, it
  would be lost with a process that does not even want it.
- The views are different: all tell again what they want, and forget who is gone.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from ringcast import Address, Batch, ClosedError, Flag, MessageTooLargeError, NotMemberError
from ringcast.aio import Channel
from ringcast.contrib.mailboxes import Mailboxes
from ringcast.contrib.notes import Note, decode, encode
from ringcast.contrib.wants import Wants
from ringcast.logs import log
from ringcast.units import counted


class WorkQueue:
    """Gives messages that are held here to who wants them, and gets those that are
    wanted here.

    Threads: only the one of the channel's loop, but for `held`.
    """

    def __init__(self, held: Mailboxes, boxes: Mailboxes) -> None:
        self.held, self._boxes = held, boxes
        self._wants = Wants()
        self._number = 0
        self._tasks = set[asyncio.Task[None]]()
        self._channel: Channel

    def begin(self, channel: Channel) -> None:
        """Begin with a channel that has just connected."""
        self._channel = channel
        self._wants.clear()

    async def want(self, name: str) -> None:
        """Tell all for how many messages of a channel tasks wait here."""
        self._number += 1
        await self._channel.send(encode(Note("want", name, count=self._boxes.num_waiting(name),
                                             number=self._number)))

    async def serve(self, name: str) -> None:
        """Send what is held to who wants it."""
        while (wants := self._wants.of(name)) and (message := self.held.take(name)) is not None:
            payload = encode(Note("send", name, message=message))
            if len(payload) > self._channel.config.max_message_size:
                log.warning("channel %s: a message to its group is too large for it, and dropped",
                            name)
                continue
            member, (_, number) = next(iter(wants.items()))
            given = Note("given", name, to=member.incarnation, number=number)
            self._wants.given(name, member, number)
            try:
                await self._channel.send(payload, member)
            except (NotMemberError, ClosedError):       # it has just gone, or we have
                self._wants.told(name, member, 0, 0)
                self.held.put(name, message, first=True)
            else:
                await self._channel.send(encode(given), flags=Flag.DONT_LOOPBACK)

    def serve_soon(self, name: str) -> None:
        """Serve in a task of its own: who receives notes must not wait for room."""
        self._spawn(self.serve(name))

    def on_note(self, note: Note, sender: Address) -> None:
        """Take note of what a process wants, what it was given, and what comes."""
        if note.kind == "want":
            self._wants.told(note.name, sender, note.count, note.number)
            self.serve_soon(note.name)
        elif note.kind == "given":
            for member in [each for each in self._wants.of(note.name)
                           if each.incarnation == note.to]:
                self._wants.given(note.name, member, note.number)
        elif note.kind == "send" and "!" not in note.name:
            if not note.to and self._boxes.num_waiting(note.name):
                self._boxes.put(note.name, note.message, first=True)
            else:
                self._give_back(note, sender)

    def _give_back(self, note: Note, holder: Address) -> None:
        """Send a message back to the process that held it, at once: it must leave
        before the ack of what brought it. Hold it here if that is not possible, and if
        it has come back to us."""
        if not note.to and holder != self._channel.address:
            note.to = holder.incarnation
            with suppress(NotMemberError, ClosedError, MessageTooLargeError):
                if self._channel.try_send(encode(note), holder):
                    return
        self._hold(note)

    def give_away(self, name: str) -> None:
        """Hold again what came for receivers that were cancelled when they had been
        woken."""
        while not self._boxes.num_waiting(name) and (message := self._boxes.take(name)) is not None:
            self._hold(Note("send", name, message=message))

    def take_back(self, batch: Batch) -> None:
        """Hold again what a process has not got that is gone. Of a large message it may
        have got the first part: that is not here any more. What was for groups is not
        sent again, because it might come behind what was sent later."""
        if batch.flags & Flag.INCOMPLETE:
            log.warning("a large message is lost with the process to which a part had come")
            return
        notes = [*map(decode, batch.payloads)]
        for note in reversed(notes):                    # the first comes first again
            if note.kind == "send" and "!" not in note.name:
                self._hold(note)
        for name, count in Counter(note.name for note in notes if note.kind == "group").items():
            log.warning("group %s: %s will not reach other processes, which have excluded this "
                        "one, because it could not be heard", name, counted(count, "message"))

    def _hold(self, note: Note) -> None:
        """Hold a message again, before all others, for whoever wants it."""
        if self.held.put(note.name, note.message, first=True):
            self.serve_soon(note.name)
        else:
            log.warning("channel %s is full: a message is dropped", note.name)

    def on_view(self, members: tuple[Address, ...]) -> None:
        """Forget who is gone, and tell all what is wanted here."""
        for name in self._wants.keep(members):
            self.serve_soon(name)
        for name in self._boxes.names():
            if "!" not in name and self._boxes.num_waiting(name):
                self._spawn(self.want(name))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in a task of its own, until the channel is closed."""
        async def until_closed() -> None:
            with suppress(ClosedError):
                await work

        task = asyncio.get_running_loop().create_task(until_closed())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
