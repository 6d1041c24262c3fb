"""Messages larger than a datagram, where socket buffers are large, and where they are
as small as on most systems for who is not root.

    python benchmarks/large_messages.py [--size N ...] [--buffer N ...] [--rounds N]
                                        [--stack NAME ...]

Two processes on loopback: one sends for a second as fast as it can, the other receives.
A figure is the median of the rounds, in MB (1,000,000 bytes) a second at the receiver;
the rounds of all rows are in turns.
"""

import argparse
import secrets
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from members import receive, run

from ringcast import Channel

SECONDS = 1.0


def be(sends: bool, size: int, options: dict[str, Any], pipe: Connection) -> None:
    """Be a member of a group; tell how many messages a second."""
    with Channel(**options, deliver=not sends) as channel:
        pipe.send(None)
        pipe.recv()
        began = time.monotonic()
        count = send(channel, size) if sends else receive(channel)
        pipe.send(count / (time.monotonic() - began))
        pipe.recv()                     # the others may still need something


def send(channel: Channel, size: int) -> int:
    """Send for SECONDS; return how many messages."""
    payload, count, end = bytes(size), 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        channel.send(payload)
        count += 1
    channel.send(b"")
    return count


def once(stack: str, size: int, buffer: int) -> float:
    """Run a group once; return the MB a second."""
    options = {"group": f"large-{secrets.token_hex(4)}", "stack": stack, "min_members": 2,
               "receive_buffer": buffer}
    _, rate = run(be, [(number == 0, size, options) for number in range(2)])
    return float(rate) * size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, nargs="+", default=[100_000, 1_000_000],
                        help="bytes of a message")
    parser.add_argument("--buffer", type=int, nargs="+", default=[212_992, 16 << 20],
                        help="bytes of receive buffer asked of the kernel")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stack", nargs="+", default=["mcast-udp", "nakack2-udp"])
    given = parser.parse_args()
    rows = [(stack, size, buffer) for stack in given.stack for size in given.size
            for buffer in given.buffer]
    rates: dict[tuple[str, int, int], list[float]] = {row: [] for row in rows}
    for _ in range(given.rounds):
        for row in rows:
            rates[row].append(once(*row))
    print("stack             bytes     buffer    MB/s")
    for (stack, size, buffer), measured in rates.items():
        print(f"{stack:12} {size:10,} {buffer:10,} {statistics.median(measured):7,.0f}")


if __name__ == "__main__":
    main()
