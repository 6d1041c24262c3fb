"""Ways to send, in turns: one thread, eight threads, and send_many of 100.

    python benchmarks/senders.py [--size N ...] [--rounds N] [--threads N] [--batch N]
                                 [--stack NAME]

Two processes on loopback: one sends for a second as fast as it can, the other receives
batches. The first row calls send() in one thread; the others do the same with
`--threads` threads, and with calls of send_many() of `--batch` messages. A figure is
the median of the rounds of what the receiver gets in a second; a ratio is that of
neighbours, to the first row. CPU is what both members need for each message, in
microseconds.
"""

import argparse
import secrets
import statistics
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from members import receive, run

from ringcast import Channel

SECONDS = 1.0
BURST = 100                             # messages between two looks at the clock


def be(sends: bool, threads: int, batch: int, size: int, options: dict[str, Any],
       pipe: Connection) -> None:
    """Be a member of a group; tell messages a second, and CPU time for each."""
    with Channel(**options, deliver=not sends) as channel:
        pipe.send(None)
        pipe.recv()
        began, spent = time.monotonic(), time.process_time()
        count = send(channel, threads, batch, size) if sends else receive(channel)
        elapsed, spent = time.monotonic() - began, time.process_time() - spent
        pipe.send((count / elapsed, spent / count * 1e6))
        pipe.recv()                     # the others may still need something


def send(channel: Channel, threads: int, batch: int, size: int) -> int:
    """Send for SECONDS from so many threads; return how many messages."""
    counts = [0] * threads
    workers = [threading.Thread(target=work, args=(channel, batch, size, counts, number))
               for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    channel.send(b"")
    return sum(counts)


def work(channel: Channel, batch: int, size: int, counts: list[int], number: int) -> None:
    """Send for SECONDS; note how many messages."""
    payload, call, count, end = bytes(size), channel.send, 0, time.monotonic() + SECONDS
    payloads = [payload] * batch
    while time.monotonic() < end:
        if batch > 1:
            channel.send_many(payloads)
            count += batch
        else:
            for _ in range(BURST):
                call(payload)
            count += BURST
    counts[number] = count


def once(threads: int, batch: int, size: int, stack: str) -> list[float]:
    """Run a group once; return the figures of a row."""
    options = {"group": f"senders-{secrets.token_hex(4)}", "stack": stack, "min_members": 2}
    (_, sender), (rate, receiver) = run(
        be, [(number == 0, threads, batch, size, options) for number in range(2)])
    return [rate, sender, receiver]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, nargs="+", default=[1000, 100],
                        help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--stack", default="mcast-udp")
    given = parser.parse_args()
    ways = {"send": (1, 1), f"{given.threads} threads": (given.threads, 1),
            f"send_many of {given.batch}": (1, given.batch)}
    print(f"{given.stack}, 1 -> 1, {given.rounds} rounds")
    print("bytes  way                 messages/s  ratio  CPU: sender  receiver")
    for size in given.size:
        rows: dict[str, list[list[float]]] = {way: [] for way in ways}
        for _ in range(given.rounds):
            for way, (threads, batch) in ways.items():
                rows[way].append(once(threads, batch, size, given.stack))
        for way, figures in rows.items():
            rate, sender, receiver = map(statistics.median, zip(*figures, strict=True))
            ratio = statistics.median(mine[0] / first[0] for mine, first in
                                      zip(figures, rows["send"], strict=True))
            print(f"{size:5}  {way:18}{rate:12,.0f}  {ratio:5.2f}  {sender:11.2f} "
                  f"{receiver:9.2f}", flush=True)


if __name__ == "__main__":
    main()
