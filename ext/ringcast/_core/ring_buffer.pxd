"""RingBuffer for other compiled modules. What every window does is in window.pxd, the
memory and its rules are in block_ring.pxd."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.block_ring cimport Ring
from ringcast._core.window cimport Window


@cython.final
@cython.trashcan(True)
cdef class RingBuffer(Window):
    cdef Ring *ring

    cdef uint64_t place(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept
    cdef uint32_t put(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept
    cdef uint64_t count_bytes_in(self, PyObject **items, uint64_t count) noexcept
    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept
