"""The publisher: a member that sends the batches of an outbox to its group, exactly
once, whenever its process is killed.

The outbox determines the publisher's stream: batches in the order of their numbers,
parts in the order of the manifest, rows in the order of the file. Each row has the next
seqno (a row that is larger than a datagram has several, depending on its size). The
ledger keeps one point of this stream that every member has acknowledged. A publisher
that was killed and started again continues from there, as the same incarnation
(ringcast.Session). It sends the rest again under the same seqnos, and members drop what
they have.

One thread sends, and blocks while the group's windows are full. Another thread watches
the acks, writes the ledger, and only then removes finished batches.
"""

import fcntl
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ringcast import Channel, ClosedError, RingcastError, Session
from ringcast.config import Config, configure
from ringcast.errors import OutboxError
from ringcast.journal.manifest import make_directory, sync_directory, write_json
from ringcast.outbox.store import (
    BATCHES,
    FORMAT,
    LEDGER,
    LOCK,
    META,
    PARTS,
    STATUS,
    VERSION,
    Ledger,
    Manifest,
    Outbox,
    OutboxMeta,
    Status,
    name_of,
    number_of,
    os_errors_as_outbox_error,
)
from ringcast.stacks import fitted

log = logging.getLogger("ringcast")

# Times are in seconds.
POLL_INTERVAL = 0.005       # between two checks for acks and for new batches
LEDGER_INTERVAL = 0.5       # between two writes of the ledger within a batch
STALL_TIMEOUT = 1.0         # without an ack, until the status names the slowest member
SWEEP_INTERVAL = 60.0       # between two searches for parts that no batch names
LOCK_TIMEOUT = 2.0          # for the lock, which sinks hold for a moment to test it
STOP_TIMEOUT = 5.0          # that a publisher that is stopped waits for acks
KEEP_PARTS = 86_400.0       # until a part that no batch names is removed
ROWS_PER_CALL = 4096        # rows that are sent with one call
MAX_QUEUED_BATCHES = 4      # batches that wait for the sending thread


class OwnedOutbox(Outbox):
    """The outbox of a publisher, which holds its lock. It is made if it does not exist.

    `config` is that of the publisher's channel. Raises OutboxError if another publisher
    has the outbox, or if it belongs to another group.
    """

    def __init__(self, path: str | os.PathLike[str], group: str, config: Config) -> None:
        super().__init__(path)
        self._lock: int | None = None
        try:
            with os_errors_as_outbox_error(self.path):
                self._open(OutboxMeta(FORMAT, VERSION, group, config.max_message_size))
                self.own_ledger = self._resume(config.max_bundle_size, config.max_datagram)
        except BaseException:
            self.release()
            raise

    def _open(self, meta: OutboxMeta) -> None:
        make_directory(self.path, fsync=True)
        known = self.meta()
        if known is None and set(os.listdir(self.path)) - {LOCK, PARTS, BATCHES, META + ".tmp"}:
            raise OutboxError(f"{self.path} is not an outbox (it has files but no {META}): name an "
                              "outbox, or an empty directory.")
        if known is not None and known.group != meta.group:
            raise OutboxError(f"{self.path} is the outbox of group {known.group!r}, not of "
                              f"{meta.group!r}: name another directory.")
        self._lock = self._take_lock()
        self.parts.mkdir(exist_ok=True)
        self.batches.mkdir(exist_ok=True)
        if known != meta:
            write_json(self.path / META, meta, fsync=True)

    def _take_lock(self) -> int:
        fd = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except OSError as error:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    raise OutboxError(f"{self.path} has a publisher already: stop that one, or "
                                      "name another directory.") from error
            time.sleep(LOCK_TIMEOUT / 100)

    def _resume(self, bundle: int, datagram: int) -> Ledger:
        """Return the ledger, of a new incarnation or of the one that goes on, and write
        it: its new epoch must be durable before anything is sent in it."""
        ledger = self.ledger()
        if ledger is None:
            ledger = Ledger(secrets.randbelow((1 << 64) - 1) + 1, 0, bundle, datagram)
        else:
            ledger.epoch += 1
            is_changed = (ledger.bundle, ledger.datagram) != (bundle, datagram)
            if is_changed and self.manifest(ledger.finished + 1) is not None:
                raise OutboxError(f"{self.path} has batches that were begun with max_bundle_size="
                                  f"{ledger.bundle} and max_datagram={ledger.datagram}: pass the "
                                  "same until these are published.")
            ledger.bundle, ledger.datagram = bundle, datagram
        self.own_ledger = ledger
        self.commit_ledger()
        for name in os.listdir(self.batches):
            number = number_of(name)
            if number is None:
                if not name.endswith(".tmp"):
                    log.warning("%s is not a batch and is ignored; move it away",
                                self.batches / name)
            elif number <= ledger.finished:
                self.remove(number)
        return ledger

    def commit_ledger(self) -> None:
        """Make the ledger durable as it is now."""
        with os_errors_as_outbox_error(self.path):
            write_json(self.path / LEDGER, self.own_ledger, fsync=True)

    def write_status(self, status: Status) -> None:
        """Write the status, for writers that wait."""
        with os_errors_as_outbox_error(self.path):
            write_json(self.path / STATUS, status, fsync=False)

    def remove(self, number: int) -> None:
        """Remove a finished batch. Its manifest goes first, so that no manifest ever
        names a part that is gone."""
        manifest = self.manifest(number)
        (self.batches / name_of(number)).unlink(missing_ok=True)
        if manifest is not None:
            sync_directory(self.batches, fsync=True)
            self.discard(manifest.parts)

    def sweep(self, older_than: float) -> int:
        """Remove the parts (and drafts) that no batch names and that were not written
        to for this number of seconds. Return how many they were."""
        before = time.time() - older_than
        old = [path for place in (self.parts, self.batches) for path in place.iterdir()
               if (place == self.parts or path.suffix == ".tmp") and _written_at(path) < before]
        named = {part.name for manifest in self.pending()[0].values() for part in manifest.parts}
        # A commit touches its parts before it names them, so ask for their age again.
        unnamed = [path for path in old if path.name not in named and _written_at(path) < before]
        for path in unnamed:
            path.unlink(missing_ok=True)
        return len(unnamed)

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "OwnedOutbox":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def channel_factory(group: str, *, name: str, members: Sequence[str], stack: str,
                    **options: Any) -> tuple[Config, Callable[[Session], Channel]]:
    """Return what an OwnedOutbox and a Publisher need, for a member with these
    arguments of Channel: its configuration, and a function that opens its channel.

    frag_timeout is half a day unless given: a publisher has nothing to do but wait
    until there is room for the next fragment of a large row.
    """
    options = {"frag_timeout": 86_400_000} | options
    config = fitted(configure(options, stack), stack)
    return config, lambda session: Channel(group, name=name, members=members, stack=stack,
                                           deliver=False, session=session, **options)


