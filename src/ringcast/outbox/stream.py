"""The stream of an outbox, and its way through one channel.

The outbox determines its stream: batches in the order of their numbers, parts in the
order of the manifest, rows in the order of the file. Each row has the next seqno; a row
that is larger than a datagram has several, depending on its size.
"""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import pyarrow as pa
import pyarrow.compute as pc

from ringcast import Channel, ClosedError, OutboxError, RingcastError
from ringcast.journal.segments import SEQNO_MAX
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.store import Ledger, Manifest
from ringcast.outbox.takers import Takers

ROWS_PER_CALL = 4096        # rows that are sent with one call
MAX_QUEUED_BATCHES = 4      # batches that wait for the sending thread


@dataclass(slots=True)
class Mark:
    """A point of the stream: up to this seqno there are this number of rows of a batch.
    `is_end`: these are all rows of the batch."""

    seqno: int
    number: int
    rows: int
    manifest: Manifest
    is_end: bool


class Stream:
    """Sends what is in the outbox through `channel`, from the point of the ledger on.

    Threads: one thread sends, and blocks while the group's windows are full. Another
    one calls all methods.
    """

    def __init__(self, outbox: OwnedOutbox, channel: Channel, takers: Takers) -> None:
        self.outbox, self.channel, self.takers = outbox, channel, takers
        self.ledger: Ledger = outbox.own_ledger
        self.unfinished = 0                     # batches that were begun, and are not finished
        self.failure: BaseException | None = None
        self._fed = self.ledger.finished        # the last batch given to the sending thread
        self._queue: SimpleQueue[tuple[int, Manifest] | None] = SimpleQueue()
        self._marks: deque[Mark] = deque()      # points that are not acknowledged, in order
        self._thread = threading.Thread(target=self._send_all, name="ringcast publisher",
                                        args=(self.ledger.seqno, self.ledger.rows), daemon=True)

    @property
    def waits(self) -> bool:
        """Return whether an ack is missing."""
        return bool(self._marks)

    def start(self) -> None:
        """Begin to send."""
        self.outbox.note_member(self.channel.address.incarnation)
        self._thread.start()

    def feed(self) -> bool:
        """Give new batches to the sending thread. Return whether there are any."""
        before = self.unfinished
        while (self.unfinished < MAX_QUEUED_BATCHES
               and (manifest := self.outbox.manifest(self._fed + 1)) is not None):
            self._fed += 1
            self.unfinished += 1
            self._queue.put((self._fed, manifest))
        return self.unfinished > before

    def acknowledged(self) -> list[Mark]:
        """Take the points that all takers have acknowledged."""
        acknowledged = self.channel.acknowledged
        if not self._marks or self._marks[0].seqno > acknowledged:
            return []
        # status() waits for the turn in which the last ack came. If that ack counted
        # because a taker was excluded, this turn has seen the view without it.
        self.channel.status()
        if self.takers.are_gone:
            return []
        reached: list[Mark] = []
        while self._marks and self._marks[0].seqno <= acknowledged:
            reached.append(self._marks.popleft())
        self.unfinished -= sum(mark.is_end for mark in reached)
        return reached

    def close(self, timeout: float) -> None:
        """Leave the group, after waiting for acks at most `timeout` seconds."""
        self._queue.put(None)
        self.channel.close(timeout)
        if self._thread.ident is not None:
            self._thread.join()

    # ------------------------------------------------------------------------- points

    def marks_up_to(self, limit: int) -> list[Mark] | None:
        """Return the ends of the batches from the point of the ledger up to the seqno
        `limit`, and behind them the last whole row. None if the stream is not so
        long."""
        marks: list[Mark] = []
        number, skip, seqno = self.ledger.finished + 1, self.ledger.rows, self.ledger.seqno
        while seqno < limit and (manifest := self.outbox.manifest(number)) is not None:
            row = skip
            for column in self._columns(manifest, skip):
                ends = pc.add(pc.cumulative_sum(self._num_seqnos(column)), seqno)
                whole = pc.sum(pc.less_equal(ends, min(limit, SEQNO_MAX))).as_py()
                if whole:
                    row, seqno = row + whole, ends[whole - 1].as_py()
                if whole < len(column):
                    part = [Mark(seqno, number, row, manifest, False)] if row > skip else []
                    return marks + part
            marks.append(Mark(seqno, number, row, manifest, True))
            number, skip = number + 1, 0
        return marks if seqno == limit else None

    def _columns(self, manifest: Manifest, skip: int) -> Iterator[pa.Array]:
        """Yield the payloads of a batch from its row `skip` on, cut into columns for
        one call each."""
        row = 0
        for part in manifest.parts:
            if row + part.rows <= skip:                 # all of it is acknowledged
                row += part.rows
                continue
            for batch in self.outbox.read_part(part):
                payloads = batch.column("payload").slice(max(0, skip - row))
                row += batch.num_rows
                for start in range(0, len(payloads), ROWS_PER_CALL):
                    yield payloads.slice(start, ROWS_PER_CALL)

    def _num_seqnos(self, payloads: pa.Array) -> pa.Array:
        """Return how many seqnos each row takes."""
        sizes = pc.binary_length(payloads).cast(pa.int64())
        size = self.channel.fragment_size
        fragments = pc.divide(pc.add(sizes, size - 1), size)
        is_whole = pc.less_equal(sizes, self.channel.max_payload)
        return pc.if_else(is_whole, pa.scalar(1, pa.int64()), fragments)

    # -------------------------------------------------------------- the sending thread

    def _send_all(self, seqno: int, skip: int) -> None:
        try:
            while (batch := self._queue.get()) is not None:
                seqno = self._send_batch(*batch, seqno, skip)
                skip = 0
        except ClosedError:
            pass                                        # the other thread knows why
        except Exception as error:
            self.failure = error if isinstance(error, RingcastError) else OutboxError(
                f"the publisher failed: {error!r}")

    def _send_batch(self, number: int, manifest: Manifest, seqno: int, skip: int) -> int:
        """Send a batch from its row `skip` on, whose seqno is the one after `seqno`.
        Return the last seqno of the batch."""
        row, total = skip, sum(part.rows for part in manifest.parts)
        for column in self._columns(manifest, skip):
            row += len(column)
            seqno += pc.sum(self._num_seqnos(column)).as_py()
            if row < total:
                self._marks.append(Mark(seqno, number, row, manifest, False))
            self.channel.send_many(column.to_pylist())
        highest = self.channel.status().multicast.hr
        if highest != seqno:
            raise OutboxError(f"batch {number} took other seqnos than it should have, up to "
                              f"{highest} instead of {seqno}; nobody else may send through the "
                              "publisher's channel.")
        self._marks.append(Mark(seqno, number, total, manifest, True))
        return seqno
