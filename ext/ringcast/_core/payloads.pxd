"""Payload objects, made and given back. payloads.pyx says how."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define RINGCAST_USES_AGAIN 0
    #else
    #define RINGCAST_USES_AGAIN 1
    #endif
    #define RINGCAST_IS_LAST(item) (RINGCAST_USES_AGAIN && Py_REFCNT(item) == 1)
    """
    # Whether there are shelves. Not in a Python without the GIL.
    const bint USES_AGAIN "RINGCAST_USES_AGAIN"
    # Whether this reference to an object is the only one. Never, in a Python without
    # the GIL: another thread may just be making one.
    bint is_last "RINGCAST_IS_LAST"(PyObject *)


# Makes a `bytes` with a copy of `size` bytes.
cdef bytes make_payload(const char *raw, Py_ssize_t size)
# Takes over the references that are the last ones to a payload, if it can be used
# again: these items become NULL. Runs no finaliser.
cdef void shelve(PyObject **items, uint64_t count) noexcept
