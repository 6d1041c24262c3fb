"""One run of `ringcast perf`, on the side of the command: start the members, lead them
through the stages, end them, and compute the figures.

Every wait is bounded, and no member outlives `run_once`.
"""

import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from typing import Any

from ringcast import ConfigError
from ringcast.cli.interrupts import held_back
from ringcast.cli.perf.member import GRACE, Failure, Report, run_member
from ringcast.cli.perf.peers import added
from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.round_trip import PERCENTILES, RoundTripPlan

MOMENT = 1.0                # seconds for members that are leaving anyway
FULL = 0.85                 # of a core; a process that uses more is limited by its core
# Counters of retransmitted messages.
REPEATS = ["xmit_rsps_sent", "unicast_xmit_rsps_sent", "unicast_highest_resent"]
REQUESTS = ["xmit_reqs_sent", "unicast_xmit_reqs_sent"]


class RunError(Exception):
    """A run whose figures cannot be trusted: a member died or hung, or its deliveries
    are wrong."""


class Members:
    """The processes of one run and the pipes to them. `started` makes them."""

    def __init__(self, plan: PerfPlan) -> None:
        self.plan = plan
        self.pipes: dict[str, Connection] = {}
        self.processes: dict[str, BaseProcess] = {}

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for name in self.plan.processes:
            self.pipes[name], theirs = context.Pipe()
            process = context.Process(target=run_member, args=(theirs, self.plan, name), name=name,
                                      daemon=True)
            self.processes[name] = process
            with held_back():
                process.start()
            theirs.close()

    def tell(self, word: Any) -> None:
        """Send the same to all. A dead member is found later, when its answer is
        missing."""
        for pipe in self.pipes.values():
            try:
                pipe.send(word)
            except OSError:
                continue

    def gather(self, doing: str, seconds: float) -> dict[str, Any]:
        """Return one answer of each member, by name. Raises RunError if a member gave
        up, did not answer within `seconds`, or died, before or after its answer."""
        answers: dict[str, Any] = {}
        end = time.monotonic() + seconds
        while late := [name for name in self.pipes if name not in answers]:
            alive = [process.sentinel for name, process in self.processes.items()
                     if name in answers and process.is_alive()]
            self._check_alive(doing)    # after the line above: those not in `alive` have exited
            ready = wait([*(self.pipes[name] for name in late), *alive],
                         max(0.0, end - time.monotonic()))
            if not ready:
                raise RunError(f"{', '.join(late)} did not finish {doing} within {seconds:g} s; "
                               "the slowest receiver may hang")
            for name in late:
                if self.pipes[name] in ready:
                    answers[name] = self._answer(name, doing)
        self._check_alive(doing)
        return {name: answers[name] for name in self.pipes}

    def _answer(self, name: str, doing: str) -> Any:
        try:
            answer = self.pipes[name].recv()
        except (EOFError, OSError):
            self.processes[name].join(1)
            status = ending(self.processes[name].exitcode)
            raise RunError(f"{name} died while {doing} ({status})") from None
        if isinstance(answer, Failure):
            if answer.misuse:
                raise ConfigError(answer.sentence)
            raise RunError(f"{name} gave up while {doing}: {answer.sentence}")
        return answer

    def _check_alive(self, doing: str) -> None:
        """Raise RunError if a process ended with another status than 0. (A process that
        is done ends with 0.)"""
        for name, process in self.processes.items():
            if process.exitcode:
                raise RunError(f"{name} died while {doing} ({ending(process.exitcode)})")

    def end(self, moment: float) -> None:
        """Wait a moment for those that are leaving anyway, then kill."""
        for pipe in self.pipes.values():
            pipe.close()
        end = time.monotonic() + moment
        for process in self.processes.values():
            process.join(max(0.0, end - time.monotonic()))
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def started(plan: PerfPlan) -> Iterator[Members]:
    """Start the members of `plan` as processes, and end all of them when the block
    ends; at once on Ctrl-C."""
    members, moment = Members(plan), MOMENT
    try:
        members.start()
        yield members
    except KeyboardInterrupt:
        moment = 0.0
        raise
    finally:
        members.end(moment)


