"""The outbox: a folder that Spark writes into and one publisher multicasts from; the
mirror image of a journal.

    outbox.json               what this is: format, version, group, and how large a message may be
    lock                      held (flock) by the one publisher
    ledger.json               how far the publisher has got, replaced by it alone
    status.json               what it is doing, for the sentence of whoever waits in vain
    parts/<unique>.arrow      the payloads of one task, an Arrow IPC stream
    batches/<number>.json     a batch: whose it is, and its parts in the order in which they are sent

A batch exists from the moment its manifest does: a part that no manifest names is
nothing (a failed attempt, a task that nobody waited for) and goes after a while.
Manifests have dense numbers and are created by a link, which fails when the number is
taken; so whoever has created one has read all that are before it, and of two drivers
that commit the same batch one finds it there. The number says in which order batches
are sent, so that nothing else has to be written down before they are: the seqno of each
row follows from the ledger.

Every file is complete when it gets its name, and has a checksum: parts in their
manifest, the JSON files in themselves. The folder must be one file system for the
driver, the workers and the publisher, with links and flock.
"""

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
from isal.isal_zlib import crc32

from ringcast.config import MAX_DATAGRAM
from ringcast.errors import OutboxError
from ringcast.journal.manifest import NO_ROOM, read_json, sync_directory, write_json
from ringcast.paths import local_path

FORMAT = "ringcast-outbox"
VERSION = 1
META, LOCK, LEDGER, STATUS, PARTS, BATCHES = "outbox.json", "lock", "ledger.json", "status.json", "parts", "batches"

PAYLOADS = pa.schema([pa.field("payload", pa.binary(), nullable=False)])


