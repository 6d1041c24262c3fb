"""Seqnos: compare two of them, raise one, read one from Python.

They have 64 bits and wrap (serial arithmetic, decision 6).
"""

from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches, PyErr_Occurred
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from ringcast._core.atomics cimport cas_relaxed, load_relaxed

cdef extern from "Python.h":
    uint64_t PyLong_AsUnsignedLongLong(PyObject *) noexcept


cdef inline int64_t ahead(uint64_t a, uint64_t b) noexcept nogil:
    """Return how far seqno a is ahead of b; negative if it is behind."""
    return <int64_t>(a - b)


cdef inline void raise_to(uint64_t *word, uint64_t seqno) noexcept nogil:
    """Set the word to max(word, seqno).

    Relaxed: the messages up to the seqno are published by another word, after this one.
    """
    cdef uint64_t seen = load_relaxed(word)
    while ahead(seqno, seen) > 0 and not cas_relaxed(word, &seen, seqno):
        pass


cdef inline uint64_t to_uint64(object number, str name) except? 0xFFFFFFFFFFFFFFFF:
    """Convert a Python number, which is a seqno or a count.

    Raises TypeError or ValueError, whose text calls the number `name`.
    """
    cdef uint64_t value = PyLong_AsUnsignedLongLong(<PyObject *>number)
    if value == <uint64_t>0xFFFFFFFFFFFFFFFF and PyErr_Occurred():
        refuse_number(number, name)
    return value


cdef inline int refuse_number(object number, str name) except -1:
    """Replace the error of the C call by one that says what to pass."""
    cdef bint out_of_range = PyErr_ExceptionMatches(OverflowError)
    PyErr_Clear()
    if out_of_range:
        raise ValueError(f"{name} is {number}; pass an integer from 0 to 2**64-1")
    raise TypeError(f"{name} is a {type(number).__name__}; pass an integer from 0 to 2**64-1")
