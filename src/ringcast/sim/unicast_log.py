"""The messages of one application to one other, and what became of each: for the
checkers, which know both ends.

A message ends with its number, so a delivery, or a report that a message was not
delivered, says which message it is about. In this file numbers count from 0; the number
in a message counts from `base`.
"""

from typing import Any

from ringcast.flags import Flag
from ringcast.protocols.seqnos import MODULUS, Seqno
from ringcast.protocols.unicast3.control import ConnId
from ringcast.sim.outgoing import Outgoing


class UnicastLog(Outgoing):
    """All messages of one incarnation of a member to one incarnation of another."""

    def __init__(self, base: int = 0) -> None:
        super().__init__()
        self.base = base
        self.sent: list[bytes] = []
        self.oob: set[int] = set()             # numbers of the OOB messages
        self.failed: set[int] = set()          # ... of those that were reported as undelivered
        self.last_delivered = -1               # number of the last message delivered in order
        self.highest_delivered = -1            # the highest that this ever was
        self.oob_delivered: set[int] = set()   # numbers of OOB messages that were delivered
        self.stream: Any = None                # through which the last delivery came
        # Seqnos that the receiving application has not finished, and their conn-ids.
        self.outstanding: dict[tuple[Any, Seqno], ConnId] = {}
        self.backlog: list[tuple[bytes, int]] = []  # messages that wait for room, and their flags

    def offer(self, count: int, size: int, is_oob: bool) -> None:
        """Put `count` messages of `size` bytes and a number into the backlog."""
        start = len(self.sent) + len(self.backlog)
        flags = Flag.OOB if is_oob else 0
        self.backlog += [(bytes(size) + b"|%d" % number, int(flags))
                         for number in range(start, start + count)]

    def next(self) -> tuple[bytes, int]:
        return self.backlog[0]

    def accept(self, count: int) -> None:
        for payload, flags in self.backlog[:count]:
            if flags & Flag.OOB:
                self.oob.add(len(self.sent))
            self.sent.append(payload)
        del self.backlog[:count]

    def number_of(self, payload: bytes) -> int:
        """Return the number of this message, or -1 if it is not of this log."""
        digits = payload.rpartition(b"|")[2]
        return (int(digits) - self.base) % MODULUS if digits.isdigit() else -1

    def allow_again(self, number: int) -> None:
        """Allow that this message and all behind it are delivered a second time."""
        self.last_delivered = min(self.last_delivered, number - 1)
        self.oob_delivered = {each for each in self.oob_delivered if each < number}

    def missing(self) -> list[int]:
        """Return the numbers of messages that were neither delivered nor reported."""
        return [number for number in range(len(self.sent)) if number not in self.failed and (
            number not in self.oob_delivered if number in self.oob
            else number > self.last_delivered)]
