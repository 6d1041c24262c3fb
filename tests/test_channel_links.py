"""Channels over TCP: connections that break, members that stand still, and NAKACK2
without retransmission in between."""

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from channels import PATIENCE, Collector, joined, new_group, side_by_side, use_stack
from ports import free_port
from processes import wait_for

from ringcast import Channel, ConfigError, SendTimeoutError
from ringcast.transport.tcp.handshaking import Handshaking

LIBC = ctypes.CDLL(None, use_errno=True)
TCP = ["nakack2-tcp", "mcast-tcp"]


@pytest.fixture(params=TCP)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


@pytest.fixture
def nakack(monkeypatch):
    use_stack(monkeypatch, "nakack2-tcp")


def connections(port):
    """Descriptors of this process's established connections with an end at the ports
    from `port` on."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as each:
                    ends = (each.getsockname(), each.getpeername())
                    if each.family == socket.AF_INET and any(port <= end[1] < port + 32
                                                             for end in ends):
                        found.append(int(name))
        except OSError:
            pass                                        # it is gone, it listens, or it is no socket
    return found


def cut(descriptor):
    """Break a connection as the network would: what is in its buffers at both ends is
    lost (connect to AF_UNSPEC)."""
    LIBC.connect(descriptor, bytes(16), 16)


def cut_one(channel, rng):
    """Break one of the connections that this process has at the group's ports; whether
    there was any."""
    found = connections(channel.config.port)
    if found:
        cut(rng.choice(found))
    return bool(found)


class InOrder:
    """An on_message that checks that sender's messages are 0, 1, 2, ... as 8 bytes, and
    can be waited for."""

    def __init__(self, expected):
        self.expected = expected
        self.next = {}
        self.fault = None
        self.done = threading.Event()

    def __call__(self, batch):
        first = self.next.get(batch.sender.name, 0)
        numbers = range(first, first + len(batch))
        expected = [number.to_bytes(8, "little") for number in numbers]
        if batch.payloads != expected and self.fault is None:
            self.fault = f"of {batch.sender} came {batch.first}.. instead of {first}"
            self.done.set()
        self.next[batch.sender.name] = first + len(batch)
        if sum(self.next.values()) >= self.expected:
            self.done.set()

    def wait(self, patience=PATIENCE):
        assert self.done.wait(patience) and self.fault is None, (self.fault, self.next)


def send_numbers(channel, count, step=500):
    for first in range(0, count, step):
        channel.send_many([number.to_bytes(8, "little")
                           for number in range(first, min(count, first + step))])


@pytest.mark.prove
def test_a_million_messages_through_a_thousand_cut_connections_without_retransmission(nakack):
    """The senders keep step with the cuts, so that every one hits a stream that
    flows."""
    rng = random.Random(5)
    collectors = {name: InOrder(1_000_000) for name in "AB"}
    with joined("AB", {name: {"on_message": collectors[name]} for name in "AB"},
                xmit_interval=0) as (a, b):
        lost = [0]

        def cutting():
            while (known := a.status().transport).links_lost < 1000:
                lost[0] = known.links_lost
                if known.links:
                    cut_one(a, rng)
            lost[0] = 1000

        def send():
            step, count = 250, 500_000
            for first in range(0, count, step):
                a.send_many([number.to_bytes(8, "little") for number in range(first, first + step)])
                b.send_many([number.to_bytes(8, "little") for number in range(first, first + step)])
                while lost[0] < 1000 * first // count:
                    time.sleep(0.001)

        side_by_side([cutting, send], patience=400)  # a connection that was of no use is dialed
                                                     # again ever more rarely
        for collector in collectors.values():
            collector.wait()
        statuses = [channel.status() for channel in (a, b)]
    assert all(collector.next == {"A": 500_000, "B": 500_000} for collector in collectors.values())
    assert statuses[0].transport.links_lost >= 1000
    assert all(status.multicast.xmit_reqs_sent == status.multicast.num_gaps == 0
               for status in statuses)
    assert sum(status.multicast.resyncs_sent for status in statuses) > 100


def send_while(channels, disturb):
    """Every channel sends 20,000 numbers; until all have, `disturb` is called again and
    again."""
    sent = threading.Event()

    def disturbing():
        while not sent.is_set():
            disturb()

    def send():
        side_by_side([lambda channel=channel: send_numbers(channel, 20_000, 50)
                      for channel in channels])
        sent.set()

    side_by_side([disturbing, send])


def test_everything_arrives_while_connections_break(stack):
    rng = random.Random(6)
    collectors = {name: InOrder(60_000) for name in "ABC"}
    with joined("ABC", {name: {"on_message": collectors[name]} for name in "ABC"},
                capacity=1000) as channels:
        def cutting():
            cut_one(channels[0], rng)
            time.sleep(0.01)

        send_while(channels, cutting)
        for collector in collectors.values():
            collector.wait()
    assert all(channel.close() == 0 for channel in channels)


def test_messages_to_one_arrive_while_connections_break(stack):
    rng = random.Random(7)
    collector = InOrder(10_000)
    with joined("AB", {"B": {"on_message": collector}}) as (a, b):
        for first in range(0, 10_000, 100):
            a.send_many([number.to_bytes(8, "little") for number in range(first, first + 100)],
                        dest="B")
            if first % 1000 == 0:
                cut_one(a, rng)
        collector.wait()


def test_a_member_whose_new_connection_comes_late_stays_in_the_view(stack, monkeypatch):
    """The first dials of both get lost on their way, as if the network dropped their
    SYNs: nobody says that a process is gone."""
    dial, lost = Handshaking.dial, []

    def dial_late(self, where, now, control_of=0):
        if lost.count(where) < 6:       # the next one comes 116 ms after the first, or later
            lost.append(where)
        else:
            dial(self, where, now, control_of)

    collector = Collector(2)
    with joined("AB", {"B": {"on_message": collector}}) as (a, b):
        before = a.view.id
        a.send(b"before")
        wait_for(lambda: collector.by_sender.get("A") == [b"before"])
        made = [each.status().transport.links_made for each in (a, b)]
        monkeypatch.setattr(Handshaking, "dial", dial_late)
        for each in connections(a.config.port):         # the one for control is not enough
            cut(each)
        wait_for(lambda: all(each.status().transport.links_made > former
                             for each, former in zip((a, b), made, strict=True)))
        a.send(b"after")
        assert collector.wait()["A"] == [b"before", b"after"]
        assert a.view.id == b.view.id == before


def test_decision_22_the_mode_changes_under_load_and_nothing_is_lost(nakack):
    rng = random.Random(8)
    collectors = {name: InOrder(60_000) for name in "ABC"}
    with joined("ABC", {name: {"on_message": collectors[name]} for name in "ABC"},
                become_server_queue_size=1) as channels:
        def switching():
            rng.choice(channels).xmit_interval = rng.choice([0, -1, 1.0, 3.0])
            if rng.random() < 0.3:
                cut_one(channels[0], rng)
            time.sleep(0.005)

        send_while(channels, switching)
        for collector in collectors.values():
            collector.wait()


def test_the_interval_can_be_read_and_is_refused_where_nothing_else_retransmits(monkeypatch):
    for stack in ("nakack2-tcp", "mcast-tcp"):
        use_stack(monkeypatch, stack)
        with joined("AB") as (a, _):
            assert a.xmit_interval == (0 if stack == "nakack2-tcp" else 3)
            a.xmit_interval = 7.5
            assert a.xmit_interval == 7.5
            if stack == "mcast-tcp":
                with pytest.raises(ConfigError, match="mcast-tcp needs it"):
                    a.xmit_interval = 0
                assert a.xmit_interval == 7.5
    with pytest.raises(ConfigError, match="nakack2-udp needs it"):
        Channel("g", name="A", stack="nakack2-udp", xmit_interval=0)


@pytest.mark.parametrize("use_ring_buffer", [True, False])
def test_a_slow_application_stops_its_sender_and_nothing_grows(nakack, use_ring_buffer):
    """Decision 20: what has no room stays in the network, and the sender waits for
    it."""
    with joined("AB", {"A": {"deliver": False}}, capacity=2000, max_bytes=200_000,
                max_undelivered=100,
                use_ring_buffer=use_ring_buffer) as (a, b):
        sent = 0
        with pytest.raises(SendTimeoutError, match="the slowest to acknowledge is B"):
            while True:
                a.send(sent.to_bytes(8, "little") + bytes(992), timeout=0.5)
                sent += 1
        assert sent < 2 * 200
        got = []
        reader = threading.Thread(target=lambda: [
            got.append(int.from_bytes(message.payload[:8], "little")) for message in b])
        reader.start()
        for number in range(sent, 3000):
            a.send(number.to_bytes(8, "little") + bytes(992))
        assert a.close() == 0
        b.close()
        reader.join()
    assert got == list(range(3000))


MEMBER = """
import sys, time
from ringcast import Channel
with Channel("{group}", name="C", min_members=3, stack="nakack2-tcp", port={port},
             **{options}) as channel:
    print("joined", flush=True)
    for message in channel:
        if message.payload == b"end":
            break
    print("done", channel.digest(), flush=True)
