"""What an idle member of another group on the same host costs a busy group.

    python benchmarks/neighbours.py [--stack NAME] [--size N] [--turns N] [--seconds S]

One member sends as fast as it can, and one receives, in the group of `ringcast perf`.
Turns without the neighbour and with it follow each other. Both groups have the default
port, and the addresses that follow from their names. Each turn prints the messages/s
at the receiver without and with the neighbour, their ratio, and what of a core the
neighbour used; the last line has the medians.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from ringcast import Channel
from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.run import run_once


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", default="mcast-udp")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a message")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a run")
    given = parser.parse_args()
    plan = PerfPlan(group="busy", members=2, senders=1, size=given.size, seconds=given.seconds,
                    timeout=30.0, stack=given.stack)
    turns = []
    print(f"{'':8}{'alone':>12}{'beside it':>12}{'ratio':>8}{'its core':>10}")
    for number in range(given.turns):
        alone = rate(plan)
        with neighbour(given.stack) as pipe:
            beside = rate(plan)
            pipe.send(None)
            used = pipe.recv()
        turns.append((alone, beside, beside / alone, used))
        show(f"turn {number + 1:3}", turns[-1])
    show("median", tuple(map(statistics.median, zip(*turns, strict=True))))


def rate(plan: PerfPlan) -> float:
    """Run the busy group once; return the messages a second at its receiver."""
    return float(run_once(plan)["delivered_per_second"])


@contextmanager
def neighbour(stack: str) -> Iterator[Connection]:
    """Run an idle member of another group. Sent anything, it tells what of a core it
    has used since it was there."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=be_idle, args=(stack, theirs), daemon=True)
    process.start()
    ours.recv()
    yield ours
    process.join()


def be_idle(stack: str, pipe: Connection) -> None:
    """Be the neighbour."""
    with Channel("idle", name="N", stack=stack):
        pipe.send(None)
        spent, began = time.process_time(), time.monotonic()
        pipe.recv()
        pipe.send((time.process_time() - spent) / (time.monotonic() - began))


def show(head: str, figures: tuple[float, ...]) -> None:
    """Print a line of the table."""
    alone, beside, ratio, used = figures
    print(f"{head:8}{alone:12,.0f}{beside:12,.0f}{ratio:8.2f}{used:10.3f}", flush=True)


if __name__ == "__main__":
    main()
