"""MCAST's send window: take a seqno, store the message and hand it down, in one step (MCAST.txt, "Misc").

Application threads push; a seqno exists only once there was room for its message (decision 13), and messages leave in the order
of their seqnos whichever thread frames them, because framing walks the window from `sent` upwards (decision 14). The
text holds a lock around the three steps; here the first two are one step of the ring, and the third is taken by whoever calls
frame(), one thread at a time.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from ringcast._core.window cimport Window
from ringcast._core.wire cimport HEADER, LARGEST, LENGTH, RUN, pack_run

from ringcast.errors import MessageTooLargeError

cdef enum:
    LARGEST_PAYLOAD = LARGEST - HEADER - RUN - LENGTH       # wire.MAX_PAYLOAD

# What push() tells its caller to do.
NOTHING = 0         # somebody else already sees to it
FULL = 1            # the message was NOT taken: make room, then push again
BUNDLE = 2          # taken, and enough for full datagrams waits: frame them
FIRST = 3           # taken, and it is the first that waits: see that it gets framed soon


@cython.final
cdef class SendWindow:
    """A window of what was sent and not yet acknowledged by all, and the line between framed and waiting messages.

    The window `ring` bounds it, in messages and in bytes (decision 7); what it holds counts as framed. `bundle` is the size of a
    datagram, in bytes, that frame() aims at; `batch` is how many bytes wait when push() says that it is time to frame: a turn
    costs, so several datagrams share one.

    Threads: push and push_many may be called by any number of threads; frame by one at a time, beside them. Each is one step
    under the interpreter's lock.
    """

    cdef readonly Window ring
    cdef readonly uint64_t sent             # highest seqno that was framed; written by frame() only
    cdef readonly Py_ssize_t waiting        # bytes on the wire that the messages above `sent` will take
    cdef readonly Py_ssize_t bundle         # bytes of a datagram, header and all
    cdef readonly Py_ssize_t batch          # waiting bytes at which push says BUNDLE
    cdef Py_ssize_t full                    # waiting bytes that fill a datagram
    cdef bint closed

    def __init__(self, Window window not None, *, Py_ssize_t bundle=60_000):
        self.ring = window
        self.sent = window.c_hr()
        self.waiting = 0
        self.closed = False
        self.aim(bundle)

    def aim(self, Py_ssize_t bundle, Py_ssize_t batch=0):
        """From now on frame datagrams of `bundle` bytes, and say BUNDLE when `batch` bytes wait, at least a full datagram."""
        self.bundle = bundle
        self.full = bundle - HEADER - RUN
        self.batch = max(self.full, batch)

    cpdef int push(self, payload) except -1:
        """Take a seqno for `payload` (bytes) and store it; returns what is left to do: NOTHING, FULL, BUNDLE or FIRST.

        TypeError for anything but bytes, MessageTooLargeError above wire.MAX_PAYLOAD; both leave the window as it was. FULL
        also means closed: nothing was taken either.
        """
        cdef Py_ssize_t size
        cdef Py_ssize_t before = self.waiting
        if not PyBytes_CheckExact(payload):
            refuse(payload)
        size = PyBytes_GET_SIZE(payload)
        if size > LARGEST_PAYLOAD:
            refuse(payload)
        if self.closed or not self.ring.c_send(payload):
            return FULL
        self.waiting = before + size + LENGTH
        if before == 0:
            return FIRST
        return BUNDLE if self.waiting >= self.batch else NOTHING

    def push_many(self, list payloads not None, Py_ssize_t start=0):
        """Push payloads[start:] until one finds no room or a batch of datagrams is full; returns how many were taken.

        All of them are checked first: a wrong one raises as in push, and none is taken.
        """
        cdef Py_ssize_t taken = 0
        cdef object payload
        cdef PyObject *item
        if start == 0:
            for payload in payloads:
                if not PyBytes_CheckExact(payload) or PyBytes_GET_SIZE(payload) > LARGEST_PAYLOAD:
                    refuse(payload)
        while start + taken < len(payloads) and not self.closed:
            payload = payloads[start + taken]
            item = <PyObject *>payload
            if not PyBytes_CheckExact(payload):
                break
            if not self.ring.c_send_run(&item, 1):
                if taken == 0:                      # what was taken must be told, so an error waits for the next call
                    self.ring.c_refuse()
                break
            taken += 1
            self.waiting += PyBytes_GET_SIZE(payload) + LENGTH
            if self.waiting >= self.batch:
                break
        return taken

    def frame(self, bytes header not None, bint full_only=False):
        """Data datagrams with the waiting messages, oldest first; with `full_only` a last one that is not full stays."""
        cdef uint64_t seqno = max_seqno(self.sent, self.ring.c_low()) + 1
        cdef uint64_t last = self.ring.c_hr()
        cdef uint64_t before
        cdef bytes datagram
        cdef list datagrams = []
        if len(header) != HEADER:
            raise ValueError(f"a header has {HEADER} bytes, not {len(header)}; make it with wire.make_header()")
        while <int64_t> (last - seqno) >= 0 and (not full_only or self.waiting >= self.full):
            before = seqno
            datagram = pack_run(self.ring, &seqno, last, self.bundle, header)
            if seqno == before:                     # the ring was closed and emptied
                break
            datagrams.append(datagram)
            self.waiting -= len(datagram) - HEADER - RUN
            self.sent = seqno - 1
        if <int64_t> (last - seqno) < 0:
            self.sent = seqno - 1
            self.waiting = 0
        return datagrams

    def close(self):
        """Refuse every push from now on; what was taken stays, to be framed and acknowledged."""
        self.closed = True


cdef class SendPort:
    """The part of a channel that runs for every message: push it, and call for more only when there is more to do.

    A subclass gives `_after_push(todo, payload, timeout)`, which does what push() left over, and `_refuse_dest(dest)`.
    """

    cdef SendWindow window

    def _open_port(self, SendWindow window not None):
        """Send through `window` from now on."""
        self.window = window

    def send(self, payload, dest=None, timeout=None):
        """Send `payload` to every member, this one included; returns when it has its place in the stream.

        Blocks while the send window is full, at most `timeout` seconds (None: for ever): then SendTimeoutError, and nothing
        was sent. ClosedError after close; MessageTooLargeError above ringcast.MAX_PAYLOAD bytes; TypeError for anything but
        bytes. `dest` is for the unicast protocol, which this version does not have: ConfigError.
        """
        cdef int todo
        if dest is not None:
            self._refuse_dest(dest)
        todo = self.window.push(payload)
        if todo:
            self._after_push(todo, payload, timeout)


cdef uint64_t max_seqno(uint64_t a, uint64_t b) noexcept nogil:
    return a if <int64_t> (a - b) >= 0 else b


cdef int refuse(payload) except -1:
    """Say what is wrong with a payload that cannot be sent."""
    if not isinstance(payload, bytes) or not PyBytes_CheckExact(payload):
        raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
    raise MessageTooLargeError(f"a payload of {len(payload)} bytes does not fit one datagram; "
                               f"the largest is {LARGEST_PAYLOAD} bytes: split it before sending")
