"""`ringcast members`: who is in a group, without joining it."""

from typing import Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import (
    AsJson,
    Discovery,
    GroupHere,
    SecretFile,
    Settings,
    StackName,
    TrustFolder,
    print_json,
    printable,
    settings,
)


@app.command("members")
def members_command(
    group: GroupHere,
    as_json: AsJson = False,
    timeout: Annotated[float, typer.Option(
        min=0, max=86_400,
        help="Seconds after which nobody is expected to answer any more.")] = 2.0,
    stack: StackName = "mcast-udp",
    discovery: Discovery = "multicast",
    secret_file: SecretFile = None,
    trust: TrustFolder = None,
    options: Settings = None,
) -> None:
    """Show who is in a group, without joining it: the name of each member, the oldest
    first; that one coordinates. A group that is parted shows several views.

    With --json, print one object a line for each view. Exit status 1 if nobody answers.
    """
    from ringcast.cli.ask import ask

    found = ask(group, stack, discovery, timeout, settings(options), secret_file, trust)
    if not found and not as_json:
        print(f"nobody of group {printable(group)} has answered within {timeout:g} s")
    for number, view in enumerate(found):
        if as_json:
            print_json({"view": {"id": view.view_id, "members": view.names,
                                 "coordinator": view.names[0]}})
        else:
            print("\n" * bool(number) + "\n".join(map(printable, view.names)))
    if not found:
        raise typer.Exit(1)
