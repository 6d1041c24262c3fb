"""`ringcast publish`: a member that sends what Spark wrote into an outbox to its group,
exactly once."""

import signal
import threading
from _thread import start_new_thread
from pathlib import Path
from typing import Annotated

import typer

from ringcast.cli import INTERRUPTED
from ringcast.cli.app import app
from ringcast.cli.options import (
    AsJson,
    SecretFile,
    Settings,
    StackName,
    TrustFolder,
    groups_here,
    name_for,
    names,
    path,
    print_json,
    settings,
    typed,
)
from ringcast.outbox import KEEP_PARTS
from ringcast.units import counted


@app.command("publish")
def publish_command(
    outbox: Annotated[Path, typer.Argument(
        parser=path, help="The directory that Spark writes to; made if it does not exist.")],
    group: Annotated[str, typer.Option(help="The group to send to.",
                                        autocompletion=groups_here)],
    name: Annotated[str | None, typer.Option(
        help="The name of this member.", show_default="spark; with --trust, KEY/spark")] = None,
    expect: Annotated[str, typer.Option(
        help="The names of members that must have every row, with commas between. Without any, "
             "at least one other member must be there.")] = "",
    keep_parts: Annotated[float, typer.Option(
        min=1, help="Seconds after which the file of a failed task is removed.")] = KEEP_PARTS,
    stack: StackName = "mcast-udp",
    secret_file: SecretFile = None,
    trust: TrustFolder = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    options: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Send the rows that Spark writes with format("ringcast") to a group, exactly once
    and batch by batch. A write returns when all members have acknowledged it, among
    them those that are expected.

    The publisher ends on SIGINT (exit status 130) or SIGTERM (0). If it is killed at
    any moment and started again on the same directory, it continues without loss or
    duplicates. With --json, print one object at the end: how many messages were
    "published".
    """
    from ringcast.cli.screen import spinner
    from ringcast.outbox.owned import OwnedOutbox
    from ringcast.outbox.publisher import Publisher, channel_factory

    name = name_for("spark", name, trust)
    stop = threading.Event()
    stopped_by: list[int] = []

    def end(number: int, _: object) -> None:
        stopped_by.append(number)
        start_new_thread(stop.set, ())      # takes a lock that this thread may hold in stop.wait()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    config, join = channel_factory(group, name=name, stack=stack, secret=secret_file, trust=trust,
                                   **settings(options))
    with OwnedOutbox(outbox, group, config) as owned, spinner(quiet) as progress:
        task = progress.add_task(f"publishing {typed(outbox)} to {group}")

        def on_progress(total: int) -> None:
            progress.update(task, description=f"{group} has acknowledged "
                                              f"{counted(total, 'message')} of {typed(outbox)}")

        publisher = Publisher(owned, name, join, stop, expect=names(expect), keep_parts=keep_parts,
                              on_progress=on_progress)
        publisher.run()
    if as_json:
        print_json({"published": {"messages": publisher.acknowledged, "path": str(outbox)}})
    else:
        print(f"{counted(publisher.acknowledged, 'message')} published")
    if signal.SIGINT in stopped_by:
        raise typer.Exit(INTERRUPTED)
