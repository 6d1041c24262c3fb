"""AckTable: the highest ack of each member, and the minimum of them.

A sender frees its messages up to the minimum. On an ack from P: ack_map[P] =
max(ack_map[P], ack); when the minimum rises, the send window is purged up to it. Only
members count: an ack from anybody else is ignored. When a member leaves, the minimum is
taken again without it, because otherwise a member that is gone would keep the window
full for ever (decision 12).
"""

cimport cython
from libc.stdint cimport uint64_t

from ringcast._core.seqno cimport ahead, to_uint64


@cython.final
cdef class AckTable:
    """The acks of `members`, which all start at `seqno`.

    A member is any hashable object; a seqno is 0 to 2**64-1 (serial arithmetic). The
    caller checks that nobody acks more than was sent. Wrong types raise TypeError,
    numbers out of range ValueError; both leave the table as it was.

    *Threads.* One thread at a time changes it: the one that takes a turn of the layer.
    Any thread may ask for `slowest` meanwhile: each call is one step, under the GIL or
    in a critical section of this object.
    """

    cdef dict acks
    cdef uint64_t low             # the minimum; valid only while there are members

    def __cinit__(self, members=(), seqno=0):
        self.low = to_uint64(seqno, "seqno")
        self.acks = dict.fromkeys(members, self.low)

    @cython.critical_section
    def ack(self, member, seqno):
        """Note that a member has everything up to `seqno`.

        Returns True if the minimum rose. Ignores strangers and older acks.
        """
        cdef uint64_t now = to_uint64(seqno, "seqno"), before
        cdef object old = self.acks.get(member)
        if old is None:
            return False
        before = old
        if ahead(now, before) <= 0:
            return False
        self.acks[member] = seqno
        return before == self.low and self.take_minimum()

    @cython.critical_section
    def add(self, member, seqno):
        """Count a new member, which has everything up to `seqno`.

        A member that is there already keeps its ack. This may lower the minimum, but a
        window never moves back: so pass a seqno that is still in it.
        """
        cdef uint64_t start = to_uint64(seqno, "seqno")
        if member in self.acks:
            return
        if not self.acks or ahead(self.low, start) > 0:
            self.low = start
        self.acks[member] = seqno

    @cython.critical_section
    def remove(self, member):
        """Stop counting a member.

        Returns True if the minimum of the others is higher.
        """
        return self.acks.pop(member, None) is not None and self.take_minimum()

    cdef bint take_minimum(self):
        """Take the minimum of all acks again. Returns True if it rose."""
        cdef uint64_t before = self.low, value
        cdef bint first = True
        cdef object number
        for number in self.acks.values():
            value = number
            if first or ahead(self.low, value) > 0:
                self.low = value
            first = False
        return ahead(self.low, before) > 0

    @property
    def minimum(self):
        """The seqno up to which all members have everything; None if there is no
        member."""
        return self.low if self.acks else None

    @property
    @cython.critical_section
    def slowest(self):
        """The member whose ack is the minimum; of several, the one counted longest.

        None if there is no member.
        """
        cdef object member, number
        for member, number in self.acks.items():
            if number == self.low:
                return member
        return None

    def get(self, member):
        """Return the highest ack of a member, or None."""
        return self.acks.get(member)

    def items(self):
        """List pairs (member, highest ack), in the order in which members were
        added."""
        return list(self.acks.items())

    def __contains__(self, member):
        return member in self.acks

    def __len__(self):
        return len(self.acks)

    def __repr__(self):
        return f"<AckTable members={len(self)} minimum={self.minimum} slowest={self.slowest!r}>"
