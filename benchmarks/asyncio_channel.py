"""How many messages a second a channel of ringcast.aio receives or sends, beside the
synchronous one.

    python benchmarks/asyncio_channel.py [--way WAY ...] [--size N ...] [--seconds S]
                                         [--stack NAME] [--loop asyncio|uvloop]
                                         [--rounds N]

Two members are processes on loopback. One sends as fast as it can for so many seconds,
the other receives. A way is what is measured: `messages` and `batches` are ways to
receive, with a synchronous sender; `send` and `send_many` (100 messages a call) are
ways to send, with a synchronous receiver that takes batches. Each way is done with
ringcast.Channel and with ringcast.aio.Channel, in turns. Each receiver checks that it
was given every message once.

The figures are medians of the rounds: messages a second at the receiver, of both; and
the median, least and greatest of the ratios of neighbours.
"""

import argparse
import asyncio
import secrets
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from members import run

import ringcast.aio

WAYS = ("messages", "batches", "send", "send_many")
TOGETHER = 100                          # messages in one send_many()
END = b""                               # the last message


def take(way: str, channel: ringcast.Channel) -> int:
    """Receive up to the end; return how many messages came before."""
    count = 0
    if way == "messages":
        for message in channel:
            if not message.payload:
                return count
            count += 1
    for batch in channel.batches():
        count += len(batch)
        if not batch.payloads[-1]:
            return count - 1
    raise SystemExit("the channel was closed")


async def take_async(way: str, channel: ringcast.aio.Channel) -> int:
    """Do the same in a task."""
    count = 0
    if way == "messages":
        async for message in channel:
            if not message.payload:
                return count
            count += 1
    async for batch in channel.batches():
        count += len(batch)
        if not batch.payloads[-1]:
            return count - 1
    raise SystemExit("the channel was closed")


def send(way: str, channel: ringcast.Channel, size: int, seconds: float) -> int:
    """Send for so long; return how many messages."""
    count, payload, until = 0, bytes(size), time.monotonic() + seconds
    many = [payload] * TOGETHER
    while time.monotonic() < until:
        if way == "send_many":
            channel.send_many(many)
        else:
            for _ in many:
                channel.send(payload)
        count += TOGETHER
    channel.send(END)
    return count


async def send_async(way: str, channel: ringcast.aio.Channel, size: int, seconds: float) -> int:
    """Do the same in a task."""
    count, payload, until = 0, bytes(size), time.monotonic() + seconds
    many = [payload] * TOGETHER
    while time.monotonic() < until:
        if way == "send_many":
            await channel.send_many(many)
        else:
            for _ in many:
                await channel.send(payload)
        count += TOGETHER
    await channel.send(END)
    return count


def be_member(sends: bool, way: str, is_async: bool, loop: str, size: int, seconds: float,
              options: dict[str, Any], pipe: Connection) -> None:
    """Be one of the two members."""
    def ready() -> float:
        pipe.send(None)
        pipe.recv()
        return time.monotonic()

    def work() -> None:
        with ringcast.Channel(**options, deliver=not sends) as channel:
            began = ready()
            count = send(way, channel, size, seconds) if sends else take(way, channel)
            tell(count, began)

    async def work_async() -> None:
        async with ringcast.aio.Channel(**options, deliver=not sends) as channel:
            began = ready()
            count = await (send_async(way, channel, size, seconds) if sends
                           else take_async(way, channel))
            tell(count, began)

    def tell(count: int, began: float) -> None:
        pipe.send((count, time.monotonic() - began))
        pipe.recv()

    if is_async:
        runner_of(loop)(work_async())
    else:
        work()


def runner_of(loop: str) -> Callable[..., object]:
    """Return what runs a coroutine in this kind of loop."""
    if loop == "asyncio":
        return asyncio.run
    import uvloop

    return uvloop.run


def once(way: str, is_async: bool, size: int, given: argparse.Namespace) -> float:
    """Run a group once; return messages a second at the receiver."""
    options = {"group": f"asyncio-{secrets.token_hex(4)}", "stack": given.stack, "min_members": 2}
    receives = way in ("messages", "batches")
    (sent, _), (count, took) = run(be_member, [
        (True, way, is_async and not receives, given.loop, size, given.seconds, options),
        (False, way, is_async and receives, given.loop, size, given.seconds, options)])
    assert sent == count, f"{sent} messages were sent, and {count} received"
    return float(count / took)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--way", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--size", type=int, nargs="+", default=[1000, 100], help="bytes")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--stack", default="mcast-udp")
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"{given.stack}, {given.loop}, {given.rounds} rounds")
    print("bytes  way        synchronous     asyncio  ratio (least .. greatest)")
    for size in given.size:
        for way in given.way:
            pairs = [(once(way, False, size, given), once(way, True, size, given))
                     for _ in range(given.rounds)]
            plain, other = (statistics.median(each) for each in zip(*pairs, strict=True))
            ratios = sorted(theirs / ours for ours, theirs in pairs)
            print(f"{size:5}  {way:9} {plain:12,.0f} {other:11,.0f}  "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} .. {ratios[-1]:.2f})",
                  flush=True)


if __name__ == "__main__":
    main()
