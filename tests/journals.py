"""Help for tests of journals: senders, payloads that name their seqno, and a crash
without a process."""

import os

from ringcast import JournalError
from ringcast.spark import Journal, JournalReader

A = "A#00000000000000a1"
B = "B/ö#00000000000000b2"
C = "C#00000000000000c3"
EVERYTHING = 2**62
TS_NS = 1_700_000_000_123_456_789


def payloads(first: int, last: int) -> list[bytes]:
    return [b"%d" % seqno for seqno in range(first, last + 1)]


def open_journal(path: str | os.PathLike[str], **options) -> Journal:
    """Open a journal of group g that does not sync its files to the disk."""
    return Journal(path, **{"group": "g", "fsync": False, **options})


def record(journal: Journal, sender: str, first: int, last: int, *, view_id: int = 1,
           at: int = TS_NS) -> int:
    """Append messages that name their seqno, delivered a second after `at` (ns)."""
    return journal.append(sender, first, payloads(first, last), view_id=view_id, sent_at=at,
                          delivered_at=at + 10**9)


def column(batches, name: str) -> list:
    """Return one column of record batches as a list."""
    return [value for batch in batches for value in batch.column(name).to_pylist()]


def seqnos(path: str | os.PathLike[str], sender: str, first: int = 1,
           last: int = EVERYTHING) -> list[int]:
    """Return the seqnos that a reader gets. Check the payload of each."""
    found: list[int] = []
    for batch in JournalReader(path).read(sender, first, last):
        batch.validate(full=True)
        numbers = batch.column("seqno").to_pylist()
        assert batch.column("payload").to_pylist() == [b"%d" % number for number in numbers]
        assert set(batch.column("sender").to_pylist()) <= {sender}
        found += numbers
    return found


def durable(path: str | os.PathLike[str]) -> int:
    """Return how many messages a journal has confirmed: 0 if it does not exist yet."""
    try:
        return sum(JournalReader(path).digest().values())
    except JournalError:
        return 0


def crash(journal: Journal) -> None:
    """Do to a journal what kill -9 does: free its lock, sync and seal nothing."""
    journal._release()
