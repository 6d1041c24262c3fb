"""ringcast inside Django Channels and python-socketio, beside Redis, in turns.

    apt-get install redis-server            # what is compared with
    pip install channels-redis
    python benchmarks/beside_redis.py [--messages N] [--clients N] [--rounds N]
                                      [--kind NAME]

One process sends to a group of Channels, or emits to a room. Two others have the
clients, which are no network connections: what is measured is the way from process to
process.

- messages/s: what all clients get in a second, while one sends as fast as it can.
- lost: messages that a client has not got, of all.
- p50, p99: milliseconds from one client to one in another process and back, one at a
  time.
- CPU: microseconds for each message that a client got, of all processes while they send
  and receive, Redis included.

Held still: the machine, the clients, the messages (100 bytes), a capacity that no
client reaches. A Redis of its own is started, on loopback, and writes nothing to disk.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.util import find_spec
from statistics import median, quantiles
from typing import Any

NEEDED = ("this compares with Redis; run apt-get install redis-server, and "
          "pip install channels-redis")
CAPACITY = 10_000_000
TEXT = "x" * 100
SILENCE = 3.0           # seconds without a message, after which what is missing is lost
ROUND_TRIPS = 300
RECEIVERS = 2

Send = Callable[[dict[str, Any]], Awaitable[None]]


def layer_of(kind: str, place: dict[str, Any]) -> Any:
    """Open a channel layer."""
    if kind == "channels, ringcast":
        from ringcast.contrib.django_channels import RingcastChannelLayer

        return RingcastChannelLayer(place["group"], capacity=CAPACITY, port=place["port"])
    from channels_redis.core import RedisChannelLayer
    from channels_redis.pubsub import RedisPubSubChannelLayer

    url = f"redis://127.0.0.1:{place['redis']}"
    if kind == "channels, redis pubsub":
        return RedisPubSubChannelLayer(hosts=[url], prefix=place["group"])
    return RedisChannelLayer(hosts=[url], prefix=place["group"], capacity=CAPACITY)


def manager_of(kind: str, place: dict[str, Any]) -> Any:
    """Open a client manager."""
    if kind == "socketio, ringcast":
        from ringcast.contrib.socketio import RingcastManager

        return RingcastManager(place["group"], port=place["port"])
    from socketio import AsyncRedisManager

    return AsyncRedisManager(f"redis://127.0.0.1:{place['redis']}", channel=place["group"])


async def channels_member(kind: str, place: dict[str, Any], clients: int,
                          on_message: Callable[[dict[str, Any]], None]) -> Send:
    """Open a layer with clients in one group. Return how to send to the group."""
    layer = layer_of(kind, place)

    async def client() -> None:
        channel = await layer.new_channel()
        await layer.group_add("all", channel)
        ready.append(channel)
        while True:
            on_message(await layer.receive(channel))

    ready: list[str] = []
    running.extend(asyncio.create_task(client()) for _ in range(clients))
    while len(ready) < clients:
        await asyncio.sleep(0.01)
    return lambda message: layer.group_send("all", message)


async def socketio_member(kind: str, place: dict[str, Any], clients: int,
                          on_message: Callable[[dict[str, Any]], None]) -> Send:
    """Open a server with clients in one room. Return how to emit to the room."""
    import socketio

    class Server(socketio.AsyncServer):             # type: ignore[misc]
        async def _send_eio_packet(self, eio_sid: str, eio_pkt: Any) -> None:
            on_message(json.loads(eio_pkt.data.lstrip("0123456789"))[1])

    server = Server(async_mode="asgi", client_manager=manager_of(kind, place))
    server.manager.initialize()
    server.manager_initialized = True
    for number in range(clients):
        await server.enter_room(await server.manager.connect(f"eio-{number}", "/"), "all")
    return lambda message: server.emit("news", message, room="all")


running: list["asyncio.Task[None]"] = []


async def receiver(kind: str, place: dict[str, Any], clients: int, messages: int) -> None:
    """Get all messages, and answer those that ask for it."""
    got, last, send, answers = 0, time.monotonic(), None, asyncio.Queue[dict[str, Any]]()

    def on_message(message: dict[str, Any]) -> None:
        nonlocal got, last
        if message["type"] == "load":
            got, last = got + 1, time.monotonic()
        elif message["type"] == "ask" and place["number"] == 0:
            answers.put_nowait(message)

    async def answer() -> None:
        while True:
            message = await answers.get()
            if message["n"] != getattr(answer, "done", None):      # one client answers
                answer.done = message["n"]                          # type: ignore[attr-defined]
                await send({"type": "answer", "n": message["n"]})

    member = channels_member if kind.startswith("channels") else socketio_member
    send = await member(kind, place, clients, on_message)
    running.append(asyncio.create_task(answer()))
    begun = time.process_time()
    print("ready", flush=True)
    while got < clients * messages and (not got or time.monotonic() - last < SILENCE):
        await asyncio.sleep(0.05)
    print(json.dumps({"got": got, "last": last, "cpu": time.process_time() - begun}),
          flush=True)
    os._exit(0)


async def sender(kind: str, place: dict[str, Any], messages: int) -> None:
    """Ask and wait, then send as fast as possible."""
    answered = asyncio.Event()
    member = channels_member if kind.startswith("channels") else socketio_member
    send = await member(kind, place, 1, lambda message: (
        answered.set() if message["type"] == "answer" else None))
    times, begun = [], time.process_time()
    for number in range(-20, ROUND_TRIPS):
        answered.clear()
        began = time.monotonic()
        while not answered.is_set():            # at first nobody may be there
            await send({"type": "ask", "n": f"{number} {time.monotonic()}"})
            with suppress(TimeoutError):
                await asyncio.wait_for(answered.wait(), 1)
        times.append(1000 * (time.monotonic() - began))
    began = time.monotonic()
    for number in range(messages):
        await send({"type": "load", "n": number, "text": TEXT})
    print(json.dumps({"began": began, "cpu": time.process_time() - begun, "times": times[20:]}),
          flush=True)
    await asyncio.sleep(3600)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(kind: str, redis: "subprocess.Popen[bytes]", place: dict[str, Any], clients: int,
        messages: int) -> dict[str, float]:
    """Measure one kind once."""
    place = place | {"group": f"bench-{time.monotonic_ns()}", "port": 20_000 + os.getpid() % 5_000}
    before, started = cpu_of(redis.pid), []

    def start(role: str, number: int) -> "subprocess.Popen[str]":
        started.append(subprocess.Popen(
            [sys.executable, __file__, "--role", role, "--kind", kind, "--clients", str(clients),
             "--messages", str(messages), "--place", json.dumps(place | {"number": number})],
            stdout=subprocess.PIPE, text=True))
        return started[-1]

    try:
        receivers = [start("receiver", number) for number in range(RECEIVERS)]
        for each in receivers:
            assert each.stdout is not None and each.stdout.readline() == "ready\n", kind
        source, *others = (json.loads(each.stdout.readline())       # type: ignore[union-attr]
                           for each in [start("sender", 0), *receivers])
    finally:
        for each in started:
            each.kill()
            each.communicate()
    got = sum(each["got"] for each in others)
    seconds = max(each["last"] for each in others) - source["began"]
    cpu = source["cpu"] + sum(each["cpu"] for each in others) + cpu_of(redis.pid) - before
    return {"rate": got / seconds, "lost": 1 - got / (RECEIVERS * clients * messages),
            "p50": median(source["times"]), "p99": quantiles(source["times"], n=100)[98],
            "cpu": 1e6 * cpu / max(1, got)}


KINDS = ("channels, ringcast", "channels, redis", "channels, redis pubsub",
         "socketio, ringcast", "socketio, redis")


def main(kinds: list[str], clients: int, messages: int, rounds: int) -> None:
    """Measure each kind in turn, and print the medians."""
    if shutil.which("redis-server") is None or find_spec("channels_redis") is None:
        sys.exit(f"beside_redis: {NEEDED}")
    port = free_port()
    redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save",
                              "", "--appendonly", "no"], stdout=subprocess.DEVNULL)
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    try:
        for _ in range(rounds):
            for kind in kinds:
                results[kind].append(run(kind, redis, {"redis": port}, clients, messages))
    finally:
        redis.terminate()
    print(f"{RECEIVERS} processes with {clients} clients each, {messages:,} messages, medians of "
          f"{rounds}")
    print(f"{'':24}{'messages/s':>12}{'lost':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}")
    for kind, runs in results.items():
        rate, lost, p50, p99, cpu = (median(each[name] for each in runs)
                                     for name in ("rate", "lost", "p50", "p99", "cpu"))
        print(f"{kind:24}{rate:12,.0f}{lost:9.1%}{p50:9.2f}{p99:9.2f}{cpu:9.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="ringcast beside Redis.")
    parser.add_argument("--clients", type=int, default=20, help="of each receiving process")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", choices=KINDS, help="measure this one alone")
    for hidden in ("--role", "--place"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role == "receiver":
        asyncio.run(receiver(args.kind, json.loads(args.place), args.clients, args.messages))
    elif args.role == "sender":
        asyncio.run(sender(args.kind, json.loads(args.place), args.messages))
    else:
        main([args.kind] if args.kind else list(KINDS), args.clients, args.messages, args.rounds)
