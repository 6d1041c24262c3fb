"""SendWindow: take a seqno, store the message and hand it down (MCAST.txt, "Misc").

Application threads push. A seqno exists only after there was room for its message
(decision 13). Messages leave in the order of their seqnos, whichever thread frames
them, because framing walks the window from `sent` upwards (decision 14). The text has a
lock around the three steps. Here push() does the first two in one step of the window,
and frame() does the third, for one thread at a time.
"""

import threading

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_WarnEx
from cpython.long cimport PyLong_AsLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memcpy

from ringcast._core.atomics cimport load_relaxed
from ringcast._core.marks cimport DONT_LOOPBACK, OOB, Marks
from ringcast._core.slots cimport bytes_size, is_plain_bytes, list_items
from ringcast._core.stamps cimport Stamps
from ringcast._core.window cimport Window, Words
from ringcast._core.wire cimport HEADER, LARGEST, LENGTH, PREFIX, RUN, check_prefix, pack_next

cdef object NO_FLAGS
from ringcast.flags import NO_FLAGS

cdef enum:
    OVERHEAD = PREFIX + RUN + LENGTH                        # of one message alone in a datagram
    SHARES = 4                                              # of a window, as in protocols/frag.py

cdef uint64_t UNBOUNDED = 1 << 62                           # bytes
cdef double LONGEST = threading.TIMEOUT_MAX       # seconds

# What push() tells its caller to do.
NOTHING = 0         # the message was taken, and others that wait will be framed with it
FULL = 1            # the message was NOT taken: make room, then push again
BUNDLE = 2          # taken, and full datagrams wait: frame them
FIRST = 3           # taken, and it is the first that waits: have it framed soon
LARGE = 4           # NOT taken, because it does not fit a datagram: push its fragments (frag.py)


