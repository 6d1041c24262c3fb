"""What commands show: tables and sentences on standard output, progress and remarks on
standard error. With it comes rich, so it is imported when a command runs."""

import sys
from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console(stderr=True)          # progress and remarks; results go to standard output

ENDLESS = 10_000                        # columns of an output that is no terminal


def page(to_error: bool = False) -> Console:
    """Return a console for results. In a terminal it has the width of the terminal; in
    a pipe nothing is folded and nothing is cut off."""
    stream = sys.stderr if to_error else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else ENDLESS, highlight=False,
                   markup=False, emoji=False)


def show_table(out: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], *,
               title: str = "", words: Collection[int] = (0,)) -> None:
    """Print a table. The columns `words` have words, the others numbers."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number in words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    if title:
        out.print(title)
    out.print(fitting(out, table, headings, rows))


def fitting(out: Console, table: Table, headings: Sequence[str],
            rows: Sequence[Sequence[RenderableType]]) -> RenderableType:
    """Return the table; if the terminal is too narrow for it, its rows one below the
    other, each as lines of a heading and a value."""
    if out.measure(table, options=out.options.update_width(ENDLESS)).minimum <= out.width:
        return table
    flat = [heading.replace("\n", " ") for heading in headings]
    return Group(*(Group(lines(list(zip(flat, row, strict=True))), "") for row in rows))


def lines(of: Sequence[tuple[str, RenderableType]]) -> Table:
    """Return lines of a name and a text."""
    table = Table(show_header=False, box=None, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in of:
        table.add_row(*line)
    return table


def spinner(quiet: bool) -> Progress:
    """Return the progress display of a command without an end; none if `quiet`."""
    return Progress(SpinnerColumn(), TextColumn("{task.description}", markup=False),
                    TimeElapsedColumn(), console=console, disable=quiet)
