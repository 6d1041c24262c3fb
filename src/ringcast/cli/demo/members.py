"""The processes of the demo's group: publishers that send their share of the records, a
recorder, and one that brings Spark's announcements into the group.

Each checks what it gets: of every sender each seqno once, in order, without a gap, from
the first. Each has a bad network of its own: a layer that discards datagrams, one that
repeats and one that reorders them.
"""

import multiprocessing as mp
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ringcast import Batch, Channel, View
from ringcast.cli.demo import flights
from ringcast.config import configure
from ringcast.journal.recorder import close_when_alone, connected, record, resume_of
from ringcast.journal.writer import Journal
from ringcast.outbox.publisher import OwnedOutbox, Publisher
from ringcast.protocols.faults import Discard, Duplicate, Fault, Shuffle

RECORDER = "recorder"
SPARK = "spark"
ODDITIES = 0.01                 # probability that a datagram comes twice, and that it is overtaken
PATIENCE = 100                  # seconds that a member waits for the others


@dataclass(frozen=True)
class Plan:
    """What all processes of one demo agree on."""

    group: str
    publishers: int
    messages: int
    loss: float
    seed: int
    options: dict[str, Any]
    stack: str = "mcast-udp"
    announcements: int = 0              # that will come of the messages

    @property
    def total(self) -> int:
        """Messages that every member gets."""
        return self.messages + self.announcements

    @property
    def names(self) -> list[str]:
        return [f"publisher-{number}" for number in range(1, self.publishers + 1)] + [RECORDER,
                                                                                      SPARK]

    def faults(self, name: str) -> list[Fault]:
        """The same seed makes every member's network misbehave by the same dice;
        connections without retransmission may not."""
        rng = Random(f"{self.seed} {name}")
        oddities = ODDITIES if configure(self.options, self.stack).xmit_interval > 0 else 0.0
        return [Discard(self.loss, rng), Duplicate(oddities, rng), Shuffle(oddities, rng)]

    def channel(self, name: str, **kwargs: Any) -> Channel:
        return Channel(self.group, name=name, members=self.names, stack=self.stack,
                       faults=self.faults(name), **self.options,
                       **kwargs)


@dataclass
class Outcome:
    """What one member has to tell at the end."""

    name: str
    sent: int = 0
    delivered: int = 0
    unacked: int = 0
    seconds: float = 0.0                # from the first record delivered to the last
    faults_found: list[str] = field(default_factory=list)
    status: dict[str, int] = field(default_factory=dict)


class Verifier:
    """Checks batches as they come: per sender each seqno once, in order, without a gap,
    beginning with 1."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
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
        if sender != SPARK:             # announcements come when Spark gets to them
            self.ended = time.monotonic()
        self.total += len(batch)
        if self.total >= self.expected:
            self.complete.set()


def publish(plan: Plan, number: int, sent: Any, outcomes: "mp.SimpleQueue[Outcome]") -> None:
    """Send this publisher's share, one message a send; leave when everything of
    everybody has come and all have ours."""
    name = plan.names[number]
    share = flights.share(number, plan.publishers, plan.messages)
    verifier = Verifier(plan.total)
    channel = plan.channel(name, on_message=verifier).connect()
    for count, line in enumerate(share, 1):
        channel.send(line, timeout=PATIENCE)
        sent[number] = count
    complete = verifier.complete.wait(PATIENCE)
    status = channel.status()
    outcome = Outcome(name, len(share), verifier.total, channel.close(PATIENCE),
                      verifier.ended - verifier.began,
                      verifier.faults, status)
    if not complete:
        outcome.faults_found.append(f"only {verifier.total} of {plan.total} messages came")
    outcomes.put(outcome)


def keep(plan: Plan, directory: Path, recorded: Any, outcomes: "mp.SimpleQueue[Outcome]") -> None:
    """The recorder: everything into the journal, until it is alone."""
    outcome = Outcome(RECORDER)
    with Journal(directory, group=plan.group, recorder=RECORDER) as journal:
        def on_view(view: View) -> None:
            close_when_alone(channel, view)

        channel = plan.channel(RECORDER, resume=resume_of(journal, plan.names), on_view=on_view,
                               oob_in_order=True)
        verifier = Verifier(plan.total)
        with connected(channel):
            outcome.delivered = record(channel, journal,
                                       lambda total: recorded.__setitem__(plan.publishers, total),
                                       verifier)
            outcome.status = channel.status()
    outcome.seconds = verifier.ended - verifier.began
    outcome.faults_found = verifier.faults
    outcomes.put(outcome)


def carry(plan: Plan, outbox: Path, stopped: Any, outcomes: "mp.SimpleQueue[Outcome]") -> None:
    """Publish what Spark writes into the outbox, until the event `stopped` is set."""
    with OwnedOutbox(outbox, plan.group, configure(plan.options, plan.stack)) as held:
        publisher = Publisher(held,
                              lambda session: plan.channel(SPARK, deliver=False, session=session),
                              stopped)
        publisher.run()
        outcomes.put(Outcome(SPARK, sent=publisher.acknowledged, status=publisher.channel.status()))