@cython.final
cdef class SendWindow:
    """The messages that were sent and not yet acknowledged by all, framed or waiting.

    The window `ring` limits them, in messages and in bytes (decision 7). What it holds
    at first counts as framed. frame() aims at datagrams of `bundle` bytes. push() says
    that it is time to frame when `batch` bytes wait: a turn costs, so several datagrams
    share one. `datagram` is the size of the largest one in bytes: a message that does
    not fit it is LARGE.

    The fragments of a LARGE message go in together, if there are not too many of them
    (frag.goes_whole): so nothing stands between them. While such a message finds no
    room, all others leave a quarter of the window free, until it has gone in or is
    given up. Otherwise a thread that sends without a pause would keep it out for ever.
    Its bytes may be more than the window takes as a rule, which may be little
    (credits.py). Then frame() leaves as many of them waiting as are too many to be on
    their way at once, and `is_held` says so: frame them when more is acknowledged.

    *Threads.* Any number of threads may push. One at a time may frame, beside them.
    Each call is one step: under the GIL, or in a Python without it in a critical
    section of the window `ring`.
    """

    cdef readonly Window ring
    cdef readonly Marks marks               # flags of messages in the ring
    cdef readonly Stamps stamps             # send times of messages in the ring, up to `stamped`
    cdef uint64_t stamped
    cdef readonly uint64_t sent             # highest seqno that was framed
    cdef readonly Py_ssize_t waiting        # bytes that the messages above `sent` take on the wire
    cdef readonly Py_ssize_t bundle         # bytes of a datagram, with its header
    cdef readonly Py_ssize_t batch          # waiting bytes at which push() returns BUNDLE
    cdef readonly Py_ssize_t largest        # bytes of the largest message that fits a datagram
    cdef Py_ssize_t full                    # waiting bytes that fill a datagram
    cdef public Py_ssize_t credit           # bytes that may be on their way (credits.py)
    cdef public Py_ssize_t arrived          # bytes that have come to all and are not acknowledged
    cdef public uint64_t acked              # up to where all have acknowledged, freed or not
    cdef uint64_t counted, counted_low      # up to where, and from where on, ...
    cdef int64_t counted_bytes              # ... so many bytes were counted (kept)
    cdef readonly bint is_held              # messages wait until more is acknowledged
    cdef bint closed
    cdef bint spares                        # room for a large message that found none

    def __init__(self, Window window not None, *, Py_ssize_t bundle=60_000,
                 Py_ssize_t datagram=LARGEST):
        if not OVERHEAD < datagram <= LARGEST:
            raise ValueError(f"a datagram of {datagram} bytes cannot be; it has "
                             f"{OVERHEAD + 1} to {LARGEST}")
        self.ring = window
        self.largest = datagram - OVERHEAD
        self.marks = Marks(window)
        self.stamps = Stamps()
        self.sent = self.stamped = self.acked = window.c_hr()
        self.counted = self.counted_low = self.acked
        self.waiting = self.arrived = self.counted_bytes = 0
        self.credit = window.max_bytes
        self.closed = self.spares = self.is_held = False
        self.aim(bundle)

    def aim(self, Py_ssize_t bundle, Py_ssize_t batch=0):
        """Frame datagrams of `bundle` bytes from now on.

        push() returns BUNDLE when `batch` bytes wait, at least a full datagram.
        """
        self.bundle = bundle
        self.full = bundle - HEADER - RUN
        self.batch = max(self.full, batch)

    cpdef int push(self, payload, uint16_t flags=0) except -1:
        """Take a seqno for a payload and store it.

        Returns what is left to do: NOTHING, FULL, BUNDLE, FIRST or LARGE. LARGE is the
        answer above `largest`. FULL is also the answer after close(). Raises TypeError
        for anything but bytes, which leaves the window as it was.
        """
        cdef Py_ssize_t size
        if not PyBytes_CheckExact(payload):
            refuse(payload)
        size = PyBytes_GET_SIZE(payload)
        if size > self.largest:
            return LARGE
        with cython.critical_section(self.ring):
            return self.c_push(payload, size, flags)

    cdef inline int c_push(self, object payload, Py_ssize_t size, uint16_t flags) except -1:
        cdef Py_ssize_t before = self.waiting
        if self.closed:
            return FULL
        if self.spares and not self.has_room(1, size) or not self.ring.c_send(payload):
            return FULL
        if flags:
            self.marks.flags[self.ring.c_hr()] = flags
        self.waiting = before + size + LENGTH
        if before == 0:
            return FIRST
        return BUNDLE if self.waiting >= self.batch else NOTHING

    def push_many(self, list payloads not None, Py_ssize_t start=0, uint16_t flags=0):
        """Push payloads[start:] until a batch of datagrams waits. Returns how many it
        took.

        It ends earlier if a payload is LARGE or finds no room. With `start` 0 all
        payloads are checked first: a wrong one raises as in push(), and none is taken.
        """
        with cython.critical_section(self.ring, payloads):
            return self.c_push_many(payloads, start, flags)

    cdef uint64_t c_push_many(self, list payloads, Py_ssize_t start, uint16_t flags) except? 0:
        cdef PyObject **items = list_items(<PyObject *>payloads)
        cdef Py_ssize_t waiting = self.waiting, end = start, total = 0, size, k
        cdef uint64_t taken
        if start == 0:
            for k in range(len(payloads)):
                if not is_plain_bytes(items[k]):
                    refuse(<object>items[k])
        while end < len(payloads) and is_plain_bytes(items[end]):
            size = <Py_ssize_t>bytes_size(items[end])
            if size > self.largest:
                break
            total += size
            if self.spares and not self.has_room(end + 1 - start, total):
                break
            waiting += size + LENGTH
            end += 1
            if waiting >= self.batch:
                break
        if end <= start or self.closed:
            return 0
        taken = self.ring.c_send_run(items + start, end - start)
        if taken == 0:
            self.ring.c_refuse()
        for k in range(start + <Py_ssize_t>taken, end):         # found no room
            waiting -= <Py_ssize_t>bytes_size(items[k]) + LENGTH
        self.waiting = waiting
        self.mark(taken, flags)
        return taken

    cdef int mark(self, uint64_t count, uint16_t flags) except -1:
        """Note the flags of the last `count` messages, in their order, as Marks wants."""
        cdef uint64_t before = self.ring.c_hr() - count, k
        if flags:
            for k in range(count):
                self.marks.flags[before + 1 + k] = flags
        return 0

    def push_whole(self, list fragments not None, uint16_t flags=0):
        """Push the fragments of a large message, if all of them have room now: in
        messages; the bytes may be more than the window takes as a rule, if what is in
        it is not. Returns how many it took: all or none; a part only if there is no
        memory for more.

        They are bytes that nobody else has yet, and not too many (frag.goes_whole). The
        head of each is given the number of the message, which is the seqno of the first
        one (frag.HEAD).
        """
        with cython.critical_section(self.ring, fragments):
            return self.c_push_whole(fragments, flags)

    cdef uint64_t c_push_whole(self, list fragments, uint16_t flags) except? 0:
        cdef PyObject **items = list_items(<PyObject *>fragments)
        cdef Words at = self.ring.words()
        cdef uint64_t used = load_relaxed(at.hr) - load_relaxed(at.low)
        cdef uint64_t most = load_relaxed(at.max_bytes)
        cdef uint64_t count = <uint64_t>len(fragments), number = self.ring.c_hr() + 1, taken, k
        self.spares = used + count > load_relaxed(at.bound)
        if self.closed or self.spares or (most and load_relaxed(at.nbytes) > most):
            return 0
        for k in range(count):
            memcpy(PyBytes_AS_STRING(<object>items[k]), &number, sizeof(number))
        if most:
            at.max_bytes[0] = UNBOUNDED
        taken = self.ring.c_send_run(items, count)
        at.max_bytes[0] = most
        for k in range(taken):
            self.waiting += <Py_ssize_t>bytes_size(items[k]) + LENGTH
        self.mark(taken, flags)
        return taken

    def give_up_whole(self):
        """Give to others the room that is spared for a large message."""
        with cython.critical_section(self.ring):
            self.spares = False

    cpdef bint push_all(self, list payloads, uint16_t flags=0) except -1:
        """Push payloads, if all have room and will leave with others that wait already,
        so that nothing is left to do. Returns whether it did; if not, none is taken.
        """
        if payloads is None:
            refuse(payloads)
        with cython.critical_section(self.ring, payloads):
            return self.c_push_all(payloads, flags)

    cdef bint c_push_all(self, list payloads, uint16_t flags) except -1:
        cdef PyObject **items = list_items(<PyObject *>payloads)
        cdef uint64_t count = <uint64_t>len(payloads), total = 0, k
        if self.waiting == 0 or self.closed or count == 0:
            return False
        for k in range(count):
            if not is_plain_bytes(items[k]) or <Py_ssize_t>bytes_size(items[k]) > self.largest:
                return False
            total += bytes_size(items[k])
        if self.waiting + <Py_ssize_t>(total + count * LENGTH) >= self.batch:
            return False
        return self.has_room(count, total) and self.c_push_many(payloads, 0, flags) == count

    cdef bint has_room(self, uint64_t count, uint64_t total) noexcept:
        """Test if the window takes so many messages of `total` bytes. An empty one
        takes one message of any size."""
        cdef Words at = self.ring.words()
        cdef uint64_t most = load_relaxed(at.max_bytes), bound = load_relaxed(at.bound)
        cdef uint64_t used = load_relaxed(at.hr) - load_relaxed(at.low)
        if self.spares:
            bound -= bound // SHARES
        if used == 0 and count == 1:
            return bound > 0
        return used + count <= bound and (most == 0 or load_relaxed(at.nbytes) + total <= most)

    def stamp(self, int64_t now):
        """Set the send time of all messages that have none: `now`, nanoseconds since
        1970."""
        with cython.critical_section(self.ring):
            self.c_stamp(now)

    cdef int c_stamp(self, int64_t now) except -1:
        cdef uint64_t low = self.ring.c_low()
        cdef uint64_t last = self.ring.c_hr()
        cdef uint64_t before = max_seqno(self.stamped, low)
        if <int64_t> (last - before) > 0:
            self.stamps.c_fill(low, before + 1, last - before, now)
            self.stamped = last
        return 0

    def frame(self, bytes prefix not None, bint full_only=False, uint64_t most=0, int64_t now=0):
        """Write the waiting messages into data datagrams, oldest first; return these.
        What is too much to be on its way at once goes on waiting.

        With `full_only`, messages that do not fill a datagram go on waiting. `most`
        limits the number of datagrams; 0 is no limit. `prefix` is what stands before
        the runs, and begins with the header. Messages without a send time get `now`
        (see stamp).
        """
        check_prefix(prefix)
        with cython.critical_section(self.ring):
            return self.c_frame(prefix, full_only, most, now)

    cdef list c_frame(self, bytes prefix, bint full_only, uint64_t most, int64_t now):
        cdef uint64_t seqno = self.next_to_frame()
        cdef uint64_t last = self.ring.c_hr()
        cdef uint64_t before
        cdef Py_ssize_t waited = 0
        cdef bytes datagram
        cdef list datagrams = []
        cdef int64_t room = self.room()
        self.c_stamp(now)
        self.is_held = False
        while <int64_t> (last - seqno) >= 0 and (not full_only or self.waiting >= self.full):
            if not self.takes_more(room):
                self.is_held = True
                break
            before = seqno
            datagram = pack_next(self.ring, self.marks, self.stamps, &seqno, last, self.bundle,
                                 prefix, &waited)
            if seqno == before:         # the window was closed and emptied
                break
            datagrams.append(datagram)
            self.waiting -= waited
            room -= waited
            self.sent = seqno - 1
            if <uint64_t> len(datagrams) == most:
                break
        if <int64_t> (last - seqno) < 0:
            self.sent = seqno - 1
            self.waiting = 0
        return datagrams

    @property
    def can_go_on(self):
        """Whether some of what frame() held back is not too much any more."""
        with cython.critical_section(self.ring):
            return self.is_held and self.takes_more(self.room())

    cdef bint takes_more(self, int64_t room) noexcept:
        """Test if one more datagram is not too much. A single one never is."""
        return room >= self.full or room >= self.credit

    cdef int64_t room(self) noexcept:
        """Return how many bytes more may be on their way. What the window takes as a
        rule is never too much."""
        cdef Words at = self.ring.words()
        cdef uint64_t most = load_relaxed(at.max_bytes), held = load_relaxed(at.nbytes)
        cdef int64_t waiting
        if most == 0 or held <= most:
            return UNBOUNDED
        waiting = <int64_t>(load_relaxed(at.hr) - self.next_to_frame() + 1)
        return self.credit - (<int64_t>held - (self.waiting - waiting * LENGTH) - self.arrived
                              - self.c_kept())

    @property
    def kept(self):
        """Bytes of messages that all have acknowledged, and that are not freed."""
        with cython.critical_section(self.ring):
            return self.c_kept()

    cdef int64_t c_kept(self) noexcept:
        cdef uint64_t low = self.ring.c_low()
        cdef PyObject *payload
        if low != self.counted_low or <int64_t>(self.acked - self.counted) < 0:
            self.counted = self.counted_low = low
            self.counted_bytes = 0
        while <int64_t>(self.acked - self.counted) > 0:
            self.counted += 1
            payload = self.ring.peek(self.counted)
            if payload != NULL:
                self.counted_bytes += bytes_size(payload)
        return self.counted_bytes

    def skip(self):
        """Count what waits as sent: nobody needs it over the network."""
        with cython.critical_section(self.ring):
            self.sent = max_seqno(self.ring.c_hr(), self.ring.c_low())
            self.waiting = 0
            self.is_held = False

    cdef uint64_t next_to_frame(self) noexcept:
        return max_seqno(self.sent, self.ring.c_low()) + 1

    def stable(self, uint64_t seqno):
        """Free messages up to `seqno`, as Window.stable(), and forget their flags.

        Messages that are not framed yet stay, because the stream of a member that joins
        now begins after `sent`.
        """
        with cython.critical_section(self.ring):
            freed = self.ring.c_stable(min_seqno(seqno, self.sent))
            if self.marks.flags:
                self.marks.c_forget(self.ring.c_low())
            return freed

    def acknowledged(self, uint64_t seqno):
        """Take out and free messages up to `seqno`, and forget their flags.

        For a window whose messages this member does not deliver to itself. Messages
        that are not framed yet stay. Returns how many were freed.
        """
        cdef int64_t freed
        with cython.critical_section(self.ring):
            freed = <int64_t> (min_seqno(seqno, self.sent) - self.ring.c_low())
            if freed <= 0:
                return 0
            self.ring.take_many(<uint64_t>freed, True)
            if self.marks.flags:
                self.marks.c_forget(self.ring.c_low())
            return freed

    def close(self):
        """Refuse every push from now on.

        What was taken stays until it is acknowledged.
        """
        with cython.critical_section(self.ring):
            self.closed = True

    def reopen(self):
        """Take messages again after close()."""
        with cython.critical_section(self.ring):
            self.closed = False


