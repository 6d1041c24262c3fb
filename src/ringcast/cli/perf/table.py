"""How the figures of `ringcast perf` leave it: rows, tables with a legend for people,
JSON for programs."""

import json
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import ringcast
from ringcast import ConfigError
from ringcast.cli.perf.plan import Plan
from ringcast.cli.perf.run import cores_available, limit, medians

WIDTH = 180                             # of the table where the output is no terminal

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """What stands above it, and what it says of a row; words stand left, numbers
    right."""

    heading: str
    write: Callable[[Row], str]
    words: bool = False


@dataclass(frozen=True)
class Section:
    """One table. `rows` are also what the JSON has."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    legend: str


def number(heading: str, name: str, form: str = "{:,.0f}") -> Column:
    """The column of one figure; - where it does not exist."""
    return Column(heading, lambda row: "-" if row[name] is None else form.format(row[name]))


CORES = Column("cores used", lambda row: shares(row["cores"]), words=True)
COLUMNS = [
    number("sent/s", "sent_per_second"),
    number("delivered/s", "delivered_per_second"),
    number("MB/s", "megabytes_per_second"),
    number("repeated", "retransmitted"),
    number("requests", "requests"),
    number("blockings", "blockings"),
    number("CPU s/M\nsender", "sender_cpu_per_million", "{:.2f}"),
    number("CPU s/M\nreceiver", "receiver_cpu_per_million", "{:.2f}"),
    CORES,
    Column("what limits it", lambda row: row["limit"], words=True),
]
LEGEND = """\
sent/s: all senders together. delivered/s: at the receiver that got fewest, messages of all senders, in order, its own too if it
sends. repeated: messages sent again. requests: datagrams that ask for that. blockings: sends that waited for room.
CPU s/M: CPU seconds for a million messages, at the sender (when it only sends) and at the costliest receiver.
cores used: CPU time of each process by time; what limits it is said from these and from what else the machine did meanwhile."""


def shares(cores: dict[str, float]) -> str:
    """Each member's, or of many members the range of those that send (S) and of those
    that only receive (R)."""
    if len(cores) <= 4:
        return " ".join(f"{name} {share:.2f}" for name, share in cores.items())
    kinds = {kind: [share for name, share in cores.items() if name[0] == kind] for kind in "SR"}
    return ", ".join(f"{len(each)} {kind} {min(each):.2f}-{max(each):.2f}" for kind,
                     each in kinds.items() if each)


def row_of(plan: Plan, results: Sequence[Row]) -> Row:
    """A row of throughput: what was run, the medians, what limits them, and all
    runs."""
    figures = medians(results)
    return {"title": plan.title, "naive": plan.naive, "members": plan.members,
            "senders": plan.senders, "size": plan.size,
            "loss": plan.loss, "stack": plan.stack, **figures,
            "limit": limit(figures, plan.loss, cores_available()), "all_runs": list(results)}


def ratio(name: str, ours: Sequence[Row], theirs: Sequence[Row]) -> float:
    """Of one figure, the median of the ratios of runs that were neighbours."""
    return median(our[name] / their[name] for our, their in zip(ours, theirs, strict=True))


def show(sections: Sequence[Section], to_error: bool) -> None:
    """The tables and their legends, on standard output unless the JSON is there."""
    output = Console(stderr=to_error)
    if not output.is_terminal:
        output = Console(stderr=to_error, width=WIDTH)
    for section in sections:
        table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
        table.add_column("row", no_wrap=True)
        for column in section.columns:
            table.add_column(column.heading, justify="left" if column.words else "right")
        for row in section.rows:
            table.add_row(row["title"], *(column.write(row) for column in section.columns))
        output.print(table)
        output.print(section.legend, markup=False, highlight=False)


def about() -> Row:
    """What the figures were taken with."""
    return {"ringcast": ringcast.__version__, "python": platform.python_version(),
            "system": platform.platform(),
            "cores_available": cores_available()}


def check_writable(target: str) -> None:
    """ConfigError, before anything is measured, when the file for the figures cannot be
    written."""
    try:
        if target != "-":
            Path(target).open("a").close()
    except OSError as error:
        raise ConfigError(f"--json {target}: {error.strerror}") from None


def write_json(target: str, document: Row) -> None:
    text = json.dumps(document, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
