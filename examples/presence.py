"""Who is online, and what each is doing. Nobody need sign off: the group notices.

    python examples/presence.py ann                 # in one terminal
    python examples/presence.py bob                 # in another one, and type what you do
"""

import argparse
import asyncio
import sys
from contextlib import suppress

from ringcast import ClosedError
from ringcast.aio import Channel


class Presence:
    """What each member is doing, as this one knows it."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.doing = channel, {channel.address: "online"}

    async def follow_group(self) -> None:
        """Forget who has gone. Whoever comes does not know what we do: say it again."""
        view = self.channel.view
        with suppress(ClosedError):
            while True:
                self.doing = {who: self.doing.get(who, "online") for who in view.members}
                self.show()
                await self.channel.send(self.doing[self.channel.address].encode())
                view = await self.channel.view_changed(view)

    async def follow_messages(self) -> None:
        async for message in self.channel:
            if self.doing.get(message.sender) != message.payload.decode():
                self.doing[message.sender] = message.payload.decode()
                self.show()

    def show(self) -> None:
        print(*sorted(f"{who.name}: {what}" for who, what in self.doing.items()), flush=True)


async def run(name: str, port: int) -> None:
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with Channel("presence", name=name, port=port) as channel:
        presence = Presence(channel)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(presence.follow_group())
            tasks.create_task(presence.follow_messages())
            while line := (await lines.readline()).decode().strip():
                await channel.send(line.encode())
            await channel.close()


parser = argparse.ArgumentParser(description="Who is online, and what each is doing.")
parser.add_argument("name")
parser.add_argument("--port", type=int, default=7700, help="port of the group")
args = parser.parse_args()
asyncio.run(run(args.name, args.port))
