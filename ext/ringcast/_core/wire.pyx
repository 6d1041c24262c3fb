"""Datagrams <-> bytes: the header that all share, and runs of messages.

    header   magic u16 | version u8 | kind u8 | group u32 | sender u64 | dest u64 | check u64    32 bytes, little endian
    data     one or more runs:  first seqno u64 | count u32 | size u32 | count x length u16 | size bytes of payloads

`sender` and `dest` are incarnations (address.py); dest 0 is everyone. All lengths stand in front of the payloads, so that
checking them does not walk through the payloads. Control datagrams have a msgpack body, which the layers decode.

`check` is a hash of all other bytes and their number. It finds damage, not malice: UDP's own checksum has 16 bits, and none at all
on loopback. Each step of the hash is a bijection of its input word, so damage within eight aligned bytes never passes.

Whatever arrives is checked against what remains of the datagram before it is used (decision 24): a datagram is understood as a
whole or not at all, and `None` says that it was not. Sums are taken in 64 bits, so that no count can wrap them.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ringcast._core.batch cimport Batch
from ringcast._core.window cimport Window

cdef extern from *:
    """
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the wire format is little endian and is copied as it stands; this machine needs byte swaps in wire.pyx"
    #endif
    """

cdef enum:
    MAGIC = 0x4352
    VERSION = 1
    CHECK = 24                          # where the check stands

# The largest payload: one message alone in the largest datagram.
MAX_PAYLOAD = LARGEST - HEADER - RUN - LENGTH
HEADER_SIZE = HEADER


@cython.final
cdef class Header:
    """What stands in front of a datagram: `kind`, `sender` and `dest` (incarnations, dest 0 is everyone)."""

    cdef readonly uint8_t kind
    cdef readonly uint64_t sender
    cdef readonly uint64_t dest


def make_header(uint8_t kind, uint32_t group, uint64_t sender, uint64_t dest):
    """The 32 bytes in front of a datagram of `kind`, without its check, which is taken when the datagram is complete."""
    cdef uint8_t raw[HEADER]
    cdef uint16_t magic = MAGIC
    memset(raw, 0, HEADER)
    memcpy(raw, &magic, 2)
    raw[2] = VERSION
    raw[3] = kind
    memcpy(raw + 4, &group, 4)
    memcpy(raw + 8, &sender, 8)
    memcpy(raw + 16, &dest, 8)
    return PyBytes_FromStringAndSize(<char *> raw, HEADER)


def make_datagram(uint8_t kind, uint32_t group, uint64_t sender, uint64_t dest, bytes body not None):
    """A whole control datagram."""
    cdef bytes datagram = make_header(kind, group, sender, dest) + body
    seal(<uint8_t *> PyBytes_AS_STRING(datagram), PyBytes_GET_SIZE(datagram))
    return datagram


cdef void seal(uint8_t *raw, Py_ssize_t size) noexcept nogil:
    """Write the check into a complete datagram that nobody else has seen."""
    cdef uint64_t check = checksum(raw, size)
    memcpy(raw + CHECK, &check, 8)


cdef uint64_t checksum(const uint8_t *raw, Py_ssize_t size) noexcept nogil:
    """Four lanes of (lane ^ word) * odd number, mixed at the end; what is left goes by words, zero padded."""
    cdef uint64_t a = 0x9E3779B97F4A7C15ULL ^ <uint64_t> size
    cdef uint64_t b = load64(raw)
    cdef uint64_t c = load64(raw + 8)
    cdef uint64_t d = load64(raw + 16)
    cdef uint64_t word
    cdef const uint8_t *at = raw + HEADER
    cdef const uint8_t *end = raw + size
    while end - at >= 32:
        a = (a ^ load64(at)) * 0xD6E8FEB86659FD93ULL
        b = (b ^ load64(at + 8)) * 0xD6E8FEB86659FD93ULL
        c = (c ^ load64(at + 16)) * 0xD6E8FEB86659FD93ULL
        d = (d ^ load64(at + 24)) * 0xD6E8FEB86659FD93ULL
        at += 32
    while at < end:
        word = 0
        memcpy(&word, at, min(8, end - at))
        a = (a ^ word) * 0xD6E8FEB86659FD93ULL
        at += 8
    return mixed(mixed(mixed(mixed(a) + b) + c) + d)


cdef uint64_t mixed(uint64_t x) noexcept nogil:
    """A bijection that spreads every bit over the word."""
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ULL
    return x ^ (x >> 32)


def open_datagram(datagram, uint32_t group):
    """The Header of any bytes-like `datagram`, or None when it is damaged or not one of ours, of this version and group."""
    cdef Py_buffer view
    cdef Header opened = None
    PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
    try:
        if is_ours(<const uint8_t *> view.buf, view.len, group):
            opened = Header.__new__(Header)
            opened.kind = (<const uint8_t *> view.buf)[3]
            opened.sender = load64(<const uint8_t *> view.buf + 8)
            opened.dest = load64(<const uint8_t *> view.buf + 16)
    finally:
        PyBuffer_Release(&view)
    return opened


cdef bint is_ours(const uint8_t *raw, Py_ssize_t size, uint32_t group) noexcept nogil:
    return size >= HEADER and load16(raw) == MAGIC and raw[2] == VERSION and load32(raw + 4) == group \
        and load64(raw + CHECK) == checksum(raw, size)


cdef uint16_t load16(const uint8_t *raw) noexcept nogil:
    """Two bytes of a datagram, wherever they lie: no unaligned access."""
    cdef uint16_t value = 0
    memcpy(&value, raw, 2)
    return value


cdef uint32_t load32(const uint8_t *raw) noexcept nogil:
    cdef uint32_t value = 0
    memcpy(&value, raw, 4)
    return value


cdef uint64_t load64(const uint8_t *raw) noexcept nogil:
    cdef uint64_t value = 0
    memcpy(&value, raw, 8)
    return value


# ---------------------------------------------------------------------------------------------------- receiving

cdef struct Run:
    uint64_t first
    uint32_t count
    uint32_t size
    const uint8_t *lengths
    const uint8_t *payloads


cdef Run nothing() noexcept nogil:
    cdef Run run = [0, 0, 0, NULL, NULL]
    return run


cdef Py_ssize_t read_run(const uint8_t *raw, Py_ssize_t left, Run *run) noexcept nogil:
    """Bytes that the run at `raw` takes, or -1 when it does not fit into the `left` bytes or its lengths do not add up."""
    cdef uint64_t size, k
    cdef uint64_t total = 0
    if left < RUN:
        return -1
    run.first = load64(raw)
    run.count = load32(raw + 8)
    run.size = load32(raw + 12)
    size = RUN + <uint64_t> run.count * LENGTH + <uint64_t> run.size
    if run.count == 0 or size > <uint64_t> left:
        return -1
    run.lengths = raw + RUN
    run.payloads = run.lengths + <uint64_t> run.count * LENGTH
    for k in range(run.count):
        total += load16(run.lengths + k * LENGTH)
    return <Py_ssize_t> size if total == run.size else -1


cdef bint is_whole(const uint8_t *raw, Py_ssize_t size) noexcept nogil:
    """Whether the body is one or more well-formed runs and nothing else."""
    cdef Run run = nothing()
    cdef Py_ssize_t taken
    if size <= 0:
        return False
    while size:
        taken = read_run(raw, size, &run)
        if taken < 0:
            return False
        raw += taken
        size -= taken
    return True


@cython.final
cdef class Arrivals:
    """What a data datagram held: `batches` of messages that the window may accept, and how many it cannot.

    `old` messages are at or below the window's low, `beyond` are above low + capacity; no objects were made for either.
    """

    cdef readonly list batches
    cdef readonly uint64_t old
    cdef readonly uint64_t beyond


def read_data(datagram, uint64_t low, uint64_t capacity):
    """The messages of a data datagram that lie in (low, low + capacity], as Arrivals; None when it is damaged anywhere."""
    cdef Py_buffer view
    cdef Arrivals arrivals = None
    PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
    try:
        if view.len >= HEADER and is_whole(<const uint8_t *> view.buf + HEADER, view.len - HEADER):
            arrivals = Arrivals.__new__(Arrivals)
            arrivals.batches = []
            collect(arrivals, <const uint8_t *> view.buf + HEADER, view.len - HEADER, low, capacity)
    finally:
        PyBuffer_Release(&view)
    return arrivals


cdef int collect(Arrivals arrivals, const uint8_t *raw, Py_ssize_t size, uint64_t low, uint64_t capacity) except -1:
    cdef Run run = nothing()
    cdef Py_ssize_t taken
    cdef uint64_t old = 0
    cdef uint64_t inside
    while size:
        taken = read_run(raw, size, &run)
        raw += taken
        size -= taken
        inside = clip(&run, low, capacity, &old)
        arrivals.old += old
        arrivals.beyond += run.count - old - inside
        if inside:
            arrivals.batches.append(read_batch(&run, old, inside))
    return 0


cdef uint64_t clip(const Run *run, uint64_t low, uint64_t capacity, uint64_t *old) noexcept nogil:
    """How many of the run's messages lie in the window; `old[0]` of them, in front, are at or below low (serial arithmetic)."""
    cdef int64_t behind = <int64_t> (low + 1 - run.first)
    cdef uint64_t count = run.count
    cdef uint64_t start, room
    old[0] = 0
    if behind > 0:
        old[0] = min(<uint64_t> behind, count)
    start = run.first + old[0] - low - 1            # how far above low + 1 the first message that is not old stands
    room = capacity - start if start < capacity else 0
    return min(count - old[0], room)


