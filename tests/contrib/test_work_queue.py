"""Messages of which each goes to one process, without a network."""

import asyncio

from ringcast import Address
from ringcast.config import configure
from ringcast.contrib.mailboxes import Mailboxes
from ringcast.contrib.notes import Note, decode
from ringcast.contrib.unread import Unread
from ringcast.contrib.work_queue import WorkQueue

ME, B = Address("A", 1), Address("B", 2)


class Full:
    """A channel that has no room at first."""

    def __init__(self):
        self.address, self.room, self.sent = ME, asyncio.Event(), []
        self.config = configure({})

    async def send(self, payload, dest=None, **flags):
        await self.room.wait()
        self.sent.append((dest, decode(payload)))


async def serve_while_a_view_comes():
    held, boxes = (Mailboxes(lambda name: 100, 60.0, Unread(3600.0)) for _ in range(2))
    queue, channel = WorkQueue(held, boxes), Full()
    queue.begin(channel)
    for number in range(10):
        held.put("jobs", b"%d" % number)
    queue.on_note(Note("want", "jobs", count=2, number=1), B)
    await asyncio.sleep(0)                              # it is served, and waits for room
    queue.on_view((ME, B))
    channel.room.set()
    for _ in range(100):
        await asyncio.sleep(0)
    return sorted(note.message for dest, note in channel.sent if dest == B)


def test_a_process_is_sent_what_it_wants_also_if_a_view_comes_meanwhile():
    assert asyncio.run(serve_while_a_view_comes()) == [b"0", b"1"]
