"""Payload objects, made and given back. payloads.pyx says how."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t


# Makes a `bytes` with a copy of `size` bytes.
cdef bytes make_payload(const char *raw, Py_ssize_t size)
# Takes over the references that are the last ones to a payload, if it can be used
# again: these items become NULL. Runs no finaliser.
cdef void shelve(PyObject **items, uint64_t count) noexcept
