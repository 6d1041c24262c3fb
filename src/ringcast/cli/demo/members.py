"""The processes of the demo's group: publishers that send their share of the records, a
recorder, and a publisher of Spark's announcements.

Each process checks what it gets: of every sender each seqno from 1 on, once, in order
and without a gap. Each has simulated network faults: a layer that discards datagrams,
one that duplicates them and one that reorders them.
"""

import faulthandler
import multiprocessing as mp
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ringcast import Batch, Channel, View
from ringcast.cli.demo import flights
from ringcast.config import Config, configure
from ringcast.journal.recorder import close_when_alone, connected, record
from ringcast.journal.writer import Journal
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.publisher import Publisher
from ringcast.protocols.faults import Discard, Duplicate, Fault, Shuffle
from ringcast.stacks import fitted
from ringcast.status import by_name

FAULT_PROBABILITY = 0.01        # that a datagram is duplicated, and that it is reordered
SHOW_STACKS = signal.SIGUSR1
TIMEOUT = 100                   # seconds that a member waits for the others


@dataclass(frozen=True)
class DemoPlan:
    """The settings that all processes of a demo share."""

    group: str
    publishers: int
    messages: int
    loss: float
    seed: int
    options: dict[str, Any]
    stack: str = "mcast-udp"
    announcements: int = 0              # that Spark will make of the messages
    secret: Path | None = None          # the file of the group's secret
    trust: Path | None = None           # the folder of keys that members trust ...
    prefix: str = ""                    # ... and what begins the names of ours

    @property
    def total(self) -> int:
        """Return how many messages every member gets."""
        return self.messages + self.announcements

    @property
    def names(self) -> list[str]:
        return [*self.publisher_names, self.recorder, self.spark]

    @property
    def config(self) -> Config:
        """Return the configuration that the channels will have."""
        is_sealed = self.secret is not None or self.trust is not None
        return fitted(configure(self.options, self.stack), self.stack, self.group, is_sealed)

    @property
    def publisher_names(self) -> list[str]:
        return [f"{self.prefix}publisher-{number}" for number in range(1, self.publishers + 1)]

    @property
    def recorder(self) -> str:
        return f"{self.prefix}recorder"

    @property
    def spark(self) -> str:
        return f"{self.prefix}spark"

    def faults(self, name: str) -> list[Fault]:
        """Return the simulated network faults of a member, the same for the same seed.
        Without retransmission only loss is possible, and none by default."""
        rng = Random(f"{self.seed} {name}")
        is_repaired = configure(self.options, self.stack).xmit_interval > 0
        probability = FAULT_PROBABILITY if is_repaired else 0.0
        return [Discard(self.loss, rng), Duplicate(probability, rng), Shuffle(probability, rng)]

    def channel(self, name: str, **kwargs: Any) -> Channel:
        """Open the channel of a member, with its faults."""
        return Channel(self.group, name=name, min_members=len(self.names), stack=self.stack,
                       faults=self.faults(name), secret=self.secret, trust=self.trust,
                       **self.options, **kwargs)


@dataclass
class Outcome:
    """The result of one member."""

    name: str
    sent: int = 0
    delivered: int = 0
    unacked: int = 0
    seconds: float = 0.0                # from the first record delivered to the last
    faults_found: list[str] = field(default_factory=list)
    status: dict[str, int] = field(default_factory=dict)


class Verifier:
    """Checks batches on arrival: of every sender each seqno from 1 on, once, in order
    and without a gap."""

    def __init__(self, expected: int, announcer: str = "") -> None:
        self.expected, self.announcer = expected, announcer
        self.last: dict[str, int] = {}
        self.total = 0
        self.faults: list[str] = []
        self.complete = threading.Event()
        self.began = self.ended = 0.0

    def __call__(self, batch: Batch) -> None:
        sender = batch.sender.name
        last = self.last.get(sender, 0)
        if batch.first != last + 1:
            self.faults.append(f"after seqno {last} of {sender} came {batch.first}")
        self.last[sender] = batch.last
        self.began = self.began or time.monotonic()
        if sender != self.announcer:             # announcements come when Spark gets to them
            self.ended = time.monotonic()
        self.total += len(batch)
        if self.total >= self.expected:
            self.complete.set()


def run(target: Callable[..., None], *arguments: Any) -> None:
    """Run a member in this process, which prints the stacks of its threads when it gets
    the signal SHOW_STACKS."""
    faulthandler.register(SHOW_STACKS)
    target(*arguments)


def run_publisher(plan: DemoPlan, number: int, sent: Any,
                  outcomes: "mp.SimpleQueue[Outcome]") -> None:
    """Send this publisher's share, one message with each send. Leave when all messages
    of all members have come, and all members have ours."""
    name = plan.names[number]
    share = flights.share(number, plan.publishers, plan.messages)
    verifier = Verifier(plan.total, plan.spark)
    channel = plan.channel(name, on_message=verifier).connect()
    for count, line in enumerate(share, 1):
        channel.send(line, timeout=TIMEOUT)
        sent[number] = count
    complete = verifier.complete.wait(TIMEOUT)
    status = channel.status()
    outcome = Outcome(name, len(share), verifier.total, channel.close(TIMEOUT),
                      verifier.ended - verifier.began, verifier.faults, by_name(status))
    if not complete:
        outcome.faults_found.append(f"only {verifier.total} of {plan.total} messages came")
    outcomes.put(outcome)


def run_recorder(plan: DemoPlan, directory: Path, recorded: Any,
                 outcomes: "mp.SimpleQueue[Outcome]") -> None:
    """Record all messages, until all others have left."""
    outcome = Outcome(plan.recorder)
    with Journal(directory, group=plan.group, recorder=plan.recorder) as journal:
        def on_view(view: View) -> None:
            if view.left:                   # at first it is alone, too
                close_when_alone(channel, view)

        channel = plan.channel(plan.recorder, on_view=on_view, oob_in_order=True)
        verifier = Verifier(plan.total, plan.spark)
        with connected(channel):
            outcome.delivered = record(channel, journal,
                                       lambda total: recorded.__setitem__(plan.publishers, total),
                                       verifier)
            outcome.status = by_name(channel.status())
    outcome.seconds = verifier.ended - verifier.began
    outcome.faults_found = verifier.faults
    outcomes.put(outcome)


def run_announcer(plan: DemoPlan, path: Path, stopped: Any,
                  outcomes: "mp.SimpleQueue[Outcome]") -> None:
    """Publish what Spark writes into the outbox, until the event `stopped` is set."""
    with OwnedOutbox(path, plan.group, plan.config) as outbox:
        publisher = Publisher(
            outbox, plan.spark, lambda succession, until: plan.channel(
                plan.spark, deliver=False, succession=succession, until=until),
            stopped, expect=[plan.recorder])
        publisher.run()
        assert publisher.channel is not None
        outcomes.put(Outcome(plan.spark, sent=publisher.acknowledged,
                             status=by_name(publisher.channel.status())))
