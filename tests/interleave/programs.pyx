# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Small threads over the shipped ring, and over the text's, for the explorer: what they do,
and what must hold.

A thread is a list of verbs, each with a number that counts seqnos from the first one that
the threads may add (1). The verbs call the functions of block_ring.pxd in the order in
which RingBuffer calls them, without references and the GIL. What a thread must remember for
a check is in Notes, which the explorer counts as part of the state.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from ringcast._core.atomics cimport (
    cas_acq_rel_relaxed, cas_relaxed, fetch_add_acq_rel, load_acquire, load_relaxed, store_release,
)
from ringcast._core.block_ring cimport (
    BLOCK, BLOCK_SHIFT, Block, Position, Ring, advance_hd, ask_to_free, blocks_held, claim_bits,
    destroy_ring, empty_block, free_wanted, give_token, held_bits, in_window, locate,
    look_run, make_ring, publish, ready, room, scan, slots_at, slots_from, take_run, take_token,
    to_next_block,
)
from ringcast._core.seqno cimport ahead
from ringcast._core.slots cimport count_bits, ones, unpack

cdef extern from "explorer.h" nogil:
    enum: THREADS
    enum: SHARED_WORDS
    enum: SHARED_SLOTS
    enum: SHARED_NOTES
    ctypedef struct Search:
        int threads
        int memory
        int plain
        uint64_t most_states
        void (*body)(int thread) noexcept nogil
        void (*after_step)(int is_new) noexcept nogil
        void (*at_end)() noexcept nogil
    ctypedef struct Found:
        const char *failure
        char *schedule
        uint64_t states
        uint64_t ends
        uint64_t ends_sum
        double schedules
        int gave_up
    ctypedef struct Step:
        int thread
        int kind
        int order
        int older
        int line
        int swapped
        const char *file
        uint64_t *word
        uint64_t before
        uint64_t after
    bint explorer_share(void *memory, size_t size, int kind)
    void explorer_forget()
    void explorer_search(const Search *search, Found *found)
    int explorer_replay(const Search *search, const char *schedule, Found *found)
    const Step *explorer_steps(int *count)
    void explorer_weaken(const char *file, int line, int order)
    void explorer_fail(const char *why)
    void explorer_wait(uint64_t *word, uint64_t seen)
    void explorer_between(int calls)
    int explorer_is_weak()

cdef enum:
    MOST_OPS = 32
    MOST_SEQNOS = 64            # bits of a word of Notes
    TEXT_SLOTS = 4

# What a thread can do. In the lines of a program these are in small letters.
cdef enum:
    ADD, ADD_RUN, REMOVE, KEEP, DRAIN, STABLE, GET, MISSING, SEND, SEND_OR_WAIT
    LOOK, VISIT, COUNT, CLOSE
    TEXT_ADD, TEXT_REMOVE
    TELL, HEAR, PASS_ON, CROSS

VERBS = {"add": ADD, "add_run": ADD_RUN, "remove": REMOVE, "keep": KEEP, "drain": DRAIN,
         "stable": STABLE, "get": GET, "missing": MISSING, "send": SEND,
         "send_or_wait": SEND_OR_WAIT, "look": LOOK, "visit": VISIT, "count": COUNT,
         "close": CLOSE, "text_add": TEXT_ADD, "text_remove": TEXT_REMOVE, "tell": TELL,
         "hear": HEAR, "pass_on": PASS_ON, "cross": CROSS}


cdef struct Op:
    int verb
    uint64_t number
    uint64_t count


cdef struct Words:              # shared words beside the ring's
    uint64_t drainer            # the token of those who drain after they have added
    uint64_t rooms              # how often room was made: a sender waits for a change
    uint64_t text_low
    uint64_t text_hd
    uint64_t text_hr
    uint64_t text_slots[TEXT_SLOTS]
    uint64_t flags[2]           # for the small programs that show what the memory allows


