"""The page table: a struct, and inline functions over it that know neither Python nor references. The memory of a SeqnoTable.

A row has the slots of 32 consecutive seqnos and exists while one of them is held; eight rows make a page; the
directory has the pages, round and round, from the one in which LOW+1 stands. The first page lies in the table itself, and so does
a directory of one page: what is held within 256 seqnos costs its rows and nothing else. So an empty table has no memory of its
own, and a seqno far ahead costs a row, a page, and a directory with a pointer for each 256 seqnos up to it.

The GIL guards all of it. Whether a seqno was accepted needs no memory beside its slot: up to HD all were, above HD those
that are held.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from ringcast._core.seqno cimport ahead
from ringcast._core.slots cimport copy_run, count_bits, lowest_bit, ones, payload, unpack

# Python's allocator, so that tracemalloc sees what a table costs. It wants the GIL, which whoever calls a table's functions holds.
cdef extern from "Python.h" nogil:
    void *PyMem_Malloc(size_t)
    void *PyMem_Calloc(size_t, size_t)
    void PyMem_Free(void *)

cdef enum:
    ROW = 32                      # seqnos in a row
    ROW_SHIFT = 5
    PAGE = 8                      # rows in a page
    PAGE_SHIFT = 8                # 2**8 seqnos in a page


cdef struct Row:
    uint32_t full                 # which slots hold an item; the others mean nothing
    PyObject *slots[ROW]


cdef struct Page:
    Row *rows[PAGE]               # NULL: nothing is held there


cdef struct Table:                # the GIL guards all of it
    Page **directory              # mask+1 pages, a power of two of them; NULL: nothing is held there
    uint32_t mask
    uint32_t head                 # place & mask of LOW+1's page in the directory; counts the pages that LOW has left
    uint32_t pages                # how many there are
    uint32_t rows                 # how many there are
    uint64_t start                # the first seqno of LOW+1's page
    uint64_t low                  # everything up to here is freed
    uint64_t hd                   # highest delivered seqno
    uint64_t hr                   # highest received, sent or announced seqno
    uint64_t kept                 # highest seqno delivered with nullify=False
    uint64_t want                 # stable() was asked up to here
    uint64_t max_bytes            # 0: unbounded
    uint64_t nbytes               # payload held; kept only with max_bytes
    uint64_t capacity
    uint64_t bound                # capacity; 0 once closed, so that nothing is in the window any more
    uint8_t purging               # a stable() runs: others leave their wish in `want`
    uint8_t starved               # the last send ended because there was no memory
    uint8_t own_used              # `own` is in the directory
    Page *only                    # the directory of one page
    Page own                      # the page that is used first


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

cdef inline bint resize(Table *t, uint64_t size) noexcept nogil:
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


cdef inline uint64_t size_for(uint64_t pages) noexcept nogil:
    cdef uint64_t size = 1
    while size < pages:
        size <<= 1
    return size


cdef inline void fit(Table *t) noexcept nogil:
    """Make the directory smaller when LOW has left most of it behind; twice what is needed keeps it from growing at once."""
    cdef uint64_t needed = <uint64_t>t.mask + 1
    while needed > 1 and page_at(t, needed - 1)[0] == NULL:
        needed -= 1
    needed = size_for(needed)
    if 4 * needed <= <uint64_t>t.mask + 1:
        resize(t, 2 * needed if needed > 1 else 1)


cdef inline Page *new_page(Table *t) noexcept nogil:
    cdef Page *page = &t.own
    if t.own_used:
        return <Page *>PyMem_Calloc(1, sizeof(Page))
    memset(page, 0, sizeof(Page))
    t.own_used = True
    return page


cdef inline void free_page(Table *t, Page *page) noexcept nogil:
    if page == &t.own:
        t.own_used = False
    else:
        PyMem_Free(page)


cdef inline Page *make_page(Table *t, uint64_t seqno) noexcept nogil:
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


cdef inline Row *make_row(Table *t, uint64_t seqno) noexcept nogil:
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


cdef inline bint is_empty(const Page *page) noexcept nogil:
    cdef uint32_t k
    for k in range(<uint32_t>PAGE):
        if page.rows[k] != NULL:
            return False
    return True


cdef inline void drop_row(Table *t, uint64_t seqno) noexcept nogil:
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
