"""The page table: a struct, and inline functions over it that know neither Python nor
references. It is the memory of a SeqnoTable.

A row has the slots of 32 consecutive seqnos, and exists while one of them is held.
Eight rows make a page. The directory points to the pages; it is a circle that begins
with the page of LOW+1. The first page is inside the table itself, and so is a directory
of one page: items within 256 seqnos cost their rows and nothing else. So an empty table
has no memory of its own. A seqno far ahead costs a row, a page, and a directory with
one pointer for each 256 seqnos up to it.

The table is for one thread at a time (window.pyx). It needs no memory for the seqnos
that it accepted: these are all up to HD, and above HD those that are held.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from ringcast._core.seqno cimport ahead
from ringcast._core.slots cimport copy_run, count_bits, lowest_bit, ones, payload, unpack

# Python's allocator, so that tracemalloc sees what a table costs. It needs the GIL,
# where there is one: the callers of a table's functions hold it.
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
    uint32_t full                 # a bit for each slot that holds an item; the others are invalid
    PyObject *slots[ROW]


cdef struct Page:
    Row *rows[PAGE]               # NULL: nothing is held there


cdef struct Table:
    Page **directory              # mask+1 pages, a power of two; NULL: nothing is held there
    uint32_t mask
    uint32_t head                 # how many pages LOW has left; head & mask is LOW+1's page
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
    uint64_t bound                # capacity; 0 once closed, so that no seqno is in the window
    uint8_t purging               # a stable() runs: others only raise `want`
    uint8_t starved               # the last send ended because there was no memory
    uint8_t own_used              # `own` is in the directory
    Page *only                    # the directory of one page
    Page own                      # the page that is used first


# --- positions: all of these take seqnos above LOW only -------------------------------

cdef inline uint64_t page_number(const Table *t, uint64_t seqno) noexcept nogil:
    """Return the number of the seqno's page; 0 is LOW+1's page."""
    return (seqno - t.start) >> PAGE_SHIFT


cdef inline Page **page_at(const Table *t, uint64_t number) noexcept nogil:
    """Return the place of a page in the directory, which is large enough: number <=
    mask."""
    return &t.directory[(t.head + <uint32_t>number) & t.mask]


cdef inline Row **row_at(const Table *t, Page *page, uint64_t seqno) noexcept nogil:
    """Return the place of the seqno's row in its page."""
    return &page.rows[(seqno - t.start) >> ROW_SHIFT & (PAGE - 1)]


cdef inline uint32_t bit_of(const Table *t, uint64_t seqno) noexcept nogil:
    """Return the place of the seqno in its row."""
    return <uint32_t>(seqno - t.start) & (ROW - 1)


cdef inline Page *find_page(const Table *t, uint64_t seqno) noexcept nogil:
    """Return the seqno's page, or NULL."""
    cdef uint64_t number = page_number(t, seqno)
    return page_at(t, number)[0] if number <= t.mask else NULL


cdef inline Row *find_row(const Table *t, uint64_t seqno) noexcept nogil:
    """Return the seqno's row, or NULL."""
    cdef Page *page = find_page(t, seqno)
    return row_at(t, page, seqno)[0] if page != NULL else NULL


cdef inline uint32_t full_from(const Table *t, uint64_t seqno) noexcept nogil:
    """Return the full bits of the row from the seqno on; bit 0 is the seqno itself."""
    cdef Row *row = find_row(t, seqno)
    return row.full >> bit_of(t, seqno) if row != NULL else 0


cdef inline uint64_t left_in_row(const Table *t, uint64_t seqno) noexcept nogil:
    """Count the seqnos of the row from this one on."""
    return ROW - bit_of(t, seqno)


# --- memory: nothing here touches an item; a call that fails changes nothing ----------