cdef struct Notes:              # bit n stands for the seqno with number n
    uint64_t accepted           # its add was told "yours"
    uint64_t published          # that add has returned
    uint64_t leaving            # somebody has begun to free it
    uint64_t freed              # it left the window
    uint64_t delivered          # how many
    uint64_t low                # as last seen, and so on: they never move back
    uint64_t hd
    uint64_t hr
    uint64_t before[THREADS]    # what was accepted when the thread's present call began
    uint64_t sought[THREADS]    # the seqno of the thread's present get(), if it was there then
    unsigned char winner[MOST_SEQNOS]
    uint64_t saw_nothing        # threads that did not see the other's flag


cdef Ring *ring = NULL
cdef Words words
cdef uint64_t letter            # a plain item that goes with flags[0]
cdef Notes notes
cdef uint64_t origin            # the seqno with number 0
cdef uint64_t text_capacity
cdef bint twice_is_wrong        # otherwise only contents tell
cdef Op ops[THREADS][MOST_OPS]
cdef int op_counts[THREADS]
cdef int thread_count
cdef uint64_t expect_accepted
cdef int64_t expect_delivered, expect_freed


# --- what must hold -------------------------------------------------------------------------------

cdef inline uintptr_t item_of(uint64_t number, int thread) noexcept nogil:
    """The item that a thread adds under a number: nobody else's, and never NULL."""
    return (number << 8) | <uintptr_t>(thread << 1) | 1


cdef void accept(uint64_t number, int thread) noexcept nogil:
    if twice_is_wrong and notes.accepted >> number & 1:
        explorer_fail("a seqno is accepted twice")
    notes.accepted |= <uint64_t>1 << number
    notes.winner[number] = <unsigned char>thread


cdef void check_item(uint64_t number, uintptr_t item) noexcept nogil:
    if (number >= MOST_SEQNOS or item != item_of(number, notes.winner[number])
            or not notes.accepted >> number & 1):
        explorer_fail("an item is not the one that was accepted under this seqno")


cdef void deliver(PyObject **out, uint64_t count) noexcept nogil:
    cdef uint64_t k
    for k in range(count):
        notes.delivered += 1
        check_item(notes.delivered, <uintptr_t>out[k])


cdef void check_freed(uint64_t first, PyObject **out, uint32_t count) noexcept nogil:
    """Items come out of the window once, in order, and only what was delivered."""
    cdef uint32_t k
    for k in range(count):
        while first < MOST_SEQNOS and notes.freed >> first & 1:
            first += 1
        if first > notes.delivered:
            explorer_fail("an item is freed that was not delivered")
        check_item(first, <uintptr_t>out[k])
        notes.freed |= <uint64_t>1 << first


cdef void check_block(uint64_t block) noexcept nogil:
    """Check that a full bit is in LOW+1..LOW+capacity, is claimed, and has its winner's item."""
    cdef uint64_t claim = ring.blocks[block].claim, bits = <uint32_t>ring.blocks[block].full
    cdef uint64_t k, number
    cdef uint64_t first = ((((claim >> 32) * ring.num_blocks + block) << BLOCK_SHIFT) + ring.base)
    if bits & ~claim:
        explorer_fail("a full bit without a claim")
    for k in range(BLOCK):
        if bits >> k & 1:
            number = first + k - origin
            if number == 0 or first + k - ring.low - 1 >= ring.capacity:
                explorer_fail("a slot is full outside LOW+1..LOW+capacity")
            check_item(number, <uintptr_t>ring.slots[(block << BLOCK_SHIFT) + k])


