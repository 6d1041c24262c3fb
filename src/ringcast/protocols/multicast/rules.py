"""What MCAST and NAKACK2 decide each in its own way: how a sender learns that all
members have finished a message, and what a receiver does about it. Multicast (base.py)
does what they share and calls these methods.
"""

from ringcast._core.window import Window
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.seqnos import Seqno
from ringcast.stack import Instant, Layer, Packet


class Rules(Layer):
    """The methods that a reliable multicast must have besides those of Multicast."""

    def make_window(self, offset: Seqno, capacity: int, max_bytes: int) -> Window:
        """Return a window of the kind that this protocol uses."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------- as a sender

    def track(self, member: int, start: Seqno) -> None:
        """A member came into the view, this one or another: keep for it what follows
        `start`."""
        raise NotImplementedError

    def forget(self, member: int) -> None:
        """A member left the view: keep nothing for it any more."""
        raise NotImplementedError

    def installed(self, now: Instant) -> None:
        """All changes of a view are made: purge what was kept for those who left."""
        raise NotImplementedError

    def purge(self) -> None:
        """Free what was sent and all members have finished."""
        raise NotImplementedError

    def thaw(self) -> None:
        """Free what was kept for members that were absent and is not needed any
        more."""
        self.purge()

    def slowest(self) -> int | None:
        """Return the member that keeps the send window from being purged, if this one
        knows."""
        raise NotImplementedError

    def unacked_by(self, member: int) -> int | None:
        """Return how many own messages a member has not acknowledged; None if this
        member does not know, or does not wait for that one."""
        return None

    def owes_low(self) -> bool:
        """Return whether HIGHEST must still tell the members that all have finished
        everything."""
        return False

    def scan(self, now: Instant) -> None:
        """Do what is due every scan_pause while the layer is busy."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------- as a receiver

    def begin(self, sender: int, now: Instant) -> None:
        """A stream begins here where the members agreed (flush.py). Take what has come
        of it already; or tell its sender that we take no messages."""
        raise NotImplementedError

    def keep_early(self, packet: Packet) -> None:
        """Messages came of a sender without a window. Here they are dropped."""

    def report_finished(self, window: ReceiveWindow | None, now: Instant) -> None:
        """The application has finished more of a stream; None is our own. See that the
        members that keep the messages learn it."""
        raise NotImplementedError

    def report_again(self, now: Instant) -> None:
        """Report what is finished to each sender that may not know it (report_due)."""
        raise NotImplementedError

    def may_lack_report(self, window: ReceiveWindow, now: Instant) -> bool:
        """The sender asks by HIGHEST, and we have everything. Return whether it may not
        know that."""
        return True

    def refuse(self, sender: int, now: Instant) -> None:
        """Tell a sender that waits for us that we take no messages."""
        raise NotImplementedError

    def stop_receiving(self, now: Instant) -> None:
        """Take no more messages, and tell all senders not to wait for us."""
        raise NotImplementedError
