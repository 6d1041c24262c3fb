"""`ringcast status`: what the members of a group on this machine know, also of hung and
dead ones."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from ringcast.cli.app import app
from ringcast.cli.options import AsJson, GroupHere, print_json, printable
from ringcast.cli.seen import Seen, clock, look, nobody, remarks, span
from ringcast.cli.sentences import folded
from ringcast.status import numbers, sections

PAUSE = 1.0         # seconds between two looks


@app.command("status")
def status_command(
    group: GroupHere,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option(
        "--watch", help="Go on, every second, until Ctrl-C.")] = False,
) -> None:
    """Show what the members of a group on this machine know: their view, who waits for
    whom, and every number that is not 0. It reads their status files, so it works on
    members that hang and on those that were killed.

    With --json, print one object a line for each member. Exit status 1 if nobody of the
    group has a status file here. docs/reference.md says what each number means.
    """
    while True:
        found = look(group)
        if not found and not as_json:
            print(folded(nobody(group)))
        for seen in found:
            if as_json:
                print_json(as_object(seen))
            else:
                show(seen)
        if not watch:
            raise typer.Exit(0 if found else 1)
        time.sleep(PAUSE)


def show(seen: Seen) -> None:
    """Print what is known of a member."""
    for line in lines(seen):
        print(folded(line, len(line) - len(line.lstrip()) + 4))
    sys.stdout.flush()


def as_object(seen: Seen) -> dict[str, Any]:
    """Return what is known of a member, for a program."""
    return {"life": seen.life, "age": round(seen.age, 3), "state_now": seen.state,
            **msgspec.to_builtins(seen.snapshot)}


def lines(seen: Seen) -> Iterator[str]:
    """Yield what is known of a member, for people."""
    snapshot = seen.snapshot
    yield f"{printable(snapshot.name)} of group {printable(snapshot.group)}: {seen.state}"
    yield (f"  process {snapshot.pid}, ringcast {snapshot.version}, {snapshot.stack}"
           f"{', sealed' if snapshot.is_sealed else ''}, {snapshot.place}")
    yield (f"  began at {clock(snapshot.opened_at)}, said this at {clock(snapshot.written_at)}, "
           f"{span(seen.age)} ago")
    if snapshot.peers:
        names = ", ".join(printable(peer.name) for peer in snapshot.peers)
        yield f"  view {snapshot.view_id}{'' if snapshot.is_primary else ', not primary'}: {names}"
    if observers := [printable(peer.name) for peer in snapshot.peers if peer.observes]:
        yield f"  observers, for whom nobody waits: {', '.join(observers)}"
    if snapshot.absent:
        yield f"  absent, and expected back: {', '.join(map(printable, snapshot.absent))}"
    yield from (f"  {remark}" for remark in remarks([seen]))
    for name, section in sections(snapshot.status):
        declared = numbers(type(section))
        shown = {field: value for field, value in msgspec.structs.asdict(section).items() if value}
        if shown:
            yield f"  {name}"
        for field, value in shown.items():
            yield f"    {field:27}{value:>18,}  {declared[field].unit}"