cdef void after_step(int is_new) noexcept nogil:
    """Check what anybody may see at any moment; in a known state bring up the notes only."""
    cdef uint64_t block
    if ring == NULL:
        return
    if ahead(ring.hd, ring.low) < 0 or ahead(ring.hr, ring.hd) < 0:
        explorer_fail("LOW <= HD <= HR does not hold")
    if ring.hr - ring.low > ring.capacity:
        explorer_fail("HR is more than the capacity above LOW")
    if (ahead(ring.low, notes.low) < 0 or ahead(ring.hd, notes.hd) < 0
            or ahead(ring.hr, notes.hr) < 0):
        explorer_fail("LOW, HD or HR moved back")
    notes.low, notes.hd, notes.hr = ring.low, ring.hd, ring.hr
    if is_new:
        for block in range(ring.num_blocks):
            check_block(block)


cdef void at_end() noexcept nogil:
    if notes.accepted & expect_accepted != expect_accepted:
        explorer_fail("a seqno is refused that had room")
    if expect_delivered >= 0 and notes.delivered != <uint64_t>expect_delivered:
        explorer_fail("something deliverable stays: nobody was woken")
    if expect_freed >= 0 and ring.low - origin != <uint64_t>expect_freed:
        explorer_fail("LOW does not reach what was asked for")
    if ring != NULL:
        after_step(True)
        if ring.purging or words.drainer:
            explorer_fail("a token stays")
        if ring.bound:
            run_one_lap()


cdef void run_one_lap() noexcept nogil:
    """Check that the window still works: add and take out until every slot was used again."""
    cdef uint64_t last = origin + MOST_SEQNOS - 1, seqno, end, claimed
    stable(ring.hd)
    if ring.low != ring.hd:
        explorer_fail("LOW does not follow")
    seqno = ring.low
    end = seqno + ring.num_blocks * BLOCK + ring.capacity
    if ahead(end, last) > 0:
        end = last
    while seqno != end:
        seqno += 1
        claimed = notes.accepted >> (seqno - origin) & 1
        if in_window(ring, seqno):
            add(seqno - origin, 1, 0)
        if not claimed and not notes.accepted >> (seqno - origin) & 1:
            explorer_fail("a missing seqno is refused afterwards")
        if ahead(seqno, ring.hd) > 0:
            remove(1)
            if ring.hd != seqno or ring.low != seqno:
                explorer_fail("a seqno that is there is not removed afterwards")


# --- verbs over the shipped ring ------------------------------------------------------------------

cdef uint32_t claim(uint64_t number, uint64_t count, int thread) noexcept nogil:
    """Claim and publish, as RingBuffer.put() does."""
    cdef PyObject *items[BLOCK]
    cdef Position at = locate(ring, origin + number)
    cdef uint32_t got = claim_bits(ring, at, ones(count) << at.bit)
    cdef uint64_t k
    for k in range(count):
        items[k] = <PyObject *>item_of(number + k, thread)
        if got >> at.bit >> k & 1:
            accept(number + k, thread)
    if not got and not notes.accepted & <uint64_t>1 << number and load_relaxed(&ring.bound):
        explorer_fail("a seqno is refused that is in the window and that nobody has")
    if got:
        publish(ring, at, origin + number, got, items)
        notes.published |= <uint64_t>(got >> at.bit) << number
    return got


cdef void add(uint64_t number, uint64_t count, int thread) noexcept nogil:
    """RingBuffer.add(), or add_many() of a run that fits the window, block by block."""
    cdef uint64_t step
    if not in_window(ring, origin + number):
        return
    if count > 1 and not in_window(ring, origin + number + count - 1):
        return
    while count:
        step = min(count, <uint64_t>(BLOCK - locate(ring, origin + number).bit))
        claim(number, step, thread)
        number += step
        count -= step


cdef void send(int thread, bint waits) noexcept nogil:
    """RingBuffer.send() in single steps, in the loop of Channel._retry() when it waits. One
    thread at a time sends, and nobody adds meanwhile."""
    cdef uint64_t seen
    while True:
        seen = load_acquire(&words.rooms)
        if room(ring):
            break
        if not waits:
            return
        explorer_wait(&words.rooms, seen)
    if not claim(load_relaxed(&ring.hr) + 1 - origin, 1, thread):
        explorer_fail("the window refuses a seqno that a sender takes")


