"""What a stranger costs a sealed group: it has not the secret, hears what is sent, and
says one datagram of the same size for each with messages that it hears.

    python benchmarks/flood.py [--size N] [--rounds N]

One member sends for a second as fast as it can, and one receives, over mcast-udp on
loopback. The stranger is a process as well, and takes its part of the processors. So it
says the same as often in each run, in turns:

aside     to another address, where nobody is: what the others are compared with
garbage   bytes that are not sealed
again     what it has heard
altered   what it has heard, as the next one of its sender, and with another tag

The figures are medians of the rounds: messages a second, their part of those beside the
flood aside, CPU seconds of the sender and of the receiver for a million messages (the
flood reaches both), datagrams of the stranger for each of the sender, and what the
receiver has more than before: log lines, descriptors, megabytes.
"""

import argparse
import logging
import os
import secrets
import socket
import statistics
import struct
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from members import run

from ringcast import Channel
from ringcast._core.sockets import drop_own
from ringcast.config import BULK_CHANNEL
from ringcast.protocols.security.seal import HEADER_SIZE
from ringcast.status import by_name

FLOODS = ("aside", "garbage", "again", "altered")
SECONDS = 1.0
GROUP, ASIDE = "239.255.91.17", "239.255.91.18"
LOOPBACK, PORT = "127.0.0.1", 46_117
SECRET = secrets.token_bytes(32)                    # the processes are forked


def be(role: str, group: str, flood: str, size: int, pipe: Connection) -> None:
    """Be a process of the benchmark, and tell what it measured."""
    if role == "stranger":
        pipe.send(None)
        pipe.recv()
        pipe.send(be_stranger(flood))
        pipe.recv()
        return
    logged = Logged()
    logging.getLogger("ringcast").addHandler(logged)
    with Channel(group, name=role, secret=lambda: SECRET, deliver=role == "receiver",
                 group_address=GROUP, port=PORT, min_members=2) as channel:
        pipe.send(None)
        pipe.recv()
        before, began = (len(logged.lines), *resources()), time.process_time()
        told: Any = send(channel, size) if role == "sender" else receive(channel)
        spent = time.process_time() - began
        now = (len(logged.lines), *resources())
        pipe.send((told, spent, [b - a for a, b in zip(before, now, strict=True)],
                   by_name(channel.status())))
        pipe.recv()


class Logged(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())


def resources() -> tuple[int, float]:
    """Return how many descriptors this process has, and how many megabytes."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def send(channel: Channel, size: int) -> int:
    """Send for SECONDS as fast as possible; return how many messages."""
    count, payload, end = 0, bytes(size), time.monotonic() + SECONDS
    while time.monotonic() < end:
        channel.send_many([payload] * 100)
        count += 100
    channel.send(b"")
    return count


def receive(channel: Channel) -> tuple[int, float]:
    """Receive until the sender has ended; return how many messages, and in how long."""
    count, began = 0, time.monotonic()
    for batch in channel.batches():
        count += len(batch)
        if not batch.payloads[-1]:
            break
    return count, time.monotonic() - began


def be_stranger(flood: str) -> int:
    """Say one datagram for each with messages that comes; return how many."""
    hearing, saying = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with hearing, saying:
        loopback = socket.inet_aton(LOOPBACK)
        saying.bind((LOOPBACK, 0))
        saying.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hearing.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        hearing.bind((GROUP, PORT))
        drop_own(hearing.fileno(), LOOPBACK, saying.getsockname()[1], [BULK_CHANNEL])
        hearing.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                           socket.inet_aton(GROUP) + loopback)
        hearing.settimeout(0.1)
        heard, end, count = bytearray(65_536), time.monotonic() + SECONDS + 0.3, 0
        dest = (ASIDE if flood == "aside" else GROUP, PORT)
        while time.monotonic() < end:
            with suppress(TimeoutError):
                size = hearing.recv_into(heard)
                said = memoryview(heard)[:size]
                if flood == "garbage":
                    said[:HEADER_SIZE] = bytes(HEADER_SIZE)
                elif flood == "altered":
                    number, = struct.unpack_from("<Q", said, 16)
                    struct.pack_into("<Q", said, 16, number + 1000)
                saying.sendto(said, dest)
                count += 1
        return count


def measure(flood: str, size: int) -> tuple[float, ...]:
    """Run a group once; return the figures."""
    group = secrets.token_hex(4)
    told = run(be, [(role, group, flood, size) for role in ("sender", "receiver", "stranger")])
    (sent, sending, _, counted), ((count, spent), receiving, more, _), said = told
    assert count == sent + 1
    return (count / spent, sending / count * 1e6, receiving / count * 1e6,
            said / counted["datagrams_sent"], *more)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    runs: dict[str, list[tuple[float, ...]]] = {flood: [] for flood in FLOODS}
    for _ in range(arguments.rounds):
        for flood in FLOODS:
            runs[flood].append(measure(flood, arguments.size))
    base = statistics.median(each[0] for each in runs["aside"])
    print(f"{'flood':9}{'messages/s':>12}{'part':>7}{'sender':>8}{'receiver':>10}{'said':>6}"
          f"{'lines':>7}{'fds':>5}{'MB':>7}")
    for flood, each in runs.items():
        rate, sending, receiving, said, lines, fds, size = (
            statistics.median(figures) for figures in zip(*each, strict=True))
        print(f"{flood:9}{rate:12,.0f}{rate / base:7.0%}{sending:8.2f}{receiving:10.2f}{said:6.2f}"
              f"{lines:7.0f}{fds:5.0f}{size:7.1f}")


if __name__ == "__main__":
    main()
