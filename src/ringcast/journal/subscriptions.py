"""What streams have committed: as subscriptions, which retention reads, and as read
from Spark's own checkpoint.

A subscription is a file in a journal. A stream with `subscriptionName` replaces it at
each commit. Before its first commit a stream has committed nothing, and so retention
removes nothing that waits for it.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ringcast.decoding import UNDECODABLE
from ringcast.errors import ConfigError, JournalError
from ringcast.journal.manifest import (
    LOCK,
    SUBSCRIPTIONS,
    lock_within,
    os_errors_as_journal_error,
    read_json,
    sync_directory,
    unreadable,
    write_json,
)
from ringcast.journal.merge import journal_paths
from ringcast.journal.offsets import Offset, digest_of
from ringcast.journal.segments import SEQNO_MAX
from ringcast.paths import local_path

COMMIT_TIMEOUT = 60.0       # seconds for the lock, which others hold for a moment

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """What a stream has committed: the digest, and the time of the commit in
    nanoseconds since 1970."""

    digest: dict[str, int]
    committed_at: int


def subscription_name(name: str) -> str:
    """Return the name if a file may have it. Raises ConfigError otherwise."""
    if not _NAME.fullmatch(name):
        raise ConfigError("A subscription's name has up to 100 letters, digits, dots, dashes and "
                          f"underscores, and begins with a letter or digit; {name!r} does not.")
    return name


def subscribe(path: Path, name: str, digest: Mapping[str, int]) -> None:
    """Write what the stream `name` has committed into every journal at `path`. Several
    processes may do so at one time. Raises JournalError if it cannot be written."""
    found = Subscription(dict(digest), time.time_ns())
    for journal in journal_paths(local_path(path)):
        folder = journal / SUBSCRIPTIONS
        with os_errors_as_journal_error(journal):
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                sync_directory(journal, fsync=True)
            with open(folder / LOCK, "ab") as lock:
                if not lock_within(lock.fileno(), COMMIT_TIMEOUT):
                    raise JournalError(f"{lock.name} is held by another process that commits, for "
                                       f"{COMMIT_TIMEOUT:g} s: if that is stopped, let it go on "
                                       "(kill -CONT), or end it; then commit again.")
                # Writers share the name of the draft.
                write_json(folder / f"{subscription_name(name)}.json", found, fsync=True)


def subscriptions(path: Path) -> dict[str, Subscription]:
    """Return the subscriptions of one journal, by name."""
    found = {}
    remedy = "delete it; the stream writes it again with its next commit"
    for file in sorted((path / SUBSCRIPTIONS).glob("*.json")):
        subscription = read_json(file, Subscription, remedy=remedy)
        if subscription is not None:
            found[file.stem] = subscription
    return found


def committed(checkpoint: Path) -> Offset:
    """Return the digest that a streaming query has committed, from its checkpoint
    directory.

    Spark tells a source of a commit only when it plans the next batch, and never of the
    last commit; the checkpoint has it at once. Raises JournalError if this is not a
    checkpoint, if it is damaged, if nothing is committed yet, or if the query does not
    have exactly one ringcast source.
    """
    checkpoint = local_path(checkpoint)
    try:
        batches = {int(file.name) for file in (checkpoint / "commits").iterdir()
                   if file.name.isdecimal()}
        logged = [int(file.name) for file in (checkpoint / "offsets").iterdir()
                  if file.name.isdecimal()]
    except OSError as error:
        raise JournalError(f"{checkpoint} is not the checkpoint of a streaming query "
                           f"({error.strerror}): name the query's checkpointLocation.") from error
    last = max(batches.intersection(logged), default=None)
    if last is None:
        raise JournalError(f"The query of {checkpoint} has committed nothing yet: let it finish a "
                           "batch first.")
    log = checkpoint / "offsets" / str(last)
    try:
        version, *lines = log.read_text("utf-8").splitlines() or [""]
    except UnicodeDecodeError as error:
        raise _damaged(log, str(error)) from error
    except OSError as error:
        raise unreadable(log, error) from error
    digests = list(_digests(lines[1:]))     # the first line is about the batch
    if version != "v1" or len(digests) != 1:
        raise JournalError(f"{checkpoint} has {len(digests)} offsets of ringcast sources in its "
                           f"log (format {version}): there must be exactly one, in format v1.")
    for sender, seqno in digests[0].items():
        if not 0 <= seqno <= SEQNO_MAX:
            raise _damaged(log, f"seqno {seqno} of {sender} does not fit 63 bits")
    return digests[0]


def _damaged(log: Path, why: str) -> JournalError:
    return JournalError(f"{log} is damaged ({why}): restore it from another copy, or let the query "
                        "commit another batch.")


def _digests(lines: Sequence[str]) -> Iterator[Offset]:
    """Return the lines that are digests; other sources write other texts."""
    for line in lines:
        try:
            digest = msgspec.convert(digest_of(msgspec.json.decode(line, type=dict[str, Any])),
                                     dict[str, int])
        except UNDECODABLE:
            continue
        if all("#" in sender for sender in digest):
            yield digest
