"""The journal's writer: it makes the messages that one member received durable, in the
order in which they were delivered.

The group's stability depends on this contract: `append` takes a message into memory,
`sync` makes it durable, and only what a sync covered may be acknowledged to the group
or is shown to a reader. After kill -9 the journal opens with all that the last sync
covered, perhaps with a little more that had reached the disk, and never with a gap, a
torn batch or a duplicate.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ringcast import arguments
from ringcast.errors import ClosedError, ConfigError, JournalError
from ringcast.journal import segment_log
from ringcast.journal.manifest import (
    DIGEST,
    FORMAT,
    LOCK,
    META,
    RETIRED,
    SENDER,
    VERSION,
    Extent,
    JournalMeta,
    Owner,
    folder_name,
    os_errors_as_journal_error,
    read_digest,
    read_json,
    read_meta,
    sync_directory,
    write_json,
)
from ringcast.journal.segments import (
    SEQNO_MAX,
    TIME,
    Append,
    Segment,
    Tail,
    identity,
    intact_entries,
    list_segments,
    logged,
    remove,
    seal,
    tail_segment,
    tidy,
)
from ringcast.paths import local_path

if TYPE_CHECKING:
    from typing_extensions import Buffer

FLUSH_BYTES = 4 << 20       # of appends that a sender has in memory; from there on they are flushed
SEGMENT_BYTES = 64 << 20
FLAGS_MAX = 2**31 - 1       # an int column
NS_PER_US = 1000


class _Log:
    """The writer's state of one sender."""

    def __init__(self, folder: Path, seed: int, low: int) -> None:
        self.folder = folder
        self.seed = seed
        self.durable = Extent(low, low - 1, start=low)
        self.appended = low - 1
        self.tail: Tail | None = None

    def new_from(self, sender: str, first: int, last: int) -> int:
        """Return the first seqno of first..last that is not durable yet, or last + 1.
        Raises JournalError if it leaves a gap or overlaps."""
        start = max(first, self.durable.high + 1)
        if start <= last and start != self.appended + 1:
            raise JournalError(f"Messages {first}..{last} of {sender} do not follow what was "
                               f"appended: expected seqno {self.appended + 1}.")
        return start


