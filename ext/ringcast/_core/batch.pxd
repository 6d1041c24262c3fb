"""Message and Batch for the modules that build them."""

from libc.stdint cimport int64_t, uint16_t, uint64_t


cdef class Message:
    cdef readonly object sender         # Address
    cdef readonly uint64_t seqno        # 0: sent with NO_RELIABILITY, so it has none
    cdef readonly object payload        # bytes
    cdef readonly object dest           # Address of the receiver; None: everybody
    cdef readonly uint16_t bits         # its flags, as a number
    cdef readonly int64_t sent_at       # nanoseconds since 1970, by the sender's clock


cdef class Batch:
    cdef readonly object sender         # Address; None until a layer knows the member
    cdef readonly uint64_t first        # seqno of payloads[0]; the others follow without a gap
    cdef readonly list payloads         # bytes
    cdef readonly uint64_t view_id      # the receiver's view at the delivery, else 0
    cdef readonly object dest           # Address of the receiver; None: everybody
    cdef readonly uint16_t bits         # the flags of each message, as a number
    cdef readonly object stream         # the layer's stream, which gets the finished batch back
    cdef readonly int64_t stamp         # send time of all messages, while it is a run of a datagram
    cdef bytes stamps                   # send time of each at the delivery; None: not known


cdef class Skipped(Batch):
    cdef uint64_t end                   # seqno of the last message that was missed
