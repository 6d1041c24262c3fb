"""Consecutive messages of one sender, as they came in one datagram or as they go to the application.

A batch is a struct of arrays: one sender, one first seqno, one list of payloads. The layers pass it along and never loop over
it; whoever wants single messages iterates, and the Message objects are made here, one compiled step each.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memcpy


@cython.final
@cython.freelist(256)
cdef class Message:
    """One delivered message: `sender` (Address), `seqno` (1 is the first of its stream, 0 one without a seqno), `payload`
    (bytes), `dest` (the Address it was sent to, None: everybody), `flags` (ringcast.Flag) and `sent_at` (when it left its sender, in
    nanoseconds since 1970 by the sender's clock; 0: not known).

    The seqnos of what a sender sends to everybody are one stream; what it sends to one member has seqnos of its own.
    """

    def __init__(self, sender, uint64_t seqno, bytes payload not None, dest=None, uint16_t flags=0, int64_t sent_at=0):
        self.sender = sender
        self.seqno = seqno
        self.payload = payload
        self.dest = dest
        self.flags = flags
        self.sent_at = sent_at

    def __repr__(self):
        return f"Message(sender={str(self.sender)!r}, seqno={self.seqno}, payload={self.payload!r}{suffix(self.dest, self.flags)})"

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        return (self.seqno == (<Message> other).seqno and self.sender == (<Message> other).sender
                and self.payload == (<Message> other).payload and self.dest == (<Message> other).dest
                and self.flags == (<Message> other).flags)

    def __hash__(self):
        return hash((self.sender, self.seqno))


@cython.final
cdef class Batch:
    """Messages `first` .. `last` of `sender`, in order and without a gap; iterating yields Message objects.

    `payloads` is a list of bytes, for those who need no more than that; it is the batch's own, do not change it. `dest` and
    `flags` are those of every message in it, see Message; `sent_at` holds the send time of each. Messages sent with NO_RELIABILITY have `first` 0 and come alone.
    """

    def __init__(self, sender, uint64_t first, list payloads not None, uint64_t view_id=0, dest=None, uint16_t flags=0,
                 stream=None, bytes sent_at=None):
        self.sender = sender
        self.first = first
        self.payloads = payloads
        self.view_id = view_id
        self.dest = dest
        self.flags = flags
        self.stream = stream
        if sent_at is not None and len(sent_at) != 8 * len(payloads):
            raise ValueError(f"{len(payloads)} messages have send times of {8 * len(payloads)} bytes, not {len(sent_at)}")
        self.stamps = sent_at

    @property
    def last(self):
        """Seqno of the last message; first - 1 (modulo 2**64) when the batch is empty."""
        return <uint64_t> (self.first + <uint64_t> len(self.payloads) - 1)

    @property
    def sent_at(self):
        """When each message left its sender: a memoryview of int64, nanoseconds since 1970 by the sender's clock. 0: not known."""
        return memoryview(self.stamps if self.stamps is not None else bytes(8 * len(self.payloads))).cast("q")

    def addressed(self, sender, dest, uint64_t view_id, stream, bytes sent_at=None):
        """The same messages, as they go to the application."""
        return Batch(sender, self.first, self.payloads, view_id, dest, self.flags, stream, sent_at)

    @property
    def nbytes(self):
        """Sum of the payloads' lengths."""
        cdef uint64_t total = 0
        cdef object payload
        for payload in self.payloads:
            if PyBytes_CheckExact(payload):
                total += <uint64_t> PyBytes_GET_SIZE(payload)
        return total

    def __len__(self):
        return len(self.payloads)

    def __iter__(self):
        return _Messages.__new__(_Messages, self)

    def __repr__(self):
        return f"Batch(sender={str(self.sender)!r}, first={self.first}, last={self.last}{suffix(self.dest, self.flags)})"


@cython.final
cdef class _Messages:
    """Iterator over a batch: makes the Message when it is asked for it."""

    cdef Batch batch
    cdef Py_ssize_t at

    def __cinit__(self, Batch batch not None):
        self.batch = batch
        self.at = 0

    def __iter__(self):
        return self

    def __length_hint__(self):
        """How many messages are still to come."""
        return len(self.batch.payloads) - self.at

    def __next__(self):
        if self.at >= len(self.batch.payloads):
            raise StopIteration
        cdef Message message = Message.__new__(Message)
        message.sender = self.batch.sender
        message.seqno = self.batch.first + <uint64_t> self.at
        message.payload = self.batch.payloads[self.at]
        message.dest = self.batch.dest
        message.flags = self.batch.flags
        message.sent_at = 0
        if self.batch.stamps is not None:
            memcpy(&message.sent_at, PyBytes_AS_STRING(self.batch.stamps) + 8 * self.at, 8)
        self.at += 1
        return message


cdef str suffix(dest, uint16_t flags):
    """What is unusual about messages, for their repr."""
    return (f", dest={str(dest)!r}" if dest is not None else "") + (f", flags={flags}" if flags else "")
