"""Ports for groups of tests, apart from those of the run's other workers."""

import os
import random
import socket
from contextlib import ExitStack, suppress

FIRST, SHARE, SHARES = 15_000, 1_400, 12    # all below the ports that the kernel gives to clients
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def free_port(count=32):
    """Return the first of `count` ports in a row that no TCP or UDP socket has."""
    share = range(FIRST + WORKER % SHARES * SHARE, FIRST + (WORKER % SHARES + 1) * SHARE)
    while True:
        first = random.SystemRandom().choice(share[:-count])
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + count):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    probe = probes.enter_context(socket.socket(socket.AF_INET, kind))
                    probe.bind(("", port))
            return first
