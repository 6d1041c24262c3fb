"""The delivery window as other compiled modules see it, whichever way it keeps its items."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.slots cimport lowest_bit

cdef extern from "Python.h":
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    void Py_INCREF(PyObject *)
    void Py_DECREF(PyObject *)

cdef enum:
    CAPACITY_MAX = 1 << 26


cdef struct Words:                # where a window keeps its numbers
    uint64_t capacity
    uint64_t *low
    uint64_t *hd
    uint64_t *hr
    uint64_t *bound               # capacity; 0 once closed
    uint64_t *max_bytes           # 0: unbounded
    uint64_t *nbytes              # payload held; kept only with max_bytes


@cython.trashcan(True)
cdef class Window:
    cdef object tracked           # always None: with an object attribute Cython makes the class known to the collector

    # Caller holds the GIL for all of these. Items that are passed or looked at are borrowed; none of them is None.
    # What each kind of window does in its own way:
    cdef Words words(self) noexcept
    cdef bint c_add(self, uint64_t seqno, object item) except -1
    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept    # how many were new
    cdef uint64_t c_send_run(self, PyObject **items, uint64_t count) noexcept    # how many were taken: a prefix
    cdef bint c_refuse(self) except -1                       # False, the answer of a full window, unless it must raise
    cdef uint64_t c_ready(self, uint64_t limit) noexcept     # how many items can be delivered before the next gap
    cdef uint64_t c_deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept    # to out, as new references
    cdef uint64_t c_stable(self, uint64_t seqno) noexcept    # how many seqnos were freed
    cdef void c_close(self) noexcept
    cdef PyObject *peek(self, uint64_t seqno) noexcept       # NULL when absent; valid until somebody purges
    # The first gap in first..last as first..last; False, and first is last+1, when there is none.
    cdef bint c_gap(self, uint64_t *first, uint64_t *last) noexcept
    # The next place from *number on that holds items: its slots, and a bit for each full one. 0: there is none.
    cdef uint32_t c_held(self, uint64_t *number, PyObject ***slots) noexcept

    # What they have in common:
    cdef bint c_send(self, object item) except -1            # False: no room, no seqno taken
    cdef uint64_t c_low(self) noexcept
    cdef uint64_t c_hd(self) noexcept
    cdef uint64_t c_hr(self) noexcept


cdef int refuse_none() except -1
cdef uint64_t capacity_of(object capacity) except 0     # 1 to CAPACITY_MAX


# --- references --------------------------------------------------------------------------------------------------

cdef inline void hold(PyObject **items, uint32_t mask) noexcept:
    """The window's own references, taken before an item can be seen."""
    while mask:
        Py_INCREF(items[lowest_bit(mask)])
        mask &= mask - 1


cdef inline void release(PyObject **items, uint64_t count) noexcept:
    """Drop references that are no longer in the window; a finaliser may call the window back."""
    cdef uint64_t k
    for k in range(count):
        Py_DECREF(items[k])