cdef class SendPort:
    """The part of a channel that runs for each message: push it into its window.

    A subclass has `_after_push(todo, window, payload, dest, flags, timeout)`, which
    does what push() left to do, and `_send_otherwise(payload, dest, flags, timeout)`,
    which sends if there is no open window yet, and judges all unusual arguments.
    `_try_otherwise(payload, dest, flags)` does all of this for try_send().
    `_send_all_now` is for send_many().

    *Threads.* Any number of threads may send. `everybody` is set before there are any.
    The other attributes change together, in one step: under the GIL, or in a Python
    without it in a critical section of this object.
    """

    cdef SendWindow everybody
    cdef dict ports                         # {Address, or name: SendWindow}
    cdef object last_dest                   # of the last send: hashing an Address costs a push
    cdef SendWindow last_window

    def _open_port(self, SendWindow everybody not None):
        """Send messages to everybody through this window from now on."""
        self.everybody = everybody
        self.ports = {}
        self.last_dest = None

    @cython.critical_section
    def _remember_port(self, dest, SendWindow window not None):
        """Send messages to `dest` through this window from now on."""
        self.ports[dest] = window

    @cython.critical_section
    def _forget_port(self, dest):
        """Forget the window to `dest`: the next send asks for it again."""
        self.ports.pop(dest, None)
        self.last_dest = None

    @cython.critical_section
    def _forget_ports(self):
        """Forget the windows to all members, and return them."""
        cdef list windows = list(self.ports.values())
        self.ports.clear()
        self.last_dest = None
        return windows

    def send(self, payload, dest=None, timeout=None, *, flags=NO_FLAGS):
        """Send `payload` (bytes) to every member, or to the one member `dest`.

        `dest` is an Address or a name; None is every member, this one included. Returns
        when the message has its place in its stream: the one to everybody, or the one
        to `dest`. Each of them is delivered once and in order. Blocks while the window
        of that stream is full, at most `timeout` seconds (None: for ever); then it
        raises SendTimeoutError, and nothing was sent. `flags` are ringcast.Flag: OOB,
        DONT_LOOPBACK, NO_RELIABILITY.

        Raises ClosedError after close(); MessageTooLargeError above the option
        max_message_size (with NO_RELIABILITY: above what fits one datagram, which is
        ringcast.MAX_PAYLOAD on loopback); NotMemberError if `dest` is not in the view;
        NoQuorumError if the option partition is "primary" and this member is cut off
        from the majority; TypeError for anything but bytes; ConfigError for flags that
        do not exist.
        Messages to a member that leaves before it has acknowledged them go to
        `on_undelivered`.
        """
        cdef int todo
        cdef long bits = bits_of(flags)
        cdef SendWindow window = self.window_to(dest)
        if (window is None or bits & ~(OOB | DONT_LOOPBACK)
                or timeout is not None and not is_time(timeout)):
            self._send_otherwise(payload, dest, flags, timeout)
            return
        todo = window.push(payload, <uint16_t> bits)
        if todo:
            self._after_push(todo, window, payload, dest, bits, timeout)

    def try_send(self, payload, dest=None, *, flags=NO_FLAGS):
        """Send `payload` as send() does, if there is room for it now. Return whether it
        was sent; False: the window of its stream is full.

        It never waits for room, so it takes no message that travels in fragments:
        MessageTooLargeError above `max_payload`. The other errors are those of send().
        """
        return self.send_now(payload, dest, flags) or self._try_otherwise(payload, dest, flags)

    cdef bint send_now(self, payload, dest, flags) except -1:
        """Send `payload` if there is an open window with room for it, and nothing is
        unusual. Return whether it was sent."""
        cdef int todo
        cdef long bits = bits_of(flags)
        cdef SendWindow window = self.window_to(dest)
        if window is None or bits & ~(OOB | DONT_LOOPBACK):
            return False
        todo = window.push(payload, <uint16_t> bits)
        if todo == FULL or todo == LARGE:
            return False
        if todo:
            self._after_push(todo, window, payload, dest, bits, None)
        return True

    def _send_all_now(self, payloads, dest, timeout, flags):
        """Send a list of payloads if nothing is unusual, and nothing is left to do then
        (SendWindow.push_all). Return whether they were sent, all or none."""
        cdef long bits = bits_of(flags)
        cdef SendWindow window = self.window_to(dest)
        if (window is None or type(payloads) is not list or bits & ~(OOB | DONT_LOOPBACK)
                or timeout is not None and not is_time(timeout)):
            return False
        return window.push_all(payloads, <uint16_t> bits)

    cdef SendWindow window_to(self, dest):
        """Return the open window to `dest`; None if there is none, or no such
        member."""
        if dest is None:
            return self.everybody
        with cython.critical_section(self):
            return self.port_to(dest)

    cdef inline SendWindow port_to(self, dest):
        cdef SendWindow window
        if dest is self.last_dest:
            return self.last_window
        try:
            window = self.ports.get(dest)
        except TypeError:               # not hashable, so no member: _send_otherwise raises
            return None
        if window is not None:
            self.last_window = window
            self.last_dest = dest
        return window


