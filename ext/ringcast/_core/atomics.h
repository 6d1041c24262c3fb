/* All atomic accesses of ringcast. The name of each function says its memory order.
 *
 * There are no fences. A thread publishes data by a store to one word, and another
 * thread sees the data when it loads this word; so TSan can follow it.
 *
 * Each function first calls RINGCAST_ATOMIC_HOOK(kind, address), which is empty here.
 * An explorer of interleavings defines it (by -D or -include) and lets another thread
 * run there. `kind` is one of RINGCAST_LOAD, _STORE, _UPDATE. */
#ifndef RINGCAST_ATOMICS_H
#define RINGCAST_ATOMICS_H

#include <stdint.h>

#define RINGCAST_LOAD 0
#define RINGCAST_STORE 1
#define RINGCAST_UPDATE 2

#ifndef RINGCAST_ATOMIC_HOOK
#define RINGCAST_ATOMIC_HOOK(kind, address) ((void)0)
#endif

static inline uint64_t load_relaxed(const uint64_t *word) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_LOAD, word);
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline uint64_t load_acquire(const uint64_t *word) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_LOAD, word);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store_release(uint64_t *word, uint64_t value) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_STORE, word);
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Compare and swap. Returns 1 if `desired` was stored. Returns 0 if not; then
 * `*expected` has the value of the word (read relaxed). */
static inline int cas_relaxed(uint64_t *word, uint64_t *expected, uint64_t desired) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_UPDATE, word);
    return __atomic_compare_exchange_n(word, expected, desired, 0, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}

static inline int cas_acquire_relaxed(uint64_t *word, uint64_t *expected, uint64_t desired) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_UPDATE, word);
    return __atomic_compare_exchange_n(word, expected, desired, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static inline int cas_acq_rel_relaxed(uint64_t *word, uint64_t *expected, uint64_t desired) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_UPDATE, word);
    return __atomic_compare_exchange_n(word, expected, desired, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

static inline uint64_t fetch_or_release(uint64_t *word, uint64_t bits) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_UPDATE, word);
    return __atomic_fetch_or(word, bits, __ATOMIC_RELEASE);
}

static inline uint64_t fetch_and_relaxed(uint64_t *word, uint64_t bits) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_UPDATE, word);
    return __atomic_fetch_and(word, bits, __ATOMIC_RELAXED);
}

static inline uint64_t fetch_add_acq_rel(uint64_t *word, uint64_t value) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_UPDATE, word);
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

static inline uint64_t fetch_sub_relaxed(uint64_t *word, uint64_t value) {
    RINGCAST_ATOMIC_HOOK(RINGCAST_UPDATE, word);
    return __atomic_fetch_sub(word, value, __ATOMIC_RELAXED);
}

#endif
