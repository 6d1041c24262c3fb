"""The plan of a run of `ringcast perf`, and the check of its deliveries: every message
once, in order, as it was sent."""

import threading
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ringcast import Batch
from ringcast.stacks import STACKS

# Payloads that a sender uses in turn. A prime number, so that batches of a round number
# of messages do not always begin with the same payload.
POOL = 61


@dataclass(frozen=True, kw_only=True)
class PerfPlan:
    """One run: `senders` of `members` send messages of `size` bytes for `seconds`, to
    all, or (`unicast`) to the last member alone.

    Each member is a process; with the stack inproc all are in one. A call sends one
    message, or so many as `batch` says. With a `rate` each sender sends so many
    messages a second, else as many as it can. `loss` is the probability that a member
    loses a datagram that reached it. `timeout`, in seconds, limits every wait.
    `options` are properties of Channel; with the file of a `secret`, or a folder of
    keys to `trust`, the datagrams are sealed. `prefix` begins all names. A `naive` run
    has the same processes without ringcast: one sender, TCP.
    """

    group: str
    members: int
    senders: int
    size: int
    seconds: float
    timeout: float
    loss: float = 0.0
    seed: int = 0
    batch: int = 1
    rate: int = 0
    naive: bool = False
    unicast: bool = False
    stack: str = "mcast-udp"
    options: dict[str, Any] = field(default_factory=dict)
    secret: str | None = None
    trust: str | None = None
    prefix: str = ""

    @property
    def title(self) -> str:
        """Return a description of the run."""
        receivers = self.members - 1
        if self.naive:
            return f"{self.size:,} B, naive, 1 -> {receivers}"
        who = f"1 -> {receivers}" if self.senders == 1 else f"{self.senders} of {self.members} send"
        return ", ".join([f"{self.size:,} B", *["unicast"] * self.unicast, who, *self.conditions])

    @property
    def is_sealed(self) -> bool:
        return self.secret is not None or self.trust is not None

    @property
    def conditions(self) -> list[str]:
        """Return the parts of a title that differ from the default."""
        lossy = [f"{100 * self.loss:g} % lost"] if self.loss > 0 else []
        sealed = ["sealed"] * self.is_sealed
        how = [f"send_many of {self.batch:,}"] * (self.batch > 1)
        steady = [f"{self.rate:,}/s each"] * (self.rate > 0)
        return [self.stack] * (self.stack != "mcast-udp") + how + steady + sealed + lossy

    @property
    def names(self) -> list[str]:
        """Return the names of the members: S, S2, ... send; R1, R2, ... only
        receive."""
        senders = ["S" if number == 1 else f"S{number}" for number in range(1, self.senders + 1)]
        receivers = [f"R{number}" for number in range(1, self.members - self.senders + 1)]
        return [self.prefix + name for name in senders + receivers]

    @property
    def processes(self) -> list[str]:
        """Return the names of the processes: those of their members, joined by +."""
        return ["+".join(self.names)] if STACKS[self.stack].carrier.is_local else self.names

    def members_of(self, process: str) -> list[str]:
        """Return the members in a process. (A name may have a + itself.)"""
        return [process] if process in self.names else self.names

    @property
    def dest(self) -> str | None:
        """Return the receiver of the messages; None for everybody."""
        return self.names[-1] if self.unicast else None

    def sends(self, process: str) -> bool:
        return not set(self.names[:self.senders]).isdisjoint(self.members_of(process))

    def receives(self, process: str) -> bool:
        return any(map(self.heard_by, self.members_of(process)))

    def heard_by(self, member: str) -> list[str]:
        """Return the senders whose messages a member gets: all, also itself; but none
        if it is the only sender."""
        senders = self.names[:self.senders]
        return [] if senders == [member] else senders

    def payloads(self, name: str) -> list[bytes]:
        """Return the payloads that `name` sends in turn: seqno s has
        payloads[(s - 1) % POOL]."""
        rng = Random(f"{self.seed}/{name}")
        return [rng.randbytes(self.size) for _ in range(POOL)]


class StreamChecker:
    """Compares the deliveries at one member with what was sent: every sender's seqnos
    from 1 on, each once, in order, with the right payloads.

    Of each batch the first and last payload are compared, and the total size. `fault`
    describes the first difference; it is empty if there is none. `member` is who gets
    the messages; by default somebody who sends none.

    Threads: one calls `take`; any other may call `await_all`.
    """

    def __init__(self, plan: PerfPlan, member: str = "") -> None:
        self.member = member
        self.size = plan.size
        self.payloads = {name: plan.payloads(name) for name in plan.heard_by(member)}
        self.last = dict.fromkeys(self.payloads, 0)
        self.total = 0
        self.goal: int | None = None
        self.fault = ""
        self.latest = time.perf_counter()
        self._is_over = threading.Event()       # the goal is reached, or there is a fault

    def __call__(self, batch: Batch) -> None:
        """Take a batch: the callback `on_message` of a Channel."""
        self.take(batch.sender.name, batch.first, batch.payloads, batch.nbytes)

    def take(self, sender: str, first: int, messages: list[bytes], nbytes: int) -> None:
        """Check these messages of `sender`, whose seqnos begin with `first`."""
        self.fault = self.fault or self._difference(sender, first, messages, nbytes)
        self.last[sender] = first + len(messages) - 1
        self.total += len(messages)
        self.latest = time.perf_counter()
        if self.fault or self.total == self.goal:
            self._is_over.set()

    def _difference(self, sender: str, first: int, messages: list[bytes], nbytes: int) -> str:
        expected = self.last.get(sender)
        if expected is None:
            return f"a batch came from {sender}, who is not among the senders"
        last = first + len(messages) - 1
        if first != expected + 1:
            kind = (f"{first - expected - 1} missing" if first > expected
                    else "again, or out of order")
            return f"{sender}'s message {expected} was followed by {first}: {kind}"
        if not self.is_sent(sender, first, messages, nbytes):
            return (f"{sender}'s messages {first} to {last} do not have the payloads that were "
                    "sent with these seqnos")
        return ""

    def is_sent(self, sender: str, first: int, messages: list[bytes], nbytes: int) -> bool:
        """Return whether these payloads were sent with the seqnos from `first` on."""
        pool = self.payloads[sender]
        ends = (pool[(first - 1) % POOL], pool[(first + len(messages) - 2) % POOL])
        return nbytes == len(messages) * self.size and (messages[0], messages[-1]) == ends

    def rates(self, start: float) -> tuple[float, float]:
        """Return the messages a second from `start` until the latest: all, and those of
        others."""
        seconds = max(self.latest - start, 1e-9)
        return self.total / seconds, (self.total - self.last.get(self.member, 0)) / seconds

    def figures(self) -> dict[str, float]:
        """Return what was measured besides the check."""
        return {}

    def await_all(self, sent: dict[str, int], timeout: float) -> None:
        """Wait until all messages that this member gets of `sent` ({sender: messages})
        are delivered, or there is a fault, or `timeout` seconds are over."""
        self.goal = sum(sent.get(sender, 0) for sender in self.last)
        if self.total < self.goal:
            self._is_over.wait(timeout)

    def verdict(self, sent: dict[str, int]) -> str:
        """Describe what is wrong with the deliveries; "" if nothing is."""
        differences = [f"{sent.get(sender, 0)} messages of {sender} were sent and {last} delivered"
                       for sender, last in self.last.items() if sent.get(sender, 0) != last]
        return self.fault or "; ".join(differences)
