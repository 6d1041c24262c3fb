"""SeqnoTable: a delivery window that costs what it holds: rows of slots, made when one of their seqnos is first used.

It keeps LOW, HD and HR as RingBuffer does and gives the same answers, only without claims and atomic words: every method is
one step under the GIL. Whether a seqno was accepted needs no memory beside its slot: up to HD all were, above HD those
that are held.

Where there is no memory for a row, add() says False, as for a seqno beyond the window: the message is missing and will be
asked for again. send() raises MemoryError when it could take nothing, and burns no seqno.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from ringcast._core.seqno cimport ahead, natural
from ringcast._core.slots cimport copy_run, count_bits, highest_bit, lowest_bit, ones, payload, unpack
from ringcast._core.window cimport (
    CAPACITY_MAX, Py_INCREF, Window, Words, capacity_of, hold, refuse_none, release,
)

# Python's allocator, so that tracemalloc sees what a table costs. It wants the GIL, which whoever calls a table's functions holds.
cdef extern from "Python.h" nogil:
    void *PyMem_Malloc(size_t)
    void *PyMem_Calloc(size_t, size_t)
    void PyMem_Free(void *)


# --- where a seqno lives: all of these take seqnos above LOW only --------------------------------------------------

cdef inline uint64_t page_number(const Table *t, uint64_t seqno) noexcept nogil:
    """0 is LOW+1's page."""
    return (seqno - t.start) >> PAGE_SHIFT


cdef inline Page **page_at(const Table *t, uint64_t number) noexcept nogil:
    """Its place in the directory, which has one: number <= mask."""
    return &t.directory[(t.head + <uint32_t>number) & t.mask]


cdef inline Row **row_at(const Table *t, Page *page, uint64_t seqno) noexcept nogil:
    return &page.rows[(seqno - t.start) >> ROW_SHIFT & (PAGE - 1)]


cdef inline uint32_t bit_of(const Table *t, uint64_t seqno) noexcept nogil:
    return <uint32_t>(seqno - t.start) & (ROW - 1)


cdef inline Page *find_page(const Table *t, uint64_t seqno) noexcept nogil:
    cdef uint64_t number = page_number(t, seqno)
    return page_at(t, number)[0] if number <= t.mask else NULL


cdef inline Row *find_row(const Table *t, uint64_t seqno) noexcept nogil:
    cdef Page *page = find_page(t, seqno)
    return row_at(t, page, seqno)[0] if page != NULL else NULL


cdef inline uint32_t full_from(const Table *t, uint64_t seqno) noexcept nogil:
    """What is held of seqno's row: bit 0 is seqno itself."""
    cdef Row *row = find_row(t, seqno)
    return row.full >> bit_of(t, seqno) if row != NULL else 0


cdef inline uint64_t left_in_row(const Table *t, uint64_t seqno) noexcept nogil:
    """How many seqnos from this one on its row has."""
    return ROW - bit_of(t, seqno)


# --- memory: nothing here touches an item, and a failure leaves everything as it was ---------------------------------

cdef bint resize(Table *t, uint64_t size) noexcept nogil:
    """A directory of `size` pages, a power of two and enough for those that there are."""
    cdef Page **directory = &t.only
    cdef uint64_t k, both = min(size, <uint64_t>t.mask + 1)
    if size > 1:
        directory = <Page **>PyMem_Calloc(size, sizeof(Page *))
        if directory == NULL:
            return False
    for k in range(both):
        directory[k] = page_at(t, k)[0]
    if t.mask:
        PyMem_Free(t.directory)
    t.directory = directory
    t.mask = <uint32_t>(size - 1)
    t.head = 0
    return True


cdef uint64_t size_for(uint64_t pages) noexcept nogil:
    cdef uint64_t size = 1
    while size < pages:
        size <<= 1
    return size


cdef void fit(Table *t) noexcept nogil:
    """Make the directory smaller when LOW has left most of it behind; twice what is needed keeps it from growing at once."""
    cdef uint64_t needed = <uint64_t>t.mask + 1
    while needed > 1 and page_at(t, needed - 1)[0] == NULL:
        needed -= 1
    needed = size_for(needed)
    if 4 * needed <= <uint64_t>t.mask + 1:
        resize(t, 2 * needed if needed > 1 else 1)


cdef Page *new_page(Table *t) noexcept nogil:
    cdef Page *page = &t.own
    if t.own_used:
        return <Page *>PyMem_Calloc(1, sizeof(Page))
    memset(page, 0, sizeof(Page))
    t.own_used = True
    return page


cdef void free_page(Table *t, Page *page) noexcept nogil:
    if page == &t.own:
        t.own_used = False
    else:
        PyMem_Free(page)