cdef Batch read_batch(const Run *run, uint64_t skip, uint64_t count):
    """The run's messages from number `skip` on, `count` of them, as a batch without a sender."""
    cdef const uint8_t *payload = run.payloads
    cdef Batch batch = Batch.__new__(Batch)
    cdef list payloads = PyList_New(<Py_ssize_t> count)
    cdef uint16_t length
    cdef uint64_t k
    cdef bytes item
    for k in range(skip):
        payload += load16(run.lengths + k * LENGTH)
    for k in range(count):
        length = load16(run.lengths + (skip + k) * LENGTH)
        item = PyBytes_FromStringAndSize(<const char *> payload, length)
        Py_INCREF(item)
        PyList_SET_ITEM(payloads, <Py_ssize_t> k, item)
        payload += length
    batch.first = run.first + skip
    batch.payloads = payloads
    return batch


# ------------------------------------------------------------------------------------------------------ sending

cdef Py_ssize_t measure(Window ring, uint64_t first, uint64_t last, Py_ssize_t room, uint64_t *count):
    """Payload bytes of the longest run from `first` that is in the ring and fits into `room`; its length in `count[0]`."""
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t length
    cdef PyObject *item
    count[0] = 0
    room -= RUN
    while <int64_t> (last - first - count[0]) >= 0:
        item = ring.peek(first + count[0])
        if item == NULL:
            break
        length = PyBytes_GET_SIZE(<object> item)
        if length + LENGTH > room:
            break
        room -= length + LENGTH
        size += length
        count[0] += 1
    return size