cdef void leave_to(uint64_t seqno) noexcept nogil:
    if ahead(seqno, origin) > 0:
        notes.leaving |= (<uint64_t>2 << min(seqno - origin, <uint64_t>MOST_SEQNOS - 2)) - 1


cdef uint64_t remove(uint64_t limit) noexcept nogil:
    """RingBuffer.deliver() with nullify, block by block."""
    cdef PyObject *out[BLOCK]
    cdef uint64_t total = 0, first, run, k
    leave_to(load_relaxed(&ring.hd) + limit)
    while total < limit:
        first = load_relaxed(&ring.hd) - origin + 1
        run = take_run(ring, out, limit - total)
        for k in range(run):
            notes.freed |= <uint64_t>1 << (first + k)
        deliver(out, run)
        if run == 0:
            break
        total += run
    if load_relaxed(&ring.low) != load_relaxed(&ring.hd):
        stable(load_relaxed(&ring.hd))
    return total


cdef uint64_t share(uint64_t limit) noexcept nogil:
    cdef PyObject *out[BLOCK]
    cdef uint64_t run = look_run(ring, out, limit)
    deliver(out, run)
    if run:
        advance_hd(ring, run)
    return run


cdef void keep(uint64_t limit) noexcept nogil:
    """RingBuffer.remove_many() without nullify: what is ready is counted first."""
    cdef uint64_t left = ready(ring, limit), run
    while left:
        run = share(left)
        if run == 0:
            explorer_fail("what is ready is not delivered")
        left -= run


cdef uint64_t stable(uint64_t seqno) noexcept nogil:
    """RingBuffer.stable(); who waits for room is told."""
    cdef PyObject *out[BLOCK]
    cdef uint64_t asked = 0, freed = 0, low, step
    cdef uint32_t count = 0
    leave_to(seqno)
    if not ask_to_free(ring, seqno, &asked):
        return 0
    while True:
        step = free_wanted(ring, &asked, out, &count)
        if step == 0:
            break
        check_freed(load_relaxed(&ring.low) - origin - step + 1, out, count)
        freed += step
    if freed:
        fetch_add_acq_rel(&words.rooms, 1)
    return freed


cdef void drain() noexcept nogil:
    """Decision 2: deliver what was added, or leave it to the thread that delivers already."""
    cdef uint64_t asked = 0
    if take_token(&words.drainer, &asked):
        while True:
            while remove(BLOCK):
                pass
            if give_token(&words.drainer, &asked):
                return


cdef void get(uint64_t number, int thread) noexcept nogil:
    """RingBuffer.get(): only where nobody frees meanwhile."""
    notes.sought[thread] = notes.published & <uint64_t>1 << number
    cdef uint64_t count = 0
    cdef PyObject **slots = slots_from(ring, origin + number, &count)
    if count:
        check_item(number, <uintptr_t>slots[0])
    elif notes.sought[thread] & ~notes.leaving and not explorer_is_weak():
        explorer_fail("get() does not find what is there")
    notes.sought[thread] = 0


cdef void missing(int thread) noexcept nogil:
    """RingBuffer.missing(): what is delivered or accepted, as this thread knows, is not missing."""
    cdef uint64_t seqno = 0, last = 0, end, hd = load_acquire(&ring.hd)
    cdef Position at
    notes.before[thread] = notes.accepted
    if load_relaxed(&ring.bound):
        seqno, last = load_relaxed(&ring.hd) + 1, load_relaxed(&ring.hr)
        at = locate(ring, seqno)
        while ahead(last, seqno) >= 0:
            seqno = scan(ring, &at, seqno, last, False)
            end = scan(ring, &at, seqno, last, True)
            while seqno != end:
                if ahead(seqno, hd) <= 0:
                    explorer_fail("a delivered seqno is reported missing")
                if notes.before[thread] >> (seqno - origin) & 1 and not explorer_is_weak():
                    explorer_fail("an accepted seqno is reported missing")
                seqno += 1
    notes.before[thread] = 0


