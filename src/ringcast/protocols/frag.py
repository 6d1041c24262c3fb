"""FRAG: a message that is larger than a datagram travels as fragments, and is put
together again: whole or not at all.

A fragment is a message of its stream like any other, with a flag and a head. The head
has the number that the sender gave to the whole message, the index of this part, and
the number of parts. A sender sends one large message at a time in each stream. So a
fragment of another message says that the one before was given up: send() raised
SendTimeoutError. (OOB messages may come in any order, so several of them can be
incomplete at a time. The fragments of an honest sender fit the window together.)

An incomplete message is forgotten when its sender leaves. It is given up when its
sender has sent other messages for frag_timeout and nothing more of it; but not while
anything of the stream is missing, because that may be the next fragment.
"""

import struct

from ringcast._core import wire
from ringcast.config import Config
from ringcast.errors import MessageTooLargeError
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.stack import Begun, Instant

HEAD = struct.Struct("<QII")  # number of the message, index of the part, number of parts
# Bytes that a part has at least, except the last. An incomplete message counts as so
# many bytes even if less of it is here. So neither the parts of a message nor the
# messages are too many.
SMALLEST = 256
SHARES = 4                      # parts of a window, of which one large message fills one at most


def goes_whole(count: int, size: int, config: Config) -> bool:
    """Return whether all fragments of a message go into a window in one step, and are
    acknowledged in one step: if so many, the first of which has `size` bytes, are at
    most a quarter of what a window takes. All members of a group decide alike."""
    return SHARES * count <= config.capacity and SHARES * count * size <= config.max_bytes


def cut(payload: bytes, number: int, bundle: int) -> list[bytes]:
    """Return the fragments of a message; each fills a datagram of `bundle` bytes."""
    size = size_of(bundle)
    starts = range(0, len(payload), size)
    return [HEAD.pack(number, index, len(starts)) + payload[start:start + size]
            for index, start in enumerate(starts)]


def size_of(bundle: int) -> int:
    """Return how many bytes of a message each of its fragments has, except the last."""
    return max(SMALLEST, min(bundle, wire.MAX_DATAGRAM) - (wire.MAX_DATAGRAM - wire.MAX_PAYLOAD)
               - HEAD.size)


def begin_of(seqno: Seqno, fragment: bytes) -> tuple[Seqno, bool] | None:
    """Return the seqno of the first fragment of a message, and whether this one is the
    last; None if anything else of the stream is between the two."""
    if len(fragment) <= HEAD.size:
        return None
    number, index, count = HEAD.unpack_from(fragment)
    return (number, index + 1 >= count) if (number + index) % MODULUS == seqno else None


def rejoin(fragments: list[bytes], parts: dict[int, list[bytes]]) -> list[tuple[int, bytes, bool]]:
    """Return the messages that end with fragments that were not acknowledged: for each
    the place of its last fragment, the payload, and whether that is only the end of a
    message. `parts` are those of the fragments before these, by message; what follows
    adds to them. A message without its last fragment is left out: its sender knows that
    it was not sent."""
    ended = []
    for place, fragment in enumerate(fragments):
        number, index, count = HEAD.unpack_from(fragment)
        parts.setdefault(number, []).append(fragment[HEAD.size:])
        if index == count - 1:
            here = parts.pop(number)
            ended.append((place, b"".join(here), len(here) < count))
    return ended


class Assembly:
    """A message whose fragments have not all come."""

    __slots__ = ("begin", "count", "first", "last", "nbytes", "parts", "since")

    def __init__(self, first: Seqno, begin: int, count: int) -> None:
        self.first = first              # the lowest seqno of the fragments that came
        self.last = first               # and of the last part, once it has come
        self.begin = begin              # the index of the first part that comes in order
        self.count = count              # of parts of the message
        self.parts: dict[int, bytes] = {}
        self.nbytes = 0
        self.since: Instant = 0         # when the last part came

    @property
    def size(self) -> int:
        """Return how many bytes it counts as within a limit."""
        return max(SMALLEST, self.nbytes)

    def goes_whole(self, config: Config) -> bool:
        """Return whether it is acknowledged in one step, when it is whole: a member
        that dies gets it whole in its next incarnation."""
        return goes_whole(self.count, HEAD.size + len(self.parts[self.begin]), config)


