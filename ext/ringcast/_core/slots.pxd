"""Slots with items, and masks of at most 32 bits that choose some of them.

The functions here take no references to items: that is the caller's task.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h" nogil:
    bint is_bytes "PyBytes_Check"(PyObject *)
    bint is_plain_bytes "PyBytes_CheckExact"(PyObject *)
    uint64_t bytes_size "PyBytes_GET_SIZE"(PyObject *)
    PyObject **list_items "PySequence_Fast_ITEMS"(PyObject *)

cdef extern from * nogil:
    uint32_t lowest_bit "__builtin_ctz"(uint32_t)
    uint32_t leading_zeros "__builtin_clz"(uint32_t)
    uint32_t count_bits "__builtin_popcount"(uint32_t)
    void prefetch "__builtin_prefetch"(const void *)


cdef inline uint32_t ones(uint64_t count) noexcept nogil:
    """Return a mask whose lowest `count` (0..32) bits are set."""
    return <uint32_t>((<uint64_t>1 << count) - 1)


cdef inline uint32_t highest_bit(uint32_t mask) noexcept nogil:
    """Return the position of the highest bit that is set; there must be one."""
    return 31 - leading_zeros(mask)


cdef inline void copy_run(PyObject **out, PyObject **slots, uint64_t run) noexcept nogil:
    """Copy `run` slots. remove() asks for one: there memcpy() costs more than the
    copy."""
    if run == 1:
        out[0] = slots[0]
    else:
        memcpy(out, slots, run * sizeof(PyObject *))


cdef inline uint32_t unpack(PyObject **slots, uint32_t mask, PyObject **out) noexcept nogil:
    """Copy the slots whose bit is set, without holes. Returns how many they are."""
    cdef uint32_t count = 0
    while mask:
        out[count] = slots[lowest_bit(mask)]
        count += 1
        mask &= mask - 1
    return count


cdef inline uint64_t payload(PyObject **items, uint64_t count) noexcept nogil:
    """Add up the bytes of payload. Only `bytes` objects count (decision 7)."""
    cdef uint64_t total = 0, k
    for k in range(count):              # what was kept for long has left the caches
        prefetch(items[k])
    for k in range(count):
        if is_bytes(items[k]):
            total += bytes_size(items[k])
    return total
