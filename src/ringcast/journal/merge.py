"""Several recorders of one group make one stream, without duplicates: a message is its
sender and seqno, whoever recorded it.

Each recorder has a journal of its own, and all lie in one folder. Of one sender:

- A seqno is *there* when any journal holds it. It is read from one journal, the one
  that goes on longest from there; which it was does not matter, as all were given the
  same message. (That a seqno is no message, but a part of a large one, is also
  something that a journal holds, and the same in all.)
- A seqno that none holds is *waited for* as long as some journal ends before it: that
  recorder may come back and get it. The stream's end is the last seqno before the first
  one waited for.
- It is *lost* when every journal that knows the sender ends behind it: each of them
  says that it is lost, or had purged it, or began later. A journal that is retired (its
  recorder will not come back) is never waited for, nor is one that has nothing of the
  sender.
- What a stream has passed stays passed: a journal that appears later, or fills a gap
  behind it, changes nothing.
- A micro-batch that runs again is read from the same journals as before, which its
  offset names (see `offsets`). For the times and the view of a row are its recorder's,
  and another that has caught up meanwhile has others.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ringcast.errors import JournalError
from ringcast.journal.manifest import META, RETIRED, Extent, read_meta
from ringcast.journal.offsets import Copy, Range
from ringcast.journal.reader import JournalReader, PurgedError, Span
from ringcast.paths import local_path


class Part(NamedTuple):
    """Messages first..last (inclusive) of a sender, and which of several journals they
    are read from."""

    journal: int
    first: int
    last: int


def next_part(extents: Sequence[Extent | None], first: int, last: int) -> Part | None:
    """The first part of first..last that any of the journals holds, as long as it goes
    in the one that holds it longest."""
    best: Part | None = None
    for number, extent in enumerate(extents):
        for begin, end in extent.held() if extent is not None else ():
            part = Part(number, max(begin, first), min(end, last))
            if part.first <= part.last and (best is None
                                            or (part.first, -part.last) < (best.first, -best.last)):
                best = part
    return best


def cover(extents: Sequence[Extent | None], first: int, last: int) -> Iterator[Part]:
    """All parts of first..last, ascending and disjoint; what no journal holds lies
    between them."""
    while (part := next_part(extents, first, last)) is not None:
        yield part
        first = part.last + 1


def merged(extents: Sequence[Extent], retired: Sequence[bool], behind: int = 0) -> Extent:
    """What several journals have of one sender, as if they were one; for a reader that
    has what is up to `behind`."""
    low, high = min(extent.low for extent in extents), max(extent.high for extent in extents)
    settled = max(behind,
                  min((extent.high for extent, final in zip(extents, retired, strict=True) if not final), default=high))
    lost = []
    expected = low
    for part in [*cover(extents, low, high), Part(0, high + 1, high)]:
        if expected < part.first:
            gap = (expected, min(part.first - 1, settled))
            if gap[0] <= gap[1]:
                lost.append(gap)
            if settled < part.first - 1:
                high = max(expected - 1, settled)
                break
        expected = part.last + 1
    return Extent(low, high, lost, min(extent.start for extent in extents))


class Journals:
    """The journals at a path: the one that is there, or all in its subfolders, or none
    yet. Looks at the folder once, at their contents whenever it is asked.

    Raises JournalError if something else is there, or the journals are of different
    groups.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        self.journals = [JournalReader(each) for each in journal_paths(self.path)]
        groups = sorted({journal.group for journal in self.journals})
        if len(groups) > 1:
            raise JournalError(f"{self.path} has journals of the groups {', '.join(groups)}: keep those of one group in one folder.")

    def extents(self, behind: Mapping[str, int] | None = None) -> dict[str, Extent]:
        """What there is of every sender, as in one journal, for a reader that has got
        as far as `behind`."""
        known = self._known()
        retired = [(journal.path / RETIRED).exists() for journal in self.journals]
        found = {}
        for sender in sorted({sender for extents in known for sender in extents}):
            having = [(extents[sender], final) for extents,
                      final in zip(known, retired, strict=True) if sender in extents]
            each, finals = zip(*having, strict=True)
            found[sender] = merged(each, finals, (behind or {}).get(sender, 0))
        return found

    def reach(self) -> dict[str, int]:
        """The highest seqno of every sender in any journal, waited for or not."""
        known = self._known()
        return {sender: max(extents[sender].high for extents in known if sender in extents)
                for sender in sorted({sender for extents in known for sender in extents})}

    @property
    def is_one(self) -> bool:
        """Whether the path is itself the journal."""
        return [journal.path for journal in self.journals] == [self.path]

    def name_of(self, journal: JournalReader) -> str:
        """Return what offsets call a journal: the name of its directory, or "" for the
        one that is the path itself."""
        return "" if journal.path == self.path else journal.path.name

    def named(self, name: str) -> JournalReader:
        """Return the journal that offsets call so; it is there."""
        return next(journal for journal in self.journals if self.name_of(journal) == name)

    def copies(self, spans: Iterable[Range]) -> list[Copy]:
        """Choose the journals that these ranges are read from; what none holds is left
        out."""
        known = self._known()
        return [copy for span in spans for copy in self._copies(known, span)]

    def copies_again(self, spans: Iterable[Range], chosen: Mapping[str, Sequence[Copy]], *,
                     strict: bool,
                     stand_in: bool) -> list[Copy]:
        """Choose for these ranges what was chosen before; for a sender of which nothing
        is chosen, anew.

        What had no journal then was passed over, and is again, unless `strict`. A
        journal that no longer holds what it was chosen for is a JournalError, or with
        `stand_in` another takes its place.
        """
        known = self._known()
        extents = {self.name_of(journal): each for journal,
                   each in zip(self.journals, known, strict=True)}
        found: list[Copy] = []
        for span in spans:
            expected = span.first
            for copy in chosen.get(span.sender, ()):
                if strict and expected < copy.first:
                    found += self._copies(known, Range(span.sender, expected, copy.first - 1))
                expected = copy.last + 1
                if _holds(extents.get(copy.journal, {}).get(copy.sender), copy):
                    found.append(copy)
                elif stand_in or not copy.journal:
                    found += self._copies(known, Range(copy.sender, copy.first, copy.last))
                else:
                    raise no_longer(self.path, copy)
            if expected <= span.last and (strict or span.sender not in chosen):
                found += self._copies(known, span._replace(first=expected))
        return found

    def _copies(self, known: Sequence[Mapping[str, Extent]], span: Range) -> Iterator[Copy]:
        for part in cover([extents.get(span.sender) for extents in known], span.first, span.last):
            yield Copy(span.sender, part.first, part.last,
                       self.name_of(self.journals[part.journal]))

    def read(self, sender: str, first: int, last: int, schema: pa.Schema, *, strict: bool) -> Iterator[pa.RecordBatch]:
        """The messages first..last (inclusive) of `sender`, in order and once, as
        batches of `schema`.

        A journal that is damaged is stood in for by another that has the message.
        Raises JournalError when none can give a message that one has, and, if `strict`,
        when one of the range is in none, so that it was purged since the read was
        planned.
        """
        if not self.journals:
            raise JournalError(f"There is no journal at {self.path} on this machine: it must be visible here under the same path.")
        expected = first
        failures: dict[int, JournalError] = {}  # of the journals that could not give the message
                                                # `expected`
        while expected <= last:
            extents = [None if number in failures else journal.extents().get(sender) for number,
                       journal in enumerate(self.journals)]
            part = next_part(extents, expected, last)
            if part is None or part.first > expected:
                for failure in failures.values():
                    raise failure
                if strict:
                    raise JournalError(f"Message {expected} of {sender} was purged from {self.path} before it was read; set the "
                                       "option failOnDataLoss to false to go on without it.")
                if part is None:
                    return
            journal = self.journals[part.journal]
            expected = part.first
            rows = journal.rows(sender, schema)
            try:
                for behind, stored in journal.stored(sender, part.first, part.last,
                                                     payloads="payload" in schema.names):
                    expected = behind
                    failures.clear()
                    if stored.num_rows:
                        yield rows(stored)
            except PurgedError:
                pass  # the next look at the digest says so too
            except JournalError as failure:
                failures[part.journal] = failure

    def _known(self) -> list[dict[str, Extent]]:
        return [journal.extents() for journal in self.journals]


