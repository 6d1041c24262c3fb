"""The journals of several recorders of one group, read as one stream without
duplicates: sender and seqno identify a message, whichever recorder wrote it.

Each recorder has a journal of its own, and all are in one folder. For each sender:

- A seqno is *present* if any journal has it. It is read from the journal that has the
  longest run from there on. All journals have the same message, so the choice does not
  matter. (If a seqno is a fragment of a large message, all journals that have it know
  that too.)
- A seqno that no journal has is *waited for* while some journal ends before it: that
  recorder may come back and get it. The stream ends just before the first seqno that is
  waited for.
- A seqno is *lost* if every journal that knows the sender ends behind it: each of them
  recorded it as lost, purged it, or began later. A retired journal (its recorder will
  not come back) is never waited for, nor is a journal without any message of the
  sender.
- A stream does not go back: a journal that appears later, or fills a gap behind the
  stream's position, changes nothing.
- A micro-batch that runs again is read from the same journals as before. Its offset
  names them (see `offsets`). This matters because the times and the view of a row come
  from its recorder, and another recorder has others.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ringcast.errors import JournalError
from ringcast.journal.manifest import META, RETIRED, Extent, read_meta, unreadable
from ringcast.journal.offsets import Copy, Range
from ringcast.journal.reader import JournalReader, PurgedError, Span
from ringcast.paths import local_path


class JournalRange(NamedTuple):
    """Messages first..last (inclusive) of a sender, and the number of the journal that
    they are read from."""

    journal: int
    first: int
    last: int


def next_range(extents: Sequence[Extent | None], first: int, last: int) -> JournalRange | None:
    """Return the first range in first..last that a journal has; of several journals,
    the longest range. None if no journal has any of these seqnos."""
    best: JournalRange | None = None
    for number, extent in enumerate(extents):
        for begin, end in extent.held() if extent is not None else ():
            each = JournalRange(number, max(begin, first), min(end, last))
            if each.first <= each.last and (
                    best is None or (each.first, -each.last) < (best.first, -best.last)):
                best = each
    return best


def cover(extents: Sequence[Extent | None], first: int, last: int) -> Iterator[JournalRange]:
    """Return all ranges in first..last that the journals have, ascending and disjoint;
    the seqnos between them are in no journal."""
    while (each := next_range(extents, first, last)) is not None:
        yield each
        first = each.last + 1


def merged(extents: Sequence[Extent], retired: Sequence[bool], behind: int = 0) -> Extent:
    """Merge what several journals have of one sender, for a reader that has read up to
    `behind`."""
    low, high = min(extent.low for extent in extents), max(extent.high for extent in extents)
    active = [extent.high for extent, is_retired in zip(extents, retired, strict=True)
              if not is_retired]
    settled = max(behind, min(active, default=high))    # no recorder may still fill a gap up to it
    lost = []
    expected = low
    for each in [*cover(extents, low, high), JournalRange(0, high + 1, high)]:
        if expected < each.first:
            gap = (expected, min(each.first - 1, settled))
            if gap[0] <= gap[1]:
                lost.append(gap)
            if settled < each.first - 1:
                high = max(expected - 1, settled)
                break
        expected = each.last + 1
    return Extent(low, high, lost, min(extent.start for extent in extents))


class Journals:
    """The journals at a path: the journal that it is, or those in its subfolders, or
    none yet. Lists the folder once, and reads the digests at every call.

    Raises JournalError if something else is there, or if the journals are of different
    groups.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        self.journals = [JournalReader(each) for each in journal_paths(self.path)]
        groups = sorted({journal.group for journal in self.journals})
        if len(groups) > 1:
            raise JournalError(f"{self.path} has journals of the groups {', '.join(groups)}: keep "
                               "those of one group in one folder.")

    def extents(self, behind: Mapping[str, int] | None = None) -> dict[str, Extent]:
        """Return the merged extent of every sender, for a reader that has read up to
        `behind`."""
        # First: a recorder syncs its last messages, and then it is retired.
        retired = [(journal.path / RETIRED).exists() for journal in self.journals]
        known = self._extents()
        found = {}
        for sender in sorted({sender for extents in known for sender in extents}):
            having = [number for number, extents in enumerate(known) if sender in extents]
            found[sender] = merged([known[number][sender] for number in having],
                                   [retired[number] for number in having],
                                   (behind or {}).get(sender, 0))
        return found

    def reach(self) -> dict[str, int]:
        """Return the highest seqno of every sender in any journal."""
        known = self._extents()
        return {sender: max(extents[sender].high for extents in known if sender in extents)
                for sender in sorted({sender for extents in known for sender in extents})}

    @property
    def is_one(self) -> bool:
        """Return whether the path is itself a journal."""
        return [journal.path for journal in self.journals] == [self.path]

    def name_of(self, journal: JournalReader) -> str:
        """Return the name of a journal in offsets: the name of its directory, or "" if
        the path itself is the journal."""
        return "" if journal.path == self.path else journal.path.name

    def named(self, name: str) -> JournalReader:
        """Return the journal with this name, which must exist."""
        return next(journal for journal in self.journals if self.name_of(journal) == name)

    def copies(self, spans: Iterable[Range]) -> list[Copy]:
        """Choose the journals that these ranges are read from; leave out seqnos that no
        journal has."""
        known = self._extents()
        return [copy for span in spans for copy in self._copies(known, span)]

    def copies_again(self, spans: Iterable[Range], chosen: Mapping[str, Sequence[Copy]], *,
                     strict: bool, stand_in: bool) -> list[Copy]:
        """Choose for these ranges the same journals as before. For a sender without
        earlier choices, choose anew.

        Seqnos that had no journal then were skipped, and are skipped again, unless
        `strict`. If a journal no longer has a range that it was chosen for, raise
        JournalError, or with `stand_in` choose another journal.
        """
        known = self._extents()
        extents = {self.name_of(journal): each
                   for journal, each in zip(self.journals, known, strict=True)}
        found: list[Copy] = []
        for span in spans:
            expected = span.first
            for copy in chosen.get(span.sender, ()):
                if strict and expected < copy.first:
                    found += self._copies(known, Range(span.sender, expected, copy.first - 1))
                expected = copy.last + 1
                if _has(extents.get(copy.journal, {}).get(copy.sender), copy):
                    found.append(copy)
                elif stand_in or not copy.journal:
                    found += self._copies(known, Range(copy.sender, copy.first, copy.last))
                else:
                    raise copy_is_gone(self.path, copy)
            if expected <= span.last and (strict or span.sender not in chosen):
                found += self._copies(known, span._replace(first=expected))
        return found

    def _copies(self, known: Sequence[Mapping[str, Extent]], span: Range) -> Iterator[Copy]:
        for each in cover([extents.get(span.sender) for extents in known], span.first, span.last):
            yield Copy(span.sender, each.first, each.last,
                       self.name_of(self.journals[each.journal]))

    def read(self, sender: str, first: int, last: int, schema: pa.Schema, *,
             strict: bool) -> Iterator[pa.RecordBatch]:
        """Read the messages first..last (inclusive) of `sender`, in order and once, as
        batches of `schema`.

        If a journal is damaged, read the message from another one. Raises JournalError
        if no journal that has a message can give it; and, if `strict`, if no journal
        has a message of the range: it was purged since the read was planned.
        """
        if not self.journals:
            raise JournalError(f"There is no journal at {self.path} on this machine: it must be "
                               "visible here under the same path.")
        expected = first
        # The errors of the journals that could not give the message `expected`.
        failures: dict[int, JournalError] = {}
        while expected <= last:
            extents = [None if number in failures else journal.extents().get(sender)
                       for number, journal in enumerate(self.journals)]
            each = next_range(extents, expected, last)
            if each is None or each.first > expected:
                for failure in failures.values():
                    raise failure
                if strict:
                    raise JournalError(f"Message {expected} of {sender} was purged from "
                                       f"{self.path} before it was read; set the option "
                                       "failOnDataLoss to false to go on without it.")
                if each is None:
                    return
            journal = self.journals[each.journal]
            expected = each.first
            rows = journal.rows(sender, schema)
            try:
                for next_seqno, stored in journal.stored(sender, each.first, each.last,
                                                         payloads="payload" in schema.names):
                    expected = next_seqno
                    failures.clear()
                    if stored.num_rows:
                        yield rows(stored)
            except PurgedError:
                pass                    # the digest, which is read next, says so too
            except JournalError as failure:
                failures[each.journal] = failure

    def _extents(self) -> list[dict[str, Extent]]:
        return [journal.extents() for journal in self.journals]


