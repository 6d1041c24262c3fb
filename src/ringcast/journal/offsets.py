"""Offsets are digests: {sender: highest seqno consumed}, inclusive, sorted by sender,
with every sender ever met.

Spark compares offsets as text, so the same position must always be the same text; and
an offset never forgets a sender, or that sender would be read again from its start. All
of this is plain arithmetic per sender: no Spark, no files.

What Spark keeps is a position: the digest and, where that alone does not say which rows
a micro-batch has, `read_from`: {sender: {"first-last": journal}}, the journal of
several that each range of the batch is read from. Other journals may have these
messages too, now or later, and their recorders saw them at other times.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ringcast.errors import JournalError
from ringcast.journal.manifest import Extent

Offset = dict[str, int]
Position = dict[str, Any]

READ_FROM = "read_from"  # no sender is called so: theirs are name#incarnation


class Range(NamedTuple):
    """Messages first..last (inclusive) of one sender."""

    sender: str
    first: int
    last: int


class Copy(NamedTuple):
    """Messages first..last (inclusive) of one sender, and the journal that they are
    read from, by the name of its directory in the folder of journals; "" is the journal
    that is the folder itself."""

    sender: str
    first: int
    last: int
    journal: str


Piece = TypeVar("Piece", Range, Copy)

NOT_RECORDED, PURGED, LOST = "not recorded", "purged", "lost"


class Loss(NamedTuple):
    """Messages first..last (inclusive) of one sender that cannot be had: no journal got
    that far or back that far, they were purged by its retention, or the sender had
    purged them before the recorder could have them."""

    sender: str
    first: int
    last: int
    why: str


def canonical(offset: Mapping[str, int]) -> Offset:
    """The same offset with its senders sorted, which is the form that Spark may see."""
    return dict(sorted(offset.items()))


def position(digest: Offset, copies: Iterable[Copy]) -> Position:
    """Return what Spark is to keep: the digest, and what the batch that ends there is
    read from, if that is said."""
    named: dict[str, dict[str, str]] = {}
    for sender, first, last, journal in copies:
        named.setdefault(sender, {})[f"{first}-{last}"] = journal
    return {**digest, READ_FROM: named} if named else dict(digest)


def digest_of(position: Mapping[str, Any]) -> Offset:
    """Return the digest of a position."""
    return {sender: seqno for sender, seqno in position.items() if sender != READ_FROM}


def copies_of(position: Mapping[str, Any]) -> dict[str, list[Copy]]:
    """Return what a position says that its batch is read from, ascending, for each
    sender of which it says so."""
    found: dict[str, list[Copy]] = {}
    for sender, named in position.get(READ_FROM, {}).items():
        spans = [(*map(int, span.split("-")), journal) for span, journal in named.items()]
        found[sender] = [Copy(sender, first, last, journal) for first, last, journal in spans]
    return found


def earliest(extents: Mapping[str, Extent]) -> Offset:
    """Just before everything the journal has."""
    return canonical({sender: extent.low - 1 for sender, extent in extents.items()})


def latest(extents: Mapping[str, Extent]) -> Offset:
    """Behind everything that is durable."""
    return canonical({sender: extent.high for sender, extent in extents.items()})


def advance(start: Mapping[str, int], target: Mapping[str, int], floor: Mapping[str, int],
            limit: int | None) -> Offset:
    """The offset at most `limit` messages behind `start` on the way to `target`; never
    behind `start` for any sender.

    A sender that `start` does not know begins at its `floor`. The limit is shared out
    by filling the smallest backlogs first, so that a quiet sender never waits for a
    busy one; the step is empty only if there is nothing to read.
    """
    begin = {sender: start.get(sender, floor.get(sender, 0)) for sender in {*start, *target}}
    backlog = {sender: max(0, target.get(sender, 0) - begin[sender]) for sender in begin}
    left = sum(backlog.values()) if limit is None else limit
    end = {}
    for waiting, sender in zip(range(len(begin), 0, -1),
                               sorted(begin, key=lambda name: (backlog[name], name)), strict=True):
        step = min(backlog[sender], left // waiting)
        end[sender] = begin[sender] + step
        left -= step
    return canonical(end)


def ranges(start: Mapping[str, int], end: Mapping[str, int], floor: Mapping[str, int]) -> list[Range]:
    """What lies between two offsets, by sender; a sender that `start` does not know
    begins at its floor."""
    spans = [Range(sender, start.get(sender, floor.get(sender, 0)) + 1, last) for sender,
             last in sorted(end.items())]
    return [span for span in spans if span.first <= span.last]


def cut(spans: Sequence[Piece], rows: int) -> list[list[Piece]]:
    """The ranges laid end to end and cut every `rows` messages: each list is one
    partition.

    Small senders thus share a partition, which costs a task only once, and a long range
    is spread over several.
    """
    partitions: list[list[Piece]] = []
    room = 0
    for span in spans:
        first = span.first
        while first <= span.last:
            if room == 0:
                partitions.append([])
                room = rows
            end = min(span.last, first + room - 1)
            partitions[-1].append(span._replace(first=first, last=end))
            room -= end - first + 1
            first = end + 1
    return partitions


def losses(spans: Sequence[Range], extents: Mapping[str, Extent]) -> list[Loss]:
    """What of the ranges cannot be read, though a reader at these offsets would expect
    it."""
    missing = []
    for sender, first, last in spans:
        extent = extents.get(sender)
        if extent is None:
            missing.append(Loss(sender, first, last, NOT_RECORDED))
            continue
        known = [(1, extent.start - 1, NOT_RECORDED), (extent.start, extent.low - 1, PURGED),
                 *((*lost, LOST) for lost in extent.lost), (extent.high + 1, last, NOT_RECORDED)]
        for begin, end, why in known:
            if max(begin, first) <= min(end, last):
                missing.append(Loss(sender, max(begin, first), min(end, last), why))
    return missing


def overtaken(start: Mapping[str, int], reach: Mapping[str, int]) -> list[Loss]:
    """What an offset says was read and the journal has no longer, or not yet: it was
    restored, replaced, or is another one."""
    return [Loss(sender, reach.get(sender, 0) + 1, seqno, NOT_RECORDED)
            for sender, seqno in sorted(start.items()) if seqno > reach.get(sender, 0)]


def refuse(missing: Sequence[Loss], what: str) -> None:
    """Raises JournalError if anything is missing, naming the first few ranges."""
    if not missing:
        return
    named = ", ".join(f"{sender} {first}..{last} ({why})" for sender, first, last,
                      why in missing[:3])
    more = f" and {len(missing) - 3} more ranges" if len(missing) > 3 else ""
    raise JournalError(f"{what}: {named}{more}; set the option failOnDataLoss to false to go on without them.")