def run_once(plan: PerfPlan) -> dict[str, Any]:
    """Carry out one run, check it, and return its figures: those of `throughput` or
    `round_trips`, and the cores of each process.

    Raises RunError if a member died, hung, or did not get what was sent, ConfigError if
    the plan is impossible.
    """
    # A group of its own, so that two commands at a time do not meet.
    plan = replace(plan, group=f"{plan.group}-{secrets.token_hex(4)}")
    with started(plan) as members:
        patience = plan.timeout + GRACE
        ports = members.gather("joining", patience)
        busy = machine_seconds()
        begin = time.monotonic()
        members.tell(list(ports.values()))
        sent = members.gather("sending", plan.seconds + patience)
        members.tell(added(sent.values()))
        members.gather("receiving", patience)
        busy, elapsed = machine_seconds() - busy, time.monotonic() - begin
        members.tell(None)
        members.gather("acknowledging", patience)
        members.tell(None)
        reports = list(members.gather("closing", patience).values())
    verify(reports)
    ours = sum(report.cpu_seconds for report in reports)
    figures = round_trips(reports) if isinstance(plan, RoundTripPlan) else throughput(plan, reports)
    return figures | {"cores": {short(report.name, plan): report.cores for report in reports},
                      "cores_others": max(0.0, busy - ours) / elapsed}


def short(process: str, plan: PerfPlan) -> str:
    """Return the name of a process without the prefix of its members: a row has the
    same names sealed and not sealed."""
    return "+".join(member.removeprefix(plan.prefix) for member in plan.members_of(process))


def ending(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"


def verify(reports: Sequence[Report]) -> None:
    """Raise RunError, with all members concerned, if a message is missing, duplicated,
    out of order, or not acknowledged."""
    faults = [f"at {report.name}: {report.fault}" for report in reports if report.fault]
    faults += [f"{report.unacked} messages of {report.name} were never acknowledged"
               for report in reports if report.unacked]
    if faults:
        raise RunError("; ".join(faults))


def round_trips(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the figures of one run of round trips: times in microseconds, counts of
    both members."""
    (figures,) = (report.figures for report in reports if report.figures)
    return figures | {"retransmitted": total(REPEATS, reports),
                      "discarded_datagrams": total(["num_discard"], reports)}


def throughput(plan: PerfPlan, reports: Sequence[Report]) -> dict[str, Any]:
    """Return the figures of one run of messages one way: messages a second, CPU seconds
    for a million messages, counts, and at a steady rate how long messages took to the
    slowest receiver."""
    senders = [report for report in reports if plan.sends(report.name)]
    receivers = [report for report in reports if plan.receives(report.name)]
    only_senders = [report for report in senders if report not in receivers]
    rate = min(report.received_rate for report in receivers)
    return {
        "sent_per_second": sum(report.sent_rate for report in senders),
        "delivered_per_second": rate,
        "delivered_from_others_per_second": min(report.others_rate for report in receivers),
        "megabytes_per_second": rate * plan.size / 1e6,
        "messages_sent": sum(report.sent for report in senders),
        "retransmitted": total(REPEATS, senders),
        "requests": total(REQUESTS, receivers),
        "blockings": total(["num_blockings"], senders),
        "discarded_datagrams": total(["num_discard"], reports),
        "sender_cpu_per_million": cpu_per_million(only_senders, "sent"),
        "receiver_cpu_per_million": cpu_per_million(receivers, "received"),
        **{name: max((report.figures[name] for report in receivers if report.figures),
                     default=None) for name in PERCENTILES},
    }


def total(counters: Sequence[str], reports: Sequence[Report]) -> int:
    return sum(report.status.get(counter, 0) for report in reports for counter in counters)


def cpu_per_million(reports: Sequence[Report], count: str) -> float | None:
    """Return the CPU seconds for a million messages of the process that needs most;
    None if there is no process. (A sender that also receives counts as a receiver.)"""
    return max((report.cpu_seconds / getattr(report, count) * 1e6
                for report in reports if getattr(report, count)), default=None)


def medians(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of every figure over the runs; None where a figure does not
    exist."""
    return {name: _median([run[name] for run in runs]) for name in runs[0]}


def _median(values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        return medians(values)
    return None if values[0] is None else median(values)


def limit(figures: dict[str, Any], loss: float, available: int) -> str:
    """Return what limits the speed of a row, judged by the CPU time of its processes
    and of the machine."""
    cores, others = figures["cores"], figures["cores_others"]
    full = [name for name, share in cores.items() if share >= FULL]
    if sum(cores.values()) + others >= FULL * available:
        return f"all {available} cores" + (f" ({others:.2f} not ours)" if others >= 0.1 else "")
    if full:
        return f"the core of {' and '.join(full)}"
    return "waiting for retransmissions" if loss else "switches between processes: no core is full"


def machine_seconds() -> float:
    """Return the CPU seconds that the whole machine has used since it started (to a
    hundredth; Linux)."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, words)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
