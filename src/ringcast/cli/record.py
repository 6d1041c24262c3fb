"""`ringcast record`: a member that writes the messages of a group to a journal, which
Spark reads."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    path,
    print_json,
    settings,
    typed,
)
from ringcast.cli.retention_options import KeepBytes, KeepFor, KeepUntilCommitted, retention_of
from ringcast.units import counted

if TYPE_CHECKING:
    from ringcast import View


@app.command("record")
def record_command(
    directory: Annotated[Path, typer.Argument(
        parser=path, help="The journal; made if it does not exist, continued if it does.")],
    group: Annotated[str, typer.Option(help="The group to record.",
                                        autocompletion=groups_here)],
    name: Annotated[str | None, typer.Option(
        help="The name of this member.",
        show_default="recorder; with --trust, KEY/recorder")] = None,
    stop_when_alone: Annotated[bool, typer.Option(
        "--stop-when-alone", help="End when all other members have left.")] = False,
    keep_place: Annotated[bool, typer.Option(
        "--keep-place", help="When stopped by a signal, do not leave the group: the others keep "
                             "all messages for this member until it is started again.")] = False,
    keep_for: KeepFor = None,
    keep_bytes: KeepBytes = None,
    keep_until_committed: KeepUntilCommitted = None,
    stack: StackName = "mcast-udp",
    secret_file: SecretFile = None,
    trust: TrustFolder = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    options: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Record the messages of a group: every message, once, in its sender's order. A
    message is on disk before it is acknowledged.

    The recorder ends on SIGINT (exit status 130) or SIGTERM (0). If it is killed at any
    moment, or stopped by a full disk, and started again on the same directory, it
    continues without loss or duplicates. Meanwhile the others keep what it lacks, also
    of members that go, for the time that the option absence says, or until it is
    excluded.

    The journal keeps all messages unless a --keep option is given. --keep-for and
    --keep-bytes remove messages beyond a limit. --keep-until-committed keeps those that
    the named streams have not committed; alone, it removes all others.

    With --json, print one object at the end: how many messages were "recorded".
    """
    from ringcast import Channel, ClosedError
    from ringcast.cli.screen import spinner
    from ringcast.config import configure
    from ringcast.journal.recorder import (
        close_soon,
        close_when_alone,
        connected,
        record,
        resume_of,
    )
    from ringcast.journal.writer import Journal

    place = typed(directory)
    retention = retention_of(keep_for, keep_bytes, keep_until_committed)
    name = name_for("recorder", name, trust)
    chosen = settings(options) | {"oob_in_order": True}
    configure(chosen, stack)    # an impossible option must not leave a journal behind
    with Journal(directory, group=group, recorder=name,
                 segment_bytes=retention.segment_bytes) as journal:
        def on_view(view: "View") -> None:
            close_when_alone(channel, view)

        channel = Channel(group, name=name, stack=stack, durable=True, resume=resume_of(journal),
                          on_view=on_view if stop_when_alone else None, secret=secret_file,
                          trust=trust, **chosen)
        stopped_by: list[int] = []
        is_member = False

        def stop(number: int, _: object) -> None:
            stopped_by.append(number)
            close_soon(channel, leave=not keep_place)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        try:
            with connected(channel), spinner(quiet) as progress:
                is_member = True
                task = progress.add_task(f"recording {group} to {place}")

                def on_progress(total: int) -> None:
                    progress.update(task, description=f"recorded {counted(total, 'message')} of "
                                                      f"{group} to {place}")

                recorded = record(channel, journal, on_progress, retention=retention)
        except ClosedError:
            if not stopped_by or is_member:
                raise
            print("ringcast: stopped before it had joined the group; nothing was recorded",
                  file=sys.stderr)
            raise typer.Exit(128 + stopped_by[0]) from None     # as shells report that signal
    if as_json:
        print_json({"recorded": {"messages": recorded, "path": str(directory)}})
    else:
        print(f"{counted(recorded, 'message')} recorded")
    if signal.SIGINT in stopped_by:
        raise typer.Exit(INTERRUPTED)
