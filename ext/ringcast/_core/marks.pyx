"""Marks: which messages of a window have flags, and what the flags do to the delivery.

Most messages have none; for a window of such messages nothing here costs anything. An
OOB message keeps its place in the window as any other message does, so that it is
repeated, acknowledged and taken once. Only its delivery comes earlier.
"""

cimport cython
from libc.stdint cimport int64_t, uint16_t, uint64_t

from ringcast._core.batch cimport Batch
from ringcast._core.window cimport Window


@cython.final
cdef class Marks:
    """The flags of those messages of one window that have any.

    *Threads.* Each call is one step, as those of the window are. A SendWindow, into
    which several threads push, is the `owner` of its marks: their dict is touched only
    in a critical section of its window. Otherwise a push would have to wait for the
    dict, and would let others into the section meanwhile. Marks without an owner are
    for one thread at a time.
    """

    def __cinit__(self, Window owner=None):
        self.flags = {}
        self.owner = owner

    cdef object guard(self):
        """Return whose critical section a call needs."""
        return self if self.owner is None else self.owner

    def __len__(self):
        return len(self.flags)

    def copy(self):
        """Return marks of the same messages, without an owner."""
        cdef Marks other = Marks()
        with cython.critical_section(self.guard()):
            other.flags = self.flags.copy()
        return other

    cdef uint16_t get(self, uint64_t seqno):
        """Return the flags of a message, without being in the section."""
        with cython.critical_section(self.guard()):
            return self.of(seqno)

    cdef uint16_t of(self, uint64_t seqno):
        """Return the flags of a message; 0 for most."""
        if not self.flags:
            return 0
        return <uint16_t> self.flags.get(seqno, 0)

    def accept(self, Window window not None, Batch batch not None, bint may_overtake=True):
        """Add a batch with flags to a receive window.

        Returns (how many messages were new, OOB batches to deliver now). Those batches
        have no sender yet. Unless they `may_overtake` others, OOB messages wait, and
        are delivered in their order.
        """
        cdef uint64_t seqno = batch.first
        cdef uint64_t added = 0
        cdef uint16_t flags = batch.bits
        cdef bint at_once = may_overtake and flags & OOB
        cdef list early = []
        cdef Batch run = None
        for payload in batch.payloads:
            if window.c_add(seqno, payload):
                added += 1
                self.flags[seqno] = flags | TAKEN if at_once else flags
                if at_once:
                    if run is None:
                        run = Batch.__new__(Batch)
                        run.first, run.bits, run.payloads = seqno, flags, []
                        early.append(run)
                    run.payloads.append(payload)
            else:
                run = None
            seqno += 1
        return added, early

    def split(self, uint64_t first, list payloads not None, bint own=False):
        """Cut messages that leave a window, in order, into batches with the same flags.

        The batches have no sender yet. At a receiver, messages that were delivered
        before are left out, and the flags are forgotten. A sender's `own` window keeps
        the flags, because it may have to repeat the messages; there, messages with
        DONT_LOOPBACK are left out.
        """
        with cython.critical_section(self.guard()):
            return self.c_split(first, payloads, own)

    cdef list c_split(self, uint64_t first, list payloads, bint own):
        cdef uint64_t seqno = first
        cdef uint16_t flags
        cdef list batches = []
        cdef Batch run = None
        for payload in payloads:
            flags = self.of(seqno)
            if flags and not own:
                del self.flags[seqno]
            if flags & (DONT_LOOPBACK if own else TAKEN):
                run = None
            else:
                if run is None or run.bits != flags:
                    run = Batch.__new__(Batch)
                    run.first, run.bits, run.payloads = seqno, flags, []
                    batches.append(run)
                run.payloads.append(payload)
            seqno += 1
        return batches

    def early(self):
        """Return the seqnos of the OOB messages that were delivered before their
        turn."""
        with cython.critical_section(self.guard()):
            return {seqno for seqno, flags in self.flags.items() if flags & TAKEN}

    def forget(self, uint64_t low):
        """Forget the flags of a sender's messages up to `low`, which are freed."""
        with cython.critical_section(self.guard()):
            self.c_forget(low)

    cdef int c_forget(self, uint64_t low) except -1:
        cdef list gone = []
        for seqno in self.flags:                        # in the order of sending
            if <int64_t> (<uint64_t> seqno - low) > 0:
                break
            gone.append(seqno)
        for seqno in gone:
            del self.flags[seqno]
        return 0
