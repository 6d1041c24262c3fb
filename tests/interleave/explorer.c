/* Runs small threads under every schedule, and in a weak memory under everything that a load may
 * see.
 *
 * Threads are fibers. A run is replayed from its list of choices; a choice is which thread takes
 * the next step, or which store a load sees. A thread is deterministic, so what it has read so far
 * says where it is: two runs with equal memory and equal readings go on alike, and the second is
 * not followed (its number of schedules is known). Every step makes some thread's readings longer,
 * so a state is never inside its own future. Between two calls a thread has no memory of its own,
 * and its readings start again.
 *
 * WEAK is release/acquire as C11 has it, operationally. A word keeps all its stores. A thread has
 * a view, which says for each word the oldest store that it may still read. A release store
 * carries the view of its thread, an acquire load joins it. Read-modify-writes see the last store
 * and carry on what it carried (release sequences). Plain accesses are checked for races by vector
 * clocks. Stores to one word are ordered as they are executed, which loses nothing where each word
 * has one storing thread at a time beside read-modify-writes, as in this ring. There are no fences
 * and nothing is seq_cst. */
#define _GNU_SOURCE
#include "explorer.h"

#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

enum { LOAD, STORE, UPDATE };                       /* as in atomics.h */
enum { STACK = 65536, STORES = 250, REGIONS = 8, CHOICES = 16, PLACES = 8 };

typedef struct { uint64_t clock[THREADS]; uint8_t oldest[WORDS]; } View;
typedef struct { uint64_t value, hash; View view; } Store;
typedef struct { char *memory, *initial; size_t size; int kind, first; } Region;
typedef struct {
    ucontext_t start;
    jmp_buf at;
    char *stack;
    int started, done;
    int kind;                                       /* of the step that it is about to take */
    uint64_t *word, seen;                       /* a WAIT goes on when *word is no longer `seen` */
    uint64_t readings;
    View view;
} Fiber;
/* accesses to one plain item */
typedef struct { uint64_t clock[THREADS], wrote_at; int writer; } Plain;
typedef struct { uint64_t key; double schedules; } State;
typedef struct { State *states; uint64_t room, used; } Table;   /* by key, with open addressing */
typedef struct { uint64_t key; double schedules; int options[CHOICES], count, next; } Frame;

static Search search;
static Found *found;
static Region regions[REGIONS];
static int region_count, word_count, slot_count;
static Fiber fibers[THREADS];
static int running = -1;                            /* the fiber that runs; -1 outside */
static jmp_buf scheduler;

static Store stores[WORDS][STORES];
static int store_count[WORDS];
static Plain *plains;

static int path[STEPS], path_length, depth; /* the choices of this run; how many were taken again */
static Frame *frames;
static Table states, ends;
static Step steps[STEPS];
static int step_count, last_thread;
static struct { const char *file; int line, order; } weak_places[PLACES];
static int weak_count;

const char *explorer_file = "";
int explorer_line;

/* Every bit of the value reaches every bit of the hash, and zero is a value like any other. */
static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) + 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93u;
    return (hash ^ hash >> 29) * 0xD6E8FEB86659FD93u;
}

/* --- shared memory ---------------------------------------------------------------------------- */

/* Share memory of the threads as it is now; every run begins with that. Return 0 if it is too
 * large. */
int explorer_share(void *memory, size_t size, int kind) {
    if (region_count == REGIONS || (kind == SHARED_WORDS && word_count + (int)(size / 8) > WORDS))
        return 0;
    Region *region = &regions[region_count++];
    int first = kind == SHARED_WORDS ? word_count : slot_count;
    *region = (Region){memory, malloc(size), size, kind, first};
    memcpy(region->initial, memory, size);
    if (kind == SHARED_WORDS)
        word_count += (int)(size / 8);
    else if (kind == SHARED_SLOTS)
        slot_count += (int)(size / 8);
    plains = realloc(plains, (size_t)(slot_count + 1) * sizeof(Plain));
    return 1;
}

void explorer_forget(void) {
    while (region_count)
        free(regions[--region_count].initial);
    word_count = slot_count = 0;
}

