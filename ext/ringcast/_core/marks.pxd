"""The flags of messages, and Marks for the modules that use them."""

from libc.stdint cimport uint16_t, uint64_t

cdef enum:
    OOB = 1                             # delivered on arrival, outside the order
    DONT_LOOPBACK = 2                   # not delivered to its sender
    FRAGMENT = 8                        # a piece of a message larger than a datagram (frag.py)
    STATE = 16                          # a part of an application's state (membership/state.py)
    WIRE = OOB | FRAGMENT | STATE       # those that a datagram carries
    TAKEN = 256                         # never sent: an OOB message was delivered, its place stays


cdef class Marks:
    cdef readonly dict flags            # {seqno: flags} of the messages that have any

    cdef uint16_t of(self, uint64_t seqno)
