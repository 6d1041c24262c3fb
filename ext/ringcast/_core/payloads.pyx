"""Payload objects: `bytes` that are used again.

A receiver makes a `bytes` for each message, and drops it soon. Most streams have
messages of one size, or of a few. So an object that nobody refers to any more is kept
for the next message of its size: that needs no allocator, and its memory is more often
in the processor's cache.

An object is used again only if the last reference to it is the one that is dropped
here: then no program can tell it from a new one. It waits on a shelf. A shelf is a
stack of objects of one size. It has room for what a receiver gives back at once when
LOW of a full window rises (decision 7). There is a shelf for each of the last few sizes
that were asked for, so an object of another size, or that a sender made, goes back to
the allocator.

The GIL guards the shelves. In a Python without it nothing is used again.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from ringcast._core.slots cimport bytes_size, is_plain_bytes, prefetch

cdef extern from *:
    """
    /* A new object has no hash yet. The field is deprecated, and there in all versions. */
    static inline void ringcast_forget_hash(PyObject *item) {
        #pragma GCC diagnostic push
        #pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        ((PyBytesObject *)item)->ob_shash = -1;
        #pragma GCC diagnostic pop
    }
    """
    void forget_hash "ringcast_forget_hash"(PyObject *)

cdef extern from "Python.h":
    char *bytes_at "PyBytes_AS_STRING"(PyObject *)
    void Py_DECREF(PyObject *)

cdef enum:
    SHELVES = 8
    SHELF_SHIFT = 61                # 64 bits less those that number a shelf
    SHELF_ITEMS = 1 << 14           # what one shelf holds at most
    SHELF_BYTES = 8 << 20           # and all of them together
    SMALLEST = 2                    # shorter ones Python shares anyway
    AHEAD = 8                       # objects that are fetched before they are taken


cdef struct Shelf:
    Py_ssize_t size                 # of each object; 0: not in use
    uint64_t count
    PyObject *items[SHELF_ITEMS]    # the last one that came is the next to go


cdef Shelf[SHELVES] shelves
cdef uint64_t waiting = 0           # bytes on all shelves


cdef Shelf *shelf_for(Py_ssize_t size) noexcept:
    """Return the shelf where objects of this size may be; others share it."""
    return &shelves[(<uint64_t>size * 0x9E3779B97F4A7C15ULL) >> SHELF_SHIFT]


cdef bytes make_payload(const char *raw, Py_ssize_t size):
    cdef Shelf *shelf = shelf_for(size)
    if not USES_AGAIN or size < SMALLEST:
        return PyBytes_FromStringAndSize(raw, size)
    if shelf.size != size:
        clear(shelf)
        shelf.size = size
    if shelf.count == 0:
        return PyBytes_FromStringAndSize(raw, size)
    return refilled(take(shelf), raw, size)


cdef PyObject *take(Shelf *shelf) noexcept:
    """Take the last object off a shelf that has one."""
    global waiting
    shelf.count -= 1
    waiting -= <uint64_t>shelf.size
    if shelf.count >= AHEAD:            # what was kept for long has left the caches
        prefetch(shelf.items[shelf.count - AHEAD])
    return shelf.items[shelf.count]


cdef bytes refilled(PyObject *item, const char *raw, Py_ssize_t size):
    """Return an object from a shelf with other bytes; its reference goes along."""
    cdef bytes payload
    forget_hash(item)
    memcpy(bytes_at(item), raw, <size_t>size)
    payload = <bytes>item
    Py_DECREF(item)
    return payload


cdef void shelve(PyObject **items, uint64_t count) noexcept:
    cdef uint64_t k
    if not USES_AGAIN:
        return
    for k in range(count):              # what was kept for long has left the caches
        prefetch(items[k])
    for k in range(count):
        if is_plain_bytes(items[k]) and is_last(items[k]) and put(items[k]):
            items[k] = NULL


cdef bint put(PyObject *item) noexcept:
    """Put an object on the shelf of its size, if there is one with room. If all of them
    are full together, the fullest other one gives way."""
    global waiting
    cdef uint64_t size = bytes_size(item)
    cdef Shelf *shelf = shelf_for(<Py_ssize_t>size)
    if shelf.size != <Py_ssize_t>size or size == 0 or shelf.count == SHELF_ITEMS:
        return False
    if waiting + size > SHELF_BYTES and not make_room(shelf):
        return False
    shelf.items[shelf.count] = item
    shelf.count += 1
    waiting += size
    return True


cdef bint make_room(Shelf *shelf) noexcept:
    """Clear the fullest shelf, unless it is this one. Return whether it was cleared."""
    cdef Shelf *fullest = shelf
    cdef uint32_t k
    for k in range(<uint32_t>SHELVES):
        if shelves[k].count * <uint64_t>shelves[k].size > fullest.count * <uint64_t>fullest.size:
            fullest = &shelves[k]
    if fullest == shelf:
        return False
    clear(fullest)
    return True


cdef void clear(Shelf *shelf) noexcept:
    """Give the objects of a shelf back to the allocator."""
    while shelf.count:
        Py_DECREF(take(shelf))


def num_waiting():
    """Count the objects that wait for the next message of their size."""
    cdef uint64_t total = 0
    cdef uint32_t k
    for k in range(<uint32_t>SHELVES):
        total += shelves[k].count
    return total
