"""One member of a measured group: a process of its own that `ringcast perf` starts, leads through a run and ends.

Both sides walk through the same stages, one message up and one down the pipe at each: joined, sent, received, closed. Whatever
happens to this process, it ends: with the command, whatever became of that, on an error, or on an alarm that the plan sets.
"""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from ringcast import Batch, Channel, ConfigError, RingcastError, TransportError
from ringcast.cli.naive import NaiveReceiver, NaiveSender
from ringcast.protocols.faults import Discard

STAGES = 4                              # joining, sending, receiving, closing
GRACE = 5.0                             # seconds on top of a plan's timeout, for a process to start, or a channel to leave
POOL = 61                               # payloads that a sender repeats; a prime, so that batches do not fall in step with it


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run: `senders` of `members` processes send messages of `size` bytes for `seconds`. `loss` is the probability that a
    member does not see a datagram that reached it. `timeout`, seconds, bounds every wait. `options` are properties of Channel.
    A `naive` run has the same processes and no ringcast: one sender, TCP.
    """

    group: str
    members: int
    senders: int
    size: int
    seconds: float
    timeout: float
    loss: float = 0.0
    seed: int = 0
    naive: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """S, S2, ... send; R1, R2, ... only receive."""
        senders = ["S" if number == 1 else f"S{number}" for number in range(1, self.senders + 1)]
        return [*senders, *(f"R{number}" for number in range(1, self.members - self.senders + 1))]

    def sends(self, name: str) -> bool:
        return name in self.names[:self.senders]

    def receives(self, name: str) -> bool:
        """Everybody but a member that is the only one to send."""
        return self.senders > 1 or not self.sends(name)

    def payloads(self, name: str) -> list[bytes]:
        """What `name` sends, again and again: seqno s carries payloads[(s - 1) % POOL]."""
        rng = Random(f"{self.seed}/{name}")
        return [rng.randbytes(self.size) for _ in range(POOL)]


@dataclass(frozen=True)
class Refused:
    """What a member answers instead when it cannot go on; `misuse` says that the plan asks for what cannot be."""

    sentence: str
    misuse: bool


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one member saw of a run. Rates are messages a second since the start was given; `cores` is CPU time by time."""

    name: str
    sent: int
    sent_rate: float
    received: int
    received_rate: float
    own_share: float                    # of what it received, its own messages
    cpu_seconds: float
    cores: float
    unacked: int
    fault: str
    status: dict[str, int]


class StreamChecker:
    """Sees every delivery at one member and holds it against what the senders say they sent: every sender's seqnos from 1 on,
    once each, in order, with the payloads that belong to them. Of each batch the first and last payload are compared and the
    sizes of all. `fault` is empty, or the sentence about the first difference.

    Threads: one calls `take`; any other may `await_all`.
    """

    def __init__(self, plan: Plan) -> None:
        self.size = plan.size
        self.payloads = {name: plan.payloads(name) for name in plan.names[:plan.senders]}
        self.last = dict.fromkeys(self.payloads, 0)
        self.total = 0
        self.goal: int | None = None
        self.fault = ""
        self.latest = time.perf_counter()
        self._progress = threading.Event()              # the goal is reached, or there is a fault

    def __call__(self, batch: Batch) -> None:
        """What a Channel calls as on_message."""
        self.take(batch.sender.name, batch.first, batch.payloads, batch.nbytes)

    def take(self, sender: str, first: int, messages: list[bytes], nbytes: int) -> None:
        """`messages` of `sender`, numbered from `first`, were delivered."""
        self.fault = self.fault or self._difference(sender, first, messages, nbytes)
        self.last[sender] = first + len(messages) - 1
        self.total += len(messages)
        self.latest = time.perf_counter()
        if self.fault or self.total == self.goal:
            self._progress.set()

    def _difference(self, sender: str, first: int, messages: list[bytes], nbytes: int) -> str:
        expected = self.last.get(sender)
        if expected is None:
            return f"a batch came from {sender}, who is not among the senders"
        last = first + len(messages) - 1
        if first != expected + 1:
            return f"{sender}'s message {expected} was followed by {first}: {self._kind(first, expected)}"
        pool = self.payloads[sender]
        ends = (pool[(first - 1) % POOL], pool[(last - 1) % POOL])
        if nbytes != len(messages) * self.size or (messages[0], messages[-1]) != ends:
            return f"{sender}'s messages {first} to {last} do not carry what was sent under these numbers"
        return ""

    @staticmethod
    def _kind(first: int, expected: int) -> str:
        return f"{first - expected - 1} missing" if first > expected else "again, or out of order"

    def await_all(self, sent: dict[str, int], timeout: float) -> None:
        """Return when everything in `sent` ({sender: messages}) was delivered, or something is wrong, or `timeout` is over."""
        self.goal = sum(sent.values())
        if self.total < self.goal:
            self._progress.wait(timeout)

    def verdict(self, sent: dict[str, int]) -> str:
        """The sentence about what is wrong with all that was delivered, or "" when nothing is."""
        differences = [f"{count} messages of {sender} were sent and {self.last[sender]} delivered"
                       for sender, count in sent.items() if self.last[sender] != count]
        return self.fault or "; ".join(differences)