/* The region of an address, and the number of its word or slot; NULL for a thread's own memory. */
static const Region *region_of(const void *address, int *number) {
    for (int k = 0; k < region_count; k++) {
        size_t distance = (size_t)((const char *)address - regions[k].memory);
        if (distance < regions[k].size) {
            *number = regions[k].first + (int)(distance / 8);
            return &regions[k];
        }
    }
    return NULL;
}

static void restart_memory(void) {
    for (int k = 0; k < region_count; k++) {
        memcpy(regions[k].memory, regions[k].initial, regions[k].size);
        if (regions[k].kind == SHARED_WORDS)
            for (size_t w = 0; w < regions[k].size / 8; w++)
                stores[regions[k].first + (int)w][0].value = ((uint64_t *)regions[k].initial)[w];
    }
    for (int w = 0; w < word_count; w++)
        store_count[w] = 1;
    memset(plains, 0, (size_t)slot_count * sizeof(Plain));
}

/* --- fibers ----------------------------------------------------------------------------------- */

static void leave(void) {
    if (!_setjmp(fibers[running].at))
        _longjmp(scheduler, 1);
}

static void fiber_main(void) {
    search.body(running);
    fibers[running].done = 1;
    _longjmp(scheduler, 1);
}

static void resume(int thread) {
    running = thread;
    if (!_setjmp(scheduler)) {
        if (fibers[thread].started)
            _longjmp(fibers[thread].at, 1);
        fibers[thread].started = 1;
        setcontext(&fibers[thread].start);
    }
    running = -1;
}

static void make_fibers(void) {
    for (int t = 0; t < search.threads; t++) {
        Fiber *fiber = &fibers[t];
        if (!fiber->stack)
            fiber->stack = malloc(STACK);
        char *stack = fiber->stack;
        memset(fiber, 0, sizeof *fiber);
        fiber->stack = stack;
        getcontext(&fiber->start);
        fiber->start.uc_stack.ss_sp = stack;
        fiber->start.uc_stack.ss_size = STACK;
        makecontext(&fiber->start, fiber_main, 0);
    }
}

static void restart_fibers(void) {
    for (int t = 0; t < search.threads; t++) {
        fibers[t].started = fibers[t].done = 0;
        fibers[t].kind = LOAD;
        fibers[t].readings = 1;
        memset(&fibers[t].view, 0, sizeof(View));
        fibers[t].view.clock[t] = 1;
    }
}

void explorer_fail(const char *why) {
    if (!found->failure)
        found->failure = why;
    if (running >= 0)
        _longjmp(scheduler, 1);
}

/* The thread is between two calls: it remembers nothing but how many it has made. */
void explorer_between(int calls) {
    if (running >= 0)
        fibers[running].readings = (uint64_t)calls + 2;
}

int explorer_is_weak(void) { return search.memory == WEAK; }

/* --- choices ---------------------------------------------------------------------------------- */

/* Return which of `count` options this run takes: as in the path, or a new frame's first option. */
static int choose(uint64_t key, const int *options, int count) {
    if (depth == STEPS - 1) {
        explorer_fail("no end: a thread goes round and round");
        return options[0];
    }
    if (depth == path_length) {
        Frame *frame = &frames[path_length];
        frame->key = key;
        frame->schedules = 0;
        frame->count = count;
        frame->next = 0;
        memcpy(frame->options, options, (size_t)count * sizeof(int));
        path[path_length++] = options[0];
    }
    return path[depth++];
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Called before each access to a shared word: here another thread may go on. */
void explorer_point(int kind, const void *word) {
    if (running < 0)
        return;
    fibers[running].kind = kind;
    fibers[running].word = (uint64_t *)word;
    const char *file = explorer_file;
    int line = explorer_line;
    leave();
    explorer_file = file;                           /* another thread went on meanwhile */
    explorer_line = line;
}

uint64_t __tsan_atomic64_load(const volatile uint64_t *address, int order);

void explorer_wait(uint64_t *word, uint64_t seen) {
    if (running < 0)
        return;
    fibers[running].seen = seen;
    explorer_line = 0;
    explorer_point(WAIT, word);
    __tsan_atomic64_load(word, __ATOMIC_ACQUIRE);
}

static int can_go_on(const Fiber *fiber) {
    return !fiber->done && !(fiber->kind == WAIT && *fiber->word == fiber->seen);
}

static Step *note(uint64_t *word, int order, uint64_t before, uint64_t after) {
    Fiber *fiber = &fibers[running];
    Step *step = &steps[step_count < STEPS - 1 ? step_count++ : step_count];
    *step = (Step){running, fiber->kind, order, 0, explorer_line, 0, explorer_file, word, before,
                   after};
    fiber->readings = mix(fiber->readings, before);
    return step;
}

/* --- the weak memory -------------------------------------------------------------------------- */

static int acquires(int order) {
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_CONSUME;
}
static int releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL; }

