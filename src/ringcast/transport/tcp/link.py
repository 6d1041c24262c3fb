"""One TCP connection that is the link to a member: frames out, frames in.

A frame is its length (u32, little endian) and a datagram. What the kernel does not take
at once waits in a queue, in order and to the byte; a queue that grows beyond its bound
cuts the link, which is the only way in which anything in it is lost.
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
from typing import TYPE_CHECKING

from ringcast._core.wire import HEADER_SIZE
from ringcast.config import MAX_DATAGRAM

if TYPE_CHECKING:
    from typing_extensions import Buffer

READ = 256 << 10        # bytes taken from one link in one poll; 128 KiB .. 1 MiB were equally fast
SPARE_BUFFERS = 8       # kept while nobody reads into them
GATHER = 1024           # buffers of one sendmsg (IOV_MAX)

_HEAD = Struct("<I8xQ")                 # a frame's length, and the sender in its datagram's header
_LENGTH = Struct("<I")


class ReadBuffer:
    """Memory to read into; what is handed out of it is read-only and keeps it alive."""

    __slots__ = ("readable", "writable")

    def __init__(self) -> None:
        self.writable = memoryview(bytearray(READ))
        self.readable = self.writable.toreadonly()


class Link:
    """Threads: `put`, `watch` and `unsent` are for any thread; all else is for the
    polling thread, or the last one at the end."""

    def __init__(self, connection: socket.socket, peer: int, endpoint: tuple[str, int],
                 epoll: select.epoll, max_unsent: int) -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.peer = peer
        self.endpoint = endpoint
        self.standing = True            # takes what is put; once it does not, it never does again
        self.held = False
        self.slow = False               # cut because its queue was full
        self.lost = 0                   # bytes that were queued when it ended
        self.frames_sent = self.bytes_sent = 0
        self.received = False           # something, ever
        self._max_unsent = max_unsent
        self._epoll = epoll
        self._lock = threading.Lock()  # of the queue, the sending side of the socket, and what is
                                       # watched for
        self._open = True
        self._queue: deque[Buffer] = deque()
        self._unsent = 0                # bytes in it
        self._watched = select.EPOLLIN  # as the socket was registered for the handshake
        self._registered = True
        self._buffer: ReadBuffer | None = None
        self._start = self._end = 0     # what of the buffer is not split into frames yet
        self._rest = b""                # the same, while there is no buffer
        self._active = False            # read from since the last settle()

    # -------------------------------------------------------------------------------------- sending

    @property
    def unsent(self) -> int:
        return self._unsent

    def put(self, buffers: Sequence[bytes], frames: int, size: int) -> bool:
        """Send the frames or queue what the kernel does not take; False when the link
        does not stand any more."""
        with self._lock:
            if not self.standing:
                return False
            self.frames_sent += frames
            self.bytes_sent += size
            if self._queue:
                self._queue.extend(buffers)
                self._unsent += size
            else:
                self._send_now(buffers, size)
            if self._unsent > self._max_unsent:
                self.slow = True
                self._cut()
        return True

    def _send_now(self, buffers: Sequence[bytes], size: int) -> None:
        for start in range(0, len(buffers), GATHER):
            some = buffers[start:start + GATHER]
            sent = self._sendmsg(some)
            size -= sent
            if not self.standing:
                return
            rest = _after(some, sent)
            if rest:
                self._queue.extend(rest)
                self._queue.extend(buffers[start + GATHER:])
                self._unsent = size
                self._watch()
                return

    def _sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """How much the kernel took; an error ends the link, and epoll tells the polling
        thread."""
        try:
            return self.socket.sendmsg(buffers, (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:
            self._cut()
            return 0

    def flush(self) -> None:
        """The kernel has room again. One gathering write; epoll tells whether there is
        room for another."""
        with self._lock:
            if self.standing and self._queue:
                self._flush_some()
                self._watch()

    def _flush_some(self) -> int:
        some = list(islice(self._queue, GATHER))
        sent = self._sendmsg(some)
        if self.standing and sent:
            rest = _after(some, sent)
            for _ in some:
                self._queue.popleft()
            self._queue.extendleft(reversed(rest))
            self._unsent -= sent
        return sent

    def _cut(self) -> None:
        """Nothing is sent any more. What has arrived can still be read, and then the
        end."""
        self.standing = False
        self._forget_queue()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _forget_queue(self) -> None:
        self._queue.clear()
        self.lost += self._unsent
        self._unsent = 0

    def cut(self) -> None:
        with self._lock:
            if self.standing:
                self._cut()

    # ------------------------------------------------------------------------------------- watching

    def hold(self, held: bool) -> None:
        """Do not look for what arrives, or do so again."""
        with self._lock:
            self.held = held
            if self._open:
                self._watch()

    def _watch(self) -> None:
        """See that epoll looks for what this link waits for. One that has ended but is
        held is not looked at: it would not rest."""
        if self.held and not self.standing:
            if self._registered:
                self._registered = False
                self._epoll.unregister(self.fd)
            return
        wanted = (0 if self.held else select.EPOLLIN) | (select.EPOLLOUT if self._queue else 0)
        if not self._registered:
            self._registered = True
            self._epoll.register(self.fd, wanted)
        elif wanted != self._watched:
            self._epoll.modify(self.fd, wanted)
        self._watched = wanted

    def park(self) -> None:
        """The link has ended while it is held: what has arrived is read when it is
        released."""
        with self._lock:
            if self.standing:
                self._cut()
            self._watch()

    # ------------------------------------------------------------------------------------ receiving

    def read(self, frames: list[memoryview], spare: list[ReadBuffer]) -> bool | None:
        """Take what has arrived, at most one buffer full, and add the whole frames;
        False at the end, None for what is no frame."""
        self._active = True
        buffer = self._make_room(spare)
        try:
            count = self.socket.recv_into(buffer.writable[self._end:])
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not count:
            return False
        self._end += count
        self.received = True
        return self._split(buffer.readable, frames) or None

    def _make_room(self, spare: list[ReadBuffer]) -> ReadBuffer:
        """A buffer that begins with the frame of which a part is there."""
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
        """Whether all was well."""
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

    def settle(self, spare: list[ReadBuffer]) -> bool:
        """What was handed out is not looked at any more; whether there is still a
        buffer here.

        Who waits for the rest of a frame keeps the buffer as long as it keeps coming,
        else only what it has of the frame.
        """
        if self._buffer is None:
            return False
        if self._start != self._end and self._active:
            self._active = False
            return True
        self._rest = bytes(self._buffer.readable[self._start:self._end])
        if len(spare) < SPARE_BUFFERS:
            spare.append(self._buffer)
        self._buffer = None
        return False

    # ------------------------------------------------------------------------------------------ end

    def close(self) -> None:
        """Give the socket back. What is queued is dropped, and counted in `lost`."""
        with self._lock:
            self._open = False
            if self.standing:
                self.standing = False
                self._forget_queue()
            if self._registered:    # closing does not suffice if a forked child has the socket too
                self._registered = False
                self._epoll.unregister(self.fd)
            self.socket.close()

    def finish(self) -> None:
        """Close so that as much as possible still arrives: offer the rest to the
        kernel, and read what would make it say RST."""
        with self._lock:
            while self.standing and self._queue and self._flush_some():
                pass
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_WR)
                scratch = bytearray(1 << 16)
                for _ in range(256):
                    if not self.socket.recv_into(scratch):
                        break
        self.close()


def _after(buffers: Sequence[Buffer], sent: int) -> list[Buffer]:
    """What is left of the buffers behind the first `sent` bytes."""
    for index, buffer in enumerate(buffers):
        size = len(buffer)              # type: ignore[arg-type]
        if sent < size:
            return [memoryview(buffer)[sent:] if sent else buffer, *buffers[index + 1:]]
        sent -= size
    return []
