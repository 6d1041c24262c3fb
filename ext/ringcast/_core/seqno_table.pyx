"""SeqnoTable: a delivery window that takes memory only for what it holds.

It keeps LOW, HD and HR as RingBuffer does, and gives the same answers. It needs no
claims and no atomic words, because every method is one step (window.pyx). window.pyx
says what a window does, page_table.pxd how the memory is laid out.

If there is no memory for a row, add() returns False, as for a seqno beyond the window:
the message is missing and will be asked for again. send() raises MemoryError if it
could take nothing, and takes no seqno.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.page_table cimport (
    ROW, Page, Row, Table, bit_of, drop_row, find_row, fitting, fitting_run, free_row,
    full_from, in_window, left_in_row, look_run, make_row, next_row, ready, room, run_of, scan,
    store, take_run,
)
from ringcast._core.seqno cimport ahead, to_uint64
from ringcast._core.slots cimport count_bits, highest_bit, ones, payload, unpack
from ringcast._core.window cimport (
    CAPACITY_MAX, Py_INCREF, Window, Words, check_capacity, hold, refuse_none, release,
)


@cython.final
@cython.trashcan(True)
cdef class SeqnoTable(Window):
    """A window that grows and shrinks with what it holds.

    At first it is for the seqnos offset+1 .. offset+capacity. `capacity` (1 to 2**26)
    is a limit and costs nothing. A row of 32 seqnos is allocated when the first of them
    is added, and freed with its last item. An empty table has no memory beside the
    object. A message far ahead of the others costs a row, and 8 bytes for each 256
    seqnos before it. `sys.getsizeof()` says what a table takes at this moment, without
    the items.

    `offset`, `max_bytes`, and the rules for what is let in, for threads and for
    finalisers are RingBuffer's. If there is no memory for a row, add() returns False,
    add_many() leaves these items out, and send() raises MemoryError; the window stays
    as it was.
    """

    def __cinit__(self, offset=0, *, capacity=CAPACITY_MAX, max_bytes=0):
        cdef Table *t = &self.table
        t.directory = &t.only
        t.hr = t.hd = t.kept = t.low = t.want = to_uint64(offset, "offset")
        t.start = t.low + 1
        t.capacity = t.bound = check_capacity(capacity)
        t.max_bytes = to_uint64(max_bytes, "max_bytes")

    def __dealloc__(self):
        self.c_close()

    # --- adding

    cdef bint c_add(self, uint64_t seqno, object item) except -1:
        cdef PyObject *value = <PyObject *>item
        if item is None:
            refuse_none()
        return (in_window(&self.table, seqno) and ahead(seqno, self.table.hd) > 0
                and self.place(seqno, &value, 1) == 1)

    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        """Add the part of a run that is in the window and not delivered, row by row."""
        cdef Table *t = &self.table
        cdef uint64_t end = t.low + t.bound, total = 0, skip = 0, step
        if ahead(seqno, t.hd) <= 0:
            skip = min(t.hd + 1 - seqno, count)
        if ahead(seqno + count - 1, end) > 0:
            count -= min(seqno + count - 1 - end, count)
        while skip < count:
            step = min(left_in_row(t, seqno + skip), count - skip)
            total += self.place(seqno + skip, items + skip, step)
            skip += step
        return total

    cdef uint64_t place(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        """Add a run above HD that lies in the window and in one row.

        Returns how many items were new and had room.
        """
        cdef Table *t = &self.table
        cdef uint64_t size = 0
        cdef uint32_t new = ones(count) & ~full_from(t, seqno)
        if new and t.max_bytes:
            new = fitting(t, seqno, items, new, &size)
        if new == 0 or self.put(seqno, items, new) == 0:
            return 0
        t.nbytes += size
        return count_bits(new)

    cdef uint32_t put(self, uint64_t seqno, PyObject **items, uint32_t wanted) noexcept:
        """Store items[k] under the free seqno+k for each bit k of wanted.

        Returns `wanted`, or 0 if there is no memory for the row.
        """
        cdef Table *t = &self.table
        cdef Row *row = make_row(t, seqno)
        if row == NULL:
            return 0
        hold(items, wanted)
        store(row, bit_of(t, seqno), wanted, items)
        if ahead(seqno + highest_bit(wanted), t.hr) > 0:
            t.hr = seqno + highest_bit(wanted)
        return wanted

    # --- sending

    cdef uint64_t c_send_run(self, PyObject **items, uint64_t count) noexcept:
        cdef Table *t = &self.table
        cdef uint64_t first = t.hr + 1, sent = 0, step
        cdef uint64_t fit = min(count, room(t))
        if t.max_bytes:
            fit = fitting_run(t, items, fit)
        t.starved = False
        while sent < fit and not t.starved:
            step = min(left_in_row(t, first + sent), fit - sent)
            if self.put(first + sent, items + sent, ones(step)):
                sent += step
            else:
                t.starved = True
        if t.max_bytes:
            t.nbytes += payload(items, sent)
        return sent

    cdef bint c_refuse(self) except -1:
        if self.table.starved:
            raise MemoryError("no memory to keep another message, and nothing was sent; "
                              "try again when there is some")
        return Window.c_refuse(self)

    # --- delivering

    cdef uint64_t c_ready(self, uint64_t limit) noexcept:
        return ready(&self.table, limit)

    cdef uint64_t c_deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept:
        """Move up to `limit` items, in order, to `out` as new references.

        Moves HD, and LOW too if nothing is kept.
        """
        cdef Table *t = &self.table
        cdef uint64_t total = 0, run = 1
        while total < limit and run:
            if nullify:
                run = take_run(t, out + total, limit - total)
            else:
                run = self.share(out + total, limit - total)
            total += run
        if not nullify:
            t.kept = t.hd if total else t.kept
            return total
        if t.max_bytes:
            t.nbytes -= payload(out, total)
        if t.low != t.hd and ahead(t.kept, t.low) <= 0:
            # What was kept has been freed since, and what came after it is taken out.
            self.c_stable(t.hd)
        return total

    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept:
        """Deliver a run of one row by new references. stable() empties its slots."""
        cdef uint64_t run = look_run(&self.table, out, limit), k
        for k in range(run):
            Py_INCREF(out[k])
        self.table.hd += run
        return run

    # --- freeing

    cdef uint64_t c_stable(self, uint64_t seqno) noexcept:
        """Move LOW to the seqno, at most to HD. Returns how many seqnos were freed.

        Finalisers may ask for more meanwhile, because items are released row by row,
        after LOW has moved; the call that runs works for them too.
        """
        cdef Table *t = &self.table
        cdef PyObject *out[ROW]
        cdef uint64_t upto = t.hd if ahead(seqno, t.hd) > 0 else seqno, freed = 0, before
        cdef uint32_t count
        if ahead(upto, t.want) > 0:
            t.want = upto
        if t.purging:
            return 0
        t.purging = True
        while ahead(t.want, t.low) > 0:
            before = t.low
            count = free_row(t, t.want, out)
            freed += t.low - before
            if t.max_bytes:
                t.nbytes -= payload(out, count)
            release(out, count)
        t.purging = False
        return freed

    cdef void c_close(self) noexcept:
        """Close the window, then release what is in it, row by row.

        A finaliser may call the window back and take the rest meanwhile.
        """
        cdef Table *t = &self.table
        cdef PyObject *out[ROW]
        cdef uint64_t number = 0
        cdef uint32_t count
        cdef Row *row
        t.bound = 0
        while t.rows:
            row = next_row(t, &number)
            if row == NULL:             # a finaliser moved LOW, from which rows are counted
                number = 0
                continue
            count = unpack(row.slots, row.full, out)
            drop_row(t, t.start + (number - 1) * ROW)
            if t.max_bytes:
                t.nbytes -= payload(out, count)
            release(out, count)

    # --- looking

    cdef PyObject **c_run(self, uint64_t seqno, uint64_t *count) noexcept:
        cdef Table *t = &self.table
        cdef Row *row = find_row(t, seqno) if in_window(t, seqno) else NULL
        cdef uint32_t bit = bit_of(t, seqno)
        count[0] = run_of(row.full >> bit) if row != NULL else 0
        return row.slots + bit if row != NULL else NULL

    cdef bint c_gap(self, uint64_t *first, uint64_t *last) noexcept:
        cdef uint64_t end = last[0]
        if self.table.bound == 0 or ahead(first[0], end) > 0:
            return False
        first[0] = scan(&self.table, first[0], end, False)
        last[0] = scan(&self.table, first[0], end, True) - 1
        return ahead(last[0], first[0]) >= 0

    cdef uint32_t c_held(self, uint64_t *number, PyObject ***slots) noexcept:
        """Return the full bits of the next row; row 0 is the first of LOW+1's page."""
        cdef Row *row = next_row(&self.table, number)
        if row == NULL:
            return 0
        slots[0] = row.slots
        return row.full

    cdef Words words(self) noexcept:
        cdef Table *t = &self.table
        return Words(t.capacity, &t.low, &t.hd, &t.hr, &t.bound, &t.max_bytes, &t.nbytes)

    def __sizeof__(self):
        """Return the bytes of memory that the window takes now, without its items."""
        cdef Table *t = &self.table
        cdef uint64_t directory = (<uint64_t>t.mask + 1) * sizeof(Page *) if t.mask else 0
        cdef uint64_t pages = (t.pages - t.own_used) * sizeof(Page)
        return type(self).__basicsize__ + directory + pages + t.rows * sizeof(Row)