static int weakened(int order) {
    if (order == __ATOMIC_SEQ_CST)
        explorer_fail("seq_cst is not modelled");
    for (int k = 0; k < weak_count; k++)
        if (explorer_line == weak_places[k].line && strstr(explorer_file, weak_places[k].file))
            return weak_places[k].order;
    return order;
}

static void join(View *view, const View *other) {
    for (int t = 0; t < search.threads; t++)
        if (view->clock[t] < other->clock[t])
            view->clock[t] = other->clock[t];
    for (int w = 0; w < word_count; w++)
        if (view->oldest[w] < other->oldest[w])
            view->oldest[w] = other->oldest[w];
}

static uint64_t hash_view(uint64_t hash, const View *view) {
    for (int t = 0; t < search.threads; t++)
        hash = mix(hash, view->clock[t]);
    for (int w = 0; w < word_count; w += 8) {
        uint64_t eight;
        memcpy(&eight, view->oldest + w, 8);
        hash = mix(hash, eight);
    }
    return hash;
}

static uint64_t see(int w, int older, int order) {
    View *view = &fibers[running].view;
    int at = store_count[w] - 1 - older;
    view->oldest[w] = (uint8_t)at;
    if (acquires(order))
        join(view, &stores[w][at].view);
    return stores[w][at].value;
}

static void put(int w, uint64_t value, int order, int updates) {
    View *view = &fibers[running].view;
    if (store_count[w] == STORES) {
        explorer_fail("a word has too many stores");
        return;
    }
    int at = store_count[w]++;
    Store *store = &stores[w][at];
    view->oldest[w] = (uint8_t)at;
    store->value = value;
    memset(&store->view, 0, sizeof(View));
    if (releases(order))
        store->view = *view;
    if (updates)                                    /* the release sequence goes on */
        join(&store->view, &stores[w][at - 1].view);
    store->view.oldest[w] = (uint8_t)at;
    store->hash = mix(hash_view(0, &store->view), value);
    view->clock[running]++;
}

/* Return the store that a load sees, counted back from the last one. `except` is a value that it
 * must not be (a failed swap). */
static int choose_store(int w, int has_except, uint64_t except) {
    int options[CHOICES], count = 0;
    int most = store_count[w] - 1 - fibers[running].view.oldest[w];
    if (search.memory != WEAK)
        return 0;
    for (int older = 0; older <= most && count < CHOICES; older++)
        if (!has_except || stores[w][store_count[w] - 1 - older].value != except)
            options[count++] = older;
    if (count == CHOICES)
        explorer_fail("a load has too many stores to see");
    return count == 1 ? options[0] : choose(0, options, count);
}

static int shared_word(const volatile void *address) {
    int number;
    const Region *region = running < 0 ? NULL : region_of((const void *)address, &number);
    return region && region->kind == SHARED_WORDS ? number : -1;
}

/* --- what the compiler calls ------------------------------------------------------------------ */

uint64_t __tsan_atomic64_load(const volatile uint64_t *address, int order) {
    int w = shared_word(address);
    if (w < 0)
        return *address;
    order = weakened(order);
    int older = choose_store(w, fibers[running].kind == WAIT, fibers[running].seen);
    uint64_t value = see(w, older, order);
    if (search.memory != WEAK)
        value = *address;
    note((uint64_t *)address, order, value, value)->older = older;
    return value;
}

