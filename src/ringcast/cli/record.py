"""`ringcast record`: a member that keeps what the group says in a journal, for Spark to read."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ringcast import Channel, View
from ringcast.cli.app import Settings, app, console, settings
from ringcast.spark.journal import Journal
from ringcast.spark.recorder import record, resume_of


@app.command("record")
def record_command(
    directory: Annotated[Path, typer.Argument(help="The journal; made when it is not there, gone on with when it is.")],
    group: Annotated[str, typer.Option(help="The group to record.")],
    members: Annotated[str, typer.Option(help="The names of all members, this one included, with commas between.")],
    name: Annotated[str, typer.Option(help="The name of this member.")] = "recorder",
    stop_when_alone: Annotated[bool, typer.Option("--stop-when-alone", help="End when all other members have left.")] = False,
    keep_place: Annotated[bool, typer.Option("--keep-place", help="When stopped by a signal, do not leave the group: the others "
                                             "keep everything for this member until it is started again.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    options: Settings = None,
) -> None:
    """Record what a group says: every message, once, in its sender's order, on disk before it is acknowledged.

    Ends on SIGINT or SIGTERM. Killed at any moment, or stopped by a full disk, and started again on the same directory, it goes on
    without loss or repetition: meanwhile the others wait for it, until it is excluded.
    """
    names = [each.strip() for each in members.split(",")]
    with Journal(directory, group=group) as journal:
        channel = Channel(group, name=name, members=names, resume=resume_of(journal, names),
                          on_view=(lambda view: close_when_alone(channel, view)) if stop_when_alone else None, **settings(options))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: close_soon(channel, leave=not keep_place))
        with staying(channel), Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console,
                               disable=quiet) as progress:
            task = progress.add_task(f"recording {group} to {directory}")
            recorded = record(channel, journal, lambda total: progress.update(
                task, description=f"recorded {total:,} messages of {group} to {directory}"))
    print(f"{recorded} messages recorded")


@contextmanager
def staying(channel: Channel) -> Iterator[None]:
    """Connect and leave, but on an error go without leaving: what is not recorded must not be given up by the others."""
    channel.connect()
    try:
        yield
    except BaseException:
        channel.close(leave=False)
        raise
    channel.close()


def close_soon(channel: Channel, *, leave: bool = True) -> None:
    """Close the channel from a thread of its own, once what was handed over is recorded: the iteration then ends."""
    threading.Thread(target=close_when_drained, args=(channel, leave), daemon=True).start()


def close_when_drained(channel: Channel, leave: bool) -> None:
    while leave and ((status := channel.status())["num_undelivered"] or status["num_leaving"]):
        time.sleep(0.01)
    channel.close(leave=leave)


def close_when_alone(channel: Channel, view: View) -> None:
    if view.members == (channel.address,):
        close_soon(channel)
