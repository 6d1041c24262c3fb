"""What a trace costs, and what a status file costs.

    python benchmarks/trace_cost.py [thousands of messages] [rounds]

One of two members in this process sends messages of 100 bytes to both, with neither,
with a status file, and with a trace, in turns. The ratios are those of the medians.
"""

import secrets
import statistics
import sys
import tempfile
import threading
import time

from ringcast import Channel

SIZE, CALL = 100, 1000


class Counter:
    """An on_message that knows when all have come."""

    def __init__(self, expected: int) -> None:
        self.missing = expected
        self.done = threading.Event()

    def __call__(self, batch) -> None:
        self.missing -= len(batch)
        if self.missing <= 0:
            self.done.set()


def throughput(stack: str, messages: int, **options) -> float:
    """Return the messages a second."""
    counters = {name: Counter(messages) for name in "AB"}
    port = 20_000 + secrets.randbelow(40_000)
    channels = [Channel("cost", name=name, min_members=2, stack=stack, port=port,
                        on_message=counter, **options)
                for name, counter in counters.items()]
    joining = [threading.Thread(target=channel.connect) for channel in channels]
    for thread in joining:
        thread.start()
    for thread in joining:
        thread.join()
    payloads = [bytes(SIZE)] * CALL
    began = time.perf_counter()
    for _ in range(messages // CALL):
        channels[0].send_many(payloads)
    for counter in counters.values():
        assert counter.done.wait(120)
    seconds = time.perf_counter() - began
    for channel in channels:
        channel.close()
    return messages / seconds


def main() -> None:
    messages = 1000 * int(sys.argv[1] if len(sys.argv) > 1 else 2000)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    for stack in ("mcast-udp", "inproc"):
        neither, published, traced = [], [], []
        for _ in range(rounds):
            neither.append(throughput(stack, messages, status_file=False))
            published.append(throughput(stack, messages, status_file=True))
            with tempfile.TemporaryDirectory() as directory:
                traced.append(throughput(stack, messages, status_file=False, trace=directory))
        a, b, c = map(statistics.median, (neither, published, traced))
        print(f"{stack}: {a / 1e6:.2f} M messages/s with neither, {b / 1e6:.2f} with a status "
              f"file: {b / a:.3f}, {c / 1e6:.2f} with a trace: {c / a:.2f}")


if __name__ == "__main__":
    main()
