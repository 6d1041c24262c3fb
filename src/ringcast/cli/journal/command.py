"""`ringcast journal`: show a journal, and purge, commit and retire by hand."""

from pathlib import Path
from typing import Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import AsJson, path, print_json, typed
from ringcast.cli.retention_options import KeepBytes, KeepFor, KeepUntilCommitted, retention_of
from ringcast.errors import ConfigError
from ringcast.units import counted

journal_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None,
                          help="Show a journal, or remove messages that are no longer needed.")
app.add_typer(journal_app, name="journal")

Directory = Annotated[Path, typer.Argument(
    parser=path, help="A journal, or a folder of journals that recorders of one group write.")]
Checkpoints = Annotated[list[Path] | None, typer.Option(
    "--checkpoint", parser=path, metavar="DIRECTORY",
    help="The checkpointLocation of a streaming query; repeat for more.")]


@journal_app.command("show")
def show(directory: Directory, as_json: AsJson = False) -> None:
    """Show what a journal has of each sender, and what is lost. It also shows what
    streams have committed.

    With --json, print one object a line: each "journal", and if there are several,
    "together", what a stream over all of them reads. Ranges are [first, last], times
    are seconds since 1970.
    """
    from ringcast.cli.journal import contents

    journals = contents.found(directory)
    if as_json:
        contents.print_all(journals)
    else:
        contents.show_all(journals)


@journal_app.command("purge")
def purge(directory: Directory, checkpoint: Checkpoints = None, keep_for: KeepFor = None,
          keep_bytes: KeepBytes = None, keep_until_committed: KeepUntilCommitted = None,
          as_json: AsJson = False) -> None:
    """Remove once what need not be kept. No recorder may have the journal open; a
    recorder has the same options.

    With --checkpoint, remove only what these queries have committed. The checkpoint has
    this at once. A subscription has it one batch later, and never for the last batch.
    With --json, print one object a line: of each journal what was "purged".
    """
    from ringcast.cli.journal.contents import found
    from ringcast.journal.subscriptions import committed
    from ringcast.journal.writer import Journal

    retention = retention_of(keep_for, keep_bytes, keep_until_committed)
    digests = [committed(each) for each in checkpoint or ()]
    if retention.keeps_everything and not digests:
        raise ConfigError("say what may be removed: --checkpoint, --keep-for, --keep-bytes or "
                          "--keep-until-committed")
    for reader in found(directory).journals:
        with Journal(reader.path, group=reader.group) as journal:
            freed = retention.enforce(journal, committed=digests)
        if as_json:
            print_json({"purged": {"path": str(reader.path), "bytes": freed}})
        else:
            print(f"{reader.path}: {freed:,} bytes freed")


@journal_app.command("commit")
def commit(directory: Directory, name: Annotated[str, typer.Argument(help="The subscription.")],
           checkpoint: Annotated[Path, typer.Option(
               parser=path, metavar="DIRECTORY",
               help="The checkpointLocation of its query.")],
           as_json: AsJson = False) -> None:
    """Note in a subscription what a query has committed. That stands in the query's
    checkpoint; once it is noted, a running recorder may remove it.

    Use it for a query that does not run: Spark tells a subscription of a batch only
    when it plans the next one. With --json, print one object: how far it has
    "committed" each sender.
    """
    from ringcast.cli.journal.contents import found
    from ringcast.journal.subscriptions import committed, subscribe

    found(directory)
    digest = committed(checkpoint)
    subscribe(directory, name, digest)
    if as_json:
        print_json({"committed": {"name": name, "senders": digest}})
        return
    print(f"{name} has committed {counted(sum(digest.values()), 'message')} of "
          f"{counted(len(digest), 'sender')}")


@journal_app.command("retire")
def retire(directory: Annotated[Path, typer.Argument(
        parser=path, help="The journal of a recorder that will not come back.")]) -> None:
    """Stop waiting for a recorder. For streams over its folder, messages that no other
    journal has are lost.

    If the recorder comes back, its first message undoes this.
    """
    from ringcast.journal.reader import JournalReader
    from ringcast.journal.writer import Journal

    reader = JournalReader(directory)
    with Journal(directory, group=reader.group) as journal:
        journal.retire()
    print(f"{typed(directory)} is retired")
