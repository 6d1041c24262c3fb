"""Ports for groups of tests, apart from those of the run's other workers."""

import os
import random
import re
import socket
from contextlib import ExitStack, suppress

FIRST, SHARE, SHARES = 15_000, 1_400, 12    # all below the ports that the kernel gives to clients
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def free_port(count=32):
    """Return the first of `count` ports in a row that no TCP or UDP socket has. Those
    of connections that are over, which the system keeps for a minute, are free."""
    share = range(FIRST + WORKER % SHARES * SHARE, FIRST + (WORKER % SHARES + 1) * SHARE)
    while True:
        first = random.SystemRandom().choice(share[:-count])
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + count):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    probe = probes.enter_context(socket.socket(socket.AF_INET, kind))
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR,
                                     kind == socket.SOCK_STREAM)
                    probe.bind(("", port))
            return first


def moved(program, first):
    """Return a program of a document with its groups on ports from `first` on: those
    that it names, 77.., and the default. Otherwise two runs of its test on one machine
    would be in the same groups."""
    program = re.sub(r"\b77(\d\d)\b", lambda port: str(first + int(port[1])), program)
    return ("from ringcast.stacks import STACKS\n"
            f"[each.defaults.update(port={first}) for each in STACKS.values()]\n{program}")
