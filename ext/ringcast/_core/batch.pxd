"""Layout of Message and Batch, for the modules that build them."""

from libc.stdint cimport int64_t, uint16_t, uint64_t


cdef class Message:
    cdef readonly object sender         # Address
    cdef readonly uint64_t seqno        # 0: it was sent with NO_RELIABILITY and has none
    cdef readonly object payload        # bytes
    cdef readonly object dest           # Address of the one it was sent to; None: to everybody
    cdef readonly uint16_t flags        # message.Flag
    cdef readonly int64_t sent_at       # nanoseconds since 1970, by the sender's clock


cdef class Batch:
    cdef readonly object sender         # Address, or None while the datagram has not been matched to a member
    cdef readonly uint64_t first        # seqno of payloads[0]; the rest follow without a gap
    cdef readonly list payloads         # bytes
    cdef readonly uint64_t view_id      # the receiver's view when the batch was delivered, else 0
    cdef readonly object dest           # Address of the one they were sent to; None: to everybody
    cdef readonly uint16_t flags        # of every message in it (message.Flag)
    cdef readonly object stream         # of the layer that handed it over, which gets the batch back when it is finished
    cdef readonly int64_t stamp         # send time of every message in it, while it is a run of a datagram
    cdef bytes stamps                   # send time of each, when it goes to the application; None: not known
