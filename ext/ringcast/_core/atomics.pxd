"""The atomic accesses of atomics.h, for Cython.

The name of a function ends with its memory order. Where there are two orders, the first
holds if the swap succeeds, the second if it fails.
"""

from libc.stdint cimport uint64_t


cdef extern from "atomics.h" nogil:
    uint64_t load_relaxed(const uint64_t *word)
    uint64_t load_acquire(const uint64_t *word)
    void store_release(uint64_t *word, uint64_t value)
    bint cas_relaxed(uint64_t *word, uint64_t *expected, uint64_t desired)
    bint cas_acquire_relaxed(uint64_t *word, uint64_t *expected, uint64_t desired)
    bint cas_acq_rel_relaxed(uint64_t *word, uint64_t *expected, uint64_t desired)
    uint64_t fetch_or_release(uint64_t *word, uint64_t bits)
    uint64_t fetch_and_relaxed(uint64_t *word, uint64_t bits)
    uint64_t fetch_add_acq_rel(uint64_t *word, uint64_t value)
    uint64_t fetch_sub_relaxed(uint64_t *word, uint64_t value)