cdef class AsyncSendPort:
    """The same part of a channel for asyncio. A subclass has the coroutine function
    `_send_otherwise(payload, dest, timeout, flags)`, which sends when send() cannot do
    it at once, and judges all unusual arguments."""

    cdef SendPort channel

    def _open_port(self, SendPort channel not None):
        """Send through this channel from now on."""
        self.channel = channel

    def send(self, payload, dest=None, timeout=None, *, flags=NO_FLAGS):
        """Send `payload`; see ringcast.Channel.send. It waits while the window is
        full."""
        cdef AsyncSend call = AsyncSend.__new__(AsyncSend)
        call.port = self
        call.payload = payload
        call.dest = dest
        call.timeout = timeout
        call.flags = flags
        return call


@cython.final
@cython.freelist(8)
cdef class AsyncSend:
    """One call of send(): a coroutine, which sends when it is awaited. Most calls need
    no more than the port, and a coroutine of Python would cost more than all of that;
    it is made only for those that wait, as `rest`."""

    cdef AsyncSendPort port                 # None once it is awaited
    cdef object payload, dest, timeout, flags
    cdef object rest

    def __await__(self):
        return self

    def __next__(self):
        if self.begin():
            raise StopIteration         # here it costs nothing
        return self.rest.send(None)

    def send(self, value):
        """Go on to the next wait, as a coroutine does."""
        if self.begin():
            raise StopIteration
        return self.rest.send(value)

    cdef bint begin(self) except -1:
        """Begin, if this has not begun. Return whether the message was sent at once;
        otherwise `rest` sends it."""
        cdef AsyncSendPort port = self.port
        if port is None:
            if self.rest is None:
                raise RuntimeError("cannot reuse already awaited coroutine")
            return False
        payload, self.payload = self.payload, None
        self.port = None
        if (self.timeout is None or is_time(self.timeout)) and (
                port.channel.send_now(payload, self.dest, self.flags)):
            return True
        self.rest = port._send_otherwise(payload, self.dest, self.timeout, self.flags)
        return False

    def throw(self, *error):
        """Raise an exception where this waits, as a coroutine does."""
        if self.rest is not None:
            return self.rest.throw(*error)
        self.port = None
        raise error[0]

    def close(self):
        """End this where it waits, as a coroutine does."""
        self.port = None
        if self.rest is not None:
            self.rest.close()

    def __dealloc__(self):
        if self.port is not None:
            PyErr_WarnEx(RuntimeWarning, b"coroutine 'Channel.send' was never awaited", 1)

    @property
    def __name__(self):
        return "send"

    @property
    def __qualname__(self):
        return "Channel.send"


cdef inline long bits_of(flags) except? -1:
    """Return flags as bits, or -1, which no message can have."""
    cdef int overflow = 0
    return PyLong_AsLongAndOverflow(flags, &overflow) if PyLong_Check(flags) else -1


cdef uint64_t max_seqno(uint64_t a, uint64_t b) noexcept nogil:
    return a if <int64_t> (a - b) >= 0 else b


cdef uint64_t min_seqno(uint64_t a, uint64_t b) noexcept nogil:
    return b if <int64_t> (a - b) >= 0 else a


cdef bint is_time(timeout) except -1:
    """Test if `timeout` is a number of seconds that a thread can wait."""
    return type(timeout) in (int, float) and 0 <= timeout <= LONGEST


cdef int refuse(payload) except -1:
    """Raise: the payload cannot be sent."""
    raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
