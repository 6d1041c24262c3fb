"""Standby: where the driver waits while callers poll in its place (poller.py).

Callers come and go many times in a millisecond, and the driver looks every millisecond
if they still do. It looks without the GIL: to take it would delay the caller that has
just got its message.
"""

from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from ringcast._core.linux cimport (
    pthread_cond_init, pthread_cond_signal, pthread_cond_t, pthread_cond_timedwait,
    pthread_cond_wait, pthread_condattr_init, pthread_condattr_setclock, pthread_condattr_t,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)


cdef class Standby:
    """Counts the visits of callers, and waits until there are none.

    *Threads.* One thread calls `wait`; any thread may call the others. The mutex guards
    all attributes. Who holds it never waits for the GIL, so nobody waits for it long.

    The mutex and the condition are never destroyed: they own nothing, and in a forked
    child glibc would wait for the driver, which is not there.
    """

    cdef pthread_mutex_t mutex
    cdef pthread_cond_t changed
    cdef uint64_t visits            # twice the visits that are over; and 1 while a caller polls
    cdef bint waits_for_leave
    cdef bint stopped

    def __cinit__(self):
        cdef pthread_condattr_t attributes
        pthread_mutex_init(&self.mutex, NULL)
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(&self.changed, &attributes)

    def enter(self):
        """Note that a caller polls."""
        pthread_mutex_lock(&self.mutex)
        self.visits |= 1
        pthread_mutex_unlock(&self.mutex)

    def leave(self):
        """Note that the caller that polled does not any more, if there was one."""
        pthread_mutex_lock(&self.mutex)
        self.visits += self.visits & 1
        if self.waits_for_leave:
            pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    def hurry(self):
        """Let a wait begin anew: callers will not come back soon."""
        pthread_mutex_lock(&self.mutex)
        pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    def stop(self):
        """End all waits, now and later."""
        pthread_mutex_lock(&self.mutex)
        self.stopped = True
        pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.mutex)

    @property
    def is_idle(self):
        """Return whether `wait` looks no more until a caller leaves that polls for
        long."""
        pthread_mutex_lock(&self.mutex)
        cdef bint idle = self.waits_for_leave
        pthread_mutex_unlock(&self.mutex)
        return idle

    def wait(self, int64_t patience_ns):
        """Return when no caller has polled for so many nanoseconds, or after `stop`."""
        with nogil:
            pthread_mutex_lock(&self.mutex)
            while not self.stopped and not self.is_quiet_for(patience_ns):
                pass
            pthread_mutex_unlock(&self.mutex)

    cdef bint is_quiet_for(self, int64_t patience_ns) noexcept nogil:
        """Wait, and return whether no caller has come or gone, or was there. If one has
        polled all the time, wait until it leaves. The caller holds the mutex."""
        cdef timespec until
        cdef uint64_t seen = self.visits
        clock_gettime(CLOCK_MONOTONIC, &until)
        patience_ns += until.tv_nsec
        until.tv_sec += <long>(patience_ns // 1000000000)
        until.tv_nsec = <long>(patience_ns % 1000000000)
        if pthread_cond_timedwait(&self.changed, &self.mutex, &until) == 0:
            return False                # hurry() or stop()
        if self.visits != seen:
            return False
        if not seen & 1:
            return True
        # A leave() that comes before this has changed `visits`, and one that comes
        # after it signals: it needs the mutex, which only the wait gives back.
        self.waits_for_leave = True
        while self.visits == seen and not self.stopped:
            pthread_cond_wait(&self.changed, &self.mutex)
        self.waits_for_leave = False
        return False
