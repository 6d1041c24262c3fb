"""Show what journals have, to people and to programs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from ringcast.cli.options import print_json, printable, typed
from ringcast.cli.screen import page, show_table
from ringcast.errors import JournalError
from ringcast.journal.manifest import RETIRED
from ringcast.journal.merge import Journals
from ringcast.journal.offsets import Offset
from ringcast.journal.reader import JournalReader
from ringcast.journal.subscriptions import subscriptions

Ranges = Sequence[tuple[int, int]]
Rows = list[dict[str, Any]]


def found(directory: Path) -> Journals:
    """Return the journals at a path. Raises JournalError if there is none."""
    journals = Journals(directory)
    if not journals.journals:
        raise JournalError(f"there is no journal at {typed(directory)}: check the name, or start "
                           "recording to it first")
    return journals


def print_all(journals: Journals) -> None:
    """Print what journals have as lines of JSON."""
    for journal in journals.journals:
        print_json({"journal": {
            "path": str(journal.path), "group": journal.group, "recorder": journal.recorder or None,
            "retired": is_retired(journal), "senders": senders(journal),
            "subscriptions": followers(journal)}})
    if len(journals.journals) > 1:
        print_json({"together": {"senders": merged(journals)}})


def show_all(journals: Journals) -> None:
    """Print what journals have as tables."""
    out = page()
    for journal in journals.journals:
        retired = ", retired" if is_retired(journal) else ""
        recorder = f", recorded by {printable(journal.recorder)}" if journal.recorder else ""
        print(f"{journal.path}: group {printable(journal.group)}{recorder}{retired}")
        show_senders(out, senders(journal))
        if several := followers(journal):
            show_table(out, ("subscription", "committed at", "messages behind"),
                       [(each["name"], f"{datetime.fromtimestamp(each['at'], UTC):%F %T}Z",
                         f"{each['behind']:,}") for each in several])
    if len(journals.journals) > 1:
        show_senders(out, merged(journals), "all journals, as a stream reads them")


def show_senders(out: Console, rows: Rows, title: str = "") -> None:
    """Print a table of senders, with a column for each value of a row."""
    headings = list(rows[0]) if rows else ["sender"]
    show_table(out, headings, [[cell(value) for value in row.values()] for row in rows],
               title=title)


def cell(value: Any) -> str:
    """Return a value as text. Of several ranges it has the first three, and the number
    of messages in all of them."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int):
        return f"{value:,}"
    if not value:
        return "-"
    named = ", ".join(f"{first}..{last}" for first, last in value[:3])
    more = ", ..." if len(value) > 3 else ""
    return f"{named}{more} ({sum(last - first + 1 for first, last in value):,})"


def is_retired(journal: JournalReader) -> bool:
    return (journal.path / RETIRED).exists()


def senders(journal: JournalReader) -> Rows:
    """Return a row for each sender of a journal."""
    rows = []
    for sender, extent in journal.extents().items():
        segments = journal.segments(sender)
        purged: Ranges = [(extent.start, extent.low - 1)] if extent.start < extent.low else []
        rows.append({"sender": sender, "from": extent.low, "to": extent.high, "purged": purged,
                     "lost": extent.lost, "segments": len(segments),
                     "bytes": sum(segment.size for segment in segments)})
    return rows


def followers(journal: JournalReader) -> Rows:
    """Return a row for each subscription of a journal: its name, when it committed
    last, and how many messages it is behind."""
    digest = journal.digest()
    return [{"name": name, "at": each.committed_at // 10**9, "behind": behind(each.digest, digest)}
            for name, each in subscriptions(journal.path).items()]


def merged(journals: Journals) -> Rows:
    """Return a row for each sender, as a stream over all journals reads them."""
    rows = []
    reach = journals.reach()
    for sender, extent in journals.extents().items():
        waiting: Ranges = ([(extent.high + 1, reach[sender])]
                           if extent.high < reach[sender] else [])
        rows.append({"sender": sender, "from": extent.low, "to": extent.high,
                     "lost": extent.lost, "waiting": waiting})
    return rows


def behind(start: Offset, end: Offset) -> int:
    """Return how many messages are between two digests."""
    return sum(max(0, seqno - start.get(sender, 0)) for sender, seqno in end.items())
