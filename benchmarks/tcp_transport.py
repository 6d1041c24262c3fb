"""What TcpTransport itself costs: one sender and two receivers, each a process, and
round trips between two.

    python benchmarks/tcp_transport.py [seconds]

No layer is on top of the transport. The same is measured with bare sockets, in the same
run.
"""

import multiprocessing
import socket
import statistics
import sys
import time

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.transport.tcp.transport import TcpTransport

GROUP = 7
FRAME = 60_000
OWED = 8 << 20              # bytes that the sender lets wait, as the send windows of the layers do


def datagram(member, size):
    return wire.make_datagram(1, GROUP, member, EVERYONE, bytes(size - wire.HEADER_SIZE))


def opened(member, port, **options):
    return TcpTransport(group=GROUP, member=member, port=port, port_range=4, **options)


def receive(port, member, seconds, results):
    with_all, end, taken, frames = opened(member, port), None, 0, 0
    while end is None or time.monotonic() < end:
        for view in with_all.poll(100_000_000):
            if end is None:
                began = time.monotonic()
                end = began + seconds
            taken += len(view)
            frames += 1
    results.put((frames / (time.monotonic() - began), taken / (time.monotonic() - began)))
    with_all.close()


def throughput(port, seconds):
    results = multiprocessing.Queue()
    receivers = [multiprocessing.Process(target=receive, args=(port, member, seconds, results))
                 for member in (2, 3)]
    for each in receivers:
        each.start()
    sender, batch = opened(1, port), [(EVERYONE, datagram(1, FRAME))] * 16
    while sender.status().transport.links < 2:
        sender.poll(10_000_000)
    while any(each.is_alive() for each in receivers):
        if sum(link.unsent for link in sender._links.values()) < OWED:
            sender.put(batch)
            sender.poll(0)
        else:
            sender.poll(1_000_000)
    sender.close()
    for each in receivers:
        frames, taken = results.get()
        print(f"  receiver: {frames:8,.0f} frames/s  {taken / 1e9:5.2f} GB/s")
        each.join()


def echo(port, busy_poll):
    transport, answer = opened(2, port, busy_poll=busy_poll), [(1, datagram(2, 100))]
    parent = multiprocessing.parent_process()
    while parent.is_alive():
        for _ in transport.poll(100_000_000, True):
            transport.put(answer)


def round_trips(port, busy_poll, count=5000):
    peer = multiprocessing.Process(target=echo, args=(port, busy_poll), daemon=True)
    peer.start()
    transport, question, times = opened(1, port, busy_poll=busy_poll), [(2, datagram(1, 100))], []
    while not transport.links():
        transport.poll(10_000_000)
    for _ in range(count):
        began = time.perf_counter_ns()
        transport.put(question)
        while not transport.poll(None, True):
            pass
        times.append(time.perf_counter_ns() - began)
    peer.terminate()
    peer.join()
    transport.close()
    print(f"  busy_poll {busy_poll // 1000} us: p50 {statistics.median(times) / 1000:.1f} us")


def bare_echo(listener):
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while part := connection.recv(100):
        connection.sendall(part)


def bare_round_trips(count=5000):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = multiprocessing.Process(target=bare_echo, args=(listener,), daemon=True)
        peer.start()
        times = []
        with socket.create_connection(listener.getsockname()) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(count):
                began = time.perf_counter_ns()
                connection.sendall(bytes(100))
                connection.recv(100)
                times.append(time.perf_counter_ns() - began)
        peer.join()
    print(f"  bare sockets: p50 {statistics.median(times) / 1000:.1f} us")


def bare_receive(listener, seconds, results):
    connection, _ = listener.accept()
    room, taken, began = bytearray(256 << 10), 0, time.monotonic()
    while time.monotonic() - began < seconds:
        taken += connection.recv_into(room)
    results.put(taken / (time.monotonic() - began))


def bare_throughput(seconds):
    results, batch = multiprocessing.Queue(), [datagram(1, FRAME)] * 16
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receivers = [multiprocessing.Process(target=bare_receive, args=(listener, seconds, results))
                     for _ in (2, 3)]
        for each in receivers:
            each.start()
        connections = [socket.create_connection(listener.getsockname()) for _ in receivers]
    try:
        while True:
            for each in connections:
                each.sendmsg(batch)
    except OSError:
        pass
    for each in receivers:
        print(f"  bare sockets, receiver: {results.get() / 1e9:5.2f} GB/s")
        each.join()


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    print(f"{FRAME} B to two receivers:")
    throughput(28_700, seconds)
    bare_throughput(seconds)
    print("100 B there and back:")
    round_trips(28_710, 0)
    round_trips(28_720, 100_000)
    bare_round_trips()
