"""One process of a measured group, with one member or (inproc) all members. `ringcast
perf` starts it, leads it through a run and ends it.

Both sides go through the same stages, with one message up and one down the pipe at
each: joined, sent, received, acknowledged, closed. The process always ends: with the
command, on an error, or on an alarm after the time that the plan allows.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from ringcast import ConfigError, RingcastError, TransportError
from ringcast.cli.perf.peers import ChannelPeer, NaiveReceiving, NaiveSending, Peer, together
from ringcast.cli.perf.plan import PerfPlan, StreamChecker
from ringcast.cli.perf.round_trip import BarePeer, RoundTripPeer, RoundTripPlan
from ringcast.cli.perf.steady import SteadyPeer

STAGES = 5      # joining, sending, receiving, acknowledging, closing
GRACE = 5.0     # seconds beyond a plan's timeout, for a process to start and a channel to leave


@dataclass(frozen=True)
class Failure:
    """The answer of a member that cannot go on. `misuse`: the plan is impossible."""

    sentence: str
    misuse: bool


@dataclass(frozen=True, kw_only=True)
class Report:
    """Hold what one process measured in a run. Rates are messages a second since the
    start, those of receiving at the slowest member of the process; `cores` is CPU time
    by elapsed time; `figures` are other measurements."""

    name: str
    sent: int
    sent_rate: float
    received: int
    received_rate: float
    others_rate: float                  # of what it received, without its own messages
    cpu_seconds: float
    cores: float
    unacked: int
    fault: str
    status: dict[str, int]
    figures: dict[str, float] = field(default_factory=dict)


def run_member(pipe: Connection, plan: PerfPlan, name: str) -> None:
    """Run the process from start to end, in step with the command at the other end of
    `pipe`."""
    signal.alarm(round(plan.seconds + STAGES * (plan.timeout + GRACE)) + 1)
    threading.Thread(target=end_with_command, daemon=True).start()
    try:
        take_part(pipe, plan, name)
    except EOFError:
        pass                                            # the command is gone
    except (RingcastError, OSError) as error:
        with suppress(OSError):                         # the command may be gone
            pipe.send(Failure(str(error.args[-1]),
                              misuse=isinstance(error, ConfigError | TransportError)))


def end_with_command() -> None:
    """End this process when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def take_part(pipe: Connection, plan: PerfPlan, name: str) -> None:
    """Go through the stages of one run."""
    peer = open_peer(plan, name)
    pipe.send(peer.join())
    peer.meet([port for port in pipe.recv() if port is not None])
    start, cpu = time.perf_counter(), time.process_time()
    sent = peer.work(plan.seconds)
    sending = time.perf_counter() - start
    pipe.send(sent)
    sent_by_all: dict[str, int] = pipe.recv()
    for checker in peer.checkers:
        checker.await_all(sent_by_all, plan.timeout)
    pipe.send(None)
    pipe.recv()                                         # all members have everything, or gave up
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    status = peer.status()
    unacked = peer.await_acks(plan.timeout)
    pipe.send(None)
    pipe.recv()                                         # nobody waits for our acks any more
    peer.close(plan.timeout)
    faults = [checker.verdict(sent_by_all) for checker in peer.checkers]
    received_rate, others_rate = slowest(peer.checkers, start)
    pipe.send(Report(name=name, sent=sum(sent.values()), sent_rate=sum(sent.values()) / sending,
                     received=sum(checker.total for checker in peer.checkers),
                     received_rate=received_rate, others_rate=others_rate,
                     cpu_seconds=cpu, cores=cpu / elapsed, unacked=unacked,
                     fault="; ".join(filter(None, faults)), status=status, figures=peer.figures()))


def slowest(checkers: Sequence[StreamChecker], start: float) -> tuple[float, float]:
    """Return the rates, all and those of others, each at the member where it is
    least."""
    rates = [checker.rates(start) for checker in checkers] or [(0.0, 0.0)]
    return min(all_messages for all_messages, _ in rates), min(others for _, others in rates)


def open_peer(plan: PerfPlan, process: str) -> Peer:
    """Make the peer of this process."""
    members = plan.members_of(process)
    if isinstance(plan, RoundTripPlan):
        if plan.bare:
            return BarePeer(plan, process)
        return together([RoundTripPeer(plan, member) for member in members])
    if plan.naive:
        return NaiveSending(plan, process) if plan.sends(process) else NaiveReceiving(plan, process)
    make = SteadyPeer if plan.rate else ChannelPeer
    return together([make(plan, member) for member in members])
