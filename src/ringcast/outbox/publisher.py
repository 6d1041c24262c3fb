"""Publishing: a member that carries batches from an outbox into its group, exactly
once, whatever kills it.

Its stream is a function of the outbox: batches in the order of their numbers, parts in
the order of the manifest, rows in the order of the file, each row the next seqno (a row
larger than a datagram several, as many as its size says). The ledger keeps one point of
that function that every member has acknowledged. Killed anywhere and started again, the
publisher goes on as the same incarnation from there (ringcast.Session), sends the rest
again under the same seqnos, and members drop what they have.

One thread sends, and blocks where the group's windows are full; another watches what is
acknowledged, writes the ledger, and only then removes what is finished.
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
    Meta,
    Outbox,
    Status,
    folder,
    name_of,
    number_of,
)
from ringcast.stacks import fitted

log = logging.getLogger("ringcast")

LOOK = 0.005            # seconds between two looks at what is acknowledged and what is new
WRITE = 0.5             # seconds between two entries in the ledger, within a batch
STALLED = 1.0           # seconds without an ack after which the status names who is waited for
SWEEP = 60.0            # seconds between two looks for parts that nobody names
LOCKING = 2.0           # seconds that a lock is tried for, because sinks look at it for a moment
RUN = 4096              # rows that are sent with one call
AHEAD = 4               # batches that wait for the sending thread
GRACE = 5.0             # seconds that a publisher that is stopped waits for acks
KEEP_PARTS = 86_400.0   # seconds until a part goes that no batch names


class OwnedOutbox(Outbox):
    """The outbox of a publisher, which holds its lock; made when it is not there.
    `config` is that of the publisher's channel. OutboxError when another publisher has
    it, or when it is another group's."""

    def __init__(self, path: str | os.PathLike[str], group: str, config: Config) -> None:
        super().__init__(path)
        self._lock: int | None = None
        try:
            with folder(self.path):
                self._begin(Meta(FORMAT, VERSION, group, config.max_message_size))
                self.held = self._resume(config.max_bundle_size, config.max_datagram)
        except BaseException:
            self.release()
            raise

    def _begin(self, meta: Meta) -> None:
        make_directory(self.path, fsync=True)
        known = self.meta()
        if known is None and set(os.listdir(self.path)) - {LOCK, PARTS, BATCHES, META + ".tmp"}:
            raise OutboxError(f"{self.path} is not an outbox (it has files but no {META}): name an outbox, or an empty directory.")
        if known is not None and known.group != meta.group:
            raise OutboxError(f"{self.path} is the outbox of group {known.group!r}, not of {meta.group!r}: name another directory.")
        self._lock = self._take_lock()
        self.parts.mkdir(exist_ok=True)
        self.batches.mkdir(exist_ok=True)
        if known != meta:
            write_json(self.path / META, meta, fsync=True)

    def _take_lock(self) -> int:
        fd = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + LOCKING
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except OSError as error:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    raise OutboxError(f"{self.path} has a publisher already: stop that one, or name another directory.") from error
            time.sleep(LOCKING / 100)

    def _resume(self, bundle: int, datagram: int) -> Ledger:
        """The ledger of the incarnation that goes on, with an epoch of its own, before
        anything is sent in that."""
        ledger = self.ledger()
        if ledger is None:
            ledger = Ledger(secrets.randbelow((1 << 64) - 1) + 1, 0, bundle, datagram)
        else:
            ledger.epoch += 1
            if (ledger.bundle, ledger.datagram) != (bundle, datagram) and self.manifest(ledger.finished + 1) is not None:
                raise OutboxError(f"{self.path} has batches that were begun with max_bundle_size={ledger.bundle} and "
                                  f"max_datagram={ledger.datagram}: pass the same until these are "
                                  f"published.")
            ledger.bundle, ledger.datagram = bundle, datagram
        self.held = ledger
        self.enter()
        for name in os.listdir(self.batches):
            number = number_of(name)
            if number is None:
                if not name.endswith(".tmp"):
                    log.warning("%s is not a batch; it is passed over, and better moved away",
                                self.batches / name)
            elif number <= ledger.finished:
                self.remove(number)
        return ledger

    def enter(self) -> None:
        """Make the ledger durable as it is now."""
        with folder(self.path):
            write_json(self.path / LEDGER, self.held, fsync=True)

    def say(self, status: Status) -> None:
        with folder(self.path):
            write_json(self.path / STATUS, status, fsync=False)

    def remove(self, number: int) -> None:
        """A finished batch: first its manifest, so that none ever names a part that is
        gone."""
        manifest = self.manifest(number)
        (self.batches / name_of(number)).unlink(missing_ok=True)
        if manifest is not None:
            sync_directory(self.batches, fsync=True)
            self.discard(manifest.parts)

    def sweep(self, older_than: float) -> int:
        """Remove parts (and drafts) that no batch names and that nobody has written to
        for so many seconds; how many there were."""
        before = time.time() - older_than
        old = [path for place in (self.parts, self.batches) for path in place.iterdir()
               if (place == self.parts or path.suffix == ".tmp") and _written(path) < before]
        named = {part.name for manifest in self.pending()[0].values() for part in manifest.parts}
        gone = [path for path in old if path.name not in named]
        gone = [path for path in gone if _written(path) < before]  # a commit touches its parts
                                                                   # before it names them
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "OwnedOutbox":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def opening(group: str, *, name: str, members: Sequence[str], stack: str, **options: Any) -> tuple[
        Config, Callable[[Session], Channel]]:
    """What a OwnedOutbox and a Publisher need, for a member with these arguments of
    Channel. A row that is larger than a datagram may wait for room in its middle for
    half a day (frag_timeout), for a publisher has nothing better to do."""
    options = {"frag_timeout": 86_400_000} | options
    config = fitted(configure(options, stack), stack)
    return config, lambda session: Channel(group, name=name, members=members, stack=stack,
                                           deliver=False, session=session, **options)


