"""Messages of this member to itself.

They have a connection like all others: a sender's entry, a conn-id, a window with
seqnos. But no datagram carries them. What is pushed into the send window is delivered
from the same window in the next turn, and what the application has finished is freed
there, as if it had been acknowledged.
"""

from ringcast._core.send_window import SendWindow
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3.context import Context
from ringcast.stack import Instant


class Loopback:
    """The connection of this member to itself, while there is one."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.stream: Stream | None = None
        self.is_ready = False               # messages wait for the next turn

    def open(self, window: SendWindow) -> None:
        """Begin to deliver what comes into this window."""
        context = self.context
        self.stream = Stream(context.layer, context.local, context.local, window.ring,
                             context.config, own=window)

    def close(self) -> None:
        """Deliver nothing more."""
        self.stream = None

    def accept(self, window: SendWindow) -> None:
        """Take what waits in the window, without a datagram."""
        window.skip()
        self.is_ready = True

    def deliver(self, limit: int, now: Instant) -> int:
        """Hand at most `limit` messages to the application; return how many it got."""
        self.is_ready = False
        if self.stream is None or limit <= 0:
            return 0
        handed = self.stream.take(limit, self.context.effects.deliveries, self.context.view_id, now)
        self.free()
        return handed

    def free(self) -> None:
        """Free what the application has finished."""
        if self.stream is not None and self.stream.free():
            self.stream.reported()              # to ourselves
            self.stream.marks.forget(self.stream.ring.low)
            self.context.effects.writable = True