class Peer:
    """What the stages of a run need of a member, whatever it is made of; here, one that needs nothing said to it."""

    def join(self) -> int | None:
        """Open; returns the port on which others reach this member, if they must be told."""
        return None

    def meet(self, ports: list[int]) -> None:
        """All have joined; `ports` are those that they told."""

    def send(self, payload: bytes) -> None:
        """Send one message to all receivers; may wait."""
        raise TypeError(f"a {type(self).__name__} only receives")

    def flush(self) -> None:
        """Nothing more will be sent."""

    def status(self) -> dict[str, int]:
        """Counters."""
        return {}

    def close(self, timeout: float) -> int:
        """Leave, within `timeout` seconds; returns how many messages somebody has not confirmed."""
        return 0


class ChannelPeer(Peer):
    """A ringcast Channel. A lossy one discards datagrams of all kinds: acks and requests too."""

    def __init__(self, plan: Plan, name: str, checker: StreamChecker) -> None:
        self.timeout = plan.timeout
        faults = [Discard(plan.loss, Random(f"{plan.seed}/{name}/loss"))] if plan.loss else []
        receiving: dict[str, Any] = {"on_message": checker} if plan.receives(name) else {"deliver": False}
        self.channel = Channel(plan.group, name=name, members=plan.names, faults=faults, **receiving, **plan.options)
        self.send = self.channel.send                   # type: ignore[method-assign]  # no call of our own in between
        self.status = self.channel.status               # type: ignore[method-assign]

    def join(self) -> None:
        """Connect, which also sees that the others are ready for this stream."""
        self.channel.connect(self.timeout)

    def close(self, timeout: float) -> int:
        return self.channel.close(timeout)


class NaiveSending(Peer):
    """The sending side of the naive bundle."""

    def meet(self, ports: list[int]) -> None:
        self.sender = NaiveSender(ports)
        self.send = self.sender.send                    # type: ignore[method-assign]
        self.flush = self.sender.flush                  # type: ignore[method-assign]

    def close(self, timeout: float) -> int:
        self.sender.close()
        return 0


class NaiveReceiving(Peer):
    """The receiving side of the naive bundle: a thread that reads, splits and checks."""

    def __init__(self, checker: StreamChecker) -> None:
        self.checker = checker
        self.receiver = NaiveReceiver()
        self.thread = threading.Thread(target=self._receive, daemon=True)

    def join(self) -> int:
        self.thread.start()
        return self.receiver.port

    def _receive(self) -> None:
        first = 1
        for messages in self.receiver.bundles():
            self.checker.take("S", first, messages, sum(map(len, messages)))
            first += len(messages)

    def close(self, timeout: float) -> int:
        self.thread.join(timeout)
        return 0


def open_peer(plan: Plan, name: str, checker: StreamChecker) -> Peer:
    if not plan.naive:
        return ChannelPeer(plan, name, checker)
    return NaiveSending() if plan.sends(name) else NaiveReceiving(checker)


def run_member(pipe: Connection, plan: Plan, name: str) -> None:
    """The process: from start to end, in step with the command at the other end of `pipe`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # Ctrl-C is the command's, which then ends its members
    signal.alarm(round(plan.seconds + STAGES * (plan.timeout + GRACE)) + 1)
    threading.Thread(target=end_with_command, daemon=True).start()
    try:
        take_part(pipe, plan, name)
    except EOFError:
        pass                                            # the command is gone
    except (RingcastError, OSError) as error:
        with suppress(OSError):                         # the command may be gone
            pipe.send(Refused(str(error.args[-1]), misuse=isinstance(error, ConfigError | TransportError)))


def end_with_command() -> None:
    """End this process, whatever it waits for, when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def take_part(pipe: Connection, plan: Plan, name: str) -> None:
    """The stages of one run."""
    checker = StreamChecker(plan)
    payloads = plan.payloads(name)
    peer = open_peer(plan, name, checker)
    pipe.send(peer.join())
    peer.meet([port for port in pipe.recv() if port is not None])
    start, cpu = time.perf_counter(), time.process_time()
    sent = send_for(plan.seconds, peer, payloads) if plan.sends(name) else 0
    sending = time.perf_counter() - start
    pipe.send(sent)
    everything: dict[str, int] = pipe.recv()
    if plan.receives(name):
        checker.await_all(everything, plan.timeout)
    pipe.send(None)
    pipe.recv()                                         # all members have everything, or gave up
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    status = peer.status()
    unacked = peer.close(plan.timeout)
    fault = checker.verdict(everything) if plan.receives(name) else ""
    pipe.send(Report(name=name, sent=sent, sent_rate=sent / sending, received=checker.total,
                     received_rate=checker.total / max(checker.latest - start, 1e-9),
                     own_share=checker.last.get(name, 0) / max(checker.total, 1), cpu_seconds=cpu, cores=cpu / elapsed,
                     unacked=unacked, fault=fault, status=status))


def send_for(seconds: float, peer: Peer, payloads: list[bytes]) -> int:
    """Send one message a call until the time is over; returns how many."""
    send, end, rounds = peer.send, time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        for payload in payloads:
            send(payload)
        rounds += 1
    peer.flush()
    return rounds * len(payloads)
