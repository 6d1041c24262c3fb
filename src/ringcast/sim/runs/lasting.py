"""Links that stay cut after the faults: `simulate --lasting`.

While they are cut nobody dies, comes or leaves, and all members send now and then. Who
hears whom is always the same, so nobody may wait for ever for somebody who does not
answer.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from ringcast.sim.member import Member
from ringcast.sim.network import Direction
from ringcast.sim.runs.faults import SECOND

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster

LASTS = 45 * SECOND         # how long the links stay cut
STEP = SECOND // 2          # between two looks; each member sends something at each
PATIENCE = 20 * SECOND      # for which a member may stand still
MOST_VIEWS = 2              # of a member in a second


def lasting_cuts(rng: Random, names: str) -> list[Direction]:
    """Draw the links that stay cut: some in one direction, all to or from one member,
    those between two parts, or the same with a member that hears both parts."""
    shuffled = rng.sample(names, len(names))
    size = rng.randint(1, max(1, len(names) - 1))
    one, other = shuffled[:size], shuffled[size:]
    kind = rng.choice(["some", "one", "parts", "parts", "bridge"])
    links: list[Direction]
    if kind == "some":
        all_links = [(a, b) for a in names for b in names if a != b]
        links = rng.sample(all_links, rng.randint(0, len(all_links) // 2))
    elif kind == "one":
        links = [(shuffled[0], name) for name in shuffled[1:]]
        links = links if rng.random() < 0.5 else [(b, a) for a, b in links]
    else:
        one = one[kind == "bridge":]
        links = [(a, b) for a in one for b in other]
        links += [(b, a) for a, b in links]
    return sorted(links)


def check_lasting(cluster: "Cluster", advance: Callable[[int], None]) -> None:
    """Let the time pass by `advance`, and check that nobody stands still. In the end
    each part in which all hear each other, and nobody else, is one group."""
    watch, end = Watch(cluster), cluster.now + LASTS
    while cluster.now < end:
        for member in cluster.living():
            if not member.producer.multicasts.backlog:
                member.offer(1, 10)
        advance(cluster.now + STEP)
        watch.look()
    watch.check_views()
    watch.check_parts()


class Watch:
    """Sees whether anybody stands still."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.began = cluster.now
        self.num_views = {member.incarnation: self._num_views(member)
                          for member in cluster.living()}
        # What each member has come to, and since when.
        self._done: dict[int, tuple[tuple[int, int], int]] = {}
        self._grouped = cluster.now         # when there was a group, or too few for one

    def look(self) -> None:
        """Check that some group is there, and that all members go on."""
        cluster, now = self.cluster, self.cluster.now
        if any(member.view_filter.whole for member in cluster.living()) or not self._are_enough():
            self._grouped = now
        elif now - self._grouped > PATIENCE:
            self._violated("enough members hear each other, and nobody has a view")
        for member in cluster.living():
            done = self._num_views(member), member.multicast.acked
            before, since = self._done.get(member.incarnation, (done, now))
            if done != before or not waits(member):
                since = now
            self._done[member.incarnation] = done, since
            if now - since > PATIENCE:
                self._violated(f"{member.name} waits in {member.view_filter.whole}, and has "
                               f"{member.multicast.unacked()} messages that are not acknowledged")

    def check_views(self) -> None:
        """Check how many views there were."""
        most = MOST_VIEWS * (self.cluster.now - self.began) // SECOND
        for member in self.cluster.living():
            count = self._num_views(member) - self.num_views.get(member.incarnation, 0)
            if count > most:
                self._violated(f"{member.name} had {count} views")

    def check_parts(self) -> None:
        """Check that each part that is whole in itself, and enough for a first view, is
        one group."""
        for part in self._parts():
            seats = [member.view_filter.whole for member in part]
            names = {member.name for member in part}
            if enough(part) and not all(view is not None and view == seats[0] and names == {
                    address.name for address in view.members if address not in view.absent}
                    for view in seats):
                self._violated(f"{', '.join(sorted(names))} hear each other and nobody else; they "
                               f"have {', '.join(map(str, seats))}")

    def _parts(self) -> list[list[Member]]:
        """Return those who live, part by part, if in a part everybody hears all others
        and nobody else."""
        living = self.cluster.living()
        groups = [[other for other in living if self._hears(member, other)] for member in living]
        return [group for group in groups if all(
            (self._hears(one, other) and self._hears(other, one)) == (other in group)
            and self._hears(one, other) == self._hears(other, one)
            for one in group for other in living)]

    def _hears(self, one: Member, other: Member) -> bool:
        return (other.name, one.name) not in self.cluster.network.cut

    def _are_enough(self) -> bool:
        """Return whether members that hear each other are enough for a first view."""
        living = self.cluster.living()
        return any(enough(some) for count in range(1, len(living) + 1)
                   for some in combinations(living, count)
                   if all(self._hears(one, other) for one in some for other in some))

    def _num_views(self, member: Member) -> int:
        return len(self.cluster.checkers.views.history(member))

    def _violated(self, sentence: str) -> None:
        self.cluster.checkers.violated("standstill", sentence)


def enough(members: Sequence[Member]) -> bool:
    """Return whether these are enough for a first view, for each of them."""
    founders = [member for member in members if not member.observes]
    return bool(founders) and len(founders) >= max(
        member.config.min_members for member in founders)


def waits(member: Member) -> bool:
    """Return whether a member waits for others, without a promise that it may: for
    those who are expected back, or for a primary view."""
    view = member.view_filter.whole
    if view is None or view.absent or not view.primary and member.config.partition == "primary":
        return False
    return member.multicast.unacked() > 0 or not member.members.agreed()
