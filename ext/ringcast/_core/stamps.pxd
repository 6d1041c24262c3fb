"""Send times of messages, for the modules that frame or read them."""

from libc.stdint cimport int64_t, uint64_t


cdef class Stamps:
    cdef int64_t *times                 # of seqno s at s modulo size; NULL while size is 0
    cdef uint64_t size                  # a power of two, or 0

    cdef int c_fill(self, uint64_t low, uint64_t first, uint64_t count, int64_t time) except -1
    cdef int grow(self, uint64_t low, uint64_t span) except -1
    cdef int64_t of(self, uint64_t seqno) noexcept nogil
