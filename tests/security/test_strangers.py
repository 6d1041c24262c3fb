"""Strangers that connect over TCP by the thousand and say nothing. A member has few
descriptors and little memory for them, and the group goes on: who belongs to it joins,
sends and receives."""

import resource
import sys
from pathlib import Path

import pytest
from channels import DEFAULTS, QUICK, joined, side_by_side, use_stack
from processes import starting, wait_for

from ringcast import Channel
from ringcast.transport.tcp.handshaking import MOST_HANDSHAKES

IDLE = 1_000                    # connections to each member, all the time
MESSAGES = 300
STRANGERS = f"""
import resource, select, socket, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
ports, idle, said, poll = [int(word) for word in sys.argv[1:]], {{}}, False, select.epoll()
while True:
    for port in ports:
        while sum(each == port for _, each in idle.values()) < {IDLE}:
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            idle[one.fileno()] = one, port
            poll.register(one, select.EPOLLRDHUP)
    if not said:
        said = print("connected", flush=True) is None
    for fd, events in poll.poll(0.01):          # the other end has closed it: take another one
        poll.unregister(fd)
        idle.pop(fd)[0].close()
"""


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def resident():
    """Return how many bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("stack", ["mcast-tcp", "nakack2-tcp"])
def test_thousands_of_idle_connections_keep_nobody_out_and_cost_little(stack, monkeypatch):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 3 * IDLE:
        pytest.skip("a process may not have so many descriptors")
    use_stack(monkeypatch, stack)
    with joined("AB", secret=lambda: bytes(range(32))) as (a, b), starting() as start:
        ports = [each._transport.physical.rpartition(":")[2] for each in (a, b)]
        before, memory = descriptors(), resident()
        strangers = start([sys.executable, "-c", STRANGERS, *ports])
        assert strangers.stdout.readline() == "connected\n"
        wait_for(lambda: all(each.status().transport.handshakes_timed_out for each in (a, b)))
        with Channel(a.group, name="C", min_members=3, secret=lambda: bytes(range(32)),
                     **QUICK | DEFAULTS) as c:
            members = (a, b, c)

            def talk(member):
                for number in range(MESSAGES):
                    member.send(b"%d" % number)
                for _ in range(len(members) * MESSAGES):
                    member.receive(60)
            side_by_side([lambda each=each: talk(each) for each in members])
            assert strangers.poll() is None and len(a.view) == 3
            most = len(members) * (MOST_HANDSHAKES + 20)
            assert descriptors() - before < most < IDLE / 2
            assert resident() - memory < 64 << 20