void __tsan_atomic64_store(volatile uint64_t *address, uint64_t value, int order) {
    int w = shared_word(address);
    if (w >= 0) {
        order = weakened(order);
        note((uint64_t *)address, order, 0, value);
        if (search.memory == WEAK)
            put(w, value, order, 0);
    }
    *address = value;
}

static uint64_t update(volatile uint64_t *address, uint64_t value, int order) {
    int w = shared_word(address);
    uint64_t before = *address;
    if (w >= 0) {
        order = weakened(order);
        note((uint64_t *)address, order, before, value)->swapped = 1;
        if (search.memory == WEAK) {
            see(w, 0, order);
            put(w, value, order, 1);
        }
    }
    *address = value;
    return before;
}

uint64_t __tsan_atomic64_fetch_or(volatile uint64_t *address, uint64_t bits, int order) {
    return update(address, *address | bits, order);
}

uint64_t __tsan_atomic64_fetch_and(volatile uint64_t *address, uint64_t bits, int order) {
    return update(address, *address & bits, order);
}

uint64_t __tsan_atomic64_fetch_add(volatile uint64_t *address, uint64_t value, int order) {
    return update(address, *address + value, order);
}

uint64_t __tsan_atomic64_fetch_sub(volatile uint64_t *address, uint64_t value, int order) {
    return update(address, *address - value, order);
}

int __tsan_atomic64_compare_exchange_strong(volatile uint64_t *address, uint64_t *expected,
                                            uint64_t desired, int order, int failed) {
    int w = shared_word(address);
    uint64_t wanted = *expected;
    int options[2] = {1, 0}, count = 1;
    if (w < 0) {
        *expected = *address;
        if (*expected == wanted)
            *address = desired;
        return *expected == wanted;
    }
    if (*address != wanted)
        options[0] = 0;
    else if (search.memory == WEAK)     /* a swap may also fail because it sees an older store */
        for (int at = fibers[running].view.oldest[w]; at < store_count[w]; at++)
            if (stores[w][at].value != wanted)
                count = 2;
    if (count == 1 ? options[0] : choose(0, options, 2)) {
        update(address, desired, order);
        return 1;
    }
    int older = choose_store(w, 1, wanted);
    *expected = see(w, older, failed);
    if (search.memory != WEAK)
        *expected = *address;
    note((uint64_t *)address, failed, *expected, *expected)->older = older;
    return 0;
}

/* Take a plain access of eight bytes: a step in an interleaving, checked for races in the weak
 * memory. */
static void plain(const void *address, int kind) {
    int number;
    const Region *region = running < 0 ? NULL : region_of(address, &number);
    if (!region || region->kind == SHARED_NOTES)
        return;
    uint64_t *word = (uint64_t *)address;
    View *view = &fibers[running].view;
    if (region->kind == SHARED_WORDS) {
        if (search.memory == WEAK && (kind == PLAIN_WRITE || store_count[number] > 1))
            explorer_fail("a word that is atomic elsewhere is accessed plainly");
        fibers[running].readings = mix(fibers[running].readings, *word);
        return;
    }
    if (search.memory != WEAK) {
        explorer_line = 0;
        explorer_point(kind, address);
        note(word, 0, kind == PLAIN_READ ? *word : 0, *word);
        return;
    }
    Plain *item = &plains[number];
    int late = item->wrote_at > view->clock[item->writer];
    for (int t = 0; t < search.threads && kind == PLAIN_WRITE; t++)
        late |= item->clock[t] > view->clock[t];
    if (late)
        explorer_fail(kind == PLAIN_READ ? "race: an item is read that another thread writes"
                                         : "race: an item is written that another thread accesses");
    if (kind == PLAIN_WRITE) {
        memset(item, 0, sizeof *item);
        item->writer = running;
        item->wrote_at = view->clock[running];
    } else {
        item->clock[running] = view->clock[running];
        fibers[running].readings = mix(fibers[running].readings, *word);
    }
}

