"""Whether memory stays flat: a group that works for long with loss.

    python benchmarks/soak.py [--minutes N] [--members N] [--rate N] [--size N]
                              [--loss SHARE] [--stack NAME]

Members are processes on loopback, and all of them send. Each one discards so many of
the datagrams that come, of all kinds. In each of 20 parts of the time each member
notes its resident memory, and how many objects Python tracks in it; the last member
leaves and comes back in each part, so views change, too. A line of the table is one
member. The first parts fill windows and pools; "growth" compares the means of the last
quarter with those of the second.
"""

import argparse
import gc
import os
import random
import secrets
import statistics
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import members

from ringcast import Channel
from ringcast.protocols.faults import Discard

PARTS, BURST = 20, 10
PAGE = os.sysconf("SC_PAGE_SIZE")


def be(name: str, group: str, comes_back: bool, given: argparse.Namespace,
       pipe: Connection) -> None:
    """Be a member that sends and receives; tell memory and objects of each part, how
    many messages came, and how many were repeated."""
    seconds = given.minutes * 60 / PARTS
    noted, came, repeated = [], 0, 0
    pipe.send(None)
    pipe.recv()
    for part in range(PARTS):
        if comes_back or part == 0:
            channel = opened(name, group, given)
        until = time.monotonic() + seconds
        sender = threading.Thread(target=send, args=(channel, given, until - seconds / 10))
        sender.start()
        while (left := until - time.monotonic()) > 0:
            batch = next(channel.batches(timeout=left), None)
            came += 0 if batch is None else len(batch)
            del batch
        sender.join()
        if comes_back or part == PARTS - 1:
            repeated += channel.status().multicast.xmit_rsps_sent
            channel.close(10)
        gc.collect()
        noted.append((resident(), len(gc.get_objects())))
    pipe.send((noted, came, repeated))
    pipe.recv()


def opened(name: str, group: str, given: argparse.Namespace) -> Channel:
    """Return a connected channel that discards some of what comes."""
    faults = [Discard(given.loss, random.Random(f"{group}/{name}"))]
    channel = Channel(group, name=name, stack=given.stack, faults=faults)
    channel.connect()
    return channel


def send(channel: Channel, given: argparse.Namespace, until: float) -> None:
    """Send at the rate until this time."""
    began, count, payload = time.monotonic(), 0, bytes(given.size)
    while (now := time.monotonic()) < until:
        if count > (now - began) * given.rate:
            time.sleep(BURST / given.rate / 2)
        else:
            channel.send_many([payload] * BURST)
            count += BURST


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


def growth(figures: list[int]) -> float:
    """Return the last quarter by the second one, less 1."""
    quarter = PARTS // 4
    return statistics.mean(figures[-quarter:]) / statistics.mean(figures[quarter:2 * quarter]) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--rate", type=int, default=5000, help="messages a second of each member")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a message")
    parser.add_argument("--loss", type=float, default=0.05)
    parser.add_argument("--stack", default="mcast-udp")
    given = parser.parse_args()
    group = f"soak-{secrets.token_hex(4)}"
    members.PATIENCE = given.minutes * 60 + 60
    rows: list[tuple[Any, ...]] = members.run(be, [
        (str(number), group, number == given.members - 1, given)
        for number in range(given.members)])
    print(f"{given.stack}, {given.minutes:g} minutes, {given.members} members that each send "
          f"{given.rate:,} messages of {given.size:,} bytes a second, {given.loss:.0%} lost")
    for number, (noted, came, repeated) in enumerate(rows):
        memory, objects = map(list, zip(*noted, strict=True))
        told = ", ".join(f"{each / (1 << 20):.0f}" for each in memory)
        print(f"member {number}: {came:,} messages came, {repeated:,} repeated; memory in MB: "
              f"{told}; growth {growth(memory):+.1%}, of objects {growth(objects):+.1%}")


if __name__ == "__main__":
    main()
