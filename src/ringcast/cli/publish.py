"""`ringcast publish`: a member that sends what Spark wrote into an outbox to its group,
exactly once."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from ringcast.cli.app import Settings, StackName, app, path, settings, spinner
from ringcast.outbox.publisher import KEEP_PARTS, OwnedOutbox, Publisher, channel_factory


@app.command("publish")
def publish_command(
    outbox: Annotated[Path, typer.Argument(
        parser=path, help="The directory that Spark writes to; made if it does not exist.")],
    group: Annotated[str, typer.Option(help="The group to send to.")],
    members: Annotated[str, typer.Option(
        help="The names of all members, this one included, with commas between.")],
    name: Annotated[str, typer.Option(help="The name of this member.")] = "spark",
    keep_parts: Annotated[float, typer.Option(
        help="Seconds after which the file of a failed task is removed.")] = KEEP_PARTS,
    stack: StackName = "mcast-udp",
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    options: Settings = None,
) -> None:
    """Send the rows that Spark writes with format("ringcast") to a group, exactly once
    and batch by batch. A write returns when all members have acknowledged it.

    The publisher ends on SIGINT or SIGTERM. If it is killed at any moment and started
    again on the same directory, it continues without loss or duplicates.
    """
    names = [each.strip() for each in members.split(",")]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    config, join = channel_factory(group, name=name, members=names, stack=stack,
                                   **settings(options))
    with OwnedOutbox(outbox, group, config) as owned, spinner(quiet) as progress:
        task = progress.add_task(f"publishing {outbox} to {group}")

        def on_progress(total: int) -> None:
            progress.update(task, description=f"{group} has acknowledged {total:,} messages of "
                                              f"{outbox}")

        publisher = Publisher(owned, join, stop, keep_parts=keep_parts, on_progress=on_progress)
        publisher.run()
    print(f"{publisher.acknowledged} messages published")
