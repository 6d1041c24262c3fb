"""A sender at a steady rate, and how long its messages take: from before send() until
the receiver's callback has the message. Both read one clock.

A message holds the time when it was sent, so of the payloads only the sizes are
checked. The sender sends what is due, then sleeps until the next is. One that cannot
keep its rate ends soon after the others, with fewer messages.
"""

import time
from struct import Struct

from ringcast.cli.perf.peers import ChannelPeer
from ringcast.cli.perf.plan import PerfPlan, StreamChecker
from ringcast.cli.perf.round_trip import percentiles

LATE = 1.0                              # seconds for which a sender goes on that is late
STAMP = Struct("<q")                    # nanoseconds, by the machine's monotonic clock


class SteadyChecker(StreamChecker):
    """Checks the deliveries at one member, and notes how many nanoseconds each
    took."""

    def __init__(self, plan: PerfPlan, member: str = "") -> None:
        super().__init__(plan, member)
        self.taken: list[int] = []

    def take(self, sender: str, first: int, messages: list[bytes], nbytes: int) -> None:
        now = time.monotonic_ns()
        super().take(sender, first, messages, nbytes)
        self.taken += [now - STAMP.unpack_from(message)[0] for message in messages]

    def is_sent(self, sender: str, first: int, messages: list[bytes], nbytes: int) -> bool:
        return set(map(len, messages)) == {self.size}

    def figures(self) -> dict[str, float]:
        return percentiles(self.taken) if self.taken else {}


class SteadyPeer(ChannelPeer):
    """A member that sends at the rate of its plan, or receives by callback."""

    make_checker = SteadyChecker

    def work(self, seconds: float) -> dict[str, int]:
        if not self.plan.sends(self.name):
            return {}
        gap, padding = 1e9 / self.plan.rate, bytes(self.plan.size - STAMP.size)
        send = self.channel.send
        begin, sent, goal = time.monotonic_ns(), 0, round(seconds * self.plan.rate) or 1
        end = begin + (seconds + LATE) * 1e9
        while sent < goal and (now := time.monotonic_ns()) < end:
            if (early := begin + sent * gap - now) > 0:
                time.sleep(early / 1e9)
            else:
                send(STAMP.pack(now) + padding)
                sent += 1
        return {self.name: sent}
