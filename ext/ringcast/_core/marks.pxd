"""The flags of messages, and Marks for the modules that use them."""

from libc.stdint cimport uint16_t, uint64_t

from ringcast._core.window cimport Window

cdef enum:
    OOB = 1                             # delivered on arrival, outside the order
    DONT_LOOPBACK = 2                   # not delivered to its sender
    FRAGMENT = 8                        # a piece of a message larger than a datagram (frag.py)
    STATE = 16                          # a part of an application's state (membership/state.py)
    WIRE = OOB | FRAGMENT | STATE       # those that a datagram carries
    TAKEN = 256                         # never sent: an OOB message was delivered, its place stays


cdef class Marks:
    cdef readonly dict flags            # {seqno: flags} of the messages that have any
    cdef Window owner                   # the window of the SendWindow that has these marks

    cdef object guard(self)
    cdef uint16_t get(self, uint64_t seqno)
    # The caller holds the GIL, or is in a critical section of guard().
    cdef uint16_t of(self, uint64_t seqno)
    cdef list c_split(self, uint64_t first, list payloads, bint own)
    cdef int c_forget(self, uint64_t low) except -1
