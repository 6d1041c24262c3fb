"""Run a plan in which the group forms itself.

The members agree on their views alone: nobody excludes the dead for them. After the
faults, all that live must come into one view within a stated time, and all that is owed
must happen. They never fall silent; but once nothing is owed, they say only that they
are alive.
"""

from ringcast.config import nanoseconds
from ringcast.sim.member import Member
from ringcast.sim.network import MS
from ringcast.sim.runs.end_checks import check_ends
from ringcast.sim.runs.forming import LONG_ABSENCE
from ringcast.sim.runs.plan import COORDINATOR, Action, Plan
from ringcast.sim.runs.run import Run, slowed
from ringcast.sim.view_checkers import ViewCheckers

# After the faults the group may take this long to agree, beside what it needs for its
# messages:
SUSPICIONS = 60             # times suspect_timeout
HEARTBEATS = 100            # times heartbeat_interval
SEEKS = 200                 # times seek_interval
MARGINS = 8                 # times form_margin
HOLD_OFF = 40_000 * MS      # a group that has come apart often offers rarely to become one again
BEATS = 50                  # heartbeats of each member for which the end of a run is watched
MOST_BEATS = 5              # heartbeats that a member may send in one interval, to all and to one

NO_CAUSE = {"send", "send unicast", "leave", "crash", "crash at", "restart", "hide", "show",
            "refuse"}


class FormingRun(Run):
    """Runs a plan on a group that forms itself."""

    checkers: ViewCheckers

    def __init__(self, plan: Plan, actions: int | None = None) -> None:
        super().__init__(plan, actions)
        assert isinstance(self.cluster.checkers, ViewCheckers)
        self.checkers = self.cluster.checkers
        self.num_restarts = 0               # of all members, because the majority has died
        if any(value for name, value in plan.network.items() if name != "delay"):
            self.checkers.note_cause()

    def _act(self, action: Action) -> None:
        """Perform an action; it may be for whoever coordinates now."""
        if action.what not in NO_CAUSE:
            self.checkers.note_cause()
        if action.what == "crash at":
            self.cluster.deaths.set(self._who(action.who), *action.value)
        elif action.what == "restart" and not action.who:
            dead = [member for member in self.cluster.members.values() if not member.alive]
            if dead:
                self._restart(dead[0], **action.value)
        elif action.what == "exclude" and not self._is_member(action):
            pass
        elif action.what == "refuse":
            self._forge_refusal(action)
        elif action.who == COORDINATOR:
            if who := self._who(COORDINATOR):
                self._act_on(self.cluster[who], action)
        else:
            super()._act(action)

    def _forge_refusal(self, action: Action) -> None:
        """Let a member hear that another one, which is alive, has refused a
        datagram."""
        members = self.cluster.members
        if action.who in members and action.value in members and members[action.value].alive:
            members[action.who].refused(members[action.value].incarnation)

    def _who(self, name: str) -> str:
        """Return the name of the member that an action is for; empty if nobody
        coordinates."""
        if name != COORDINATOR:
            return name
        return next((member.views[-1].coordinator.name for member in self.cluster.living()
                     if member.views), "")

    def _is_member(self, action: Action) -> bool:
        """Return whether a member knows the one that it is to exclude."""
        by = self.cluster.members.get(action.who)
        whole = by.view_filter.whole if by is not None else None
        return whole is not None and action.value in whole.names

    def _counters(self) -> dict[str, int]:
        return super()._counters() | {"num_restarts": self.num_restarts}

    def run(self) -> None:
        """Run to the end. Raise Violation when a promise is broken."""
        self._advance(self.end)
        self._recover()
        if self.config.partition == "primary":
            self._restore_quorum()
        self._drain()
        for member in self.cluster.living():    # now that they are one group
            member.offer(2, 10)
        self._drain()
        self.checkers.check_agreement()
        check_ends(self.cluster, self._agreement())
        self._leave()
        self._quiesce()

    def _recover(self) -> None:
        self.cluster.deaths.traps.clear()
        super()._recover()

    def _restore_quorum(self) -> None:
        """Wait until all that live have one view. If it is not primary, because the
        majority of the last primary view has died, start all members again, as an
        operator would."""
        end = self.cluster.now + self._agreement()
        while not self._has_one_view() and self.cluster.now < end:
            self._advance(self.cluster.now + self._interval())
        living = self.cluster.living()
        whole = living[0].view_filter.whole
        if whole is None or not whole.primary:
            self.num_restarts += 1
            for member in living:
                member.crash()
            for member in living:
                self._restart(member, resumes=False, moves=False)
            for member in self.cluster.living():
                member.offer(2, 10)

    def _has_one_view(self) -> bool:
        """Return whether all that live have the same view, with all of them."""
        living = self.cluster.living()
        whole = [member.view_filter.whole for member in living]
        return all(view is not None and len(view) == len(living) and view == whole[0]
                   for view in whole)

    def _comes_back(self, member: Member) -> bool:
        """Let one come back, too, that is waited for longer than the run lasts."""
        is_awaited = self.plan.starts[member.name].durable and (
            self.config.absence >= LONG_ABSENCE)
        return is_awaited or super()._comes_back(member)

    def _exclude_the_dead(self) -> None:
        """Leave that to the members."""

    def _agreement(self) -> int:
        """Return the time that the group may take to agree."""
        config = self.config
        absence = 0.0 if self.config.absence >= LONG_ABSENCE else 1000 * self.config.absence
        return HOLD_OFF + slowed(
            absence +
            SUSPICIONS * config.suspect_timeout + HEARTBEATS * config.heartbeat_interval
            + SEEKS * config.seek_interval + MARGINS * config.form_margin)

    def _bound(self, step: int) -> int:
        return super()._bound(step) + self._agreement()

    def _leave(self) -> None:
        """Let a member leave, and check that all others go on without it and have what
        it sent."""
        living = self.cluster.living()
        if len(living) < 2:
            return
        leaver = living[self.plan.seed % len(living)]
        leaver.offer(3, 10)
        leaver.leave()
        end = self.cluster.now + self._agreement()
        while leaver.alive or self.cluster.owed() is not None:
            if self.cluster.now >= end:
                self.checkers.violated("goodbye", f"{leaver.name} leaves: "
                                                  f"{self.cluster.owed() or 'it is still there'}")
            self._advance(self.cluster.now + self._interval())
        self.checkers.check_agreement()

    def _quiesce(self) -> None:
        """Check that nothing but heartbeats is sent, and not too many."""
        self._advance(self.cluster.now + self._settling())
        interval = nanoseconds(self.config.heartbeat_interval)
        self.checkers.begin_silence()
        self._advance(self.cluster.now + BEATS * interval)
        assert self.checkers.num_heartbeats is not None
        for name, count in self.checkers.num_heartbeats.items():
            if count > MOST_BEATS * BEATS:
                self.checkers.violated("quiescence", f"{name} sent {count} heartbeats in {BEATS} "
                                                     "intervals")

    def _settling(self) -> int:
        """Return the time after which only heartbeats are sent."""
        config = self.config
        return (10 * self._interval() + slowed(10 * config.heartbeat_interval)
                + 4 * nanoseconds(config.conn_close_timeout
                                  + min(config.conn_expiry_timeout, 1000)))
