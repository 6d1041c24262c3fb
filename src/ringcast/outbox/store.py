"""The outbox: a folder that Spark writes into and that one publisher multicasts from.

    outbox.json               format, version, group, and the largest message
    lock                      held (flock) by the one publisher
    ledger.json               how far the publisher has got; it alone writes this file
    status.json               what the publisher does; a write that times out reports it
    parts/<unique>.arrow      the payloads of one task, an Arrow IPC stream; the names of
                              those of one write of the sink have the same begin, and of
                              those of one of its tasks, up to the first point
    batches/<number>.json     the manifest of a batch: its parts in order of sending
    batches.lock              held (flock) while a batch is given a number, or old parts
                              are removed

A batch exists as soon as its manifest exists. A part that no manifest names belongs to
nothing (to a failed attempt, or to a task that ended too late) and is removed after a
while. Manifests have dense numbers, which are given under a lock: the publisher removes
the manifests of what is sent, so a number that is free may have been used. So a driver
that has created a manifest has read all manifests before it, and of two drivers that
commit the same batch, one finds it there. Batches are sent in the order of their
numbers, and the seqno of each row follows from the ledger, so nothing else has to be
written before a batch is sent.

Every file is complete when it gets its name, and has a checksum: parts in their
manifest, the JSON files in themselves. The driver, the workers and the publisher must
see the folder as one file system, with links and flock.
"""

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import pyarrow as pa
from isal.isal_zlib import crc32

from ringcast.config import MAX_DATAGRAM
from ringcast.errors import JournalError, OutboxError
from ringcast.journal.manifest import NO_ROOM, lock_within, read_json, sync_directory, write_json
from ringcast.paths import local_path

FORMAT = "ringcast-outbox"
VERSION = 2         # in version 1 all processes of a publisher were one incarnation
META, LOCK, LEDGER, STATUS = "outbox.json", "lock", "ledger.json", "status.json"
NUMBERS = "batches.lock"                # the lock under which batches are given theirs
NUMBER_TIMEOUT = 60.0                   # seconds for it, which others hold for a moment
PARTS, BATCHES = "parts", "batches"
APPLICATION = "app "                    # the begin of `query` of an application's batch writes

T = TypeVar("T")

PAYLOADS = pa.schema([pa.field("payload", pa.binary(), nullable=False)])


class OutboxMeta(msgspec.Struct):
    """The contents of outbox.json. Unknown fields are allowed: a later version may have
    more, and must still be recognized by its number."""

    format: str
    version: int
    group: str
    max_message_size: int = 0


class OutboxPart(msgspec.Struct, forbid_unknown_fields=True):
    """A file of payloads: its name, and what it must contain."""

    name: str
    rows: int
    size: int
    crc32: int


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """A batch. `query` and `batch` identify it, so that a repetition is recognized;
    `query` is None for a batch that is never repeated."""

    query: str | None
    batch: int
    parts: list[OutboxPart]


class Ledger(msgspec.Struct, forbid_unknown_fields=True):
    """Keeps the progress of the publisher. Every member that takes the rows has
    acknowledged all batches up to the number `finished`, and `rows` rows of the next
    one. The last of these rows has the seqno `seqno` in the outbox's stream.

    That stream has the number `origin` (ringcast.Succession). `former` are the
    incarnations that sent parts of it last: what lies behind `seqno` may have come to
    others, too, and these know how far."""

    origin: int
    # max_bundle_size and max_datagram decide how many seqnos a large row takes.
    bundle: int
    datagram: int = MAX_DATAGRAM
    finished: int = 0
    rows: int = 0
    seqno: int = 0
    queries: dict[str, int] = {}                # the highest finished batch of each query
    former: list[int] = []


class Status(msgspec.Struct, forbid_unknown_fields=True):
    """The last status of the publisher."""

    state: str                      # a sentence without its subject: "is joining the group"
    waiting_for: str | None = None  # the slowest member, if no ack came for a while


