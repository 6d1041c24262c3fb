"""Two groups in one process against one: what a Python without the GIL gives.

    python benchmarks/two_groups.py [rounds] [seconds]

A group here is one member, whose one thread sends batches of messages of 100 bytes to
the group and takes them back, over `inproc`: so one group can use little more than one
core. In each round one group runs alone, then two groups run at once, each in a thread
of its own; the ratio is that of the messages of both to those of the one. 2 would be
perfect on two idle cores. The last column is what two threads reach that only count, in
the same round: without the GIL, that is what the machine has left. A Python with the
GIL gives about 1 in both columns.
"""

import statistics
import sys
import threading
import time

from ringcast import Channel

BATCH, SIZE = 500, 100


def carry(channel, until):
    """Send and take until then; return how many messages came back."""
    payloads, came = [bytes(SIZE)] * BATCH, 0
    lists = channel.deliveries()
    while time.perf_counter() < until:
        channel.send_many(payloads)
        left = BATCH
        while left:
            left -= sum(len(batch) for batch in next(lists))
        came += BATCH
    lists.close()
    return came


def count(until):
    """Only count; return how far."""
    number = 0
    while time.perf_counter() < until:
        for _ in range(1000):
            number += 1
    return number


def at_once(act, arguments, seconds):
    """Run a thread for each argument; return what they did in a second together."""
    results, until = [], time.perf_counter() + seconds
    threads = [threading.Thread(target=lambda argument=argument: results.append(
        act(*argument, until))) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results) / seconds


def main(rounds=7, seconds=2.0):
    with (Channel("one", name="A", stack="inproc") as one,
          Channel("two", name="B", stack="inproc") as two):
        at_once(carry, [(one,), (two,)], seconds)                       # warm
        ratios, limits = [], []
        for _ in range(rounds):
            alone = at_once(carry, [(one,)], seconds)
            both = at_once(carry, [(one,), (two,)], seconds)
            limits.append(at_once(count, [(), ()], seconds / 2) / at_once(count, [()], seconds / 2))
            ratios.append(both / alone)
            print(f"one group {alone:9,.0f} msgs/s   two {both:9,.0f} msgs/s   "
                  f"ratio {ratios[-1]:.2f}   counting {limits[-1]:.2f}", flush=True)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"GIL {'on' if gil else 'off'}: ratio {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}), counting {statistics.median(limits):.2f}")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:2]), *(float(each) for each in sys.argv[2:3]))
