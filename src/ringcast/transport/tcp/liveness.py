"""A peer that vanished without a word is found by what the kernel knows about its
connection: acknowledgements of data, or of probes, that are overdue.

Its silence alone does not suffice: perhaps nobody has asked it. A member that is held
takes nothing for a while, but its kernel answers the probes of its window;
TCP_USER_TIMEOUT would break its link all the same, so it is not used. An idle one is
watched by keepalive.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from struct import Struct

from ringcast.transport.tcp.dialing import MILLISECOND

# Repeats, or probes of its window, that a peer left unanswered: it may be gone.
UNANSWERED = 3

# Retransmits and probes without an answer, last_ack_recv (ms).
_TCP_INFO = Struct("<2xBB52xI")


def set_up(connection: socket.socket, timeout: int) -> None:
    """Send small frames at once, and find out within `timeout` nanoseconds (whole
    seconds) that an idle peer is gone."""
    seconds = timeout // 1_000_000_000
    interval = max(1, seconds // 5)
    options = {socket.TCP_KEEPIDLE: seconds - UNANSWERED * interval,
               socket.TCP_KEEPINTVL: interval, socket.TCP_KEEPCNT: UNANSWERED}
    with suppress(OSError):                             # of a connection that has broken already
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, min(max(1, value), 32_767))


def time_left(connection: socket.socket, timeout: int) -> int | None:
    """Return for how many nanoseconds a peer that leaves something unanswered may still
    do so; 0 if it is gone, None if nothing says so."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    repeats, probes, silent_ms = _TCP_INFO.unpack_from(info)
    unanswered = max(repeats, probes)
    left = timeout - silent_ms * MILLISECOND
    if left <= 0:
        return 0 if unanswered >= UNANSWERED else None
    return left if unanswered else None
