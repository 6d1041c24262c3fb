"""Stamps: when the messages of a window left their sender.

Each run of messages in a datagram carries this time (wire.pyx), a repeat carries the
same time again, and the application gets it with the message. Times are nanoseconds
since 1970 by the sender's clock. They are kept in a ring of numbers beside the window,
one for each seqno that the window spans; the ring grows when needed. So keeping a time
costs one store for each message, in whatever order messages arrive.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef enum:
    LEAST = 16                          # times in the first ring
    MOST = 1 << 26                      # the messages of the largest window


@cython.final
cdef class Stamps:
    """The send times of the messages of one window; 0 for those that were never filled.

    *Threads.* For one thread at a time: the one that takes a turn of the layer.
    """

    def __dealloc__(self):
        free(self.times)

    def __len__(self):
        """Count the times that there is room for."""
        return self.size

    def __sizeof__(self):
        return object.__sizeof__(self) + self.size * sizeof(int64_t)

    def fill(self, uint64_t low, uint64_t first, uint64_t count, int64_t time):
        """Note `time` for `count` messages from `first` on.

        The window needs nothing up to `low` any more. Raises ValueError for messages
        that no window could hold together.
        """
        self.c_fill(low, first, count, time)

    def take(self, uint64_t first, uint64_t count):
        """Return the times of `count` messages from `first` on, as 64-bit numbers in
        bytes."""
        cdef bytes taken = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (count * sizeof(int64_t)))
        cdef char *out = PyBytes_AS_STRING(taken)
        cdef uint64_t at, k, piece
        cdef int64_t time
        k = 0
        while k < count:
            if self.size == 0:
                time = 0
                memcpy(out + k * sizeof(int64_t), &time, sizeof(int64_t))
                k += 1
                continue
            at = (first + k) & (self.size - 1)
            piece = min(count - k, self.size - at)
            memcpy(out + k * sizeof(int64_t), self.times + at, piece * sizeof(int64_t))
            k += piece
        return taken

    cdef int c_fill(self, uint64_t low, uint64_t first, uint64_t count, int64_t time) except -1:
        cdef uint64_t span = first + count - 1 - low
        cdef uint64_t k
        if count == 0:
            return 0
        if <int64_t> (first - low) <= 0 or <int64_t> span <= 0 or span > MOST:
            raise ValueError(f"messages {first} to {first + count - 1} are not within {MOST} "
                             f"above {low}")
        if span > self.size:
            self.grow(low, span)
        for k in range(count):
            self.times[(first + k) & (self.size - 1)] = time
        return 0

    cdef int grow(self, uint64_t low, uint64_t span) except -1:
        """Make room for the times of low + 1 .. low + span; keep those that are
        there."""
        cdef uint64_t size = max(<uint64_t> LEAST, self.size)
        cdef int64_t *times
        cdef uint64_t k
        while size < span:
            size *= 2
        times = <int64_t *> calloc(size, sizeof(int64_t))
        if times == NULL:
            raise MemoryError(f"no memory for the send times of {size} messages")
        for k in range(1, self.size + 1):
            times[(low + k) & (size - 1)] = self.times[(low + k) & (self.size - 1)]
        free(self.times)
        self.times = times
        self.size = size
        return 0
