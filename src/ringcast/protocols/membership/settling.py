"""Settling: the members of a view tell its coordinator that they have it (INSTALLED),
and the coordinator tells all when everybody has come so far (ALIVE).

- A view is *settled* when all members have everything that comes before it. Then
  streams of new members are delivered.
- It is *released* when, besides, nobody needs a departed sender's stream any more: no
  durable member is absent, and the applications of all durable members have finished
  these streams. Then nothing is held for others (multicast/keeping.py).
"""

from typing import TYPE_CHECKING

from ringcast.address import EVERYONE
from ringcast.protocols.membership.messages import ALIVE, INSTALLED, Alive, Installed
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.membership.change import Change
    from ringcast.protocols.membership.layer import Membership


class Settling:
    """How far the members of the view have come, as one of them knows. `settled_id` and
    `released_id` are the last views that are settled and released."""

    def __init__(self, layer: "Membership") -> None:
        self.layer = layer
        self.settled_id = self.released_id = 0
        self.complete_id = 0            # the last view that we said to be complete

    @property
    def is_settled(self) -> bool:
        return self.settled_id == self.layer.view_id

    @property
    def is_waiting(self) -> bool:
        """Return whether the coordinator must hear of us again."""
        layer = self.layer
        return not self.is_settled or (layer.absence > 0 and not layer.absentees.known
                                       and self.released_id != layer.view_id)

    def answer(self, coordinator: int, now: Instant) -> None:
        """Tell the coordinator that we have the view, and how far we are in what comes
        before it."""
        layer = self.layer
        is_complete = layer.multicast.is_complete()
        if is_complete:
            self.complete_id = layer.view_id
        body = Installed(layer.view_id, is_complete, layer.multicast.keeping.has_finished())
        if coordinator == layer.local.incarnation:
            self.take(coordinator, body, layer.coordinator.change, now)
        else:
            layer.send_control(INSTALLED, body, coordinator, now)

    def answer_once_complete(self, now: Instant) -> None:
        """Tell the coordinator at once when the last of what comes before the view has
        come: new members wait for that."""
        layer = self.layer
        if layer.view_id not in (self.complete_id, self.settled_id) and layer.is_open and (
                layer.multicast.is_complete()):
            self.answer(layer.acting(layer.detection.gone(now)), now)

    def take(self, sender: int, installed: Installed, change: "Change | None",
             now: Instant) -> None:
        """When all are complete, tell everybody. A member that asks again missed
        that."""
        layer = self.layer
        if change is None or installed.id != change.id or sender not in change.members:
            if installed.id == layer.view_id == self.settled_id and sender in layer.members:
                self.say(sender, now)
            return
        if sender not in change.installed:
            change.note_answer(now)
        change.installed.add(sender)
        if installed.complete:
            change.complete.add(sender)
        if installed.complete and installed.finished:
            change.finished.add(sender)
        awaited = change.members - change.observers
        is_released = change.finished >= awaited and not layer.absentees.known
        if change.complete >= awaited and (
                not self.is_settled or (is_released and self.released_id != layer.view_id)):
            self.settle(is_released)
            self.say(EVERYONE, now)

    def say(self, dest: int, now: Instant) -> None:
        """Say ALIVE to a member or to everybody."""
        body = Alive(self.layer.view_id, self.settled_id, self.released_id)
        self.layer.send_control(ALIVE, body, dest, now)

    def hear(self, alive: Alive) -> None:
        """A member says how far the group is. We are in it, so it is not ahead of
        us."""
        view_id = self.layer.view_id
        is_released = alive.released == view_id != self.released_id
        if alive.settled == view_id and (is_released or not self.is_settled) and (
                self.layer.multicast.is_complete()):
            self.settle(is_released)

    def settle(self, is_released: bool) -> None:
        """All members have all that comes before this view. If it is released, too,
        hold nothing more for them."""
        self.settled_id = self.layer.view_id
        if is_released:
            self.released_id = self.layer.view_id
        self.layer.multicast.settle(is_released)
