"""`ringcast doctor`: what keeps a group from working here."""

import json
from typing import Annotated

import msgspec
import typer

from ringcast import arguments, statusfile
from ringcast.cli.app import app
from ringcast.cli.options import AsJson, Settings, StackName, printable, settings
from ringcast.config import configure
from ringcast.doctor import examine, measure

MARKS = {"ok": "ok     ", "warning": "WARNING", "fault": "FAULT  "}


@app.command("doctor")
def doctor_command(
    group: Annotated[str, typer.Argument(help="The group.")],
    as_json: AsJson = False,
    seconds: Annotated[float, typer.Option(
        min=0, max=60, help="Seconds to listen to what comes to the group's address.")] = 1.0,
    stack: StackName = "mcast-udp",
    options: Settings = None,
) -> None:
    """Find what keeps a group from working here, and say what to do: multicast, socket
    buffers, MTU, clocks, two groups at one address and port, and members that differ in
    version, stack, place or secret, that are parted, stopped or dead.

    It joins nothing. It listens and sends only on loopback, or on the interface that
    --set interface=ADDRESS names; of the members it reads the status files on this
    machine. With --json, print one object a line. Exit status 1 if it finds a fault.
    """
    arguments.text("group", group)
    config = configure(settings(options), stack)
    findings = examine(group, stack, config, measure(group, stack, config, seconds),
                       statusfile.snapshots())
    for finding in findings:
        if as_json:
            print(json.dumps(msgspec.to_builtins(finding), ensure_ascii=False))
            continue
        print(f"{MARKS[finding.level]}  {finding.check}: {printable(finding.text)}")
        if finding.advice:
            print(f"         {printable(finding.advice)}")
    if any(finding.level == "fault" for finding in findings):
        raise typer.Exit(1)
