"""What the journal's tests share: senders, payloads that name their seqno, and a crash
without a process."""

import os

from ringcast.spark import Journal, JournalReader

A = "A#00000000000000a1"
B = "B/ö#00000000000000b2"
C = "C#00000000000000c3"
EVERYTHING = 2**62
TS_NS = 1_700_000_000_123_456_789


def payloads(first: int, last: int) -> list[bytes]:
    return [b"%d" % seqno for seqno in range(first, last + 1)]


def record(journal: Journal, sender: str, first: int, last: int, *, view_id: int = 1,
           at: int = TS_NS) -> int:
    """Messages that say their own seqno, sent at `at` (ns) and delivered a second
    later."""
    return journal.append(sender, first, payloads(first, last), view_id=view_id, sent_at=at,
                          delivered_at=at + 10**9)


def seqnos(path: str | os.PathLike[str], sender: str, first: int = 1, last: int = EVERYTHING) -> list[int]:
    """The seqnos that a reader gets, after checking that each came with its own
    payload."""
    found: list[int] = []
    for batch in JournalReader(path).read(sender, first, last):
        batch.validate(full=True)
        numbers = batch.column("seqno").to_pylist()
        assert batch.column("payload").to_pylist() == [b"%d" % number for number in numbers]
        assert set(batch.column("sender").to_pylist()) <= {sender}
        found += numbers
    return found


def crash(journal: Journal) -> None:
    """What kill -9 does to a journal: memory is gone, the lock is free, nothing was
    synced or sealed."""
    journal._release()
