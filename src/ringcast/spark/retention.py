"""How long a journal keeps what it holds: by age, by size, and by what streams have committed.

Limits (age, size) say what should go; subscriptions say what may go. A sealed segment is removed when every named subscription
has committed all of it, and, if there is a limit, one of them is exceeded. So nothing that a named stream still needs is ever
removed, not even when the journal has outgrown its limit; and a stream that nobody named never keeps anything.

A subscription is a file in the journal that a stream with `subscriptionName` replaces at each commit. One that has not
committed yet keeps everything.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import ConfigError, JournalError
from .journal import NS_PER_US, Journal
from .manifest import SUBSCRIPTIONS, disk, read_json, sync_directory, write_json
from .merge import journal_paths
from .offsets import Offset
from .options import subscription_name
from .reader import JournalReader


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """What a stream has committed: the digest, and when, in nanoseconds since 1970."""

    digest: dict[str, int]
    committed_at: int


@dataclass(frozen=True)
class Retention:
    """What a journal keeps: messages for `keep_ns` nanoseconds after their delivery, up to `keep_bytes` of files, and whatever one
    of `subscriptions` has not committed. None is no limit. ConfigError for a limit that is not positive."""

    keep_ns: int | None = None
    keep_bytes: int | None = None
    subscriptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for limit in (self.keep_ns, self.keep_bytes):
            if limit is not None and limit <= 0:
                raise ConfigError(f"a limit of {limit} would keep nothing: give a positive one, or none.")
        for name in self.subscriptions:
            subscription_name(name)

    @property
    def keeps_everything(self) -> bool:
        """Whether there is nothing to enforce."""
        return self.keep_ns is None and self.keep_bytes is None and not self.subscriptions

    def enforce(self, journal: Journal, *, now: int | None = None, committed: Sequence[Offset] = ()) -> int:
        """Removes from `journal` what need not be kept at `now` (nanoseconds since 1970; default: the time it is) and returns how many
        bytes that freed. `committed` are more digests that allow removal, from checkpoints for example."""
        if self.keeps_everything and not committed:
            return 0
        journal.sync()
        digests = [*committed, *(self._digest(journal.path, name) for name in self.subscriptions)]
        bounds: dict[str, int] = {}
        total, pieces = _pieces(JournalReader(journal.path))
        horizon = None if self.keep_ns is None else (now if now is not None else time.time_ns()) - self.keep_ns
        for piece in pieces:
            due = self.keep_bytes is None and horizon is None
            due |= horizon is not None and piece.delivered_to * NS_PER_US < horizon
            due |= self.keep_bytes is not None and total > self.keep_bytes
            if not due or any(digest.get(piece.sender, 0) < piece.last for digest in digests):
                continue
            if piece.first_of_sender or bounds.get(piece.sender, 0) == piece.before:
                bounds[piece.sender] = piece.last
                total -= piece.size
        return journal.purge(bounds)

    def _digest(self, path: Path, name: str) -> Offset:
        found = subscriptions(path).get(name)
        return found.digest if found is not None else {}


class _Piece(NamedTuple):
    sender: str
    last: int
    before: int  # the last seqno of the segment before it
    first_of_sender: bool
    delivered_to: int  # microseconds; never earlier than that of the segment before it
    size: int


def _pieces(journal: JournalReader) -> tuple[int, list[_Piece]]:
    """The size of all segments, and those of every sender, oldest first."""
    total = 0
    pieces: list[_Piece] = []
    for sender in journal.extents():
        before: _Piece | None = None
        for segment in journal.segments(sender):
            newest = max(entry.delivered_to for entry in journal.entries(sender, segment.first, segment.last))
            if before is None:
                before = _Piece(sender, segment.last, 0, True, newest, segment.size)
            else:
                before = _Piece(sender, segment.last, before.last, False, max(newest, before.delivered_to), segment.size)
            total += segment.size
            pieces.append(before)
    return total, sorted(pieces, key=lambda piece: piece.delivered_to)


def subscribe(path: Path, name: str, digest: Mapping[str, int]) -> None:
    """Writes what the stream `name` has committed into every journal at `path`. JournalError if it cannot be written."""
    found = Subscription(dict(digest), time.time_ns())
    for journal in journal_paths(path):
        folder = journal / SUBSCRIPTIONS
        with disk(journal):
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                sync_directory(journal, fsync=True)
            write_json(folder / f"{subscription_name(name)}.json", found, fsync=True)


def subscriptions(path: Path) -> dict[str, Subscription]:
    """The subscriptions of one journal, by name."""
    found = {}
    for file in sorted((path / SUBSCRIPTIONS).glob("*.json")):
        subscription = read_json(file, Subscription, remedy="delete it; the stream writes it again with its next commit")
        if subscription is not None:
            found[file.stem] = subscription
    return found


def committed(checkpoint: Path) -> Offset:
    """The digest that a streaming query has committed, from its checkpoint directory.

    Spark tells a source of a commit only when it plans the next batch, and never of the last one; the checkpoint knows it at once.
    JournalError if it is not a checkpoint, nothing is committed yet, or the query has not exactly one ringcast source.
    """
    try:
        batches = {int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()}
        logged = [int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal()]
    except OSError as error:
        raise JournalError(f"{checkpoint} is not the checkpoint of a streaming query ({error.strerror}): name the query's "
                           "checkpointLocation.") from error
    last = max(batches.intersection(logged), default=None)
    if last is None:
        raise JournalError(f"The query of {checkpoint} has committed nothing yet: let it finish a batch first.")
    version, _, *sources = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    digests = list(_digests(sources))
    if version != "v1" or len(digests) != 1:
        raise JournalError(f"{checkpoint} has {len(digests)} offsets of ringcast sources in its log (format {version}): exactly one, "
                           "in format v1, can be told apart.")
    return digests[0]


def _digests(lines: Sequence[str]) -> Iterator[Offset]:
    """The lines that are digests; other sources write other things."""
    for line in lines:
        try:
            digest = msgspec.json.decode(line, type=dict[str, int])
        except msgspec.MsgspecError:
            continue
        if all("#" in sender for sender in digest):
            yield digest
