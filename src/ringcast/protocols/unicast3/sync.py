"""SEND_FIRST_SEQNO: how a receiver that has no window for a connection finds out where
to begin (UNICAST3-SYNC.txt).

It asks the sender, which sends its lowest message again, marked as the first. The
question is not asked at once: a flag is set, and the retransmit task asks, at most once
in sync_min_interval for each member. When it was asked last has a table of its own,
because there is no entry yet that could hold it.
"""

from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.protocols.unicast3.control import ConnId
from ringcast.stack import Instant


class Counter:
    """Numbers that only grow, by serial arithmetic, and are never 0 (decision 6):
    conn-ids, and the timestamps of a receiver."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self) -> int:
        self.last = (self.last + 1) % MODULUS or 1
        return self.last


class Syncs:
    """Whom to ask for its first seqno, and when each was asked last."""

    def __init__(self, min_interval: int) -> None:
        self.min_interval = min_interval
        self.last_sync_sent: dict[int, Instant] = {}  # by member
        self.wanted: dict[int, ConnId] = {}           # the flags, with the latest connection that
                                                      # lacks a window

    def want(self, sender: int, conn_id: ConnId) -> None:
        """A message of this connection came and has no window. An older connection does
        not ask in place of a newer one."""
        if sender not in self.wanted or precedes(self.wanted[sender], conn_id):
            self.wanted[sender] = conn_id

    def done(self, sender: int) -> None:
        """There is a window now."""
        self.wanted.pop(sender, None)

    def take_due(self, now: Instant) -> dict[int, ConnId]:
        """Whom to ask now; their flags are cleared."""
        due = {sender: conn_id for sender, conn_id in self.wanted.items()
               if now >= self.earliest(sender)}
        for sender in due:
            del self.wanted[sender]
            self.last_sync_sent[sender] = now
        return due

    def earliest(self, sender: int) -> Instant:
        """When this member may be asked again."""
        last = self.last_sync_sent.get(sender)
        return last + self.min_interval if last is not None else 0

    def forget_before(self, instant: Instant) -> None:
        """Entries that hold nobody back any more."""
        self.last_sync_sent = {sender: last for sender, last in self.last_sync_sent.items()
                               if last >= instant}
