"""Recording: a member that makes what is delivered to it durable before it
acknowledges.

Its acknowledgements say "this is on disk", so senders keep everything that is not.
Killed anywhere and started again on the same journal, it tells the senders how far it
had got and they go on from there; nothing is lost and nothing is written twice.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ringcast import Batch, Channel, ConfigError, Digest, Flag, View
from ringcast.config import MAX_RESUME
from ringcast.errors import JournalError, RingcastError
from ringcast.journal.retention import Retention
from ringcast.journal.writer import Journal

RETENTION_S = 10


def resume_of(journal: Journal, members: Sequence[str]) -> Digest:
    """How far the journal has got with all incarnations of `members`: the `resume` of
    the channel that goes on recording."""
    digest = {sender: seqno for sender, seqno in Digest.from_names(journal.digest).items()
              if sender.name in members}
    if len(digest) > MAX_RESUME:
        raise JournalError(f"this journal knows {len(digest)} incarnations of the members, more than the {MAX_RESUME} that a member can "
                           f"bring back to its group; record into a new directory")
    return Digest(digest)


def record(channel: Channel, journal: Journal, on_progress: Callable[[int], object] | None = None,
           on_batch: Callable[[Batch], object] | None = None, retention: Retention | None = None) -> int:
    """Append what `channel` delivers to everybody to `journal` until it closes; returns
    how many messages were new. Messages to this member alone, and those without
    reliability, are not recorded. The channel delivers OOB messages in order
    (`oob_in_order`).

    All that is there at one time becomes durable with one sync, and is acknowledged
    after it. `on_progress` is called with the number so far after each sync, `on_batch`
    with each batch before it is written. `retention` is enforced at the beginning and
    every RETENTION_S seconds, whether messages come or not. JournalError when the
    journal cannot take more: what was synced is safe, the rest was not acknowledged.
    """
    if not channel.config.oob_in_order:
        raise ConfigError("a journal keeps the order of seqnos; open the channel with oob_in_order=True to record it")
    recorded = 0
    reached = dict(journal.digest)                  # highest seqno of each sender that was appended
    with _enforcing(retention, journal, channel) as turn:
        for batches in channel.deliveries():
            with turn:
                for batch in batches:
                    if on_batch is not None:
                        on_batch(batch)
                    recorded += _append(journal, batch, reached)
                journal.sync()
            if on_progress is not None:
                on_progress(recorded)
    return recorded


@contextmanager
def _enforcing(retention: Retention | None, journal: Journal, channel: Channel) -> Iterator[
        threading.Lock]:
    """Enforce `retention` meanwhile, on a thread of its own; whoever uses the journal
    holds what this yields. If it fails, the channel is closed without leaving, so that
    the recording ends, and the error is raised."""
    turn, over = threading.Lock(), threading.Event()
    if retention is None or retention.keeps_everything:
        yield turn
        return
    errors: list[RingcastError] = []

    def enforce() -> None:
        try:
            while not over.is_set():
                with turn:
                    retention.enforce(journal)
                over.wait(RETENTION_S)
        except RingcastError as error:
            errors.append(error)
            channel.close(leave=False)

    thread = threading.Thread(target=enforce, name="ringcast-retention", daemon=True)
    thread.start()
    try:
        yield turn
    finally:
        over.set()
        thread.join()
    for error in errors:
        raise error


def _append(journal: Journal, batch: Batch, reached: dict[str, int]) -> int:
    """Write one batch; what its sender had purged before this journal could have it is
    noted as lost, not passed over."""
    if batch.dest is not None or batch.flags & Flag.NO_RELIABILITY:
        return 0
    sender = str(batch.sender)
    begins = batch.stream.offset if batch.stream is not None else batch.first - 1
    if sender in reached and begins > reached[sender]:
        journal.skip(sender, begins)
        reached[sender] = begins
    void = max(0, batch.first - 1 - reached.get(sender, begins))
    reached[sender] = batch.last
    return journal.append(sender, batch.first, batch.payloads, view_id=batch.view_id,
                          sent_at=batch.sent_at,
                          delivered_at=time.time_ns(), flags=batch.flags, void=void)


@contextmanager
def connected(channel: Channel) -> Iterator[None]:
    """Connect and leave, but on an error go without leaving: what is not recorded must
    not be given up by the others."""
    channel.connect()
    try:
        yield
    except BaseException:
        channel.close(leave=False)
        raise
    channel.close()


def close_soon(channel: Channel, *, leave: bool = True) -> None:
    """Close the channel from a thread of its own (a signal handler must not wait); the
    recording ends with what is handed over."""
    threading.Thread(target=channel.close, kwargs={"leave": leave}, daemon=True).start()


def close_when_alone(channel: Channel, view: View) -> None:
    """What `on_view` calls in a recorder that is to end with its group: close once all
    that was sent is recorded."""
    if view.members == (channel.address,):
        threading.Thread(target=_close_when_drained, args=(channel,), daemon=True).start()


def _close_when_drained(channel: Channel) -> None:
    while (status := channel.status())["num_undelivered"] or status["num_leaving"]:
        time.sleep(0.01)
    channel.close()
