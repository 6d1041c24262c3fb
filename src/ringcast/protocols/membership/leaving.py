"""Leaving in good order: LEAVE says that its sender is in no view that follows the
present one.

So the others do not count it when they look whether the next view is primary
(change.py). If it were in another next view all the same, both could be primary. So a
member that has promised a view goes there first, and says LEAVE there. And who has said
LEAVE promises no view with itself any more, but one in which it is alone.

LEAVE is repeated until somebody says that there is a view without us. Who is in no view
yet says it once, and is let go.
"""

from typing import TYPE_CHECKING

from ringcast.address import EVERYONE
from ringcast.protocols.membership.messages import LEAVE, Leave
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.membership.layer import Membership


class Leaving:
    """Lets the member of `layer` leave, and notes that others leave."""

    def __init__(self, layer: "Membership") -> None:
        self.layer = layer

    @property
    def is_said(self) -> bool:
        """Return whether we have said LEAVE in this view."""
        return self.layer.local.incarnation in self.layer.leavers

    def begin(self, now: Instant) -> None:
        """Leave: at once, if nobody is there to be told."""
        layer = self.layer
        layer.is_leaving = True
        if len(layer.members) > 1:
            self.say(now)
            return
        if layer.is_open:
            self._send(now)
        layer.end()

    def say(self, now: Instant) -> None:
        """Say LEAVE, unless a view that we have promised must come first."""
        if self.is_said or self.layer.promised <= self.layer.view_id:
            self.layer.leavers[self.layer.local.incarnation] = []
            self._send(now)

    def _send(self, now: Instant) -> None:
        body = Leave(self.layer.view_id, self.layer.voting.quorums)
        self.layer.send_control(LEAVE, body, EVERYONE, now)

    def hear(self, sender: int, leave: Leave, now: Instant) -> None:
        """Note that a member is not to be in the next view. If it is out already, say
        so. The id of a view that we do not know may be made up: if the member is in any
        later one than we know now, it has not left."""
        layer = self.layer
        came = leave.view_id > 0                        # else it has left before its first view
        last = leave.view_id if came else layer.view_id
        if sender in layer.members:
            if last >= layer.view_id:
                known = max(layer.view_id, layer.promised)
                layer.absentees.hear_leave(sender, min(last, known))
            if last == layer.view_id:
                layer.leavers[sender] = leave.quorums
            if last > layer.view_id or not came:
                layer.detection.depart({sender})        # it went there without us, or has ended
        elif not came:
            layer.coordinator.let_go(sender, now)
        elif layer.meeting.is_spokesman():
            layer.tell_view(now)
        layer.meeting.discovery.forget(sender)