@dataclass(slots=True)
class Mark:
    """A point of the stream: with the ack of this seqno, this number of rows of a batch
    is acknowledged. `is_end`: these are all rows of the batch."""

    seqno: int
    number: int
    rows: int
    manifest: Manifest
    is_end: bool


class Publisher:
    """Sends what is in `outbox` to the group.

    `join` opens the channel for a session (deliver=False, not connected yet).
    `keep_parts` is in seconds, see OwnedOutbox.sweep. `on_progress` is called after
    each write of the ledger, with the number of rows that were acknowledged in this
    run. Set `stop`, from any thread or a signal handler, to end run(): it waits a
    moment for the acks of what was sent.
    """

    def __init__(self, outbox: OwnedOutbox, join: Callable[[Session], Channel],
                 stop: threading.Event, *, keep_parts: float = KEEP_PARTS,
                 on_progress: Callable[[int], object] | None = None) -> None:
        ledger = outbox.own_ledger
        self.outbox, self.ledger = outbox, ledger
        self.channel = join(Session(ledger.incarnation, ledger.seqno, ledger.epoch))
        config = self.channel.config
        if (config.max_bundle_size, config.max_datagram) != (ledger.bundle, ledger.datagram):
            raise OutboxError("The channel has another max_bundle_size or max_datagram than the "
                              "outbox was opened with: pass the same to both.")
        self.keep_parts = keep_parts
        self.on_progress = on_progress
        self.acknowledged = 0                   # rows, in this run
        self._fed = ledger.finished             # the last batch given to the sending thread
        self._queue: SimpleQueue[tuple[int, Manifest] | None] = SimpleQueue()
        self._marks: deque[Mark] = deque()      # points that are not acknowledged, in order
        self._unfinished = 0                    # batches given to the sending thread, unfinished
        self._failure: BaseException | None = None
        self._is_ledger_behind = False          # behind the acks
        self._committed_at = self._acked_at = self._swept_at = time.monotonic()
        self._status: Status | None = None
        self._stop = stop

    def run(self) -> None:
        """Join, and publish until `stop` is set. If all that was begun is acknowledged
        then, the member leaves its group. Else it stops without leaving, and the group
        waits for its next process. Raises RingcastError if it cannot go on."""
        sender = threading.Thread(target=self._send_all, name="ringcast publisher", daemon=True)
        try:
            self._set_status(Status("is joining the group"))
            self._join()
            sender.start()
            while not self._stop.is_set():
                self._poll()
                self._stop.wait(POLL_INTERVAL)
            self._await_last_acks()
        except BaseException as error:
            self._set_status(Status(f"has stopped: {error or type(error).__name__}"))
            raise
        finally:
            self._queue.put(None)
            self.channel.close(STOP_TIMEOUT, leave=not self._marks and not self._unfinished)
            if sender.ident is not None:
                sender.join()
        self._set_status(Status("was stopped"))

    def _join(self) -> None:
        """Connect, until `stop` is set."""
        joined = threading.Event()
        watcher = threading.Thread(target=self._close_on_stop, args=(joined,), daemon=True)
        watcher.start()
        try:
            self.channel.connect()
        except RingcastError:
            if not self._stop.is_set():
                raise
        finally:
            joined.set()
            watcher.join()

    def _close_on_stop(self, joined: threading.Event) -> None:
        while not joined.wait(10 * POLL_INTERVAL):
            if self._stop.is_set():
                self.channel.close(0, leave=False)
                return

    def _await_last_acks(self) -> None:
        """Wait a moment for the acks of the batches that were begun; begin no more."""
        deadline = time.monotonic() + STOP_TIMEOUT
        while self._unfinished and time.monotonic() < deadline:
            self._take_acks()
            time.sleep(POLL_INTERVAL)
        if self._marks:
            self.outbox.commit_ledger()

    # -------------------------------------------------------------- the watching thread

    def _poll(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.channel.fault is not None:
            raise ClosedError(self.channel.fault)
        self._feed()
        self._take_acks()
        now = time.monotonic()
        if self._marks and now - self._acked_at > STALL_TIMEOUT:
            self._set_status(Status("waits for acks", self.channel.slowest))
        else:
            self._set_status(Status("is publishing"))
        if now - self._swept_at > min(SWEEP_INTERVAL, self.keep_parts):
            self._swept_at = now
            self.outbox.sweep(self.keep_parts)

    def _feed(self) -> None:
        """Give new batches to the sending thread."""
        while (self._unfinished < MAX_QUEUED_BATCHES
               and (manifest := self.outbox.manifest(self._fed + 1)) is not None):
            self._fed += 1
            self._unfinished += 1
            self._acked_at = time.monotonic() if not self._marks else self._acked_at
            self._queue.put((self._fed, manifest))

    def _take_acks(self) -> None:
        """Note in the ledger what every member has acknowledged. Write the ledger at
        once if a batch is finished, else from time to time."""
        reached: list[Mark] = []
        while self._marks and self._marks[0].seqno <= self.channel.acknowledged:
            reached.append(self._marks.popleft())
        if reached:
            self._acked_at = time.monotonic()
            self._note(reached)
        is_due = self._is_ledger_behind and time.monotonic() - self._committed_at > LEDGER_INTERVAL
        if is_due or any(mark.is_end for mark in reached):
            self._committed_at, self._is_ledger_behind = time.monotonic(), False
            self.outbox.commit_ledger()
            for mark in reached:
                if mark.is_end:
                    self._unfinished -= 1
                    self.outbox.remove(mark.number)
            if self.on_progress is not None:
                self.on_progress(self.acknowledged)

    def _note(self, reached: list[Mark]) -> None:
        ledger = self.ledger
        for mark in reached:
            self.acknowledged += mark.rows - ledger.rows
            ledger.rows, ledger.seqno = mark.rows, mark.seqno
            if mark.is_end:
                ledger.finished, ledger.rows = mark.number, 0
                query = mark.manifest.query
                if query is not None:
                    ledger.queries[query] = max(mark.manifest.batch, ledger.queries.get(query, -1))
        self._is_ledger_behind = True

    def _set_status(self, status: Status) -> None:
        if status != self._status:
            self._status = status
            self.outbox.write_status(status)

    # --------------------------------------------------------------- the sending thread

    def _send_all(self) -> None:
        try:
            seqno, rows = self.ledger.seqno, self.ledger.rows
            while (batch := self._queue.get()) is not None:
                seqno = self._send_batch(*batch, seqno, rows)
                rows = 0
        except ClosedError as error:
            self._failure = None if self._stop.is_set() else error
        except Exception as error:
            self._failure = error if isinstance(error, RingcastError) else OutboxError(
                f"the publisher failed: {error!r}")

    def _send_batch(self, number: int, manifest: Manifest, seqno: int, skip: int) -> int:
        """Send a batch from its row `skip` on, whose seqno is the one after `seqno`.
        Return the last seqno of the batch."""
        row, total = 0, sum(part.rows for part in manifest.parts)
        for part in manifest.parts:
            if row + part.rows <= skip:                 # all of it is acknowledged
                row += part.rows
                continue
            for column in self._cut(self.outbox.read_part(part)):
                column, row = column.slice(max(0, skip - row)), row + len(column)
                if len(column):
                    seqno += self._num_seqnos(column)
                    if row < total:
                        self._marks.append(Mark(seqno, number, row, manifest, False))
                    self.channel.send_many(column.to_pylist())
        highest = self.channel.status()["hr"]
        if highest != seqno:
            raise OutboxError(f"batch {number} took other seqnos than it should have, up to "
                              f"{highest} instead of {seqno}; nobody else may send through the "
                              "publisher's channel.")
        self._marks.append(Mark(seqno, number, total, manifest, True))
        return seqno

    def _cut(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        """Cut the payloads into columns for one call each."""
        for batch in batches:
            column = batch.column("payload")
            for start in range(0, len(column), ROWS_PER_CALL):
                yield column.slice(start, ROWS_PER_CALL)

    def _num_seqnos(self, payloads: pa.Array) -> int:
        sizes = pc.binary_length(payloads).cast(pa.int64())
        size = self.channel.fragment_size
        fragments = pc.divide(pc.add(sizes, size - 1), size)
        is_whole = pc.less_equal(sizes, self.channel.max_payload)
        return int(pc.sum(pc.if_else(is_whole, 1, fragments)).as_py())
