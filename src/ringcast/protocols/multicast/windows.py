"""The windows of a receiver: one for each member that sends to everybody.

A window opens where the members have agreed that its sender's stream begins for us
(flush.py). What becomes of it when its sender is gone is said there, too.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ringcast.address import Address
from ringcast.protocols.incoming import Incoming
from ringcast.protocols.retransmission import Gaps
from ringcast.protocols.seqnos import Seqno
from ringcast.protocols.stream import Stream

MOST_ENDED = 1024       # streams of departed senders whose ends are remembered
MOST_LEAVING = 4        # such streams that are held; more in large groups


@dataclass(slots=True)
class ReceiveWindow(Incoming):
    """The stream of one member to everybody."""

    offset: Seqno               # where it begins for us
    report_due: bool = True     # the sender may not know what is finished: report it (again)


class ReceiveWindows(dict[int, ReceiveWindow]):
    """The windows of the members in the view, by incarnation. `open_stream` makes the
    stream of a sender that begins after a seqno."""

    def __init__(self, open_stream: Callable[[Address, Seqno], Stream]) -> None:
        super().__init__()
        self.open_stream = open_stream

    def open(self, sender: Address, offset: Seqno) -> ReceiveWindow:
        """Open a window for the messages after `offset`."""
        stream = self.open_stream(sender, offset)
        window = self[sender.incarnation] = ReceiveWindow(stream, Gaps(offset), offset)
        return window
