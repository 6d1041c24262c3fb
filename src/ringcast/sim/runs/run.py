"""Run one seed, from its first event to the verdict; and if it fails, find the shortest
prefix that still fails.

A run has two parts. While there are faults, nothing wrong may happen: the checkers see
to that. Then the network heals, and some of the dead members come back. All that live
must come into one view within a stated time, without help; and all that is owed must
happen. Members never fall silent; but once nothing is owed, they say only that they are
alive.
"""

import math
import traceback
from collections import Counter
from collections.abc import Callable
from time import process_time

import msgspec

from ringcast.config import configure, nanoseconds
from ringcast.protocols.membership.coordinator import JOINING
from ringcast.protocols.membership.state import PATIENCE
from ringcast.protocols.multicast.observing import REPEATS
from ringcast.sim.checkers import Violation
from ringcast.sim.clock import Clock
from ringcast.sim.cluster import Cluster
from ringcast.sim.links import AGAIN as LINK_AGAIN
from ringcast.sim.member import Member
from ringcast.sim.network import MS, Network
from ringcast.sim.replica import MOST_STATE
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.end_checks import check_ends
from ringcast.sim.runs.faults import LONG_ABSENCE, SECOND
from ringcast.sim.runs.lasting import LASTS, check_lasting
from ringcast.sim.runs.measure import Measured, Meter
from ringcast.sim.runs.plan import COORDINATOR, Action, Plan, Start
from ringcast.sim.runs.settings import Settings
from ringcast.sim.threads import PAUSES
from ringcast.stacks import STACKS
from ringcast.status import counts

# The time that all that is owed may take after the faults is the sum of these:
INTERVALS = 400             # xmit_intervals
WINDOW_INTERVALS = 6        # xmit_intervals for each full window of messages that waits for room
SUSPICIONS = 60             # times suspect_timeout
HEARTBEATS = 100            # times heartbeat_interval
SEEKS = 200                 # times seek_interval
MARGINS = 8                 # times form_margin
HOLD_OFF = 40_000 * MS      # a group that has come apart often offers rarely to become one again

WAITING = 8                 # blocked messages to each destination that go out after the faults
BEATS = 20                  # heartbeats of each member for which the end of a run is watched,
INTERVALS_WATCHED = 3       # ... or so many xmit_intervals, if they take longer
SETTLING = 5                # xmit_intervals and heartbeats, after which only heartbeats are sent
MOST_BEATS = 5              # heartbeats that a member may send in one interval, to all and to one
MAX_EVENTS = 3_000_000      # of a run, or of each second of a steady load; more is a storm
TRIES = 10                  # prefixes that are tried after each bisection
VOID = 10                   # deliveries; a run with fewer has tested nothing

NETWORK_COUNTERS = ("num_lost", "num_cut", "num_duplicated", "num_reordered", "num_damaged",
                    "num_clogged", "num_congested", "num_in_pieces")
LINK_COUNTERS = ("num_broken", "num_overtaken", "num_control_broken")
# Actions for which no member that is alive may be suspected.
NO_CAUSE = {"send", "send oob", "send unicast", "stop sending", "leave", "crash", "crash at",
            "restart", "hide", "show", "refuse", "break for"}


class Outcome(msgspec.Struct, kw_only=True):
    """The result of a run."""

    seed: int
    check: str = ""                     # the name of the check that failed, or empty
    sentence: str = ""
    traceback: str = ""                 # of an exception that a layer raised
    actions: int = 0                    # length of the prefix of the plan that was run
    events: int = 0
    deliveries: int = 0
    simulated: float = 0.0              # seconds
    cpu: float = 0.0                    # seconds
    fingerprint: int = 0
    counters: dict[str, int] = {}       # of all members' stacks, and of the network
    measured: Measured | None = None    # under a steady load

    @property
    def is_void(self) -> bool:
        """Return whether it had next to no traffic."""
        return not self.check and self.deliveries < VOID


