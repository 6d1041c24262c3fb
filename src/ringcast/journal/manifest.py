"""The small files of a journal and how every file of it becomes durable.

A journal is a directory:

    journal.json                      what this is: format, version, group, and the member that records it
    digest.json                       per sender: lowest, highest durable seqno, and the ranges known to be lost
    lock                              held (flock) by the one writer
    retired                           there if its recorder will not come back: a reader of several journals waits for no more
    subscriptions/<name>.json         per named stream: what it has committed
    <sender>/sender.json              whose folder this is
    <sender>/segments.log             which segments there are, for readers who do not want to list them (see segment_log)
    <sender>/<first>.arrows, .idx     the open tail, and the index that says which of its bytes are durable
    <sender>/<first>-<last>.arrow, .idx   sealed segments

The JSON files are replaced atomically and carry the CRC-32 of their body, so that a
flipped digit is seen: a digest that is wrong by one would lose or invent messages.
"""

import errno
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from ringcast.errors import JournalError

FORMAT = "ringcast-journal"
VERSION = 3
READABLE = (2, VERSION)  # format 2 has indexes without checksums of what lies before the payloads
META, DIGEST, LOCK, SENDER = "journal.json", "digest.json", "lock", "sender.json"
RETIRED, SUBSCRIPTIONS = "retired", "subscriptions"

FOLDER_NAME_MAX = 120  # characters; most file systems allow 255 bytes

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

T = TypeVar("T")


class Meta(msgspec.Struct):
    """What a journal says about itself. Another version may have more fields: they must
    not hide its version."""

    format: str
    version: int
    group: str
    recorder: str = ""


class Owner(msgspec.Struct, forbid_unknown_fields=True):
    """Whose messages a folder holds."""

    sender: str


class Extent(msgspec.Struct, forbid_unknown_fields=True):
    """What is durable of one sender: seqnos low..high, both inclusive, except the
    `lost` ranges (ascending, disjoint). What is below `low` was purged, down to
    `start`, or sent before the recording; high == low - 1 where nothing is left."""

    low: int
    high: int
    lost: list[tuple[int, int]] = []
    start: int = 1

    def held(self) -> list[tuple[int, int]]:
        """The ranges that can be read, ascending."""
        edges = [self.low - 1, *(edge for first, last in self.lost for edge in (first, last)),
                 self.high + 1]
        return [(edges[at] + 1, edges[at + 1] - 1) for at in range(0, len(edges), 2)
                if edges[at] + 1 < edges[at + 1]]


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    crc32: int
    body: msgspec.Raw


def write_json(path: Path, body: object, *, fsync: bool) -> None:
    """Replaces `path` in one step: a reader sees the old file or the new one, whatever
    happens."""
    raw = msgspec.json.encode(body, order="sorted")
    draft = path.with_name(path.name + ".tmp")
    with open(draft, "wb") as file:
        file.write(msgspec.json.encode(_Envelope(zlib.crc32(raw), msgspec.Raw(raw))))
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    os.replace(draft, path)
    sync_directory(path.parent, fsync=fsync)


def read_json(path: Path, kind: type[T], *, remedy: str) -> T | None:
    """The body of a file written by `write_json`, None if there is no such file;
    JournalError, with `remedy`, if damaged."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror}): check its permissions and the disk.") from error
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
        body = bytes(envelope.body)
        if zlib.crc32(body) != envelope.crc32:
            raise ValueError("its checksum is wrong")
        return msgspec.json.decode(body, type=kind)
    except (ValueError, msgspec.MsgspecError) as error:
        raise JournalError(f"{path} is damaged ({error}): {remedy}.") from error


def read_meta(path: Path) -> Meta | None:
    """What the journal at `path` says about itself; None where none was started yet (no
    directory, or an empty one).

    Raises JournalError for anything else that is not a journal of this version.
    """
    meta = read_json(path / META, Meta,
                     remedy="restore it from another copy; it holds format, version and group")
    if meta is None:
        try:
            names = set(os.listdir(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(f"{path} is not a journal directory ({error.strerror}): name the directory itself.") from error
        if META not in names and not all(name in (LOCK, DIGEST) or name.endswith(".tmp")
                                         for name in names):
            raise JournalError(f"{path} is not a journal (it has files but no {META}): name a journal, or an empty directory.")
        return None
    if meta.format != FORMAT or meta.version not in READABLE:
        raise JournalError(
            f"{path} is a {meta.format} of version {meta.version}, this ringcast reads {FORMAT} "
            f"{VERSION}: "
            "use the ringcast version that wrote it."
        )
    return meta


def read_digest(path: Path) -> dict[str, Extent] | None:
    """The durable extent of every sender, sorted by sender; None if the file is
    missing."""
    remedy = "delete it and open the journal once with Journal(), which rebuilds it from the segments"
    digest = read_json(path / DIGEST, dict[str, Extent], remedy=remedy)
    return None if digest is None else dict(sorted(digest.items()))


def folder_name(sender: str) -> str:
    """The name of a sender's folder: readable, safe on every file system, and never
    shared by two senders."""
    name = quote(sender, safe="")
    if len(name) <= FOLDER_NAME_MAX:
        return name
    return f"{name[:FOLDER_NAME_MAX - 33]}~{hashlib.blake2b(sender.encode(), digest_size=16).hexdigest()}"


def make_directory(path: Path, *, fsync: bool) -> None:
    """Make a directory and the parents that it lacks, each durable in the one that
    holds it."""
    path = path.absolute()
    missing = [each for each in path.parents if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in (path, *missing):
        sync_directory(each.parent, fsync=fsync)


def sync_directory(path: Path, *, fsync: bool) -> None:
    """Makes the names in a directory durable: without it a new or renamed file may
    vanish with the power."""
    if not fsync:
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses into a JournalError that says what to
    do."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise JournalError(
                f"No room to write the journal {path} ({error.strerror}): free some space and open "
                f"it again; "
                "everything that sync() confirmed is safe."
            ) from error
        raise JournalError(
            f"The journal {path} cannot be used ({error.strerror or error}): check the disk and "
            f"its permissions "
            "and open it again; everything that sync() confirmed is safe."
        ) from error
