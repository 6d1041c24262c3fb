"""The block ring: a struct, and inline functions over it that know neither Python nor
the GIL.

32 consecutive seqnos share a block of two words. The word `claim` has the lap of the
ring that the block stands for, and a bit for each seqno that an adder took. The word
`full` has a bit for each item that can be read. An adder claims its seqnos by one
compare and swap of lap and bits together: so a late duplicate of an earlier lap always
fails (decision 1). Then it writes the items and sets their full bits. The consumer
takes runs of full bits, then moves HD, then LOW. When LOW leaves a block, the block's
claim word begins the next lap, empty. The ring has one block more than the capacity
needs, so that LOW+capacity is never in the block of LOW.

Threads: any number may add and look; one is the consumer (take_run, or look_run and
advance_hd); one at a time frees, the purger (free_block, and take_run if LOW == HD;
never both at once). A sender, which takes the seqno behind HR, is the only adder. The
functions here take no references to items: that is the caller's task. tests/interleave
tries every schedule of small threads over these functions. The table in
tests/interleave/test_memory_orders.py says which memory order each access needs, and
what goes wrong without it.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap
from posix.stdlib cimport posix_memalign

from ringcast._core.atomics cimport (
    cas_acq_rel_relaxed, cas_acquire_relaxed, cas_relaxed, fetch_add_acq_rel, fetch_and_relaxed,
    fetch_or_release, fetch_sub_relaxed, load_acquire, load_relaxed, store_release,
)
from ringcast._core.seqno cimport ahead, raise_to
from ringcast._core.slots cimport (
    copy_run, count_bits, highest_bit, lowest_bit, ones, payload, unpack,
)

cdef extern from * nogil:
    """
    static inline uint64_t ringcast_mul_high(uint64_t a, uint64_t b) {
        return (uint64_t)(((unsigned __int128)a * b) >> 64);
    }
    """
    uint64_t mul_high "ringcast_mul_high"(uint64_t, uint64_t)

cdef enum:
    BLOCK = 32                    # seqnos in a block; tests/interleave also tries 2
    BLOCK_SHIFT = 5
    NO_SHIFT = 64                 # the number of blocks is not a power of two
    CACHE_LINE = 64
    MAP_FROM = 65536              # from so many bytes of slots on, mmap: untouched pages are free


cdef struct Block:                # 32 consecutive seqnos; all zero is the empty block of lap 0
    uint64_t claim                # lap << 32 | claimed bits: adders set bits, free_to() new lap
    uint64_t full                 # the full bits: adders set them, consumer and purger clear them


cdef struct Ring:                 # four cache lines, one for each kind of thread that writes
    # Written once, by the constructor.
    PyObject **slots              # num_blocks * 32 items; a slot is valid while its full bit is set
    Block *blocks
    uint64_t base                 # the seqno of bit 0 of block 0 in lap 0
    uint64_t capacity
    uint64_t max_bytes            # 0: unbounded
    uint64_t num_blocks
    uint64_t shift                # num_blocks == 1 << shift, or NO_SHIFT
    uint64_t inverse              # 2**64 // num_blocks; a division would be an add's slowest step
    # Written by adders.
    uint64_t hr                   # highest received, sent or announced seqno
    uint64_t nbytes               # payload held, only with max_bytes; who frees writes it too
    uint64_t pad_adders[6]
    # Written by the consumer.
    uint64_t hd                   # highest delivered seqno
    uint64_t kept                 # highest seqno delivered with nullify=False; the consumer's own
    uint64_t pad_consumer[6]
    # Written by the purger.
    uint64_t low                  # everything up to here is freed
    uint64_t want                 # stable() was asked up to here
    uint64_t purging              # the token: how many stable() calls the running one works for
    uint64_t bound                # capacity; 0 once closed, so that no seqno is in the window
    uint64_t pad_purger[4]


cdef struct Position:             # the place of a seqno
    uint64_t block
    uint32_t lap
    uint32_t bit


# --- positions ------------------------------------------------------------------------

cdef inline Position locate(const Ring *r, uint64_t seqno) noexcept nogil:
    """Find the place of a seqno."""
    cdef Position at
    cdef uint64_t x = seqno - r.base
    cdef uint64_t number = x >> BLOCK_SHIFT
    cdef uint64_t lap
    at.bit = <uint32_t>x & (BLOCK - 1)
    if r.shift != NO_SHIFT:
        at.block = number & (r.num_blocks - 1)
        at.lap = <uint32_t>(number >> r.shift)
    else:
        lap = mul_high(number, r.inverse)       # number // num_blocks, or one less
        at.block = number - lap * r.num_blocks
        if at.block >= r.num_blocks:
            at.block -= r.num_blocks
            lap += 1
        at.lap = <uint32_t>lap
    return at


cdef inline void to_next_block(const Ring *r, Position *at) noexcept nogil:
    """Move `at` to the beginning of the next block."""
    at.bit = 0
    at.block += 1
    if at.block == r.num_blocks:
        at.block = 0
        at.lap += 1


cdef inline PyObject **slots_at(const Ring *r, Position at) noexcept nogil:
    """Return the slot at this place; the rest of its block follows."""
    return &r.slots[(at.block << BLOCK_SHIFT) + at.bit]


# --- adders: test the window, claim, publish ------------------------------------------

cdef inline bint in_window(const Ring *r, uint64_t seqno) noexcept nogil:
    """Test LOW < seqno <= LOW+capacity (decision 4), by one unsigned comparison."""
    # pairs with the store_release of low in free_to(): so a seqno in the window never
    # meets a block of the lap before
    return seqno - load_acquire(&r.low) - 1 < load_relaxed(&r.bound)


cdef inline uint32_t claim_bits(Ring *r, Position at, uint32_t mask) noexcept nogil:
    """Claim the free bits of mask if the block is in our lap; return those claimed."""
    cdef uint64_t *word = &r.blocks[at.block].claim
    cdef uint64_t seen = load_relaxed(word)
    cdef uint32_t unclaimed
    while True:
        unclaimed = mask & ~<uint32_t>seen
        if <uint32_t>(seen >> 32) != at.lap or not unclaimed:
            return 0
        # pairs with the store_release of claim in free_to(): the thread that freed the
        # block has read the slots of the lap before
        if cas_acquire_relaxed(word, &seen, seen | unclaimed):
            return unclaimed


cdef inline void publish(Ring *r, Position at, uint64_t seqno, uint32_t mask,
                         PyObject **items) noexcept nogil:
    """Store items[k] for each claimed bit at.bit+k of mask, then set the full bits.

    HR is raised before, so that nobody sees HD above HR.
    """
    cdef PyObject **slots = slots_at(r, at)
    cdef uint32_t todo = mask >> at.bit
    cdef uint32_t k
    raise_to(&r.hr, seqno + highest_bit(todo))
    while todo:
        k = lowest_bit(todo)
        slots[k] = items[k]
        todo &= todo - 1
    # pairs with the load_acquire of full in ready(), take_run(), look_run(),
    # free_block(), slots_from() and held_bits()
    fetch_or_release(&r.blocks[at.block].full, mask)


cdef inline uint64_t room(const Ring *r) noexcept nogil:
    """Return how many seqnos fit between HR and LOW+capacity."""
    cdef uint64_t bound = load_relaxed(&r.bound)
    # pairs with the store_release of low in free_to(): a seqno that fits has a free
    # block
    cdef uint64_t used = load_relaxed(&r.hr) - load_acquire(&r.low)
    return bound - used if used < bound else 0


# --- bytes (decision 7) ---------------------------------------------------------------

cdef inline bint fits(const Ring *r, uint64_t held, uint64_t size,
                      bint may_exceed) noexcept nogil:
    """Test if `size` more bytes fit where so many are held.

    What `may_exceed` the bound fits as long as what is held does not exceed it.
    """
    cdef uint64_t more = 0 if may_exceed else size
    return size == 0 or (more <= r.max_bytes and held <= r.max_bytes - more)


cdef inline bint take_bytes(Ring *r, uint64_t size, bint may_exceed) noexcept nogil:
    """Add `size` to the bytes held if they fit. Returns False if not.

    Relaxed: this is a counter, which publishes no item.
    """
    cdef uint64_t seen = load_relaxed(&r.nbytes)
    while fits(r, seen, size, may_exceed):
        if cas_relaxed(&r.nbytes, &seen, seen + size):
            return True
    return False


cdef inline void give_bytes(Ring *r, PyObject **items, uint64_t count) noexcept nogil:
    """Subtract the bytes of items that leave the window."""
    if r.max_bytes:
        fetch_sub_relaxed(&r.nbytes, payload(items, count))


# --- consumer and purger --------------------------------------------------------------

cdef inline uint64_t full_run(uint64_t full, Position at, uint64_t limit) noexcept nogil:
    """Return the length of the run of full bits from at.bit on, at most `limit`."""
    cdef uint32_t zeros = ~<uint32_t>(full >> at.bit)
    cdef uint64_t run = lowest_bit(zeros) if zeros else BLOCK
    run = min(run, <uint64_t>(BLOCK - at.bit))
    return min(run, limit)


cdef inline void clear_full(Block *block, uint32_t mask) noexcept nogil:
    """Clear full bits: their items now belong to the caller."""
    # relaxed: the caller has acquired the bits, and free_to() releases the slots
    fetch_and_relaxed(&block.full, ~<uint64_t>mask)


cdef inline void free_to(Ring *r, uint64_t seqno, Position at) noexcept nogil:
    """Move LOW to the seqno, whose place is `at`.

    A block that LOW leaves begins its next lap. One thread at a time may call this.
    """
    if at.bit == BLOCK - 1:
        # pairs with the cas_acquire in claim_bits(). All 32 seqnos were claimed and
        # published, so nobody writes into the block any more
        store_release(&r.blocks[at.block].claim, <uint64_t>(at.lap + 1) << 32)
    # pairs with the load_acquire of low in in_window(), room() and blocks_held()
    store_release(&r.low, seqno)


cdef inline uint64_t ready(Ring *r, uint64_t limit) noexcept nogil:
    """Count the items that can be delivered before the next gap, at most `limit`."""
    cdef uint64_t seqno = load_relaxed(&r.hd) + 1           # only the consumer writes hd
    cdef uint64_t total = 0, run
    cdef Position at = locate(r, seqno)
    while total < limit:
        # pairs with the fetch_or_release in publish()
        run = full_run(load_acquire(&r.blocks[at.block].full), at, BLOCK)
        total += run
        if at.bit + run < BLOCK:
            break
        to_next_block(r, &at)
    return min(total, limit)


cdef inline uint64_t take_run(Ring *r, PyObject **out, uint64_t limit) noexcept nogil:
    """Move the items after HD, at most to the end of a block, out of the window.

    Returns how many; 0 at a gap. Moves HD, and LOW too if it was equal to HD.
    """
    cdef uint64_t hd = load_relaxed(&r.hd)
    cdef Position at = locate(r, hd + 1)
    cdef Block *block = &r.blocks[at.block]
    # pairs with the fetch_or_release in publish()
    cdef uint64_t run = full_run(load_acquire(&block.full), at, limit)
    if run == 0:
        return 0
    clear_full(block, ones(run) << at.bit)
    copy_run(out, slots_at(r, at), run)
    # pairs with the load_acquire of hd in wanted_to()
    store_release(&r.hd, hd + run)
    if load_relaxed(&r.low) == hd:
        at.bit += <uint32_t>run - 1
        free_to(r, hd + run, at)
    return run


cdef inline uint64_t look_run(Ring *r, PyObject **out, uint64_t limit) noexcept nogil:
    """Copy the items after HD, at most to the end of a block, and leave them in place.

    Returns how many. The caller takes its references, then calls advance_hd().
    """
    cdef Position at = locate(r, load_relaxed(&r.hd) + 1)
    # pairs with the fetch_or_release in publish()
    cdef uint64_t run = full_run(load_acquire(&r.blocks[at.block].full), at, limit)
    copy_run(out, slots_at(r, at), run)
    return run


cdef inline void advance_hd(Ring *r, uint64_t run) noexcept nogil:
    """Move HD over a run that look_run() copied."""
    # pairs with the load_acquire of hd in wanted_to()
    store_release(&r.hd, load_relaxed(&r.hd) + run)


cdef inline uint64_t wanted_to(Ring *r) noexcept nogil:
    """Return where LOW should go: to what stable() was asked for, at most to HD."""
    # pairs with the store_release of hd in take_run() and advance_hd(): the consumer
    # has copied every slot up to hd
    cdef uint64_t hd = load_acquire(&r.hd)
    # relaxed: the token orders it, because a call raises `want` before it takes the
    # token
    cdef uint64_t want = load_relaxed(&r.want)
    return hd if ahead(want, hd) > 0 else want


cdef inline uint64_t free_block(Ring *r, uint64_t upto, PyObject **out,
                                uint32_t *count) noexcept nogil:
    """Move LOW towards `upto`, at most to the end of its block.

    The items that are still there go to `out`, their number to *count. Returns by how
    much LOW moved.
    """
    cdef uint64_t low = load_relaxed(&r.low)                # only the purger writes low
    cdef Position at = locate(r, low + 1)
    cdef Block *block = &r.blocks[at.block]
    cdef uint64_t step = min(upto - low, <uint64_t>(BLOCK - at.bit))
    # pairs with the fetch_or_release in publish()
    cdef uint32_t held = <uint32_t>load_acquire(&block.full) & (ones(step) << at.bit)
    if held:
        clear_full(block, held)
    count[0] = unpack(slots_at(r, at) - at.bit, held, out)
    at.bit += <uint32_t>step - 1
    free_to(r, low + step, at)
    return step


# --- the token: one caller at a time works, also for those who ask meanwhile ----------

cdef inline bint take_token(uint64_t *token, uint64_t *asked) noexcept nogil:
    """Ask for work that the caller has announced before.

    True: the caller does the work, until give_token() is true. False: another one does
    it.
    """
    asked[0] = 1
    # pairs with both accesses in give_token(): either the one who works sees what we
    # announced, or we work
    return fetch_add_acq_rel(token, 1) == 0


cdef inline bint give_token(uint64_t *token, uint64_t *asked) noexcept nogil:
    """Give the token back.

    False: somebody asked since we looked for work; look again.
    """
    # pairs with the fetch_add_acq_rel in take_token(): the next one goes on from here
    if cas_acq_rel_relaxed(token, asked, 0):
        return True
    # pairs with the fetch_add_acq_rel in take_token(): we see the work of those who
    # asked
    asked[0] = load_acquire(token)
    return False


cdef inline bint ask_to_free(Ring *r, uint64_t seqno, uint64_t *asked) noexcept nogil:
    """Raise `want` to min(seqno, HD).

    True: the caller now calls free_wanted() until it returns 0.
    """
    cdef uint64_t hd = load_relaxed(&r.hd)
    raise_to(&r.want, hd if ahead(seqno, hd) > 0 else seqno)
    return take_token(&r.purging, asked)


cdef inline uint64_t free_wanted(Ring *r, uint64_t *asked, PyObject **out,
                                 uint32_t *count) noexcept nogil:
    """Call free_block() for the next step towards what is wanted.

    Returns by how much LOW moved. 0: all is freed, and the token is given back.
    """
    cdef uint64_t upto, step
    while True:
        upto = wanted_to(r)
        step = free_block(r, upto, out, count) if ahead(upto, load_relaxed(&r.low)) > 0 else 0
        if step or give_token(&r.purging, asked):
            return step


# --- looking --------------------------------------------------------------------------

cdef inline PyObject **slots_from(Ring *r, uint64_t seqno, uint64_t *count) noexcept nogil:
    """Return the slots from a seqno on, *count of which are full: those up to a gap or
    to the end of the block.

    The caller knows that nobody frees meanwhile; RingBuffer.get() is one step.
    """
    cdef Position at = locate(r, seqno)
    count[0] = 0
    if in_window(r, seqno):
        # pairs with the fetch_or_release in publish()
        count[0] = full_run(load_acquire(&r.blocks[at.block].full), at, BLOCK)
    return slots_at(r, at)


cdef inline uint32_t claimed_bits(Ring *r, Position at) noexcept nogil:
    """Return the claimed bits of a block in the lap of `at`.

    All are claimed if the block is in a later lap already.
    """
    cdef uint64_t claim = load_relaxed(&r.blocks[at.block].claim)
    cdef int32_t later = <int32_t>(<uint32_t>(claim >> 32) - at.lap)
    if later == 0:
        return <uint32_t>claim
    return ones(BLOCK) if later > 0 else 0


cdef inline uint64_t scan(Ring *r, Position *at, uint64_t seqno, uint64_t last,
                          bint claimed) noexcept nogil:
    """Find the first of seqno..last that is claimed, or that is not.

    Returns last+1 if there is none. `at` is the place of seqno, and moves along.
    """
    cdef uint64_t left = last + 1 - seqno, step
    cdef uint32_t bits
    while left:
        bits = claimed_bits(r, at[0])
        bits = (bits if claimed else ~bits & ones(BLOCK)) >> at.bit
        if bits:
            step = min(<uint64_t>lowest_bit(bits), left)
            at.bit += <uint32_t>step
            return seqno + step
        step = min(<uint64_t>(BLOCK - at.bit), left)
        seqno += step
        left -= step
        to_next_block(r, at)
    return seqno


cdef inline uint32_t held_bits(Ring *r, Position at) noexcept nogil:
    """Return the full bits of a block."""
    # pairs with the fetch_or_release in publish()
    return <uint32_t>load_acquire(&r.blocks[at.block].full)


cdef inline uint64_t blocks_held(Ring *r, Position *first) noexcept nogil:
    """Count the blocks that LOW+1..HR touches: no other block has full bits.

    The beginning of the first goes to *first.
    """
    # pairs with the store_release of low in free_to()
    cdef uint64_t low = load_acquire(&r.low), hr = load_relaxed(&r.hr)
    first[0] = locate(r, low + 1)
    cdef uint64_t blocks = (hr - low + first.bit + BLOCK - 1) >> BLOCK_SHIFT if hr != low else 0
    first.bit = 0
    return blocks


cdef inline uint32_t empty_block(Ring *r, Position at, PyObject **out) noexcept nogil:
    """Take all items out of a block when the window closes. Returns how many."""
    cdef uint32_t held = held_bits(r, at)
    clear_full(&r.blocks[at.block], held)
    return unpack(slots_at(r, at), held, out)


# --- memory ---------------------------------------------------------------------------

cdef inline bint is_mapped(const Ring *r) noexcept nogil:
    return r.num_blocks * BLOCK * sizeof(PyObject *) >= MAP_FROM


cdef inline uint64_t area_size(const Ring *r) noexcept nogil:
    """Return the bytes of slots and blocks together."""
    return r.num_blocks * (BLOCK * sizeof(PyObject *) + sizeof(Block))


cdef inline bint make_area(Ring *r) noexcept nogil:
    """Allocate one area for slots and blocks. All zero, it is an empty ring."""
    cdef void *area
    if is_mapped(r):
        area = mmap(NULL, area_size(r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if area == MAP_FAILED:
            return False
    else:
        area = calloc(1, area_size(r))
        if area == NULL:
            return False
    r.slots = <PyObject **>area
    r.blocks = <Block *>(r.slots + r.num_blocks * BLOCK)
    return True


cdef inline Ring *make_ring(uint64_t capacity, uint64_t offset, uint64_t max_bytes) noexcept nogil:
    """Make an empty ring; NULL if there is no memory.

    Nobody else sees it yet, so its words are written by plain stores.
    """
    cdef void *memory = NULL
    if posix_memalign(&memory, CACHE_LINE, sizeof(Ring)):
        return NULL
    cdef Ring *r = <Ring *>memory
    memset(r, 0, sizeof(Ring))
    r.num_blocks = (capacity + BLOCK - 1) // BLOCK + 1
    if not make_area(r):
        free(r)
        return NULL
    r.shift = NO_SHIFT
    r.inverse = <uint64_t>0xFFFFFFFFFFFFFFFFULL // r.num_blocks
    if count_bits(<uint32_t>r.num_blocks) == 1:
        r.shift = lowest_bit(<uint32_t>r.num_blocks)
    r.base = offset + 1
    r.capacity = r.bound = capacity
    r.max_bytes = max_bytes
    r.hr = r.hd = r.kept = r.low = r.want = offset
    return r


cdef inline void destroy_ring(Ring *r) noexcept nogil:
    """Give all memory of the ring back."""
    if is_mapped(r):
        munmap(r.slots, area_size(r))
    else:
        free(r.slots)
    free(r)
