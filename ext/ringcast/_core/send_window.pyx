"""The send window of a stream: take a seqno, store the message and hand it down, in one step (MCAST.txt, "Misc").

Application threads push; a seqno exists only once there was room for its message (decision 13), and messages leave in the order
of their seqnos whichever thread frames them, because framing walks the window from `sent` upwards (decision 14). The
text holds a lock around the three steps; here the first two are one step of the ring, and the third is taken by whoever calls
frame(), one thread at a time.
"""

import threading

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint64_t

from ringcast._core.marks cimport DONT_LOOPBACK, OOB, Marks
from ringcast._core.stamps cimport Stamps
from ringcast._core.window cimport Window
from ringcast._core.wire cimport HEADER, LARGEST, LENGTH, PREFIX, RUN, check_prefix, pack_next

cdef enum:
    OVERHEAD = PREFIX + RUN + LENGTH                        # of one message alone in a datagram

cdef double LONGEST = threading.TIMEOUT_MAX       # seconds

# What push() tells its caller to do.
NOTHING = 0         # somebody else already sees to it
FULL = 1            # the message was NOT taken: make room, then push again
BUNDLE = 2          # taken, and enough for full datagrams waits: frame them
FIRST = 3           # taken, and it is the first that waits: see that it gets framed soon
LARGE = 4           # the message was NOT taken: it does not fit one datagram, so push its fragments (frag.py)


