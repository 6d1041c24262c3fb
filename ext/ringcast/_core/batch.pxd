"""Layout of Message and Batch, for the modules that build them."""

from libc.stdint cimport uint64_t


cdef class Message:
    cdef readonly object sender         # Address
    cdef readonly uint64_t seqno
    cdef readonly object payload        # bytes


cdef class Batch:
    cdef readonly object sender         # Address, or None while the datagram has not been matched to a member
    cdef readonly uint64_t first        # seqno of payloads[0]; the rest follow without a gap
    cdef readonly list payloads         # bytes
    cdef readonly uint64_t view_id      # the receiver's view when the batch was delivered, else 0
