"""Channels in processes of their own, over UDP multicast on loopback: what threads in one process cannot show."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap

import pytest

from ringcast import Channel, TransportError

pytestmark = pytest.mark.udp

MEMBER = textwrap.dedent("""
    import json, sys
    from random import Random
    from ringcast import Channel
    from ringcast.protocols.faults import Discard, Duplicate, Shuffle

    name, members, port, count, loss = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    expected = count * len(members)
    rng = Random(name)
    faults = [Discard(loss, rng), Duplicate(loss / 2, rng), Shuffle(loss / 2, rng)] if loss else []
    got = {}
    with Channel("test", name=name, members=members, port=port, max_bundle_size=512, faults=faults) as channel:
        print("ready", flush=True)
        sys.stdin.readline()
        import threading
        sender = threading.Thread(target=lambda: [channel.send(b"%s %d" % (name.encode(), k)) for k in range(count)])
        sender.start()
        for batch in channel.batches():
            got.setdefault(batch.sender.name, []).extend(batch.payloads)
            if sum(map(len, got.values())) >= expected:
                break
        sender.join()
        status = channel.status()
        print(json.dumps({"wrong": [sender for sender in members
                                    if got.get(sender) != [b"%s %d" % (sender.encode(), k) for k in range(count)]],
                          "repeated": status["xmit_rsps_sent"]}), flush=True)
        sys.stdin.readline()
""")


def free_port():
    return random.SystemRandom().randint(20_000, 60_000)


def start(name, members, port, count, loss=0.0):
    return subprocess.Popen([sys.executable, "-c", MEMBER, name, ",".join(members), str(port), str(count), str(loss)],
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
def test_nobody_stays_blocked_when_a_member_is_killed_and_taken_out():
    port = free_port()
    victim = start("B", "AB", port, 0)
    channel = Channel("test", name="A", members=["A", "B"], port=port, capacity=50, deliver=False)
    try:
        channel.connect()
        assert victim.stdout.readline() == "ready\n"
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        with pytest.raises(TimeoutError, match="slowest to acknowledge is B"):
            for _ in range(1000):
                channel.send(b"x", timeout=0.3)
        channel.exclude("B")
        channel.send_many([b"x"] * 1000, timeout=10)
        assert channel.close() == 0
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
        assert two.status()["num_hellos_received"] == 0


def test_an_interface_that_is_not_here_is_explained():
    with pytest.raises(TransportError, match="ip -4 address"):
        Channel("g", name="A", interface="192.0.2.1", insecure=True)
