"""The recorder: a member that makes messages durable before it acknowledges them.

Its acks say "this is on disk", so senders keep everything that is not. A recorder that
was killed and is started again on the same journal tells the senders how far the
journal goes, and they continue from there. No message is lost or written twice.
"""

import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ringcast import Address, Batch, Channel, ConfigError, Digest, Flag, View
from ringcast.journal.retention import Retention
from ringcast.journal.writer import Journal

RETENTION_INTERVAL_S = 10


def resume_of(journal: Journal) -> Digest:
    """Return how far the journal goes for each sender: the argument `resume` of the
    channel that goes on recording."""
    return Digest.from_names(journal.digest)


def record(channel: Channel, journal: Journal, on_progress: Callable[[int], object] | None = None,
           on_batch: Callable[[Batch], object] | None = None,
           retention: Retention | None = None) -> int:
    """Append the messages to everybody that `channel` delivers to `journal`, until the
    channel closes. Return how many of them were new. Messages to this member alone, and
    those without reliability, are not recorded. The channel must deliver OOB messages
    in order (`oob_in_order`).

    All messages that are there at one time become durable with one sync, and are
    acknowledged after it. `on_progress` is called after each sync, with the number so
    far; `on_batch` with each batch, before it is written. `retention` is enforced at
    the beginning and every RETENTION_INTERVAL_S seconds. Raises JournalError if the
    journal cannot take more: what was synced is safe, the rest is not acknowledged.
    """
    if not channel.config.oob_in_order:
        raise ConfigError("a journal keeps the order of seqnos; open the channel with "
                          "oob_in_order=True to record it")
    recorded = 0
    reached = dict(journal.digest)              # the highest seqno appended, for each sender
    members: dict[str, Address] = {}            # whose messages came last, for each sender
    with _enforcing(retention, journal, channel) as lock:
        for batches in channel.deliveries():
            with lock:
                for batch in batches:
                    if on_batch is not None:
                        on_batch(batch)
                    recorded += _append(journal, batch, reached, members)
                journal.sync()
            if on_progress is not None:
                on_progress(recorded)
    return recorded


@contextmanager
def _enforcing(retention: Retention | None, journal: Journal,
               channel: Channel) -> Iterator[threading.Lock]:
    """Enforce `retention` on a thread of its own. Yields the lock that a user of the
    journal must hold. If enforcing fails, close the channel without leaving, so that
    the recording ends, and raise the error."""
    lock, over = threading.Lock(), threading.Event()
    if retention is None or retention.keeps_everything:
        yield lock
        return
    errors: list[Exception] = []

    def enforce() -> None:
        try:
            while not over.is_set():
                with lock:
                    retention.enforce(journal)
                over.wait(RETENTION_INTERVAL_S)
        except Exception as error:
            errors.append(error)
            channel.close(leave=False)

    thread = threading.Thread(target=enforce, name="ringcast-retention", daemon=True)
    thread.start()
    try:
        yield lock
    finally:
        over.set()
        thread.join()
    for error in errors:
        raise error


def _append(journal: Journal, batch: Batch, reached: dict[str, int],
            members: dict[str, Address]) -> int:
    """Append one batch, under the origin of its sender. If the sender had purged
    messages before this journal could receive them, record them as lost. Return the
    number of new messages.

    Of several members that send one stream, a later one may send again what the journal
    has. It is recognized only when it is durable.
    """
    if batch.dest is not None or batch.flags & Flag.NO_RELIABILITY:
        return 0
    sender = str(batch.sender.origin)
    if members.setdefault(sender, batch.sender) != batch.sender:
        members[sender] = batch.sender
        journal.sync()
    begins = batch.stream.offset if batch.stream is not None else batch.first - 1
    if sender in reached and begins > reached[sender]:
        journal.skip(sender, begins)
        reached[sender] = begins
    fragment_seqnos = max(0, batch.first - 1 - reached.get(sender, begins))
    reached[sender] = batch.last
    return journal.append(sender, batch.first, batch.payloads, view_id=batch.view_id,
                          sent_at=batch.sent_at, delivered_at=time.time_ns(), flags=batch.flags,
                          fragment_seqnos=fragment_seqnos)


@contextmanager
def connected(channel: Channel) -> Iterator[None]:
    """Connect, and leave at the end. On an error close without leaving, so that the
    others keep what is not recorded."""
    channel.connect()
    try:
        yield
    except BaseException:
        channel.close(leave=False)
        raise
    channel.close()


def close_soon(channel: Channel, *, leave: bool = True) -> None:
    """Close the channel from a thread of its own, because a signal handler must not
    wait: so it takes no lock to start it. The recording ends after the messages that
    are delivered already."""
    start_new_thread(channel.close, (), {"leave": leave})


def close_when_alone(channel: Channel, view: View) -> None:
    """Close the channel when all others are gone, after all that was sent is recorded:
    the `on_view` of a recorder that ends with its group. Somebody must have been
    there."""
    if view.members == (channel.address,) and view.left:
        threading.Thread(target=_close_when_drained, args=(channel,), daemon=True).start()


def _close_when_drained(channel: Channel) -> None:
    while (status := channel.status()).delivery.num_undelivered or status.multicast.num_leaving:
        time.sleep(0.01)
    channel.close()
