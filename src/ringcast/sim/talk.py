"""What one application says to one other, message by message, and what came of each:
for the checkers, which know both ends.

A message carries its number at its end, so that what is delivered, or reported as
undelivered, says which one it is. Here they are counted from 0; what a message carries
begins at `base`.
"""

from typing import Any

from ringcast.endpoint import Fragments
from ringcast.flags import Flag
from ringcast.protocols.seqnos import MODULUS, Seqno
from ringcast.protocols.unicast3.control import ConnId


class UnicastLog:
    """All that one incarnation of a member has to say to one incarnation of another."""

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.said: list[bytes] = []                             # what was accepted
        self.oob: set[int] = set()                              # numbers of those that are OOB
        self.failed: set[int] = set()                           # numbers of those that were
                                                                # reported as undelivered
        self.heard = -1                                         # number of the last one that was
                                                                # delivered in order
        self.reached = -1                                       # the highest that ever was
        self.heard_oob: set[int] = set()                        # numbers of OOB messages that were
                                                                # delivered
        self.outstanding: dict[tuple[Any, Seqno], ConnId] = {}  # what the receiving application has
                                                                # not finished, by the stream
        self.stream: Any = None                                 # what they came through
        self.backlog: list[tuple[bytes, int]] = []              # what waits for room, with its
                                                                # flags
        self.large: Fragments | None = None                     # the message that is going out in
                                                                # fragments

    def add(self, count: int, size: int, is_oob: bool) -> None:
        """More to say."""
        start = len(self.said) + len(self.backlog)
        flags = Flag.OOB if is_oob else 0
        self.backlog += [(bytes(size) + b"|%d" % number, int(flags))
                         for number in range(start, start + count)]

    def accepted(self) -> None:
        """The first of the backlog was sent."""
        payload, flags = self.backlog.pop(0)
        if flags & Flag.OOB:
            self.oob.add(len(self.said))
        self.said.append(payload)

    def number_of(self, payload: bytes) -> int:
        """Which message this is; -1 when it is none of ours."""
        digits = payload.rpartition(b"|")[2]
        return (int(digits) - self.base) % MODULUS if digits.isdigit() else -1

    def hear_again(self, number: int) -> None:
        """Everything from this message on may come a second time."""
        self.heard = min(self.heard, number - 1)
        self.heard_oob = {heard for heard in self.heard_oob if heard < number}

    def unheard(self) -> list[int]:
        """Numbers of messages that were neither delivered nor reported."""
        return [number for number in range(len(self.said)) if number not in self.failed and (
            number not in self.heard_oob if number in self.oob else number > self.heard)]