void explorer_copy(void *to, const void *from, size_t size) {
    for (size_t k = 0; k < size; k += 8) {
        plain((const char *)from + k, PLAIN_READ);
        plain((char *)to + k, PLAIN_WRITE);
        memcpy((char *)to + k, (const char *)from + k, 8);
    }
}

void __tsan_read8(void *address) { plain(address, PLAIN_READ); }
void __tsan_write8(void *address) { plain(address, PLAIN_WRITE); }

/* Smaller and larger accesses are a thread's own, or notes. */
#define NOT_SHARED(name) void name(void *address) { (void)address; }
NOT_SHARED(__tsan_read1)
NOT_SHARED(__tsan_read2)
NOT_SHARED(__tsan_read4)
NOT_SHARED(__tsan_write1)
NOT_SHARED(__tsan_write2)
NOT_SHARED(__tsan_write4)
NOT_SHARED(__tsan_read16)
NOT_SHARED(__tsan_write16)
NOT_SHARED(__tsan_func_entry)
void __tsan_func_exit(void) {}
void __tsan_init(void) {}
void __tsan_read_range(void *address, long size) { (void)address, (void)size; }
void __tsan_write_range(void *address, long size) { (void)address, (void)size; }

/* --- states ----------------------------------------------------------------------------------- */

/* The stores to a word that a thread may still see. */
static uint64_t hash_stores(uint64_t hash, int w) {
    int oldest = store_count[w] - 1;
    for (int t = 0; t < search.threads; t++)
        if (!fibers[t].done && fibers[t].view.oldest[w] < oldest)
            oldest = fibers[t].view.oldest[w];
    for (int at = oldest; at < store_count[w]; at++)
        hash = mix(hash, stores[w][at].hash);
    return mix(hash, (uint64_t)store_count[w]);
}

/* All that the rest of a run depends on. Of a thread that ended, nothing. */
static uint64_t hash_state(void) {
    uint64_t hash = 7;
    for (int t = 0; t < search.threads; t++) {
        hash = mix(hash, fibers[t].done ? 0 : fibers[t].readings);
        if (search.memory == WEAK && !fibers[t].done)
            hash = hash_view(hash, &fibers[t].view);
    }
    for (int k = 0; k < region_count; k++)
        for (size_t w = 0; w < regions[k].size / 8; w++)
            hash = mix(hash, ((uint64_t *)regions[k].memory)[w]);
    for (int w = 0; w < word_count && search.memory == WEAK; w++)
        hash = hash_stores(hash, w);
    for (int k = 0; k < slot_count && search.memory == WEAK; k++) {
        hash = mix(hash, plains[k].wrote_at * THREADS + (uint64_t)plains[k].writer);
        for (int t = 0; t < search.threads; t++)
            hash = mix(hash, plains[k].clock[t]);
    }
    return hash ? hash : 1;
}

/* What a run leaves behind, but for where things lie in memory. */
static uint64_t hash_end(void) {
    uint64_t hash = 7;
    for (int k = 0; k < region_count; k++)
        for (size_t w = 0; w < regions[k].size / 8; w++)
            hash = mix(hash, ((uint64_t *)regions[k].memory)[w]
                       - ((uint64_t *)regions[k].initial)[w]);
    return hash ? hash : 1;
}

static State *find(const Table *table, uint64_t key) {
    uint64_t at = key & (table->room - 1);
    while (table->states[at].key && table->states[at].key != key)
        at = (at + 1) & (table->room - 1);
    return &table->states[at];
}

static void make_table(Table *table, uint64_t room) {
    *table = (Table){calloc(room, sizeof(State)), room, 0};
}

static void insert(Table *table, State state) {
    if (table->used * 2 == table->room) {
        Table larger;
        make_table(&larger, table->room * 2);
        for (uint64_t at = 0; at < table->room; at++)
            if (table->states[at].key)
                *find(&larger, table->states[at].key) = table->states[at];
        larger.used = table->used;
        free(table->states);
        *table = larger;
    }
    table->used++;
    *find(table, state.key) = state;
}

