"""The windows of a receiver: one for each member that sends to everybody, and what is
left of members that are gone.

A window opens when the receiver has the sender's digest, and delivers from the sender's
START on (starts.py). When its sender leaves the view, what is complete is still
delivered; what stands behind a gap can never be completed and is given up. After that
the place in the stream is remembered, in case that the same incarnation comes back.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ringcast.address import Address
from ringcast.digest import Digest
from ringcast.protocols.incoming import Incoming
from ringcast.protocols.latest import Latest
from ringcast.protocols.retransmission import Gaps
from ringcast.protocols.seqnos import Seqno
from ringcast.protocols.stream import Stream

MOST_DEPARTED = 1024    # incarnations that are gone, of which the place in the stream is remembered
MOST_LEAVING = 4        # windows of such members kept for a slow application; more in large groups


@dataclass(slots=True)
class ReceiveWindow(Incoming):
    """The stream of one member to everybody."""

    offset: Seqno               # where it begins for us
    started: bool = False       # its START has come; before that it delivers and asks for nothing
    epoch: int = 0              # the sender's process that sent the START
    report_due: bool = True     # the sender may not know what is finished: report it (again)

    @property
    def is_deliverable(self) -> bool:
        """Return whether the application may get the next message."""
        return self.started and self.has_next


class ReceiveWindows(dict[int, ReceiveWindow]):
    """The windows of the members in the view, by incarnation. `open_stream` makes the
    stream of a sender that begins after a seqno; `resume` is the digest of what the
    application has from an earlier incarnation of this member."""

    def __init__(self, open_stream: Callable[[Address, Seqno], Stream], resume: Digest) -> None:
        super().__init__()
        self.open_stream = open_stream
        self.resume = resume
        self.leaving: list[ReceiveWindow] = []      # of members that are gone, not yet emptied
        self.departed: Latest[int, Stream] = Latest(MOST_DEPARTED)      # retired streams

    def open(self, sender: Address, offset: Seqno) -> ReceiveWindow:
        """Open a window for the messages after `offset`, in place of any other."""
        stream = self.open_stream(sender, offset)
        window = self[sender.incarnation] = ReceiveWindow(stream, Gaps(offset), offset)
        return window

    def reopen(self, sender: Address, receiving: bool) -> None:
        """On reception of digest D: open a window at D[P], if we had messages of P
        before and are still `receiving`.

        It collects what comes. The sender's START may still move it forward, because
        what the sender gave up meanwhile cannot be asked for; so nothing is delivered
        before. For an incarnation that comes back D[P] is where it was when it left, as
        soon as the application has finished what it had of it.
        """
        self.retire([window for window in self.leaving if window.stream.sender == sender])
        if not receiving or self.has_outstanding(sender.incarnation):
            return
        departed = self.departed.pop(sender.incarnation, None)
        if departed is not None:
            self.open(sender, departed.ring.hd)
        elif sender in self.resume:
            self.open(sender, self.resume[sender])

    def has_outstanding(self, departed: int) -> bool:
        """Return whether the application has not finished what a member sent before it
        left."""
        return departed in self.departed and self.departed[departed].outstanding > 0

    # ------------------------------------------------------------------------ members that are gone

    def leave(self, sender: int) -> None:
        """Take the window of a member that left the view out of the table."""
        window = self.pop(sender, None)
        if window is not None:
            self.leaving.append(window)

    def bound(self, most: int) -> int:
        """Give up the oldest windows of members that are gone, until there are `most`:
        a member that comes and goes again and again must not fill the memory while the
        application takes nothing. Return how many messages were given up."""
        return self.give_up(self.leaving[:max(0, len(self.leaving) - most)])

    def give_up_stranded(self) -> int:
        """Give up the windows of members that are gone, unless the next message is
        there: a gap can never be filled now. Return how many messages were given up."""
        return self.give_up([window for window in self.leaving if not window.is_deliverable])

    def give_up(self, windows: list[ReceiveWindow]) -> int:
        """Retire windows, and return how many messages in them were not delivered."""
        stranded = sum(window.num_stranded for window in windows)
        self.retire(windows)
        return stranded

    def retire(self, windows: list[ReceiveWindow]) -> None:
        """Deliver nothing more of members that are gone; remember the places in their
        streams."""
        for window in windows:
            self.leaving.remove(window)
            window.stream.retire()
            self.departed.remember(window.stream.sender.incarnation, window.stream)
