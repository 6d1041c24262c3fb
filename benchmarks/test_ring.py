"""The windows against their floors and plain-Python peers, in one run.

Held still in every benchmark: one thread, GIL build, one payload of 100-byte `bytes`
objects made beforehand (except where the making is measured), windows of 4,096 seqnos
that never run full, no gaps. A round has 1,000 messages, so the figure divided by 1,000
is per message. A table is empty after each round, so it makes and frees all its rows.
`pytest benchmarks --benchmark-enable`; `-s -k ratios` prints the ratios."""

import runpy
import time
from collections import deque
from pathlib import Path
from statistics import median

import pytest

from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.seqno_table import SeqnoTable

COUNT = 1000
ITEMS = [b"%0100d" % number for number in range(COUNT)]
DATAGRAM = b"".join(ITEMS[:600])


@pytest.fixture(scope="module")
def empty():
    """Return an object of a compiled class whose add() and remove() do nothing."""
    native = Path(__file__).parents[1] / "tests" / "core" / "native.py"
    return runpy.run_path(str(native))["build"]().Empty()


class DictWindow:
    """What one would write without a compiled core."""

    def __init__(self):
        self.hd, self.held = 0, {}

    def add(self, seqno, item):
        if seqno <= self.hd or seqno in self.held:
            return False
        self.held[seqno] = item
        return True

    def remove(self):
        item = self.held.pop(self.hd + 1, None)
        if item is not None:
            self.hd += 1
        return item


def in_batches(ring, nullify=True):
    def act():
        ring.add_many(ring.hd + 1, ITEMS)
        out = ring.remove_many(0, nullify)
        if not nullify:
            ring.stable(ring.hd)
        return out
    return act


def sending(ring):
    def act():
        ring.send_many(ITEMS)
        out = ring.remove_many(0, False)
        ring.stable(ring.hd)
        return out
    return act


def one_by_one(window):
    def act():
        add, remove = window.add, window.remove
        for seqno, item in enumerate(ITEMS, window.hd + 1 if hasattr(window, "hd") else 1):
            add(seqno, item)
            remove()
    return act


def deque_batches():
    queue = deque()

    def act():
        queue.extend(ITEMS)
        return [queue.popleft() for _ in range(COUNT)]
    return act


def dict_batches():
    window = DictWindow()

    def act():
        first = window.hd + 1
        for number, item in enumerate(ITEMS):
            window.add(first + number, item)
        return [window.remove() for _ in range(COUNT)]
    return act


def list_copies():
    return ITEMS[:][:]


def parse():
    """Cut 600 messages of 100 bytes out of one datagram, in Python: the floor."""
    return [DATAGRAM[at:at + 100] for at in range(0, len(DATAGRAM), 100)]


def parse_and_deliver(ring):
    def act():
        ring.add_many(ring.hd + 1, parse())
        return ring.remove_many()
    return act


def window(max_bytes=0):
    return RingBuffer(4096, max_bytes=max_bytes)


def table(max_bytes=0):
    return SeqnoTable(capacity=4096, max_bytes=max_bytes)


BATCHES = {
    "ring": in_batches(window()),
    "ring bounded in bytes": in_batches(window(2**24)),
    "ring retained": in_batches(window(), nullify=False),
    "ring send, deliver, stable": sending(window()),
    "table": in_batches(table()),
    "table bounded in bytes": in_batches(table(2**24)),
    "table retained": in_batches(table(), nullify=False),
    "table send, deliver, stable": sending(table()),
    "deque": deque_batches(),
    "dict window": dict_batches(),
    "two list copies": list_copies,
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.benchmark(group="1,000 messages in one batch")
def test_batch(benchmark, name):
    benchmark(BATCHES[name])


@pytest.mark.parametrize("name", [
    "ring", "ring bounded in bytes", "table", "two empty calls", "dict window"])
@pytest.mark.benchmark(group="1,000 messages one by one")
def test_one_by_one(benchmark, name, empty):
    windows = {"ring": window(), "ring bounded in bytes": window(2**24), "table": table(),
               "two empty calls": empty, "dict window": DictWindow()}
    benchmark(one_by_one(windows[name]))


@pytest.mark.parametrize("name", ["parse alone", "parse, add_many, remove_many"])
@pytest.mark.benchmark(group="600 messages of 100 bytes parsed from a datagram")
def test_datagram(benchmark, name):
    benchmark(parse if name == "parse alone" else parse_and_deliver(window()))


@pytest.mark.benchmark(group="missing: 64k seqnos, 1 % gaps")
@pytest.mark.parametrize("name", ["missing", "num_missing"])
@pytest.mark.parametrize("make", [RingBuffer, lambda capacity: SeqnoTable(capacity=capacity)],
                         ids=["ring", "table"])
def test_missing(benchmark, make, name):
    ring = make(65536)
    for first in range(2, 65536, 100):
        ring.add_many(first, ITEMS[:99])
    benchmark(ring.missing if name == "missing" else lambda: ring.num_missing)


def nanoseconds(act, messages, rounds=21, repeats=20):
    """Return the median over rounds, per message."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(repeats):
            act()
        taken.append((time.perf_counter_ns() - start) / repeats / messages)
    return median(taken)


def test_ratios_are_printed_and_never_judged(empty):
    """The goals are ratios, which hold on another machine. The load of a shared one
    must not fail a build."""
    batch = {name: nanoseconds(act, COUNT) for name, act in BATCHES.items()}
    windows = {"ring": window(), "table": table(), "floor": empty}
    single = {name: nanoseconds(one_by_one(each), COUNT) for name, each in windows.items()}
    parsed = {"ring": nanoseconds(parse_and_deliver(window()), 600),
              "floor": nanoseconds(parse, 600)}
    print()
    for name, value in batch.items():
        print(f"{name:44} {value:8.2f} ns a message")
    for title, ratio, goal in [
        ("batch / two list copies", batch["ring"] / batch["two list copies"], 2.5),
        ("batch / deque", batch["ring"] / batch["deque"], 0.25),
        ("batch / dict window", batch["ring"] / batch["dict window"], 0.04),
        ("one by one / two empty calls", single["ring"] / single["floor"], 1.6),
        ("table / ring, batch", batch["table"] / batch["ring"], 1.5),
        ("table / ring, bounded in bytes", batch["table bounded in bytes"]
         / batch["ring bounded in bytes"], 1.5),
        ("table / ring, one by one", single["table"] / single["ring"], 1.5),
        ("parse and deliver / parse alone", parsed["ring"] / parsed["floor"], 1.6),
    ]:
        print(f"{title:44} {ratio:8.2f} (goal: at most {goal})")
    print(f"{'one by one':44} {single['ring']:8.2f} ns, floor {single['floor']:.2f} ns")
