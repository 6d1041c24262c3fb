"""Sockets and their buffers: a member listens on the first free port of its range.

The sockets do not block. The sizes of their buffers are set before anybody connects,
because the window scale of a TCP connection depends on them and is agreed when the
connection is made.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from contextlib import suppress

from ringcast.transport.ipv4 import no_permission, no_such_interface, os_errors_as

BACKLOG = 128                           # connections that wait in the kernel to be accepted


def open_socket(buffers: Mapping[int, int]) -> socket.socket:
    """Make a TCP socket. `buffers` are sizes in bytes by socket option; 0 leaves the
    size to the kernel."""
    made = socket.socket(socket.AF_INET,
                         socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    for option, size in buffers.items():
        if size:
            made.setsockopt(socket.SOL_SOCKET, option, size)
    return made


def widen(connection: socket.socket, size: int) -> None:
    """Have the kernel take `size` bytes that are not read yet, or more, as it adapts
    the size. Left alone, it begins with 64 KB and adapts them to who reads quickly: a
    member on a busy machine, whose turns are far apart, would get so much in each and
    no more. (SO_RCVBUF would end the adapting, and is bounded by what the system
    permits.)"""
    with suppress(OSError):                             # if the connection has broken already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)      # grows the buffer
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def listen(interface: str, port: int, port_range: int, buffers: Mapping[int, int]) -> socket.socket:
    """Return a socket that listens on the first free one of `port_range` ports, from
    `port` on. Raise TransportError if the machine refuses."""
    last = port + port_range - 1
    sentences = {
        **no_permission(port), **no_such_interface(interface),
        errno.EADDRINUSE: f"other programs use all ports {port}..{last} of {interface}; "
                          "stop one, or choose another port or port_range"}
    with os_errors_as("TCP", sentences):
        for candidate in range(port, last + 1):
            listener = open_socket(buffers)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((interface, candidate))
                listener.listen(BACKLOG)
                return listener
            except OSError as error:
                listener.close()
                if error.errno != errno.EADDRINUSE or candidate == last:
                    raise
    raise AssertionError("a range has a last port")
