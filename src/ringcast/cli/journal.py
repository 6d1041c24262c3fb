"""`ringcast journal`: show a journal, and purge, commit and retire by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ringcast.cli.app import app
from ringcast.cli.options import path
from ringcast.cli.retention_options import KeepBytes, KeepFor, KeepUntilCommitted, retention_of
from ringcast.errors import ConfigError, JournalError
from ringcast.journal.manifest import RETIRED
from ringcast.journal.merge import Journals
from ringcast.journal.offsets import Offset
from ringcast.journal.reader import JournalReader
from ringcast.journal.subscriptions import committed, subscribe, subscriptions
from ringcast.journal.writer import Journal

journal_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None,
                          help="Show a journal, or remove messages that are no longer needed.")
app.add_typer(journal_app, name="journal")

Directory = Annotated[Path, typer.Argument(
    parser=path, help="A journal, or a folder of journals that recorders of one group write.")]
Checkpoints = Annotated[list[Path] | None, typer.Option(
    "--checkpoint", parser=path, metavar="DIRECTORY",
    help="The checkpointLocation of a streaming query; repeat for more.")]
Ranges = Sequence[tuple[int, int]]


@journal_app.command("show")
def show(directory: Directory) -> None:
    """Show for each sender what the journal has and what is lost, and what streams have
    committed."""
    journals = found(directory)
    console = Console(soft_wrap=True)
    for journal in journals.journals:
        retired = ", retired" if (journal.path / RETIRED).exists() else ""
        recorder = f", recorded by {journal.recorder}" if journal.recorder else ""
        console.print(f"{journal.path}: group {journal.group}{recorder}{retired}", markup=False,
                      highlight=False)
        console.print(senders_of(journal))
        if subscriptions(journal.path):
            console.print(subscriptions_of(journal))
    if len(journals.journals) > 1:
        console.print(together(journals))


@journal_app.command("purge")
def purge(directory: Directory, checkpoint: Checkpoints = None, keep_for: KeepFor = None,
          keep_bytes: KeepBytes = None, keep_until_committed: KeepUntilCommitted = None) -> None:
    """Remove once what need not be kept. No recorder may have the journal open; a
    recorder has the same options.

    With --checkpoint, remove only what these queries have committed. The checkpoint has
    this at once. A subscription has it one batch later, and never for the last batch.
    """
    retention = retention_of(keep_for, keep_bytes, keep_until_committed)
    digests = [committed(each) for each in checkpoint or ()]
    if retention.keeps_everything and not digests:
        raise ConfigError("say what may be removed: --checkpoint, --keep-for, --keep-bytes or "
                          "--keep-until-committed")
    for reader in found(directory).journals:
        with Journal(reader.path, group=reader.group) as journal:
            print(f"{reader.path}: {retention.enforce(journal, committed=digests):,} bytes freed")


@journal_app.command("commit")
def commit(directory: Directory, name: Annotated[str, typer.Argument(help="The subscription.")],
           checkpoint: Annotated[Path, typer.Option(
               parser=path, metavar="DIRECTORY",
               help="The checkpointLocation of its query.")]) -> None:
    """Write what a query's checkpoint has committed into its subscription, so that a
    running recorder may remove it.

    Use it for a query that does not run: Spark tells a subscription of a batch only
    when it plans the next one.
    """
    found(directory)
    digest = committed(checkpoint)
    subscribe(directory, name, digest)
    print(f"{name} has committed {sum(digest.values()):,} messages of {len(digest)} senders")


@journal_app.command("retire")
def retire(directory: Annotated[Path, typer.Argument(
        parser=path, help="The journal of a recorder that will not come back.")]) -> None:
    """Stop waiting for a recorder: for streams over its folder, messages that no other
    journal has are lost.

    If the recorder comes back, its first message undoes this.
    """
    reader = JournalReader(directory)
    with Journal(directory, group=reader.group) as journal:
        journal.retire()
    print(f"{directory} is retired")


def found(directory: Path) -> Journals:
    """Return the journals at a path. Raises JournalError if there is none."""
    journals = Journals(directory)
    if not journals.journals:
        raise JournalError(f"there is no journal at {directory}: check the name, or start "
                           "recording to it first")
    return journals


def senders_of(journal: JournalReader) -> Table:
    """Return the table of a journal's senders."""
    table = Table("sender", "from", "to", "purged", "lost", "segments", "bytes")
    for sender, extent in journal.extents().items():
        segments = journal.segments(sender)
        purged = [(extent.start, extent.low - 1)] if extent.start < extent.low else []
        table.add_row(sender, f"{extent.low}", f"{extent.high}", ranges(purged),
                      ranges(extent.lost), f"{len(segments)}",
                      f"{sum(segment.size for segment in segments):,}")
    return table


def subscriptions_of(journal: JournalReader) -> Table:
    """Return the table of a journal's subscriptions."""
    table = Table("subscription", "committed at", "messages behind")
    digest = journal.digest()
    for name, subscription in subscriptions(journal.path).items():
        at = datetime.fromtimestamp(subscription.committed_at // 10**9, UTC)
        table.add_row(name, f"{at:%Y-%m-%d %H:%M:%S}Z", f"{behind(subscription.digest, digest):,}")
    return table


def together(journals: Journals) -> Table:
    """Return the table of all journals, merged as a stream reads them."""
    table = Table("sender", "from", "to", "lost", "waiting",
                  title="all journals, as a stream reads them")
    reach = journals.reach()
    for sender, extent in journals.extents().items():
        waiting = [(extent.high + 1, reach[sender])] if extent.high < reach[sender] else []
        table.add_row(sender, f"{extent.low}", f"{extent.high}", ranges(extent.lost),
                      ranges(waiting))
    return table


def behind(start: Offset, end: Offset) -> int:
    """Return how many messages are between two digests."""
    return sum(max(0, seqno - start.get(sender, 0)) for sender, seqno in end.items())


def ranges(several: Ranges) -> str:
    """Format the first three ranges, and the number of messages in all of them."""
    if not several:
        return "-"
    named = ", ".join(f"{first}..{last}" for first, last in several[:3])
    more = ", ..." if len(several) > 3 else ""
    return f"{named}{more} ({sum(last - first + 1 for first, last in several):,})"
