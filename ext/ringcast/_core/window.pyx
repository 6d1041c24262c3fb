"""Window: what a delivery window does, and its Python names.

Messages are added in any order, each seqno once. They are removed in order, up to the
first gap. HD is the highest delivered seqno, HR the highest received one. Everything up
to LOW is freed: by removal (nullify), or by stable() once all members have the message.
missing() lists the gaps between HD and HR, to be asked for. The same window serves a
sender: send() takes the next seqno and stores the item in one step, if there is room
(decision 13).

RingBuffer and SeqnoTable derive from it and keep the items. A method here reads its
arguments, calls one of their functions (window.pxd), and makes its result.
"""

cimport cython
from cpython.list cimport PyList_GET_SIZE, PyList_New
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.atomics cimport load_relaxed
from ringcast._core.seqno cimport ahead, raise_to, to_uint64
from ringcast._core.slots cimport count_bits, list_items, lowest_bit, payload, unpack

cdef object ClosedError
from ringcast.errors import ClosedError

cdef extern from "Python.h":
    ctypedef int (*traverseproc)(PyObject *, visitproc, void *) noexcept
    ctypedef int (*inquiry)(PyObject *) noexcept
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
        inquiry tp_clear


cdef enum:
    MOST_HELD = 32                # bits of the mask that c_held() returns

cdef uint64_t nothing = 0         # each number of a window that is neither ring nor table


# --- arguments ------------------------------------------------------------------------

cdef int refuse_none() except -1:
    """Raise: None is no item."""
    raise TypeError("None cannot be an item, because remove() and get() answer None for "
                    "'not there'; pass any other object, such as b''")


cdef uint64_t check_capacity(object capacity) except 0:
    """Return the capacity as a number; ValueError unless it is 1 to CAPACITY_MAX."""
    cdef uint64_t seqnos = to_uint64(capacity, "capacity")
    if not 1 <= seqnos <= CAPACITY_MAX:
        raise ValueError(f"capacity is {capacity}; pass a number of messages from 1 to 2**26")
    return seqnos


cdef int check_items(list items, uint64_t start, uint64_t end) except -1:
    """Raise TypeError if one of items[start:end] is None."""
    cdef PyObject **values = list_items(<PyObject *>items)
    cdef uint64_t k
    for k in range(start, end):
        if values[k] == <PyObject *>None:
            refuse_none()
    return 0


