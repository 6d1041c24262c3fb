"""What loss costs: the speed that is left, the repeats, and the wait for a message.

    python benchmarks/lossy_links.py [--stack NAME] [--receivers N] [--size N]
                                     [--rounds N]

Members are processes on loopback. Each receiver, and the sender, discards so many of
the datagrams that come, of all kinds. The losses are measured in turns, without loss as
well; the figures are medians of the rounds.

speed    one member sends for a second as fast as it can: what the slowest receiver
         delivers, and its part of the speed without loss in the same run; messages
         repeated for each that was lost; messages that came twice, of those delivered.
wait     the same member sends 10,000 messages of 100 bytes a second: the time from
         send() until the application has a message, of all receivers.
"""

import argparse
import random
import secrets
import statistics
import time
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any

from members import run

from ringcast import Channel
from ringcast.protocols.faults import Discard

LOSSES = (0.0, 0.01, 0.05, 0.2)
SECONDS = 1.0
RATE, WAIT_SIZE, BURST = 10_000, 100, 10            # messages a second, bytes, messages
Measured = tuple[float, float, float]


def be(name: str, group: str, options: dict[str, Any], loss: float, size: int, rate: int,
       pipe: Connection) -> None:
    """Be a member, and tell what it measured: the first sends, the others receive."""
    faults = [Discard(loss, random.Random(f"{group}/{name}"))] if loss else []
    with Channel(group, name=name, faults=faults, deliver=name != "0", **options) as channel:
        pipe.send(None)
        pipe.recv()
        began = time.monotonic()
        waits: list[float] = []
        count = send(channel, size, rate) if name == "0" else receive(channel, waits)
        status, spent = channel.status(), time.monotonic() - began
        pipe.send((count / spent, status.multicast.xmit_rsps_sent / count,
                   status.multicast.num_duplicates / count, waits))
        pipe.recv()                                 # the others may still need repeats


def send(channel: Channel, size: int, rate: int) -> int:
    """Send for SECONDS, at this rate or as fast as possible; return how many."""
    count, began, payload = 0, time.monotonic(), bytes(size)
    while (now := time.monotonic()) < began + SECONDS:
        if rate and count > (now - began) * rate:
            time.sleep(BURST / rate / 4)
            continue
        for _ in range(BURST):
            channel.send(stamped(size) if rate else payload)
        count += BURST
    channel.send(b"")
    return count


def stamped(size: int) -> bytes:
    """Return a message that says when it was sent."""
    return time.time_ns().to_bytes(8, "little").ljust(size, b"\0")


def receive(channel: Channel, waits: list[float]) -> int:
    """Receive until the sender says that it has ended; note how long messages took,
    in milliseconds, and return how many came."""
    count = 0
    for batch in channel.batches():
        now, count = time.time_ns(), count + len(batch)
        waits += [(now - sent) / 1e6 for payload in batch.payloads[::10]
                  if (sent := int.from_bytes(payload[:8], "little"))]
        if not batch.payloads[-1]:
            break
    return count


def once(stack: str, receivers: int, loss: float, size: int,
         rate: int = 0) -> tuple[Measured, list[float]]:
    """Run a group once. Return the messages a second, the repeats and the duplicates of
    each message, and the waits."""
    group = f"lossy-{secrets.token_hex(4)}"
    options = {"stack": stack, "min_members": receivers + 1}
    (_, repeats, _, _), *others = run(be, [(str(number), group, options, loss, size, rate)
                                           for number in range(receivers + 1)])
    speeds, _, twice, waits = zip(*others, strict=True)
    return (min(speeds), repeats, max(twice)), list(chain(*waits))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", default="mcast-udp")
    parser.add_argument("--receivers", type=int, default=1)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    speeds: dict[float, list[Measured]] = {loss: [] for loss in LOSSES}
    waits: dict[float, list[float]] = {loss: [] for loss in LOSSES}
    for _ in range(given.rounds):
        for loss in LOSSES:
            speeds[loss].append(once(given.stack, given.receivers, loss, given.size)[0])
            waits[loss] += once(given.stack, given.receivers, loss, WAIT_SIZE, RATE)[1]
    print(f"{given.stack}, {given.size} bytes, 1 -> {given.receivers}, {given.rounds} rounds")
    for loss in LOSSES:
        speed, repeats, twice = map(statistics.median, zip(*speeds[loss], strict=True))
        share = speed / statistics.median(each for each, _, _ in speeds[0.0])
        lost = 1 - (1 - loss) ** given.receivers        # that any receiver misses
        sent_again = f"{repeats / lost:.2f} for each lost" if loss else f"{repeats:.4f}"
        per_mille = statistics.quantiles(waits[loss], n=1000)
        print(f"{loss:5.0%}  {speed:10,.0f}/s, {share:4.0%} of lossless; repeats {sent_again}; "
              f"twice {twice:.2%}; wait p50 {per_mille[499]:.2f}, p99 {per_mille[989]:.2f}, "
              f"p99.9 {per_mille[998]:.2f} ms")


if __name__ == "__main__":
    main()
