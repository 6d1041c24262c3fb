"""What must hold of primary views: there is one row of them, in the order of their ids,
and each has a majority of the one before.

A view follows those in which its members were last, as far as these do not follow each
other. If groups formed apart, that may be several. A first view follows none. It may be
too small by those who left: they had promised a view that nobody has installed since.
"""

from collections.abc import Callable, Collection, Iterator

from ringcast.address import Address
from ringcast.view import View


class Primaries:
    """All primary views that anybody has installed. `violated(check, sentence)`
    raises."""

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self.violated = violated
        self.views: dict[int, View] = {}
        self.left: dict[int, set[Address]] = {}         # who had left when it was installed

    def add(self, view: View, left: Collection[Address], min_members: int) -> None:
        """Check a primary view that somebody installs. A view with a lower id than
        others may come later."""
        if view.id in self.views:
            return
        self.views[view.id], self.left[view.id] = view, set(left)
        latest: dict[Address, View] = {}                # the last view of each member
        origin: dict[int, set[int]] = {}                # the ids of all views that one comes from
        heirs: dict[int, View] = {}                     # which view follows one
        for view_id in sorted(self.views):
            each = self.views[view_id]
            origin[view_id] = set()
            former = list(self._followed(each, latest, origin))
            if not former and len(each) + len(self.left[view_id]) < min_members:
                self.violated("primary", f"{each} is the first primary view, and has less than "
                                         f"{min_members} members")
            for before in former:
                self._check_pair(before, each)
                if before.id in heirs:
                    self.violated("primary", f"{each} and {heirs[before.id]} are primary, and both "
                                             f"follow {before}")
                heirs[before.id] = each
                origin[view_id] |= origin[before.id] | {before.id}
            latest |= dict.fromkeys(each.members, each)

    def _followed(self, view: View, latest: dict[Address, View],
                  origin: dict[int, set[int]]) -> Iterator[View]:
        """Yield the views that one follows."""
        before = {latest[member].id for member in view.members if member in latest}
        for view_id in before:
            if not any(view_id in origin[other] for other in before):
                yield self.views[view_id]

    def _check_pair(self, before: View, view: View) -> None:
        """Check that a view has the majority of the one that it follows. Those who left
        do not count, but the coordinator may not have known of all."""
        left = self.left[view.id]
        voters = [member for member in before.members if member in view or member not in left]
        votes = sum(voter in view for voter in voters)
        if 2 * votes < len(voters) or (2 * votes == len(voters) and voters[0] not in view):
            self.violated("primary", f"{view} is primary, and has no majority of {before}")
