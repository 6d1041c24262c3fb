"""RingBuffer: a delivery window of fixed capacity with three seqnos, LOW <= HD <= HR <= LOW+capacity.

Messages are added in any order and by any thread, each seqno once; they are removed in order, up to the first gap.
HD is the highest delivered seqno, HR the highest received one, LOW the end of what was freed: by removal (nullify) or
by stable(), once all members have the message. What is missing between HD and HR can be asked for. The same window
serves a sender: send() takes the next seqno and stores the item in one step, and only when there is room
(decision 13). Memory layout and concurrent access are the business of block_ring.pxd; this module adds references,
the GIL, the cycle collector and Python's names.
"""

cimport cython
from cpython.list cimport PyList_GET_SIZE, PyList_New
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.atomics cimport load_acquire, load_relaxed, store_release
from ringcast._core.block_ring cimport (
    BLOCK, Position, Ring, advance_hd, ask_to_free, blocks_held, claim_bits, count_bits, count_missing, destroy_ring,
    empty_block, free_wanted, gap_limits, give_bytes, held_bits, in_window, last_taken, locate, look_run, lowest_bit,
    make_ring, ones, payload, pin_slot, publish, raise_to, ready, reserve, room, scan, slot_of, slots_at,
    take_bytes, take_run, to_next_block, unpack, unpin_block,
)
from ringcast._core.seqno cimport ahead, natural

cdef object ClosedError
from ringcast.errors import ClosedError

cdef extern from "Python.h":
    ctypedef int (*visitproc)(PyObject *, void *) noexcept
    ctypedef int (*traverseproc)(PyObject *, visitproc, void *) noexcept
    ctypedef int (*inquiry)(PyObject *) noexcept
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
        inquiry tp_clear
    void Py_INCREF(PyObject *)
    void Py_DECREF(PyObject *)
    PyObject **list_items "PySequence_Fast_ITEMS"(PyObject *)

cdef enum:
    CAPACITY_MAX = 1 << 26


# --- arguments ---------------------------------------------------------------------------------------------------

cdef int refuse_none() except -1:
    raise TypeError("None cannot be an item, because remove() and get() answer None for 'not there'; "
                    "pass any other object, such as b''")


cdef int check_items(list items, uint64_t start, uint64_t end) except -1:
    cdef PyObject **values = list_items(<PyObject *>items)
    cdef uint64_t k
    for k in range(start, end):
        if values[k] == <PyObject *>None:
            refuse_none()
    return 0


# --- references --------------------------------------------------------------------------------------------------

cdef inline void hold(PyObject **items, uint32_t mask) noexcept:
    """The window's own references, taken between claim and publication."""
    while mask:
        Py_INCREF(items[lowest_bit(mask)])
        mask &= mask - 1


cdef void release(PyObject **items, uint64_t count) noexcept:
    """Drop references that are no longer in the window; a finaliser may call the window back."""
    cdef uint64_t k
    for k in range(count):
        Py_DECREF(items[k])


