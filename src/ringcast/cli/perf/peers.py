"""What a process of a measured group is made of: channels, or one end of the naive
bundle. See perf/member.take_part for when what is called.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from ringcast import Channel
from ringcast.cli.perf.naive import NaiveReceiver, NaiveSender
from ringcast.cli.perf.plan import Plan, StreamChecker
from ringcast.protocols.faults import Discard


class Peer:
    """What the stages of a run need of a process, whatever is in it; here, a member
    that needs nothing said to it and does nothing. `checkers` saw what it received;
    `figures` are what it measured itself.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan = plan
        self.name = name
        heard = plan.heard_by(name)
        self.checkers = [StreamChecker(plan, heard)] if heard else []
        self.figures: dict[str, float] = {}

    def join(self) -> int | None:
        """Open; returns the port on which others reach this member, if they must be
        told."""
        return None

    def meet(self, ports: list[int]) -> None:
        """All have joined; `ports` are those that they told."""

    def work(self, seconds: float) -> dict[str, int]:
        """Do what is measured; returns how many messages each member sent."""
        return {}

    def status(self) -> dict[str, int]:
        """Counters."""
        return {}

    def settle(self, timeout: float) -> int:
        """Wait, at most `timeout` seconds, for all to have confirmed what was sent;
        returns how many messages somebody has not."""
        return 0

    def close(self, timeout: float) -> None:
        """Leave, within `timeout` seconds."""


class Sending(Peer):
    """A member that, if it is among the senders, sends as fast as it can, one message a
    call."""

    def work(self, seconds: float) -> dict[str, int]:
        if not self.plan.sends(self.name):
            return {}
        payloads, end, rounds = self.plan.payloads(self.name), time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            self.send_each(payloads)
            rounds += 1
        self.flush()
        return {self.name: rounds * len(payloads)}

    def send_each(self, payloads: list[bytes]) -> None:
        """Send these, each by a call of its own; may wait."""
        raise NotImplementedError

    def flush(self) -> None:
        """Nothing more will be sent."""


class Joined(Peer):
    """One with a ringcast Channel. A lossy one discards datagrams of all kinds: acks
    and requests too."""

    def open(self, **receiving: Any) -> None:
        """Make the channel; it is not connected yet."""
        plan = self.plan
        faults = [Discard(plan.loss, Random(f"{plan.seed}/{self.name}/loss"))] if plan.loss else []
        self.channel = Channel(plan.group, name=self.name, members=plan.names, stack=plan.stack,
                               faults=faults, **receiving,
                               **plan.options)

    def join(self) -> None:
        """Connect, which also sees that the others are ready for this stream."""
        self.channel.connect(self.plan.timeout)

    def status(self) -> dict[str, int]:
        return self.channel.status()

    def settle(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (unacked := self._num_unacked()) and time.monotonic() < end:
            time.sleep(0.001)
        return unacked

    def _num_unacked(self) -> int:
        status = self.channel.status()
        return status["num_unacked"] + status["unicast_unacked"]

    def close(self, timeout: float) -> None:
        self.channel.close(timeout)


class ChannelPeer(Joined, Sending):
    """One that sends as fast as it can, or takes what comes by callback."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__(plan, name)
        self.open(**{"on_message": self.checkers[0]} if self.checkers else {"deliver": False})

    def send_each(self, payloads: list[bytes]) -> None:
        send, dest = self.channel.send, self.plan.dest
        if dest is None:
            for payload in payloads:
                send(payload)
        else:
            for payload in payloads:
                send(payload, dest)


class Together(Peer):
    """Several members in one process, each with a thread for what it waits for."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self.peers = peers
        self.checkers = [checker for peer in peers for checker in peer.checkers]
        self.figures = {}

    def join(self) -> None:
        with ThreadPoolExecutor(len(self.peers)) as threads:
            list(threads.map(lambda peer: peer.join(), self.peers))

    def work(self, seconds: float) -> dict[str, int]:
        with ThreadPoolExecutor(len(self.peers)) as threads:
            sent = added(threads.map(lambda peer: peer.work(seconds), self.peers))
        for peer in self.peers:
            self.figures |= peer.figures
        return sent

    def status(self) -> dict[str, int]:
        return added(peer.status() for peer in self.peers)

    def settle(self, timeout: float) -> int:
        return sum(peer.settle(timeout) for peer in self.peers)

    def close(self, timeout: float) -> None:
        for peer in self.peers:
            peer.close(timeout)


def together(peers: Sequence[Peer]) -> Peer:
    return peers[0] if len(peers) == 1 else Together(peers)


def added(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    """One table with all names, each with the sum of its values."""
    total: Counter[str] = Counter()
    for table in tables:
        total.update(table)
    return dict(total)


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

    def __init__(self, plan: Plan, name: str) -> None:
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
