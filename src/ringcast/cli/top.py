"""`ringcast top`: a live table of the members of a group on this machine."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ringcast.cli.app import app
from ringcast.cli.options import printable
from ringcast.cli.seen import Seen, look, nobody, remarks
from ringcast.snapshot import Peer

PAUSE = 0.5         # seconds between two looks


@app.command("top")
def top_command(group: Annotated[str, typer.Argument(help="The group.")]) -> None:
    """Show the members of a group, live: their state, what they have not acknowledged,
    what they miss, what they send and get each second; and who waits for whom. Ctrl-C
    ends it. If the output is no terminal, show it once.

    It reads the status files of the members on this machine, so it works on those that
    hang and on those that were killed. Of members elsewhere it shows what those here
    say. Exit status 1 if nobody of the group has a status file here.
    """
    console = Console()
    found = look(group)
    if not console.is_terminal:
        if not found:
            print(nobody(group))
            raise typer.Exit(1)
        console.print(page(group, found))
        return
    with Live(page(group, found), console=console, auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(PAUSE)
            live.update(page(group, look(group)), refresh=True)


def page(group: str, found: Sequence[Seen]) -> Group:
    """Return the table and the remarks below it."""
    if not found:
        return Group(Text(nobody(group)))
    table = Table(box=None, padding=(0, 1, 0, 0), title=Text(f"group {printable(group)}"),
                  title_justify="left")
    table.add_column("member", no_wrap=True, overflow="ellipsis", max_width=NAME)
    table.add_column("state", no_wrap=True, min_width=max(9, *(len(each.state) for each in found)))
    for title in ("owes", "misses", "has", "sent/s", "got/s", "again/s"):
        table.add_column(title, justify="right", no_wrap=True, min_width=max(5, len(title)))
    for seen in found:
        table.add_row(*local_row(seen, found), style="" if seen.is_well else "bold red")
    here = {seen.snapshot.incarnation for seen in found}
    elsewhere = {peer.incarnation: peer for seen in found for peer in seen.snapshot.peers
                 if peer.incarnation not in here}
    for peer in elsewhere.values():
        table.add_row(Text(printable(peer.name)), "elsewhere", owed(peer.incarnation, found),
                      *[""] * 5)
    notes = [Text(f"- {remark}") for remark in remarks(found)]
    return Group(table, Text(LEGEND, style="dim"), *notes)


LEGEND = "owes: not acknowledged; misses: lost on the way; has: given to it, not finished"
NAME = 18           # columns of a member's name: then the table fits 80 columns
UNITS = ("", "k", "M", "G")


def local_row(seen: Seen, found: Sequence[Seen]) -> list[str | Text]:
    """Return the row of a member on this machine."""
    snapshot, rates = seen.snapshot, seen.snapshot.rates
    status = snapshot.status
    numbers = (status.multicast.num_missing + status.unicast.unicast_missing,
               status.delivery.num_undelivered)
    return [Text(printable(snapshot.name)), seen.state, owed(snapshot.incarnation, found),
            *map(short, numbers), *map(short, (rates.sent, rates.delivered, rates.repeated))]


def owed(member: int, found: Sequence[Seen]) -> str:
    """Return how many messages of the sender that waits most a member has not
    acknowledged."""
    said: list[Peer] = [peer for seen in found for peer in seen.snapshot.peers
                        if peer.incarnation == member and peer.unacked is not None]
    return short(max(peer.unacked or 0 for peer in said)) if said else "-"


def short(number: float) -> str:
    """Return a number with at most five characters."""
    unit = ""
    for unit in UNITS:
        if number < 999.5 or unit == UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f}{unit}" if not unit or number >= 99.95 else f"{number:.1f}{unit}"