cdef void write_run(uint8_t *raw, Window ring, uint64_t first, uint32_t count, uint32_t size):
    cdef uint8_t *lengths = raw + RUN
    cdef uint8_t *payload = lengths + <uint64_t> count * LENGTH
    cdef PyObject *item
    cdef uint16_t length
    cdef uint32_t k
    memcpy(raw, &first, 8)
    memcpy(raw + 8, &count, 4)
    memcpy(raw + 12, &size, 4)
    for k in range(count):
        item = ring.peek(first + k)
        length = <uint16_t> PyBytes_GET_SIZE(<object> item)
        memcpy(lengths + <uint64_t> k * LENGTH, &length, LENGTH)
        memcpy(payload, PyBytes_AS_STRING(<object> item), length)
        payload += length


cdef bytes pack_run(Window ring, uint64_t *next_seqno, uint64_t last, Py_ssize_t limit, bytes header):
    """One datagram with as many consecutive messages from next_seqno[0] to `last` as `limit` bytes hold; moves next_seqno.

    The caller knows that the first message is in the ring; a message that is alone too large for `limit` goes out alone.
    """
    cdef uint64_t count = 0
    cdef uint64_t first = next_seqno[0]
    cdef Py_ssize_t size = measure(ring, first, last, limit - HEADER, &count)
    cdef bytes datagram
    if count == 0:
        size = measure(ring, first, first, LARGEST - HEADER, &count)
    datagram = PyBytes_FromStringAndSize(NULL, HEADER + RUN + <Py_ssize_t> count * LENGTH + size)
    memcpy(PyBytes_AS_STRING(datagram), PyBytes_AS_STRING(header), HEADER)
    write_run(<uint8_t *> PyBytes_AS_STRING(datagram) + HEADER, ring, first, <uint32_t> count, <uint32_t> size)
    seal(<uint8_t *> PyBytes_AS_STRING(datagram), PyBytes_GET_SIZE(datagram))
    next_seqno[0] = first + count
    return datagram


def pack(Window ring not None, list ranges not None, Py_ssize_t limit, bytes header not None, Py_ssize_t budget):
    """Data datagrams of at most `limit` bytes with the messages of `ranges` [(first, last), ...] that are still in the ring.

    Stops when the datagrams together reach `budget` bytes (pacing). Returns (datagrams, number of messages in them). The cost
    of looking is one step for each seqno between first and last, so clip the ranges to the window first.
    """
    cdef uint64_t seqno = 0
    cdef uint64_t last = 0
    cdef uint64_t count = 0
    cdef uint64_t total = 0
    cdef uint64_t before
    cdef Py_ssize_t size
    cdef Py_ssize_t spent = 0
    cdef Py_ssize_t used = HEADER
    cdef list datagrams = []
    cdef bytearray scratch = bytearray(max(limit, HEADER))
    cdef uint8_t *raw = <uint8_t *> PyByteArray_AS_STRING(scratch)
    if len(header) != HEADER:
        raise ValueError(f"a header has {HEADER} bytes, not {len(header)}; make it with wire.make_header()")
    memcpy(raw, PyBytes_AS_STRING(header), HEADER)
    for seqno, last in ranges:
        while <int64_t> (last - seqno) >= 0 and spent + used - HEADER < budget:
            if ring.peek(seqno) == NULL:
                seqno += 1
                continue
            size = measure(ring, seqno, last, limit - used, &count)
            if count:
                write_run(raw + used, ring, seqno, <uint32_t> count, <uint32_t> size)
                used += RUN + <Py_ssize_t> count * LENGTH + size
                seqno += count
                total += count
                continue
            if used == HEADER:                      # too large for `limit` even alone
                before = seqno
                datagrams.append(pack_run(ring, &seqno, seqno, limit, header))
                total += seqno - before
            else:
                seal(raw, used)
                datagrams.append(PyBytes_FromStringAndSize(<const char *> raw, used))
                used = HEADER
            spent += len(datagrams[len(datagrams) - 1])
    if used > HEADER:
        seal(raw, used)
        datagrams.append(PyBytes_FromStringAndSize(<const char *> raw, used))
    return datagrams, total