def read_copy(path: Path, copy: Copy, schema: pa.Schema, *, segments: Sequence[Span] = (),
              strict: bool,
              stand_in: bool) -> Iterator[pa.RecordBatch]:
    """Read one copy under `path`, in order and once, as batches of `schema`. `segments`
    are those that had it when the read was planned.

    When its journal cannot give a message (any more), that is a JournalError, or with
    `stand_in` another journal that has it gives the rest, as `Journals.read` does.
    """
    expected = copy.first
    try:
        journal = JournalReader(path / copy.journal)
        rows = journal.rows(copy.sender, schema)
        payloads = "payload" in schema.names
        for behind, stored in journal.stored(copy.sender, copy.first, copy.last, segments,
                                             payloads=payloads):
            expected = behind
            if stored.num_rows:
                yield rows(stored)
        return
    except JournalError as error:
        if copy.journal and not stand_in:
            raise no_longer(path, copy._replace(first=expected)) from error
    yield from Journals(path).read(copy.sender, expected, copy.last, schema, strict=strict)


def no_longer(path: Path, copy: Copy) -> JournalError:
    """Say that a micro-batch cannot be read again as it was."""
    return JournalError(
        f"The journal {path / copy.journal} no longer gives message {copy.first} of {copy.sender}, "
        f"which this micro-batch is "
        "read from there: restore it; or read without view_id, delivered_at and headers, which "
        "other recorders saw "
        "otherwise; or set the option failOnDataLoss to false to take theirs."
    )


def _holds(extent: Extent | None, copy: Copy) -> bool:
    return extent is not None and any(first <= copy.first and copy.last <= last for first,
                                      last in extent.held())


def journal_paths(path: Path) -> list[Path]:
    """The journals at a path: itself, or its subfolders, or none as long as nothing was
    started. JournalError for anything else.

    Names with a leading dot or underscore are passed over, as Spark does.
    """
    if (path / META).exists():
        return [] if read_meta(path) is None else [path]
    try:
        names = sorted(name for name in os.listdir(path) if name[0] not in "._")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"{path} is not a journal directory ({error.strerror}): name the directory itself.") from error
    folders = [path / name for name in names]
    if not all(folder.is_dir() for folder in folders):
        return [] if read_meta(path) is None else [path]
    return [folder for folder in folders if read_meta(folder) is not None]
