"""SEND_FIRST_SEQNO: how a receiver that has no window for a connection learns where to
begin (UNICAST3-SYNC.txt).

It asks the sender. The sender answers with its lowest message, marked as the first, and
the receiver begins its window with that. The receiver does not ask at once: it sets a
flag, and the retransmit task asks, at most once in sync_min_interval for each member.
When a member was asked last is in a table of its own, because there is no entry yet
that could hold it.
"""

from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.protocols.unicast3.control import ConnId
from ringcast.stack import Instant


class Counter:
    """Numbers that only grow, by serial arithmetic, and are never 0 (decision 6):
    conn-ids of a sender, timestamps of a receiver."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self) -> int:
        self.last = (self.last + 1) % MODULUS or 1
        return self.last


class Syncs:
    """The members to ask for their first seqno, and when each was asked last."""

    def __init__(self, min_interval: int) -> None:
        self.min_interval = min_interval
        self.wanted: dict[int, ConnId] = {}           # the flags, with the connection
        self.last_sync_sent: dict[int, Instant] = {}  # by member

    def set_flag(self, sender: int, conn_id: ConnId) -> None:
        """Note that a message of this connection came and has no window. A newer
        connection replaces an older one."""
        if sender not in self.wanted or precedes(self.wanted[sender], conn_id):
            self.wanted[sender] = conn_id

    def clear_flag(self, sender: int) -> None:
        """Note that there is a window now, or that the member left."""
        self.wanted.pop(sender, None)

    def take_due(self, now: Instant) -> dict[int, ConnId]:
        """Return the members to ask now, with the connection, and clear their flags."""
        due = {sender: conn_id for sender, conn_id in self.wanted.items()
               if now >= self.earliest(sender)}
        for sender in due:
            del self.wanted[sender]
            self.last_sync_sent[sender] = now
        return due

    def earliest(self, sender: int) -> Instant:
        """Return when this member may be asked again."""
        last = self.last_sync_sent.get(sender)
        return last + self.min_interval if last is not None else 0

    def forget_before(self, instant: Instant) -> None:
        """Forget the questions before this instant: they delay no other any more."""
        self.last_sync_sent = {sender: last for sender, last in self.last_sync_sent.items()
                               if last >= instant}