@cython.final
cdef class SendWindow:
    """A window of what was sent and not yet acknowledged by all, and the line between framed and waiting messages.

    The window `ring` bounds it, in messages and in bytes (decision 7); what it holds counts as framed. `bundle` is the size of a
    datagram, in bytes, that frame() aims at; `batch` is how many bytes wait when push() says that it is time to frame: a turn
    costs, so several datagrams share one. `datagram` is the size of the largest there may be: a message that does not fit it
    is LARGE.

    Threads: push and push_many may be called by any number of threads; frame by one at a time, beside them. Each is one step
    under the interpreter's lock.
    """

    cdef readonly Window ring
    cdef readonly Marks marks               # flags of messages in the ring
    cdef readonly Stamps stamps             # send times of messages in the ring, up to `stamped`
    cdef uint64_t stamped
    cdef readonly uint64_t sent             # highest seqno that was framed; written by frame() only
    cdef readonly Py_ssize_t waiting        # bytes on the wire that the messages above `sent` will take
    cdef readonly Py_ssize_t bundle         # bytes of a datagram, header and all
    cdef readonly Py_ssize_t batch          # waiting bytes at which push says BUNDLE
    cdef readonly Py_ssize_t largest        # bytes of a message that still fits a datagram
    cdef Py_ssize_t full                    # waiting bytes that fill a datagram
    cdef bint closed

    def __init__(self, Window window not None, *, Py_ssize_t bundle=60_000, Py_ssize_t datagram=LARGEST):
        if not OVERHEAD < datagram <= LARGEST:
            raise ValueError(f"a datagram of {datagram} bytes cannot be; it has {OVERHEAD + 1} to {LARGEST}")
        self.ring = window
        self.largest = datagram - OVERHEAD
        self.marks = Marks()
        self.stamps = Stamps()
        self.sent = self.stamped = window.c_hr()
        self.waiting = 0
        self.closed = False
        self.aim(bundle)

    def aim(self, Py_ssize_t bundle, Py_ssize_t batch=0):
        """From now on frame datagrams of `bundle` bytes, and say BUNDLE when `batch` bytes wait, at least a full datagram."""
        self.bundle = bundle
        self.full = bundle - HEADER - RUN
        self.batch = max(self.full, batch)

    cpdef int push(self, payload, uint16_t flags=0) except -1:
        """Take a seqno for `payload` (bytes) and store it; returns what is left to do: NOTHING, FULL, BUNDLE, FIRST or LARGE.

        TypeError for anything but bytes, which leaves the window as it was. LARGE is the answer above `largest`. FULL
        also means closed: nothing was taken either.
        """
        cdef Py_ssize_t size
        cdef Py_ssize_t before = self.waiting
        if not PyBytes_CheckExact(payload):
            refuse(payload)
        size = PyBytes_GET_SIZE(payload)
        if size > self.largest:
            return LARGE
        if self.closed or not self.ring.c_send(payload):
            return FULL
        if flags:
            self.marks.flags[self.ring.c_hr()] = flags
        self.waiting = before + size + LENGTH
        if before == 0:
            return FIRST
        return BUNDLE if self.waiting >= self.batch else NOTHING

    def push_many(self, list payloads not None, Py_ssize_t start=0, uint16_t flags=0):
        """Push payloads[start:] until one is LARGE, one finds no room, or a batch of datagrams is full; how many were taken.

        All of them are checked first: a wrong one raises as in push, and none is taken.
        """
        cdef Py_ssize_t taken = 0
        cdef object payload
        cdef PyObject *item
        if start == 0:
            for payload in payloads:
                if not PyBytes_CheckExact(payload):
                    refuse(payload)
        while start + taken < len(payloads) and not self.closed:
            payload = payloads[start + taken]
            item = <PyObject *>payload
            if not PyBytes_CheckExact(payload) or PyBytes_GET_SIZE(payload) > self.largest:
                break
            if not self.ring.c_send_run(&item, 1):
                if taken == 0:                      # what was taken must be told, so an error waits for the next call
                    self.ring.c_refuse()
                break
            if flags:
                self.marks.flags[self.ring.c_hr()] = flags
            taken += 1
            self.waiting += PyBytes_GET_SIZE(payload) + LENGTH
            if self.waiting >= self.batch:
                break
        return taken

    def stamp(self, int64_t now):
        """Whatever has no send time yet is being sent `now`, in nanoseconds since 1970."""
        cdef uint64_t low = self.ring.c_low()
        cdef uint64_t last = self.ring.c_hr()
        cdef uint64_t before = max_seqno(self.stamped, low)
        if <int64_t> (last - before) > 0:
            self.stamps.c_fill(low, before + 1, last - before, now)
            self.stamped = last

    def frame(self, bytes prefix not None, bint full_only=False, uint64_t most=0, int64_t now=0):
        """Data datagrams with the waiting messages, oldest first; with `full_only` a last one that is not full stays.

        `prefix` is what stands in front of the runs, header first; `most` datagrams at most, unless it is 0. What
        has no send time yet gets `now` (see stamp).
        """
        cdef uint64_t seqno = self.next_to_frame()
        cdef uint64_t last = self.ring.c_hr()
        cdef uint64_t before
        cdef Py_ssize_t waited = 0
        cdef bytes datagram
        cdef list datagrams = []
        check_prefix(prefix)
        self.stamp(now)
        while <int64_t> (last - seqno) >= 0 and (not full_only or self.waiting >= self.full):
            before = seqno
            datagram = pack_next(self.ring, self.marks, self.stamps, &seqno, last, self.bundle, prefix, &waited)
            if seqno == before:                     # the ring was closed and emptied
                break
            datagrams.append(datagram)
            self.waiting -= waited
            self.sent = seqno - 1
            if <uint64_t> len(datagrams) == most:
                break
        if <int64_t> (last - seqno) < 0:
            self.sent = seqno - 1
            self.waiting = 0
        return datagrams

    def skip(self):
        """Nobody is to get what waits over the network: count it as sent."""
        self.sent = max_seqno(self.ring.c_hr(), self.ring.c_low())
        self.waiting = 0

    cdef uint64_t next_to_frame(self) noexcept:
        return max_seqno(self.sent, self.ring.c_low()) + 1

    def stable(self, uint64_t seqno):
        """Free messages up to `seqno`, as RingBuffer.stable, and forget their flags; never what is not framed yet: the stream of
        whoever joins now begins after `sent`."""
        freed = self.ring.c_stable(min_seqno(seqno, self.sent))
        if self.marks.flags:
            self.marks.forget(self.ring.c_low())
        return freed

    def acknowledged(self, uint64_t seqno):
        """Free messages up to `seqno` of a window whose messages nobody takes out here, and forget their flags; how many. Never
        what is not framed yet."""
        cdef uint64_t low = self.ring.c_low()
        cdef int64_t freed = <int64_t> (min_seqno(seqno, self.sent) - low)
        if freed <= 0:
            return 0
        self.ring.remove_many(freed)
        if self.marks.flags:
            self.marks.forget(self.ring.c_low())
        return freed

    def close(self):
        """Refuse every push from now on; what was taken stays, to be framed and acknowledged."""
        self.closed = True

    def reopen(self):
        """Take messages again."""
        self.closed = False


