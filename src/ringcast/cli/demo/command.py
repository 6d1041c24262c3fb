"""The command `ringcast demo`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import (
    JsonFile,
    SecretFile,
    Settings,
    StackName,
    TrustFolder,
    path,
    settings,
)


@app.command("demo")
def demo_command(
    publishers: Annotated[int, typer.Option(min=1, max=16, help="Number of publishers.")] = 3,
    messages: Annotated[int, typer.Option(min=1, max=336_776,
                                          help="Number of flight records to send.")] = 336_776,
    loss: Annotated[float | None, typer.Option(
        min=0.0, max=0.5, help="Probability that a member loses a datagram.  "
                               "[default: 0.02; nakack2-tcp: 0]")] = None,
    stack: StackName = "mcast-udp",
    seed: Annotated[int, typer.Option(help="Seed of the simulated network faults.")] = 1,
    page: Annotated[Path, typer.Option(
        "--report", parser=path, metavar="FILE", help="File for the report (HTML).",
        show_default="ringcast-demo.html")] = Path("ringcast-demo.html"),
    keep: Annotated[Path | None, typer.Option(
        parser=path, metavar="DIR",
        help="Keep journal, table, outbox and traces in this new directory.")] = None,
    json_file: JsonFile = None,
    secret_file: SecretFile = None,
    trust: TrustFolder = None,
    options: Settings = None,
) -> None:
    """Run the whole system on real data. Publishers send flight records over a lossy
    network. A recorder writes them to a journal. Spark reads them exactly once, and
    announces late flights to the group. At the end the figures and the announcements
    are compared with the file, and the traces of all members are audited.

    With --json - the tables go to standard error.

    Exit status: 0 when all results are equal, 1 when one differs, 2 for a mistake in
    the call.
    """
    from ringcast.cli.demo.run import run

    run(publishers, messages, loss, stack, seed, page, keep, json_file, secret_file,
        trust, settings(options))
