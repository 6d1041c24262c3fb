"""The primary part: of all parts of a group, at most one is primary (decision 34).

*Rule* (dynamic voting). A view is primary if it has a majority of the last primary
view: more than half of those who were in it, or exactly half with the oldest. So any
two views that could follow the same one share a member, and only one of them does.
Where nobody knows of a primary view, the first one needs `min_members`. Two first ones
would need 2 * min_members processes.

*Who counts.* A process counts, not a name: who starts anew has forgotten what it
promised. Observers do not count. Members that left in good order count for nothing any
more. They say in their LEAVE what they have promised before.

*A coordinator may die* between PREPARE and INSTALL. Then somebody may have the view,
and others cannot know. So a PREPARE says if its view is to be primary, and whoever
reports to it remembers that as an attempt. The next primary view needs a majority of
the attempt, too, unless
- somebody is there who should have reported to it, and does not know of it: then it was
  never installed. This holds for its coordinator, which knows only what it has decided;
- a later primary view is known: that one has taken the attempt into account.
More than half is needed of it: who is the oldest is not known before INSTALL.

*Groups that formed apart*, because `min_members` is too small, may both be primary
until they meet. Then a majority of each is needed. `roots` tell if two primary views
belong to one history, so that the later one takes the place of the earlier one. An
attempt gives no roots but its own id: if nobody has installed it, the views that it was
to follow have no other one behind them. And it has none of the attempts before it but
those that its coordinator tells, which knows if they are void. For the same reason a
view that follows only attempts may be a first one, and needs `min_members`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ringcast.config import Config
from ringcast.protocols.membership.messages import (
    MAX_QUORUMS,
    MAX_ROOTS,
    Install,
    Prepare,
    Quorum,
    Seat,
    ViewId,
)

if TYPE_CHECKING:
    from ringcast.protocols.membership.layer import Membership


class Verdict(NamedTuple):
    """Whether a view is primary, and the majorities that it needs for that."""

    is_primary: bool
    needed: list[Quorum]

    def roots(self, view_id: ViewId) -> list[ViewId]:
        """Return the roots of this view; none if it is not primary."""
        if not self.is_primary:
            return []
        return inherited_roots(self.needed) or [view_id]


class Voting:
    """What the member of `layer` knows of primary views. Where only a primary view goes
    on, it closes the send window to everybody in all others; `may_send` tells."""

    def __init__(self, layer: "Membership", config: Config) -> None:
        self.layer = layer
        self.quorums: list[Quorum] = []
        self.min_members = config.min_members
        self.is_primary = False                         # our view
        self.is_needed = config.partition == "primary"
        self.may_send = not self.is_needed
        if self.is_needed:
            layer.multicast.send_window.close()

    @property
    def last_id(self) -> ViewId:
        """Return the id of the last view of those that are primary or may have become
        so; 0 if we know of none. Each view that we go to has a higher one."""
        return max((quorum.id for quorum in self.quorums), default=0)

    def foresee(self, seats: Sequence[Seat]) -> Verdict:
        """Return whether a view with these members will be primary, as far as this
        member knows."""
        known = {self.layer.local.incarnation: self.quorums}
        members = voters_of(seats)
        return judge_view(members, self.min_members, known, self.layer.leavers, members)

    def attempt(self, prepare: Prepare) -> None:
        """Remember a view that may become primary, because we report to it."""
        if prepare.roots and all(quorum.id != prepare.id for quorum in self.quorums):
            sure = [quorum for quorum in self.quorums if quorum.is_sure]
            roots = merged_roots([*inherited_roots(sure), *prepare.roots])
            self.quorums.append(Quorum(prepare.id, voters_of(prepare.seats), roots))
            del self.quorums[:-MAX_QUORUMS]

    def install(self, install: Install) -> None:
        """Know what all members of a new view know, and what we have promised since."""
        later = {quorum.id: quorum for quorum in self.quorums if quorum.id > install.id}
        known = later | {quorum.id: quorum for quorum in install.quorums}
        self.quorums = [known[view_id] for view_id in sorted(known)][-MAX_QUORUMS:]
        self.is_primary = install.is_primary
        if self.is_needed and not self.layer.is_leaving and self.may_send != self.is_primary:
            self.may_send = self.is_primary
            window = self.layer.multicast.send_window
            (window.reopen if self.may_send else window.close)()
            self.layer.stack.effects.writable = True    # who waits for room tries again


def judge_view(members: Collection[int], min_members: int,
               reported: Mapping[int, Sequence[Quorum]], left: Mapping[int, Sequence[Quorum]],
               present: Collection[int]) -> Verdict:
    """Return whether a view is primary.

    Args:
        members: of the view.
        min_members: that a first primary view needs.
        reported: what members know.
        left: members that have left in good order, and what they knew.
        present: those of `members` that count: they neither leave nor observe.
    """
    known: dict[ViewId, Quorum] = {}
    for quorums in (*reported.values(), *left.values()):
        for quorum in quorums:
            known[quorum.id] = known_together(known.get(quorum.id, quorum), quorum)
    listed = {member: {quorum.id for quorum in quorums} for member, quorums in reported.items()}
    needed = []
    for quorum in known.values():
        voters = [voter for voter in quorum.voters if voter not in left]
        is_void = not quorum.is_sure and any(
            voter in listed and quorum.id not in listed[voter] for voter in quorum.voters)
        if voters and not is_void and not any(follows(other, quorum) for other in known.values()):
            needed.append(msgspec.structs.replace(quorum, voters=voters))
    needed = sorted(needed, key=lambda quorum: quorum.id)[-MAX_QUORUMS:]
    counted = [member for member in members if member in present]
    is_first = not any(quorum.is_sure for quorum in needed)
    return Verdict((not is_first or len(counted) >= min_members) and all(
        has_majority(quorum, counted) for quorum in needed), needed)


def voters_of(seats: Iterable[Seat]) -> list[int]:
    """Return the members of a view that count for a majority: all but observers."""
    return [seat.incarnation for seat in seats if not seat.observes]


def has_majority(quorum: Quorum, present: Collection[int]) -> bool:
    """Return whether those who are present are the majority: more than half, or half
    with the oldest, who is first. In an attempt, nobody is known to be the oldest: of
    those who come from another view, a coordinator learns the age from their reports.
    """
    votes = sum(voter in present for voter in quorum.voters)
    is_half = 2 * votes == len(quorum.voters)
    return 2 * votes > len(quorum.voters) or (
        is_half and quorum.is_sure and quorum.voters[0] in present)


def known_together(one: Quorum, other: Quorum) -> Quorum:
    """Return what two members know of the same view. Only who has installed it knows
    the age of its members."""
    if other.is_sure:
        one, other = other, one
    return Quorum(one.id, [voter for voter in one.voters if voter in other.voters],
                  merged_roots([*one.roots, *other.roots]), one.is_sure)


def follows(later: Quorum, earlier: Quorum) -> bool:
    """Return whether a view is certainly primary and comes after another one in the
    same history."""
    return later.is_sure and later.id > earlier.id and not set(later.roots).isdisjoint(
        [*earlier.roots, earlier.id])


def inherited_roots(quorums: Iterable[Quorum]) -> list[ViewId]:
    """Return the roots that a view has from those which it follows. It needs the id of
    an attempt only if nothing else tells that it comes after this one."""
    roots = {root for quorum in quorums if quorum.is_sure for root in quorum.roots}
    attempts = {quorum.id for quorum in quorums
                if not quorum.is_sure and roots.isdisjoint(quorum.roots)}
    return merged_roots(roots | attempts)


def merged_roots(roots: Iterable[ViewId]) -> list[ViewId]:
    """Return these roots, each once; of too many, the last."""
    return sorted(set(roots))[-MAX_ROOTS:]
