"""The peers in the processes of a measured group: channels, or one end of the naive
bundle. perf/member.take_part calls their methods, in the order of the stages."""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from random import Random
from typing import Any

from ringcast import Channel
from ringcast.cli.perf.naive import NaiveReceiver, NaiveSender
from ringcast.cli.perf.plan import POOL, PerfPlan, StreamChecker
from ringcast.config import own_options
from ringcast.protocols.faults import Discard
from ringcast.status import by_name


class Peer:
    """The interface of a process for the stages of a run, and a base that does nothing.

    `checkers` check what it received.
    """

    make_checker: type[StreamChecker] = StreamChecker

    def __init__(self, plan: PerfPlan, name: str) -> None:
        self.plan = plan
        self.name = name
        self.checkers = [self.make_checker(plan, name)] if plan.heard_by(name) else []

    def figures(self) -> dict[str, float]:
        """Return what it measured itself, once it is closed."""
        return largest(checker.figures() for checker in self.checkers)

    def join(self) -> int | None:
        """Join the group. Return the port of this member, if others must know it."""
        return None

    def meet(self, ports: list[int]) -> None:
        """Connect to the `ports` of the others, after all have joined."""

    def work(self, seconds: float) -> dict[str, int]:
        """Do what is measured. Return how many messages each member sent."""
        return {}

    def status(self) -> dict[str, int]:
        """Return the counters."""
        return {}

    def await_acks(self, timeout: float) -> int:
        """Wait, at most `timeout` seconds, until all have acknowledged what was sent.
        Return the number of messages that are not acknowledged."""
        return 0

    def close(self, timeout: float) -> None:
        """Leave, within `timeout` seconds."""


class Sending(Peer):
    """A member that sends as fast as it can, if it is one of the senders."""

    def work(self, seconds: float) -> dict[str, int]:
        if not self.plan.sends(self.name):
            return {}
        sent, portions, end = 0, self.portions(), time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.send_each(portion := next(portions))
            sent += len(portion)
        self.flush()
        return {self.name: sent}

    def portions(self) -> Iterator[list[bytes]]:
        """Return the payloads for ever, so many at a time that it costs nothing to look
        at the clock: POOL calls, or one with a large batch."""
        payloads, batch = self.plan.payloads(self.name) * self.plan.batch, self.plan.batch
        size = batch if batch > POOL else len(payloads)
        return cycle([payloads[at:at + size] for at in range(0, len(payloads), size)])

    def send_each(self, payloads: list[bytes]) -> None:
        """Send these messages with calls as the plan says; may wait."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send what is still buffered."""


class Joined(Peer):
    """A member with a ringcast Channel. With loss it discards datagrams of all kinds,
    also acks and requests. The group forms itself before anything is measured."""

    def open(self, **receiving: Any) -> None:
        """Make the channel, without connecting it."""
        plan = self.plan
        faults = [Discard(plan.loss, Random(f"{plan.seed}/{self.name}/loss"))] if plan.loss else []
        self.channel = Channel(plan.group, name=self.name, min_members=plan.members,
                               stack=plan.stack, faults=faults, secret=plan.secret,
                               trust=plan.trust, **receiving,
                               **own_options(plan.options, plan.stack))

    def join(self) -> None:
        """Connect; after that all members are in this member's view."""
        self.channel.connect(self.plan.timeout)

    def status(self) -> dict[str, int]:
        return by_name(self.channel.status())

    def await_acks(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (unacked := self._num_unacked()) and time.monotonic() < end:
            time.sleep(0.001)
        return unacked

    def _num_unacked(self) -> int:
        status = self.channel.status()
        return status.multicast.num_unacked + status.unicast.unicast_unacked

    def close(self, timeout: float) -> None:
        self.channel.close(timeout)


class ChannelPeer(Joined, Sending):
    """A member that sends as fast as it can, or receives by callback."""

    def __init__(self, plan: PerfPlan, name: str) -> None:
        super().__init__(plan, name)
        self.open(**{"on_message": self.checkers[0]} if self.checkers else {"deliver": False})

    def send_each(self, payloads: list[bytes]) -> None:
        send, dest, batch = self.channel.send, self.plan.dest, self.plan.batch
        if batch > 1:
            for at in range(0, len(payloads), batch):
                self.channel.send_many(payloads[at:at + batch], dest)
        elif dest is None:
            for payload in payloads:
                send(payload)
        else:
            for payload in payloads:
                send(payload, dest)


class Together(Peer):
    """Several members in one process, each with a thread of its own."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self.peers = peers
        self.checkers = [checker for peer in peers for checker in peer.checkers]

    def figures(self) -> dict[str, float]:
        return largest(peer.figures() for peer in self.peers)

    def join(self) -> None:
        with ThreadPoolExecutor(len(self.peers)) as threads:
            list(threads.map(lambda peer: peer.join(), self.peers))

    def work(self, seconds: float) -> dict[str, int]:
        with ThreadPoolExecutor(len(self.peers)) as threads:
            return added(threads.map(lambda peer: peer.work(seconds), self.peers))

    def status(self) -> dict[str, int]:
        return added(peer.status() for peer in self.peers)

    def await_acks(self, timeout: float) -> int:
        return sum(peer.await_acks(timeout) for peer in self.peers)

    def close(self, timeout: float) -> None:
        for peer in self.peers:
            peer.close(timeout)


def together(peers: Sequence[Peer]) -> Peer:
    return peers[0] if len(peers) == 1 else Together(peers)


def added(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return one table with all names, each with the sum of its values."""
    total: Counter[str] = Counter()
    for table in tables:
        total.update(table)
    return dict(total)


def largest(tables: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return one table with all names, each with the largest of its values."""
    found: dict[str, float] = {}
    for table in tables:
        found |= {name: max(value, found.get(name, value)) for name, value in table.items()}
    return found


class NaiveSending(Sending):
    """The sending side of the naive bundle."""

    def meet(self, ports: list[int]) -> None:
        self.sender = NaiveSender(ports)

    def send_each(self, payloads: list[bytes]) -> None:
        send = self.sender.send
        for payload in payloads:
            send(payload)

    def flush(self) -> None:
        self.sender.flush()

    def close(self, timeout: float) -> None:
        self.sender.close()


class NaiveReceiving(Peer):
    """The receiving side of the naive bundle: a thread that reads, splits and
    checks."""

    def __init__(self, plan: PerfPlan, name: str) -> None:
        super().__init__(plan, name)
        self.receiver = NaiveReceiver()
        self.thread = threading.Thread(target=self._receive, daemon=True)

    def join(self) -> int:
        self.thread.start()
        return self.receiver.port

    def _receive(self) -> None:
        first = 1
        for messages in self.receiver.bundles():
            self.checkers[0].take("S", first, messages, sum(map(len, messages)))
            first += len(messages)

    def close(self, timeout: float) -> None:
        self.thread.join(timeout)
