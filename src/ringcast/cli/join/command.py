"""`ringcast join`: its options."""

from functools import partial
from typing import Annotated, Any

import typer

from ringcast.cli.app import app
from ringcast.cli.options import (
    AsJson,
    Discovery,
    SecretFile,
    Settings,
    StackName,
    TrustFolder,
    groups_here,
    settings,
)


@app.command("join")
def join_command(
    group: Annotated[str, typer.Argument(help="The group to join.",
                                          autocompletion=groups_here)],
    name: Annotated[str | None, typer.Option(
        help="The name of this member; no two members have the same.",
        show_default="host, process and a random part; with --trust, below our key's name")] = None,
    as_json: AsJson = False,
    stack: StackName = "mcast-udp",
    discovery: Discovery = "multicast",
    partition: Annotated[str, typer.Option(
        help="What goes on when the group comes apart: merge, every part; or primary, only the "
             "part with the majority.")] = "merge",
    slow: Annotated[str, typer.Option(
        help="When this member is slower than the others: block, they wait for it; or observe, "
             "they do not, and it says what it missed.")] = "block",
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
    It needs --set min_members=N, too: more than half of all members.
    With --slow observe there is "skipped", too, with "sender", "first" and "last".
    """
    from ringcast import Channel
    from ringcast.cli.join.terminal import Terminal

    chosen: dict[str, Any] = {"partition": partition, "slow": slow}
    Terminal(as_json, slow == "observe").run(partial(
        Channel, group, name=name, stack=stack, discovery=discovery, secret=secret_file,
        trust=trust, **chosen | settings(options)))
