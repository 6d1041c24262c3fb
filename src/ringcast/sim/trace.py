"""Write the trace of a simulated group: what every incarnation of every member did, as
live members write it (ringcast.trace).

Wall times are the simulation's times. So is `sent_at`, although a member stamps its
messages by its own clock, which may be wrong. Positions count from the seqno with which
the plan lets each member begin.
"""

from pathlib import Path
from typing import Any, Self

from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.protocols.seqnos import Seqno
from ringcast.sim.cluster import Cluster, Observer
from ringcast.sim.member import Member
from ringcast.stack import Installed
from ringcast.trace.recorder import Recorder
from ringcast.trace.writer import Writer, make, needed
from ringcast.view import View

SENT = ("send", "retransmit")


class TimedRecorder(Recorder):
    """Writes the simulation's time at which messages left their sender. All recorders
    of a trace share what they know of that (`left`)."""

    left: dict[tuple[str, int], int]

    def _row(self, time: int, wall: int, event: str, **columns: Any) -> None:
        if columns.get("sent_at") is not None:
            key = columns["sender"], columns["sent_at"]
            if event in SENT:
                self.left.setdefault(key, wall)
            columns["sent_at"] = self.left.get(key, wall)
        super()._row(time, wall, event, **columns)


class Trace(Observer):
    """Writes the events of a cluster to a directory. Use it as a context manager, which
    makes it the cluster's observer.

    Raise ConfigError if pyarrow is missing, or if the directory cannot be written or is
    not empty.
    """

    def __init__(self, cluster: Cluster, directory: Path | str) -> None:
        needed()
        self.cluster = cluster
        self.directory = make(Path(directory))
        self.recorders: dict[Member, Recorder] = {}
        self._left: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Self:
        self.cluster.observer = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the traces. The trace of a member that crashed ends without its last
        rows."""
        self.cluster.observer = Observer()
        for member, recorder in self.recorders.items():
            if member.alive or member.left:
                recorder.close(member.left, member.multicast.unacked()
                               + member.unicast.num_unacked(), *self._clocks(member))
            else:
                recorder.writer.close()

    @property
    def num_events(self) -> int:
        """The number of rows."""
        return sum(recorder.writer.num_events for recorder in self.recorders.values())

    def sent(self, member: Member, dest: int, datagram: bytes) -> None:
        recorder = self._recorder(member)
        if dest in self.cluster.incarnations:
            recorder.names[dest] = str(self.cluster.incarnations[dest].address)
        recorder.record_datagram(dest, datagram, *self._clocks(member))

    def delivered(self, member: Member, batch: Batch) -> None:
        self._recorder(member).record_delivery(batch, *self._clocks(member))

    def installed(self, member: Member, installed: Installed) -> None:
        self._recorder(member).record_installed(installed, *self._clocks(member))

    def viewed(self, member: Member, view: View) -> None:
        self._recorder(member).record_view(view, *self._clocks(member))

    def blocked_for(self, member: Member, dest: Address | None, nanoseconds: int) -> None:
        self._recorder(member).record_blocked(nanoseconds, dest, *self._clocks(member))

    def after_turn(self, member: Member) -> None:
        self._recorder(member).record_window(*self._clocks(member))

    def _recorder(self, member: Member) -> Recorder:
        recorder = self.recorders.get(member)
        if recorder is None:
            writer = Writer(self.directory, str(member.address), threaded=False)
            recorder = TimedRecorder(writer, member.address, member.multicast, member.unicast,
                                     offset_of=self._offset_of)
            recorder.low, recorder.left = member.offset, self._left
            self.recorders[member] = recorder
            recorder.record_begin(member.resume, *self._clocks(member))
        return recorder

    def _offset_of(self, incarnation: int) -> Seqno:
        member = self.cluster.incarnations.get(incarnation)
        return member.offset if member is not None else 0

    def _clocks(self, member: Member) -> tuple[int, int]:
        now = self.cluster.now
        return member.clock.read(now), now
