"""Checks the views that members install, and that applications are shown.

Every member takes part in a row of views. Its layers install a view at once; its
application is shown it later, at its place between the messages. It need not see a view
that a later one has made void.

Two members come together to a view if their layers come from the same view. A sender's
stream goes on for an application if they came together to all views since the last one
that it was shown.
"""

from typing import TYPE_CHECKING

from ringcast.address import Address
from ringcast.audit.primaries import Primaries
from ringcast.config import nanoseconds
from ringcast.protocols.membership.change import Change
from ringcast.protocols.seqnos import Seqno
from ringcast.sim.links import LONGEST_DIAL
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.checkers import Checkers
    from ringcast.sim.member import Member


class ViewCheckers:
    """The checks, and what they remember."""

    def __init__(self, checkers: "Checkers") -> None:
        self.cluster, self.violated = checkers.cluster, checkers.violated
        self.primaries = Primaries(lambda _, sentence: self.violated("primary", sentence))
        self.has_cause = False                          # a member that is alive may be suspected
        self._history: dict[int, list[View]] = {}       # installed, by incarnation
        self._lists: dict[int, tuple[Address, ...]] = {}    # the members of a view, by its id
        self._silent: dict[int, Seqno] = {}             # who may not send, since which seqno
        self._changes: dict[int, Change] = {}           # by the id that was made for each
        # By sender and receiver: the view since which the sender waits for the
        # receiver.
        self.meetings: dict[tuple[int, int], int] = {}

    # ------------------------------------------------------------------------------ on installation

    def installed(self, member: "Member", view: View) -> None:
        """Check a view that the layers of a member install: ids grow, the member is in
        it, one id means one list of members, and who stays keeps its place in it."""
        history = self._history.setdefault(member.incarnation, [])
        before = history[-1] if history else None
        what = f"{member.name} installed {view}"
        if before is not None and view.id <= before.id:
            self.violated("view id", f"{what} after {before}")
        if member.address not in view:
            self.violated("view", f"{what}, in which it is not")
        if len(set(view.names)) < len(view):
            self.violated("view", f"{what}, in which a name is twice")
        if self._lists.setdefault(view.id, view.members) != view.members:
            self.violated("view", f"{what}; another view with this id has the members "
                                  f"{', '.join(map(str, self._lists[view.id]))}")
        history.append(view)
        stayed = [] if before is None else [
            address for address in before.members
            if address in view and self._came_together(member.incarnation, address.incarnation,
                                                       view)]
        if stayed != [address for address in view.members if address in stayed]:
            self.violated("age", f"{what} after {before}: who is older has changed")
        self._check_primary(member, view)
        if before is None and not any(self._from(each.incarnation, view) for each in view.members):
            self._check_first(member, view)
        for address in () if before is None or self.has_cause else before.members:
            other = self.cluster.incarnations[address.incarnation]
            if address in view or not other.alive or other.endpoint.leaving is not None:
                continue
            if before in self.history(other) or not self._has_died():   # else it went elsewhere
                self.violated("excluded", f"{what} after {before}, without {other.name}, to whom "
                                          "nothing happened")
        for address in view.members:
            key = member.incarnation, address.incarnation
            if address not in stayed or key not in self.meetings:
                self.meetings[key] = view.id

    def _check_first(self, member: "Member", view: View) -> None:
        """Check a view whose members have had none: those who do not observe are enough
        for one of them; and nobody else has a view who could have been heard, as long
        as nobody has died."""
        founders = [each for each in (self.cluster.incarnations[address.incarnation]
                                      for address in view.members) if not each.observes]
        if not founders:
            self.violated("first view", f"{member.name} installed {view}, in which all observe")
        if len(founders) < min(each.config.min_members for each in founders):
            self.violated("first view", f"{member.name} installed {view}: that is not enough for "
                                        "any of its members")
        if self.has_cause or self._has_died() or not self._hears_in_time(member):
            return
        for other in self.cluster.living():
            if (history := self.history(other)) and member.address not in history[-1]:
                self.violated("split", f"{member.name} installed {view} though {other.name} has "
                                       f"{history[-1]}")

    def _has_died(self) -> bool:
        """Return whether anybody has died, perhaps before others had its INSTALL."""
        return any(not each.alive for each in self.cluster.incarnations.values())

    def _hears_in_time(self, member: "Member") -> bool:
        """Return whether a member that seeks, and who is there already, hear of each
        other within form_margin."""
        longest = self.cluster.network.delay[1]
        way = longest if self.cluster.links is None else 3 * longest + LONGEST_DIAL
        config = member.config
        return nanoseconds(config.form_margin) > nanoseconds(config.seek_interval) + 2 * way

    def _check_primary(self, member: "Member", view: View) -> None:
        """Check a primary view. Where only such a view goes on, see that nothing is
        sent in others."""
        self._silent.pop(member.incarnation, None)
        if view.primary:
            left = [each.address for each in self.cluster.incarnations.values() if each.left]
            # Whoever made the view may have died since.
            self.primaries.min_members = min(each.config.min_members for each
                                             in self.cluster.incarnations.values())
            self.primaries.add(view, left)
            self.primaries.check()
        elif member.config.partition == "primary":
            self._silent[member.incarnation] = member.multicast.send_window.ring.hr

    def after_turn(self, member: "Member") -> None:
        """Check that a member sends nothing while it may not, and makes each id once:
        a view that was prepared in vain may have been promised."""
        change = member.members.coordinator.change
        if change is not None and self._changes.setdefault(change.id, change) is not change:
            self.violated("view id", f"{member.name} prepares a second view with the id "
                                     f"{change.id}")
        last = self._silent.get(member.incarnation)
        if last is not None and member.multicast.send_window.ring.hr != last:
            self.violated("no quorum", f"{member.name} sends in {member.view_filter.whole}, which "
                                       "is not primary")

    def history(self, member: "Member") -> list[View]:
        """Return the views that a member has installed."""
        return self._history.get(member.incarnation, [])

    def before(self, view_id: int) -> list[View]:
        """Return the views from which the members of a view have come to it."""
        histories = [self._history.get(address.incarnation, [])
                     for address in self._lists.get(view_id, ())]
        return [one for history in histories for one, next_one in zip(history, history[1:],
                                                                      strict=False)
                if next_one.id == view_id]

    def _from(self, incarnation: int, view: View) -> int:
        """Return the id of the view that an incarnation has installed before this one,
        or 0."""
        history = self._history.get(incarnation, ())
        return max((each.id for each in history if each.id < view.id), default=0)

    def _came_together(self, one: int, other: int, view: View) -> bool:
        """Return whether two members come from the same view to this one."""
        origin = self._from(one, view)
        return one == other or (origin != 0 and origin == self._from(other, view))

    # ------------------------------------------------------------------------------------- on views

    def viewed(self, member: "Member", before: View | None, view: View) -> None:
        """Check a view that an application is shown: it was installed after the one
        before, and it says who came and who is gone."""
        due = [each for each in self.history(member) if before is None or each.id > before.id]
        if view not in due:
            self.violated("view order", f"{member.name} is shown {view}; due is one of "
                                        f"{', '.join(map(str, due)) or 'none'}")
        if before is not None:
            self._check_changes(member, before, view)

    def _check_changes(self, member: "Member", before: View, view: View) -> None:
        """Check that a view says who came, who is gone, and whose stream has ended. A
        member that takes no messages may not know of streams."""
        old, new = set(before.members), set(view.members)
        both = {address for address in before.members if address in view
                and not self.goes_on(member.incarnation, address.incarnation, before, view)}
        for name, said, must in (("joined", view.joined, new - old),
                                 ("left", view.left, old - new),
                                 ("departed", view.departed, old - new)):
            least = must if name != "departed" or member.receiving else set()
            if len(set(said)) < len(said) or not least <= set(said) <= must | both:
                self.violated("changes", f"{member.name} is shown {view} after {before}; it says "
                                         f"{name}: {', '.join(map(str, said)) or 'nobody'}")

    def goes_on(self, receiver: int, sender: int, before: View | None, view: View) -> bool:
        """Return whether a stream goes on for an application that is shown `view` after
        `before`."""
        return before is not None and all(
            self._came_together(receiver, sender, each) for each in self._history[receiver]
            if before.id < each.id <= view.id)

    def parting(self, receiver: int, sender: Address, before: View,
                view: View) -> tuple[int, int] | None:
        """Return the ids of the views between which the layers of a receiver first
        parted from a sender, since its application was shown `before`; None if they
        have not."""
        for each in self._history[receiver]:
            if before.id < each.id <= view.id and (sender not in each or not self._came_together(
                    receiver, sender.incarnation, each)):
                return self._from(receiver, each), each.id
        return None