"""


@pytest.mark.kill
def test_a_member_that_is_stopped_and_continued_has_missed_nothing(nakack):
    port, group = free_port(), new_group()
    options = {"max_bytes": 1 << 20, "suspect_timeout": 1000 * PATIENCE}
    member = MEMBER.format(group=group, port=port, options=options)
    process = subprocess.Popen([sys.executable, "-c", member], stdout=subprocess.PIPE, text=True)
    collectors = {name: Collector(30_001) for name in "AB"}
    channels = [Channel(group, name=name, min_members=3, stack="nakack2-tcp", port=port,
                        on_message=collectors[name], **options)
                for name in "AB"]
    try:
        side_by_side([channel.connect for channel in channels])
        assert process.stdout.readline() == "joined\n"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(SendTimeoutError):
            for sent in range(30_000):                  # noqa: B007
                channels[0].send(b"%d" % sent + bytes(100), timeout=0.3)
        process.send_signal(signal.SIGCONT)
        for number in range(sent, 30_000):
            channels[0].send(b"%d" % number + bytes(100))
        channels[0].send(b"end")
        for collector in collectors.values():
            collector.wait()
        assert process.stdout.readline().startswith("done") and process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        side_by_side([channel.close for channel in channels])


@pytest.mark.kill
def test_a_member_that_dies_is_excluded_and_the_others_go_on(nakack):
    port, group, options = free_port(), new_group(), {"capacity": 500}
    member = MEMBER.format(group=group, port=port, options=options)
    process = subprocess.Popen([sys.executable, "-c", member], stdout=subprocess.PIPE, text=True)
    collectors = {name: Collector(2000) for name in "AB"}
    channels = [Channel(group, name=name, min_members=3, stack="nakack2-tcp", port=port,
                        on_message=collectors[name], **options)
                for name in "AB"]
    try:
        side_by_side([channel.connect for channel in channels])
        assert process.stdout.readline() == "joined\n"
        process.kill()
        process.wait()
        for number in range(2000):
            channels[1].send(b"%d" % number, timeout=PATIENCE)
        for collector in collectors.values():
            assert collector.wait()["B"] == [b"%d" % number for number in range(2000)]
    finally:
        process.kill()
        process.wait()
        side_by_side([channel.close for channel in channels])