@cython.final
@cython.trashcan(True)
cdef class RingBuffer:
    """A window of `capacity` seqnos, at first offset+1 .. offset+capacity.

    `capacity` is 1 to 2**26, `offset` 0 to 2**64-1; seqnos wrap at 2**64. With `max_bytes` the window holds at most so
    many bytes of payload, counting len() of `bytes` items only. An add beyond that is refused like one beyond the
    capacity, but seqno HD+1 is always let in, and send() always lets in one item when nothing is held: otherwise an
    item larger than the bound, or a window filled behind a gap, would stand still for ever.

    Items are any object but None. A seqno that is old, there already, or beyond the window is an ordinary False. Wrong
    types raise TypeError, impossible arguments ValueError, and both leave the window as it was. A window is filled
    either by add() (as a receiver) or by send() (as a sender).

    *Threads.* Any thread may call any method: each call is one step under the GIL, except that finalisers of released
    items run after LOW has moved, and may call the window back. Two threads that deliver must order their deliveries
    themselves. Beneath the GIL, compiled readers may pin an item and let the GIL go: removal then delivers a new
    reference and leaves the slot, and LOW follows with the first remove() or stable() after the unpin. Words that
    such a reader shares with the rest go through atomics.h only.
    """

    def __cinit__(self, capacity, offset=0, *, max_bytes=0):
        cdef uint64_t slots = natural(capacity, "capacity")
        if not 1 <= slots <= CAPACITY_MAX:
            raise ValueError(f"capacity is {capacity}; pass a number of messages from 1 to 2**26")
        self.ring = make_ring(slots, natural(offset, "offset"), natural(max_bytes, "max_bytes"))
        if self.ring == NULL:
            raise MemoryError(f"no memory for a window of {capacity} messages")

    def __dealloc__(self):
        if self.ring != NULL:
            self.release_all()
            destroy_ring(self.ring)

    # --- adding

    def add(self, seqno, item):
        """Store item under seqno; True for exactly one caller per seqno, else False (old, duplicate, or no room)."""
        return self.c_add(natural(seqno, "seqno"), item)

    def add_many(self, first_seqno, list items not None):
        """Store items under first_seqno, first_seqno+1, ...; returns how many of them were new and had room."""
        cdef uint64_t first = natural(first_seqno, "first_seqno")
        cdef uint64_t count = <uint64_t>PyList_GET_SIZE(items)
        check_items(items, 0, count)
        return self.c_add_run(first, list_items(<PyObject *>items), count)

    def announce(self, seqno):
        """The sender has sent up to seqno: raise HR to it, at most to LOW+capacity, so that missing() shows the tail.

        Returns HR."""
        cdef uint64_t upto = natural(seqno, "seqno")
        cdef uint64_t limit = load_relaxed(&self.ring.low) + load_relaxed(&self.ring.bound)
        raise_to(&self.ring.hr, limit if ahead(upto, limit) > 0 else upto)
        return load_relaxed(&self.ring.hr)

    cdef bint c_add(self, uint64_t seqno, object item) except -1:
        cdef PyObject *value = <PyObject *>item
        if item is None:
            refuse_none()
        return in_window(self.ring, seqno) and self.place(seqno, &value, 1) == 1

    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        """The part of a run that is in the window, block by block."""
        cdef Ring *r = self.ring
        cdef uint64_t low = load_acquire(&r.low), total = 0, skip = 0, step   # pairs with the store_release of low
        cdef uint64_t end = low + load_relaxed(&r.bound)
        if ahead(seqno, low) <= 0:
            skip = min(low + 1 - seqno, count)
        if ahead(seqno + count - 1, end) > 0:
            count -= min(seqno + count - 1 - end, count)
        while skip < count:
            step = min(<uint64_t>(BLOCK - locate(r, seqno + skip).bit), count - skip)
            total += self.place(seqno + skip, items + skip, step)
            skip += step
        return total

    cdef uint64_t place(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        """Add a run that lies in the window and in one block; returns how many were new and had room."""
        cdef Ring *r = self.ring
        cdef uint64_t size = payload(items, count) if r.max_bytes else 0
        cdef uint64_t k, new = 0
        cdef uint32_t got
        if size and not take_bytes(r, size, count == 1 and seqno == load_relaxed(&r.hd) + 1):
            if count > 1:
                for k in range(count):
                    new += self.place(seqno + k, items + k, 1)
            return new
        got = self.put(seqno, items, count)
        if size and got != ones(count):
            for k in range(count):
                if not got >> k & 1:
                    give_bytes(r, items + k, 1)
        return count_bits(got)

    cdef uint32_t put(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        """Claim, take references, publish; bit k of the answer says that items[k] is in the window now."""
        cdef Position at = locate(self.ring, seqno)
        cdef uint32_t got = claim_bits(self.ring, at, ones(count) << at.bit)
        if got:
            hold(items, got >> at.bit)
            publish(self.ring, at, seqno, got, items)
        return got >> at.bit

    # --- sending

    def send(self, item):
        """Take the next seqno and store item under it: one step. False when there is no room, and no seqno is taken.

        Raises ClosedError after close(): no room would ever come."""
        return self.c_send(item)

    def send_many(self, list items not None, start=0):
        """send() for items[start:], as far as there is room; returns how many were taken, in order from items[start].

        Their seqnos are the ones from next_seqno on. Only items that have room are looked at."""
        cdef uint64_t size = <uint64_t>PyList_GET_SIZE(items), begin = natural(start, "start")
        if begin > size:
            raise ValueError(f"start is {begin}, but there are {size} items; pass at most that")
        cdef uint64_t count = min(size - begin, room(self.ring))
        check_items(items, begin, begin + count)
        if count == 0 and begin < size:
            self.refuse_when_closed()
        return self.c_send_run(list_items(<PyObject *>items) + begin, count)

    def reserve(self, count):
        """Take up to `count` of the next seqnos, as many as fit now, in one step; returns how many.

        They start at what next_seqno was. Whoever reserves must add every one of them, or receivers wait for ever;
        a window bounded in bytes may refuse, so use send() there. Raises ClosedError after close()."""
        cdef uint64_t first = 0, wanted = natural(count, "count")
        cdef uint64_t got = self.c_reserve(wanted, &first)
        if got == 0 and wanted:
            self.refuse_when_closed()
        return got

    cdef bint c_send(self, object item) except -1:
        cdef PyObject *value = <PyObject *>item
        if item is None:
            refuse_none()
        return self.c_send_run(&value, 1) == 1 or self.refuse_when_closed()

    cdef uint64_t c_send_run(self, PyObject **items, uint64_t count) noexcept:
        cdef Ring *r = self.ring
        cdef uint64_t fit = self.count_bytes_in(items, min(count, room(r)))
        cdef uint64_t first = 0, sent = 0, step
        cdef uint64_t got = reserve(r, fit, &first)
        while sent < got:
            step = min(<uint64_t>(BLOCK - locate(r, first + sent).bit), got - sent)
            self.put(first + sent, items + sent, step)
            sent += step
        return got

    cdef uint64_t count_bytes_in(self, PyObject **items, uint64_t count) noexcept:
        """How many of items fit the byte bound; their bytes are counted in. An empty window takes one of any size."""
        cdef Ring *r = self.ring
        cdef bint empty = self.c_next() == load_relaxed(&r.low) + 1
        cdef uint64_t k
        if r.max_bytes:
            for k in range(count):
                if not take_bytes(r, payload(items + k, 1), empty and k == 0):
                    return k
        return count

    cdef uint64_t c_reserve(self, uint64_t count, uint64_t *first) noexcept:
        return reserve(self.ring, count, first)

    cdef bint refuse_when_closed(self) except -1:
        """False, the answer of a full window; a closed one raises."""
        if load_relaxed(&self.ring.bound) == 0:
            raise ClosedError("the window is closed and nothing was sent; make a new one")
        return False

    # --- delivering

    def remove(self, bint nullify=True):
        """The next item in order, or None at a gap. nullify empties its slot; without, get() finds it until stable().

        LOW follows HD unless there are items before it that were delivered with nullify=False."""
        cdef PyObject *value = NULL
        cdef object item
        if self.deliver(&value, 1, nullify) == 0:
            return None
        item = <object>value
        Py_DECREF(value)
        return item

    def remove_many(self, limit=0, bint nullify=True):
        """What remove() would return one by one up to the next gap, as a list; at most `limit` items unless it is 0."""
        cdef uint64_t most = natural(limit, "limit")
        cdef uint64_t count = ready(self.ring, most if most else self.ring.capacity)
        cdef list out = PyList_New(<Py_ssize_t>count)
        # A collection inside PyList_New may run a finaliser that removes: then there is less than was counted.
        cdef uint64_t got = self.deliver(list_items(<PyObject *>out), count, nullify)
        return out if got == count else out[:got]

    cdef uint64_t deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept:
        """Move up to limit items, in order, to out as new references; advances HD, and LOW where nothing is kept."""
        cdef Ring *r = self.ring
        cdef uint64_t total = 0, run
        while total < limit:
            run = take_run(r, out + total, limit - total) if nullify else 0
            if run:
                give_bytes(r, out + total, run)
            else:
                run = self.share(out + total, limit - total)
            if run == 0:
                break
            total += run
        if not nullify:
            r.kept = load_relaxed(&r.hd) if total else r.kept
        elif load_relaxed(&r.low) != load_relaxed(&r.hd) and ahead(r.kept, load_relaxed(&r.low)) <= 0:
            self.purge(load_relaxed(&r.hd))     # left behind by removals that met a pinned block
        return total

    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept:
        """Deliver one block's run by new references; its slots are left to the purge."""
        cdef uint64_t run = look_run(self.ring, out, limit), k
        for k in range(run):
            Py_INCREF(out[k])
        if run:
            advance_hd(self.ring, run)
        return run

    # --- freeing

    def stable(self, seqno):
        """Free LOW+1..min(seqno, HD) and advance LOW; returns how many seqnos that were. LOW never moves back.

        A call from a finaliser that runs inside stable() hands its wish to the call already running and returns 0."""
        return self.purge(natural(seqno, "seqno"))

    def close(self):
        """Release all items, at once and for good. May be called again.

        Afterwards nothing is in the window: add() is False, remove() and get() are None, missing() is empty; LOW, HD
        and HR stay. send() and reserve() raise ClosedError."""
        self.release_all()

    cdef uint64_t purge(self, uint64_t seqno) noexcept:
        """Ask for LOW to go to seqno; whoever finds the token free moves it until nobody has asked for more.

        Items are released block by block, after LOW has moved."""
        cdef Ring *r = self.ring
        cdef PyObject *out[BLOCK]
        cdef uint64_t asked = 0, freed = 0, step
        cdef uint32_t count = 0
        if not ask_to_free(r, seqno, &asked):
            return 0
        while True:
            step = free_wanted(r, &asked, out, &count)
            if step == 0:
                return freed
            give_bytes(r, out, count)
            release(out, count)
            freed += step

    cdef void release_all(self) noexcept:
        """Shut the window, then release what is in it; a pinned block keeps its items until the window goes."""
        cdef Ring *r = self.ring
        cdef PyObject *out[BLOCK]
        cdef Position at
        cdef uint32_t count
        store_release(&r.bound, 0)                  # read relaxed by every test for room; nothing else hangs on it
        cdef uint64_t left = blocks_held(r, &at)
        while left:
            count = empty_block(r, at, out)
            give_bytes(r, out, count)
            release(out, count)
            to_next_block(r, &at)
            left -= 1

    # --- looking

    def get(self, seqno):
        """The item of seqno while the window holds it, else None: for answering a request for retransmission."""
        cdef uint64_t wanted = natural(seqno, "seqno")
        cdef PyObject *value = self.pin(wanted)
        cdef object item
        if value == NULL:
            return None
        item = <object>value
        self.unpin(wanted)
        return item

    def missing(self, limit=0, upto=None):
        """Gaps among HD+1..min(HR, upto) as (first, last) pairs, oldest first; at most `limit` of them, 0 for all."""
        cdef uint64_t most = natural(limit, "limit"), seqno = 0, last = 0, end
        cdef uint64_t bound = load_relaxed(&self.ring.hr) if upto is None else natural(upto, "upto")
        cdef list gaps = []
        cdef Position at
        if not gap_limits(self.ring, &seqno, &last):
            return gaps
        if ahead(last, bound) > 0:
            last = bound
        at = locate(self.ring, seqno)
        while ahead(last, seqno) >= 0 and (most == 0 or <uint64_t>len(gaps) < most):
            seqno = scan(self.ring, &at, seqno, last, False)
            end = scan(self.ring, &at, seqno, last, True)
            if end != seqno:
                gaps.append((seqno, end - 1))
            seqno = end
        return gaps

    def __len__(self):
        """How many items the window holds, delivered or not."""
        cdef Position at
        cdef uint64_t left = blocks_held(self.ring, &at), total = 0
        while left:
            total += count_bits(held_bits(self.ring, at))
            to_next_block(self.ring, &at)
            left -= 1
        return <Py_ssize_t>total

    @property
    def nbytes(self):
        """Payload bytes that the window holds."""
        cdef PyObject *out[BLOCK]
        cdef Position at
        cdef uint64_t left = blocks_held(self.ring, &at), total = 0
        if self.ring.max_bytes:
            return load_relaxed(&self.ring.nbytes)
        while left:
            total += payload(out, unpack(slots_at(self.ring, at), held_bits(self.ring, at), out))
            to_next_block(self.ring, &at)
            left -= 1
        return total

    @property
    def low(self):
        """Everything up to here is freed."""
        return self.c_low()

    @property
    def hd(self):
        """The highest delivered seqno."""
        return self.c_hd()

    @property
    def hr(self):
        """The highest received, sent or announced seqno."""
        return self.c_hr()

    @property
    def next_seqno(self):
        """The seqno that the next send takes, when there is room."""
        return self.c_next()

    @property
    def capacity(self):
        return self.ring.capacity

    @property
    def max_bytes(self):
        """The bound in bytes; 0 says that there is none. A bound may be changed to another one while the window is in use;
        what is held beyond a smaller one stays."""
        return self.ring.max_bytes

    @max_bytes.setter
    def max_bytes(self, value):
        cdef uint64_t bound = natural(value, "max_bytes")
        if bool(bound) != bool(self.ring.max_bytes):
            raise ValueError("a window counts bytes from the start or never; choose that when you make it")
        self.ring.max_bytes = bound

    @property
    def num_missing(self):
        """How many seqnos between HD and HR are missing."""
        return count_missing(self.ring)

    cdef PyObject *peek(self, uint64_t seqno) noexcept:
        return slot_of(self.ring, seqno)

    cdef PyObject *pin(self, uint64_t seqno) noexcept nogil:
        return pin_slot(self.ring, seqno)

    cdef void unpin(self, uint64_t seqno) noexcept nogil:
        unpin_block(&self.ring.blocks[locate(self.ring, seqno).block])

    cdef uint64_t c_low(self) noexcept:
        return load_relaxed(&self.ring.low)

    cdef uint64_t c_hd(self) noexcept:
        return load_relaxed(&self.ring.hd)

    cdef uint64_t c_hr(self) noexcept:
        return load_relaxed(&self.ring.hr)

    cdef uint64_t c_next(self) noexcept:
        return last_taken(self.ring) + 1


# --- the cycle collector: Cython has no hook for slots that it does not know, so its two functions are wrapped -----

cdef PyTypeObject *slots_of_type = <PyTypeObject *>RingBuffer
cdef traverseproc traverse_attributes = slots_of_type.tp_traverse
cdef inquiry clear_attributes = slots_of_type.tp_clear


cdef int traverse(PyObject *window, visitproc visit, void *arg) noexcept:
    """Visit each item once; the collector stops the world, so no block changes under it."""
    cdef Ring *r = (<RingBuffer>window).ring
    cdef PyObject *out[BLOCK]
    cdef Position at
    cdef uint32_t count, k
    cdef int stop = traverse_attributes(window, visit, arg)
    cdef uint64_t left = blocks_held(r, &at) if r != NULL else 0
    while left and not stop:
        count = unpack(slots_at(r, at), held_bits(r, at), out)
        for k in range(count):
            stop = stop or visit(out[k], arg)
        to_next_block(r, &at)
        left -= 1
    return stop


cdef int clear(PyObject *window) noexcept:
    clear_attributes(window)
    (<RingBuffer>window).release_all()
    return 0


slots_of_type.tp_traverse = traverse
slots_of_type.tp_clear = clear
