"""How long a message takes at a steady rate, beside pyzmq.

    python benchmarks/latency.py [--rate N ...] [--by WAY ...] [--receivers N]
                                 [--stack NAME] [--size N] [--rounds N]
                                 [--computing N] [--switch MILLISECONDS]

Members are processes on loopback. One sends so many messages a second, for a second: it
sends what is due, then sleeps until the next is. A message holds the time when it was
passed to send(). A receiver compares that with the time when it has the message; both
read one clock. `--by` is how receivers take messages: `iterate` (one at a time),
`batches` or `callback`. The peer is `pyzmq`: a PUB socket and SUB sockets over TCP,
without limits of their queues (`pip install pyzmq`).

With `--computing`, each receiver's process has so many threads besides that compute in
Python all the time. The interpreter lets another thread go on every 5 ms; `--switch`
sets that time (sys.setswitchinterval).

All are measured in turns. The figures are medians of the rounds, in microseconds: the
time that half, 99 % and 99.9 % of the messages take at most, the longest, and the CPU
time for each message, of the sender and of a receiver.
"""

import argparse
import gc
import importlib.util
import itertools
import secrets
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

from members import run

from ringcast import Channel

SECONDS = 1.0
WAYS = ("iterate", "batches", "callback", "pyzmq")
Take = Callable[[list[bytes]], bool]                # takes messages; whether more will come


class Waits:
    """How long messages took, in nanoseconds."""

    def __init__(self) -> None:
        self.all: list[int] = []

    def take(self, payloads: list[bytes]) -> bool:
        """Note when these came; return whether more will come."""
        now = time.monotonic_ns()
        self.all += [now - int.from_bytes(each[:8], "little") for each in payloads if each]
        return bool(payloads[-1])

    def take_all(self, lists: Iterable[list[bytes]]) -> None:
        """Take until the sender says that it has ended."""
        for payloads in lists:
            if not self.take(payloads):
                return


def be_member(sends: bool, way: str, rate: int, size: int, options: dict[str, Any],
              pipe: Connection) -> None:
    """Be a member of a group."""
    waits, ended = Waits(), threading.Event()

    def on_message(batch: Any) -> None:
        if not waits.take(batch.payloads):
            ended.set()

    by_callback = on_message if way == "callback" and not sends else None
    with Channel(**options, on_message=by_callback, deliver=not sends) as channel:
        receive = {"iterate": lambda: waits.take_all([each.payload] for each in channel),
                   "batches": lambda: waits.take_all(each.payloads for each in channel.batches()),
                   "callback": ended.wait}
        measure(pipe, waits, lambda: send(channel.send, rate, size) if sends else receive[way]())


def be_peer(sends: bool, way: str, rate: int, size: int, options: dict[str, Any],
            pipe: Connection) -> None:
    """Be a socket of pyzmq."""
    import zmq

    waits = Waits()
    with zmq.Context() as context, context.socket(zmq.PUB if sends else zmq.SUB) as port:
        port.sndhwm = port.rcvhwm = 0
        if sends:
            port.bind(options["url"])
            time.sleep(0.5)                         # PUB drops what is sent before a SUB is there
        else:
            port.subscribe(b"")
            port.connect(options["url"])
        lists = ([port.recv()] for _ in itertools.count())
        measure(pipe, waits,
                lambda: send(port.send, rate, size) if sends else waits.take_all(lists))


def measure(pipe: Connection, waits: Waits, work: Callable[[], object]) -> None:
    """Work when all are there; tell how long messages took, and the CPU time."""
    gc.disable()
    pipe.send(None)
    pipe.recv()
    began = time.process_time_ns()
    work()
    pipe.send((waits.all, time.process_time_ns() - began))
    pipe.recv()                                     # the others may still need something


def beside_threads(be: Callable[..., None], computing: int, switch: float,
                   *arguments: Any) -> None:
    """Be a member, or a socket, in a process in which so many threads compute. Each is
    asked to make way after `switch` milliseconds."""
    def compute() -> None:
        while True:
            pass

    sys.setswitchinterval(switch / 1e3)
    for _ in range(computing):
        threading.Thread(target=compute, daemon=True).start()
    be(*arguments)


def send(sender: Callable[[bytes], object], rate: int, size: int) -> None:
    """Send for SECONDS at this rate."""
    began, sent, padding = time.monotonic_ns(), 0, bytes(size - 8)
    while sent < rate * SECONDS:
        due = int((time.monotonic_ns() - began) / 1e9 * rate) + 1
        for _ in range(due - sent):
            sender(time.monotonic_ns().to_bytes(8, "little") + padding)
        sent = due
        time.sleep(max(0.0, began / 1e9 + sent / rate - time.monotonic()))
    time.sleep(0.05)
    sender(b"")


def once(way: str, rate: int, given: argparse.Namespace) -> list[float]:
    """Run a group, or the peer, once; return the figures of a row."""
    if way == "pyzmq":
        with socket.create_server(("127.0.0.1", 0)) as free:
            be, options = be_peer, {"url": f"tcp://127.0.0.1:{free.getsockname()[1]}"}
    else:
        be, options = be_member, {"group": f"latency-{secrets.token_hex(4)}",
                                  "stack": given.stack, "min_members": given.receivers + 1}
    (_, sending), *others = run(beside_threads, [
        (be, given.computing if number else 0, given.switch, number == 0, way, rate, given.size,
         options) for number in range(given.receivers + 1)])
    waits = [wait for each, _ in others for wait in each]
    per_mille = statistics.quantiles(waits, n=1000)
    count = len(waits) / given.receivers
    return [each / 1e3 for each in (
        per_mille[499], per_mille[989], per_mille[998], max(waits), sending / count,
        max(spent for _, spent in others) / count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--by", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--receivers", type=int, default=1)
    parser.add_argument("--stack", default="mcast-udp")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--computing", type=int, default=0,
                        help="threads that compute beside each receiver")
    parser.add_argument("--switch", type=float, default=5.0,
                        help="milliseconds after which a thread makes way for another one")
    given = parser.parse_args()
    if "pyzmq" in given.by and importlib.util.find_spec("zmq") is None:
        raise SystemExit("the peer pyzmq is not installed: run `pip install pyzmq`, or measure "
                         "without it, with --by iterate batches callback")
    print(f"{given.stack}, {given.size} bytes, 1 -> {given.receivers}, {given.rounds} rounds")
    print("messages/s  by           p50      p99    p99.9      max   CPU: sender  receiver")
    for rate in given.rate:
        rows: dict[str, list[list[float]]] = {way: [] for way in given.by}
        for _ in range(given.rounds):
            for way in given.by:
                rows[way].append(once(way, rate, given))
        for way, figures in rows.items():
            p50, p99, p999, most, sender, receiver = map(statistics.median, zip(*figures,
                                                                                strict=True))
            print(f"{rate:10,}  {way:8} {p50:8.0f} {p99:8.0f} {p999:8.0f} {most:8.0f} "
                  f"{sender:13.2f} {receiver:9.2f}")


if __name__ == "__main__":
    main()
