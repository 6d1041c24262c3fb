"""A chat with asyncio: one task reads the terminal, one the group, one who is there.

    python examples/asyncio_chat.py ann         # in one terminal
    python examples/asyncio_chat.py bob         # in another one

A line that you type goes to everybody. The end of input (Ctrl-D) leaves.
"""

import argparse
import asyncio
import sys

from ringcast import ClosedError
from ringcast.aio import Channel


async def read_group(channel: Channel) -> None:
    """Print what the others say."""
    async for message in channel:
        if message.sender != channel.address:
            print(f"{message.sender.name}: {message.payload.decode()}", flush=True)


async def watch_members(channel: Channel) -> None:
    """Print who is there, whenever that changes."""
    view = channel.view
    while True:
        print("--", ", ".join(sorted(view.names)), flush=True)
        try:
            view = await channel.view_changed(view)
        except ClosedError:
            return


async def chat(name: str, port: int) -> None:
    """Send each line of the input, until it ends."""
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with Channel("asyncio-chat", name=name, port=port) as channel:
        tasks = [asyncio.create_task(read_group(channel)),
                 asyncio.create_task(watch_members(channel))]
        while line := (await lines.readline()).decode().rstrip("\n"):
            await channel.send(line.encode())
        await channel.close()
        await asyncio.gather(*tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat with asyncio.")
    parser.add_argument("name")
    parser.add_argument("--port", type=int, default=7700, help="port of the group")
    args = parser.parse_args()
    asyncio.run(chat(args.name, args.port))


if __name__ == "__main__":
    main()
