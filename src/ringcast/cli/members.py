"""`ringcast members`: who is in a group, without joining it."""

import json
import time
from contextlib import closing
from typing import Annotated, Any

import typer

from ringcast import Address, arguments
from ringcast.address import new_incarnation
from ringcast.cli.app import app
from ringcast.cli.options import (
    AsJson,
    Discovery,
    SecretFile,
    Settings,
    StackName,
    printable,
    settings,
)
from ringcast.config import configure, nanoseconds
from ringcast.discovery import parse
from ringcast.protocols.membership.asking import Asking
from ringcast.protocols.membership.messages import Present
from ringcast.protocols.parts import Parts
from ringcast.secret import Secret
from ringcast.stack import Stack
from ringcast.stacks import open_transport

LOOK = 20_000_000       # nanoseconds between two looks for addresses that were found


@app.command("members")
def members_command(
    group: Annotated[str, typer.Argument(help="The group.")],
    as_json: AsJson = False,
    timeout: Annotated[float, typer.Option(
        min=0, help="Seconds after which nobody is expected to answer any more.")] = 2.0,
    stack: StackName = "mcast-udp",
    discovery: Discovery = "multicast",
    secret_file: SecretFile = None,
    options: Settings = None,
) -> None:
    """Show who is in a group, without joining it: the name of each member, the oldest
    first; that one coordinates. A group that is parted shows several views.

    With --json, print one object a line for each view. Exit status 1 if nobody answers.
    """
    found = ask(group, stack, discovery, timeout, settings(options), secret_file)
    if not found and not as_json:
        print(f"nobody of group {printable(group)} has answered within {timeout:g} s")
    for number, view in enumerate(found):
        if as_json:
            print(json.dumps({"view": {"id": view.view_id, "members": view.names,
                                       "coordinator": view.names[0]}}, ensure_ascii=False))
        else:
            print("\n" * bool(number) + "\n".join(map(printable, view.names)))
    if not found:
        raise typer.Exit(1)


def ask(group: str, stack: str, discovery: str, timeout: float, options: dict[str, Any],
        secret: Secret | None = None) -> list[Present]:
    """Return the views of a group, those of most members first. End as soon as a few
    questions bring nothing new, or after `timeout` seconds."""
    config = configure(options, stack)
    local = Address("nobody", new_incarnation())
    with closing(parse(discovery)) as finder, closing(open_transport(
            stack, arguments.text("group", group), local.incarnation, config,
            secret)) as transport:
        asking = Asking(config)
        layers = Stack([asking, Parts(config.fitted(transport.max_datagram).max_datagram)],
                       local=local, group=group, physical=transport.physical,
                       sealed=secret is not None)
        end = time.monotonic_ns() + nanoseconds(1000 * timeout)
        layers.start(now := time.monotonic_ns())
        while now < end and not asking.is_over:
            transport.seek(finder.find())
            transport.put(layers.take().packets)
            wait = min(asking.deadline(), end, now + LOOK) - now
            datagrams = transport.poll(max(0, wait))
            now = time.monotonic_ns()
            layers.linked(transport.links(), now)
            layers.receive(datagrams, now)
            layers.tick(now)
        return sorted(asking.found.values(), key=lambda view: (-view.size, view.view_id))
