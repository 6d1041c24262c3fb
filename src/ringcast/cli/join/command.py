"""`ringcast join`: its options."""

from functools import partial
from typing import Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import (
    AsJson,
    Discovery,
    SecretFile,
    Settings,
    StackName,
    TrustFolder,
    settings,
)


@app.command("join")
def join_command(
    group: Annotated[str, typer.Argument(help="The group to join.")],
    name: Annotated[str | None, typer.Option(
        help="The name of this member; no two members have the same.",
        show_default="host, process and a random part; with --trust, below our key's name")] = None,
    as_json: AsJson = False,
    stack: StackName = "mcast-udp",
    discovery: Discovery = "multicast",
    partition: Annotated[str, typer.Option(
        help="What goes on when the group comes apart: merge, every part; or primary, only the "
             "part with the majority.")] = "merge",
    secret_file: SecretFile = None,
    trust: TrustFolder = None,
    options: Settings = None,
) -> None:
    """Join a group, and show its messages and views as they come. Each line of standard
    input is sent to everybody.

    At the end of the input, or on SIGINT or SIGTERM, leave the group. With --json,
    print one object a line: a "view" with "id", "members", "coordinator", "joined",
    "left" and "primary", or a "message" with "sender", "seqno" and "payload". A payload
    that is no UTF-8 is "payload_base64", and a message to this member alone has "dest".
    With --partition primary, lines wait while this member is cut off from the majority.
    """
    from ringcast import Channel
    from ringcast.cli.join.terminal import Terminal

    Terminal(as_json).run(partial(Channel, group, name=name, stack=stack, discovery=discovery,
                                  secret=secret_file, trust=trust,
                                  **{"partition": partition} | settings(options)))
