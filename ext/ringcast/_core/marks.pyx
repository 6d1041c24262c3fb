"""Which messages of a window carry flags, and what the flags do to their delivery.

Most messages carry none, and for a window of such messages nothing here costs anything. A window keeps its places for all messages
alike, so that an OOB message is repeated, acknowledged and taken once like any other; only its delivery is earlier.
"""

cimport cython
from libc.stdint cimport int64_t, uint16_t, uint64_t

from ringcast._core.batch cimport Batch
from ringcast._core.window cimport Window


@cython.final
cdef class Marks:
    """The flags of those messages of one window that have any.

    Threads: each call is one step under the interpreter's lock.
    """

    def __cinit__(self):
        self.flags = {}

    def __len__(self):
        return len(self.flags)

    cdef uint16_t of(self, uint64_t seqno):
        """The flags of a message; 0 for most."""
        if not self.flags:
            return 0
        return <uint16_t> self.flags.get(seqno, 0)

    def accept(self, Window window not None, Batch batch not None, bint started=True):
        """Add a batch with flags to a receive window; returns (how many were new, OOB batches to be delivered now).

        A stream that has not `started` delivers nothing yet: its OOB messages wait, and come in their order. The batches have no
        sender yet, as those of a datagram.
        """
        cdef uint64_t seqno = batch.first
        cdef uint64_t added = 0
        cdef uint16_t flags = batch.flags
        cdef bint at_once = started and flags & OOB
        cdef list early = []
        cdef Batch run = None
        for payload in batch.payloads:
            if window.c_add(seqno, payload):
                added += 1
                self.flags[seqno] = flags | TAKEN if at_once else flags
                if at_once:
                    if run is None:
                        run = Batch.__new__(Batch)
                        run.first, run.flags, run.payloads = seqno, flags, []
                        early.append(run)
                    run.payloads.append(payload)
            else:
                run = None
            seqno += 1
        return added, early

    def split(self, uint64_t first, list payloads not None, bint own=False):
        """Messages that leave a window in order, as batches of one kind of flags each, without those that were taken before, and
        without a sender.

        Receivers forget the flags with that. A sender's `own` window keeps them, since it may have to repeat the messages;
        there those with DONT_LOOPBACK are left out.
        """
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
                if run is None or run.flags != flags:
                    run = Batch.__new__(Batch)
                    run.first, run.flags, run.payloads = seqno, flags, []
                    batches.append(run)
                run.payloads.append(payload)
            seqno += 1
        return batches

    def forget(self, uint64_t low):
        """Of a sender's window: messages up to `low` are gone."""
        cdef list gone = []
        for seqno in self.flags:                        # in the order of sending
            if <int64_t> (<uint64_t> seqno - low) > 0:
                break
            gone.append(seqno)
        for seqno in gone:
            del self.flags[seqno]
