"""The naive bundle, the alternative that anybody can write in an afternoon: plain
Python that joins messages into TCP writes of 64 KB. `ringcast perf` and benchmarks/
show it beside every claim: a group that is slower than this is of no use.

One sender, any number of receivers, a connection to each. It has no membership, no
retransmission of its own (TCP has one), and a slow receiver makes the others wait
without limit. Both ends do as little as Python can: no header for each message, the
lengths in one array, one slice for each message received.
"""

import socket
import struct
from array import array
from collections.abc import Iterator
from itertools import accumulate, pairwise

LIMIT = 64 * 1024                       # bytes of messages after which a bundle is sent
HEAD = struct.Struct("=II")             # messages in the bundle, bytes of them


def bundle(messages: list[bytes], nbytes: int) -> bytes:
    """Return the bytes of one write: the number of messages, their bytes, the length of
    each, and the messages."""
    lengths = array("I", map(len, messages))
    return b"".join([HEAD.pack(len(messages), nbytes), lengths.tobytes(), *messages])


def split(body: bytes, count: int) -> list[bytes]:
    """Return the `count` messages of a bundle; `body` is the bundle without its
    head."""
    start = array("I").itemsize * count
    ends = accumulate(array("I", body[:start]), initial=start)
    return [body[begin:end] for begin, end in pairwise(ends)]


class NaiveSender:
    """Sends to the receivers that listen on these ports of this machine. Raises OSError
    if one of them does not."""

    def __init__(self, ports: list[int]) -> None:
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        self.messages: list[bytes] = []
        self.nbytes = 0

    def send(self, payload: bytes) -> None:
        """Add one message. After every 64 KB send the bundle, and wait for the slowest
        receiver."""
        self.messages.append(payload)
        self.nbytes += len(payload)
        if self.nbytes >= LIMIT:
            self.flush()

    def flush(self) -> None:
        """Send a bundle of the messages that wait, if there are any."""
        if not self.messages:
            return
        data = bundle(self.messages, self.nbytes)
        for each in self.sockets:
            each.sendall(data)
        self.messages, self.nbytes = [], 0

    def close(self) -> None:
        for each in self.sockets:
            each.close()


class NaiveReceiver:
    """Listens on a free port, `port`, for one sender."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def bundles(self) -> Iterator[list[bytes]]:
        """Receive the messages of each bundle, until the sender closes the
        connection."""
        with self.listener, self.listener.accept()[0] as connection:
            while len(head := connection.recv(HEAD.size, socket.MSG_WAITALL)) == HEAD.size:
                count, nbytes = HEAD.unpack(head)
                size = array("I").itemsize * count + nbytes
                yield split(connection.recv(size, socket.MSG_WAITALL), count)