class Journal:
    """A journal open for writing, by one process and one thread at a time.

    `path` is a directory on a local file system with flock; it is made if it does not
    exist. `recorder` is the name of the member that records, which readers can ask for;
    if it is empty, the journal keeps the name that it has. A sender's open segment is
    sealed when it has `segment_rows` rows or `segment_bytes` bytes after a sync. With
    `fsync=False` a synced message survives a crash of the process but not of the
    machine.

    Raises JournalError if the directory is not a journal of this group, has another
    writer, has lost durable messages, or cannot be written. After a JournalError from
    the disk the journal refuses all calls: close it, repair the cause, open it again.
    """

    def __init__(self, path: str | os.PathLike[str], *, group: str, recorder: str = "",
                 segment_rows: int = 1_000_000, segment_bytes: int = SEGMENT_BYTES,
                 fsync: bool = True) -> None:
        if segment_rows < 1 or segment_bytes < 1:
            raise ConfigError("segment_rows and segment_bytes are too small; they are at least 1")
        self.path = local_path(path)
        self.group = arguments.text("group", group)
        self._recorder = recorder
        self._segment_rows = segment_rows
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._logs: dict[str, _Log] = {}
        self._failed = False
        self._retired = False
        self._lock: int | None = None
        read_meta(self.path)    # raises before anything is created in a directory of another kind
        try:
            with os_errors_as_journal_error(self.path):
                self._lock = self._take_lock()
                self._recover()
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def digest(self) -> dict[str, int]:
        """Return the highest durable seqno of every sender: what may be
        acknowledged."""
        return {sender: log.durable.high for sender, log in sorted(self._logs.items())
                if log.durable.high >= log.durable.start}

    def append(self, sender: str, first_seqno: int, payloads: Sequence[bytes], *, view_id: int,
               sent_at: "int | Buffer", delivered_at: int, flags: int = 0,
               fragment_seqnos: int = 0) -> int:
        """Append consecutive messages of `sender` (`name#incarnation`), and return how
        many of them were new.

        `view_id` is the view in which they were delivered, `flags` are their
        Message.flags. Times are nanoseconds since 1970, kept to the microsecond:
        `delivered_at` is one for all; `sent_at` is one for all, or a buffer of 64-bit
        integers, one for each. A message larger than a datagram takes several seqnos
        and has the last of them: `fragment_seqnos` is the number of seqnos before
        `first_seqno` that belong to the first message. Numbers are from 0 and below
        2**63, flags below 2**31.

        The first seqno of a new sender may be any from 1; what comes later of the
        messages before it is skipped. So are messages that are durable already: a
        repeated delivery after a restart does no harm. A gap,
        or an overlap with messages that are not durable yet, raises JournalError and
        changes nothing. At most 2 GiB of payload in one call.
        """
        self._check_usable()
        if not payloads:
            return 0
        last = first_seqno + len(payloads) - 1
        if first_seqno < 1 or max(last, view_id, delivered_at) > SEQNO_MAX or min(
                view_id, delivered_at) < 0:
            raise ValueError(f"seqnos {first_seqno}..{last} (from 1), view_id {view_id} and "
                             f"delivered_at {delivered_at} must fit 63 bits")
        if not 0 <= flags <= FLAGS_MAX or not 0 <= fragment_seqnos < first_seqno:
            raise ValueError(f"flags {flags} must fit 31 bits, and fragment_seqnos "
                             f"{fragment_seqnos} must be from 0 to {first_seqno - 1}")
        times = _times_column(sent_at, len(payloads))
        log = self._logs.get(sender)
        covered = first_seqno - fragment_seqnos
        if log is not None:
            covered = log.new_from(sender, covered, last)
        start = max(first_seqno, covered)
        if covered > last:
            return 0
        column = _payload_column(payloads[start - first_seqno:])
        with self._writing():
            self._unretire()
            if log is None:
                log = self._logs[sender] = self._start_log(sender, covered)
            if log.tail is None:
                segment = tail_segment(log.folder, covered)
                log.tail = Tail.create(segment, log.seed, group=self.group, sender=sender,
                                       fsync=self._fsync)
            log.tail.append(Append(start, start - covered, column, view_id,
                                   times.slice(start - first_seqno), delivered_at // NS_PER_US,
                                   flags))
            log.appended = last
            if log.tail.pending_bytes >= FLUSH_BYTES:
                log.tail.flush()
        return last - start + 1

    def sync(self) -> dict[str, int]:
        """Make everything appended so far durable, show it to readers, and return the
        digest. Seals the segments that are full, which costs a rewrite of each."""
        self._check_usable()
        dirty = [(sender, log, log.tail) for sender, log in self._logs.items()
                 if log.tail is not None and log.tail.dirty]
        if dirty:
            with self._writing():
                for _, log, tail in dirty:
                    tail.flush()
                    tail.make_durable()
                    log.durable.high = log.appended
                self._publish()
                for sender, log, tail in dirty:
                    if tail.rows >= self._segment_rows or tail.size >= self._segment_bytes:
                        self._seal(sender, log)
        return self.digest

    def skip(self, sender: str, seqno: int) -> None:
        """Record as lost the messages of `sender` up to `seqno` that the journal does
        not have; for a new sender, these are 1..seqno.

        A recorder that comes back calls this if the sender has purged them meanwhile.
        Readers report such ranges. Implies a sync and seals the segment. Does nothing
        if the journal has all of them.
        """
        if not 1 <= seqno <= SEQNO_MAX:
            raise ValueError(f"seqno {seqno} must be within 1..2**63-1")
        self.sync()
        log = self._logs.get(sender)
        if log is not None and seqno <= log.appended:
            return
        with self._writing():
            self._unretire()
            if log is None:
                log = self._logs[sender] = self._start_log(sender, 1)
            self._seal(sender, log)
            log.durable.lost = _with_range(log.durable.lost, log.durable.high + 1, seqno)
            log.durable.high = log.appended = seqno
            self._publish()

    def purge(self, bounds: Mapping[str, int]) -> int:
        """Remove the segments in which no seqno is above the sender's bound, and return
        how many bytes that freed.

        Only whole segments are removed, so some messages up to a bound may stay. The
        open segment is sealed first if all of it may be removed. The digest is written
        before files are removed, so a reader finds messages either intact or purged.
        Implies a sync.
        """
        self.sync()
        doomed: list[Segment] = []
        shortened: list[_Log] = []
        with self._writing():
            for sender, bound in bounds.items():
                if (log := self._logs.get(sender)) is None:
                    continue
                if log.tail is not None and log.appended <= bound:
                    self._seal(sender, log)
                gone = [segment for segment in list_segments(log.folder) if segment.last is not None
                        and segment.last <= bound]
                if gone:
                    _raise_low(log.durable, max(segment.last or 0 for segment in gone) + 1)
                    doomed += gone
                    shortened.append(log)
            if doomed:
                self._publish()
            freed = sum(segment.path.stat().st_size + segment.index_path.stat().st_size
                        for segment in doomed)
            for segment in doomed:
                remove(segment)
            for log in shortened:
                segment_log.rewrite(log.folder, log.seed, map(logged, list_segments(log.folder)))
        return freed

    def retire(self) -> None:
        """Mark the journal as retired: readers of several journals do not wait for
        messages that it may still get. The next append removes the mark."""
        self.sync()
        with self._writing():
            (self.path / RETIRED).touch()
            sync_directory(self.path, fsync=self._fsync)
        self._retired = True

    def close(self) -> None:
        """Sync, seal every open segment and release the lock; idempotent. After a
        failure, only release the lock."""
        if self._lock is None:
            return
        try:
            if not self._failed:
                self.sync()
                with self._writing():
                    for sender, log in self._logs.items():
                        self._seal(sender, log)
        finally:
            self._release()

    # -------------------------------------------------------------------------- opening

    def _take_lock(self) -> int:
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise JournalError(f"{self.path} is open for writing elsewhere: close that journal "
                               "first, or record to another directory.") from error
        return lock

    def _recover(self) -> None:
        meta = read_meta(self.path)
        if meta is not None and meta.group != self.group:
            raise JournalError(f"{self.path} holds group {meta.group!r}, not {self.group!r}: name "
                               "another directory.")
        if meta is not None and meta.version != VERSION:
            # Before anything is written that the earlier version could not read.
            write_json(self.path / META, JournalMeta(FORMAT, VERSION, self.group, meta.recorder),
                       fsync=self._fsync)
        self._retired = (self.path / RETIRED).exists()
        known = read_digest(self.path)
        for folder in sorted(path for path in self.path.iterdir() if path.is_dir()):
            self._recover_folder(folder, known)
        for sender, extent in (known or {}).items():
            if sender not in self._logs:
                raise _lost_messages(self.path / folder_name(sender), sender, extent.low)
        # The digest first: if there is a journal.json, there must be a digest.
        self._publish()
        recorder = self._recorder or (meta.recorder if meta is not None else "")
        if meta is None or meta.recorder != recorder:
            write_json(self.path / META, JournalMeta(FORMAT, VERSION, self.group, recorder),
                       fsync=self._fsync)
            sync_directory(self.path.resolve().parent, fsync=self._fsync)

    def _recover_folder(self, folder: Path, known: dict[str, Extent] | None) -> None:
        owner = read_json(folder / SENDER, Owner,
                          remedy="restore it from another copy; it names the sender of this folder")
        segments = list_segments(folder)
        if owner is None and segments:
            raise JournalError(f"{folder} has segments but no {SENDER}: restore that file, or move "
                               "the folder away.")
        if owner is None:
            return
        if folder.name != folder_name(owner.sender):
            raise JournalError(f"{folder} holds messages of {owner.sender} under another name: "
                               "move this folder away.")
        tidy(folder)
        extent = (known or {}).get(owner.sender)
        seed = identity(self.group, owner.sender)
        log = _Log(folder, seed, 1)
        purged = [segment for segment in segments if extent is not None
                  and (segment.last or segment.first) < extent.low]
        for segment in purged:      # the digest was written, and then the last process died
            remove(segment)
            segments.remove(segment)
        tail = segments.pop() if segments and not segments[-1].sealed else None
        entries = intact_entries(tail, seed) if tail is not None else []
        ranges = [(segment.first, segment.last) for segment in segments if segment.last is not None]
        ranges += [(entries[0].first, entries[-1].last)] if entries else []
        # Before anything is cut: this raises if durable messages are damaged.
        if extent is not None:
            log.durable = _confirmed(extent, ranges, folder, owner.sender)
        elif ranges:
            log.durable = _rebuilt(ranges)
        if tail is not None:
            log.tail = Tail.recover(tail, entries, seed, keep_rest=known is None,
                                    fsync=self._fsync)
        if extent is None and not ranges:
            return
        log.appended = log.durable.high
        self._logs[owner.sender] = log
        tails = [log.tail.segment] if log.tail is not None else []
        segment_log.rewrite(folder, seed, map(logged, [*segments, *tails]))

    def _unretire(self) -> None:
        if self._retired:
            (self.path / RETIRED).unlink(missing_ok=True)
            self._retired = False

    def _start_log(self, sender: str, low: int) -> _Log:
        folder = self.path / folder_name(sender)
        folder.mkdir(exist_ok=True)
        write_json(folder / SENDER, Owner(sender), fsync=self._fsync)
        sync_directory(self.path, fsync=self._fsync)
        return _Log(folder, identity(self.group, sender), low)

    # -------------------------------------------------------------------------- writing

    def _seal(self, sender: str, log: _Log) -> None:
        """Seal the open segment, if there is one. All of it must be durable."""
        if log.tail is not None:
            seal(log.tail, log.seed, group=self.group, sender=sender, fsync=self._fsync)
            log.tail = None

    def _publish(self) -> None:
        extents = {sender: log.durable for sender, log in self._logs.items()
                   if log.durable.high >= log.durable.start}
        write_json(self.path / DIGEST, extents, fsync=self._fsync)

    def _check_usable(self) -> None:
        if self._lock is None:
            raise ClosedError(f"The journal {self.path} is closed: open it again to append.")
        if self._failed:
            raise JournalError(f"An earlier write to {self.path} failed: close this journal and "
                               "open it again.")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse all calls after a failed write: only opening the journal again finds
        out what is on disk."""
        try:
            with os_errors_as_journal_error(self.path):
                yield
        except BaseException:
            self._failed = True
            raise

    def _release(self) -> None:
        for log in self._logs.values():
            if log.tail is not None:
                log.tail.close()
                log.tail = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _payload_column(payloads: Sequence[bytes]) -> pa.Array:
    column = pa.array(payloads, pa.binary())
    if isinstance(column, pa.ChunkedArray):
        raise ValueError("more than 2 GiB of payload in one append; split it")
    if column.null_count:
        raise TypeError("payloads must be bytes, not None")
    return column


def _times_column(sent_at: "int | Buffer", count: int) -> pa.Array:
    """Return the send times in microseconds. Raises ValueError unless they are one
    number from 0, or one for each message. The latter may be any numbers, because they
    come from a remote member."""
    if isinstance(sent_at, int):
        if not 0 <= sent_at <= SEQNO_MAX:
            raise ValueError(f"sent_at {sent_at} must fit 63 bits")
        return pa.repeat(pa.scalar(sent_at // NS_PER_US, TIME), count)
    view = memoryview(sent_at)
    if view.nbytes != 8 * count:
        raise ValueError(f"sent_at has {view.nbytes} bytes: it must be 8 for each of the {count} "
                         "messages, or one number for all")
    times = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(view)])
    return pc.divide(times, NS_PER_US).cast(TIME)


def _with_range(ranges: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    if ranges and ranges[-1][1] + 1 == first:
        return [*ranges[:-1], (ranges[-1][0], last)]
    return [*ranges, (first, last)]


def _raise_low(extent: Extent, low: int) -> None:
    """Remove everything below `low` from the extent, and the lost ranges that then come
    first."""
    extent.lost = [(max(first, low), last) for first, last in extent.lost if last >= low]
    while extent.lost and extent.lost[0][0] == low:
        low = extent.lost.pop(0)[1] + 1
    extent.low = low


def _rebuilt(ranges: Sequence[tuple[int, int]]) -> Extent:
    """Return the extent of a sender that is in no digest: what the segments hold. The
    gaps between them are lost."""
    extent = Extent(ranges[0][0], ranges[0][0] - 1, start=ranges[0][0])
    for first, last in ranges:
        if first > extent.high + 1:
            extent.lost = _with_range(extent.lost, extent.high + 1, first - 1)
        extent.high = last
    return extent


def _confirmed(extent: Extent, ranges: Sequence[tuple[int, int]], folder: Path,
               sender: str) -> Extent:
    """Return the extent in the digest, with what had reached the index but not yet the
    digest. Raises JournalError if a message of the digest is missing."""
    expected = extent.low
    for first, last in sorted([*ranges, *extent.lost]):
        if first > expected:
            break
        expected = max(expected, last + 1)
    if expected <= extent.high:
        raise _lost_messages(folder, sender, expected)
    return Extent(extent.low, expected - 1, extent.lost, extent.start)


def _lost_messages(folder: Path, sender: str, seqno: int) -> JournalError:
    return JournalError(f"{folder} no longer has message {seqno} of {sender}, which was durable: "
                        f"restore the folder from another copy, or delete {DIGEST} to go on with "
                        "what is left.")
