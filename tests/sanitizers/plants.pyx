"""One mistake for each sanitizer. A build that does not report its plant cannot report anything."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

cdef uint64_t shared = 0


def race(int times=3_000_000):
    """Write a word without an order, for so long that two threads that do it at once meet."""
    cdef volatile uint64_t *word = &shared
    cdef int step
    with nogil:
        for step in range(times):
            word[0] += 1


def overread(int size=16):
    """Read the byte behind a block of memory."""
    cdef volatile unsigned char *block = <unsigned char *>malloc(size)
    cdef int byte = block[size]
    free(<void *>block)
    return byte


def shift(int distance=70):
    """Shift a number of 64 bits by more than that."""
    cdef volatile int64_t value = 1
    value = value << distance
    return value
