"""One seed, from its first event to the verdict; and, when it fails, the shortest
prefix of it that still does.

A run has two parts, as a promise has: while there are faults nothing wrong may happen
(the checkers); then the network heals, who is dead comes back or is taken out, and
everything that is owed must happen within a stated number of intervals, and then
silence.
"""

import math
import traceback
from time import process_time

import msgspec

from ringcast.config import configure, milliseconds
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

INTERVALS = 400         # xmit_intervals that everything owed may take once faults have stopped, and
                        # ...
HELLOS = 40             # ... hello_intervals, and ...
ROUNDS = 6              # ... xmit_intervals for each window full of messages that waits for room
ASKING = 4              # looks until what found no room has come again
MAX_EVENTS = 3_000_000  # of one run: more is a storm; under a steady load, of each second of it
TRIES = 10              # prefixes that are tried beside the bisection
VOID = 10               # deliveries; a run with fewer has shown nothing

POINTERS = {"low", "hd", "hr", "sent", "view_id", "send_budget"}  # of status(): everything else
                                                                  # there can be summed
SUMMED = ("num_lost", "num_cut", "num_duplicated", "num_reordered", "num_damaged", "num_clogged",
          "num_congested", "num_in_pieces")      # of the network


class Outcome(msgspec.Struct, kw_only=True):
    """What a run came to."""

    seed: int
    check: str = ""                     # the name of the check that failed, or nothing
    sentence: str = ""
    traceback: str = ""                 # of an exception that a layer raised
    actions: int = 0                    # of the plan that were carried out at most
    events: int = 0
    deliveries: int = 0
    simulated: float = 0.0              # seconds
    cpu: float = 0.0                    # seconds
    fingerprint: int = 0
    counters: dict[str, int] = {}       # of all members' stacks, and of the network
    measured: Measured | None = None    # under a steady load

    @property
    def is_void(self) -> bool:
        return not self.check and self.deliveries < VOID


