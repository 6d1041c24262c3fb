# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What tests need below the GIL: the C API as another module sees it, an add in single steps,
threads without GIL."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from ringcast._core.atomics cimport load_acquire
from ringcast._core.block_ring cimport (
    BLOCK, Position, Ring, advance_hd, claim_bits, destroy_ring, free_block, in_window, locate,
    look_run, make_ring, publish, take_run, wanted_to,
)
from ringcast._core.ring_buffer cimport RingBuffer
from ringcast._core.seqno cimport ahead, raise_to
from ringcast._core.slots cimport ones
from ringcast._core.window cimport Py_INCREF, Window

cdef extern from "<sched.h>" nogil:
    int sched_yield()


class Interface:
    """The functions of window.pxd."""

    @staticmethod
    def add(Window ring, uint64_t seqno, item):
        return ring.c_add(seqno, item)

    @staticmethod
    def send(Window ring, item):
        return ring.c_send(item)

    @staticmethod
    def peek(Window ring, uint64_t seqno):
        cdef PyObject *item = ring.peek(seqno)
        return None if item == NULL else <object>item

    @staticmethod
    def pointers(Window ring):
        return ring.c_low(), ring.c_hd(), ring.c_hr()


cdef extern from "Python.h":
    ctypedef enum PyMemAllocatorDomain:
        PYMEM_DOMAIN_MEM
    ctypedef struct PyMemAllocatorEx:
        void *ctx
        void *(*malloc)(void *, size_t) noexcept
        void *(*calloc)(void *, size_t, size_t) noexcept
        void *(*realloc)(void *, void *, size_t) noexcept
        void (*free)(void *, void *) noexcept
    void PyMem_GetAllocator(PyMemAllocatorDomain, PyMemAllocatorEx *)
    void PyMem_SetAllocator(PyMemAllocatorDomain, PyMemAllocatorEx *)

cdef PyMemAllocatorEx usual
cdef int until_failure


cdef void *failing_malloc(void *context, size_t size) noexcept:
    global until_failure
    until_failure -= 1
    return NULL if until_failure == -1 else usual.malloc(context, size)


cdef void *failing_calloc(void *context, size_t count, size_t size) noexcept:
    global until_failure
    until_failure -= 1
    return NULL if until_failure == -1 else usual.calloc(context, count, size)


cdef void fail_after(int allocations):
    """The allocation after so many finds no memory."""
    global until_failure
    cdef PyMemAllocatorEx failing
    PyMem_GetAllocator(PYMEM_DOMAIN_MEM, &usual)
    failing = usual
    failing.malloc = failing_malloc
    failing.calloc = failing_calloc
    until_failure = allocations
    PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &failing)


class Starving:
    """Calls during which one allocation, the one after so many, finds no memory. It tells
    whether there were as many."""

    @staticmethod
    def add(Window window, uint64_t seqno, item, int allocations):
        fail_after(allocations)
        try:
            added = window.c_add(seqno, item)
        finally:
            PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &usual)
        return added, until_failure < 0

    @staticmethod
    def send_run(Window window, list items, int allocations):
        cdef PyObject *values[64]
        cdef uint64_t count = len(items), k, sent
        for k in range(count):
            values[k] = <PyObject *>items[k]
        fail_after(allocations)
        sent = window.c_send_run(values, count)
        PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &usual)
        return sent, until_failure < 0

    @staticmethod
    def send(Window window, item):
        """MemoryError, when there is a row to be made."""
        cdef PyObject *value = <PyObject *>item
        cdef uint64_t sent
        fail_after(0)
        sent = window.c_send_run(&value, 1)
        PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &usual)
        return sent == 1 or window.c_refuse()


class Steps:
    """An add taken apart, so that a test can let another thread run between its steps."""

    @staticmethod
    def in_window(RingBuffer ring, uint64_t seqno):
        return in_window(ring.ring, seqno)

    @staticmethod
    def claim(RingBuffer ring, uint64_t seqno):
        cdef Position at = locate(ring.ring, seqno)
        return claim_bits(ring.ring, at, ones(1) << at.bit) != 0

    @staticmethod
    def publish(RingBuffer ring, uint64_t seqno, item):
        cdef Position at = locate(ring.ring, seqno)
        cdef PyObject *value = <PyObject *>item
        Py_INCREF(value)
        publish(ring.ring, at, seqno, ones(1) << at.bit, &value)


