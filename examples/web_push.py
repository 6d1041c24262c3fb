"""A web service of several processes: what one hears is pushed to all browsers.

    python examples/web_push.py 8001                # in one terminal
    python examples/web_push.py 8002                # in another one

Open http://127.0.0.1:8001 and http://127.0.0.1:8002, and type. There is no broker.
"""

import argparse
import asyncio
from asyncio import Queue, StreamReader, StreamWriter
from contextlib import suppress
from functools import partial

from ringcast.aio import Channel

PAGE = b"""<form onsubmit="fetch('/say', {method: 'POST', body: say.value}); return false">
<input id="say"></form><ul id="all"></ul><script>new EventSource('/events').onmessage = (event) =>
all.appendChild(document.createElement('li')).textContent = event.data</script>"""
ANSWER = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "
MOST = 100                              # texts that wait for a slow browser
browsers = set[Queue[bytes]]()          # of this process

async def answer(channel: Channel, reader: StreamReader, writer: StreamWriter) -> None:
    """Answer one request of a browser."""
    with suppress(OSError, ValueError, LookupError, EOFError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"get /events "):
            browsers.add(queue := Queue[bytes](MOST))
            writer.write(ANSWER + b"text/event-stream\r\n\r\n: welcome\n\n")
            try:
                while True:
                    writer.write(b"data: " + await queue.get() + b"\n\n")
                    await writer.drain()
            finally:
                browsers.remove(queue)
        if head.startswith(b"post /say "):
            size = int(head.partition(b"content-length:")[2].split()[0])
            await channel.send(await reader.readexactly(min(size, 1000)))
        writer.write(ANSWER + b"text/html\r\n\r\n" + PAGE)
    writer.close()


async def main(http: int, port: int) -> None:
    async with (Channel("web", name=f"web-{http}", port=port) as channel,
                await asyncio.start_server(partial(answer, channel), "127.0.0.1", http)):
        print(f"http://127.0.0.1:{http}", flush=True)
        async for message in channel:
            for queue in browsers:
                with suppress(asyncio.QueueFull):               # a slow browser holds up nobody
                    queue.put_nowait(b" ".join(message.payload.splitlines()))


parser = argparse.ArgumentParser(description="A web service that pushes to browsers.")
parser.add_argument("http", type=int, help="port for browsers")
parser.add_argument("--port", type=int, default=7700, help="port of the group")
args = parser.parse_args()
asyncio.run(main(args.http, args.port))
