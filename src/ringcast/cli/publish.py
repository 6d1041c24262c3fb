"""`ringcast publish`: a member that carries what Spark wrote into an outbox to its
group, exactly once."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ringcast.cli.app import Settings, StackName, app, console, path, settings
from ringcast.outbox.publisher import KEEP_PARTS, OwnedOutbox, Publisher, channel_factory


@app.command("publish")
def publish_command(
    outbox: Annotated[Path, typer.Argument(
        parser=path, help="The directory that Spark writes to; made when it is not there.")],
    group: Annotated[str, typer.Option(help="The group to send to.")],
    members: Annotated[str, typer.Option(help="The names of all members, this one included, with commas between.")],
    name: Annotated[str, typer.Option(help="The name of this member.")] = "spark",
    keep_parts: Annotated[float, typer.Option(help="Seconds until a file goes that a failed task left behind.")] = KEEP_PARTS,
    stack: StackName = "mcast-udp",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    options: Settings = None,
) -> None:
    """Send a group what Spark wrote with format("ringcast"): every row, once, batch
    after batch; a write ends when all members have it.

    Ends on SIGINT or SIGTERM. Killed at any moment and started again on the same
    directory, it goes on without loss or repetition.
    """
    names = [each.strip() for each in members.split(",")]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    config, join = channel_factory(group, name=name, members=names, stack=stack, **settings(options))
    with OwnedOutbox(outbox, group, config) as held, Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
                                                             console=console, disable=quiet) as progress:
        task = progress.add_task(f"publishing {outbox} to {group}")
        publisher = Publisher(held, join, stop, keep_parts=keep_parts,
                              on_progress=lambda total: progress.update(
task, description=f"{group} has acknowledged {total:,} messages of {outbox}"))
        publisher.run()
    print(f"{publisher.acknowledged} messages published")