cdef void visit() noexcept nogil:
    """What the cycle collector and `nbytes` do: look at all items, while nobody frees."""
    cdef PyObject *out[BLOCK]
    cdef Position at
    cdef uint64_t left = blocks_held(ring, &at), number
    cdef uint32_t count, k
    while left:
        count = unpack(slots_at(ring, at), held_bits(ring, at), out)
        for k in range(count):
            number = <uintptr_t>out[k] >> 8
            check_item(number, <uintptr_t>out[k])
        to_next_block(ring, &at)
        left -= 1


cdef void count_held() noexcept nogil:
    """len(): how many items there are; beside anything."""
    cdef Position at
    cdef uint64_t left = blocks_held(ring, &at), total = 0
    if left > ring.num_blocks:
        explorer_fail("more blocks hold something than there are")
    while left:
        total += count_bits(held_bits(ring, at))
        to_next_block(ring, &at)
        left -= 1


cdef void close_window() noexcept nogil:
    """RingBuffer.close(): shut it, then take what is in it; beside adders and readers."""
    cdef PyObject *out[BLOCK]
    cdef Position at
    cdef uint64_t left, number
    cdef uint32_t count, k
    store_release(&ring.bound, 0)
    left = blocks_held(ring, &at)
    while left:
        count = empty_block(ring, at, out)
        for k in range(count):
            number = <uintptr_t>out[k] >> 8
            check_item(number, <uintptr_t>out[k])
            if notes.freed >> number & 1:
                explorer_fail("an item is freed twice")
            notes.freed |= <uint64_t>1 << number
        to_next_block(ring, &at)
        left -= 1


cdef void look() noexcept nogil:
    """LOW before HD before HR: for an onlooker they are in this order too."""
    cdef uint64_t low = load_acquire(&ring.low), hd = load_acquire(&ring.hd)
    cdef uint64_t hr = load_acquire(&ring.hr)
    if ahead(hd, low) < 0 or ahead(hr, hd) < 0:
        explorer_fail("LOW <= HD <= HR does not hold for an onlooker")


# --- the text's ring (RingBuffer.txt, correctness check #1) ---------------------------------------

cdef uint64_t *text_slot(uint64_t number) noexcept nogil:
    return &words.text_slots[(number - 1) % text_capacity]


cdef void text_add(uint64_t number, int thread) noexcept nogil:
    cdef uint64_t empty = 0, hr
    if number <= load_acquire(&words.text_hd):
        return
    if number > load_acquire(&words.text_low) + text_capacity:
        return
    if load_acquire(text_slot(number)):
        return
    if number <= load_acquire(&words.text_hd):
        return
    if cas_acq_rel_relaxed(text_slot(number), &empty, item_of(number, thread)):
        accept(number, thread)
        hr = load_relaxed(&words.text_hr)
        while number > hr and not cas_relaxed(&words.text_hr, &hr, number):
            pass


cdef void text_remove() noexcept nogil:
    cdef uint64_t number = load_relaxed(&words.text_hd) + 1, item
    if number > load_acquire(&words.text_hr):
        return
    item = load_acquire(text_slot(number))
    if item == 0:
        return
    store_release(&words.text_hd, number)
    deliver(<PyObject **>&item, 1)
    store_release(text_slot(number), 0)
    store_release(&words.text_low, number)


# --- what the memory allows -----------------------------------------------------------------------

cdef void tell() noexcept nogil:
    global letter
    letter = 7
    store_release(&words.flags[0], 1)


cdef void hear(uint64_t flag) noexcept nogil:
    """Read the letter when the flag says that it is there."""
    cdef uint64_t seen = load_acquire(&words.flags[0])
    if seen >= flag and letter != 7:
        explorer_fail("the flag is seen, the letter is not")
    if load_relaxed(&words.flags[0]) < seen:
        explorer_fail("a thread sees a word go back")


