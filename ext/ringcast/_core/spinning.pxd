"""Tell modules that wait whether a wait spins first."""

from libc.stdint cimport int64_t

cdef struct Spin:                       # only the waiting thread writes it, with or without the GIL
    int64_t most_ns                     # how long a spin may take; 0: never spin
    bint is_short                       # the last sleep was so short that spinning may do instead
    unsigned int in_vain                # after spins in vain: how many waits do not, 1, 3, 7 ..
    unsigned int rest                   # ... and how many of these are left


cdef bint begin_wait(Spin *spin) noexcept nogil
cdef void end_spin(Spin *spin, bint came) noexcept nogil
cdef void end_sleep(Spin *spin, int64_t wait_ns, bint came) noexcept nogil
