"""Sizes of the wire format, for the modules that lay datagrams out."""

from libc.stdint cimport uint64_t

from ringcast._core.marks cimport Marks
from ringcast._core.stamps cimport Stamps
from ringcast._core.window cimport Window

cdef enum:
    HEADER = 32                         # bytes in front of every datagram
    PREFIX = 40                         # the most that stands in front of the runs: a header and a conn-id
    RUN = 24                            # bytes in front of every run of messages
    LENGTH = 2                          # bytes of one message's length
    LARGEST = 65507                     # bytes of the largest UDP datagram over IPv4

cdef bytes pack_next(Window ring, Marks marks, Stamps stamps, uint64_t *next_seqno, uint64_t last, Py_ssize_t limit, bytes prefix,
                     Py_ssize_t *waited)
cdef int check_prefix(bytes prefix) except -1
