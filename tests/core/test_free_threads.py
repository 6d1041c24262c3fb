"""Many threads at once in what several threads share. With the GIL these pass easily;
`make nogil` runs them without it, where each of them failed, or the process crashed,
before the critical section that it is about was there."""

import pkgutil
import socket
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Barrier

import pytest

import ringcast._core
from ringcast._core import wire
from ringcast._core.ack_table import AckTable
from ringcast._core.batch import Batch
from ringcast._core.marks import Marks
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.send_window import BUNDLE, FULL, SendPort, SendWindow
from ringcast._core.sender import Sender
from ringcast._core.seqno_table import SeqnoTable
from ringcast._core.sockets import SockAddr
from ringcast._core.stamps import Stamps

HEADER = wire.make_header(1, 7, 5, 0)
OOB = 1


def run_together(*calls):
    """Call all at the same time, each in a thread of its own; return their results."""
    start = Barrier(len(calls))

    def begin(call, *arguments):
        start.wait()
        return call(*arguments)

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(begin, *call) for call in calls]]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="there is a GIL")
def test_all_modules_of_the_core_run_without_the_gil():
    for module in pkgutil.iter_modules(ringcast._core.__path__):
        import_module(f"ringcast._core.{module.name}")
    assert not sys._is_gil_enabled()


class Port(SendPort):
    def _after_push(self, todo, window, payload, dest, flags, timeout):
        assert todo != FULL


def test_each_message_to_a_member_goes_to_that_member():
    port, count, names = Port(), 20_000, ["a", "b", "c"]
    port._open_port(SendWindow(RingBuffer(8)))
    windows = {name: SendWindow(SeqnoTable(), bundle=60_000) for name in names}
    for name in names:
        port._remember_port(name, windows[name])

    def send(name):
        for _ in range(count):
            port.send(name.encode(), name)

    run_together(*((send, name) for name in names))
    for name in names:
        assert set(windows[name].ring.remove_many()) == {name.encode()}
        assert windows[name].ring.hr == count


@pytest.mark.parametrize("make_ring", [RingBuffer, lambda size: SeqnoTable(capacity=size)])
def test_messages_are_framed_with_their_own_flags_while_others_push(make_ring):
    count = 8_000
    window = SendWindow(make_ring(3 * count), bundle=2000)
    framed, firsts = [], []

    def push(flags):
        for _ in range(count):
            todo = window.push(b"oob" if flags else b"plain", flags)
            assert todo != FULL
            firsts.append(todo not in (0, BUNDLE))

    def frame():
        while sum(len(batch) for batch in framed) < 3 * count:
            for datagram in window.frame(HEADER):
                framed.extend(wire.read_data(datagram, 0, 1 << 30).batches)

    run_together((push, OOB), (push, OOB), (push, 0), (frame,))
    assert {(payload, batch.bits) for batch in framed for payload in batch.payloads} == {
        (b"oob", OOB), (b"plain", 0)}
    assert (window.waiting, window.sent) == (0, 3 * count)
    assert sum(firsts) >= 1


def test_messages_that_leave_their_list_meanwhile_are_sent_whole_or_not_at_all():
    window, payloads, sent = RingBuffer(1 << 10), [], set()

    def send():
        for _ in range(8_000):
            window.send_many(payloads)
            sent.update(window.remove_many())

    def change():
        for number in range(8_000):
            payloads.clear()
            payloads.extend([b"%d of the list" % number for _ in range(50)])

    run_together((send,), (change,))
    assert sent <= {b"%d of the list" % number for number in range(8_000)}


@pytest.mark.parametrize("make_ring", [RingBuffer, lambda size: SeqnoTable(capacity=size)])
def test_a_window_is_read_while_it_is_filled_emptied_and_freed(make_ring):
    window, count = make_ring(256), 30_000

    def send():
        sent = 0
        while sent < count:
            sent += window.send_many([b"%d" % (sent + k) for k in range(16)][:count - sent])

    def take():
        out = []
        while len(out) < count:
            out += window.remove_many(nullify=False)
            window.stable(window.hd)
        return out

    def look():
        while window.low < count:
            for seqno in range(window.low, window.low + 64):
                if (item := window.get(seqno)) is not None:
                    assert item == b"%d" % (seqno - 1)
            assert len(window) <= 256
            assert window.missing() == []
            wire.pack(window, Marks(), Stamps(), [(window.low + 1, window.hr)], 60_000, HEADER,
                      60_000)

    _, out, _ = run_together((send,), (take,), (look,))
    assert out == [b"%d" % number for number in range(count)]


def test_a_batch_that_threads_share_has_no_message_behind_the_last():
    for _ in range(300):
        batch = Batch("A", 1, [b"%d" % number for number in range(50)])
        messages = iter(batch)
        seen = run_together(*((list, messages) for _ in range(3)))
        assert {message.payload for part in seen for message in part} == set(batch.payloads)


def test_a_sender_counts_what_all_threads_send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setblocking(False)
        own.bind(("127.0.0.1", 0))
        sender, routes = Sender(own.fileno()), {1: SockAddr(*own.getsockname())}

        def send():
            for _ in range(50_000):
                sender.send_many([(2, b"nowhere")], routes)
            sender.send_many([(1, b"x")], routes)

        run_together((send,), (send,), (send,))
        assert (sender.calls, sender.unknown) == (150_003, 150_000)
        assert sender.datagrams + sender.dropped + sender.errors == 3


def test_the_slowest_member_is_told_while_members_come_and_go():
    table = AckTable(range(1_000_000, 1_000_200), 5)
    table.add("slow", 0)

    def change():
        for number in range(30_000):
            table.add(number, number + 1)
            if number >= 500:
                table.remove(number - 500)

    def look():
        for _ in range(3_000):
            assert table.slowest == "slow"

    run_together((change,), (look,), (look,))
