"""SeqnoTable as other compiled modules see it, and its memory; what every window can do is in window.pxd.

A row has the slots of 32 consecutive seqnos and exists while one of them is held; eight rows make a page; the
directory has the pages, round and round, from the one in which LOW+1 stands. The first page lies in the table itself, and so does
a directory of one page: what is held within 256 seqnos costs its rows and nothing else. So an empty table has no memory of its
own, and a seqno far ahead costs a row, a page, and a directory with a pointer for each 256 seqnos up to it.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from ringcast._core.window cimport Window

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


@cython.final
@cython.trashcan(True)
cdef class SeqnoTable(Window):
    cdef Table table

    cdef uint64_t place(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept
    cdef uint32_t put(self, uint64_t seqno, PyObject **items, uint32_t wanted) noexcept
    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept
