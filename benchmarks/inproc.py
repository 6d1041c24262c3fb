"""Where the time of a round trip between two members of one process goes.

    python benchmarks/inproc.py [--rounds N] [--trips N]

Three programs take turns; one message of 100 bytes is on its way at a time:

- *handovers*: two threads, each of which waits for a lock that the other one opens. It
  is the least that two threads of plain Python can do.
- *one thread*: a thread is both members by turns, so it hands nothing over. It is what
  the layers of two members take, one after the other, because of the GIL.
- *two threads*: a thread for each member.

Prints the median of each round, in microseconds, and the medians of all.
"""

import argparse
import gc
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ringcast import Channel

PAYLOAD = bytes(100)
Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trips", type=int, default=5000, help="round trips of a round")
    given = parser.parse_args()
    columns: dict[str, list[float]] = {"handovers": [], "one thread": [], "two threads": []}
    print("         ", *(f"{name:>12}" for name in columns))
    with members() as (a, b):
        at_a, at_b = iter(a), iter(b)

        def ask() -> None:
            a.send(PAYLOAD, "B")

        def answer() -> None:
            next(at_b)
            b.send(PAYLOAD, "A")

        there, back = threading.Lock(), threading.Lock()
        there.acquire()
        back.acquire()
        for number in range(given.rounds):
            row = [
                with_a_thread(given.trips, there.release, lambda: (there.acquire(), back.release()),
                              back.acquire),
                median(given.trips, lambda: (ask(), answer(), next(at_a))),
                with_a_thread(given.trips, ask, answer, lambda: next(at_a)),
            ]
            for column, figure in zip(columns.values(), row, strict=True):
                column.append(figure)
            print(f"round {number + 1:3}", *(f"{figure:12.1f}" for figure in row), flush=True)
        for iterator in (at_a, at_b):   # who asks for the next message finishes the last one
            threading.Thread(target=list, args=(iterator,)).start()
    print("median   ", *(f"{statistics.median(each):12.1f}" for each in columns.values()))


@contextmanager
def members() -> Iterator[list[Channel]]:
    """Open two members of one group, and close them."""
    group = f"inproc-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        channels = [Channel(group, name=name, stack="inproc", min_members=2) for name in "AB"]
        connecting = threading.Thread(target=channels[1].connect)
        connecting.start()
        for channel in channels:
            stack.callback(channel.close)
        channels[0].connect()
        connecting.join()
        yield channels


def with_a_thread(trips: int, ask: Step, answer: Step, receive: Step) -> float:
    """Return the median of round trips, while another thread answers."""
    def answer_all() -> None:
        for _ in range(trips):
            answer()
    thread = threading.Thread(target=answer_all)
    thread.start()
    figure = median(trips, lambda: (ask(), receive()))
    thread.join()
    return figure


def median(trips: int, trip: Step) -> float:
    """Return the median of what calls of `trip` take, in microseconds."""
    taken = []
    gc.collect()
    gc.disable()
    for _ in range(trips):
        began = time.perf_counter_ns()
        trip()
        taken.append(time.perf_counter_ns() - began)
    gc.enable()
    return statistics.median(taken) / 1000


if __name__ == "__main__":
    main()
