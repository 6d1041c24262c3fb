"""60 KB datagrams between two processes over UDP on loopback: sendmmsg/recvmmsg against
Python's own sendto/recv.

Held still: the datagram (60,000 bytes), one sending and one receiving process, the
receive buffer, and a window of WINDOW datagrams on the way (the receiver tells how many
it has, so that nothing is lost and the slower side decides). Each round moves ROUND
datagrams. Nobody reads their bytes: what is timed is the way through the kernel and
back. Messages per second are datagrams per second times what a datagram carries (60 of
1,000 B, some 550 of 100 B).

Run: python -m pytest benchmarks/test_system_calls.py --benchmark-enable
"""

import multiprocessing
import socket

import pytest

from ringcast._core.receiver import Receiver
from ringcast._core.sender import Sender
from ringcast._core.sockets import SockAddr, size_receive_buffer

SIZE, ROUND, BATCH, WINDOW, CONFIRM = 60_000, 2_048, 16, 64, 32
LOOPBACK = "127.0.0.1"


def read_many(sock, slots):
    """Yield for every CONFIRM datagrams, for ever."""
    receiver, got = Receiver([sock.fileno()], slots=slots), 0
    while True:
        got += len(receiver.receive(None))
        while got >= CONFIRM:
            yield CONFIRM
            got -= CONFIRM


def read_one_by_one(sock, slots):
    buffer, got = bytearray(65536), 0
    while True:
        sock.recv_into(buffer)
        got += 1
        while got >= CONFIRM:
            yield CONFIRM
            got -= CONFIRM


def receive_and_confirm(reader, slots, pipe):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LOOPBACK, 0))
        size_receive_buffer(sock, 16 << 20)
        pipe.send(sock.getsockname())
        for got in reader(sock, slots):
            pipe.send_bytes(got.to_bytes(4, "big"))


def send_many(sock, address):
    sender, routes = Sender(sock.fileno()), {1: SockAddr(*address)}
    batch = [(1, bytes(SIZE))] * BATCH
    return lambda: sender.send_many(batch, routes)


def send_one_by_one(sock, address):
    payload = bytes(SIZE)

    def send():
        for _ in range(BATCH):
            sock.sendto(payload, address)

    return send


def pump(send, pipe):
    """Send ROUND datagrams, at most WINDOW beyond what the receiver confirmed."""
    sent = confirmed = 0
    while confirmed < ROUND:
        if sent < ROUND and sent - confirmed <= WINDOW - BATCH:
            send()
            sent += BATCH
        else:
            confirmed += int.from_bytes(pipe.recv_bytes(), "big")


WAYS = {
    "plain": (send_one_by_one, read_one_by_one, 1),
    "4_slots": (send_many, read_many, 4),
    "8_slots": (send_many, read_many, 8),
    "16_slots": (send_many, read_many, 16),
    "32_slots": (send_many, read_many, 32),
}


@pytest.mark.udp
@pytest.mark.parametrize("way", WAYS)
def test_datagrams_of_60_kb_between_two_processes(benchmark, way):
    writer, reader, slots = WAYS[way]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=receive_and_confirm, args=(reader, slots, theirs), daemon=True)
    process.start()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            send = writer(sock, ours.recv())
            benchmark.pedantic(pump, args=(send, ours), rounds=15, warmup_rounds=2)
    finally:
        process.kill()
        process.join()
    if benchmark.stats:                     # absent when benchmarks run as tests
        per_second = ROUND / benchmark.stats.stats.median
        benchmark.extra_info["datagrams_per_second"] = round(per_second)
        benchmark.extra_info["messages_per_second_1000_B"] = round(per_second * (SIZE // 1_000))
