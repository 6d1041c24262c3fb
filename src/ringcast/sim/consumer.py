"""The receiving half of a simulated application: it is handed batches, and finishes
them at its own pace."""

from typing import TYPE_CHECKING

from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.digest import Digest
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.stream import Stream
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.sim.member import Member


class Consumer:
    """Takes the messages of one member.

    It finishes each batch `finish_after` nanoseconds after it got it, and after all
    earlier ones; None is never. That may be changed at any time.
    """

    def __init__(self, member: "Member") -> None:
        self.member = member
        self.finish_after: int | None = 0
        self.got: dict[Address, list[bytes | None]] = {}  # messages to everybody, by sender
        self.first: dict[Address, int] = {}               # the seqno of the first of these
        self.finished = {sender.incarnation: seqno for sender, seqno in member.resume.items()}
        self._to_report: list[Batch] = []       # finished since the last turn
        self._num_working = 0                   # batches that it works on
        self._works_until = 0                   # when it has finished them
        self._kept: list[Batch] = []            # that it does not finish until it wakes

    def take(self, batch: Batch, now: Instant) -> None:
        """Take a batch, and finish it at once or later."""
        cluster = self.member.cluster
        cluster.checkers.delivered(self.member, batch)
        cluster.observer.delivered(self.member, batch)
        if self.finish_after == 0 and not self._num_working:
            self.report(batch, now)
        elif self.finish_after is not None:
            self._work_on(batch, self.finish_after)
        else:
            self._kept.append(batch)

    def wake(self) -> None:
        """Finish all that it did not, and from now on everything at once; but in order,
        so after what it works on."""
        self.finish_after = 0
        kept, self._kept = self._kept, []
        for batch in kept:
            self._work_on(batch, 0)

    def _work_on(self, batch: Batch, duration: int) -> None:
        """Work on a batch for a while, after those before it."""
        cluster = self.member.cluster
        self._num_working += 1
        self._works_until = max(self._works_until, cluster.now + duration)
        cluster.at(self._works_until, self._stop_work, batch)

    def hold(self, batch: Batch) -> None:
        """Note a batch that is held back from the application, and counts as finished.
        It may be the rest of a message; whether that and its begin are the message, the
        state shows (replica.py)."""
        if not batch.bits & FRAGMENT:
            self.member.cluster.checkers.delivered(self.member, batch)
            self.member.cluster.observer.delivered(self.member, batch)
        self._note(batch)

    def _stop_work(self, batch: Batch) -> None:
        self._num_working -= 1
        self.finish(batch)

    def finish(self, batch: Batch) -> None:
        """Finish a batch; the next turn reports it."""
        if self.member.alive:
            self._to_report.append(batch)
            self.member.request_turn()

    def report_all(self, now: Instant) -> None:
        """Tell the endpoint what was finished since the last turn."""
        batches, self._to_report = self._to_report, []
        for batch in batches:
            self.report(batch, now)

    def report(self, batch: Batch, now: Instant) -> None:
        """Tell the endpoint that this batch is finished."""
        self._note(batch)
        if batch.dest is None and not batch.flags & Flag.NO_RELIABILITY and batch.stream is None:
            # A script made this batch, of a part of others.
            batch = batch.addressed(batch.sender, None, batch.view_id,
                                    self._stream_of(batch.sender))
        self.member.endpoint.finish((batch,), now)

    def _note(self, batch: Batch) -> None:
        if batch.dest is not None:
            self.member.cluster.checkers.unicast.finished(self.member, batch)
        elif not batch.flags & (Flag.NO_RELIABILITY | Flag.OOB):
            self.finished[batch.sender.incarnation] = batch.last

    def _stream_of(self, sender: Address) -> Stream | None:
        """Return the stream of messages to everybody from this sender."""
        multicast = self.member.multicast
        window = multicast.windows.get(sender.incarnation)
        if sender == self.member.address:
            return multicast.own
        return window.stream if window is not None else None

    def durable(self) -> Digest:
        """Return up to where it has finished the messages of others, as a journal would
        have kept it: the next incarnation may go on from there."""
        incarnations = self.member.cluster.incarnations
        return Digest({incarnations[sender].address: seqno for sender, seqno
                       in self.finished.items()
                       if sender != self.member.incarnation or self.member.durable})
