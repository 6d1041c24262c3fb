"""What one writes in an afternoon instead: plain Python that joins messages into TCP
writes of 64 KB. `ringcast perf` and benchmarks/ show it beside every claim, because a
group that is slower than this has no case.

One sender, any number of receivers, a connection to each. No membership, no repeats
(TCP has its own), no limit on what a slow receiver costs the others. Both ends do as
little as Python can: no header per message, lengths in one array, one slice for each
message that comes out.
"""

import socket
import struct
from array import array
from collections.abc import Iterator
from itertools import accumulate, pairwise

LIMIT = 64 * 1024                       # bytes of messages after which a bundle is sent
HEAD = struct.Struct("=II")             # messages in the bundle, bytes of them


def bundle(messages: list[bytes], nbytes: int) -> bytes:
    """One write: how many, how many bytes, the length of each, and the messages
    themselves."""
    lengths = array("I", map(len, messages))
    return b"".join([HEAD.pack(len(messages), nbytes), lengths.tobytes(), *messages])


def split(body: bytes, count: int) -> list[bytes]:
    """The `count` messages of a bundle, given what follows its head."""
    start = array("I").itemsize * count
    ends = accumulate(array("I", body[:start]), initial=start)
    return [body[begin:end] for begin, end in pairwise(ends)]


class NaiveSender:
    """Sends to the receivers that listen on the given ports of this machine. OSError
    when one of them is not there."""

    def __init__(self, ports: list[int]) -> None:
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        self.messages: list[bytes] = []
        self.nbytes = 0

    def send(self, payload: bytes) -> None:
        """Add one message; every 64 KB the bundle goes out, which waits for the slowest
        receiver."""
        self.messages.append(payload)
        self.nbytes += len(payload)
        if self.nbytes >= LIMIT:
            self.flush()

    def flush(self) -> None:
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
        """The messages of each bundle as it comes, until the sender hangs up."""
        with self.listener, self.listener.accept()[0] as connection:
            while len(head := connection.recv(HEAD.size, socket.MSG_WAITALL)) == HEAD.size:
                count, nbytes = HEAD.unpack(head)
                yield split(connection.recv(array("I").itemsize * count + nbytes, socket.MSG_WAITALL), count)
