"""Round trips: A sends B a message, B answers from the thread that iterates, A waits
for the answer; then the next one.

Beside it the least that plain Python can do: two processes with a blocking UDP socket
each, which promises nothing.

Held still: one message on the way at a time, garbage collected before and not during, a
warm-up that is not counted. What arrives is checked as in every run, outside the
measured part: B's n-th message is the answer to A's n-th.
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
from ringcast.cli.perf.plan import Plan

WARM_UP = 0.5                       # seconds before what is measured; a quarter of a shorter run
PERCENTILES = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}
END = b""                           # A's last message, which is not answered; no payload is empty


@dataclass(frozen=True, kw_only=True)
class RoundTripPlan(Plan):
    """A run of A and B. A `bare` one has the same processes and no ringcast: a UDP
    socket in each."""

    members: int = 2
    senders: int = 2
    bare: bool = False

    @property
    def names(self) -> list[str]:
        return ["A", "B"]

    def heard_by(self, member: str) -> list[str]:
        return [name for name in self.names if name != member]

    @property
    def over(self) -> str:
        return "bare UDP sockets" if self.bare else {"mcast-udp": "UDP"}.get(self.stack, self.stack)

    @property
    def title(self) -> str:
        return ", ".join([f"{self.size:,} B", self.over, *[f"{100 * self.loss:g} % lost"]
                          * (self.loss > 0)])


class Talker(Peer):
    """One of the two, whatever it talks through. `figures` of A: how many round trips,
    and percentiles of their times."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__(plan, name)
        (self.checker,) = self.checkers
        (self.other,) = plan.heard_by(name)
        self.payloads = cycle(plan.payloads(name))
        self.sent = 0

    def say(self, payload: bytes) -> None:
        """Send one message to the other."""
        raise NotImplementedError

    def hear(self) -> tuple[int, bytes]:
        """Wait for the other's next message: its number and payload."""
        raise NotImplementedError

    def listen_on(self) -> None:
        """Nothing more is to be heard; what comes all the same goes to the checker."""

    def work(self, seconds: float) -> dict[str, int]:
        gc.collect()
        gc.disable()
        try:
            if self.name == "A":
                self.ask(min(WARM_UP, seconds / 4))
                gc.collect()
                self.figures = percentiles(self.ask(seconds))
                self.say(END)
            else:
                self.answer()
        finally:
            gc.enable()
        self.listen_on()
        return {self.name: self.sent}

    def ask(self, seconds: float) -> "array[int]":
        """The nanoseconds that each round trip took, at least one."""
        taken = array("q")
        end = done = time.perf_counter_ns() + round(seconds * 1e9)
        while not taken or done < end:
            payload = next(self.payloads)
            begin = time.perf_counter_ns()
            self.say(payload)
            seqno, answer = self.hear()
            done = time.perf_counter_ns()
            taken.append(done - begin)
            self.checker.take(self.other, seqno, [answer], len(answer))
        self.sent += len(taken)
        return taken

    def answer(self) -> None:
        """Answer each message until the END."""
        for payload in self.payloads:
            seqno, question = self.hear()
            if question == END:
                break
            self.say(payload)
            self.sent += 1
            self.checker.take(self.other, seqno, [question], len(question))


class RoundTripPeer(Joined, Talker):
    """A ringcast Channel, iterated by the thread that sends."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__(plan, name)
        self.open()
        self.messages: Iterator[Message] = iter(self.channel)

    def say(self, payload: bytes) -> None:
        self.channel.send(payload, self.other)

    def hear(self) -> tuple[int, bytes]:
        message = next(self.messages)
        return message.seqno, message.payload

    def listen_on(self) -> None:
        """The last message is finished, and acknowledged, only when the next one is
        asked for; closing ends the wait for it."""
        threading.Thread(target=self._listen_on, daemon=True).start()

    def _listen_on(self) -> None:
        for message in self.messages:
            self.checker.take(self.other, message.seqno, [message.payload], len(message.payload))


class BarePeer(Talker):
    """A blocking UDP socket that is connected to the other's."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__(plan, name)
        self.address = plan.options.get("interface", "127.0.0.1")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.heard = 0

    def join(self) -> int:
        self.socket.bind((self.address, 0))
        port: int = self.socket.getsockname()[1]
        return port

    def meet(self, ports: list[int]) -> None:
        (other,) = set(ports) - {self.socket.getsockname()[1]}
        self.socket.connect((self.address, other))

    def say(self, payload: bytes) -> None:
        self.socket.send(payload)

    def hear(self) -> tuple[int, bytes]:
        payload = self.socket.recv(self.plan.size + 1)
        self.heard += 1
        return self.heard, payload

    def close(self, timeout: float) -> None:
        self.socket.close()


def percentiles(taken: Sequence[int]) -> dict[str, float]:
    """How many round trips there were, and of their times, given in nanoseconds, the
    nearest ranks in microseconds."""
    ranked = sorted(taken)
    ranks = {name: ranked[ceil(share * len(ranked)) - 1] / 1000 for name,
             share in PERCENTILES.items()}
    return {"round_trips": len(ranked), **ranks}
