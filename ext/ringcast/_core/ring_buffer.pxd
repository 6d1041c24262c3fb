"""The window as other compiled modules see it. The memory and its rules are in block_ring.pxd."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.block_ring cimport Ring


@cython.final
cdef class RingBuffer:
    cdef Ring *ring
    cdef object tracked           # always None: with an object attribute Cython makes the class known to the collector

    # Caller holds the GIL for all of these.
    cdef bint c_add(self, uint64_t seqno, object item) except -1
    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept  # borrowed, none is None
    cdef bint c_send(self, object item) except -1            # False: no room, no seqno taken
    cdef uint64_t c_send_run(self, PyObject **items, uint64_t count) noexcept    # how many were taken: a prefix
    cdef uint64_t c_reserve(self, uint64_t count, uint64_t *first) noexcept  # how many were taken, from *first on
    cdef PyObject *peek(self, uint64_t seqno) noexcept       # borrowed; NULL when absent; valid until somebody purges
    cdef uint64_t c_low(self) noexcept
    cdef uint64_t c_hd(self) noexcept
    cdef uint64_t c_hr(self) noexcept
    cdef uint64_t c_next(self) noexcept                      # the seqno that the next send takes

    # A reader that lets the GIL go keeps the item alive with a pin; the consumer never waits for it, LOW does.
    cdef PyObject *pin(self, uint64_t seqno) noexcept nogil  # NULL when absent, and then nothing is to be unpinned
    cdef void unpin(self, uint64_t seqno) noexcept nogil

    cdef bint refuse_when_closed(self) except -1
    cdef uint64_t place(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept
    cdef uint32_t put(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept
    cdef uint64_t count_bytes_in(self, PyObject **items, uint64_t count) noexcept
    cdef uint64_t deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept
    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept
    cdef uint64_t purge(self, uint64_t seqno) noexcept
    cdef void release_all(self) noexcept
