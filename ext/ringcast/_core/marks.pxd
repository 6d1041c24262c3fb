"""Flags of messages, for the modules that read or write them."""

from libc.stdint cimport uint16_t, uint64_t

cdef enum:
    OOB = 1                             # delivered on arrival, outside the order
    DONT_LOOPBACK = 2                   # not delivered to its sender
    FRAGMENT = 8                        # a part of a message that is larger than a datagram (frag.py)
    WIRE = OOB | FRAGMENT               # those that travel with a message
    TAKEN = 256                         # here only: an OOB message that was delivered and still holds its place in the window


cdef class Marks:
    cdef readonly dict flags            # {seqno: flags} of the messages that have any

    cdef uint16_t of(self, uint64_t seqno)
