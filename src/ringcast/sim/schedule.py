"""When a simulated member takes its turns."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringcast.sim.member import Member


class Schedule:
    """The turns of one member: as soon as something arrived, and when its endpoint has
    a deadline; but not while the process is busy with a turn, or paused.

    `turn_time` is how long a turn keeps it busy. All times are nanoseconds of the
    simulation.
    """

    def __init__(self, member: "Member", turn_time: int) -> None:
        self.member, self.turn_time = member, turn_time
        self.busy_until = 0
        self._alarm: int | None = None          # the earliest alarm that is set
        self._is_requested = False
        self.has_work = False       # the next turn has work that no deadline tells of

    def request_turn(self, has_work: bool = True) -> None:
        """Schedule the next turn for when the process is free. If it only brings in
        what arrived, it has no other work."""
        self.has_work |= has_work
        if not self._is_requested:
            self._is_requested = True
            cluster = self.member.cluster
            cluster.at(max(cluster.now, self.busy_until), self._take_turn)

    def _take_turn(self) -> None:
        cluster, member = self.member.cluster, self.member
        if self.busy_until > cluster.now:       # it was paused since the request
            cluster.at(self.busy_until, self._take_turn)
            return
        self._is_requested = False
        member.turn(member.transport.read())
        if member.transport.arrived and member.alive:
            self.request_turn(has_work=False)

    def begin_turn(self) -> None:
        """Note that a turn begins, which keeps the process busy."""
        self.busy_until = self.member.cluster.now + self.turn_time

    def is_due(self, now: int) -> bool:
        """Return whether the turn that begins now has more to do than to bring in what
        arrived, and note that it does that."""
        deadline = self.member.endpoint.deadline()
        is_due = self.has_work or (deadline is not None and deadline <= now)
        self.has_work = False
        return is_due

    def pause(self, nanoseconds: int) -> None:
        """Take no turn for so long, like a stopped process. Its socket fills up, and
        its clock runs on."""
        self.busy_until = max(self.busy_until, self.member.cluster.now + nanoseconds)

    def end_pause(self) -> None:
        """Go on now."""
        self.busy_until = min(self.busy_until, self.member.cluster.now)
        self._is_requested = False              # the turn at the end of the pause is too late
        self.request_turn()

    def set_alarm(self) -> None:
        """Set an alarm for the deadline of the endpoint."""
        deadline = self._deadline()
        if deadline is not None and (self._alarm is None or deadline < self._alarm):
            self._alarm = deadline
            self.member.cluster.at(deadline, self._on_alarm, deadline)

    def _on_alarm(self, at: int) -> None:
        """Take a turn, unless another alarm was set or nothing is due any more."""
        if at != self._alarm or not self.member.alive:
            return
        self._alarm = None
        if self.busy_until > at:
            self.request_turn()
        elif (deadline := self._deadline()) is not None and deadline <= at:
            self.member.turn()
        else:
            self.set_alarm()

    def _deadline(self) -> int | None:
        deadline = self.member.endpoint.deadline()
        if deadline is None:
            return None
        return max(self.member.clock.when(deadline), self.member.cluster.now)
