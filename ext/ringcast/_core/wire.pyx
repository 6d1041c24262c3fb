"""Datagrams and bytes: the header that all datagrams have, and runs of messages.

    header   magic u16 | version u8 | kind u8 | group u32 | sender u64 | dest u64 |
             check u64                                           32 bytes, little endian
    data     one or more runs:  first seqno u64 | count u16 | flags u16 | size u32 |
             sent_at i64 | count x length u16 | size bytes of payloads

`sender` and `dest` are incarnations (address.py); dest 0 is everyone. A protocol may
put bytes of its own between header and runs: a layer passes both as one prefix, and
says how many bytes to skip when it reads. All messages of a run have the same flags
(marks.pxd) and left their sender at the same time, `sent_at`; a repeat carries the time
of the first sending (stamps.pyx). All lengths are before the payloads, so that a check
of them does not touch the payloads. Control datagrams have a msgpack body, which the
layers decode.

`check` is a hash of all other bytes and of their number. It finds damage, not malice:
the checksum of UDP has only 16 bits, and there is none on loopback. In a sealed group
the seal finds damage as well, so datagrams have no check (0): their version says so, and
they are no datagrams of a group without a seal, nor the other way round.

Each number in a datagram is checked against the bytes that remain before it is used
(decision 24). A datagram is read as a whole or not at all: then the answer is None.
Sums have 64 bits, so that no count can make them wrap.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ringcast._core.batch cimport Batch
from ringcast._core.marks cimport WIRE, Marks
from ringcast._core.payloads cimport make_payload
from ringcast._core.slots cimport list_items
from ringcast._core.stamps cimport Stamps
from ringcast._core.window cimport Window

cdef extern from *:
    """
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the wire format is little endian; this machine needs byte swaps in wire.pyx"
    #endif
    /* Both halves of a product: each bit of a factor, the highest too, changes many bits,
     * so that no second flip undoes the first. */
    static inline uint64_t ringcast_folded(uint64_t x, uint64_t y) {
        unsigned __int128 product = (unsigned __int128)x * y;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    """
    uint64_t folded "ringcast_folded"(uint64_t x, uint64_t y) noexcept nogil
    uint64_t PRIME "0xD6E8FEB86659FD93ULL"
    uint64_t SEED "0x9E3779B97F4A7C15ULL"

cdef enum:
    MAGIC = 0x4352
    VERSION = 2
    UNCHECKED = 0x80                    # added to the version: the datagram has no check
    CHECK = 24                          # offset of the check
    MOST_IN_RUN = 65535                 # messages: the largest count

# The largest payload: one message alone in the largest datagram.
MAX_PAYLOAD = LARGEST - PREFIX - RUN - LENGTH
MAX_DATAGRAM = LARGEST
HEADER_SIZE = HEADER


@cython.final
cdef class Header:
    """The `kind`, `sender` and `dest` of a datagram (incarnations; dest 0:
    everyone)."""

    cdef readonly uint8_t kind
    cdef readonly uint64_t sender
    cdef readonly uint64_t dest


def make_header(uint8_t kind, uint32_t group, uint64_t sender, uint64_t dest, bint checked=True):
    """Make the 32 bytes before a datagram of this kind.

    The check is missing: it is taken when the datagram is complete, if it is `checked`.
    """
    cdef uint8_t raw[HEADER]
    cdef uint16_t magic = MAGIC
    memset(raw, 0, HEADER)
    memcpy(raw, &magic, 2)
    raw[2] = version_of(checked)
    raw[3] = kind
    memcpy(raw + 4, &group, 4)
    memcpy(raw + 8, &sender, 8)
    memcpy(raw + 16, &dest, 8)
    return PyBytes_FromStringAndSize(<char *> raw, HEADER)


def make_datagram(uint8_t kind, uint32_t group, uint64_t sender, uint64_t dest,
                  bytes body not None, bint checked=True):
    """Make a whole control datagram."""
    cdef bytes datagram = make_header(kind, group, sender, dest, checked) + body
    finish(<uint8_t *> PyBytes_AS_STRING(datagram), PyBytes_GET_SIZE(datagram))
    return datagram


cdef uint8_t version_of(bint checked) noexcept nogil:
    return VERSION if checked else VERSION | UNCHECKED


cdef void finish(uint8_t *raw, Py_ssize_t size) noexcept nogil:
    """Write the check into a complete datagram that nobody else has seen yet, if it has
    one."""
    cdef uint64_t check
    if raw[2] == VERSION:
        check = checksum(raw, size)
        memcpy(raw + CHECK, &check, 8)


cdef uint64_t checksum(const uint8_t *raw, Py_ssize_t size) noexcept nogil:
    """Hash all bytes but the check.

    Four lanes fold pairs of words in and are mixed at the end. Zeros fill the last pair
    up. No word stands in a lane as it is, or the same flip in the next word would undo a
    flip. And words that are often there, such as 0, make no factor 0, which would hide
    the other one.
    """
    cdef uint64_t a = SEED ^ <uint64_t> size
    cdef uint64_t b = folded(SEED ^ load64(raw), PRIME)
    cdef uint64_t c = folded(SEED ^ load64(raw + 8), PRIME)
    cdef uint64_t d = folded(SEED ^ load64(raw + 16), PRIME)
    cdef uint64_t lane
    cdef uint64_t[2] pair
    cdef const uint8_t *at = raw + HEADER
    cdef const uint8_t *end = raw + size
    while end - at >= 64:
        a = folded(a ^ load64(at), PRIME ^ load64(at + 8))
        b = folded(b ^ load64(at + 16), PRIME ^ load64(at + 24))
        c = folded(c ^ load64(at + 32), PRIME ^ load64(at + 40))
        d = folded(d ^ load64(at + 48), PRIME ^ load64(at + 56))
        at += 64
    while at < end:
        pair[0] = pair[1] = 0
        memcpy(pair, at, min(16, end - at))
        lane = folded(a ^ pair[0], PRIME ^ pair[1])
        a, b, c, d = b, c, d, lane
        at += 16
    return mixed(mixed(mixed(mixed(a) + b) + c) + d)


cdef uint64_t mixed(uint64_t x) noexcept nogil:
    """Spread each bit over the word; a bijection."""
    x = (x ^ (x >> 32)) * PRIME
    x = (x ^ (x >> 32)) * PRIME
    return x ^ (x >> 32)


def open_datagram(datagram, uint32_t group, bint checked=True):
    """Read the Header of a datagram, which is any bytes-like object.

    Returns None if it is damaged, or not of ringcast, this version and this group, or has
    a check and is not to be `checked`, or the other way round.
    """
    cdef Py_buffer view
    cdef Header opened = None
    PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
    try:
        if is_ours(<const uint8_t *> view.buf, view.len, group, checked):
            opened = Header.__new__(Header)
            opened.kind = (<const uint8_t *> view.buf)[3]
            opened.sender = load64(<const uint8_t *> view.buf + 8)
            opened.dest = load64(<const uint8_t *> view.buf + 16)
    finally:
        PyBuffer_Release(&view)
    return opened


cdef bint is_ours(const uint8_t *raw, Py_ssize_t size, uint32_t group,
                  bint checked) noexcept nogil:
    return (is_readable(raw, size, checked) and load32(raw + 4) == group
            and (not checked or load64(raw + CHECK) == checksum(raw, size)))


cdef bint is_readable(const uint8_t *raw, Py_ssize_t size, bint checked) noexcept nogil:
    """Return whether a datagram has a whole header of ringcast and of this version."""
    return size >= HEADER and load16(raw) == MAGIC and raw[2] == version_of(checked)


def is_foreign(datagram, uint32_t group, bint checked=True):
    """Return whether a datagram is of another group, as far as its header tells: the
    check is not looked at."""
    cdef Py_buffer view
    cdef const uint8_t *raw
    PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
    try:
        raw = <const uint8_t *> view.buf
        return is_readable(raw, view.len, checked) and load32(raw + 4) != group
    finally:
        PyBuffer_Release(&view)


cdef uint16_t load16(const uint8_t *raw) noexcept nogil:
    """Read two bytes of a datagram at any place, without an unaligned access."""
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


# --- receiving ------------------------------------------------------------------------

cdef Run empty_run() noexcept nogil:
    cdef Run run = [0, 0, 0, 0, 0, NULL, NULL]
    return run


cdef Py_ssize_t read_run(const uint8_t *raw, Py_ssize_t left, Run *run) noexcept nogil:
    """Read the run at `raw` into *run. Returns how many bytes it takes.

    -1: it does not fit into the `left` bytes, or its lengths do not add up.
    """
    cdef uint64_t size, k
    cdef uint64_t total = 0
    if left < RUN:
        return -1
    run.first = load64(raw)
    run.count = load16(raw + 8)
    run.flags = load16(raw + 10)
    run.size = load32(raw + 12)
    run.sent_at = <int64_t> load64(raw + 16)
    size = RUN + run.count * LENGTH + <uint64_t> run.size
    if run.count == 0 or run.flags & ~WIRE or size > <uint64_t> left:
        return -1
    run.lengths = raw + RUN
    run.payloads = run.lengths + run.count * LENGTH
    for k in range(run.count):
        total += load16(run.lengths + k * LENGTH)
    return <Py_ssize_t> size if total == run.size else -1


cdef bint is_whole(const uint8_t *raw, Py_ssize_t size) noexcept nogil:
    """Test if the body is one or more sound runs and nothing else."""
    cdef Run run = empty_run()
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
    """The messages of data datagrams: `batches` that the window may accept, and counts.

    `old` messages are at or below the window's low, `beyond` are above low + capacity;
    no objects are made for them. `first` is the lowest seqno of all.
    """

    cdef readonly list batches
    cdef readonly list late                 # see read_all()
    cdef readonly uint64_t inside           # messages in the batches
    cdef readonly uint64_t old
    cdef readonly uint64_t beyond
    cdef readonly uint64_t first
    cdef readonly uint64_t damaged          # datagrams of which nothing was read

    def put(self, Window ring not None, Stamps stamps not None):
        """Put the messages without flags into a window, and their send times into
        `stamps`.

        Returns how many were new. The others stay in `batches`.
        """
        cdef uint64_t added = 0
        cdef uint64_t low = ring.c_low()
        cdef list others = []
        cdef Batch batch
        for batch in self.batches:
            if batch.bits:
                others.append(batch)
                continue
            stamps.c_fill(low, batch.first, <uint64_t> len(batch.payloads), batch.stamp)
            with cython.critical_section(ring):
                added += ring.c_add_run(batch.first, list_items(<PyObject *> batch.payloads),
                                        <uint64_t> len(batch.payloads))
        self.batches = others
        return added


cdef Arrivals no_arrivals(uint64_t first):
    cdef Arrivals arrivals = Arrivals.__new__(Arrivals)
    arrivals.batches = []
    arrivals.late = []
    arrivals.first = first
    return arrivals


def read_all(list datagrams not None, uint64_t low, uint64_t capacity, uint64_t highest):
    """Read the messages of data datagrams of one sender, in the order of their coming,
    that lie in (low, low + capacity], as Arrivals.

    `highest` is the highest seqno that came before. `late` has the first seqno of each
    datagram that has nothing above what came before it. Damaged datagrams are counted.
    """
    cdef Arrivals arrivals = no_arrivals(highest + 1)
    cdef uint64_t first = 0
    cdef uint64_t last = 0
    cdef Py_buffer view
    for datagram in datagrams:
        PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
        try:
            if view.len < HEADER or not is_whole(<const uint8_t *> view.buf + HEADER,
                                                 view.len - HEADER):
                arrivals.damaged += 1
                continue
            first = load64(<const uint8_t *> view.buf + HEADER)
            last = collect(arrivals, <const uint8_t *> view.buf + HEADER, view.len - HEADER, low,
                           capacity)
        finally:
            PyBuffer_Release(&view)
        if <int64_t> (last - highest) > 0:
            highest = last
        else:
            arrivals.late.append(first)
    return arrivals


def read_data(datagram, uint64_t low, uint64_t capacity, Py_ssize_t prefix=HEADER):
    """Read the messages of a data datagram that lie in (low, low + capacity], as
    Arrivals.

    The runs begin after `prefix` bytes, at least HEADER_SIZE. Returns None if the
    datagram is damaged anywhere.
    """
    cdef Py_buffer view
    cdef Arrivals arrivals = None
    if prefix < HEADER:
        raise ValueError(f"a prefix has at least {HEADER} bytes, not {prefix}")
    PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
    try:
        if view.len >= prefix and is_whole(<const uint8_t *> view.buf + prefix, view.len - prefix):
            arrivals = no_arrivals(load64(<const uint8_t *> view.buf + prefix))
            collect(arrivals, <const uint8_t *> view.buf + prefix, view.len - prefix, low, capacity)
    finally:
        PyBuffer_Release(&view)
    return arrivals


cdef uint64_t collect(Arrivals arrivals, const uint8_t *raw, Py_ssize_t size, uint64_t low,
                      uint64_t capacity) except? 0:
    """Read sound runs into the arrivals. Returns the last seqno."""
    cdef Run run = empty_run()
    cdef Py_ssize_t taken
    cdef uint64_t old = 0
    cdef uint64_t inside
    while size:
        taken = read_run(raw, size, &run)
        raw += taken
        size -= taken
        inside = clip(&run, low, capacity, &old)
        arrivals.inside += inside
        arrivals.old += old
        arrivals.beyond += run.count - old - inside
        if inside:
            arrivals.batches.append(read_batch(&run, old, inside))
        if <int64_t> (run.first - arrivals.first) < 0:
            arrivals.first = run.first
    return run.first + run.count - 1


cdef uint64_t clip(const Run *run, uint64_t low, uint64_t capacity, uint64_t *old) noexcept nogil:
    """Count the messages of a run that lie in the window.

    *old messages before them are at or below low (serial arithmetic).
    """
    cdef int64_t behind = <int64_t> (low + 1 - run.first)
    cdef uint64_t count = run.count
    cdef uint64_t start, room
    old[0] = 0
    if behind > 0:
        old[0] = min(<uint64_t> behind, count)
    start = run.first + old[0] - low - 1        # of the first that is not old, above low + 1
    room = capacity - start if start < capacity else 0
    return min(count - old[0], room)


cdef Batch read_batch(const Run *run, uint64_t skip, uint64_t count):
    """Make a batch, without a sender, of `count` messages of the run behind the first
    `skip`."""
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
        item = make_payload(<const char *> payload, length)
        Py_INCREF(item)
        PyList_SET_ITEM(payloads, <Py_ssize_t> k, item)
        payload += length
    batch.first = run.first + skip
    batch.bits = run.flags
    batch.stamp = run.sent_at
    batch.payloads = payloads
    return batch


def first_seqno(datagram, Py_ssize_t prefix=HEADER):
    """Read the seqno of the first message of a data datagram.

    The datagram may be damaged behind it. Returns None if it is too short.
    """
    cdef Py_buffer view
    found = None
    PyObject_GetBuffer(datagram, &view, PyBUF_SIMPLE)
    try:
        if prefix >= HEADER and view.len >= prefix + RUN:
            found = load64(<const uint8_t *> view.buf + prefix)
    finally:
        PyBuffer_Release(&view)
    return found


# --- sending --------------------------------------------------------------------------

cdef enum:
    MOST_RUNS = 64                      # of one datagram


cdef struct Plan:                       # the runs of the next datagram
    uint64_t first[MOST_RUNS]
    uint16_t count[MOST_RUNS]
    uint16_t flags[MOST_RUNS]
    uint32_t size[MOST_RUNS]            # payload bytes
    int64_t sent_at[MOST_RUNS]
    int runs
    Py_ssize_t used                     # bytes of the datagram so far
    uint64_t messages


cdef struct Walk:                       # over messages of a window, one after the other
    PyObject **items
    uint64_t left                       # of them, before the window is asked again


cdef inline PyObject *walk_to(Walk *walk, Window ring, uint64_t seqno) noexcept:
    """Return the item of a seqno, or NULL. It is the first one, or follows the last."""
    if walk.left == 0:
        walk.items = ring.c_run(seqno, &walk.left)
        if walk.left == 0:
            return NULL
    walk.left -= 1
    walk.items += 1
    return (walk.items - 1)[0]


cdef Py_ssize_t add_run(Plan *plan, Window ring, Marks marks, Stamps stamps, uint64_t first,
                        uint64_t last, Py_ssize_t limit):
    """Plan the longest run of messages from `first` on that fits.

    They are in the window, and have the same flags and send time. Returns how many.
    """
    cdef Py_ssize_t room = limit - plan.used - RUN
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t length
    cdef uint64_t count = 0
    cdef bint marked = len(marks.flags) != 0
    cdef uint16_t flags = marks.of(first) & WIRE
    cdef int64_t sent_at = stamps.of(first)
    cdef Walk walk = [NULL, 0]
    cdef PyObject *item
    if plan.runs == MOST_RUNS:
        return 0
    while <int64_t> (last - first - count) >= 0 and count < MOST_IN_RUN:
        item = walk_to(&walk, ring, first + count)
        if item == NULL or stamps.of(first + count) != sent_at:
            break
        if marked and marks.of(first + count) & WIRE != flags:
            break
        length = PyBytes_GET_SIZE(<object> item)
        if length + LENGTH > room:
            break
        room -= length + LENGTH
        size += length
        count += 1
    if count:
        plan.first[plan.runs] = first
        plan.count[plan.runs] = <uint16_t> count
        plan.flags[plan.runs] = flags
        plan.size[plan.runs] = <uint32_t> size
        plan.sent_at[plan.runs] = sent_at
        plan.runs += 1
        plan.used += RUN + <Py_ssize_t> count * LENGTH + size
        plan.messages += count
    return <Py_ssize_t> count


cdef bytes write_plan(const Plan *plan, Window ring, bytes prefix):
    """Write the planned datagram."""
    cdef bytes datagram = PyBytes_FromStringAndSize(NULL, plan.used)
    cdef uint8_t *raw = <uint8_t *> PyBytes_AS_STRING(datagram)
    cdef uint8_t *at = raw + PyBytes_GET_SIZE(prefix)
    cdef int run
    memcpy(raw, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
    for run in range(plan.runs):
        at = write_run(at, ring, plan.first[run], plan.count[run], plan.flags[run],
                       plan.size[run], plan.sent_at[run])
    finish(raw, plan.used)
    return datagram


cdef uint8_t *write_run(uint8_t *raw, Window ring, uint64_t first, uint16_t count,
                        uint16_t flags, uint32_t size, int64_t sent_at):
    """Write one run, and return the place behind it."""
    cdef uint8_t *lengths = raw + RUN
    cdef uint8_t *payload = lengths + <uint64_t> count * LENGTH
    cdef Walk walk = [NULL, 0]
    cdef PyObject *item
    cdef uint16_t length
    cdef uint32_t k
    memcpy(raw, &first, 8)
    memcpy(raw + 8, &count, 2)
    memcpy(raw + 10, &flags, 2)
    memcpy(raw + 12, &size, 4)
    memcpy(raw + 16, &sent_at, 8)
    for k in range(count):
        item = walk_to(&walk, ring, first + k)
        length = <uint16_t> PyBytes_GET_SIZE(<object> item)
        memcpy(lengths + <uint64_t> k * LENGTH, &length, LENGTH)
        memcpy(payload, PyBytes_AS_STRING(<object> item), length)
        payload += length
    return payload


cdef void begin(Plan *plan, bytes prefix):
    """Begin the plan of a datagram."""
    plan.runs = 0
    plan.messages = 0
    plan.used = PyBytes_GET_SIZE(prefix)


cdef bytes pack_next(Window ring, Marks marks, Stamps stamps, uint64_t *next_seqno, uint64_t last,
                     Py_ssize_t limit, bytes prefix, Py_ssize_t *waited):
    """Write one datagram with messages from *next_seqno to `last`, as `limit` bytes
    hold.

    Moves *next_seqno behind them. *waited becomes the bytes that they take, without
    those that each run takes once. The caller knows that the first message is in the
    window. A message that is larger than `limit` goes out alone.
    """
    cdef Plan plan
    begin(&plan, prefix)
    while (<int64_t> (last - next_seqno[0]) >= 0
           and add_run(&plan, ring, marks, stamps, next_seqno[0], last, limit)):
        next_seqno[0] += plan.count[plan.runs - 1]
    if plan.runs == 0:
        next_seqno[0] += <uint64_t> add_run(&plan, ring, marks, stamps, next_seqno[0],
                                            next_seqno[0], LARGEST)
    waited[0] = plan.used - PyBytes_GET_SIZE(prefix) - plan.runs * RUN
    return write_plan(&plan, ring, prefix)


cdef int check_prefix(bytes prefix) except -1:
    """Raise ValueError if a prefix is too short to begin with a header."""
    if len(prefix) < HEADER:
        raise ValueError(f"a prefix begins with a header of {HEADER} bytes, this has "
                         f"{len(prefix)}; make it with wire.make_header()")
    return 0


def pack(Window ring not None, Marks marks not None, Stamps stamps not None, list ranges not None,
         Py_ssize_t limit, bytes prefix not None, Py_ssize_t budget):
    """Write the messages of `ranges` that are still in the window into data datagrams.

    `ranges` is [(first, last), ...], a datagram has at most `limit` bytes. Stops when
    the datagrams together reach `budget` bytes (pacing). Returns (datagrams, number of
    messages in them). Looking takes one step for each seqno from first to last, so clip
    the ranges to the window first.
    """
    check_prefix(prefix)
    with cython.critical_section(ring):
        return pack_ranges(ring, marks, stamps, ranges, limit, prefix, budget)


cdef tuple pack_ranges(Window ring, Marks marks, Stamps stamps, list ranges, Py_ssize_t limit,
                       bytes prefix, Py_ssize_t budget):
    cdef uint64_t seqno = 0
    cdef uint64_t last = 0
    cdef uint64_t total = 0
    cdef Py_ssize_t spent = 0
    cdef Py_ssize_t count
    cdef Plan plan
    cdef list datagrams = []
    begin(&plan, prefix)
    for seqno, last in ranges:
        while <int64_t> (last - seqno) >= 0 and spent + plan.used - len(prefix) < budget:
            if ring.peek(seqno) == NULL:
                seqno += 1
                continue
            count = add_run(&plan, ring, marks, stamps, seqno, last, limit)
            if count == 0 and plan.runs == 0:           # too large for `limit` even alone
                count = add_run(&plan, ring, marks, stamps, seqno, seqno, LARGEST)
            if count:
                seqno += <uint64_t> count
                continue
            datagrams.append(write_plan(&plan, ring, prefix))
            spent += plan.used
            total += plan.messages
            begin(&plan, prefix)
    if plan.runs:
        datagrams.append(write_plan(&plan, ring, prefix))
        total += plan.messages
    return datagrams, total