cdef inline bint resize(Table *t, uint64_t size) noexcept nogil:
    """Make a directory of `size` pages: a power of two, and enough for those there
    are."""
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
    """Return the smallest power of two that is at least `pages`."""
    cdef uint64_t size = 1
    while size < pages:
        size <<= 1
    return size


cdef inline void fit(Table *t) noexcept nogil:
    """Make the directory smaller if LOW has left most of it behind.

    The new one has twice the places that are needed, so that it need not grow at once.
    """
    cdef uint64_t needed = <uint64_t>t.mask + 1
    while needed > 1 and page_at(t, needed - 1)[0] == NULL:
        needed -= 1
    needed = size_for(needed)
    if 4 * needed <= <uint64_t>t.mask + 1:
        resize(t, 2 * needed if needed > 1 else 1)


cdef inline Page *new_page(Table *t) noexcept nogil:
    """Return an empty page: the table's own if that is unused.

    NULL: there is no memory.
    """
    cdef Page *page = &t.own
    if t.own_used:
        return <Page *>PyMem_Calloc(1, sizeof(Page))
    memset(page, 0, sizeof(Page))
    t.own_used = True
    return page


cdef inline void free_page(Table *t, Page *page) noexcept nogil:
    """Give the memory of a page back."""
    if page == &t.own:
        t.own_used = False
    else:
        PyMem_Free(page)


cdef inline Page *make_page(Table *t, uint64_t seqno) noexcept nogil:
    """Return the seqno's page; make it, and make the directory larger, if needed.

    NULL: there is no memory.
    """
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
    """Return the seqno's row; make an empty one if there is none.

    NULL: there is no memory.
    """
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
    """Give the memory of the seqno's row back.

    The last row of a page takes the page along, and the last page the directory.
    """
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
    """Clear the full bits of mask in the seqno's row, which goes with its last item.

    The seqno is above LOW.
    """
    row.full &= ~mask
    if row.full == 0:
        drop_row(t, seqno)


cdef inline void move_low(Table *t, uint64_t seqno) noexcept nogil:
    """Move LOW to the seqno. The rows that it leaves are gone already."""
    cdef uint32_t pages = <uint32_t>page_number(t, seqno + 1)
    cdef uint32_t quarter = (t.mask + 1) >> 2
    t.low = seqno
    if pages:
        t.start += <uint64_t>pages << PAGE_SHIFT
        t.head += pages
        # fit() looks at every place, so call it once in a quarter of them
        if quarter and (t.head ^ (t.head - pages)) >= quarter:
            fit(t)


cdef inline Row *next_row(const Table *t, uint64_t *number) noexcept nogil:
    """Find the first row from *number on; row 0 is the first of LOW+1's page.

    Moves *number behind it. NULL: there is no more.
    """
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


# --- adding and sending ---------------------------------------------------------------

cdef inline bint in_window(const Table *t, uint64_t seqno) noexcept nogil:
    """Test LOW < seqno <= LOW+capacity (decision 4)."""
    return seqno - t.low - 1 < t.bound


cdef inline uint64_t room(const Table *t) noexcept nogil:
    """Return how many seqnos fit between HR, after which a send goes on, and
    LOW+capacity."""
    cdef uint64_t used = t.hr - t.low
    return t.bound - used if used < t.bound else 0


cdef inline bint fits(const Table *t, uint64_t size) noexcept nogil:
    """Test if `size` bytes more are within the bound; 0 bytes always are."""
    return size == 0 or (size <= t.max_bytes and t.nbytes <= t.max_bytes - size)


cdef inline uint64_t payload_of(PyObject **items, uint32_t mask) noexcept nogil:
    """Add up the bytes of items[k] for each bit k of mask."""
    cdef PyObject *chosen[ROW]
    if mask & (mask + 1) == 0:
        return payload(items, count_bits(mask))
    return payload(chosen, unpack(items, mask, chosen))