cdef class Window:
    """The base class of RingBuffer and SeqnoTable; make one of these.

    An item is any object but None. If a seqno is old, or there already, or beyond the
    window, the answer is False. Wrong types raise TypeError, impossible arguments
    ValueError; both leave the window as it was. A window is filled either by add() (at
    a receiver) or by send() (at a sender).

    *Threads.* Any thread may call any method: each call is one step. The GIL sees to
    that; in a Python without it, a critical section of the window, and of the list that
    is passed. Only finalisers of released items run in the middle of a call, after LOW
    has moved; they may call the window back. If two threads deliver, they must put
    their deliveries in order themselves.
    """

    def __cinit__(self):
        if type(self) is Window:
            raise TypeError("a Window is abstract; make a RingBuffer or a SeqnoTable")

    # --- adding

    @cython.critical_section
    def add(self, seqno, item):
        """Store an item under its seqno.

        Returns True for exactly one call for each seqno, else False: it is old, a
        duplicate, or there is no room.
        """
        return self.c_add(to_uint64(seqno, "seqno"), item)

    def add_many(self, first_seqno, list items not None):
        """Store items under first_seqno, first_seqno+1, and so on.

        Returns how many of them were new and had room.
        """
        cdef uint64_t first = to_uint64(first_seqno, "first_seqno")
        cdef uint64_t count
        with cython.critical_section(self, items):
            count = <uint64_t>PyList_GET_SIZE(items)
            check_items(items, 0, count)
            return self.c_add_run(first, list_items(<PyObject *>items), count)

    @cython.critical_section
    def announce(self, seqno):
        """Raise HR to the seqno up to which the sender has sent; return HR.

        So missing() also shows lost messages at the end. HR goes at most to
        LOW+capacity.
        """
        cdef Words at = self.words()
        cdef uint64_t upto = to_uint64(seqno, "seqno")
        cdef uint64_t limit = load_relaxed(at.low) + load_relaxed(at.bound)
        raise_to(at.hr, limit if ahead(upto, limit) > 0 else upto)
        return load_relaxed(at.hr)

    # --- sending

    @cython.critical_section
    def send(self, item):
        """Take the next seqno and store the item under it, in one step.

        Returns False if there is no room; then no seqno is taken. Raises ClosedError
        after close(), because there will never be room.
        """
        return self.c_send(item)

    def send_many(self, list items not None, start=0):
        """Send items[start:], in order, as far as there is room; return how many.

        Their seqnos begin with next_seqno. Items that have no room are not checked.
        """
        cdef uint64_t begin = to_uint64(start, "start")
        with cython.critical_section(self, items):
            return self.send_from(items, begin)

    cdef uint64_t send_from(self, list items, uint64_t begin) except? 0:
        cdef uint64_t size = <uint64_t>PyList_GET_SIZE(items), sent
        if begin > size:
            raise ValueError(f"start is {begin}, but there are {size} items; pass at most that")
        cdef Words at = self.words()
        cdef uint64_t bound = load_relaxed(at.bound)
        cdef uint64_t used = load_relaxed(at.hr) - load_relaxed(at.low)
        cdef uint64_t count = min(size - begin, bound - used if used < bound else 0)
        check_items(items, begin, begin + count)
        sent = self.c_send_run(list_items(<PyObject *>items) + begin, count)
        if sent == 0 and begin < size:
            self.c_refuse()
        return sent

    # --- delivering

    @cython.critical_section
    def remove(self, bint nullify=True):
        """Return the next item in order, or None at a gap.

        `nullify` empties its slot, and LOW follows HD, unless there are items before it
        that were delivered with nullify=False. Without `nullify`, get() finds the item
        until stable() frees it.
        """
        cdef PyObject *value = NULL
        cdef object item
        if self.c_deliver(&value, 1, nullify) == 0:
            return None
        item = <object>value
        Py_DECREF(value)
        return item

    def remove_many(self, limit=0, bint nullify=True):
        """Return the items up to the next gap, as remove() would one by one.

        They are at most `limit`; 0 is no limit.
        """
        cdef uint64_t most = to_uint64(limit, "limit")
        with cython.critical_section(self):
            return self.take_many(most, nullify)

    cdef list take_many(self, uint64_t most, bint nullify):
        cdef uint64_t count = self.c_ready(most if most else self.words().capacity)
        cdef list out = PyList_New(<Py_ssize_t>count)
        # PyList_New may start a collection, and a finaliser may remove items: then
        # there are fewer than we counted.
        cdef uint64_t got = self.c_deliver(list_items(<PyObject *>out), count, nullify)
        return out if got == count else out[:got]

    # --- freeing

    @cython.critical_section
    def stable(self, seqno):
        """Free all seqnos up to min(seqno, HD) and move LOW there; return how many.

        LOW never moves back. If a finaliser calls this inside stable(), the call that
        already runs frees for it, and the finaliser's call returns 0.
        """
        return self.c_stable(to_uint64(seqno, "seqno"))

    @cython.critical_section
    def close(self):
        """Release all items, for good. A second call does nothing.

        Afterwards the window is empty: add() returns False, remove() and get() return
        None, missing() returns nothing, send() raises ClosedError. LOW, HD and HR stay.
        """
        self.c_close()

    # --- looking

    @cython.critical_section
    def get(self, seqno):
        """Return the item of a seqno, to send it again; None if the window has it
        not."""
        cdef PyObject *value = self.peek(to_uint64(seqno, "seqno"))
        return None if value == NULL else <object>value

    @cython.critical_section
    def missing(self, limit=0, upto=None):
        """List the gaps among HD+1..min(HR, upto) as pairs (first, last), oldest first.

        They are at most `limit`; 0 is no limit.
        """
        cdef uint64_t most = to_uint64(limit, "limit"), last = self.c_hr(), bound, first, end
        cdef list gaps = []
        if upto is not None:
            bound = to_uint64(upto, "upto")
            last = bound if ahead(last, bound) > 0 else last
        first, end = self.c_hd() + 1, last
        while (most == 0 or <uint64_t>len(gaps) < most) and self.c_gap(&first, &end):
            gaps.append((first, end))
            first, end = end + 1, last
        return gaps

    def __repr__(self):
        return (f"<{type(self).__name__} low={self.low} hd={self.hd} hr={self.hr} "
                f"capacity={self.capacity}>")

    @cython.critical_section
    def __len__(self):
        """Count the items that the window holds, delivered or not."""
        cdef PyObject **slots = NULL
        cdef uint64_t number = 0
        cdef uint32_t held
        cdef Py_ssize_t total = 0
        while held := self.c_held(&number, &slots):
            total += count_bits(held)
        return total

    @property
    @cython.critical_section
    def nbytes(self):
        """The bytes of payload that the window holds."""
        cdef Words at = self.words()
        cdef PyObject **slots = NULL
        cdef PyObject *out[MOST_HELD]
        cdef uint64_t number = 0, total = 0
        cdef uint32_t held
        if load_relaxed(at.max_bytes):
            return load_relaxed(at.nbytes)
        while held := self.c_held(&number, &slots):
            total += payload(out, unpack(slots, held, out))
        return total

    @property
    def low(self):
        """The seqno up to which everything is freed."""
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
        """The seqno that the next send takes if there is room."""
        return <uint64_t>(self.c_hr() + 1)

    @property
    def capacity(self):
        """The most seqnos above LOW that the window accepts."""
        return self.words().capacity

    @property
    def max_bytes(self):
        """The bound in bytes; 0 if there is none.

        A bound may be changed while the window is in use. What is held beyond a smaller
        bound stays.
        """
        return load_relaxed(self.words().max_bytes)

    @max_bytes.setter
    @cython.critical_section
    def max_bytes(self, value):
        cdef Words at = self.words()
        cdef uint64_t bound = to_uint64(value, "max_bytes")
        if bool(bound) != bool(load_relaxed(at.max_bytes)):
            raise ValueError("a window counts bytes from the start or never; "
                             "choose that when you make it")
        at.max_bytes[0] = bound

    @property
    @cython.critical_section
    def num_missing(self):
        """The number of seqnos missing between HD and HR."""
        cdef uint64_t first = self.c_hd() + 1, last = self.c_hr(), end = last, total = 0
        while self.c_gap(&first, &end):
            total += end + 1 - first
            first, end = end + 1, last
        return total

    # --- what they have in common

    cdef PyObject *peek(self, uint64_t seqno) noexcept:
        cdef uint64_t count = 0
        cdef PyObject **items = self.c_run(seqno, &count)
        return items[0] if count else NULL

    cdef bint c_send(self, object item) except -1:
        cdef PyObject *value = <PyObject *>item
        if item is None:
            refuse_none()
        return self.c_send_run(&value, 1) == 1 or self.c_refuse()

    cdef bint c_refuse(self) except -1:
        if load_relaxed(self.words().bound) == 0:
            raise ClosedError("the window is closed and nothing was sent; make a new one")
        return False

    cdef uint64_t c_low(self) noexcept:
        return load_relaxed(self.words().low)

    cdef uint64_t c_hd(self) noexcept:
        return load_relaxed(self.words().hd)

    cdef uint64_t c_hr(self) noexcept:
        return load_relaxed(self.words().hr)

    # --- what each kind does in its own way; here, a window that is always empty

    cdef Words words(self) noexcept:
        return Words(0, &nothing, &nothing, &nothing, &nothing, &nothing, &nothing)

    cdef bint c_add(self, uint64_t seqno, object item) except -1:
        return False

    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        return 0

    cdef uint64_t c_send_run(self, PyObject **items, uint64_t count) noexcept:
        return 0

    cdef uint64_t c_ready(self, uint64_t limit) noexcept:
        return 0

    cdef uint64_t c_deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept:
        return 0

    cdef uint64_t c_stable(self, uint64_t seqno) noexcept:
        return 0

    cdef void c_close(self) noexcept:
        pass

    cdef PyObject **c_run(self, uint64_t seqno, uint64_t *count) noexcept:
        count[0] = 0
        return NULL

    cdef bint c_gap(self, uint64_t *first, uint64_t *last) noexcept:
        return False

    cdef uint32_t c_held(self, uint64_t *number, PyObject ***slots) noexcept:
        return 0


# --- the cycle collector --------------------------------------------------------------
# Cython does not know the items in the memory of a window, so we wrap its two
# functions. The derived classes have no object attributes, so their functions call
# these.

cdef PyTypeObject *slots_of_type = <PyTypeObject *>Window
cdef traverseproc traverse_attributes = slots_of_type.tp_traverse
cdef inquiry clear_attributes = slots_of_type.tp_clear


cdef int traverse(PyObject *window, visitproc visit, void *arg) noexcept:
    cdef int stop = traverse_attributes(window, visit, arg)
    cdef PyObject **slots = NULL
    cdef uint64_t number = 0
    cdef uint32_t held = 0
    while not stop and (held or (held := (<Window>window).c_held(&number, &slots))):
        stop = visit(slots[lowest_bit(held)], arg)
        held &= held - 1
    return stop


cdef int clear(PyObject *window) noexcept:
    clear_attributes(window)
    (<Window>window).c_close()
    return 0


slots_of_type.tp_traverse = traverse
slots_of_type.tp_clear = clear