cdef Page *make_page(Table *t, uint64_t seqno) noexcept nogil:
    """The page of seqno, in a directory that reaches to it; NULL when there is no memory."""
    cdef uint64_t number = page_number(t, seqno)
    cdef Page *page = find_page(t, seqno)
    if page != NULL:
        return page
    page = new_page(t)
    if page == NULL:
        return NULL
    if number > t.mask and not resize(t, size_for(number + 1)):
        free_page(t, page)
        return NULL
    page_at(t, number)[0] = page
    t.pages += 1
    return page


cdef Row *make_row(Table *t, uint64_t seqno) noexcept nogil:
    """The row of seqno, empty unless there is one already; NULL when there is no memory."""
    cdef Row *row = find_row(t, seqno)
    cdef Page *page
    if row != NULL:
        return row
    row = <Row *>PyMem_Malloc(sizeof(Row))
    if row == NULL:
        return NULL
    page = make_page(t, seqno)
    if page == NULL:
        PyMem_Free(row)
        return NULL
    row.full = 0
    row_at(t, page, seqno)[0] = row
    t.rows += 1
    return row


cdef bint is_empty(const Page *page) noexcept nogil:
    cdef uint32_t k
    for k in range(<uint32_t>PAGE):
        if page.rows[k] != NULL:
            return False
    return True


cdef void drop_row(Table *t, uint64_t seqno) noexcept nogil:
    """Give the row of seqno back; with the last row of a page that page, with the last page the directory."""
    cdef Page *page = find_page(t, seqno)
    cdef Row **row = row_at(t, page, seqno)
    PyMem_Free(row[0])
    row[0] = NULL
    t.rows -= 1
    if is_empty(page):
        page_at(t, page_number(t, seqno))[0] = NULL
        free_page(t, page)
        t.pages -= 1
        if t.pages == 0 and t.mask:
            resize(t, 1)


cdef inline void empty(Table *t, Row *row, uint64_t seqno, uint32_t mask) noexcept nogil:
    """The slots of mask are empty from now on; HD is up to date, LOW still below seqno."""
    row.full &= ~mask
    if row.full == 0:
        drop_row(t, seqno)


cdef inline void move_low(Table *t, uint64_t seqno) noexcept nogil:
    """LOW = seqno; the rows that it leaves are gone already."""
    cdef uint32_t pages = <uint32_t>page_number(t, seqno + 1)
    cdef uint32_t quarter = (t.mask + 1) >> 2
    t.low = seqno
    if pages:
        t.start += <uint64_t>pages << PAGE_SHIFT
        t.head += pages
        # A look at every place, once in a quarter of them.
        if quarter and (t.head ^ (t.head - pages)) >= quarter:
            fit(t)


