"""Check the states of simulated applications (replica.py)."""

from typing import TYPE_CHECKING

from ringcast._core.batch import Batch
from ringcast.flags import Flag
from ringcast.protocols.membership.messages import NEEDS, Install, Standing
from ringcast.protocols.seqnos import Seqno, precedes
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.checkers import Checkers
    from ringcast.sim.member import Member


def begins_without_state(install: Install | None, view_id: int) -> bool:
    """Return whether somebody who needs a state begins without one in this view."""
    return install is not None and install.id == view_id and any(
        seat.standing == Standing(NEEDS, 0, view_id) for seat in install.seats)


class StateCheckers:
    """The checks of states, and what they remember."""

    def __init__(self, checkers: "Checkers") -> None:
        self.checkers = checkers
        self._checksums: dict[str, dict[int, int]] = {}     # by the name of the state
        # Where streams were cut when somebody met their senders again, by sender.
        self._cuts: dict[int, set[Seqno]] = {}

    def installed(self, member: "Member", view: View) -> None:
        """Note where streams are cut if members meet again that have been in views
        before: one that has the state meets senders whose messages it then lacks. A
        member in its first view is given the begins of messages with the state. If some
        begin without a state, only those have them that were there."""
        cluster = self.checkers.cluster
        meets_again = self._was_in_another(member, view) and any(
            self._was_in_another(cluster.incarnations[each.incarnation], view)
            for each in view.joined)
        if not meets_again and not begins_without_state(member.members.install, view.id):
            return
        layer, pending = member.multicast, member.multicast.flushing.pending
        for stream in (layer.own, *(window.stream for window in layer.windows.values())):
            # A view that is shown already is at the place where streams stand.
            cut = pending[-1].cuts.get(stream) if pending else stream.boundary(stream.ring.hd)
            if cut is not None:
                self._cuts.setdefault(stream.sender.incarnation, set()).add(cut)

    def _was_in_another(self, member: "Member", view: View) -> bool:
        """Return whether a member has installed another view before this one."""
        history = self.checkers.views.history(member)
        return bool(history) and history[0].id < view.id

    def counts(self, batch: Batch) -> bool:
        """Return whether messages belong to the state. Those to one member and OOB
        messages do not. Nor does a large message that somebody cannot have: a stream
        was cut in its middle, and its sender met somebody again."""
        if batch.dest is not None or batch.flags & Flag.OOB:
            return False
        log = self.checkers.cluster.incarnations[batch.sender.incarnation].log
        begin = log.larges.get(batch.first, batch.first)
        return all(precedes(cut, begin) or not precedes(cut, batch.first)
                   for cut in self._cuts.get(batch.sender.incarnation, ()))

    def check(self, member: "Member", view: View, name: str, checksums: dict[int, int]) -> None:
        """Check that states of one name are the same state."""
        known = self._checksums.setdefault(name, checksums)
        if known != checksums:
            senders = [sender for sender in known.keys() | checksums.keys()
                       if known.get(sender) != checksums.get(sender)]
            cluster = self.checkers.cluster
            names = sorted(cluster.incarnations[sender].name for sender in senders)
            self.checkers.violated(
                "state", f"{member.name} has another state than others in {view}: it differs in "
                         f"the messages of {', '.join(names)}")
