"""`ringcast doctor`: what keeps a group from working here."""

from typing import TYPE_CHECKING, Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import (
    AsJson,
    GroupHere,
    SecretFile,
    Settings,
    StackName,
    TrustFolder,
    print_json,
    printable,
    settings,
)
from ringcast.cli.sentences import folded
from ringcast.config import Config, configure

if TYPE_CHECKING:
    from ringcast.doctor import Finding
    from ringcast.protocols.membership.messages import Present

MARKS = {"ok": "ok     ", "warning": "WARNING", "fault": "FAULT  "}
INDENT = 9                              # columns of a mark and the spaces after it


@app.command("doctor")
def doctor_command(
    group: GroupHere,
    as_json: AsJson = False,
    seconds: Annotated[float, typer.Option(
        min=0, max=60, help="Seconds to listen to what comes to the group's address, and "
                            "to wait for answers of members; 0: no members are asked.")] = 1.0,
    stack: StackName = "mcast-udp",
    secret_file: SecretFile = None,
    trust: TrustFolder = None,
    options: Settings = None,
) -> None:
    """Find what keeps a group from working here, and say what to do: multicast, socket
    buffers, MTU, clocks, two groups at one address and port, and members that differ in
    version, stack, options, place or secret, that are parted, stopped or dead.

    It joins nothing. It listens and sends only on loopback, or on the interface that
    --set interface=ADDRESS names. It asks members who they are, and reads the status
    files on this machine. Off loopback it needs a key to ask, or --set insecure=true.
    With --json, print one object a line. Exit status 1 if it finds a fault.
    """
    from ringcast import arguments, statusfile
    from ringcast.cli.ask import ask
    from ringcast.doctor import examine, measure

    arguments.text("group", group)
    chosen = settings(options)
    config = configure(chosen, stack)
    before = statusfile.next_snapshots(group) if seconds else []
    measured = measure(group, stack, config, seconds)
    now = statusfile.next_snapshots(group) if seconds else statusfile.snapshots()
    answers: list[Present] = []
    may_ask = bool(secret_file or trust or config.may_be_plain)
    if measured.refusal is None and seconds and may_ask:
        answers = ask(group, stack, "multicast", seconds, chosen, secret_file, trust)
    findings = examine(group, stack, config, measured, now, answers if may_ask else None,
                       Config.__struct_fields__ - chosen.keys(), before)
    for finding in findings:
        if as_json:
            print_json(finding)
        else:
            show(finding)
    if any(finding.level == "fault" for finding in findings):
        raise typer.Exit(1)


def show(finding: "Finding") -> None:
    """Print a finding, and the advice below it."""
    print(folded(f"{MARKS[finding.level]}  {finding.check}: {printable(finding.text)}", INDENT))
    if finding.advice:
        print(folded(" " * INDENT + printable(finding.advice), INDENT))
