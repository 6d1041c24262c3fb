"""START: where a sender's stream begins for a member that joins (decision 10).

A sender tells each new member where its stream begins for it, and repeats that until it
is answered. From that seqno on it waits for the member. The receiver's digest may be
old: so the sender has the last word, and the receiver delivers nothing before.

A START counts in the view that both have. A member may be taken out while it joins and
be let in again: a START of the first time that comes late would open a window on
messages that were given up in between. A START that comes before its view waits here.

An incarnation that comes back (address.Session) begins with what we have, or before.
But what an earlier process of it gave up when it had taken us out, and died before
anybody heard of that, we cannot get any more. Its membership told us of the new process
before this process had a view to send START in; a START of any other process is forged
or old, and must not move the stream.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from ringcast.config import MAX_MEMBERS
from ringcast.kinds import Kind
from ringcast.protocols.latest import Latest
from ringcast.protocols.seqnos import Seqno, is_seqno, precedes
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast


class Start(msgspec.Struct, array_like=True):
    seqno: Seqno                        # the stream begins after this one
    view_id: int                        # the view in which that was decided


class LaterStart(Start, array_like=True):
    """A START of an incarnation that has come back."""

    epoch: int = 0                      # the process that says so


START = Kind(4, "start", LaterStart, about="seqno")     # where my stream starts for you


class Starts:
    """Both sides of START: `joiners` must still answer ours, `deferred` of others wait
    for a view or for news of a process. With an `epoch` of more than 0 this member has
    come back."""

    def __init__(self, layer: "Multicast", epoch: int) -> None:
        self.layer = layer
        self.epoch = epoch
        self.joiners: dict[int, Seqno] = {}     # where our stream starts for them
        self.deferred: Latest[int, LaterStart] = Latest(MAX_MEMBERS)    # by sender
        self.epochs: Latest[int, int] = Latest(MAX_MEMBERS)     # of incarnations that came back

    # ----------------------------------------------------------------------------------- our stream

    def admit(self, member: int, resume: Seqno | None, kept: Seqno | None) -> Seqno:
        """Return where our stream starts for a new member. That is what we send next;
        or, when it comes in the place of a former incarnation of its name, what was
        `kept` for that; or, when it has a part of the stream (`resume`), all that is
        still here."""
        window = self.layer.send_window
        start = window.sent if kept is None else kept
        if resume is not None and not precedes(start, resume):
            start = window.ring.low
        if member != self.layer.local.incarnation:
            self.joiners[member] = start
        return start

    def answered(self, member: int) -> None:
        """Note that a member has its window for our stream. When all have, blocked
        senders may go on."""
        self.joiners.pop(member, None)
        self.layer.stack.effects.writable |= not self.joiners

    def send(self, member: int, seqno: Seqno, now: Instant) -> None:
        """Tell a member where our stream starts for it."""
        view_id = self.layer.view_id
        start = LaterStart(seqno, view_id, self.epoch) if self.epoch else Start(seqno, view_id)
        self.layer.send_control(START, start, member, now)

    def send_to_joiners(self, now: Instant) -> None:
        """Send START to every member that has not answered it."""
        for member, seqno in self.joiners.items():
            self.send(member, seqno, now)

    def send_to_others(self, now: Instant) -> None:
        """If we have come back, send START also to the members that have answered one.

        Such a member may have taken us out and let us in again, as an earlier process,
        without knowing that we are another; then it waits for a START. To others it
        says nothing new.
        """
        if self.epoch:
            for member in self.layer.members:
                if member not in self.joiners and member != self.layer.local.incarnation:
                    self.send(member, self.layer.send_window.ring.low, now)

    # ------------------------------------------------------------------------------ others' streams

    def receive(self, sender: int, start: LaterStart, now: Instant) -> bool:
        """Open the sender's window where it says, or defer the START, and answer until
        the sender knows. Return False for a START that makes no sense."""
        if not is_seqno(start.seqno) or start.epoch < 0:
            return False
        layer = self.layer
        if sender not in layer.windows:
            layer.windows.reopen(layer.members[sender], layer.receiving)
        window = layer.windows.get(sender)
        if not layer.receiving:
            layer.answer_start(sender, now)
        elif start.view_id != layer.view_id or start.epoch > self.epochs.get(sender, 0) or (
                layer.windows.has_outstanding(sender)):
            self.defer(sender, start)
        else:
            if window is None or (precedes(window.ring.hd, start.seqno)
                                  and (not window.started or start.epoch > window.epoch)):
                window = layer.windows.open(layer.members[sender], start.seqno)
            window.started, window.epoch = True, max(window.epoch, start.epoch)
            layer.answer_start(sender, now)
        return True

    def defer(self, sender: int, start: LaterStart) -> None:
        """Keep a START until the next view, or until news of its process comes."""
        if not self.deferred.remember(sender, start):
            self.layer.start_dropped()

    def apply_deferred(self, now: Instant) -> None:
        """Receive the deferred STARTs of members again."""
        for sender in [sender for sender in self.deferred if sender in self.layer.members]:
            self.receive(sender, self.deferred.pop(sender), now)

    def returned(self, member: int, epoch: int, now: Instant) -> None:
        """Believe STARTs of this process of an incarnation from now on."""
        if self.epochs.get(member) != epoch:
            self.epochs.remember(member, epoch)     # one that is dropped will be told again
            self.apply_deferred(now)

    def forget_strangers(self, members: Collection[int]) -> None:
        """Forget the processes of incarnations that are not in the view."""
        for stranger in self.epochs.keys() - set(members):
            del self.epochs[stranger]
