"""Window for other compiled modules: what every window does, however it keeps its
items."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.payloads cimport shelve
from ringcast._core.slots cimport lowest_bit

cdef extern from "Python.h":
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    void Py_INCREF(PyObject *)
    void Py_DECREF(PyObject *)
    void Py_XDECREF(PyObject *)

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
    cdef object tracked           # always None: it makes Cython tell the collector of the class

    # The caller holds the GIL in all of these, or in a Python without it a critical
    # section of the window. References to items that are passed in, or returned by
    # c_run(), peek() and c_held(), are borrowed. No item is None.

    # What each kind of window does in its own way:
    cdef Words words(self) noexcept
    cdef bint c_add(self, uint64_t seqno, object item) except -1
    # Returns how many items were new.
    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept
    # Returns how many items were taken, from the first on.
    cdef uint64_t c_send_run(self, PyObject **items, uint64_t count) noexcept
    # Called after a send that took nothing: raises if that will not change, else False.
    cdef bint c_refuse(self) except -1
    # Counts the items that can be delivered before the next gap.
    cdef uint64_t c_ready(self, uint64_t limit) noexcept
    # Moves items to `out`, as new references.
    cdef uint64_t c_deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept
    # Returns how many seqnos were freed.
    cdef uint64_t c_stable(self, uint64_t seqno) noexcept
    cdef void c_close(self) noexcept
    # Returns the slots from this seqno on, *count of which hold an item: those of its
    # block without a gap. They are valid until somebody frees them.
    cdef PyObject **c_run(self, uint64_t seqno, uint64_t *count) noexcept
    # Finds the first gap in *first..*last, which becomes *first..*last. False: there is
    # none.
    cdef bint c_gap(self, uint64_t *first, uint64_t *last) noexcept
    # Finds the next place from *number on that holds items, and moves *number behind
    # it. Returns a bit for each slot that holds one; 0: there is no more.
    cdef uint32_t c_held(self, uint64_t *number, PyObject ***slots) noexcept

    # What they have in common:
    cdef bint c_send(self, object item) except -1           # False: no room, no seqno taken
    cdef uint64_t send_from(self, list items, uint64_t begin) except? 0     # see send_many()
    cdef list take_many(self, uint64_t most, bint nullify)                  # see remove_many()
    cdef PyObject *peek(self, uint64_t seqno) noexcept      # NULL: the item is not there
    cdef uint64_t c_low(self) noexcept
    cdef uint64_t c_hd(self) noexcept
    cdef uint64_t c_hr(self) noexcept


cdef int refuse_none() except -1
cdef uint64_t check_capacity(object capacity) except 0     # 1 to CAPACITY_MAX


# --- references -----------------------------------------------------------------------

cdef inline void hold(PyObject **items, uint32_t mask) noexcept:
    """Take the window's own references, before anybody can see the items."""
    while mask:
        Py_INCREF(items[lowest_bit(mask)])
        mask &= mask - 1


cdef inline void release(PyObject **items, uint64_t count) noexcept:
    """Drop references to items that left the window.

    A finaliser may call the window back.
    """
    cdef uint64_t k
    shelve(items, count)
    for k in range(count):
        Py_XDECREF(items[k])