cdef inline Row *next_row(const Table *t, uint64_t *number) noexcept nogil:
    """The first row from number[0] on, which counts rows from LOW's page on and then stands behind it; NULL behind the last."""
    cdef Page *page
    cdef Row *row
    while number[0] // PAGE <= t.mask:
        page = page_at(t, number[0] // PAGE)[0]
        if page == NULL:
            number[0] = (number[0] | (PAGE - 1)) + 1
            continue
        row = page.rows[number[0] % PAGE]
        number[0] += 1
        if row != NULL:
            return row
    return NULL


# --- adding and sending ------------------------------------------------------------------------------------------

cdef inline bint in_window(const Table *t, uint64_t seqno) noexcept nogil:
    """LOW < seqno <= LOW+capacity (decision 4)."""
    return seqno - t.low - 1 < t.bound


cdef inline uint64_t room(const Table *t) noexcept nogil:
    """How many seqnos fit between HR, after which a sender goes on, and LOW+capacity."""
    cdef uint64_t used = t.hr - t.low
    return t.bound - used if used < t.bound else 0


cdef inline bint fits(const Table *t, uint64_t size) noexcept nogil:
    """Whether so many bytes more are within the bound; nothing always is."""
    return size == 0 or (size <= t.max_bytes and t.nbytes <= t.max_bytes - size)


cdef inline uint64_t payload_of(PyObject **items, uint32_t mask) noexcept nogil:
    cdef PyObject *chosen[ROW]
    if mask & (mask + 1) == 0:
        return payload(items, count_bits(mask))
    return payload(chosen, unpack(items, mask, chosen))


cdef inline uint32_t fitting(const Table *t, uint64_t seqno, PyObject **items, uint32_t new, uint64_t *size) noexcept nogil:
    """Which of new (bit k means items[k]) the bound lets in, in their order, and their bytes. HD+1 always is (decision 7)."""
    cdef uint32_t let_in = 0, k
    cdef uint64_t one
    size[0] = payload_of(items, new)
    if fits(t, size[0]):
        return new
    size[0] = 0
    while new:
        k = lowest_bit(new)
        one = payload(items + k, 1)
        if one == 0 or fits(t, size[0] + one) or seqno + k == t.hd + 1:
            let_in |= <uint32_t>1 << k
            size[0] += one
        new &= new - 1
    return let_in


cdef inline uint64_t fitting_run(const Table *t, PyObject **items, uint64_t count) noexcept nogil:
    """How many of items a send may take before one is beyond the bound; an empty window takes one of any size."""
    cdef bint is_first = t.hr == t.low
    cdef uint64_t taken = 0, size, k
    for k in range(count):
        size = payload(items + k, 1)
        if size and not fits(t, taken + size) and not (is_first and k == 0):
            return k
        taken += size
    return count


cdef inline void store(Row *row, uint32_t bit, uint32_t new, PyObject **items) noexcept nogil:
    """items[k] goes into slot bit+k for each bit k of new."""
    cdef uint32_t k
    row.full |= new << bit
    if new & (new + 1) == 0:
        copy_run(row.slots + bit, items, count_bits(new))
        return
    while new:
        k = lowest_bit(new)
        row.slots[bit + k] = items[k]
        new &= new - 1


# --- delivering and freeing --------------------------------------------------------------------------------------

cdef inline uint64_t run_of(uint32_t full) noexcept nogil:
    """How many of the lowest bits are full without a gap."""
    return lowest_bit(~full) if ~full else ROW


cdef inline uint64_t ready(const Table *t, uint64_t limit) noexcept nogil:
    """How many items, at most limit, can be delivered before the next gap."""
    cdef uint64_t total = 0, run = 1
    while total < limit and run:
        run = run_of(full_from(t, t.hd + 1 + total))
        total += run
    return min(total, limit)


cdef inline uint64_t take_run(Table *t, PyObject **out, uint64_t limit) noexcept nogil:
    """Move one row's run after HD out of the table; 0 at a gap."""
    cdef uint64_t first = t.hd + 1
    cdef Row *row = find_row(t, first)
    cdef uint32_t bit = bit_of(t, first)
    cdef uint64_t run = min(run_of(row.full >> bit), limit) if row != NULL else 0
    cdef bint low_follows = t.low == t.hd
    if run:
        copy_run(out, row.slots + bit, run)
        t.hd += run
        empty(t, row, first, ones(run) << bit)
        if low_follows:
            move_low(t, t.hd)
    return run


cdef inline uint64_t look_run(const Table *t, PyObject **out, uint64_t limit) noexcept nogil:
    """Copy one row's run after HD and leave it in place; HD is the caller's to move."""
    cdef Row *row = find_row(t, t.hd + 1)
    cdef uint32_t bit = bit_of(t, t.hd + 1)
    cdef uint64_t run = min(run_of(row.full >> bit), limit) if row != NULL else 0
    if run:
        copy_run(out, row.slots + bit, run)
    return run


cdef inline uint32_t free_row(Table *t, uint64_t upto, PyObject **out) noexcept nogil:
    """Move LOW towards upto, at most to the end of its row; returns how many items were there, which go to out."""
    cdef uint64_t first = t.low + 1
    cdef uint64_t step = min(upto - t.low, left_in_row(t, first))
    cdef Row *row = find_row(t, first)
    cdef uint32_t count = 0, held
    if row != NULL:
        held = row.full & ones(step) << bit_of(t, first)
        count = unpack(row.slots, held, out)
        empty(t, row, first, held)
    move_low(t, t.low + step)
    return count


# --- looking -----------------------------------------------------------------------------------------------------

cdef inline uint64_t scan(const Table *t, uint64_t seqno, uint64_t last, bint held) noexcept nogil:
    """The first of seqno..last that is held (or is not); last+1 when there is none."""
    cdef uint32_t full
    while ahead(last, seqno) >= 0:
        full = full_from(t, seqno)
        if not held:
            full = ~full & ones(left_in_row(t, seqno))
        if full:
            seqno += lowest_bit(full)
            break
        if held and find_page(t, seqno) == NULL:
            seqno += (1 << PAGE_SHIFT) - ((seqno - t.start) & ((1 << PAGE_SHIFT) - 1))
        else:
            seqno += left_in_row(t, seqno)
    return last + 1 if ahead(seqno, last) > 0 else seqno


# --- the class ---------------------------------------------------------------------------------------------------

@cython.final
@cython.trashcan(True)
cdef class SeqnoTable(Window):
    """A window that grows and shrinks with what it holds; at first for the seqnos offset+1 .. offset+capacity.

    `capacity` (1 to 2**26) bounds it and costs nothing by itself. Rows of 32 seqnos are allocated when one of them is first
    used and given back when none is held any more, at the latest when LOW leaves them. An empty table has no memory beside
    the object; a message that comes far ahead of the others costs a row, and 8 bytes for each 256 seqnos before it.
    `sys.getsizeof()` says what a table takes at the moment, without the items.

    `offset`, `max_bytes`, what is let in and what is refused, and the rules for threads and finalisers are RingBuffer's. When
    there is no memory for a row, add() is False, add_many() leaves out what found none, and send() raises
    MemoryError; the window stays as it was.
    """

    def __cinit__(self, offset=0, *, capacity=CAPACITY_MAX, max_bytes=0):
        cdef Table *t = &self.table
        t.directory = &t.only
        t.hr = t.hd = t.kept = t.low = t.want = natural(offset, "offset")
        t.start = t.low + 1
        t.capacity = t.bound = capacity_of(capacity)
        t.max_bytes = natural(max_bytes, "max_bytes")

    def __dealloc__(self):
        self.c_close()

    # --- adding

    cdef bint c_add(self, uint64_t seqno, object item) except -1:
        cdef PyObject *value = <PyObject *>item
        if item is None:
            refuse_none()
        return in_window(&self.table, seqno) and ahead(seqno, self.table.hd) > 0 and self.place(seqno, &value, 1) == 1

    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        """The part of a run that is in the window and not delivered, row by row."""
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
        """Add a run above HD that lies in the window and in one row; returns how many were new and had room."""
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
        """Store items[k] under the free seqno+k for each bit k of wanted; 0 when there is no memory for the row."""
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
            raise MemoryError("no memory to keep another message, and nothing was sent; try again when there is some")
        return Window.c_refuse(self)

    # --- delivering

    cdef uint64_t c_ready(self, uint64_t limit) noexcept:
        return ready(&self.table, limit)

    cdef uint64_t c_deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept:
        """Move up to limit items, in order, to out as new references; advances HD, and LOW where nothing is kept."""
        cdef Table *t = &self.table
        cdef uint64_t total = 0, run = 1
        while total < limit and run:
            run = take_run(t, out + total, limit - total) if nullify else self.share(out + total, limit - total)
            total += run
        if not nullify:
            t.kept = t.hd if total else t.kept
            return total
        if t.max_bytes:
            t.nbytes -= payload(out, total)
        if t.low != t.hd and ahead(t.kept, t.low) <= 0:
            self.c_stable(t.hd)                 # what was kept is freed since, and what came after it taken out
        return total

    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept:
        """Deliver one row's run by new references; its slots are left to stable()."""
        cdef uint64_t run = look_run(&self.table, out, limit), k
        for k in range(run):
            Py_INCREF(out[k])
        self.table.hd += run
        return run

    # --- freeing

    cdef uint64_t c_stable(self, uint64_t seqno) noexcept:
        """Move LOW to what was asked for, also by finalisers meanwhile. Items are released row by row, after LOW has moved."""
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
        """Shut the window, then release what is in it, row by row; a finaliser may take the rest meanwhile."""
        cdef Table *t = &self.table
        cdef PyObject *out[ROW]
        cdef uint64_t number = 0
        cdef uint32_t count
        cdef Row *row
        t.bound = 0
        while t.rows:
            row = next_row(t, &number)
            if row == NULL:                     # a finaliser moved LOW, from which rows are counted
                number = 0
                continue
            count = unpack(row.slots, row.full, out)
            drop_row(t, t.start + (number - 1) * ROW)
            if t.max_bytes:
                t.nbytes -= payload(out, count)
            release(out, count)

    # --- looking

    cdef PyObject *peek(self, uint64_t seqno) noexcept:
        cdef Table *t = &self.table
        cdef Row *row = find_row(t, seqno) if in_window(t, seqno) else NULL
        cdef uint32_t bit = bit_of(t, seqno)
        return row.slots[bit] if row != NULL and row.full >> bit & 1 else NULL

    cdef bint c_gap(self, uint64_t *first, uint64_t *last) noexcept:
        cdef uint64_t end = last[0]
        if self.table.bound == 0 or ahead(first[0], end) > 0:
            return False
        first[0] = scan(&self.table, first[0], end, False)
        last[0] = scan(&self.table, first[0], end, True) - 1
        return ahead(last[0], first[0]) >= 0

    cdef uint32_t c_held(self, uint64_t *number, PyObject ***slots) noexcept:
        """A place is a row; row 0 is the first of LOW+1's page."""
        cdef Row *row = next_row(&self.table, number)
        if row == NULL:
            return 0
        slots[0] = row.slots
        return row.full

    cdef Words words(self) noexcept:
        cdef Table *t = &self.table
        return Words(t.capacity, &t.low, &t.hd, &t.hr, &t.bound, &t.max_bytes, &t.nbytes)

    def __sizeof__(self):
        """Bytes of memory that the window takes at this moment, without its items."""
        cdef Table *t = &self.table
        cdef uint64_t directory = (<uint64_t>t.mask + 1) * sizeof(Page *) if t.mask else 0
        return type(self).__basicsize__ + directory + (t.pages - t.own_used) * sizeof(Page) + t.rows * sizeof(Row)