cdef class Empty:
    """Two calls that do nothing: the floor of add() and remove() one by one."""

    def add(self, seqno, item):
        return True

    def remove(self, bint nullify=True):
        return None


cdef inline uintptr_t item_of(uint64_t seqno) noexcept nogil:
    """What stands for the item of a seqno: never NULL, also when the seqno wraps to 0."""
    return seqno << 1 | 1


cdef class Bare:
    """The block ring alone, a number for each item, for threads that run without the GIL."""

    cdef Ring *ring
    cdef uint64_t first
    cdef uint64_t count

    def __cinit__(self, uint64_t capacity, uint64_t offset, uint64_t count):
        self.ring = make_ring(capacity, offset, 0)
        self.first = offset + 1
        self.count = count

    def __dealloc__(self):
        destroy_ring(self.ring)

    def position(self, uint64_t distance):
        """Return (block, lap, bit) of the seqno `distance` behind the window's first, and the
        number of blocks."""
        cdef Position at = locate(self.ring, self.first + distance)
        return at.block, at.lap, at.bit, self.ring.num_blocks

    def add_all(self, uint64_t run):
        """Add every seqno, `run` at a time; returns one byte for each: 1 where this thread won."""
        cdef bytearray won = bytearray(self.count)
        cdef unsigned char *wins = won
        cdef uint64_t done = 0, step
        with nogil:
            while done < self.count:
                step = min(run, self.count - done)
                step = min(step, <uint64_t>(BLOCK - locate(self.ring, self.first + done).bit))
                if self.add_run(done, step, wins):
                    done += step
                else:
                    sched_yield()
        return won

    cdef bint add_run(self, uint64_t done, uint64_t count, unsigned char *wins) noexcept nogil:
        """Return False when the run does not fit yet. Its block refuses what is too old, as it
        does a duplicate."""
        cdef PyObject *items[BLOCK]
        cdef uint64_t seqno = self.first + done, k
        cdef Position at = locate(self.ring, seqno)
        cdef uint32_t got
        if ahead(seqno + count - 1, load_acquire(&self.ring.low) + self.ring.capacity) > 0:
            return False
        got = claim_bits(self.ring, at, ones(count) << at.bit)
        for k in range(count):
            items[k] = <PyObject *>item_of(seqno + k)
            wins[done + k] += got >> at.bit >> k & 1
        if got:
            publish(self.ring, at, seqno, got, items)
        return True

    def consume(self, bint nullify):
        """Take everything in order; returns how many items were not the seqno of their place."""
        cdef PyObject *out[BLOCK]
        cdef uint64_t seqno = self.first, end = self.first + self.count, run, k, wrong = 0
        with nogil:
            while seqno != end:
                if nullify:
                    run = take_run(self.ring, out, BLOCK)
                else:
                    run = look_run(self.ring, out, BLOCK)
                    advance_hd(self.ring, run)
                for k in range(run):
                    wrong += <uintptr_t>out[k] != item_of(seqno + k)
                seqno += run
                if not run:
                    sched_yield()
        return wrong

    def free_behind(self):
        """Free whatever was delivered, until all is; returns how many items came out."""
        cdef uint64_t last = self.first + self.count - 1, freed = 0
        with nogil:
            while load_acquire(&self.ring.low) != last:
                raise_to(&self.ring.want, load_acquire(&self.ring.hd))
                freed += self.follow()
                sched_yield()
        return freed

    cdef uint64_t follow(self) noexcept nogil:
        """LOW to HD."""
        cdef PyObject *out[BLOCK]
        cdef uint32_t count = 0
        cdef uint64_t freed = 0
        raise_to(&self.ring.want, load_acquire(&self.ring.hd))
        while ahead(wanted_to(self.ring), load_acquire(&self.ring.low)) > 0:
            free_block(self.ring, wanted_to(self.ring), out, &count)
            freed += count
        return freed

    def watch(self):
        """HD read before HR: LOW <= HD <= HR for any onlooker; returns how often it was not so."""
        cdef uint64_t last = self.first + self.count - 1, hd = 0, low, wrong = 0
        with nogil:
            while hd != last:
                low = load_acquire(&self.ring.low)
                hd = load_acquire(&self.ring.hd)
                wrong += ahead(hd, low) < 0 or ahead(load_acquire(&self.ring.hr), hd) < 0
                sched_yield()
        return wrong