@dataclass(slots=True)
class Mark:
    """A point of the stream: up to this seqno, so many rows of a batch; `ends` it when
    these are all."""

    seqno: int
    number: int
    rows: int
    manifest: Manifest
    ends: bool


class Publisher:
    """Carries what is in `outbox` into the group, through the channel that `join` opens
    for an incarnation of a member (deliver=False, not connected yet). `keep_parts` in
    seconds, see OwnedOutbox.sweep; `on_progress` is called with the number of rows that
    were acknowledged in this run, after each entry in the ledger. When `stop` is set,
    from any thread or a signal handler, run() ends: after what was begun is
    acknowledged, if that is soon.
    """

    def __init__(self, outbox: OwnedOutbox, join: Callable[[Session], Channel], stop: threading.Event, *, keep_parts: float = KEEP_PARTS,
                 on_progress: Callable[[int], object] | None = None) -> None:
        ledger = outbox.held
        self.outbox, self.ledger = outbox, ledger
        self.channel = join(Session(ledger.incarnation, ledger.seqno, ledger.epoch))
        config = self.channel.config
        if (config.max_bundle_size, config.max_datagram) != (ledger.bundle, ledger.datagram):
            raise OutboxError("The channel has another max_bundle_size or max_datagram than the outbox was opened with: pass the "
                              "same to both.")
        self.keep_parts = keep_parts
        self.on_progress = on_progress
        self.acknowledged = 0           # rows, in this run
        self._fed = ledger.finished     # number of the last batch that the sending thread was given
        self._orders: SimpleQueue[tuple[int, Manifest] | None] = SimpleQueue()
        self._marks: deque[Mark] = deque()              # points of what is being sent, in order
        self._unfinished = 0                            # batches that were fed and not finished
        self._failure: BaseException | None = None
        self._is_behind = False                         # the ledger is, of what is acknowledged
        self._entered = self._moved = self._swept = time.monotonic()
        self._status: Status | None = None
        self._stop = stop

    def run(self) -> None:
        """Join, and publish until it is to stop. When all that was begun is
        acknowledged by then the member leaves its group, else it goes without a word,
        and the others wait for its next process. RingcastError for whatever keeps it
        from going on."""
        sender = threading.Thread(target=self._send_all, name="ringcast publisher", daemon=True)
        try:
            self._say(Status("is joining the group"))
            self._join()
            sender.start()
            while not self._stop.is_set():
                self._look()
                self._stop.wait(LOOK)
            self._end_soon()
        except BaseException as error:
            self._say(Status(f"has stopped: {error or type(error).__name__}"))
            raise
        finally:
            self._orders.put(None)
            self.channel.close(GRACE, leave=not self._marks and not self._unfinished)
            if sender.ident is not None:
                sender.join()
        self._say(Status("was stopped"))

    def _join(self) -> None:
        """Connect, but not for longer than it is wanted."""
        joined = threading.Event()
        watching = threading.Thread(target=self._give_up_joining, args=(joined,), daemon=True)
        watching.start()
        try:
            self.channel.connect()
        except RingcastError:
            if not self._stop.is_set():
                raise
        finally:
            joined.set()
            watching.join()

    def _give_up_joining(self, joined: threading.Event) -> None:
        while not joined.wait(10 * LOOK):
            if self._stop.is_set():
                self.channel.close(0, leave=False)
                return

    def _end_soon(self) -> None:
        """No new batches; what is being sent gets a moment."""
        deadline = time.monotonic() + GRACE
        while self._unfinished and time.monotonic() < deadline:
            self._settle()
            time.sleep(LOOK)
        if self._marks:
            self.outbox.enter()

    # -------------------------------------------------------------------------- the watching thread

    def _look(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.channel.fault is not None:
            raise ClosedError(self.channel.fault)
        self._feed()
        self._settle()
        now = time.monotonic()
        is_stalled = bool(self._marks) and now - self._moved > STALLED
        self._say(Status("waits for acks" if is_stalled else "is publishing", self.channel.slowest
                         if is_stalled else None))
        if now - self._swept > min(SWEEP, self.keep_parts):
            self._swept = now
            self.outbox.sweep(self.keep_parts)

    def _feed(self) -> None:
        """Batches that are new go to the sending thread."""
        while self._unfinished < AHEAD and (manifest := self.outbox.manifest(self._fed + 1)) is not None:
            self._fed += 1
            self._unfinished += 1
            self._moved = time.monotonic() if not self._marks else self._moved
            self._orders.put((self._fed, manifest))

    def _settle(self) -> None:
        """What every member has acknowledged goes into the ledger: at once when that
        finishes a batch, else now and then."""
        reached: list[Mark] = []
        while self._marks and self._marks[0].seqno <= self.channel.acknowledged:
            reached.append(self._marks.popleft())
        if reached:
            self._moved = time.monotonic()
            self._note(reached)
        if any(mark.ends for mark in reached) or time.monotonic() - self._entered > WRITE and self._is_behind:
            self._entered, self._is_behind = time.monotonic(), False
            self.outbox.enter()
            for mark in reached:
                if mark.ends:
                    self._unfinished -= 1
                    self.outbox.remove(mark.number)
            if self.on_progress is not None:
                self.on_progress(self.acknowledged)

    def _note(self, reached: list[Mark]) -> None:
        ledger = self.ledger
        for mark in reached:
            self.acknowledged += mark.rows - ledger.rows
            ledger.rows, ledger.seqno = mark.rows, mark.seqno
            if mark.ends:
                ledger.finished, ledger.rows = mark.number, 0
                if mark.manifest.query is not None:
                    ledger.queries[mark.manifest.query] = max(mark.manifest.batch,
                                                              ledger.queries.get(mark.manifest.query, -1))
        self._is_behind = True

    def _say(self, status: Status) -> None:
        if status != self._status:
            self._status = status
            self.outbox.say(status)

    # --------------------------------------------------------------------------- the sending thread

    def _send_all(self) -> None:
        try:
            seqno, rows = self.ledger.seqno, self.ledger.rows
            while (order := self._orders.get()) is not None:
                seqno = self._send_batch(*order, seqno, rows)
                rows = 0
        except ClosedError as error:
            self._failure = None if self._stop.is_set() else error
        except Exception as error:
            self._failure = error if isinstance(error, RingcastError) else OutboxError(
                f"the publisher failed: {error!r}")

    def _send_batch(self, number: int, manifest: Manifest, seqno: int, skip: int) -> int:
        """Send a batch from its row `skip` on, whose seqno is the one after `seqno`;
        returns the last one of the batch."""
        row, total = 0, sum(part.rows for part in manifest.parts)
        for part in manifest.parts:
            if row + part.rows <= skip:                 # acknowledged as a whole
                row += part.rows
                continue
            for column in self._runs(self.outbox.read_part(part)):
                column, row = column.slice(max(0, skip - row)), row + len(column)
                if len(column):
                    seqno += self._num_seqnos(column)
                    if row < total:
                        self._marks.append(Mark(seqno, number, row, manifest, False))
                    self.channel.send_many(column.to_pylist())
        if self.channel.status()["hr"] != seqno:
            raise OutboxError(f"batch {number} took other seqnos than it should have, up to {self.channel.status()['hr']} instead of "
                              f"{seqno}; nobody else may send through the publisher's channel.")
        self._marks.append(Mark(seqno, number, total, manifest, True))
        return seqno

    def _runs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        for batch in batches:
            column = batch.column("payload")
            for start in range(0, len(column), RUN):
                yield column.slice(start, RUN)

    def _num_seqnos(self, payloads: pa.Array) -> int:
        sizes = pc.binary_length(payloads).cast(pa.int64())
        size = self.channel.fragment_size
        fragments = pc.divide(pc.add(sizes, size - 1), size)
        return int(pc.sum(pc.if_else(pc.less_equal(sizes, self.channel.max_payload), 1, fragments)).as_py())