class Meta(msgspec.Struct):
    """What an outbox says about itself. Another version may have more fields: they must
    not hide its version."""

    format: str
    version: int
    group: str
    max_message_size: int = 0


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A file of payloads: its name, and what must be in it."""

    name: str
    rows: int
    size: int
    crc32: int


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """A batch. `query` and `batch` say which one of whose, so that it is known when it
    comes again; None: it never will."""

    query: str | None
    batch: int
    parts: list[Part]


class Ledger(msgspec.Struct, forbid_unknown_fields=True):
    """How far the publisher has got: every member has acknowledged all batches up to
    the number `finished`, and `rows` of the one after it; the last of these rows has
    the seqno `seqno` in the stream of the publisher's one incarnation, to which the
    rest belongs as well."""

    incarnation: int
    epoch: int = msgspec.field(name="stint")  # its name in the file since version 1
    bundle: int                               # max_bundle_size and max_datagram, from which follows
                                              # how many seqnos a large row takes
    datagram: int = MAX_DATAGRAM
    finished: int = 0
    rows: int = 0
    seqno: int = 0
    queries: dict[str, int] = {}        # the highest finished batch of each


class Status(msgspec.Struct, forbid_unknown_fields=True):
    """What the publisher last said of itself."""

    state: str                      # a sentence without its subject: "is joining the group", ...
    waiting_for: str | None = None  # the member that has not acknowledged, when that takes long


class Outbox:
    """An outbox for those who write into it; any number of processes may. OutboxError
    when there is none, or it is damaged."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        self.parts, self.batches = self.path / PARTS, self.path / BATCHES

    def meta(self) -> Meta | None:
        """What it says about itself; None where no publisher has begun one yet."""
        meta = read_json(self.path / META, Meta, remedy="restore it from another copy")
        if meta is not None and (meta.format, meta.version) != (FORMAT, VERSION):
            raise OutboxError(f"{self.path} is a {meta.format} of version {meta.version}, this ringcast reads {FORMAT} {VERSION}: "
                              "use the ringcast version that made it.")
        return meta

    def ledger(self) -> Ledger | None:
        return read_json(self.path / LEDGER, Ledger,
                         remedy="restore it from another copy; without it nobody knows what was "
                                "sent")

    def status(self) -> Status | None:
        return read_json(self.path / STATUS, Status,
                         remedy="delete it; the publisher writes it anew")

    def is_served(self) -> bool:
        """Whether a publisher runs. (It waits a moment for a lock that is only looked
        at.)"""
        with folder(self.path):
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

    def nbytes(self) -> int:
        """Bytes of all parts that are there, named by a manifest or not."""
        with folder(self.path), os.scandir(self.parts) as entries:
            return sum(size_of(entry) for entry in entries)

    # -- parts
    # ---------------------------------------------------------------------------------------------------------

    def write_part(self, batches: Iterable[pa.RecordBatch], limit: int) -> Part:
        """Stores batches of PAYLOADS durably; OutboxError when they take more than
        `limit` bytes, and then nothing is left."""
        path = self.parts / f"{secrets.token_hex(16)}.arrow"
        draft = path.with_name(path.name + ".tmp")
        rows = 0
        try:
            with folder(self.path), open(draft, "xb") as file:
                sink = _Counted(file)
                with pa.PythonFile(sink, "w") as out, pa.ipc.new_stream(out, PAYLOADS) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                        rows += batch.num_rows
                        if sink.size > limit:
                            raise OutboxError(f"One partition has more than the {limit} bytes that the outbox may have: make batches "
                                              "smaller, or raise maxOutboxBytes.")
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, path)
            sync_directory(self.parts, fsync=True)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return Part(path.name, rows, sink.size, sink.crc32)

    def read_part(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The payloads of a part; OutboxError, before the first of them, unless its
        bytes are what was written."""
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

    def discard(self, parts: Iterable[Part]) -> None:
        """Of a batch that will not be, or is there already."""
        for part in parts:
            (self.parts / part.name).unlink(missing_ok=True)

    # -- batches
    # -------------------------------------------------------------------------------------------------------

    def manifest(self, number: int) -> Manifest | None:
        """The batch with that number; None when there is none (yet, or any more)."""
        remedy = "restore it from another copy; no later batch can be sent before"
        return read_json(self.batches / name_of(number), Manifest, remedy=remedy)

    def pending(self) -> tuple[dict[int, Manifest], Ledger]:
        """Every batch by its number that not all members have acknowledged; and the
        ledger as it was after these were read."""
        with folder(self.path):
            numbers = sorted(number for name in os.listdir(self.batches)
                             if (number := number_of(name)) is not None)
        manifests = {number: manifest for number in numbers
                     if (manifest := self.manifest(number)) is not None}
        ledger = self.ledger()
        if ledger is None:
            raise OutboxError(f"{self.path} has no ledger: start its publisher, ringcast publish, which writes it.")
        return {number: manifest for number, manifest in manifests.items() if number > ledger.finished}, ledger

    def find(self, query: str | None, batch: int) -> int | None:
        """The number of a batch that is in the outbox already, 0 when it was finished;
        None when it is new."""
        pending, ledger = self.pending()
        return _number_in(pending, ledger, query, batch)

    def commit(self, query: str | None, batch: int, parts: list[Part]) -> int:
        """Makes the batch exist, unless it does; its number, 0 when it was finished
        before. Parts that turn out not to be wanted go."""
        for part in parts:
            try:
                os.utime(self.parts / part.name)        # it is young: see OwnedOutbox.sweep
            except OSError as error:
                raise damaged(self.parts / part.name, "it is gone; perhaps it was older than the publisher's --keep-parts") from error
        draft = self.batches / f"{secrets.token_hex(16)}.tmp"
        with folder(self.path):
            write_json(draft, Manifest(query, batch, parts), fsync=True)
            try:
                while True:
                    pending, ledger = self.pending()
                    number = _number_in(pending, ledger, query, batch)
                    if number is not None:
                        self.discard(parts)
                        return number
                    number = max(pending, default=ledger.finished) + 1
                    with suppress(FileExistsError):
                        os.link(draft, self.batches / name_of(number))
                        return number
            finally:
                draft.unlink(missing_ok=True)
                sync_directory(self.batches, fsync=True)

    def is_finished(self, number: int) -> bool:
        ledger = self.ledger()
        return ledger is not None and ledger.finished >= number


class _Counted:
    """A file that is written once from its start, and what is known of it then."""

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


def _number_in(pending: dict[int, Manifest], ledger: Ledger, query: str | None, batch: int) -> int | None:
    if query is None:
        return None
    if ledger.queries.get(query, -1) >= batch:
        return 0
    return next((number for number, manifest in pending.items() if (manifest.query, manifest.batch) == (query, batch)), None)


def name_of(number: int) -> str:
    return f"{number:020d}.json"


def number_of(name: str) -> int | None:
    """The number of the batch whose manifest has that name; None for anything else."""
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "json" and len(stem) == 20 and stem.isdecimal() else None


def size_of(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def damaged(path: Path, why: str) -> OutboxError:
    return OutboxError(f"{path} is not what was written ({why}): restore it from another copy; nothing of it was sent.")


@contextmanager
def folder(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses into an OutboxError that says what to
    do."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OutboxError(f"No room in the outbox {path} ({error.strerror}): free some space, then write again.") from error
        raise OutboxError(f"The outbox {path} cannot be used ({error.strerror or error}): check its permissions, and that the driver, "
                          "the workers and the publisher see the same folder.") from error
