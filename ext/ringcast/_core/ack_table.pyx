"""AckTable: the highest ack of each member, and its minimum, up to which a sender may purge.

On an ack from P: ack_map[P] = max(ack_map[P], ack); when the minimum rises, the send window is purged up to it. Only
members count (an ack from anybody else is ignored), and when a member leaves the minimum is taken again without it:
else one that is gone would keep the window full for ever (decision 12).
"""

cimport cython
from libc.stdint cimport uint64_t

from ringcast._core.seqno cimport ahead, to_uint64


@cython.final
cdef class AckTable:
    """`members`, any hashable objects, all start at `seqno` (0 to 2**64-1; serial arithmetic).

    Whether an ack exceeds what was sent is for the caller to check, who knows that. Wrong types raise TypeError,
    numbers out of range ValueError; both leave the table as it was.

    *Threads.* For one thread at a time: the driver that owns the layer.
    """

    cdef dict acks
    cdef uint64_t low             # the minimum; means something only while there are members

    def __cinit__(self, members=(), seqno=0):
        self.low = to_uint64(seqno, "seqno")
        self.acks = dict.fromkeys(members, self.low)

    def ack(self, member, seqno):
        """member has everything up to seqno; True when the minimum advanced. Ignores non-members and older acks."""
        cdef uint64_t now = to_uint64(seqno, "seqno"), before
        cdef object old = self.acks.get(member)
        if old is None:
            return False
        before = old
        if ahead(now, before) <= 0:
            return False
        self.acks[member] = seqno
        return before == self.low and self.take_minimum()

    def add(self, member, seqno):
        """Count a new member, who has everything up to seqno; one that is there already keeps its ack.

        The minimum may go back by this: a window does not, so pass a seqno that is still in it."""
        cdef uint64_t start = to_uint64(seqno, "seqno")
        if member in self.acks:
            return
        if not self.acks or ahead(self.low, start) > 0:
            self.low = start
        self.acks[member] = seqno

    def remove(self, member):
        """Stop counting member; True when the minimum of the others is ahead of what it was."""
        return self.acks.pop(member, None) is not None and self.take_minimum()

    cdef bint take_minimum(self):
        """Look again who is last; True when that is further than before."""
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
        """What all members have, or None when there are none."""
        return self.low if self.acks else None

    @property
    def slowest(self):
        """The member whose ack is the minimum (the one counted longest, of several), or None."""
        cdef object member, number
        for member, number in self.acks.items():
            if number == self.low:
                return member
        return None

    def get(self, member):
        """The highest ack of member, or None."""
        return self.acks.get(member)

    def items(self):
        """(member, highest ack) pairs, in the order in which members were added."""
        return list(self.acks.items())

    def __contains__(self, member):
        return member in self.acks

    def __len__(self):
        return len(self.acks)
