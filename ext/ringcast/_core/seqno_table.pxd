"""SeqnoTable for other compiled modules. What every window does is in window.pxd, the
memory is in page_table.pxd."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.page_table cimport Table
from ringcast._core.window cimport Window


@cython.final
@cython.trashcan(True)
cdef class SeqnoTable(Window):
    cdef Table table

    cdef uint64_t place(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept
    cdef uint32_t put(self, uint64_t seqno, PyObject **items, uint32_t wanted) noexcept
    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept
