"""The rule of primary views: there is one row of them, in the order of their ids, and
each has a majority of the one before.

A view follows those in which its members were last, as far as these do not follow each
other. If groups formed apart, that may be several. A first view follows none. It may be
too small by those who left: they had promised a view that nobody has installed since.
A view whose members have all left, as have those of all that follow it, keeps nobody
from following the one before. Observers do not count.
"""

from collections.abc import Callable, Collection, Iterator

from ringcast.address import Address
from ringcast.view import View


class Primaries:
    """All primary views that anybody has installed, in a trace or in the simulator.
    `violated(view, sentence)` is called for each that breaks the rule. A first one
    needs `min_members`."""

    def __init__(self, violated: Callable[[View, str], None], min_members: int = 0) -> None:
        self.violated, self.min_members = violated, min_members
        self.left: dict[View, set[Address]] = {}    # of each view: who had left by then

    def add(self, view: View, left: Collection[Address]) -> None:
        """Add a primary view that somebody installs. A view with a lower id than others
        may come later."""
        self.left.setdefault(view, set(left))

    def check(self) -> None:
        """Check all views."""
        latest: dict[Address, View] = {}            # the last view of each member
        origin: dict[View, set[View]] = {}          # all views that one comes from
        heirs: dict[View, View] = {}                # which view follows one
        for view in sorted(self.left, key=lambda each: each.id):
            origin[view] = set()
            former = list(_followed(view, latest, origin))
            counted = len(_voters(view)) + len(self.left[view])
            if not former and counted < self.min_members:
                self.violated(view, f"{view} is the first primary view, and has less than "
                                    f"{self.min_members} members")
            for before in former:
                self._check_pair(before, view)
                if before in heirs and not self._has_ended(heirs[before], view, origin):
                    self.violated(view, f"{view} and {heirs[before]} are primary, and both follow "
                                        f"{before}")
                heirs[before] = view
                origin[view] |= origin[before] | {before}
            latest |= dict.fromkeys(view.members, view)

    def _has_ended(self, heir: View, view: View, origin: dict[View, set[View]]) -> bool:
        """Return whether all members of a view, and of those that come from it, had
        left when another view was installed."""
        row = [heir, *(each for each, before in origin.items() if heir in before)]
        return self.left[view].issuperset(member for each in row for member in _voters(each))

    def _check_pair(self, before: View, view: View) -> None:
        """Check that a view has the majority of the one that it follows. Those who left
        do not count, but the coordinator may not have known of all."""
        left = self.left[view]
        voters = [member for member in _voters(before) if member in view or member not in left]
        votes = sum(voter in view for voter in voters)
        is_half = 2 * votes == len(voters) > 0
        if 2 * votes < len(voters) or (is_half and voters[0] not in view):
            self.violated(view, f"{view} is primary, and has no majority of {before}")


def _voters(view: View) -> list[Address]:
    return [member for member in view.members if member not in view.observers]


def _followed(view: View, latest: dict[Address, View],
              origin: dict[View, set[View]]) -> Iterator[View]:
    """Yield the views that one follows."""
    before = {latest[member] for member in _voters(view) if member in latest}
    for each in before:
        if not any(each in origin[other] for other in before):
            yield each
