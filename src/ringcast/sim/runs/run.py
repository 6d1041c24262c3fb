"""Run one seed, from its first event to the verdict; and if it fails, find the shortest
prefix that still fails.

A run has two parts. While there are faults, nothing wrong may happen: the checkers see
to that. Then the network heals, and dead members come back or are excluded. All that is
owed must happen within a stated number of intervals, and then there must be silence.
"""

import math
import traceback
from collections import Counter
from time import process_time

import msgspec

from ringcast.config import configure, nanoseconds
from ringcast.protocols.seqnos import MODULUS
from ringcast.sim.checkers import Violation
from ringcast.sim.clock import Clock
from ringcast.sim.cluster import Cluster
from ringcast.sim.links import AGAIN as LINK_AGAIN
from ringcast.sim.member import Member
from ringcast.sim.network import MS, Network
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.measure import Measured, Meter
from ringcast.sim.runs.plan import Action, Plan, Start
from ringcast.sim.runs.settings import Settings
from ringcast.sim.threads import PAUSES
from ringcast.stacks import STACKS

# The time that all that is owed may take after the faults is the sum of these:
INTERVALS = 400             # xmit_intervals
HELLOS = 40                 # hello_intervals
WINDOW_INTERVALS = 6        # xmit_intervals for each full window of messages that waits for room

SCANS_PER_REPEAT = 4        # scans until a message that found no room has come again
MAX_EVENTS = 3_000_000      # of a run, or of each second of a steady load; more is a storm
TRIES = 10                  # prefixes that are tried after each bisection
VOID = 10                   # deliveries; a run with fewer has tested nothing

