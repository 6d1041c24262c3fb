"""The network of namespaces does what tests expect of it, and leaves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces import Network, refusal
from processes import children, is_running, wait_for

pytestmark = [pytest.mark.prove,
              pytest.mark.skipif(bool(refusal()), reason=f"no network of namespaces: {refusal()}")]
LISTEN = """
import socket
ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ear.bind(("0.0.0.0", 7700))
print("ready", flush=True)
while True:
    print(ear.recv(1500).decode(), flush=True)
"""
SAY = """
import socket, sys
mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for word in sys.argv[2:]:
    mouth.sendto(word.encode(), (sys.argv[1], 7700))
"""
HOLD = """
import time
from namespaces import Network
with Network("AB") as network:
    network.start("A", ["sleep", "infinity"])
    print("started", flush=True)
    time.sleep(1e6)
"""


def listen(network, name):
    ear = network.start(name, [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True)
    assert ear.stdout.readline() == "ready\n"
    return ear.stdout


def say(network, sender, receiver, *words):
    mouth = network.start(sender, [sys.executable, "-c", SAY, network.address(receiver), *words])
    assert mouth.wait() == 0


def test_what_is_cut_does_not_arrive_and_the_rest_does():
    with Network("ABC") as network:
        a, b = listen(network, "A"), listen(network, "B")
        network.cut("A", "B")
        say(network, "A", "B", "cut")
        say(network, "C", "B", "from C")
        say(network, "B", "A", "back")
        assert (a.readline(), b.readline()) == ("back\n", "from C\n")
        network.heal()
        say(network, "A", "B", "healed")
        assert b.readline() == "healed\n"
        network.part("AB", "C")
        say(network, "C", "B", "cut")
        say(network, "A", "B", "of the same side")
        assert b.readline() == "of the same side\n"


def test_about_the_share_of_frames_is_lost_that_was_asked_for():
    count = 250                         # of which the receiver's buffer holds all that come
    with Network("AB", loss=0.3) as network:
        b = listen(network, "B")
        say(network, "A", "B", *map(str, range(count)))
        network.loss = 0.0
        network.heal()
        say(network, "A", "B", "end")
        came = sum(1 for _ in iter(b.readline, "end\n"))
        assert 0.15 < 1 - came / count < 0.45


def is_stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_nothing_stays_when_the_process_of_a_test_is_killed():
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True,
                              cwd=Path(__file__).parent)

    def below():
        return [child for each in children(holder.pid) for child in children(each)]

    try:
        assert holder.stdout.readline() == "started\n"
        wait_for(lambda: len(below()) == 2)     # the first process of the box, and `sleep`
        processes = children(holder.pid) + below()
        os.kill(below()[1], signal.SIGSTOP)     # who waits for it stops as well
        wait_for(lambda: all(map(is_stopped, [below()[1], children(holder.pid)[1]])))
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    wait_for(lambda: not any(map(is_running, processes)))
    assert not Path("/run/netns/A").exists()