class Run:
    """The cluster of a plan, and how its actions are carried out. `actions` limits them
    to the first so many."""

    def __init__(self, plan: Plan, actions: int | None = None) -> None:
        self.plan = plan
        self.actions = plan.actions if actions is None else plan.actions[:actions]
        cut_short = len(self.actions) < len(plan.actions)
        self.end = plan.actions[len(self.actions)].at if cut_short else plan.duration
        self.cluster = Cluster(plan.names, seed=plan.seed, network=Network(**plan.network),
                               socket_bytes=plan.socket_bytes,
                               turn_time=plan.turn_time, threads=plan.threads, stack=plan.stack,
                               **plan.options)
        self.max_events = MAX_EVENTS
        self.meter: Meter | None = None
        if plan.load is not None:
            self.max_events *= 1 + math.ceil((plan.load[1] - plan.load[0]) / 1e9)
        self.moves = 0
        for name, start in plan.starts.items():
            self.cluster.at(start.at, self._start, name, start)
        for action in self.actions:
            self.cluster.at(action.at, self._act, action)

    def _start(self, name: str, start: Start) -> None:
        if name in self.cluster.members:  # a prefix may end, and all begin, before its time has
                                          # come
            return
        self.cluster.start(name, receiving=start.receiving, offset=start.offset,
                           counters=start.counters, clock=Clock(*start.clock),
                           **start.options)

    # -------------------------------------------------------------------------------------- actions

    def _act(self, action: Action) -> None:
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
        """Only the living can be hurt; only the dead come back."""
        value = action.value
        if action.what in ("restart", "return"):
            if not member.alive:
                come_back = self._restart if action.what == "restart" else self._return
                come_back(member, **value)
        elif not member.alive:
            pass
        elif action.what == "send":
            if len(member.producer.multicasts.backlog) <= value[0]:  # an application that is blocked does not pile up
                                                 # more and more
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
        self.moves += moves
        start = self.plan.starts[former.name]
        self.cluster.start(former.name, receiving=start.receiving, resume=former.consumer.durable()
                           if resumes else None,
                           physical=f"{former.name}{self.moves}" if moves else former.physical,
                           **start.options)

    def _return(self, former: Member, lag: int, moves: bool) -> None:
        """Another process goes on as the same incarnation, with what it had written
        down of its acks: `lag` messages less than there were."""
        self.moves += moves
        low = former.multicast.send_window.ring.low
        acked = former.log.end_before((low - min(lag, (low - former.base) % MODULUS)) % MODULUS)
        start = self.plan.starts[former.name]
        self.cluster.start(former.name, former=former, acked=acked, receiving=False,
                           counters=start.counters,
                           physical=f"{former.name}{self.moves}" if moves else former.physical,
                           **start.options)

    # -------------------------------------------------------------------------------------- the run

    def outcome(self) -> Outcome:
        """Run, and say what came of it."""
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
            check, sentence = "error", f"{type(error).__name__}: {error} (at {cluster.now / MS:.3f} ms, event {cluster.num_done})"
            trace = traceback.format_exc()
        return Outcome(
            seed=self.plan.seed, check=check, sentence=sentence, traceback=trace,
            actions=len(self.actions), events=cluster.num_done,
            deliveries=cluster.delivered(), simulated=cluster.now / 1e9, cpu=process_time() - began,
            fingerprint=cluster.fingerprint, counters=self._counters(),
            measured=self.meter.measured() if self.meter else None)

    def run(self) -> None:
        """Violation when a promise is broken."""
        self._advance(self.end)
        if self.meter is not None:
            self.meter.stop()
        self._recover()
        self._pay()
        self.cluster.checkers.agreed()
        self._part()
        self._rest()

    def _advance(self, end: int) -> None:
        if not self.cluster.run_until(end, self.max_events):
            self.cluster.checkers.violated("storm", f"more than {self.max_events} events")

    def _recover(self) -> None:
        """Faults are over: everybody who is dead comes back, or is taken out. Then all
        send once more."""
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
            elif self.plan.comebacks[member.name] or not cluster.living():
                self._restart(member, resumes=True, moves=False)
        self._take_out_the_dead()
        for member in cluster.living():
            member.offer(2, 10)
            for name, log in [(address.name, log) for address, log in member.producer.unicast_logs.items()]:
                if log.sent and not log.backlog:
                    member.send_unicast(name, 2, 10)

    def _take_out_the_dead(self) -> None:
        """What an operator does, always from the same member: exclude the dead while
        anybody still lists them, or waits for them."""
        living = self.cluster.living()
        for dead in [member.name for member in self.cluster.members.values() if not member.alive]:
            lines = [member.members.table[dead] for member in living]
            if any(line.incarnation or not line.generation for line in lines):
                living[0].exclude(dead)

    def _interval(self) -> int:
        """An xmit_interval by the slowest clock, and the time that a datagram takes;
        besides, where there are such, rounds, links, and how long a message waits for
        company."""
        config = configure(self.plan.options, self.plan.stack)
        rounds = config.stable_interval if STACKS[self.plan.stack].votes else 0.0
        again = LINK_AGAIN if self.cluster.links is not None else 0
        company = milliseconds(config.bundle_delay) * 10 // 9 + max(PAUSES) if self.plan.threads else 0
        return milliseconds(config.scan_interval + rounds) * 10 // 9 + 2 * self.plan.network["delay"][1] + again + company

    def _windows(self, member: Member) -> int:
        """How many windows fill what it has to send, and what it sent before a grant
        became smaller, when it has to share the receivers' socket buffers with all
        others."""
        pieces = [each for payload in member.producer.multicasts.waiting
                  for each in member.producer.fragment_sizes(payload)]
        waiting = len(pieces) + member.multicast.unacked()
        if not waiting:
            return 1
        sent = [each for payload in member.log[-waiting:] if payload
                for each in member.producer.fragment_sizes(payload)]
        largest = max(pieces + sent, default=1)
        configs = [each.config for each in self.cluster.living()]
        share = min(self.plan.socket_bytes // 2 // len(self.plan.names),
                    *(config.max_bytes for config in configs))
        return 1 + waiting // max(1,
                                  min(share // largest, *(config.capacity for config in configs)))

    def _pay(self) -> None:
        """Within the stated number of intervals everything owed has happened."""
        cluster = self.cluster
        config = configure(self.plan.options, self.plan.stack)
        step = self._interval()
        windows = sum(self._windows(member) for member in cluster.living())
        bound = (INTERVALS + ROUNDS * windows) * step + HELLOS * milliseconds(config.hello_interval) + self._unicast_bound(step)
        end = max(cluster.now, cluster.network.busy_until()) + bound
        operator_looks = cluster.now
        while (owed := cluster.owed()) is not None:
            if cluster.now >= end:
                cluster.checkers.violated("liveness",
                                          f"{owed}, {bound / MS:.0f} ms after faults stopped")
            self._advance(cluster.now + step)
            if cluster.now > operator_looks + 4 * milliseconds(config.hello_interval):
                operator_looks = cluster.now
                self._take_out_the_dead()

    def _unicast_bound(self, step: int) -> int:
        """What connections may take beside: those with the dead must fail; each message
        may wait for an ack."""
        config = configure(self.plan.options, self.plan.stack)
        share = min(config.max_bytes, self.plan.socket_bytes // 2 // len(self.plan.names)) // 4
        logs = [log for member in self.cluster.living() for log in member.producer.unicast_logs.values()]
        waiting = 0
        for payload in [payload for log in logs for payload, _ in log.backlog]:
            fragments = 1 + len(payload) // (config.max_bundle_size // 2)
            waiting += 1 + fragments // config.capacity + len(payload) // max(1, share)
        smallest = min(int(start.options.get("capacity", config.capacity))
                       for start in self.plan.starts.values())
        if smallest < config.capacity:  # what finds no room there is asked for again, a window at a
                                        # time
            waiting += ASKING * sum(member.unicast.num_unacked() for member in self.cluster.living()) // smallest
        acks = milliseconds(config.ack_min_interval + config.ack_max_interval
                            + config.sync_min_interval)
        return 2 * milliseconds(config.conn_close_timeout) + (ROUNDS + waiting) * (step + acks)

    def _part(self) -> None:
        """An incarnation that has come back leaves like any other: everybody hears of
        it before it stops saying so."""
        for member in [member for member in self.cluster.living()
                       if self.plan.starts[member.name].returns]:
            member.leave()
            self._advance(self.cluster.now + milliseconds(member.config.leave_timeout))
            if others := [other.name for other in self.cluster.living()
                          if member.address in other.views[-1]]:
                self.cluster.checkers.violated("goodbye",
                                               f"{', '.join(others)} did not hear that "
                                               f"{member.name} left")

    def _rest(self) -> None:
        """When nothing is owed any more there is silence, after the last acks and
        agreements."""
        cluster = self.cluster
        config = configure(self.plan.options, self.plan.stack)
        a_while = (INTERVALS * self._interval() + 10 * milliseconds(config.hello_interval)
                   + 4 * milliseconds(config.conn_close_timeout
                                      + min(config.conn_expiry_timeout, 1000)))
        # what waits for a wire may still be answered
        self._advance(max(cluster.now, cluster.network.busy_until()))
        for _ in range(4):              # what was still on its way may name a dead member once more
            self._advance(cluster.now + a_while // 2)
            self._take_out_the_dead()
        sent = self._num_unasked()
        self._advance(cluster.now + a_while)
        if self._num_unasked() != sent:
            cluster.checkers.violated("quiescence",
                                      f"{self._num_unasked() - sent} datagrams were sent although "
                                      f"nothing is owed")

    def _num_unasked(self) -> int:
        """Datagrams so far, but for the CLOSE that ends an idle connection after its
        time."""
        return self.cluster.sent_datagrams - sum(member.unicast.counters.closes_sent
                                                 for member in self.cluster.incarnations.values())

    def _counters(self) -> dict[str, int]:
        """What happened how often, over all incarnations: a campaign that never reached
        a thing has not tested it."""
        sums = {name: getattr(self.cluster.network, name) for name in SUMMED}
        for member in self.cluster.incarnations.values():
            sums["num_blockings"] = sums.get("num_blockings", 0) + member.producer.num_blockings
            sums["num_waits"] = sums.get("num_waits", 0) + member.producer.num_waits
            sums["num_ahead"] = sums.get("num_ahead", 0) + member.num_ahead
            sums["num_overflows"] = sums.get("num_overflows", 0) + member.transport.num_overflows
            sums["num_unsent"] = sums.get("num_unsent", 0) + member.transport.num_unsent
            sums["num_views"] = sums.get("num_views", 0) + len(member.views)
            sums["num_faults"] = sums.get("num_faults", 0) + (member.fault is not None)
            sums["num_left"] = sums.get("num_left", 0) + member.left
            for name, value in member.stack.status().items():
                if name not in POINTERS:
                    sums[name] = sums.get(name, 0) + value
        sums["num_incarnations"] = len(self.cluster.incarnations)
        sums["num_comebacks"] = sum(member.epoch for member in self.cluster.incarnations.values())
        return sums


def simulate(seed: int, settings: Settings, actions: int | None = None) -> Outcome:
    """One seed under these settings; `actions` limits it to a prefix."""
    return Run(draw(seed, settings), actions).outcome()


def shortest_prefix(seed: int, settings: Settings, failed: Outcome) -> Outcome:
    """The outcome of the shortest prefix of actions on which the same check fails.

    A prefix ends when the action after it would have happened; then the network heals,
    as at the end of every run. Not every longer prefix of one that fails need fail too:
    so after each bisection some shorter ones are tried, until all of these pass.
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