cdef void pass_on() noexcept nogil:
    """A relaxed read-modify-write carries on what the store before it released."""
    cdef uint64_t seen = load_relaxed(&words.flags[0])
    if seen:
        cas_relaxed(&words.flags[0], &seen, 2)


cdef void cross(uint64_t mine) noexcept nogil:
    """Each of two threads raises its own flag, then looks at the other's."""
    store_release(&words.flags[mine], 1)
    if not load_acquire(&words.flags[1 - mine]):
        notes.saw_nothing += 1
    if notes.saw_nothing == 2:
        explorer_fail("neither sees the other's flag")


# --- threads --------------------------------------------------------------------------------------

cdef void perform(Op op, int thread) noexcept nogil:
    if op.verb == ADD:
        add(op.number, 1, thread)
    elif op.verb == ADD_RUN:
        add(op.number, op.count, thread)
    elif op.verb == TEXT_ADD:
        text_add(op.number, thread)
    elif op.verb == REMOVE:
        remove(op.number)
    elif op.verb == KEEP:
        keep(op.number)
    elif op.verb == TEXT_REMOVE:
        text_remove()
    elif op.verb == DRAIN:
        drain()
    elif op.verb == STABLE:
        stable(origin + op.number)
    elif op.verb == GET:
        get(op.number, thread)
    elif op.verb == MISSING:
        missing(thread)
    elif op.verb == LOOK:
        look()
    elif op.verb == VISIT:
        visit()
    elif op.verb == COUNT:
        count_held()
    elif op.verb == CLOSE:
        close_window()
    elif op.verb == TELL:
        tell()
    elif op.verb == HEAR:
        hear(op.number)
    elif op.verb == PASS_ON:
        pass_on()
    elif op.verb == CROSS:
        cross(op.number)
    else:
        send(thread, op.verb == SEND_OR_WAIT)


cdef void body(int thread) noexcept nogil:
    cdef int k
    for k in range(op_counts[thread]):
        perform(ops[thread][k], thread)
        explorer_between(k + 1)


cdef Op parse(line) except *:
    """`add 1`, `add_run 1 2` (two from 1), `remove`, `remove 2` (at most two)."""
    cdef Op op
    verb, *numbers = line.split()
    op.verb = VERBS[verb]
    op.number = int(numbers[0]) if numbers else 1
    op.count = int(numbers[1]) if len(numbers) > 1 else 1
    return op


def prepare(program, before, threads, bint text):
    """Make a window of which program.used seqnos were added and removed, run the lines of
    `before`, and take the threads' lines."""
    global ring, letter, origin, text_capacity, thread_count, twice_is_wrong
    global expect_accepted, expect_delivered, expect_freed
    cdef uint64_t k, capacity = program.capacity, offset = program.offset, used = program.used
    explorer_forget()
    if ring != NULL:
        destroy_ring(ring)
        ring = NULL
    memset(&words, 0, sizeof(Words))
    memset(&notes, 0, sizeof(Notes))
    letter = 0
    twice_is_wrong, text_capacity, origin = not program.contents_only, capacity, offset
    if not text:
        ring = make_ring(capacity, offset, 0)
        for k in range(used):
            memset(&notes, 0, sizeof(Notes))
            origin = offset + k
            add(1, 1, 0)
            remove(1)
        memset(&notes, 0, sizeof(Notes))
        origin = offset + used
        notes.low = notes.hd = notes.hr = origin
    for line in before:
        perform(parse(line), 0)
    thread_count = len(threads)
    if thread_count > THREADS or max(len(lines) for lines in threads) > MOST_OPS:
        raise ValueError(f"at most {THREADS} threads of {MOST_OPS} calls")
    for thread, lines in enumerate(threads):
        op_counts[thread] = len(lines)
        for k, line in enumerate(lines):
            ops[thread][k] = parse(line)
    expect_accepted = sum(1 << number for number in program.accepted)
    expect_delivered, expect_freed = program.delivered, program.freed
    if not (share_all() if text else share_ring() and share_all()):
        raise ValueError(f"a window of {capacity} is too large to be explored")


