"""The seal, as far as each datagram needs it: numbers, headers, replay windows, and the
calls of the cipher. protocols/security/seal.py has the rest, and says what all of it is
for.
"""

cimport cython
from cpython.buffer cimport (
    Py_buffer, PyBUF_SIMPLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    SEAL_MAGIC = 0x5352
    SEAL_VERSION = 1
    HELLO = 0                           # channels
    CONTROL = 1
    BULK = 2
    SINGLE = 3
    HURRIED = 4
    CHANNELS = 4                        # that have numbers
    HEADER = 24                         # bytes
    TAG = 16                            # bytes that the cipher adds
    KIND = 3                            # where a datagram that is not sealed has its kind
    SENDER = 8                          # where each datagram has its sender
    WINDOW = 4096                       # numbers that a window remembers
    WORDS = 64                          # of 64 bits, for these numbers

cdef uint64_t COUNT = 0xFFFFFFFF        # the bits of a number that count
cdef uint64_t EVERYONE = 0
cdef Py_ssize_t SEALED_AT_ONCE = 256 << 10     # bytes
cdef Py_ssize_t ARENA = 1 << 20         # bytes

MAGIC, VERSION = SEAL_MAGIC, SEAL_VERSION
SIZE = WINDOW


@cython.final
cdef class ReplayWindow:
    """Accepts each number above `floor` once, while it is among the latest SIZE.

    What is older is dropped as well, so memory is bounded. The window is asked before a
    datagram is opened, because to open one costs more; but only one that has opened is
    noted, so that a forged number cannot move the window.
    """

    cdef readonly uint64_t highest
    cdef uint64_t seen[WORDS]           # bit number % SIZE: that number has come

    def __cinit__(self, uint64_t floor):
        self.highest = floor
        memset(self.seen, 0xFF, sizeof(self.seen))

    cpdef bint is_new(self, uint64_t number) noexcept:
        """Return whether a number comes for the first time. This changes nothing, so
        the number may be that of a datagram that does not open."""
        if number > self.highest:
            return True
        return self.highest - number < WINDOW and not self.seen[at(number)] & bit(number)

    cpdef void note(self, uint64_t number) noexcept:
        """Remember a number that is new, of a datagram that has opened."""
        cdef uint64_t between
        if number > self.highest:
            if number - self.highest >= WINDOW:
                memset(self.seen, 0, sizeof(self.seen))
            else:
                for between in range(self.highest + 1, number):
                    self.seen[at(between)] &= ~bit(between)
            self.highest = number
        self.seen[at(number)] |= bit(number)


cdef inline uint64_t at(uint64_t number) noexcept nogil:
    return number // 64 % WORDS


cdef inline uint64_t bit(uint64_t number) noexcept nogil:
    return <uint64_t> 1 << number % 64


@cython.final
cdef class Epoch:
    """The key of one sender in one epoch, and what came under it: a window for each
    channel. `floors` are the numbers up to which nothing is taken."""

    cdef readonly object cipher
    cdef readonly tuple windows

    def __init__(self, cipher, floors):
        self.cipher = cipher
        self.windows = tuple(map(ReplayWindow, floors))
        if len(self.windows) != CHANNELS:
            raise ValueError(f"an epoch has {CHANNELS} floors, one for each channel")


@cython.final
cdef class Arena:
    """Memory that is used again and again. A new object of 60 KB for each datagram
    costs more than to encrypt it: the pages of freed memory go back to the system."""

    cdef object memory

    def __cinit__(self):
        self.memory = memoryview(bytearray(ARENA))

    cdef object take(self, Py_ssize_t begin, Py_ssize_t size):
        """Return `size` bytes behind those that are in use, the first `begin`."""
        if begin + size <= ARENA:
            return self.memory[begin:begin + size]
        return memoryview(bytearray(size))


cdef struct Header:                     # as it is on the wire, too
    uint16_t magic
    uint8_t version
    uint8_t channel
    uint32_t epoch
    uint64_t sender
    uint64_t number


cpdef bytes nonce(uint32_t channel, uint64_t number):
    """Return what no key meets twice."""
    cdef uint8_t raw[12]
    memcpy(raw, &channel, 4)
    memcpy(raw + 4, &number, 8)
    return PyBytes_FromStringAndSize(<char *> raw, 12)


cdef bytes clear(const Header *header):
    """Return the bytes of a header: they are not hidden, and are authenticated."""
    return PyBytes_FromStringAndSize(<const char *> header, HEADER)


cdef uint8_t *raw_of(object view) except NULL:
    """Return where the bytes of a memoryview are, as long as it lives."""
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if not PyBuffer_IsContiguous(buffer, b"C") or buffer.itemsize != 1:
        raise BufferError("a datagram is bytes, one behind the other")
    return <uint8_t *> buffer.buf


cdef int kind_of(object datagram) except -1:
    """Return the kind of a datagram that is not sealed."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(datagram, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len <= KIND:
            raise ValueError("a datagram is longer than what stands before its kind")
        return (<uint8_t *> buffer.buf)[KIND]
    finally:
        PyBuffer_Release(&buffer)


cdef class SealCore:
    """Seals what `member` sends, and opens what comes to it. `Seal` has the rest of its
    state, and does what is rare.

    *Threads.* As `Seal` says. What `rekey` replaces while another thread opens is an
    attribute of `Seal`: without the GIL those here may not change meanwhile.
    """

    cdef readonly uint64_t member
    cdef readonly object counters       # a SealStatus
    cdef frozenset bulk, hurried, outside
    cdef public dict senders            # those that have answered, by incarnation: each a Sender
    cdef public object _without_view    # what seals: an Outgoing ...
    cdef public object _in_view         # ... and another one, if there is a view with a key
    cdef Arena outgoing, incoming

    def __init__(self, member, counters, bulk, hurried, outside):
        self.member, self.counters = member, counters
        self.bulk, self.hurried, self.outside = map(frozenset, (bulk, hurried, outside))
        self.senders = {}
        self.outgoing, self.incoming = Arena(), Arena()

    # ---------------------------------------------------------------------------------- sealing

    def seal(self, packets):
        """Yield the packets with sealed datagrams, a few at a time: views of memory
        that is used again for the next few."""
        cdef list few = []
        cdef Py_ssize_t used = 0, size
        for dest, datagram in packets:
            size = len(datagram) + HEADER + TAG
            if used + size > SEALED_AT_ONCE and few:
                yield few
                few, used = [], 0
            few.append((dest, self.seal_one(dest, datagram, self.outgoing.take(used, size))))
            used += size
        if few:
            yield few

    cdef object seal_one(self, uint64_t dest, datagram, sealed):
        """Write a datagram into the memory for the sealed one, and return that."""
        cdef uint8_t kind = kind_of(datagram)
        cdef Header header
        under = self._without_view
        if self._in_view is not None and kind not in self.outside:
            under = self._in_view
        header.magic, header.version, header.sender = SEAL_MAGIC, SEAL_VERSION, self.member
        header.channel = (HURRIED if kind in self.hurried else SINGLE if dest != EVERYONE
                          else BULK if kind in self.bulk else CONTROL)
        count = under.numbers[header.channel] + 1
        under.numbers[header.channel] = count
        header.epoch, header.number = under.epoch, under.tag | count
        memcpy(raw_of(sealed), &header, HEADER)
        under.cipher.encrypt_into(nonce(header.channel, header.number), datagram, clear(&header),
                                  sealed[HEADER:])
        if count >= self.most_sealed:           # above it, if the last one could not be sealed
            self._begin_epoch(under)
        return sealed

    # ---------------------------------------------------------------------------------- opening

    def open(self, datagrams, now):
        """Return what is in the datagrams that open: views that are valid until the
        next call. Call `hellos` afterwards."""
        cdef list opened = []
        cdef Py_ssize_t used = 0
        self.was_asked = False
        for datagram in datagrams:
            view = self.open_one(PyMemoryView_FromObject(datagram), used, now)
            if view is not None:
                opened.append(view)
                used += len(view)
        return opened

    cdef object open_one(self, datagram, Py_ssize_t used, now):
        """Return what is in a datagram, in the memory behind what is used; None if it
        does not open, which is counted."""
        cdef const uint8_t *raw = raw_of(datagram)
        cdef Py_ssize_t size = len(datagram) - HEADER - TAG
        cdef Header header
        cdef uint64_t tag
        cdef Epoch under = None
        cdef ReplayWindow window
        if size < 0:
            self.counters.datagrams_unsealed += 1
            return None
        memcpy(&header, raw, HEADER)
        if (header.magic != SEAL_MAGIC or header.version != SEAL_VERSION
                or header.channel > HURRIED or header.sender == EVERYONE):
            self.counters.datagrams_unsealed += 1
            return None
        sender = header.sender
        if header.channel == HELLO:
            self._on_hello(bytes(datagram), sender, header.epoch, now)
            return None
        known, tag, view = self.senders.get(sender), header.number & ~COUNT, None
        if known is not None and tag:
            view = self._by_tag.get(tag)
            if view is None or now >= view.until:
                self.counters.datagrams_of_other_views += 1
                return None
            known = view.sender(sender, known.salt)
        if known is not None:
            under = known.epochs.get(header.epoch)
            if under is None:
                under = self._begin_opening(known, sender, header.epoch)
        if under is None:
            self.counters.datagrams_of_strangers += 1
            self._note_stranger(sender)
            return None
        window = under.windows[header.channel - 1]
        if not window.is_new(header.number & COUNT):
            self.counters.datagrams_replayed += 1
            return None
        opened = self.incoming.take(used, size)
        try:
            under.cipher.decrypt_into(nonce(header.channel, header.number), datagram[HEADER:],
                                      clear(&header), opened)
        except self.invalid_tag:
            self.counters.datagrams_unopened += 1
            return None
        if size < SENDER + 8 or memcmp(raw_of(opened) + SENDER, &header.sender, 8) != 0:
            self.counters.datagrams_unopened += 1
            return None
        if not tag and kind_of(opened) not in self.outside:
            self.counters.datagrams_of_other_views += 1
            return None
        window.note(header.number & COUNT)
        if header.epoch > known.number:
            known.begin(header.epoch, under)
            if view is not None:
                view.senders[sender] = known
        return opened.toreadonly()
