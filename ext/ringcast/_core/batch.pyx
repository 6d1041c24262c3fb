"""Consecutive messages of one sender: a run of a datagram, or what the application
gets.

A batch is a struct of arrays: one sender, one first seqno, one list of payloads. The
layers pass it along and never loop over it. Who wants single messages iterates: then
each Message is made here, in one compiled step.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memcpy

from ringcast._core.payloads cimport is_last, shelve
from ringcast._core.slots cimport list_items

cdef object Flag, NO_FLAGS
from ringcast.flags import NO_FLAGS, Flag


@cython.final
@cython.freelist(256)
cdef class Message:
    """One delivered message.

    `sender` is its Address, `seqno` its number (1 is the first of its stream; 0: it has
    none), `payload` is bytes, `dest` the Address it was sent to (None: everybody), and
    `flags` are ringcast.Flag. `sent_at` is the time when it left its sender, in
    nanoseconds since 1970 by the sender's clock (0: not known). `bits` are the flags as
    an int.

    The messages that a sender sends to everybody are one stream of seqnos. Those that
    it sends to one member are another.
    """

    def __init__(self, sender, uint64_t seqno, bytes payload not None, dest=None,
                 uint16_t flags=0, int64_t sent_at=0):
        self.sender = sender
        self.seqno = seqno
        self.payload = payload
        self.dest = dest
        self.bits = flags
        self.sent_at = sent_at

    @property
    def flags(self):
        """Say how it was sent: a ringcast.Flag."""
        return named(self.bits)

    def __repr__(self):
        return (f"Message(sender={str(self.sender)!r}, seqno={self.seqno}, "
                f"payload={self.payload!r}{suffix(self.dest, self.bits)})")

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        cdef Message message = other
        return (self.seqno == message.seqno and self.sender == message.sender
                and self.payload == message.payload and self.dest == message.dest
                and self.bits == message.bits)

    def __hash__(self):
        return hash((self.sender, self.seqno))


cdef class Batch:
    """Messages `first` .. `last` of `sender`, in order and without a gap.

    Iterating yields Message objects. `payloads` is a list of bytes, for those who need
    no more; it belongs to the batch, do not change it. `dest` and `flags` hold for each
    message, see Message; `sent_at` has the send time of each. A message that was sent
    with NO_RELIABILITY has `first` 0 and comes alone.
    """

    def __init__(self, sender, uint64_t first, list payloads not None, uint64_t view_id=0,
                 dest=None, uint16_t flags=0, stream=None, bytes sent_at=None):
        self.sender = sender
        self.first = first
        self.payloads = payloads
        self.view_id = view_id
        self.dest = dest
        self.bits = flags
        self.stream = stream
        if sent_at is not None and len(sent_at) != 8 * len(payloads):
            raise ValueError(f"{len(payloads)} messages have send times of {8 * len(payloads)} "
                             f"bytes, not {len(sent_at)}")
        self.stamps = sent_at

    def __dealloc__(self):
        # Cleared already if a collection takes it.
        if self.payloads is not None and is_last(<PyObject *>self.payloads):
            shelve(list_items(<PyObject *>self.payloads), <uint64_t>len(self.payloads))

    @property
    def flags(self):
        """Say how each message was sent: a ringcast.Flag."""
        return named(self.bits)

    @property
    def last(self):
        """The seqno of the last message; first - 1 (modulo 2**64) if the batch is
        empty."""
        return <uint64_t> (self.first + <uint64_t> len(self.payloads) - 1)

    @property
    def sent_at(self):
        """The time when each message left its sender: a memoryview of int64.

        It is in nanoseconds since 1970 by the sender's clock; 0: not known.
        """
        cdef bytes stamps = self.stamps if self.stamps is not None else bytes(8 * len(self))
        return memoryview(stamps).cast("q")

    def addressed(self, sender, dest, uint64_t view_id, stream, bytes sent_at=None):
        """Return the same messages as the application gets them."""
        return Batch(sender, self.first, self.payloads, view_id, dest, self.bits, stream, sent_at)

    @property
    def nbytes(self):
        """The sum of the lengths of the payloads."""
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
        return (f"Batch(sender={str(self.sender)!r}, first={self.first}, "
                f"last={self.last}{suffix(self.dest, self.bits)})")


@cython.final
cdef class Skipped(Batch):
    """A batch without messages, which stands where an observer was not given any.

    It missed the messages `first` .. `last` of `sender`. The batches of this sender
    before it end with first - 1 or earlier, and those behind it begin after `last`.
    """

    def __init__(self, sender, uint64_t first, uint64_t last, uint64_t view_id=0, stream=None):
        super().__init__(sender, first, [], view_id, None, 0, stream)
        self.end = last

    @property
    def last(self):
        """Return the seqno of the last message that was missed."""
        return self.end

    @property
    def count(self):
        """Count the seqnos that were missed."""
        return <uint64_t> (self.end - self.first + 1)

    def __repr__(self):
        return f"Skipped(sender={str(self.sender)!r}, first={self.first}, last={self.end})"


@cython.final
cdef class _Messages:
    """An iterator over a batch, which makes each Message when it is asked for it.

    *Threads.* One at a time. `at` is read once in a call, so that without the GIL two
    threads may get the same message, but nothing behind the last one.
    """

    cdef Batch batch
    cdef Py_ssize_t at

    def __cinit__(self, Batch batch not None):
        self.batch = batch
        self.at = 0

    def __iter__(self):
        return self

    def __length_hint__(self):
        """Count the messages that are still to come."""
        return len(self.batch.payloads) - self.at

    def __next__(self):
        cdef Py_ssize_t at = self.at
        if at >= len(self.batch.payloads):
            raise StopIteration
        cdef Message message = Message.__new__(Message)
        message.sender = self.batch.sender
        message.seqno = self.batch.first + <uint64_t> at
        message.payload = self.batch.payloads[at]
        message.dest = self.batch.dest
        message.bits = self.batch.bits
        message.sent_at = 0
        if self.batch.stamps is not None:
            memcpy(&message.sent_at, PyBytes_AS_STRING(self.batch.stamps) + 8 * at, 8)
        self.at = at + 1
        return message


cdef object named(uint16_t bits):
    """Return flags as a ringcast.Flag. Most messages have none."""
    return Flag(bits) if bits else NO_FLAGS


cdef str suffix(dest, uint16_t bits):
    """Name what is unusual about messages, for their repr."""
    cdef str shown = f", dest={str(dest)!r}" if dest is not None else ""
    return f"{shown}, flags={named(bits)!r}" if bits else shown