def read_copy(path: Path, copy: Copy, schema: pa.Schema, *, segments: Sequence[Span] = (),
              strict: bool, stand_in: bool) -> Iterator[pa.RecordBatch]:
    """Read one copy under `path`, in order and once, as batches of `schema`. `segments`
    are the segments that had it when the read was planned.

    If its journal cannot give a message (any more), raise JournalError, or with
    `stand_in` read the rest from another journal, as `Journals.read` does.
    """
    expected = copy.first
    try:
        journal = JournalReader(path / copy.journal)
        rows = journal.rows(copy.sender, schema)
        payloads = "payload" in schema.names
        for next_seqno, stored in journal.stored(copy.sender, copy.first, copy.last, segments,
                                                 payloads=payloads):
            expected = next_seqno
            if stored.num_rows:
                yield rows(stored)
        return
    except JournalError as error:
        if copy.journal and not stand_in:
            raise copy_is_gone(path, copy._replace(first=expected)) from error
    yield from Journals(path).read(copy.sender, expected, copy.last, schema, strict=strict)


def copy_is_gone(path: Path, copy: Copy) -> JournalError:
    """Return the error for a micro-batch that cannot be read again as it was."""
    return JournalError(f"The journal {path / copy.journal} cannot give message {copy.first} of "
                        f"{copy.sender}, which this micro-batch was read from before: restore it; "
                        "or read without view_id, delivered_at and headers, which differ between "
                        "recorders; or set the option failOnDataLoss to false to take the row of "
                        "another recorder.")


def _has(extent: Extent | None, copy: Copy) -> bool:
    return extent is not None and any(first <= copy.first and copy.last <= last
                                      for first, last in extent.held())


def journal_paths(path: Path) -> list[Path]:
    """Return the journals at a path: the path itself, or its subfolders, or none if no
    recording has begun. Raises JournalError for anything else.

    Names with a leading dot or underscore are skipped, as Spark does.
    """
    try:
        if (path / META).exists():
            return [] if read_meta(path) is None else [path]
        folders = [path / name for name in sorted(os.listdir(path)) if name[0] not in "._"]
        if not all(folder.is_dir() for folder in folders):
            return [] if read_meta(path) is None else [path]
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise JournalError(f"{path} is not a journal directory ({error.strerror}): name the "
                           "directory itself.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    return [folder for folder in folders if read_meta(folder) is not None]
