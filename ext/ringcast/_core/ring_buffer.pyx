"""RingBuffer: a delivery window of fixed capacity, in which LOW <= HD <= HR <=
LOW+capacity.

window.pyx says what a window does, block_ring.pxd how the memory is laid out and
shared. This module adds references and the GIL.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from ringcast._core.atomics cimport load_acquire, load_relaxed, store_release
from ringcast._core.block_ring cimport (
    BLOCK, BLOCK_SHIFT, Block, Position, Ring, advance_hd, area_size, ask_to_free, blocks_held,
    claim_bits, destroy_ring, empty_block, fits, free_wanted, give_bytes, held_bits, in_window,
    locate, look_run, make_ring, publish, ready, room, scan, slots_at, slots_from, take_bytes,
    take_run, to_next_block,
)
from ringcast._core.seqno cimport ahead, to_uint64
from ringcast._core.slots cimport copy_run, count_bits, ones, payload
from ringcast._core.window cimport (
    Py_INCREF, Window, Words, check_capacity, hold, refuse_none, release,
)


cdef inline uint64_t append(Ring *r, PyObject **items, uint64_t count) noexcept:
    """Store items behind HR, at most to the end of a block. Returns how many.

    There is room for them. Each call of a window is one step, so nobody else writes
    these words meanwhile, and none needs an atomic update, as in claim_bits() and
    publish(): a message that is sent alone would pay for four of them.
    """
    cdef uint64_t hr = load_relaxed(&r.hr)
    cdef Position at = locate(r, hr + 1)
    cdef Block *block = &r.blocks[at.block]
    cdef uint64_t run = min(count, <uint64_t>(BLOCK - at.bit))
    cdef uint32_t bits = ones(run) << at.bit
    hold(items, ones(run))
    copy_run(slots_at(r, at), items, run)
    # These pair with no acquire, but for `full`: with those that publish() names.
    store_release(&block.claim, load_relaxed(&block.claim) | bits)
    store_release(&r.hr, hr + run)
    store_release(&block.full, load_relaxed(&block.full) | bits)
    return run


@cython.final
@cython.trashcan(True)
cdef class RingBuffer(Window):
    """A window of `capacity` seqnos, at first offset+1 .. offset+capacity.

    `capacity` is 1 to 2**26, `offset` 0 to 2**64-1; seqnos wrap at 2**64. With
    `max_bytes` the window holds at most so many bytes of payload; only the length of
    `bytes` items counts. An add beyond the bytes is refused like one beyond the
    capacity. There are two exceptions, because otherwise a large item, or a window that
    is filled behind a gap, would stall: seqno HD+1 is let in while no more than
    `max_bytes` is held, and send() takes one item of any size when nothing is held.

    *Threads.* See Window.
    """

    def __cinit__(self, capacity, offset=0, *, max_bytes=0):
        self.ring = make_ring(check_capacity(capacity), to_uint64(offset, "offset"),
                              to_uint64(max_bytes, "max_bytes"))
        if self.ring == NULL:
            raise MemoryError(f"no memory for a window of {capacity} messages")

    def __dealloc__(self):
        if self.ring != NULL:
            self.c_close()
            destroy_ring(self.ring)

    # --- adding

    cdef bint c_add(self, uint64_t seqno, object item) except -1:
        cdef PyObject *value = <PyObject *>item
        if item is None:
            refuse_none()
        return in_window(self.ring, seqno) and self.place(seqno, &value, 1) == 1

    cdef uint64_t c_add_run(self, uint64_t seqno, PyObject **items, uint64_t count) noexcept:
        """Add the part of a run that is in the window, block by block."""
        cdef Ring *r = self.ring
        # pairs with the store_release of low in free_to()
        cdef uint64_t low = load_acquire(&r.low), total = 0, skip = 0, step
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
        """Add a run that lies in the window and in one block.

        Returns how many items were new and had room.
        """
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
        """Claim seqnos, take references, publish the items.

        In the answer bit k is set if items[k] is in the window now.
        """
        cdef Position at = locate(self.ring, seqno)
        cdef uint32_t got = claim_bits(self.ring, at, ones(count) << at.bit)
        if got:
            hold(items, got >> at.bit)
            publish(self.ring, at, seqno, got, items)
        return got >> at.bit

    # --- sending

    cdef uint64_t c_send_run(self, PyObject **items, uint64_t count) noexcept:
        cdef uint64_t fit = self.count_bytes_in(items, min(count, room(self.ring))), sent = 0
        while sent < fit:
            sent += append(self.ring, items + sent, fit - sent)
        return fit

    cdef uint64_t count_bytes_in(self, PyObject **items, uint64_t count) noexcept:
        """Add the bytes of the items that fit the byte bound. Returns how many fit.

        An empty window takes one item of any size.
        """
        cdef Ring *r = self.ring
        cdef uint64_t fit = 0, held = load_relaxed(&r.nbytes), size
        cdef bint empty = load_relaxed(&r.hr) == load_relaxed(&r.low)
        if not r.max_bytes:
            return count
        while fit < count:
            size = payload(items + fit, 1)
            if not fits(r, held, size, empty and fit == 0):
                break
            held += size
            fit += 1
        store_release(&r.nbytes, held)      # pairs with no acquire: it publishes no other word
        return fit

    # --- delivering

    cdef uint64_t c_ready(self, uint64_t limit) noexcept:
        return ready(self.ring, limit)

    cdef uint64_t c_deliver(self, PyObject **out, uint64_t limit, bint nullify) noexcept:
        """Move up to `limit` items, in order, to `out` as new references.

        Moves HD, and LOW too if nothing is kept.
        """
        cdef Ring *r = self.ring
        cdef uint64_t total = 0, run
        while total < limit:
            if nullify:
                run = take_run(r, out + total, limit - total)
            else:
                run = self.share(out + total, limit - total)
            if run == 0:
                break
            total += run
        if not nullify:
            r.kept = load_relaxed(&r.hd) if total else r.kept
            return total
        give_bytes(r, out, total)
        if load_relaxed(&r.low) != load_relaxed(&r.hd) and ahead(r.kept, load_relaxed(&r.low)) <= 0:
            # What was kept has been freed since, and what came after it is taken out.
            self.c_stable(load_relaxed(&r.hd))
        return total

    cdef uint64_t share(self, PyObject **out, uint64_t limit) noexcept:
        """Deliver a run of one block by new references. stable() empties its slots."""
        cdef uint64_t run = look_run(self.ring, out, limit), k
        for k in range(run):
            Py_INCREF(out[k])
        if run:
            advance_hd(self.ring, run)
        return run

    # --- freeing

    cdef uint64_t c_stable(self, uint64_t seqno) noexcept:
        """Move LOW to the seqno, at most to HD. Returns how many seqnos were freed.

        The caller that gets the token also works for those who ask meanwhile: they are
        finalisers, which run because items are released block by block, after LOW has
        moved.
        """
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

    cdef void c_close(self) noexcept:
        """Close the window, then release what is in it."""
        cdef Ring *r = self.ring
        cdef PyObject *out[BLOCK]
        cdef Position at
        cdef uint32_t count
        store_release(&r.bound, 0)          # pairs with no acquire: it publishes no other word
        cdef uint64_t left = blocks_held(r, &at)
        while left:
            count = empty_block(r, at, out)
            give_bytes(r, out, count)
            release(out, count)
            to_next_block(r, &at)
            left -= 1

    # --- looking

    cdef PyObject **c_run(self, uint64_t seqno, uint64_t *count) noexcept:
        return slots_from(self.ring, seqno, count)

    cdef bint c_gap(self, uint64_t *first, uint64_t *last) noexcept:
        cdef Position at = locate(self.ring, first[0])
        cdef uint64_t end = last[0]
        if load_relaxed(&self.ring.bound) == 0 or ahead(first[0], end) > 0:
            return False
        first[0] = scan(self.ring, &at, first[0], end, False)
        last[0] = scan(self.ring, &at, first[0], end, True) - 1
        return ahead(last[0], first[0]) >= 0

    cdef uint32_t c_held(self, uint64_t *number, PyObject ***slots) noexcept:
        """Return the full bits of the next block that has any; block 0 is LOW+1's."""
        cdef Ring *r = self.ring
        cdef Position at
        cdef uint32_t held = 0
        cdef uint64_t blocks = blocks_held(r, &at) if r != NULL else 0
        while held == 0 and number[0] < blocks:
            at = locate(r, load_relaxed(&r.low) + 1 + (number[0] << BLOCK_SHIFT))
            at.bit = 0
            slots[0] = slots_at(r, at)
            held = held_bits(r, at)
            number[0] += 1
        return held

    cdef Words words(self) noexcept:
        cdef Ring *r = self.ring
        return Words(r.capacity, &r.low, &r.hd, &r.hr, &r.bound, &r.max_bytes, &r.nbytes)

    def __sizeof__(self):
        """Return the bytes of memory that the window takes, without its items."""
        return type(self).__basicsize__ + sizeof(Ring) + area_size(self.ring)