class Run:
    """Runs a plan on a cluster. `actions` limits it to a prefix of so many actions."""

    def __init__(self, plan: Plan, actions: int | None = None) -> None:
        self.plan = plan
        self.actions = plan.actions if actions is None else plan.actions[:actions]
        cut_short = len(self.actions) < len(plan.actions)
        self.end = plan.actions[len(self.actions)].at if cut_short else plan.duration
        self.cluster = Cluster(plan.names, seed=plan.seed, network=Network(**plan.network),
                               socket_bytes=plan.socket_bytes, turn_time=plan.turn_time,
                               threads=plan.threads, between=plan.between, stack=plan.stack,
                               refuses=plan.refuses, sealed=plan.sealed, trusted=plan.trusted,
                               **plan.options)
        self.config = configure(plan.options, plan.stack)
        # What a member may have on its way, as long as there are faults; in bytes.
        self.share = min(plan.socket_bytes // 2 // len(plan.names),
                         self.cluster.network.send_budget)
        self.max_events = MAX_EVENTS
        self.meter: Meter | None = None
        if plan.load is not None:
            self.max_events *= 1 + math.ceil((plan.load[1] - plan.load[0]) / 1e9)
        if plan.lasting is not None:
            self.max_events *= 1 + LASTS // SECOND
        if any(value for name, value in plan.network.items() if name != "delay"):
            self.cluster.checkers.note_cause()
        self.num_moves = 0              # of members to other addresses
        self.num_restarts = 0           # of all members, because the majority has died
        for name, start in plan.starts.items():
            self.cluster.at(start.at, self._start, name, start)
        for action in self.actions:
            self.cluster.at(action.at, self._act, action)

    def _start(self, name: str, start: Start) -> None:
        """Start a member, unless it was started because a prefix ended before."""
        if name not in self.cluster.members:
            self.cluster.start(name, receiving=start.receiving, offset=start.offset,
                               counters=start.counters, clock=Clock(*start.clock),
                               durable=start.durable, replica=start.replica,
                               observes=start.observes, **start.options)

    # -------------------------------------------------------------------------------------- actions

    def _act(self, action: Action) -> None:
        """Perform an action on the network or on a member; it may be for whoever
        coordinates now."""
        network, links, value = self.cluster.network, self.cluster.links, action.value
        if action.what not in NO_CAUSE:
            self.cluster.checkers.note_cause()
        if action.what == "cut":
            network.cut |= set(value)
            if links is not None:
                links.break_all_cut()
        elif action.what in ("break", "break for"):
            assert links is not None
            links.break_link(*value)
        elif action.what == "mend":
            network.cut -= set(value)
        elif action.what == "clog":
            network.clogged |= dict.fromkeys(*value)
        elif action.what == "crash at":
            self.cluster.deaths.set(self._who(action.who), *value)
        elif action.what == "restart" and not action.who:
            dead = [member for member in self.cluster.members.values() if not member.alive]
            if dead:
                self._restart(dead[0], **value)
        elif (who := self._who(action.who)) in self.cluster.members:
            self._act_on(self.cluster[who], action)

    def _who(self, name: str) -> str:
        """Return the name of the member that an action is for; empty if nobody
        coordinates."""
        if name != COORDINATOR:
            return name
        return next((member.views[-1].coordinator.name for member in self.cluster.living()
                     if member.views), "")

    def _act_on(self, member: Member, action: Action) -> None:
        """Perform an action on a member: a fault if it is alive, a comeback if it is
        dead."""
        value = action.value
        if action.what == "restart":
            if not member.alive:
                self._restart(member, **value)
        elif action.what == "refuse":
            self._forge_refusal(member, value)
        elif not member.alive:
            pass
        elif action.what == "send":
            if len(member.producer.multicasts.backlog) <= value[0]:     # not blocked for long
                member.offer(*value)
        elif action.what == "send oob":
            count, size = value
            member.offer(count, size, is_oob=True)
        elif action.what == "stop sending":
            member.producer.give_up_multicasts()
        elif action.what == "slow":
            member.consumer.finish_after, member.endpoint.max_undelivered = value
            member.request_turn()
        elif action.what == "send unicast":
            member.send_unicast(*value)
        elif action.what == "hide":
            member.hide(value)
        elif action.what == "show":
            member.show(value)
        elif action.what == "interval":
            member.change_interval(value)
        elif action.what == "send buffer":
            member.transport.send_full = value
        elif action.what == "jump":
            member.clock.jump(self.cluster.now, value)
            member.request_turn()
        elif action.what == "exclude":
            whole = member.view_filter.whole
            if whole is not None and value in whole.names:
                member.exclude(value)
        elif action.what == "pause":
            member.pause(value)
        else:
            {"crash": member.crash, "leave": member.leave}[action.what]()

    def _forge_refusal(self, member: Member, by: str) -> None:
        """Let a member hear that another one, which is alive, has refused a
        datagram."""
        other = self.cluster.members.get(by)
        if other is not None and other.alive:
            member.refused(other.incarnation)

    def _restart(self, former: Member, resumes: bool, moves: bool) -> None:
        """Start a new incarnation of a member; with `resumes` it has its journal, with
        `moves` another address."""
        start = self.plan.starts[former.name]
        self.num_moves += moves
        self.cluster.start(former.name, receiving=start.receiving,
                           resume=former.consumer.durable() if resumes or start.durable else None,
                           physical=f"{former.name}{self.num_moves}" if moves else former.physical,
                           durable=start.durable, replica=start.replica,
                           observes=start.observes, **start.options)

    # -------------------------------------------------------------------------------------- the run

    def outcome(self) -> Outcome:
        """Run, and return the result."""
        began = process_time()
        cluster = self.cluster
        if self.plan.load is not None:
            begin, end = self.plan.load
            self.meter = cluster.observer = Meter(cluster, begin, min(self.end, end))
        check = sentence = trace = ""
        try:
            self.run()
        except Violation as violation:
            check, sentence = violation.check, str(violation)
        except Exception as error:
            where = f"at {cluster.now / MS:.3f} ms, event {cluster.num_done}"
            check, sentence = "error", f"{type(error).__name__}: {error} ({where})"
            trace = traceback.format_exc()
        return Outcome(
            seed=self.plan.seed, check=check, sentence=sentence, traceback=trace,
            actions=len(self.actions), events=cluster.num_done,
            deliveries=cluster.delivered(), simulated=cluster.now / 1e9, cpu=process_time() - began,
            fingerprint=cluster.fingerprint, counters=self._counters(),
            measured=self.meter.measured() if self.meter else None)

    def run(self) -> None:
        """Run to the end. Raise Violation when a promise is broken. What is there to
        measure ends when all has arrived."""
        self._advance(self.end)
        if self.meter is not None:
            self.meter.stop()
        self._recover()
        if self.plan.lasting is not None:
            self._act(Action(self.cluster.now, "cut", value=self.plan.lasting))
            check_lasting(self.cluster, self._advance)
            self.cluster.heal()
        if self.config.partition == "primary":
            self._restore_quorum()
        self._drain()
        self._wake_observers()
        if self.meter is not None:
            return
        for member in self.cluster.living():    # now that they are one group
            member.offer(2, 10)
        self._drain()
        self.cluster.checkers.check_agreement()
        check_ends(self.cluster, self._agreement())
        self._leave()
        self._begin_without_state()
        self._quiesce()

    def _advance(self, end: int) -> None:
        """Run until a time, but not for ever."""
        if not self.cluster.run_until(end, self.max_events):
            self.cluster.checkers.violated("storm", f"more than {self.max_events} events")

    def _recover(self) -> None:
        """End all faults; let dead members come back. Who is blocked gives up the most
        of what waits: one message after the other would prove nothing more. Then all
        members send once more."""
        cluster = self.cluster
        cluster.deaths.traps.clear()
        cluster.heal()
        cluster.options["rekey_interval"] = 0           # a group at rest makes no views
        for name, start in self.plan.starts.items():
            if name not in cluster.members:
                self._start(name, start)
        for member in cluster.living():
            member.consumer.finish_after, member.endpoint.max_undelivered = (
                (None, 10) if member.observes else (0, 65_536))
            member.members.rekeying.interval = 0
            for name in sorted(member.view_filter.hidden):
                member.show(name)
            member.request_turn()
        for member in cluster.living():         # it may leave alone, and the others wait for it
            if member.endpoint.leaving is not None and self._is_awaited(member):
                member.crash()
        for member in [member for member in cluster.members.values() if not member.alive]:
            if self._comes_back(member) or not cluster.living():
                self._restart(member, resumes=True, moves=False)
        for member in cluster.living():
            member.producer.give_up(but=WAITING)
            member.offer(2, 10)
            for address, log in list(member.producer.unicast_logs.items()):
                if log.sent and not log.backlog:
                    member.send_unicast(address.name, 2, 10)

    def _wake_observers(self) -> None:
        """Nobody has waited for observers, whose applications stood still. Now they go
        on."""
        for member in self.cluster.living():
            if member.observes:
                member.consumer.wake()
                member.endpoint.max_undelivered = 65_536
                member.request_turn()
        self._drain()

    def _comes_back(self, member: Member) -> bool:
        """Return whether a member that is dead in the end comes back."""
        return self._is_awaited(member) or self.plan.comebacks[member.name]

    def _is_awaited(self, member: Member) -> bool:
        """Return whether others wait for a member that is dead longer than the run
        lasts: it is expected back, or they may be too few without it."""
        start = self.plan.starts[member.name]
        return (start.durable and self.config.absence >= LONG_ABSENCE
                or "min_members" in start.options)

    def _restore_quorum(self) -> None:
        """Wait until all that live have one view. If it is not primary, because the
        majority of the last primary view has died, start all members again, as an
        operator would; also those that were about to leave."""
        end = self.cluster.now + self._agreement()
        while not self._has_one_view() and self.cluster.now < end:
            self._advance(self.cluster.now + self._interval())
        living = self.cluster.living()
        if not living:
            return                              # all are leaving
        whole = living[0].view_filter.whole
        if whole is None or not whole.primary:
            self.num_restarts += 1
            for member in living:
                member.crash()
            for member in list(self.cluster.members.values()):
                self._restart(member, resumes=False, moves=False)
            for member in self.cluster.living():
                member.offer(2, 10)

    def _has_one_view(self) -> bool:
        """Return whether all that live have the same view, with all of them."""
        living = self.cluster.living()
        whole = [member.view_filter.whole for member in living]
        return all(view is not None and len(view) == len(living) and view == whole[0]
                   for view in whole)

    def _interval(self) -> int:
        """Return an xmit_interval by the slowest clock, and the time of a round trip;
        where there are such, also the time of a vote, of a new link, and of
        bundling."""
        config = self.config
        votes = config.stable_interval if STACKS[self.plan.stack].votes else 0.0
        links = LINK_AGAIN if self.cluster.links is not None else 0
        bundling = slowed(config.bundle_delay) + max(PAUSES) if self.plan.threads else 0
        round_trip = 2 * self.plan.network["delay"][1]
        return slowed(config.scan_interval + votes) + round_trip + links + bundling

    def _windows(self, member: Member) -> int:
        """Return how many windows a member's messages fill that wait or are not
        acknowledged; it shares the receivers' socket buffers with all others."""
        pieces = [each for payload in member.producer.multicasts.backlog
                  for each in member.producer.fragment_sizes(payload)]
        count = len(pieces) + member.multicast.unacked()
        if not count:
            return 1
        pieces += [each for payload in member.log[-count:] if payload
                   for each in member.producer.fragment_sizes(payload)]
        configs = [each.config for each in self.cluster.living()]
        share = min(self.share, *(config.max_bytes for config in configs))
        window = min(share // max(pieces, default=1), *(config.capacity for config in configs))
        return 1 + count // max(1, window)

    def _drain(self) -> None:
        """Check that all that is owed happens within the stated time. Once all have one
        view, they need no more time to agree."""
        cluster, began, step = self.cluster, self.cluster.now, self._interval()
        view, agreed_by = None, max(began, cluster.network.busy_until()) + self._agreement()
        by = agreed_by + self._bound(step)
        while (owed := cluster.owed()) is not None:
            if cluster.now >= by:
                cluster.checkers.violated("liveness", f"{owed}, {(cluster.now - began) / MS:.0f} "
                                                      "ms after faults stopped")
            self._advance(cluster.now + step)
            living = cluster.living()           # nobody, if all are leaving
            now = living[0].view_filter.whole if living and self._has_one_view() else None
            if now != view:
                view, began_by = now, agreed_by if now is None else min(agreed_by, cluster.now)
                by = began_by + self._bound(step)

    def _bound(self, step: int) -> int:
        """Return the time in which all that is owed must happen in one view. `step` is
        an interval."""
        windows = sum(self._windows(member) for member in self.cluster.living())
        return ((INTERVALS + WINDOW_INTERVALS * windows) * step + self._unicast_bound(step)
                + slowed(HEARTBEATS * self.config.heartbeat_interval))

    def _unicast_bound(self, step: int) -> int:
        """Return the time that connections may take in addition: those with dead
        members must fail, and each message, or part of a state, may wait for an ack."""
        config, living = self.config, self.cluster.living()
        share = min(config.max_bytes, self.share) // 4
        replicas = [member.replica for member in living if member.replica is not None]
        num_without = sum(replica.transfer.is_holding for replica in replicas)
        sizes = [(len(payload), member) for member in living
                 for log in member.producer.unicast_logs.values() for payload, _ in log.backlog]
        sizes += [(MOST_STATE, replica.member) for replica in replicas] * num_without
        waiting = 0
        for size, sender in sizes:
            fragments = 1 + size // (sender.config.max_bundle_size // 2)
            waiting += 1 + fragments // config.capacity + size // max(1, share)
        acks = nanoseconds(config.ack_min_interval + config.ack_max_interval
                            + config.sync_min_interval)
        return (2 * nanoseconds(config.conn_close_timeout)
                + (WINDOW_INTERVALS + waiting) * (step + acks))

    def _agreement(self) -> int:
        """Return the time that the group may take to agree."""
        config = self.config
        absence = 0.0 if config.absence >= LONG_ABSENCE else 1000 * config.absence
        return HOLD_OFF + slowed(
            absence + SUSPICIONS * config.suspect_timeout + HEARTBEATS * config.heartbeat_interval
            + SEEKS * config.seek_interval + MARGINS * config.form_margin)

    def _leave(self) -> None:
        """Let a member leave, and check that all others go on without it and have what
        it sent."""
        cluster, living = self.cluster, self.cluster.living()
        if len(living) < 2:
            return
        leaver = living[self.plan.seed % len(living)]
        leaver.offer(3, 10)
        leaver.leave()
        end = cluster.now + self._agreement()
        while leaver.alive or cluster.owed() is not None:
            if cluster.now >= end:
                cluster.checkers.violated("goodbye", f"{leaver.name} leaves: "
                                                     f"{cluster.owed() or 'it is still there'}")
            self._advance(cluster.now + self._interval())
        cluster.checkers.check_agreement()

    def _begin_without_state(self) -> None:
        """Check that members that wait for somebody who has the state do so no longer
        than they should (decision 37)."""
        cluster = self.cluster
        end = cluster.now + slowed(PATIENCE / MS) + self._bound(self._interval())
        while waiting := [member.name for member in cluster.living()
                          if member.members.transfer.patient_until is not None]:
            if cluster.now >= end:
                cluster.checkers.violated("liveness", f"{', '.join(waiting)} still wait for a "
                                                      "state, which nobody has")
            self._advance(cluster.now + self._interval())

    def _quiesce(self) -> None:
        """Check that nothing but heartbeats is sent, and not too many. What comes late
        may be answered; a SEEK of a member that is gone even makes the coordinator wait
        for it. It waits for two of one name one after the other."""
        cluster, checkers = self.cluster, self.cluster.checkers
        if cluster.stranger is not None:
            cluster.stranger.forget()
        for pretender in cluster.pretenders:
            pretender.end()
        seekers = max((len(member.members.meeting.discovery.seekers)
                       for member in cluster.living()), default=0)
        late = (cluster.network.busy_until() + (1 + seekers) * slowed(JOINING / MS)
                + SETTLING * self._interval())
        self._end_connections()
        self._advance(max(cluster.now + self._settling(), late))
        checkers.begin_silence()
        interval = nanoseconds(self.config.heartbeat_interval)
        beats = max(BEATS, INTERVALS_WATCHED * self._interval() // interval)
        self._advance(cluster.now + beats * interval)
        assert checkers.num_heartbeats is not None
        for name, count in checkers.num_heartbeats.items():
            if count > MOST_BEATS * beats:
                checkers.violated("quiescence", f"{name} sent {count} heartbeats in {beats} "
                                                "intervals")

    def _end_connections(self) -> None:
        """Let the connections end that are about to, but not for ever. One that is
        idle for minutes is left as it is."""
        cluster, config = self.cluster, self.config
        end = cluster.now + 4 * nanoseconds(config.conn_close_timeout
                                            + min(config.conn_expiry_timeout, 1000))

        def is_about_to(member: Member) -> bool:
            due = member.unicast.deadline()
            return due is not None and member.clock.when(due) <= end

        while cluster.now < end and any(map(is_about_to, cluster.living())):
            self._advance(cluster.now + self._interval())

    def _settling(self) -> int:
        """Return the time after which only heartbeats are sent. Observers do not
        answer, so LOW is told to them some times more."""
        is_observed = any(member.observes for member in self.cluster.living())
        return ((SETTLING + is_observed * REPEATS) * self._interval()
                + slowed(SETTLING * self.config.heartbeat_interval))

    def _counters(self) -> dict[str, int]:
        """Return how often each thing happened, over all incarnations. A campaign that
        never reached a thing has not tested it."""
        sums = Counter({name: getattr(self.cluster.network, name) for name in NETWORK_COUNTERS})
        if (links := self.cluster.links) is not None:
            sums.update({name: getattr(links, name) for name in LINK_COUNTERS})
        for member in self.cluster.incarnations.values():
            counted = {
                "num_blockings": member.producer.num_blockings,
                "num_waits": member.producer.num_waits, "num_ahead": member.num_ahead,
                "num_held": member.num_held,
                "num_between": member.producer.multicasts.num_between,
                "num_overflows": member.transport.num_overflows,
                "num_unsent": member.transport.num_unsent, "num_views": len(member.views),
                "num_left": member.left}
            seal = member.transport.seal
            counted |= counts(member.stack.status(), *([seal.status()] if seal is not None else []))
            sums.update(counted)
        sums["num_deaths"] = self.cluster.deaths.num_sprung
        if self.cluster.stranger is not None:
            sums["num_said_by_strangers"] = self.cluster.stranger.num_said
        if self.cluster.former is not None:
            sums["num_heard_by_former"] = self.cluster.former.num_heard
            sums["num_said_by_former"] = self.cluster.former.num_said
        sums["num_said_by_pretenders"] = sum(each.num_said for each in self.cluster.pretenders)
        sums["num_restarts"] = self.num_restarts
        sums["num_refusals"] = self.cluster.num_refusals
        sums["num_incarnations"] = len(self.cluster.incarnations)
        return dict(sums)


def slowed(milli: float) -> int:
    """Return the nanoseconds that so many milliseconds of the slowest clock take."""
    return nanoseconds(milli) * 10 // 9


def simulate(seed: int, settings: Settings, actions: int | None = None) -> Outcome:
    """Run one seed under these settings; `actions` limits it to a prefix."""
    return Run(draw(seed, settings), actions).outcome()


def shortest_prefix(seed: int, settings: Settings, failed: Outcome,
                    run: Callable[[int, Settings, int], Outcome] = simulate) -> Outcome:
    """Return the outcome of the shortest prefix of actions on which the same check
    fails, if it is run by `run`.

    A prefix ends when the action after it would have happened. Then the network heals,
    as at the end of every run. If a prefix fails, a longer one may pass: so after each
    bisection some shorter ones are tried, until all of them pass.
    """
    fails = failed
    while True:
        passes = -1
        while fails.actions - passes > 1:
            outcome = run(seed, settings, (fails.actions + passes) // 2)
            if outcome.check == failed.check:
                fails = outcome
            else:
                passes = outcome.actions
        shorter = sorted({fails.actions * step // TRIES for step in range(TRIES)})
        again = next((outcome for outcome in (run(seed, settings, actions)
                                              for actions in shorter)
                      if outcome.check == failed.check and outcome.actions < fails.actions), None)
        if again is None:
            return fails
        fails = again