cdef inline uint32_t fitting(const Table *t, uint64_t seqno, PyObject **items, uint32_t new,
                             uint64_t *size) noexcept nogil:
    """Choose from the bits of `new`, in order, the items that the byte bound lets in.

    HD+1 may exceed it by itself (decision 7). The bytes of those chosen go to *size.
    """
    cdef uint32_t let_in = 0, k
    cdef uint64_t one
    size[0] = payload_of(items, new)
    if fits(t, size[0]):
        return new
    size[0] = 0
    while new:
        k = lowest_bit(new)
        one = payload(items + k, 1)
        if one == 0 or fits(t, size[0] + one) or (
                seqno + k == t.hd + 1 and t.nbytes <= t.max_bytes):
            let_in |= <uint32_t>1 << k
            size[0] += one
        new &= new - 1
    return let_in


cdef inline uint64_t fitting_run(const Table *t, PyObject **items, uint64_t count) noexcept nogil:
    """Count the items that a send may take before one is beyond the byte bound.

    An empty window takes one item of any size.
    """
    cdef bint is_first = t.hr == t.low
    cdef uint64_t taken = 0, size, k
    for k in range(count):
        size = payload(items + k, 1)
        if size and not fits(t, taken + size) and not (is_first and k == 0):
            return k
        taken += size
    return count


cdef inline void store(Row *row, uint32_t bit, uint32_t new, PyObject **items) noexcept nogil:
    """Store items[k] in slot bit+k for each bit k of new."""
    cdef uint32_t k
    row.full |= new << bit
    if new & (new + 1) == 0:
        copy_run(row.slots + bit, items, count_bits(new))
        return
    while new:
        k = lowest_bit(new)
        row.slots[bit + k] = items[k]
        new &= new - 1


# --- delivering and freeing -----------------------------------------------------------

cdef inline uint64_t run_of(uint32_t full) noexcept nogil:
    """Count the lowest bits that are set, up to the first that is not."""
    return lowest_bit(~full) if ~full else ROW


cdef inline uint64_t ready(const Table *t, uint64_t limit) noexcept nogil:
    """Count the items that can be delivered before the next gap, at most `limit`."""
    cdef uint64_t total = 0, run = 1
    while total < limit and run:
        run = run_of(full_from(t, t.hd + 1 + total))
        total += run
    return min(total, limit)


cdef inline uint64_t look_run(const Table *t, PyObject **out, uint64_t limit) noexcept nogil:
    """Copy the items after HD, at most to the end of a row, and leave them in place.

    Returns how many; 0 at a gap. The caller moves HD.
    """
    cdef Row *row = find_row(t, t.hd + 1)
    cdef uint32_t bit = bit_of(t, t.hd + 1)
    cdef uint64_t run = min(run_of(row.full >> bit), limit) if row != NULL else 0
    if run:
        copy_run(out, row.slots + bit, run)
    return run


cdef inline uint64_t take_run(Table *t, PyObject **out, uint64_t limit) noexcept nogil:
    """Move the items after HD, at most to the end of a row, out of the table.

    Returns how many; 0 at a gap. Moves HD, and LOW too if it was equal to HD.
    """
    cdef uint64_t first = t.hd + 1
    cdef Row *row = find_row(t, first)
    cdef uint64_t run = look_run(t, out, limit)
    cdef bint low_follows = t.low == t.hd
    if run:
        t.hd += run
        empty(t, row, first, ones(run) << bit_of(t, first))
        if low_follows:
            move_low(t, t.hd)
    return run


cdef inline uint32_t free_row(Table *t, uint64_t upto, PyObject **out) noexcept nogil:
    """Move LOW towards `upto`, at most to the end of its row.

    The items that are still there go to `out`. Returns how many they are.
    """
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


# --- looking --------------------------------------------------------------------------

cdef inline uint64_t scan(const Table *t, uint64_t seqno, uint64_t last, bint held) noexcept nogil:
    """Find the first of seqno..last that is held, or that is not.

    Returns last+1 if there is none.
    """
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
