"""One datagram on its way: bytes in, messages out of the window, and the other way
round.

Held still: one thread; one datagram of 60 KB, warm in the cache, whose messages are
new, in order and without a gap; a window of 32,768 seqnos that is empty before and
after; all objects are freed at the end of each call. So a figure divided by the
messages of the datagram (printed with it) is the cost per message. `pytest benchmarks
--benchmark-enable`; `-s -k ratios` prints ratios.

The floor for receiving is `struct.unpack` with one `100s` a message: the standard
library's own C loop that does nothing but make the bytes objects. `wire.read_data`
alone is measured too: it makes the same objects and checks the lengths.
"""

import struct
import time
from itertools import accumulate, pairwise
from statistics import median, quantiles

import pytest

from ringcast import Channel
from ringcast._core import wire
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.send_window import SendWindow
from ringcast._core.seqno_table import SeqnoTable
from ringcast.cli.perf.naive import NaiveSender, bundle
from ringcast.protocols.multicast import base as multicast

CAPACITY = 32_768
SIZES = [100, 1000]
GROUP = 7
HEADER = wire.make_header(multicast.DATA, GROUP, 1, 0)
RUN = struct.Struct("<QIIq")            # first seqno, count, bytes, send time: before the lengths


def messages_of(size):
    """Return as many messages of `size` bytes as a datagram of 60 KB holds."""
    return [b"%0*d" % (size, number) for number in range(59_000 // (size + 2))]


def datagram_of(messages):
    window = SendWindow(RingBuffer(CAPACITY))
    for message in messages:
        window.push(message)
    (datagram,) = window.frame(HEADER)
    return datagram


class Arriving:
    """A datagram that arrives again and again, each time with the next seqnos, in the
    same memory, as in the transport."""

    def __init__(self, size):
        self.count = len(messages_of(size))
        self.size = size
        self.whole = datagram_of(messages_of(size))
        self.data = bytearray(self.whole)
        self.floor = struct.Struct(f"{size}s" * self.count)
        self.at = len(self.data) - size * self.count    # where the messages begin

    def renumber(self, first):
        struct.pack_into("<Q", self.data, wire.HEADER_SIZE, first)

    def check(self, messages):
        assert messages == messages_of(self.size)


def bytes_alone(arriving):
    """Do the least that compiled code must: make n bytes objects in a tuple."""
    def act():
        arriving.renumber(1)
        return arriving.floor.unpack_from(arriving.data, arriving.at)
    return act


def read_alone(arriving):
    def act():
        arriving.renumber(1)
        return wire.read_data(arriving.data, 0, CAPACITY).batches[0].payloads
    return act


def receive(arriving):
    """Do what the core does after the check of a datagram: parse, place, take out."""
    ring = RingBuffer(CAPACITY)

    def act():
        arriving.renumber(ring.hd + 1)
        for batch in wire.read_data(arriving.data, ring.low, CAPACITY).batches:
            ring.add_many(batch.first, batch.payloads)
        return ring.remove_many()
    return act


class DictWindow:
    """What one would write without a compiled core."""

    def __init__(self):
        self.delivered, self.held = 0, {}

    def add_many(self, first, messages):
        for seqno, message in enumerate(messages, first):
            if self.delivered < seqno <= self.delivered + CAPACITY and seqno not in self.held:
                self.held[seqno] = message

    def remove_many(self):
        taken = []
        while (message := self.held.pop(self.delivered + 1, None)) is not None:
            self.delivered += 1
            taken.append(message)
        return taken


def receive_in_python(arriving):
    """Do the same from the same bytes with struct, slices and a dict."""
    window = DictWindow()

    def act():
        arriving.renumber(window.delivered + 1)
        data = bytes(arriving.data)
        first, count, *_ = RUN.unpack_from(data, wire.HEADER_SIZE)
        start = wire.HEADER_SIZE + RUN.size
        lengths = struct.unpack_from(f"<{count}H", data, start)
        ends = accumulate(lengths, initial=start + 2 * count)
        window.add_many(first, [data[begin:end] for begin, end in pairwise(ends)])
        return window.remove_many()
    return act


def open_alone(arriving):
    """Check all bytes of the datagram, which comes before the rest."""
    return lambda: wire.open_datagram(arriving.whole, GROUP)


RECEIVING = {"bytes objects alone": bytes_alone, "read_data alone": read_alone,
             "read, add, remove": receive,
             "struct and dict": receive_in_python, "check alone": open_alone}


def frame(messages, ring=None):
    """Push each message, then frame them. Empty the window again, as acks do."""
    window = SendWindow(RingBuffer(CAPACITY) if ring is None else ring)

    def act():
        push = window.push
        for message in messages:
            push(message)
        datagrams = window.frame(HEADER)
        window.ring.remove_many(nullify=False)
        window.ring.stable(window.sent)
        return datagrams
    return act


def frame_from_table(messages):
    return frame(messages, SeqnoTable(capacity=CAPACITY))


def join_in_python(messages):
    """Append each message, then join them. Nothing is kept for a repeat."""
    def act():
        pending = []
        append = pending.append
        for message in messages:
            append(message)
        return bundle(pending, sum(map(len, pending)))
    return act


class Nowhere(NaiveSender):
    """The naive sender without a receiver: only its send() costs."""

    def __init__(self):
        super().__init__([])


def call_for_each(send, messages):
    def act():
        for message in messages:
            send(message)
    return act


@pytest.fixture(scope="module")
def channel():
    """Yield a member alone in its group that only sends. What it frames is freed at
    once, so the window never fills."""
    with Channel("benchmark", stack="inproc", deliver=False) as alone:
        yield alone


@pytest.mark.parametrize("name", RECEIVING)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.benchmark(group="receive a datagram")
def test_receive(benchmark, name, size):
    arriving = Arriving(size)
    benchmark.extra_info["messages"] = arriving.count
    result = benchmark(RECEIVING[name](arriving))
    if name != "check alone":
        arriving.check(list(result))


@pytest.mark.parametrize("act", [frame, frame_from_table, join_in_python])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.benchmark(group="frame a datagram")
def test_frame(benchmark, act, size):
    messages = messages_of(size)
    benchmark.extra_info["messages"] = len(messages)
    assert benchmark(act(messages))


@pytest.mark.parametrize("sender", ["Channel.send", "naive send"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.benchmark(group="one call a message, 1,000 messages")
def test_send(benchmark, sender, size, channel):
    send = channel.send if sender == "Channel.send" else Nowhere().send
    benchmark(call_for_each(send, [bytes(size)] * 1000))


def compare(act, other, count, rounds=41, repeats=20):
    """Run the two in turns. Return nanoseconds per message of `act`, and the quartiles
    of act / other of neighbouring rounds."""
    def taken(each):
        start = time.perf_counter_ns()
        for _ in range(repeats):
            each()
        return (time.perf_counter_ns() - start) / repeats / count

    pairs = [(taken(act), taken(other)) for _ in range(rounds)]
    ratios = [mine / theirs for mine, theirs in pairs]
    return median(mine for mine, _ in pairs), quantiles(ratios, n=4)


def test_ratios_are_printed_and_never_judged(channel):
    """Claims are ratios of neighbours in one run: they hold on another machine, and its
    load does not fail a build."""
    print(f"\n{'':58} ns/message  ratio [quartiles]")
    for size, goal in zip(SIZES, [1.6, 1.3], strict=True):
        arriving, messages = Arriving(size), messages_of(size)
        thousand = [bytes(size)] * 1000
        for title, act, other, count in [
            (f"receive / bytes objects alone (goal: at most {goal})", receive(arriving),
             bytes_alone(arriving), arriving.count),
            ("receive / read_data alone", receive(arriving), read_alone(arriving), arriving.count),
            ("receive / struct and dict", receive(arriving), receive_in_python(arriving),
             arriving.count),
            ("check of the bytes / bytes objects alone", open_alone(arriving),
             bytes_alone(arriving), arriving.count),
            ("push and frame / append and join", frame(messages), join_in_python(messages),
             len(messages)),
            ("push and frame, table / ring", frame_from_table(messages), frame(messages),
             len(messages)),
            ("Channel.send / naive send", call_for_each(channel.send, thousand),
             call_for_each(Nowhere().send, thousand), 1000),
        ]:
            each, (low, middle, high) = compare(act, other, count)
            print(f"{size:5} B  {title:50} {each:10.1f}  {middle:.2f} [{low:.2f} - {high:.2f}]")
