/* What a program under the explorer sees; forced in front of its C by -include.
 *
 * Every atomic access of the shipped core calls RINGCAST_ATOMIC_HOOK first: there another thread
 * may go on. The access itself, and every plain one, arrives in explorer.c as a call of __tsan_*,
 * because the program is compiled with -fsanitize=thread and linked without its library. So the
 * memory is ours, with the orders that the compiler saw. */
#ifndef RINGCAST_EXPLORER_H
#define RINGCAST_EXPLORER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { THREADS = 4, WORDS = 64, STEPS = 4096 };

/* atomic words; plain items; what the program notes for its checks */
enum { SHARED_WORDS, SHARED_SLOTS, SHARED_NOTES };

/* a load sees the latest store; or it may see an older one */
enum { INTERLEAVED, WEAK };

enum { PLAIN_READ = 3, PLAIN_WRITE, WAIT };         /* kinds of step, beside those of atomics.h */

typedef struct {
    int threads, memory, plain;         /* plain: visit every schedule, never merge equal states */
    uint64_t most_states;                           /* give up beyond */
    void (*body)(int thread);
    /* may call explorer_fail(); only for INTERLEAVED; not new: the state was seen before */
    void (*after_step)(int is_new);
    void (*at_end)(void);
} Search;

typedef struct {
    const char *failure;                            /* NULL: every schedule is right */
    char schedule[STEPS];                           /* the choices that lead to the failure */
    /* different states and final states, and the sum of the latters' hashes */
    uint64_t states, ends, ends_sum;
    double schedules;
    int gave_up;
} Found;

typedef struct {                                    /* one step of the last run */
    int thread, kind, order, older, line, swapped;
    const char *file;
    uint64_t *word;
    uint64_t before, after;
} Step;

int explorer_share(void *memory, size_t size, int kind);
void explorer_forget(void);
void explorer_search(const Search *search, Found *found);
int explorer_replay(const Search *search, const char *schedule, Found *found);
const Step *explorer_steps(int *count);
void explorer_weaken(const char *file, int line, int order);

void explorer_fail(const char *why);
void explorer_wait(uint64_t *word, uint64_t seen);
void explorer_point(int kind, const void *word);
void explorer_between(int calls);
int explorer_is_weak(void);

/* Where the access that follows stands in the source. */
extern const char *explorer_file;
extern int explorer_line;

#define RINGCAST_ATOMIC_HOOK(kind, word) explorer_point(kind, word)

#ifdef EXPLORER_PROGRAM
#include "atomics.h"

/* Each access names its place, in a function of its own: else another operand of the same
 * expression may come between. */
#define LOCATED(type, name, parameters, arguments) \
    static inline type name##_at parameters { \
        explorer_file = file; explorer_line = line; return name arguments; }
#define TWO (const char *file, int line, uint64_t *word, uint64_t value)
#define THREE (const char *file, int line, uint64_t *word, uint64_t *expected, uint64_t value)
LOCATED(uint64_t, load_relaxed, (const char *file, int line, const uint64_t *word), (word))
LOCATED(uint64_t, load_acquire, (const char *file, int line, const uint64_t *word), (word))
LOCATED(void, store_release, TWO, (word, value))
LOCATED(int, cas_relaxed, THREE, (word, expected, value))
LOCATED(int, cas_acquire_relaxed, THREE, (word, expected, value))
LOCATED(int, cas_acq_rel_relaxed, THREE, (word, expected, value))
LOCATED(uint64_t, fetch_or_release, TWO, (word, value))
LOCATED(uint64_t, fetch_and_relaxed, TWO, (word, value))
LOCATED(uint64_t, fetch_add_acq_rel, TWO, (word, value))
LOCATED(uint64_t, fetch_sub_relaxed, TWO, (word, value))
#define load_relaxed(...) load_relaxed_at(__FILE__, __LINE__, __VA_ARGS__)
#define load_acquire(...) load_acquire_at(__FILE__, __LINE__, __VA_ARGS__)
#define store_release(...) store_release_at(__FILE__, __LINE__, __VA_ARGS__)
#define cas_relaxed(...) cas_relaxed_at(__FILE__, __LINE__, __VA_ARGS__)
#define cas_acquire_relaxed(...) cas_acquire_relaxed_at(__FILE__, __LINE__, __VA_ARGS__)
#define cas_acq_rel_relaxed(...) cas_acq_rel_relaxed_at(__FILE__, __LINE__, __VA_ARGS__)
#define fetch_or_release(...) fetch_or_release_at(__FILE__, __LINE__, __VA_ARGS__)
#define fetch_and_relaxed(...) fetch_and_relaxed_at(__FILE__, __LINE__, __VA_ARGS__)
#define fetch_add_acq_rel(...) fetch_add_acq_rel_at(__FILE__, __LINE__, __VA_ARGS__)
#define fetch_sub_relaxed(...) fetch_sub_relaxed_at(__FILE__, __LINE__, __VA_ARGS__)

/* The compiler does not instrument memcpy. */
void explorer_copy(void *to, const void *from, size_t size);
#define memcpy(to, from, size) explorer_copy(to, from, size)
#endif

#endif
