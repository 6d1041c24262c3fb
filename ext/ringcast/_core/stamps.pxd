"""Stamps for the modules that frame or read send times."""

cimport cython
from libc.stdint cimport int64_t, uint64_t


cdef class Stamps:
    cdef int64_t *times                 # that of seqno s is at s modulo size; NULL if size is 0
    cdef uint64_t size                  # a power of two, or 0

    cdef int c_fill(self, uint64_t low, uint64_t first, uint64_t count, int64_t time) except -1
    cdef int grow(self, uint64_t low, uint64_t span) except -1

    @cython.final
    cdef inline int64_t of(self, uint64_t seqno) noexcept nogil:
        """Return when the message was sent."""
        return self.times[seqno & (self.size - 1)] if self.size else 0