class Incomplete(dict[int, Assembly]):
    """Incomplete messages by their numbers, and how many bytes they count as."""

    size = 0

    def begin(self, number: int, first: Seqno, begin: int, count: int) -> Assembly:
        assembly = self[number] = Assembly(first, begin, count)
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
    """The incomplete messages of one stream. `limit` is how many bytes a whole message
    may have, `window` how many all parts that are on the way at once may have. If a
    stream `may_begin_inside` a message, the rest of that one is put together, too."""

    __slots__ = ("is_rest", "last", "limit", "may_begin_inside", "num_bad", "num_given_up", "oob",
                 "ordered", "window")

    def __init__(self, limit: int, window: int, may_begin_inside: bool = False) -> None:
        self.limit, self.window = limit, window
        self.may_begin_inside = may_begin_inside        # until the first fragment in order
        self.ordered = Incomplete()     # one at most
        self.oob = Incomplete()
        self.last: Seqno = 0            # of the last fragment of the message that add() returned
        self.is_rest = False            # the begin of what add() took is not here
        self.num_given_up = 0           # messages
        self.num_bad = 0                # fragments that make no sense

    def __len__(self) -> int:
        return len(self.ordered) + len(self.oob)

    def lacks_begin(self, fragment: bytes, is_oob: bool) -> bool:
        """Return whether this is a fragment of a message whose begin is not here."""
        if len(fragment) <= HEAD.size:
            return False
        number, index, _ = HEAD.unpack_from(fragment)
        return index > 0 and number not in (self.oob if is_oob else self.ordered)

    def add(self, seqno: Seqno, fragment: bytes, is_oob: bool, now: Instant) -> bytes | None:
        """Keep a fragment. Return the whole message if this completes it. If the stream
        began inside of it, that is its rest, with the head of the rest's first
        fragment."""
        open_ones, self.is_rest = self.oob if is_oob else self.ordered, False
        if len(fragment) <= HEAD.size:
            self.num_bad += 1
            return None
        number, index, count = HEAD.unpack_from(fragment)
        assembly = open_ones.get(number)
        if assembly is None:
            if not is_oob:
                self.give_up(open_ones)
            if index and not (is_oob or self.may_begin_inside):
                self.num_bad += 1                       # the rest of one that was given up
                self.is_rest = True
                return None
            self.may_begin_inside &= is_oob
            assembly = open_ones.begin(number, seqno, 0 if is_oob else index, count)
        part, self.is_rest = fragment[HEAD.size:], assembly.begin > 0
        if not self._is_possible(assembly, index, count, part, is_oob):
            self.num_bad += 1
            self.num_given_up += 1
            open_ones.remove(number)
            return None
        if precedes(seqno, assembly.first):
            assembly.first = seqno
        open_ones.add(assembly, index, part, now)
        if index == count - 1:
            assembly.last = seqno
        if assembly.begin + len(assembly.parts) == count:
            open_ones.remove(number)
            self.last = assembly.last
            head = [HEAD.pack(number, assembly.begin, count)] if assembly.begin else []
            return b"".join(head + [assembly.parts[part] for part in range(assembly.begin, count)])
        self._drop_excess(open_ones)
        return None

    def _is_possible(self, assembly: Assembly, index: int, count: int, part: bytes,
                     is_oob: bool) -> bool:
        """Return whether an honest sender may send this part next."""
        if index >= count or count != assembly.count or index in assembly.parts:
            return False
        is_next = is_oob or index == assembly.begin + len(assembly.parts)
        return is_next and (len(part) >= SMALLEST or index == count - 1)

    def _drop_excess(self, open_ones: Incomplete) -> None:
        """Give up the oldest messages if they are too large together. Those of an
        honest sender never are."""
        most = self.limit + (self.window if open_ones is self.oob else 0)
        while open_ones.size > most:
            open_ones.remove(next(iter(open_ones)))
            self.num_given_up += 1

    def give_up(self, open_ones: Incomplete) -> None:
        """Drop these messages, and count them."""
        self.num_given_up += len(open_ones)
        for number in list(open_ones):
            open_ones.remove(number)

    def expire(self, before: Instant) -> None:
        """Give up the messages if the last part of one of them came before this
        instant."""
        for open_ones in (self.ordered, self.oob):
            if any(assembly.since < before for assembly in open_ones.values()):
                self.give_up(open_ones)

    def begun(self, cut: Seqno) -> Begun | None:
        """Return what is here of the ordered message that is incomplete, if a part of
        that is before a cut."""
        for number, assembly in self.ordered.items():
            if not precedes(cut, assembly.first):
                return Begun(number, assembly.begin, [*assembly.parts.values()])
        return None

    def incomplete(self) -> Assembly | None:
        """Return the ordered message that is incomplete, if its begin came."""
        for assembly in self.ordered.values():
            if not assembly.begin:
                return assembly
        return None


def check_size(payload: bytes, limit: int) -> None:
    """Raise MessageTooLargeError if a message is too large for this group."""
    if len(payload) > limit:
        raise MessageTooLargeError(f"a message of {len(payload)} bytes is larger than "
                                   f"max_message_size, which is {limit}; split it, or give every "
                                   "member a larger limit")
