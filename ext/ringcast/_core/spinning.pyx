"""Decide whether a thread that waits for datagrams polls without sleeping first: it
"spins".

A thread that sleeps takes longer to wake up than an answer that is nearly there. So a
wait spins if the last sleep took less than twice what a spin may take, the time to wake
up included: then messages that come at a steady rate, or as answers, need no wake-up.
After a spin in vain some waits sleep at once: one, then 3, 7, and 63 at most.

How to spin is the transport's own: Receiver reads its sockets, and TCP asks epoll.
"""

from libc.stdint cimport int64_t

cdef enum:
    WAKE_UP = 2                     # to wake up takes about as long as a spin may take
    MOST_IN_VAIN = 63               # waits without a spin, after spins in vain


cdef bint begin_wait(Spin *spin) noexcept nogil:
    """Return whether the wait that begins now spins first."""
    if spin.rest:
        spin.rest -= 1
        return False
    return spin.most_ns > 0 and spin.is_short


cdef void end_spin(Spin *spin, bint came) noexcept nogil:
    """Note whether a spin ended because something came."""
    spin.in_vain = 0 if came else min(2 * spin.in_vain + 1, MOST_IN_VAIN)
    spin.rest = spin.in_vain


cdef void end_sleep(Spin *spin, int64_t wait_ns, bint came) noexcept nogil:
    """Note how long a wait took that slept, and whether something came."""
    if spin.most_ns > 0:
        spin.is_short = came and wait_ns < WAKE_UP * spin.most_ns


cdef class Spinning:
    """The same for a transport in Python.

    Threads: only the thread that waits calls it.
    """

    cdef Spin spin

    def begin_wait(self, int64_t most_ns):
        """Return whether the wait that begins now spins first, if a spin may take so
        many nanoseconds."""
        self.spin.most_ns = most_ns
        return begin_wait(&self.spin)

    def end_spin(self, bint came):
        """Note whether a spin ended because something came."""
        end_spin(&self.spin, came)

    def end_sleep(self, int64_t wait_ns, bint came):
        """Note how many nanoseconds a wait took that slept, and whether something
        came."""
        end_sleep(&self.spin, wait_ns, came)
