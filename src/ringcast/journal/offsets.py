"""Offsets: digests {sender: highest seqno consumed}, inclusive, sorted by sender, with
every sender ever seen.

Spark compares offsets as text, so the same position must always be the same text. An
offset never forgets a sender, or that sender would be read again from its start. This
module is plain arithmetic for each sender, without Spark and files.

Spark keeps a position: the digest and, if the digest does not determine the rows of a
micro-batch, `read_from`: {sender: {"first-last": journal}}, the journal that each range
of the batch is read from. Other journals may have these messages too, with other times
of delivery.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ringcast.errors import JournalError
from ringcast.journal.manifest import Extent

Offset = dict[str, int]
Position = dict[str, Any]

READ_FROM = "read_from"     # not a sender: their names are name#incarnation


class Range(NamedTuple):
    """Messages first..last (inclusive) of one sender."""

    sender: str
    first: int
    last: int


class Copy(NamedTuple):
    """Messages first..last (inclusive) of one sender, and the journal that they are
    read from: the name of its directory in the folder of journals, or "" if the folder
    itself is the journal."""

    sender: str
    first: int
    last: int
    journal: str


Piece = TypeVar("Piece", Range, Copy)

NOT_RECORDED, PURGED, LOST = "not recorded", "purged", "lost"


class Loss(NamedTuple):
    """Messages first..last (inclusive) of one sender that cannot be read. Not recorded:
    every journal begins later or ends before. Purged: by the journal's retention. Lost:
    the sender had purged them before the recorder could receive them."""

    sender: str
    first: int
    last: int
    why: str


def canonical(offset: Mapping[str, int]) -> Offset:
    """Return the offset with its senders sorted, the form that Spark compares."""
    return dict(sorted(offset.items()))


def position(digest: Offset, copies: Iterable[Copy]) -> Position:
    """Return what Spark keeps: the digest, and the journals that the batch which ends
    there is read from, if there are `copies`."""
    named: dict[str, dict[str, str]] = {}
    for sender, first, last, journal in copies:
        named.setdefault(sender, {})[f"{first}-{last}"] = journal
    return {**digest, READ_FROM: named} if named else dict(digest)


def digest_of(position: Mapping[str, Any]) -> Offset:
    """Return the digest of a position."""
    return {sender: seqno for sender, seqno in position.items() if sender != READ_FROM}


def copies_of(position: Mapping[str, Any]) -> dict[str, list[Copy]]:
    """Return the copies that a position names, by sender, ascending."""
    found: dict[str, list[Copy]] = {}
    for sender, named in position.get(READ_FROM, {}).items():
        spans = [(*map(int, span.split("-")), journal) for span, journal in named.items()]
        found[sender] = [Copy(sender, first, last, journal) for first, last, journal in spans]
    return found


def earliest(extents: Mapping[str, Extent]) -> Offset:
    """Return the offset before all messages that the journal has."""
    return canonical({sender: extent.low - 1 for sender, extent in extents.items()})


def latest(extents: Mapping[str, Extent]) -> Offset:
    """Return the offset behind all messages that the journal has."""
    return canonical({sender: extent.high for sender, extent in extents.items()})


def advance(start: Mapping[str, int], target: Mapping[str, int], floor: Mapping[str, int],
            limit: int | None) -> Offset:
    """Return the offset that is at most `limit` messages after `start`, on the way to
    `target`. It goes back for no sender.

    A sender that is not in `start` begins at its `floor`. The smallest backlogs get
    their share of the limit first, so a quiet sender never waits for a busy one. The
    step is empty only if there is nothing to read.
    """
    begin = {sender: start.get(sender, floor.get(sender, 0)) for sender in {*start, *target}}
    backlog = {sender: max(0, target.get(sender, 0) - begin[sender]) for sender in begin}
    left = sum(backlog.values()) if limit is None else limit
    end = {}
    smallest_first = sorted(begin, key=lambda name: (backlog[name], name))
    for waiting, sender in zip(range(len(begin), 0, -1), smallest_first, strict=True):
        step = min(backlog[sender], left // waiting)
        end[sender] = begin[sender] + step
        left -= step
    return canonical(end)


def ranges(start: Mapping[str, int], end: Mapping[str, int],
           floor: Mapping[str, int]) -> list[Range]:
    """Return the ranges between two offsets, by sender. A sender that is not in `start`
    begins at its floor."""
    spans = [Range(sender, start.get(sender, floor.get(sender, 0)) + 1, last)
             for sender, last in sorted(end.items())]
    return [span for span in spans if span.first <= span.last]


def cut(spans: Sequence[Piece], rows: int) -> list[list[Piece]]:
    """Cut the ranges, one after the other, into partitions of `rows` messages.

    So small senders share a partition and its one task, and a long range is spread over
    several partitions.
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
    """Return the parts of the ranges that cannot be read."""
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
    """Return the messages that an offset counts as read and that are beyond the end of
    the journal: it was restored or replaced, or it is another journal."""
    return [Loss(sender, reach.get(sender, 0) + 1, seqno, NOT_RECORDED)
            for sender, seqno in sorted(start.items()) if seqno > reach.get(sender, 0)]


def refuse(missing: Sequence[Loss], what: str) -> None:
    """Raise JournalError, with the first three ranges, if anything is missing."""
    if not missing:
        return
    named = ", ".join(f"{sender} {first}..{last} ({why})"
                      for sender, first, last, why in missing[:3])
    more = f" and {len(missing) - 3} more ranges" if len(missing) > 3 else ""
    raise JournalError(f"{what}: {named}{more}; set the option failOnDataLoss to false to go on "
                       "without them.")
