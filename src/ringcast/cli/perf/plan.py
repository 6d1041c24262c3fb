"""What a run of `ringcast perf` is to do, and the check that it did: every message
once, in order, as it was sent."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ringcast import Batch
from ringcast.stacks import STACKS

POOL = 61   # payloads that a sender repeats; a prime, so that batches do not fall in step with it


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run: `senders` of `members` send messages of `size` bytes for `seconds`, to
    all or (`unicast`) to the last member alone. `stack` is Channel's: each member is a
    process, but those of inproc share one. `loss` is the probability that a member does
    not see a datagram that reached it. `timeout`, seconds, bounds every wait. `options`
    are properties of Channel. A `naive` run has the same processes and no ringcast: one
    sender, TCP.
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
    unicast: bool = False
    stack: str = "mcast-udp"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What this is, in words."""
        receivers = self.members - 1
        if self.naive:
            return f"{self.size:,} B, naive, 1 -> {receivers}"
        who = f"1 -> {receivers}" if self.senders == 1 else f"{self.senders} of {self.members} send"
        return ", ".join([f"{self.size:,} B", *["unicast"] * self.unicast, who, *self.conditions])

    @property
    def conditions(self) -> list[str]:
        """Of a title, what is not as usual."""
        return [self.stack] * (self.stack != "mcast-udp") + [f"{100 * self.loss:g} % lost"] * (
            self.loss > 0)

    @property
    def names(self) -> list[str]:
        """S, S2, ... send; R1, R2, ... only receive."""
        senders = ["S" if number == 1 else f"S{number}" for number in range(1, self.senders + 1)]
        return [*senders, *(f"R{number}" for number in range(1, self.members - self.senders + 1))]

    @property
    def processes(self) -> list[str]:
        """Their names are those of the members in them, joined by +."""
        return ["+".join(self.names)] if STACKS[self.stack].carrier.is_local else self.names

    @property
    def dest(self) -> str | None:
        """To whom messages go; None is everybody."""
        return self.names[-1] if self.unicast else None

    def sends(self, process: str) -> bool:
        return not set(self.names[:self.senders]).isdisjoint(process.split("+"))

    def receives(self, process: str) -> bool:
        return any(map(self.heard_by, process.split("+")))

    def heard_by(self, member: str) -> list[str]:
        """Whose messages a member gets: those of all senders, its own too; nobody's
        when it is the only one to send."""
        senders = self.names[:self.senders]
        return [] if senders == [member] else senders

    def payloads(self, name: str) -> list[bytes]:
        """What `name` sends, again and again: seqno s carries payloads[(s - 1) %
        POOL]."""
        rng = Random(f"{self.seed}/{name}")
        return [rng.randbytes(self.size) for _ in range(POOL)]


class StreamChecker:
    """Sees every delivery at one member and holds it against what the senders say they
    sent: every sender's seqnos from 1 on, once each, in order, with the payloads that
    belong to them. Of each batch the first and last payload are compared and the sizes
    of all. `fault` is empty, or the sentence about the first difference. `heard` are
    those who send to this member, all senders unless told otherwise.

    Threads: one calls `take`; any other may `await_all`.
    """

    def __init__(self, plan: Plan, heard: Sequence[str] | None = None) -> None:
        self.size = plan.size
        self.payloads = {name: plan.payloads(name)
                         for name in (plan.names[:plan.senders] if heard is None else heard)}
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
        """Return when all that is heard here of `sent` ({sender: messages}) was
        delivered, or something is wrong, or `timeout` is over."""
        self.goal = sum(sent.get(sender, 0) for sender in self.last)
        if self.total < self.goal:
            self._progress.wait(timeout)

    def verdict(self, sent: dict[str, int]) -> str:
        """The sentence about what is wrong with all that was delivered, or "" when
        nothing is."""
        differences = [f"{sent.get(sender, 0)} messages of {sender} were sent and {last} delivered"
                       for sender, last in self.last.items() if sent.get(sender, 0) != last]
        return self.fault or "; ".join(differences)