class Outbox:
    """An outbox, as writers see it; any number of processes may write. Its methods
    raise OutboxError if there is no outbox, or if it is damaged."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        self.parts, self.batches = self.path / PARTS, self.path / BATCHES

    def meta(self) -> OutboxMeta | None:
        """Return the contents of outbox.json; None before the first publisher wrote
        it."""
        meta = _read(self.path / META, OutboxMeta, "restore it from another copy")
        if meta is not None and (meta.format, meta.version) != (FORMAT, VERSION):
            raise OutboxError(f"{self.path} is a {meta.format} of version {meta.version}, this "
                              f"ringcast reads {FORMAT} {VERSION}: publish what is in it with the "
                              "ringcast version that made it, then name a new directory.")
        return meta

    def ledger(self) -> Ledger | None:
        """Return the ledger; None before the first publisher wrote it."""
        return _read(self.path / LEDGER, Ledger, "restore it from another copy; without it nobody "
                     "knows what was sent")

    def status(self) -> Status | None:
        """Return the last status of a publisher; None if there was none."""
        return _read(self.path / STATUS, Status, "delete it; the publisher writes it anew")

    def is_served(self) -> bool:
        """Return whether a publisher runs, by trying its lock. (A publisher that starts
        retries the lock, so this does not keep it from starting.)"""
        with os_errors_as_outbox_error(self.path):
            if not (self.path / LOCK).exists():
                return False
            fd = os.open(self.path / LOCK, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def nbytes(self, label: str = "") -> int:
        """Return the bytes of all parts with this label, named by a manifest or not. Of
        the parts of one task, which Spark may run twice, only the largest counts."""
        sizes: dict[str, int] = {}
        with os_errors_as_outbox_error(self.path), os.scandir(self.parts) as entries:
            for entry in entries:
                if entry.name.startswith(label):
                    task = entry.name.partition(".")[0]
                    sizes[task] = max(size_of(entry), sizes.get(task, 0))
        return sum(sizes.values())

    # ---------------------------------------------------------------------------- parts

    def write_part(self, batches: Iterable[pa.RecordBatch], limit: int,
                   label: str = "") -> OutboxPart:
        """Store batches of PAYLOADS durably; the name of their part begins with
        `label`: up to a point, if there is one, for all parts of one task. If they take
        more than `limit` bytes, raise OutboxError and leave nothing behind."""
        path = self.parts / f"{label}{secrets.token_hex(16)}.arrow"
        draft = path.with_name(path.name + ".tmp")
        rows = 0
        try:
            with os_errors_as_outbox_error(self.path), open(draft, "xb") as file:
                sink = _Counted(file)
                with pa.PythonFile(sink, "w") as out, pa.ipc.new_stream(out, PAYLOADS) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                        rows += batch.num_rows
                        if sink.size > limit:
                            raise OutboxError(f"One partition has more than the {limit} bytes "
                                              "that the outbox may have: make batches smaller, "
                                              "or raise maxOutboxBytes.")
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, path)
            sync_directory(self.parts, fsync=True)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return OutboxPart(path.name, rows, sink.size, sink.crc32)

    def read_part(self, part: OutboxPart) -> Iterator[pa.RecordBatch]:
        """Read the payloads of a part. Raises OutboxError, before it yields any of
        them, unless the bytes are those that were written."""
        path = self.parts / part.name
        try:
            with pa.memory_map(str(path)) as file:
                raw = file.read_buffer()
        except OSError as error:
            raise damaged(path, error.strerror or "it cannot be read") from error
        if raw.size != part.size or crc32(raw) != part.crc32:
            raise damaged(path, "its checksum is wrong")
        with pa.ipc.open_stream(raw) as reader:
            if reader.schema != PAYLOADS:
                raise damaged(path, "it has other columns")
            yield from reader

    def discard_labeled(self, label: str) -> None:
        """Remove the parts and drafts with this label that no batch names."""
        with os_errors_as_outbox_error(self.path):
            self._remove_unnamed({name for name in os.listdir(self.parts)
                                  if name.startswith(label)})

    def _remove_unnamed(self, names: set[str]) -> None:
        for name in names - self._named():
            (self.parts / name).unlink(missing_ok=True)

    def _named(self) -> set[str]:
        """Return the names of the parts that batches have."""
        return {part.name for manifest in self.pending()[0].values() for part in manifest.parts}

    # -------------------------------------------------------------------------- batches

    def manifest(self, number: int) -> Manifest | None:
        """Return the batch with this number; None if it is not there yet, or not any
        more."""
        return _read(self.batches / name_of(number), Manifest, "restore it from another copy; no "
                     "later batch can be sent before")

    def pending(self) -> tuple[dict[int, Manifest], Ledger]:
        """Return the batches that not all members have acknowledged, by number; and the
        ledger, which is read after them."""
        with os_errors_as_outbox_error(self.path):
            numbers = sorted(number for name in os.listdir(self.batches)
                             if (number := number_of(name)) is not None)
        manifests = {number: manifest for number in numbers
                     if (manifest := self.manifest(number)) is not None}
        ledger = self.ledger()
        if ledger is None:
            raise OutboxError(f"{self.path} has no ledger: start its publisher, ringcast publish, "
                              "which writes it.")
        return {number: manifest for number, manifest in manifests.items()
                if number > ledger.finished}, ledger

    def find(self, query: str | None, batch: int) -> int | None:
        """Return the number of a batch that is in the outbox; 0 if it is finished; None
        if it is new."""
        pending, ledger = self.pending()
        return _number_in(pending, ledger, query, batch)

    def commit(self, query: str | None, batch: int, parts: list[OutboxPart]) -> int:
        """Create the batch, and return its number. If it exists already, discard the
        parts, and return the number of the batch; 0 if it is finished."""
        draft = self.batches / f"{secrets.token_hex(16)}.tmp"
        with os_errors_as_outbox_error(self.path):
            write_json(draft, Manifest(query, batch, parts), fsync=True)
            try:
                # The lock: OwnedOutbox.sweep removes no part meanwhile.
                with self._numbering(NUMBER_TIMEOUT) as is_held:
                    if not is_held:
                        raise OutboxError(f"{self.path / NUMBERS} is held by another writer, for "
                                          f"{NUMBER_TIMEOUT:g} s: if that is stopped, let it go on "
                                          "(kill -CONT), or end it; then write again.")
                    self._touch(parts)
                    while True:
                        pending, ledger = self.pending()
                        number = _number_in(pending, ledger, query, batch)
                        if number is not None:
                            self._remove_unnamed({part.name for part in parts})
                            return number
                        number = max(pending, default=ledger.finished) + 1
                        with suppress(FileExistsError):
                            os.link(draft, self.batches / name_of(number))
                        if draft.stat().st_nlink > 1:   # NFS may ask again, and deny its own link
                            return number
            finally:
                draft.unlink(missing_ok=True)
                sync_directory(self.batches, fsync=True)

    def _touch(self, parts: list[OutboxPart]) -> None:
        """Let the age of the parts begin now. Raise OutboxError if one is gone."""
        for part in parts:
            try:
                os.utime(self.parts / part.name)
            except OSError as error:
                raise damaged(self.parts / part.name, "it is gone; perhaps it was older than the "
                              "publisher's --keep-parts") from error

    @contextmanager
    def _numbering(self, seconds: float) -> Iterator[bool]:
        """Hold the lock under which a batch is given a number, and old parts are
        removed. Yield False if others hold it for so long."""
        path = self.path / NUMBERS
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:                         # it is another user's
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield lock_within(fd, seconds)
        finally:
            os.close(fd)

    def is_finished(self, number: int) -> bool:
        ledger = self.ledger()
        return ledger is not None and ledger.finished >= number


class _Counted:
    """A file that is written once from its start, with its size and checksum so
    far."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = self.crc32 = 0

    def write(self, data: Any) -> int:
        self.crc32 = crc32(data, self.crc32)
        self.size += len(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True


def _read(path: Path, kind: type[T], remedy: str) -> T | None:
    """Return the body of a JSON file; None if there is no such file. Raises
    OutboxError, with `remedy`, if it is damaged."""
    try:
        return read_json(path, kind, remedy=remedy)
    except JournalError as error:
        raise OutboxError(str(error)) from error


def _number_in(pending: dict[int, Manifest], ledger: Ledger, query: str | None,
               batch: int) -> int | None:
    """Return the number of a batch, as `find` does. An application may leave versions
    out. So a later one of it, which will be sent, stands for an earlier one."""
    if query is None:
        return None
    if ledger.queries.get(query, -1) >= batch:
        return 0
    return next((number for number, manifest in pending.items() if manifest.query == query
                 and (manifest.batch == batch
                      or (query.startswith(APPLICATION) and manifest.batch > batch))), None)


def name_of(number: int) -> str:
    return f"{number:020d}.json"


def number_of(name: str) -> int | None:
    """Return the number of the batch whose manifest has this name; None if the name is
    not that of a manifest."""
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "json" and len(stem) == 20 and stem.isdecimal() else None


def size_of(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def damaged(path: Path, why: str) -> OutboxError:
    return OutboxError(f"{path} is not what was written ({why}): restore it from another copy; "
                       "nothing of it was sent.")


@contextmanager
def os_errors_as_outbox_error(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into an OutboxError that says what to
    do."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OutboxError(f"No room in the outbox {path} ({error.strerror}): free some space, "
                              "then write again.") from error
        raise OutboxError(f"The outbox {path} cannot be used ({error.strerror or error}): check "
                          "its permissions, and that the driver, the workers and the publisher "
                          "see the same folder.") from error