cdef class SendPort:
    """The part of a channel that runs for every message: push it, and call for more only when there is more to do.

    A subclass gives `_after_push(todo, window, payload, dest, flags, timeout)`, which does what push() left over, and
    `_send_otherwise(payload, dest, flags, timeout)` for whatever has no open window, and for every argument that is not
    plainly right.
    """

    cdef SendWindow everybody
    cdef dict ports                         # {Address, or name: SendWindow}
    cdef object last_dest                   # whoever was sent to last: to hash an Address takes as long as to push a message
    cdef SendWindow last_window

    def _open_port(self, SendWindow everybody not None):
        """Send to everybody through this window from now on."""
        self.everybody = everybody
        self.ports = {}
        self.last_dest = None

    def _remember_port(self, dest, SendWindow window not None):
        """Messages to `dest` go through this window from now on."""
        self.ports[dest] = window

    def _forget_port(self, dest):
        """Ask where to send to `dest` when there is something to send."""
        self.ports.pop(dest, None)
        self.last_dest = None

    def _forget_ports(self):
        """The same for all; returns the windows there were."""
        cdef list windows = list(self.ports.values())
        self.ports.clear()
        self.last_dest = None
        return windows

    def send(self, payload, dest=None, timeout=None, *, flags=0):
        """Send `payload` (bytes) to every member, this one included, or to the one member `dest` (its Address, or its name).

        Returns when the message has its place in the stream to everybody, or in the one to `dest`: each of them is delivered
        once and in order. Blocks while that stream's window is full, at most `timeout` seconds (None: for ever): then
        SendTimeoutError, and nothing was sent. `flags` are ringcast.Flag: OOB, DONT_LOOPBACK, NO_RELIABILITY.

        ClosedError after close; MessageTooLargeError above the option max_message_size (with NO_RELIABILITY: above what fits
        one datagram, which is ringcast.MAX_PAYLOAD on loopback); NotMemberError when `dest` is not in the view; TypeError for anything but bytes; ConfigError for
        flags that do not exist. What was sent to a member that leaves before it has acknowledged goes to `on_undelivered`.
        """
        cdef int todo
        cdef int overflow = 0
        cdef long bits = -1
        cdef SendWindow window
        if PyLong_Check(flags):
            bits = PyLong_AsLongAndOverflow(flags, &overflow)
        if dest is None:
            window = self.everybody
        elif dest is self.last_dest:
            window = self.last_window
        else:
            try:
                window = self.ports.get(dest)
            except TypeError:                       # not hashable, so no member: _send_otherwise says so
                window = None
            if window is not None:
                self.last_window = window
                self.last_dest = dest
        if window is None or bits & ~(OOB | DONT_LOOPBACK) or timeout is not None and not is_time(timeout):
            self._send_otherwise(payload, dest, flags, timeout)
            return
        todo = window.push(payload, <uint16_t> bits)
        if todo:
            self._after_push(todo, window, payload, dest, bits, timeout)


cdef uint64_t max_seqno(uint64_t a, uint64_t b) noexcept nogil:
    return a if <int64_t> (a - b) >= 0 else b


cdef uint64_t min_seqno(uint64_t a, uint64_t b) noexcept nogil:
    return b if <int64_t> (a - b) >= 0 else a


cdef bint is_time(timeout) except -1:
    """Say whether `timeout` is a number of seconds that a thread can wait."""
    return type(timeout) in (int, float) and 0 <= timeout <= LONGEST


cdef int refuse(payload) except -1:
    """Say what is wrong with a payload that cannot be sent."""
    raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
