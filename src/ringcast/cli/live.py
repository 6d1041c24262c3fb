"""The table of `ringcast top`: the members of a group on this machine."""

import signal
import time
from collections.abc import Iterator, Sequence

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ringcast.cli.options import printable
from ringcast.cli.screen import fitting, page
from ringcast.cli.seen import Seen, look, nobody, remarks
from ringcast.snapshot import Peer
from ringcast.units import counted

PAUSE = 0.5         # seconds between two looks


def show(group: str) -> int:
    """Show the table, live in a terminal, else once. Return the exit status."""
    out = page()
    found = look(group)
    if not out.is_terminal:
        if not found:
            print(nobody(group))
            return 1
        out.print(picture(out, group, found))
        return 0
    signal.signal(signal.SIGTERM, leave)
    with Live(picture(out, group, found), console=out, auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(PAUSE)
            live.update(picture(out, group, look(group)), refresh=True)


def leave(number: int, _: object) -> None:
    """End this program after a signal, so that it gives the screen back first."""
    raise typer.Exit(128 + number)


def picture(out: Console, group: str, found: Sequence[Seen]) -> Group:
    """Return the table and the remarks below it."""
    if not found:
        return Group(Text(nobody(group)))
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("member", no_wrap=True, overflow="ellipsis", max_width=NAME)
    table.add_column("state", no_wrap=True, min_width=max(9, *(len(each.state) for each in found)))
    for title in NUMBERS:
        table.add_column(title, justify="right", no_wrap=True, min_width=max(5, len(title)))
    rows = [local_row(seen, found) for seen in found]
    for seen, row in zip(found, rows, strict=True):
        table.add_row(*row, style="" if seen.is_well else "bold red")
    here = {seen.snapshot.incarnation for seen in found}
    elsewhere = {peer.incarnation: peer for seen in found for peer in seen.snapshot.peers
                 if peer.incarnation not in here}
    for peer in elsewhere.values():
        rows.append([Text(printable(peer.name)), "elsewhere", owed(peer.incarnation, found),
                     *[""] * 5])
        table.add_row(*rows[-1])
    notes = [Text(f"- {remark}") for remark in remarks(found)]
    return Group(Text(f"group {printable(group)}"), *map(Text, views(found)),
                 fitting(out, table, ("member", "state", *NUMBERS), rows),
                 Text(LEGEND, style="dim"), *notes)


def views(found: Sequence[Seen]) -> Iterator[str]:
    """Yield a line for each view that members here are in. What those say that hang or
    are dead counts only where nobody else is."""
    said = [seen.snapshot for seen in found if seen.is_well] or [seen.snapshot for seen in found]
    views = {each.view_id: each for each in said if each.peers}
    for view_id, each in views.items():
        yield (f"view {view_id}: {counted(len(each.peers), 'member')}, led by "
               f"{printable(each.peers[0].name)}{'' if each.is_primary else '; it is not primary'}")


NUMBERS = ("owes", "misses", "has", "sent/s", "got/s", "again/s")
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