POINTERS = {"low", "hd", "hr", "sent", "view_id", "send_budget"}    # of status(): not to be summed
NETWORK_COUNTERS = ("num_lost", "num_cut", "num_duplicated", "num_reordered", "num_damaged",
                    "num_clogged", "num_congested", "num_in_pieces")


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
                               threads=plan.threads, stack=plan.stack, refuses=plan.refuses,
                               **plan.options)
        self.config = configure(plan.options, plan.stack)
        self.max_events = MAX_EVENTS
        self.meter: Meter | None = None
        if plan.load is not None:
            self.max_events *= 1 + math.ceil((plan.load[1] - plan.load[0]) / 1e9)
        self.num_moves = 0              # of members to other addresses
        for name, start in plan.starts.items():
            self.cluster.at(start.at, self._start, name, start)
        for action in self.actions:
            self.cluster.at(action.at, self._act, action)

    def _start(self, name: str, start: Start) -> None:
        """Start a member, unless it was started because a prefix ended before."""
        if name not in self.cluster.members:
            self.cluster.start(name, receiving=start.receiving, offset=start.offset,
                               counters=start.counters, clock=Clock(*start.clock),
                               **durability(start), **start.options)

    # -------------------------------------------------------------------------------------- actions

    def _act(self, action: Action) -> None:
        """Perform an action on the network or on a member."""
        network, value = self.cluster.network, action.value
        if action.what == "cut":
            network.cut |= set(value)
            if self.cluster.links is not None:
                self.cluster.links.break_all_cut()
        elif action.what == "break":
            assert self.cluster.links is not None
            self.cluster.links.break_link(*value)
        elif action.what == "mend":
            network.cut -= set(value)
        elif action.what == "clog":
            network.clogged |= dict.fromkeys(*value)
        elif action.who in self.cluster.members:
            self._act_on(self.cluster[action.who], action)

    def _act_on(self, member: Member, action: Action) -> None:
        """Perform an action on a member: a fault if it is alive, a comeback if it is
        dead."""
        value = action.value
        if action.what in ("restart", "return"):
            if not member.alive:
                come_back = self._restart if action.what == "restart" else self._return
                come_back(member, **value)
        elif not member.alive:
            pass
        elif action.what == "send":
            if len(member.producer.multicasts.backlog) <= value[0]:     # not blocked for long
                member.offer(*value)
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
            member.exclude(value)
        elif action.what == "pause":
            member.pause(value)
        else:
            {"crash": member.crash, "leave": member.leave}[action.what]()

    def _restart(self, former: Member, resumes: bool, moves: bool) -> None:
        """Start a new incarnation of a member; with `resumes` it has its journal, with
        `moves` another address."""
        start = self.plan.starts[former.name]
        self.cluster.start(former.name, receiving=start.receiving,
                           resume=former.consumer.durable() if resumes or start.durable else None,
                           physical=self._physical(former, moves), **durability(start),
                           **start.options)

    def _return(self, former: Member, lag: int, moves: bool) -> None:
        """Start a process that goes on as the same incarnation. It remembers `lag` acks
        less than there were."""
        low = former.multicast.send_window.ring.low
        acked = former.log.end_before((low - min(lag, (low - former.base) % MODULUS)) % MODULUS)
        start = self.plan.starts[former.name]
        self.cluster.start(former.name, former=former, acked=acked, receiving=False,
                           counters=start.counters, physical=self._physical(former, moves),
                           **start.options)

    def _physical(self, former: Member, moves: bool) -> str:
        """Return the address of a member that comes back."""
        self.num_moves += moves
        return f"{former.name}{self.num_moves}" if moves else former.physical

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
        """Run to the end. Raise Violation when a promise is broken."""
        self._advance(self.end)
        if self.meter is not None:
            self.meter.stop()
        self._recover()
        self._drain()
        self.cluster.checkers.check_agreement()
        self._leave()
        self._quiesce()

    def _advance(self, end: int) -> None:
        """Run until a time, but not for ever."""
        if not self.cluster.run_until(end, self.max_events):
            self.cluster.checkers.violated("storm", f"more than {self.max_events} events")

    def _recover(self) -> None:
        """End all faults; let each dead member come back, or exclude it. Then all
        members send once more."""
        cluster = self.cluster
        cluster.heal()
        for name, start in self.plan.starts.items():
            if name not in cluster.members:
                self._start(name, start)
        for member in cluster.living():
            member.consumer.finish_after, member.endpoint.max_undelivered = 0, 65_536
            for name in sorted(member.view_filter.hidden):
                member.show(name)
            member.request_turn()
        for member in [member for member in cluster.members.values() if not member.alive]:
            if self.plan.starts[member.name].returns:
                self._return(member, lag=0, moves=False)
            elif self._comes_back(member) or not cluster.living():
                self._restart(member, resumes=True, moves=False)
        self._exclude_the_dead()
        for member in cluster.living():
            member.offer(2, 10)
            for address, log in list(member.producer.unicast_logs.items()):
                if log.sent and not log.backlog:
                    member.send_unicast(address.name, 2, 10)

    def _comes_back(self, member: Member) -> bool:
        """Return whether a member that is dead in the end comes back."""
        return self.plan.comebacks[member.name]

    def _exclude_the_dead(self) -> None:
        """Exclude dead members while anybody lists them or waits for them, as an
        operator would; always from the same member."""
        living = self.cluster.living()
        for dead in [member.name for member in self.cluster.members.values() if not member.alive]:
            lines = [member.endpoint.layer(StaticMembers).table[dead] for member in living]
            if any(line.incarnation or not line.generation for line in lines):
                living[0].exclude(dead)

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
        share = min(self.plan.socket_bytes // 2 // len(self.plan.names),
                    *(config.max_bytes for config in configs))
        window = min(share // max(pieces, default=1), *(config.capacity for config in configs))
        return 1 + count // max(1, window)

    def _drain(self) -> None:
        """Check that all that is owed happens within the stated number of intervals."""
        cluster = self.cluster
        step, hello_interval = self._interval(), nanoseconds(self.config.hello_interval)
        bound = self._bound(step)
        end = max(cluster.now, cluster.network.busy_until()) + bound
        last_exclusion = cluster.now
        while (owed := cluster.owed()) is not None:
            if cluster.now >= end:
                cluster.checkers.violated("liveness",
                                          f"{owed}, {bound / MS:.0f} ms after faults stopped")
            self._advance(cluster.now + step)
            if cluster.now > last_exclusion + 4 * hello_interval:
                last_exclusion = cluster.now
                self._exclude_the_dead()

    def _bound(self, step: int) -> int:
        """Return the time in which all that is owed must happen. `step` is an
        interval."""
        windows = sum(self._windows(member) for member in self.cluster.living())
        hellos = HELLOS * nanoseconds(self.config.hello_interval)
        return ((INTERVALS + WINDOW_INTERVALS * windows) * step + hellos
                + self._unicast_bound(step))

    def _unicast_bound(self, step: int) -> int:
        """Return the time that connections may take in addition: those with dead
        members must fail, and each message may wait for an ack."""
        config, living = self.config, self.cluster.living()
        share = min(config.max_bytes, self.plan.socket_bytes // 2 // len(self.plan.names)) // 4
        waiting = 0
        for log in [log for member in living for log in member.producer.unicast_logs.values()]:
            for payload, _ in log.backlog:
                fragments = 1 + len(payload) // (config.max_bundle_size // 2)
                waiting += 1 + fragments // config.capacity + len(payload) // max(1, share)
        smallest = min(int(start.options.get("capacity", config.capacity))
                       for start in self.plan.starts.values())
        if smallest < config.capacity:      # what has no room there comes again, window by window
            unacked = sum(member.unicast.num_unacked() for member in living)
            waiting += SCANS_PER_REPEAT * unacked // smallest
        acks = nanoseconds(config.ack_min_interval + config.ack_max_interval
                            + config.sync_min_interval)
        return (2 * nanoseconds(config.conn_close_timeout)
                + (WINDOW_INTERVALS + waiting) * (step + acks))

    def _leave(self) -> None:
        """Let incarnations that came back leave, and check that all members hear of
        it."""
        for member in [member for member in self.cluster.living()
                       if self.plan.starts[member.name].returns]:
            member.leave()
            self._advance(self.cluster.now + nanoseconds(member.config.leave_timeout))
            if others := [other.name for other in self.cluster.living()
                          if member.address in other.views[-1]]:
                self.cluster.checkers.violated("goodbye",
                                               f"{', '.join(others)} did not hear that "
                                               f"{member.name} left")

    def _quiesce(self) -> None:
        """Check that there is silence after the last acks and agreements."""
        cluster, config = self.cluster, self.config
        a_while = (INTERVALS * self._interval() + 10 * nanoseconds(config.hello_interval)
                   + 4 * nanoseconds(config.conn_close_timeout
                                      + min(config.conn_expiry_timeout, 1000)))
        # Datagrams that wait for the wire may still be answered.
        self._advance(max(cluster.now, cluster.network.busy_until()))
        for _ in range(4):              # a late datagram may name a dead member once more
            self._advance(cluster.now + a_while // 2)
            self._exclude_the_dead()
        before = self._num_datagrams()
        self._advance(cluster.now + a_while)
        if count := self._num_datagrams() - before:
            cluster.checkers.violated("quiescence", f"{count} datagrams were sent although nothing "
                                                    "is owed")

    def _num_datagrams(self) -> int:
        """Return the number of datagrams so far, without those that close idle
        connections."""
        return self.cluster.sent_datagrams - sum(member.unicast.counters.closes_sent
                                                 for member in self.cluster.incarnations.values())

    def _counters(self) -> dict[str, int]:
        """Return how often each thing happened, over all incarnations. A campaign that
        never reached a thing has not tested it."""
        sums = Counter({name: getattr(self.cluster.network, name) for name in NETWORK_COUNTERS})
        for member in self.cluster.incarnations.values():
            counted = {
                "num_blockings": member.producer.num_blockings,
                "num_waits": member.producer.num_waits, "num_ahead": member.num_ahead,
                "num_overflows": member.transport.num_overflows,
                "num_unsent": member.transport.num_unsent, "num_views": len(member.views),
                "num_faults": member.fault is not None, "num_left": member.left}
            for name, value in (counted | member.stack.status()).items():
                if name not in POINTERS:
                    sums[name] += value
        sums["num_deaths"] = self.cluster.deaths.num_sprung
        sums["num_refusals"] = self.cluster.num_refusals
        sums["num_incarnations"] = len(self.cluster.incarnations)
        return dict(sums)


def durability(start: Start) -> dict[str, bool]:
    """Return the arguments of a member that is expected back."""
    return {"durable": True} if start.durable else {}


def slowed(milli: float) -> int:
    """Return the nanoseconds that so many milliseconds of the slowest clock take."""
    return nanoseconds(milli) * 10 // 9


def simulate(seed: int, settings: Settings, actions: int | None = None) -> Outcome:
    """Run one seed under these settings; `actions` limits it to a prefix."""
    return run_of(draw(seed, settings), actions).outcome()


def run_of(plan: Plan, actions: int | None = None) -> Run:
    """Return the run of a plan, or of a prefix of it."""
    if plan.forming:
        from ringcast.sim.runs.forming_run import FormingRun  # which is a Run
        return FormingRun(plan, actions)
    return Run(plan, actions)


def shortest_prefix(seed: int, settings: Settings, failed: Outcome) -> Outcome:
    """Return the outcome of the shortest prefix of actions on which the same check
    fails.

    A prefix ends when the action after it would have happened. Then the network heals,
    as at the end of every run. If a prefix fails, a longer one may pass: so after each
    bisection some shorter ones are tried, until all of them pass.
    """
    fails = failed
    while True:
        passes = -1
        while fails.actions - passes > 1:
            outcome = simulate(seed, settings, (fails.actions + passes) // 2)
            if outcome.check == failed.check:
                fails = outcome
            else:
                passes = outcome.actions
        shorter = sorted({fails.actions * step // TRIES for step in range(TRIES)})
        again = next((outcome for outcome in (simulate(seed, settings, actions)
                                              for actions in shorter)
                      if outcome.check == failed.check and outcome.actions < fails.actions), None)
        if again is None:
            return fails
        fails = again
