"""The members that take the rows of an outbox, and whose acks count.

A row is acknowledged when every member of the view has acknowledged it. But a member
that is excluded does not count any more, so this alone says little: in the end the
publisher would be alone, and everything acknowledged. So takers are chosen before the
first row is sent. Once they have gone, no ack counts any more, and the publisher begins
again with the rows that were not acknowledged before.
"""

from collections.abc import Sequence, Set

from ringcast import Address, View

Finished = dict[Address, tuple[int, int]]       # see Channel.finished_of


class Takers:
    """The takers of the rows that the member `name` sends through one channel: members
    with the names `expect`, of which all must stay; without any, all others that were
    there at first, of which one must stay. Observers take nothing: no ack is theirs.

    Threads: the channel calls `are_over_with` in its turns; another thread reads.
    """

    def __init__(self, name: str, expect: Sequence[str]) -> None:
        self.name, self.expect = name, expect
        self.chosen: frozenset[Address] = frozenset()
        self.missing = tuple(expect)
        self.are_gone = False
        self._away: set[str] = set()            # the names of those that are expected back

    def are_over_with(self, view: View) -> bool:
        """See the next view. Return whether takers have gone: the `until` of the
        channel, which sends nothing any more then."""
        others = {member for member in view.members
                  if member.name != self.name and member not in view.observers}
        if not self.chosen:
            self._choose(others)
        elif not self._stay(others - set(view.left), set(view.absent)):
            self.are_gone = True
        return self.are_gone

    def _choose(self, others: Set[Address]) -> None:
        """Choose the takers, if all of them are there."""
        names = {member.name for member in others}
        self.missing = tuple(name for name in self.expect if name not in names)
        if not self.missing:
            self.chosen = frozenset(member for member in others
                                    if not self.expect or member.name in self.expect)

    def _stay(self, others: Set[Address], absent: Set[Address]) -> bool:
        """Return whether takers that have been there all the time have the rows, or
        will have them: everything is kept for one that is absent, and for the member
        that comes back in its place."""
        back = {each.name: each for each in others if each.name in self._away}
        stay = frozenset(back.get(each.name, each) for each in self.chosen
                         if each in others or each in absent or each.name in back)
        are_all_there = len(stay) == len(self.chosen)
        self.chosen, self._away = stay, {each.name for each in stay & absent}
        return are_all_there if self.expect else bool(stay)

    def have(self, seqno: int, streams: Sequence[Finished]) -> int:
        """Return up to where the takers have the outbox's stream. All of it up to
        `seqno` is acknowledged; `streams` are what members of the succession sent, the
        earliest first.

        A member that came late has not the begin of a stream. So a stream counts for a
        taker only if it goes on where the taker is.
        """
        reached = []
        for taker in self.chosen:
            place = seqno
            for stream in streams:
                after, last = stream.get(taker, (place, place))
                if after <= place < last:
                    place = last
            reached.append(place)
        return min(reached) if self.expect else max(reached)