static void remember(uint64_t key, double schedules) {
    if (search.plain || !key)
        return;
    insert(&states, (State){key, schedules});
    found->gave_up |= states.used >= search.most_states;
}

/* --- runs ------------------------------------------------------------------------------------- */

static void restart(void) {
    restart_memory();
    restart_fibers();
    depth = step_count = 0;
    last_thread = 0;
    for (int t = 0; t < search.threads; t++)        /* up to the first step */
        resume(t);
}

static int enabled(int *threads) {
    int count = 0;
    for (int k = 0; k < search.threads; k++) { /* the last one first: short runs have few changes */
        int t = (last_thread + k) % search.threads;
        if (can_go_on(&fibers[t]))
            threads[count++] = t;
    }
    return count;
}

static int all_done(void) {
    for (int t = 0; t < search.threads; t++)
        if (!fibers[t].done)
            return 0;
    return 1;
}

static double end_of_run(void) {
    if (!all_done()) {
        explorer_fail("a thread waits for ever");
        return 0;
    }
    uint64_t key = hash_end();
    if (!find(&ends, key)->key) {
        insert(&ends, (State){key, 1});
        found->ends++;
        found->ends_sum += key;
    }
    search.at_end();
    return 1;
}

/* Go on from the last choice of the path, always with the first option, to the end or to a known
 * state. Return how many schedules that is. */
static double go_on(void) {
    int threads[THREADS];
    while (!found->failure) {
        int count = enabled(threads);
        int is_new = depth == path_length;
        uint64_t key = 0;
        if (count == 0)
            return end_of_run();
        if (search.memory != WEAK) {
            search.after_step(is_new);
            if (found->failure)
                return 0;
        }
        if (is_new) {
            key = hash_state();
            if (!search.plain) {
                State *state = find(&states, key);
                if (state->key)
                    return state->schedules;
            }
            found->states++;
        }
        last_thread = choose(key, threads, count);
        resume(last_thread);
    }
    return 0;
}

static void write_schedule(void) {
    for (int k = 0; k < depth; k++)
        found->schedule[k] = (char)('0' + path[k]);
    found->schedule[depth] = 0;
}

static void begin(const Search *what, Found *result) {
    search = *what;
    found = result;
    memset(found, 0, sizeof *found);
    path_length = 0;
    make_fibers();
    frames = malloc(STEPS * sizeof(Frame));
    make_table(&states, 1024);
    make_table(&ends, 1024);
}

static void finish(void) {
    free(frames);
    free(states.states);
    free(ends.states);
}

void explorer_search(const Search *what, Found *result) {
    begin(what, result);
    while (!found->gave_up) {
        restart();
        double schedules = go_on();
        if (found->failure) {
            write_schedule();
            break;
        }
        while (path_length) {                   /* back to the last choice with an option left */
            Frame *frame = &frames[path_length - 1];
            frame->schedules += schedules;
            if (++frame->next < frame->count) {
                path[path_length - 1] = frame->options[frame->next];
                break;
            }
            schedules = frame->schedules;
            remember(frame->key, schedules);
            path_length--;
        }
        found->schedules = schedules;
        if (!path_length)
            break;
    }
    finish();
}

/* Run along the given choices; what fails is in *result. Beyond their end take the first option. */
int explorer_replay(const Search *what, const char *schedule, Found *result) {
    begin(what, result);
    search.plain = 1;
    for (path_length = 0; schedule[path_length]; path_length++)
        path[path_length] = schedule[path_length] - '0';
    restart();
    go_on();
    write_schedule();
    finish();
    return step_count;
}

const Step *explorer_steps(int *count) {
    *count = step_count;
    return steps;
}

/* Give the access at that line of a source another order, too. Without a file give none. */
void explorer_weaken(const char *file, int line, int order) {
    if (!file)
        weak_count = 0;
    else if (weak_count < PLACES) {
        weak_places[weak_count].file = file;
        weak_places[weak_count].line = line;
        weak_places[weak_count++].order = order;
    }
}
