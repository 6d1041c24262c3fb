"""FRAG: messages larger than a datagram travel as fragments, and are put together
again: whole or not at all.

A fragment is a message of its stream like any other, with a flag and a head: the number
that its sender gave to the whole message, which part this is, and of how many. A sender
sends one large message at a time in each stream, so a fragment of another one says that
the one before was given up: its sender got SendTimeoutError. (Of OOB messages, which
may come in any order, several can be incomplete at a time; their fragments fit the
window together, or they are of somebody who does not play by the rules.)

What is incomplete goes with its sender. It also goes by age, when its sender has gone
on for frag_timeout without sending more of it: never while anything of the stream is
known to be missing, because that may be the next fragment.
"""

import struct

from ringcast._core import wire
from ringcast.errors import MessageTooLargeError
from ringcast.protocols.seqnos import Seqno
from ringcast.stack import Instant

HEAD = struct.Struct("<QII")  # number of the message, index of the part, number of parts
SMALLEST = 256                # bytes of a part, but for the last; so the parts of a message are
                              # never too many, nor are the messages when each counts as much


def cut(payload: bytes, number: int, bundle: int) -> list[bytes]:
    """The fragments of a message, so that each fills a datagram of `bundle` bytes."""
    size = size_of(bundle)
    parts = range(0, len(payload), size)
    return [HEAD.pack(number, index, len(parts)) + payload[start:start + size] for index,
            start in enumerate(parts)]


def size_of(bundle: int) -> int:
    """Bytes of a message in each of its fragments, but for the last."""
    return max(SMALLEST, min(bundle, wire.MAX_DATAGRAM) - (wire.MAX_DATAGRAM - wire.MAX_PAYLOAD)
               - HEAD.size)


def rejoin(fragments: list[bytes]) -> list[tuple[bytes, bool]]:
    """Fragments that were not acknowledged, as messages again; and of each whether it
    is no more than the end of one. A message whose last fragment is not there was never
    sent as a whole: its sender knows."""
    parts: dict[int, list[bytes]] = {}
    complete: dict[int, bool] = {}
    for fragment in fragments:
        number, index, count = HEAD.unpack_from(fragment)
        parts.setdefault(number, []).append(fragment[HEAD.size:])
        if index == count - 1:
            complete[number] = len(parts[number]) == count
    return [(b"".join(parts[number]), not whole) for number, whole in complete.items()]


class Assembly:
    """A message that is not complete yet."""

    __slots__ = ("count", "first", "nbytes", "parts", "since")

    def __init__(self, first: Seqno, count: int) -> None:
        self.first = first              # the seqno of the first fragment that came
        self.count = count              # of parts
        self.parts: dict[int, bytes] = {}
        self.nbytes = 0
        self.since: Instant = 0         # when the last part came


    @property
    def size(self) -> int:
        """What it counts as, among those that have a limit together."""
        return max(SMALLEST, self.nbytes)


class Incomplete(dict[int, Assembly]):
    """Incomplete messages by their numbers, and what they count as together."""

    size = 0

    def begin(self, number: int, first: Seqno, count: int) -> Assembly:
        assembly = self[number] = Assembly(first, count)
        self.size += assembly.size
        return assembly

    def add(self, assembly: Assembly, index: int, part: bytes, now: Instant) -> None:
        self.size -= assembly.size
        assembly.parts[index] = part
        assembly.nbytes += len(part)
        assembly.since = now
        self.size += assembly.size

    def remove(self, number: int) -> None:
        self.size -= self.pop(number).size


class Reassembly:
    """The incomplete messages of one stream. `limit` is what a whole message may have,
    in bytes, `window` what the parts of several may have together that are on their way
    at once."""

    __slots__ = ("limit", "num_bad", "num_given_up", "oob", "ordered", "window")

    def __init__(self, limit: int, window: int) -> None:
        self.limit, self.window = limit, window
        self.ordered = Incomplete()     # one at most
        self.oob = Incomplete()
        self.num_given_up = 0           # messages that were not completed
        self.num_bad = 0                # fragments that make no sense

    def __len__(self) -> int:
        return len(self.ordered) + len(self.oob)

    def add(self, seqno: Seqno, fragment: bytes, is_oob: bool, now: Instant) -> bytes | None:
        """Take a fragment; the whole message when this completes it."""
        open_ones = self.oob if is_oob else self.ordered
        if len(fragment) <= HEAD.size:
            self.num_bad += 1
            return None
        number, index, count = HEAD.unpack_from(fragment)
        assembly = open_ones.get(number)
        if assembly is None:
            if not is_oob:
                self.give_up(open_ones)
            if index and not is_oob:                    # the rest of one that was given up
                self.num_bad += 1
                return None
            assembly = open_ones.begin(number, seqno, count)
        part = fragment[HEAD.size:]
        if not self._continues(assembly, index, count, part, is_oob):
            self.num_bad += 1
            self.num_given_up += 1
            open_ones.remove(number)
            return None
        open_ones.add(assembly, index, part, now)
        if len(assembly.parts) == count:
            open_ones.remove(number)
            return b"".join(assembly.parts[part] for part in range(count))
        self._bound(open_ones)
        return None

    def _continues(self, assembly: Assembly, index: int, count: int, part: bytes,
                   is_oob: bool) -> bool:
        """Whether an honest sender would go on like that."""
        if index >= count or count != assembly.count or index in assembly.parts:
            return False
        return (is_oob or index == len(assembly.parts)) and (len(part) >= SMALLEST
                                                             or index == count - 1)

    def _bound(self, open_ones: Incomplete) -> None:
        """An honest sender never comes to that."""
        most = self.limit + (self.window if open_ones is self.oob else 0)
        while open_ones.size > most:
            open_ones.remove(next(iter(open_ones)))
            self.num_given_up += 1

    def give_up(self, open_ones: Incomplete) -> None:
        self.num_given_up += len(open_ones)
        for number in list(open_ones):
            open_ones.remove(number)

    def expire(self, before: Instant) -> None:
        """Give up what had its last part before that."""
        for open_ones in (self.ordered, self.oob):
            if any(assembly.since < before for assembly in open_ones.values()):
                self.give_up(open_ones)

    def first_incomplete(self, most: int) -> Seqno | None:
        """The seqno of the first fragment of the message that is being put together in
        order, if it has at most so many bytes: until it is complete its fragments are
        not acknowledged, so that a member that dies gets it whole in its next
        incarnation."""
        for assembly in self.ordered.values():
            if assembly.nbytes <= most:
                return assembly.first
        return None


def check_size(payload: bytes, limit: int) -> None:
    """MessageTooLargeError for a message that is too large for this group."""
    if len(payload) > limit:
        raise MessageTooLargeError(f"a message of {len(payload)} bytes is larger than max_message_size, which is {limit}; "
                                   "split it, or give every member a larger limit")
