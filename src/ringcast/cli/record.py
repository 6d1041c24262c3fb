"""`ringcast record`: a member that keeps what the group says in a journal, for Spark to
read."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ringcast import Channel, ClosedError
from ringcast.cli.app import Settings, StackName, app, console, path, settings
from ringcast.cli.retention_options import KeepBytes, KeepFor, KeepUntilCommitted, retention_of
from ringcast.journal.recorder import close_soon, close_when_alone, connected, record, resume_of
from ringcast.journal.writer import Journal


@app.command("record")
def record_command(
    directory: Annotated[Path, typer.Argument(
        parser=path, help="The journal; made when it is not there, gone on with when it is.")],
    group: Annotated[str, typer.Option(help="The group to record.")],
    members: Annotated[str, typer.Option(help="The names of all members, this one included, with commas between.")],
    name: Annotated[str, typer.Option(help="The name of this member.")] = "recorder",
    stop_when_alone: Annotated[bool, typer.Option("--stop-when-alone", help="End when all other members have left.")] = False,
    keep_place: Annotated[bool, typer.Option("--keep-place", help="When stopped by a signal, do not leave the group: the others "
                                             "keep everything for this member until it is started "
                                             "again.")] = False,
    keep_for: KeepFor = None,
    keep_bytes: KeepBytes = None,
    keep_until_committed: KeepUntilCommitted = None,
    stack: StackName = "mcast-udp",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    options: Settings = None,
) -> None:
    """Record what a group says: every message, once, in its sender's order, on disk
    before it is acknowledged.

    Ends on SIGINT or SIGTERM. Killed at any moment, or stopped by a full disk, and
    started again on the same directory, it goes on without loss or repetition:
    meanwhile the others wait for it, until it is excluded.

    The journal keeps everything, unless a --keep option says otherwise: then what no
    named stream still needs is removed, all of it, or as much as is older, or more,
    than the limits given.
    """
    retention = retention_of(keep_for, keep_bytes, keep_until_committed)
    names = [each.strip() for each in members.split(",")]
    with Journal(directory, group=group, recorder=name) as journal:
        channel = Channel(group, name=name, members=names, stack=stack,
                          resume=resume_of(journal, names),
                          on_view=(lambda view: close_when_alone(channel, view)) if stop_when_alone
                          else None,
                          **(settings(options) | {"oob_in_order": True}))
        stopped_by: list[int] = []

        def stop(number: int, _: object) -> None:
            stopped_by.append(number)
            close_soon(channel, leave=not keep_place)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
                            console=console, disable=quiet)
        try:
            with connected(channel), progress:
                task = progress.add_task(f"recording {group} to {directory}")
                recorded = record(channel, journal, lambda total: progress.update(
                    task, description=f"recorded {total:,} messages of {group} to {directory}"),
                                  retention=retention)
        except ClosedError:
            if not stopped_by or channel.view is not None:
                raise
            print("ringcast: stopped before all members were there; nothing was recorded",
                  file=sys.stderr)
            raise typer.Exit(128 + stopped_by[0]) from None         # as a shell shows that signal
    print(f"{recorded} messages recorded")