cdef bint share_ring() noexcept:
    return explorer_share(ring, sizeof(Ring), SHARED_WORDS) \
        and explorer_share(ring.blocks, ring.num_blocks * sizeof(Block), SHARED_WORDS) \
        and explorer_share(ring.slots, ring.num_blocks * BLOCK * sizeof(PyObject *), SHARED_SLOTS)


cdef bint share_all() noexcept:
    return (explorer_share(&words, sizeof(Words), SHARED_WORDS)
            and explorer_share(&letter, sizeof(letter), SHARED_SLOTS)
            and explorer_share(&notes, sizeof(Notes), SHARED_NOTES))


cdef Search search_of(int memory, bint plain, uint64_t most_states) noexcept:
    return Search(thread_count, memory, plain, most_states, body, after_step, at_end)


cdef dict answer(Found *found):
    failure = found.failure.decode() if found.failure != NULL else None
    return {"failure": failure, "schedule": found.schedule.decode(), "states": found.states,
            "schedules": found.schedules, "ends": (found.ends, found.ends_sum),
            "gave_up": bool(found.gave_up)}


def search(int memory, bint plain, uint64_t most_states):
    cdef Found found
    cdef Search what = search_of(memory, plain, most_states)
    with nogil:
        explorer_search(&what, &found)
    return answer(&found)


def replay(int memory, bytes schedule):
    """Return (answer, steps): each step as (thread, kind, name of the word, before, after,
    swapped, older, order, file, line)."""
    cdef Found found
    cdef Search what = search_of(memory, True, 0)
    cdef int count = 0, k
    explorer_replay(&what, schedule, &found)
    cdef const Step *steps = explorer_steps(&count)
    return answer(&found), [
        (steps[k].thread, steps[k].kind, name_of(steps[k].word), steps[k].before, steps[k].after,
         steps[k].swapped, steps[k].older, steps[k].order, steps[k].file.decode(), steps[k].line)
        for k in range(count)]


def weaken(places):
    """From now on the access at each (line of block_ring.pxd, order) has that order."""
    explorer_weaken(NULL, 0, 0)
    for line, order in places:
        explorer_weaken("block_ring.pxd", line, order)


RING_WORDS = {"hr": <uintptr_t>&(<Ring *>NULL).hr,
              "hd": <uintptr_t>&(<Ring *>NULL).hd, "low": <uintptr_t>&(<Ring *>NULL).low,
              "want": <uintptr_t>&(<Ring *>NULL).want,
              "purging": <uintptr_t>&(<Ring *>NULL).purging,
              "bound": <uintptr_t>&(<Ring *>NULL).bound}


cdef str name_of(uint64_t *word):
    cdef uintptr_t at = <uintptr_t>word
    for name, distance in RING_WORDS.items():
        if ring != NULL and at == <uintptr_t>ring + <uintptr_t>distance:
            return name
    if ring != NULL and 0 <= at - <uintptr_t>ring.blocks < ring.num_blocks * sizeof(Block):
        at -= <uintptr_t>ring.blocks
        return f"{'full' if at % sizeof(Block) else 'claim'}[{at // sizeof(Block)}]"
    cdef uintptr_t size = ring.num_blocks * BLOCK * sizeof(PyObject *) if ring != NULL else 0
    if ring != NULL and 0 <= at - <uintptr_t>ring.slots < size:
        return f"slots[{(at - <uintptr_t>ring.slots) // sizeof(PyObject *)}]"
    at = (at - <uintptr_t>&words) // 8
    names = ["drainer", "rooms", "LOW", "HD", "HR", *(f"slot[{k}]" for k in range(TEXT_SLOTS)),
             "flags[0]", "flags[1]"]
    return names[at] if at < <uintptr_t>len(names) else "letter"
