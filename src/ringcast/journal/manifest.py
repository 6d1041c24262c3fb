"""The small files of a journal, and how every file of it becomes durable.

A journal is a directory:

    journal.json                  format, version, group, and the member that records
    digest.json                   for each sender the lowest and highest durable seqno,
                                  and the ranges that are lost
    lock                          held (flock) by the one writer
    retired                       exists if the recorder will not come back; readers of
                                  several journals do not wait for this one
    subscriptions/<name>.json     for each named stream what it has committed
    subscriptions/lock            held (flock) while one of them is written
    <sender>/sender.json          the sender that this folder belongs to
    <sender>/segments.log         the segments, so that readers need not list them
                                  (see segment_log)
    <sender>/<first>.arrows       the open segment (tail)
    <sender>/<first>.idx          its index, which says which of its bytes are durable
    <sender>/<first>-<last>.arrow, .idx       a sealed segment and its index
    <sender>/*.damaged            copies of an open segment and its index that were cut
                                  while there was no digest; nothing reads them, and
                                  docs/spark-journal.md says what they are good for

The JSON files are replaced atomically. They have a CRC-32 of their body, so that a
flipped digit is found: a digest that is wrong by one would lose or invent messages.
"""

import errno
import fcntl
import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from ringcast.decoding import UNDECODABLE
from ringcast.errors import JournalError

FORMAT = "ringcast-journal"
VERSION = 3
READABLE = (2, VERSION)  # format 2 has indexes without checksums of what lies before the payloads
META, DIGEST, LOCK, SENDER = "journal.json", "digest.json", "lock", "sender.json"
RETIRED, SUBSCRIPTIONS = "retired", "subscriptions"

FOLDER_NAME_MAX = 120  # characters; most file systems allow 255 bytes

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

T = TypeVar("T")


class JournalMeta(msgspec.Struct):
    """The contents of journal.json. Unknown fields are allowed: a later version may
    have more, and must still be recognized by its number."""

    format: str
    version: int
    group: str
    recorder: str = ""


class Owner(msgspec.Struct, forbid_unknown_fields=True):
    """The contents of sender.json: the sender that a folder belongs to."""

    sender: str


class Extent(msgspec.Struct, forbid_unknown_fields=True):
    """The durable messages of one sender: seqnos low..high (inclusive), except the
    ranges in `lost` (ascending, disjoint). start..low-1 were purged; what is below
    `start` was sent before the recording. high == low - 1 if nothing is left."""

    low: int
    high: int
    lost: list[tuple[int, int]] = []
    start: int = 1

    def held(self) -> list[tuple[int, int]]:
        """Return the ranges that can be read, ascending."""
        edges = [self.low - 1, *(edge for first, last in self.lost for edge in (first, last)),
                 self.high + 1]
        return [(edges[at] + 1, edges[at + 1] - 1) for at in range(0, len(edges), 2)
                if edges[at] + 1 < edges[at + 1]]


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    crc32: int
    body: msgspec.Raw


def write_json(path: Path, body: object, *, fsync: bool) -> None:
    """Replace the file in one step: a reader sees the old file or the new one, even
    after a crash. Only one may write it at a time: the draft has one name."""
    raw = msgspec.json.encode(body, order="sorted")
    draft = path.with_name(path.name + ".tmp")
    with open(draft, "wb") as file:
        file.write(msgspec.json.encode(_Envelope(zlib.crc32(raw), msgspec.Raw(raw))))
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    os.replace(draft, path)
    sync_directory(path.parent, fsync=fsync)


def lock_within(descriptor: int, seconds: float) -> bool:
    """Take the lock (flock) of a file. Return False if others hold it for so long: a
    process that was stopped holds its locks until it goes on."""
    end = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)


def read_json(path: Path, kind: type[T], *, remedy: str) -> T | None:
    """Return the body of a file written by `write_json`; None if there is no such file.
    Raises JournalError, with `remedy`, if the file is damaged."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
        body = bytes(envelope.body)
        if zlib.crc32(body) != envelope.crc32:
            raise ValueError("its checksum is wrong")
        return msgspec.json.decode(body, type=kind)
    except (ValueError, *UNDECODABLE) as error:
        raise JournalError(f"{path} is damaged ({error}): {remedy}.") from error


def unreadable(path: Path, error: OSError) -> JournalError:
    """Make the error for a file that the system does not give."""
    return JournalError(f"{path} cannot be read ({error.strerror}): check its permissions and "
                        "the disk.")


def read_meta(path: Path) -> JournalMeta | None:
    """Return the contents of journal.json; None if no journal was started at `path` yet
    (there is no directory, or an empty one).

    Raises JournalError for anything else that is not a journal of this version.
    """
    meta = read_json(path / META, JournalMeta,
                     remedy="restore it from another copy; it holds format, version and group")
    if meta is None:
        try:
            names = set(os.listdir(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(f"{path} is not a journal directory ({error.strerror}): name the "
                               "directory itself.") from error
        if META not in names and not all(name in (LOCK, DIGEST) or name.endswith(".tmp")
                                         for name in names):
            raise JournalError(f"{path} is not a journal (it has files but no {META}): name a "
                               "journal, or an empty directory.")
        return None
    if meta.format != FORMAT or meta.version not in READABLE:
        raise JournalError(f"{path} is a {meta.format} of version {meta.version}, this ringcast "
                           f"reads {FORMAT} {VERSION}: use the ringcast version that wrote it.")
    return meta


def read_digest(path: Path) -> dict[str, Extent] | None:
    """Return the durable extent of every sender, sorted by sender; None if the file is
    missing."""
    remedy = ("delete it and open the journal once with Journal(), which rebuilds it from the "
              "segments")
    digest = read_json(path / DIGEST, dict[str, Extent], remedy=remedy)
    return None if digest is None else dict(sorted(digest.items()))


def folder_name(sender: str) -> str:
    """Return the name of a sender's folder: readable, safe on every file system, and
    never the same for two senders."""
    name = quote(sender, safe="")
    if len(name) <= FOLDER_NAME_MAX:
        return name
    digest = hashlib.blake2b(sender.encode(), digest_size=16).hexdigest()
    return f"{name[:FOLDER_NAME_MAX - 33]}~{digest}"


def make_directory(path: Path, *, fsync: bool) -> None:
    """Make a directory and its missing parents, and make their names durable."""
    path = path.absolute()
    missing = [each for each in path.parents if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in (path, *missing):
        sync_directory(each.parent, fsync=fsync)


def sync_directory(path: Path, *, fsync: bool) -> None:
    """Make the names in a directory durable. Without it a new or renamed file may be
    gone after a power failure."""
    if not fsync:
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def os_errors_as_journal_error(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a JournalError that says what to
    do."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise JournalError(f"No room to write the journal {path} ({error.strerror}): free some "
                               "space and open it again; everything that sync() confirmed is "
                               "safe.") from error
        raise JournalError(f"The journal {path} cannot be used ({error.strerror or error}): check "
                           "the disk and its permissions and open it again; everything that "
                           "sync() confirmed is safe.") from error
