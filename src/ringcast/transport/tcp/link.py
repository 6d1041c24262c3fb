"""A link: the TCP connection to one member, which carries frames in both directions.

A frame is a length (u32, little endian) and a datagram of that length. Bytes that the
kernel does not take at once wait in a queue, in order. A queue that grows beyond its
bound cuts the link; nothing else drops bytes of a link that is up.

A link may have a second connection, for control, which is a `Link` as well.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from struct import Struct

from ringcast._core.wire import HEADER_SIZE
from ringcast.config import MAX_DATAGRAM

READ = 256 << 10        # bytes taken from one link in one poll; 128 KiB .. 1 MiB were equally fast
SPARE_BUFFERS = 8       # kept while nobody reads into them
GATHER = 1024           # buffers of one sendmsg (IOV_MAX)
ARRIVES = select.EPOLLIN | select.EPOLLRDHUP            # what epoll always watches for
ENDED = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP       # what shows the peer's end

Piece = bytes | memoryview              # of what is sent

_HEAD = Struct("<I8xQ")                 # a frame's length, and the sender in its datagram's header
_LENGTH = Struct("<I")


class ReadBuffer:
    """Memory to read into. The views that are handed out of it are read-only and keep
    it alive."""

    __slots__ = ("readable", "writable")

    def __init__(self) -> None:
        self.writable = memoryview(bytearray(READ))
        self.readable = self.writable.toreadonly()


class Link:
    """The connection to the member `peer`, whose other end is `endpoint`. `epoll` tells
    the polling thread what the link waits for; more than `max_unsent` queued bytes cut
    the link. `dialed` is the address that this side dialed for it, if it did. `key` has
    signed the handshake, where keys are trusted.

    Threads: any thread may call `put`, `cut` and `unsent_bytes`; everything else is for
    the polling thread, or for the thread that closes the transport.
    """

    def __init__(self, connection: socket.socket, peer: int, endpoint: tuple[str, int],
                 epoll: select.epoll, max_unsent: int,
                 dialed: tuple[str, int] | None = None, key: bytes = b"") -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.peer = peer
        self.endpoint = endpoint
        self.dialed = dialed
        self.key = key
        self.is_up = True               # accepts frames to send; once False, it stays False
        self.is_slow = False            # it was cut because its queue was full
        self.lost_bytes = 0             # that were queued when it ended
        self.frames_sent = self.bytes_sent = 0
        self.has_received = False       # any bytes, ever
        self.is_drained = True          # the last read() has left nothing of what had arrived
        self.control: Link | None = None        # the connection for control, if it is there
        self._max_unsent = max_unsent
        self._epoll = epoll
        # Guards the queue, the sending side of the socket, and what epoll watches.
        self._lock = threading.Lock()
        self._queue: deque[Piece] = deque()
        self._unsent = 0                # bytes in the queue
        self._watched = ARRIVES         # as the socket was registered for the handshake
        self._buffer: ReadBuffer | None = None
        self._start = self._end = 0     # the part of the buffer that is not split into frames yet
        self._rest = b""                # the same bytes, while there is no buffer
        self._is_active = False         # read since the last release_buffer()

    def connections(self) -> tuple[Link, ...]:
        """Return this connection, and the one for control if it is there."""
        control = self.control
        return (self,) if control is None else (self, control)

    # -------------------------------------------------------------------------------------- sending

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes wait in the queue."""
        return self._unsent

    def put(self, buffers: Sequence[Piece], frames: int, size: int) -> bool:
        """Send the frames, and queue a copy of what the kernel does not take. Return
        False if the link is not up any more."""
        with self._lock:
            if not self.is_up:
                return False
            self.frames_sent += frames
            self.bytes_sent += size
            if self._queue:
                self._queue.extend(map(bytes, buffers))
                self._unsent += size
            else:
                self._send_now(buffers, size)
            if self._unsent > self._max_unsent:
                self.is_slow = True
                self._cut()
        return True

    def _send_now(self, buffers: Sequence[Piece], size: int) -> None:
        for start in range(0, len(buffers), GATHER):
            some = buffers[start:start + GATHER]
            sent = self._sendmsg(some)
            size -= sent
            if not self.is_up:
                return
            rest = _rest_after(some, sent)
            if rest:
                self._queue.extend(map(bytes, rest))
                self._queue.extend(map(bytes, buffers[start + GATHER:]))
                self._unsent = size
                self._watch()
                return

    def _sendmsg(self, buffers: Sequence[Piece]) -> int:
        """Return how many bytes the kernel took. An error ends the link, and epoll
        tells the polling thread."""
        try:
            return self.socket.sendmsg(buffers, (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:
            self._cut()
            return 0

    def flush(self) -> None:
        """Send some of the queue, because the kernel has room again: one gathering
        write. Epoll tells when there is room for another one."""
        with self._lock:
            if self.is_up and self._queue:
                self._flush_some()
                self._watch()

    def _flush_some(self) -> int:
        """Write the head of the queue; return how many bytes the kernel took."""
        some = list(islice(self._queue, GATHER))
        sent = self._sendmsg(some)
        if self.is_up and sent:
            rest = _rest_after(some, sent)
            for _ in some:
                self._queue.popleft()
            self._queue.extendleft(reversed(rest))
            self._unsent -= sent
        return sent

    def _cut(self) -> None:
        """Send nothing any more. What has arrived can still be read, and then the
        end."""
        self.is_up = False
        self._drop_queue()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _drop_queue(self) -> None:
        self._queue.clear()
        self.lost_bytes += self._unsent
        self._unsent = 0

    def cut(self) -> None:
        """End the link from this side."""
        with self._lock:
            if self.is_up:
                self._cut()

    def _watch(self) -> None:
        """Make epoll watch for what this link waits for."""
        wanted = ARRIVES | (select.EPOLLOUT if self._queue else 0)
        if wanted != self._watched:
            self._watched = wanted
            self._epoll.modify(self.fd, wanted)

    # ------------------------------------------------------------------------------------ receiving

    def read(self, frames: list[memoryview], spare: list[ReadBuffer]) -> bool | None:
        """Read what has arrived, at most one buffer full, and add the complete
        datagrams to `frames`. Return True, False at the end of the connection, or None
        if the bytes are no frame."""
        self._is_active = True
        buffer = self._make_room(spare)
        try:
            count = self.socket.recv_into(buffer.writable[self._end:])
        except BlockingIOError:
            self.is_drained = True
            return True
        except OSError:
            return False
        if not count:
            return False
        self.is_drained = count < len(buffer.writable) - self._end
        self._end += count
        self.has_received = True
        return self._split(buffer.readable, frames) or None

    def read_on(self, frames: list[memoryview], spare: list[ReadBuffer]) -> bool | None:
        """Do the same, into memory of its own: what was read before is not used yet."""
        if self._buffer is not None:
            self._rest = bytes(self._buffer.readable[self._start:self._end])
            self._buffer = None
        return self.read(frames, spare)

    def _make_room(self, spare: list[ReadBuffer]) -> ReadBuffer:
        """Return a buffer that begins with the incomplete frame, if there is one."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = spare.pop() if spare else ReadBuffer()
            self._end = len(self._rest)
            buffer.writable[:self._end] = self._rest
            self._rest = b""
        elif self._start:
            left = self._end - self._start
            buffer.writable[:left] = buffer.writable[self._start:self._end]
            self._end = left
        self._start = 0
        return buffer

    def _split(self, data: memoryview, frames: list[memoryview]) -> bool:
        """Add the complete datagrams in the buffer to `frames`. Return False if some
        bytes are no frame."""
        at, end = self._start, self._end
        while end - at >= _HEAD.size:
            length, sender = _HEAD.unpack_from(data, at)
            if sender != self.peer or not HEADER_SIZE <= length <= MAX_DATAGRAM:
                return False
            after = at + 4 + length
            if after > end:
                break
            frames.append(data[at + 4:after])
            at = after
        self._start = at
        return end - at < 4 or HEADER_SIZE <= _LENGTH.unpack_from(data, at)[0] <= MAX_DATAGRAM

    def release_buffer(self, spare: list[ReadBuffer]) -> bool:
        """Give the buffer back to `spare`, because the caller does not use its views
        any more. Return whether the link keeps it.

        A link keeps its buffer as long as more of an incomplete frame arrives with each
        poll. Otherwise it copies the part of the frame, and gives the buffer back.
        """
        if self._buffer is None:
            return False
        if self._start != self._end and self._is_active:
            self._is_active = False
            return True
        self._rest = bytes(self._buffer.readable[self._start:self._end])
        if len(spare) < SPARE_BUFFERS:
            spare.append(self._buffer)
        self._buffer = None
        return False

    # ------------------------------------------------------------------------------------------ end

    def close(self) -> None:
        """Close the socket. The queue is dropped, and counted in `lost_bytes`."""
        with self._lock:
            if self.is_up:
                self.is_up = False
                self._drop_queue()
            # Closing does not unregister the socket if a forked child has it, too. A
            # collector may have closed it before, with the channel that it took.
            with suppress(OSError):
                self._epoll.unregister(self.fd)
            self.socket.close()

    def finish(self) -> None:
        """Close so that as much as possible still arrives: offer the queue to the
        kernel, and read what is there, because the kernel would send RST if it were
        unread."""
        with self._lock:
            while self.is_up and self._queue and self._flush_some():
                pass
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_WR)
                scratch = bytearray(1 << 16)
                for _ in range(256):
                    if not self.socket.recv_into(scratch):
                        break
        self.close()


def _rest_after(buffers: Sequence[Piece], sent: int) -> list[Piece]:
    """Return the buffers without their first `sent` bytes."""
    for index, buffer in enumerate(buffers):
        size = len(buffer)
        if sent < size:
            return [memoryview(buffer)[sent:] if sent else buffer, *buffers[index + 1:]]
        sent -= size
    return []
