"""How a peer is noticed that vanished without closing its connection: the kernel knows
which acknowledgements, of data or of probes, are overdue.

Silence alone proves nothing: perhaps nobody has asked the peer. A member that reads
nothing for a while still has a kernel that answers window probes; TCP_USER_TIMEOUT
would break its link all the same, so it is not used. Keepalive watches idle peers.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from struct import Struct

from ringcast.transport.tcp.dialing import MILLISECOND

# Retransmissions, or window probes, that a peer has left unanswered when it counts as
# gone.
UNANSWERED = 3

# Retransmissions and probes without an answer; milliseconds since the last ack.
_TCP_INFO = Struct("<2xBB52xI")


def set_up(connection: socket.socket, timeout: int) -> None:
    """Make a connection send small frames at once, and notice within `timeout`
    nanoseconds (whole seconds) that an idle peer is gone."""
    seconds = timeout // 1_000_000_000
    interval = max(1, seconds // 5)
    options = {socket.TCP_KEEPIDLE: seconds - UNANSWERED * interval,
               socket.TCP_KEEPINTVL: interval, socket.TCP_KEEPCNT: UNANSWERED}
    with suppress(OSError):                             # if the connection has broken already
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, min(max(1, value), 32_767))


def time_left(connection: socket.socket, timeout: int) -> int | None:
    """Return for how many nanoseconds a peer that owes an answer may still delay it; 0
    if the peer is gone, None if it owes nothing."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    repeats, probes, silent_ms = _TCP_INFO.unpack_from(info)
    unanswered = max(repeats, probes)
    left = timeout - silent_ms * MILLISECOND
    if left <= 0:
        return 0 if unanswered >= UNANSWERED else None
    return left if unanswered else None
