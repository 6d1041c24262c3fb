"""The wire format for the modules that lay datagrams out or list what is in them."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from ringcast._core.marks cimport Marks
from ringcast._core.stamps cimport Stamps
from ringcast._core.window cimport Window

cdef enum:
    HEADER = 32                         # bytes in front of every datagram
    PREFIX = 40                         # the most bytes before the runs: a header and a conn-id
    RUN = 24                            # bytes in front of every run of messages
    LENGTH = 2                          # bytes of one message's length
    LARGEST = 65507                     # bytes of the largest UDP datagram over IPv4


cdef struct Run:                        # a run of messages in a datagram
    uint64_t first
    uint64_t count
    uint16_t flags
    uint32_t size
    int64_t sent_at
    const uint8_t *lengths
    const uint8_t *payloads


cdef uint16_t load16(const uint8_t *raw) noexcept nogil
cdef Run empty_run() noexcept nogil
cdef Py_ssize_t read_run(const uint8_t *raw, Py_ssize_t left, Run *run) noexcept nogil
cdef bint is_whole(const uint8_t *raw, Py_ssize_t size) noexcept nogil
cdef bytes pack_next(Window ring, Marks marks, Stamps stamps, uint64_t *next_seqno, uint64_t last,
                     Py_ssize_t limit, bytes prefix, Py_ssize_t *waited)
cdef int check_prefix(bytes prefix) except -1
