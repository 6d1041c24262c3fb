"""Round trips: A sends B a message, B answers from the thread that iterates, A waits
for the answer, and so on.

Beside it the least that plain Python can do: two processes with a blocking UDP socket
each, without any guarantee.

Conditions: one message at a time is on the way, garbage is collected before and not
during the measurement, and a warm-up is not counted. Deliveries are checked as in every
run, outside the measured part: B's n-th message is the answer to A's n-th.
"""

import gc
import socket
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil

from ringcast import Message
from ringcast.cli.perf.peers import Joined, Peer
from ringcast.cli.perf.plan import PerfPlan

WARM_UP = 0.5           # seconds before the measurement; at most a quarter of the run
PERCENTILES = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}
END = b""               # A's last message, which is not answered; other payloads are not empty


@dataclass(frozen=True, kw_only=True)
class RoundTripPlan(PerfPlan):
    """A run of A and B. A `bare` run has the same processes without ringcast: a UDP
    socket in each."""

    members: int = 2
    senders: int = 2
    bare: bool = False

    @property
    def names(self) -> list[str]:
        return [self.prefix + "A", self.prefix + "B"]

    def heard_by(self, member: str) -> list[str]:
        return [name for name in self.names if name != member]

    @property
    def over(self) -> str:
        return "bare UDP sockets" if self.bare else {"mcast-udp": "UDP"}.get(self.stack, self.stack)

    @property
    def title(self) -> str:
        lossy = [f"{100 * self.loss:g} % lost"] if self.loss > 0 else []
        sealed = ["sealed"] * (self.is_sealed and not self.bare)
        return ", ".join([f"{self.size:,} B", self.over, *sealed, *lossy])


class Talker(Peer):
    """A or B, without the means of sending. The `figures` of A are the number of round
    trips and percentiles of their times."""

    def __init__(self, plan: PerfPlan, name: str) -> None:
        super().__init__(plan, name)
        (self.checker,) = self.checkers
        (self.other,) = plan.heard_by(name)
        self.payloads = cycle(plan.payloads(name))
        self.sent = 0
        self.taken: Sequence[int] = ()          # nanoseconds of each round trip that counts

    def figures(self) -> dict[str, float]:
        return percentiles(self.taken) if self.taken else {}

    def send(self, payload: bytes) -> None:
        """Send one message to the other."""
        raise NotImplementedError

    def receive(self) -> tuple[int, bytes]:
        """Wait for the other's next message: its number and payload."""
        raise NotImplementedError

    def drain(self) -> None:
        """Give messages that still come to the checker; none should."""

    def work(self, seconds: float) -> dict[str, int]:
        gc.collect()
        gc.disable()
        try:
            if self.name == self.plan.names[0]:
                self.ask(min(WARM_UP, seconds / 4))
                gc.collect()
                self.taken = self.ask(seconds)
                self.send(END)
            else:
                self.answer()
        finally:
            gc.enable()
        self.drain()
        return {self.name: self.sent}

    def ask(self, seconds: float) -> "array[int]":
        """Make round trips, one at least. Return the nanoseconds that each took."""
        taken = array("q")
        end = done = time.perf_counter_ns() + round(seconds * 1e9)
        while not taken or done < end:
            payload = next(self.payloads)
            begin = time.perf_counter_ns()
            self.send(payload)
            seqno, answer = self.receive()
            done = time.perf_counter_ns()
            taken.append(done - begin)
            self.checker.take(self.other, seqno, [answer], len(answer))
        self.sent += len(taken)
        return taken

    def answer(self) -> None:
        """Answer each message until the END."""
        for payload in self.payloads:
            seqno, question = self.receive()
            if question == END:
                break
            self.send(payload)
            self.sent += 1
            self.checker.take(self.other, seqno, [question], len(question))


class RoundTripPeer(Joined, Talker):
    """A member with a ringcast Channel, iterated by the thread that sends."""

    def __init__(self, plan: PerfPlan, name: str) -> None:
        super().__init__(plan, name)
        self.open()
        self.messages: Iterator[Message] = iter(self.channel)

    def send(self, payload: bytes) -> None:
        self.channel.send(payload, self.other)

    def receive(self) -> tuple[int, bytes]:
        message = next(self.messages)
        return message.seqno, message.payload

    def drain(self) -> None:
        """Ask for the next message: only then is the last one finished and
        acknowledged. Closing the channel ends this."""
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        for message in self.messages:
            self.checker.take(self.other, message.seqno, [message.payload], len(message.payload))


class BarePeer(Talker):
    """A peer with a blocking UDP socket that is connected to the other's."""

    def __init__(self, plan: PerfPlan, name: str) -> None:
        super().__init__(plan, name)
        self.address = plan.options.get("interface", "127.0.0.1")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.received = 0

    def join(self) -> int:
        self.socket.bind((self.address, 0))
        port: int = self.socket.getsockname()[1]
        return port

    def meet(self, ports: list[int]) -> None:
        (other,) = set(ports) - {self.socket.getsockname()[1]}
        self.socket.connect((self.address, other))

    def send(self, payload: bytes) -> None:
        self.socket.send(payload)

    def receive(self) -> tuple[int, bytes]:
        payload = self.socket.recv(self.plan.size + 1)
        self.received += 1
        return self.received, payload

    def close(self, timeout: float) -> None:
        self.socket.close()


def percentiles(taken: Sequence[int]) -> dict[str, float]:
    """Return the number of round trips, and the percentiles of their times, in
    microseconds, by the nearest rank. `taken` are the times in nanoseconds."""
    ranked = sorted(taken)
    ranks = {name: ranked[ceil(share * len(ranked)) - 1] / 1000
             for name, share in PERCENTILES.items()}
    return {"round_trips": len(ranked), **ranks}
