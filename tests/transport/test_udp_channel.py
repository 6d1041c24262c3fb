"""Channels in processes of their own, over UDP multicast on loopback: what threads in
one process cannot show."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from channels import joined
from ports import free_port

from ringcast import Channel, Flag, MessageTooLargeError, TransportError

pytestmark = pytest.mark.udp

MEMBER = textwrap.dedent("""
    import json, sys
    from random import Random
    from ringcast import Channel
    from ringcast.protocols.faults import Discard, Duplicate, Shuffle

    name, members = sys.argv[1], sys.argv[2].split(",")
    port, count, loss = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    expected = count * len(members)
    rng = Random(name)
    faults = [Discard(loss, rng), Duplicate(loss / 2, rng), Shuffle(loss / 2, rng)] if loss else []
    got = {}
    with Channel("test", name=name, min_members=len(members), port=port, max_bundle_size=512,
                 capacity=int(sys.argv[6]), faults=faults) as channel:
        print("ready", flush=True)
        sys.stdin.readline()
        import threading
        said_by = lambda name: [b"%s %d" % (name.encode(), number) for number in range(count)]
        sender = threading.Thread(target=lambda: [channel.send(each) for each in said_by(name)])
        sender.start()
        for batch in channel.batches():
            got.setdefault(batch.sender.name, []).extend(batch.payloads)
            if sum(map(len, got.values())) >= expected:
                break
        sender.join()
        status = channel.status()
        wrong = [member for member in members if got.get(member) != said_by(member)]
        print(json.dumps({"wrong": wrong,
                          "repeated": status.multicast.xmit_rsps_sent}), flush=True)
        sys.stdin.readline()
""")


def start(name, members, port, count, loss=0.0, capacity=1000):
    return subprocess.Popen([sys.executable, "-c", MEMBER, name, ",".join(members), str(port),
                             str(count), str(loss), str(capacity)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def tell(process):
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_processes_get_everything_once_and_in_order(loss):
    port = free_port()
    members = [start(name, "ABC", port, 3000, loss) for name in "ABC"]
    try:
        for step in ("ready", "result"):
            lines = [member.stdout.readline() for member in members]
            for member in members:
                tell(member)
            if step == "result":
                results = [json.loads(line) for line in lines]
        assert [result["wrong"] for result in results] == [[], [], []]
        assert (sum(result["repeated"] for result in results) > 0) or not loss
        assert [member.wait(30) for member in members] == [0, 0, 0]
    finally:
        for member in members:
            member.kill()
            member.communicate()


@pytest.mark.kill
def test_nobody_stays_blocked_when_a_member_is_killed():
    port = free_port()
    victim = start("B", "AB", port, 0, capacity=50)
    channel = Channel("test", name="A", min_members=2, port=port, capacity=50, deliver=False)
    try:
        channel.connect()
        assert victim.stdout.readline() == "ready\n"
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        channel.send_many([b"x"] * 1000, timeout=10)
        assert channel.close() == 0 and channel.view.names == ("A",)
    finally:
        channel.close(0)
        victim.kill()
        victim.communicate()


def test_two_groups_on_one_port_do_not_mix():
    port = free_port()
    with Channel("one", name="A", port=port) as one, Channel("two", name="A", port=port) as two:
        one.send(b"for one")
        two.send(b"for two")
        assert next(one.batches()).payloads == [b"for one"]
        assert next(two.batches()).payloads == [b"for two"]
        assert one.view.names == two.view.names == ("A",)


def test_what_fits_no_datagram_is_cut_or_refused():
    """As on a wire, whose frames are small."""
    with Channel("g", name="A", port=free_port(), max_datagram=1472) as channel:
        most = channel.max_payload
        assert (channel.config.max_bundle_size, most) == (1472, 1472 - 66)
        payloads = [bytes(most), b"x" * (most + 1), bytes(1_000_000), b"last"]
        channel.send_many(payloads)
        channel.send(b"y" * (most + 1))
        messages = iter(channel)
        got = [next(messages) for _ in range(5)]
        assert [message.payload for message in got] == [*payloads, b"y" * (most + 1)]
        size = channel.fragment_size
        seqnos = [1, 2, -(-1_000_000 // size), 1, 2]
        assert [message.seqno for message in got] == [sum(seqnos[:end]) for end in range(1, 6)]
        channel.send(bytes(most), flags=Flag.NO_RELIABILITY)
        assert len(next(messages).payload) == most
        with pytest.raises(MessageTooLargeError, match=f"the largest has {most}"):
            channel.send(bytes(most + 1), flags=Flag.NO_RELIABILITY)


def test_members_with_datagrams_of_different_sizes_understand_each_other():
    options = {"A": {"max_datagram": 700}, "B": {"max_datagram": 9000}}
    with joined("AB", options, stack="mcast-udp", port=free_port()) as (a, b):
        for sender in (a, b):
            sender.send(bytes(100_000), timeout=30)
            sender.send(bytes(100_000), "B" if sender is a else "A", timeout=30)
        for receiver in (a, b):
            messages = iter(receiver)
            assert [len(next(messages).payload) for _ in range(3)] == [100_000] * 3


def test_an_interface_that_is_not_here_is_explained():
    with pytest.raises(TransportError, match="ip -4 address"):
        Channel("g", name="A", interface="192.0.2.1", insecure=True)
