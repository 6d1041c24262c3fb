"""The output of `ringcast perf`: rows, and tables with a legend for people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ringcast.cli.document import cores_available
from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.run import limit, medians
from ringcast.cli.screen import page, show_table

Row = dict[str, Any]
KEPT = 0.9                              # of a rate; a row with less is not limited by it


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and a function that formats its cell of a row.
    `words`: aligned left; numbers are aligned right."""

    heading: str
    write: Callable[[Row], str]
    words: bool = False


@dataclass(frozen=True)
class Section:
    """One table. The JSON has its rows too."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    legend: str


def number(heading: str, name: str, form: str = "{:,.0f}") -> Column:
    """Make the column of one figure; "-" where it does not exist."""
    return Column(heading, lambda row: "-" if row[name] is None else form.format(row[name]))


CORES = Column("cores used", lambda row: shares(row["cores"]), words=True)
COLUMNS = [
    number("sent/s", "sent_per_second"),
    number("delivered/s", "delivered_per_second"),
    number("MB/s", "megabytes_per_second"),
    number("p50 us", "p50_us"),
    number("p99 us", "p99_us"),
    number("retransmitted", "retransmitted"),
    number("requests", "requests"),
    number("blockings", "blockings"),
    number("CPU s/M\nsender", "sender_cpu_per_million", "{:.2f}"),
    number("CPU s/M\nreceiver", "receiver_cpu_per_million", "{:.2f}"),
    CORES,
    Column("limited by", lambda row: row["limit"], words=True),
]


def shares(cores: dict[str, float]) -> str:
    """Format the cores of each member; of many members, the range of those that send
    (S) and of those that only receive (R)."""
    if len(cores) <= 4:
        return " ".join(f"{name} {share:.2f}" for name, share in cores.items())
    kinds = {kind: [share for name, share in cores.items() if name[0] == kind] for kind in "SR"}
    return ", ".join(f"{len(each)} {kind} {min(each):.2f}-{max(each):.2f}"
                     for kind, each in kinds.items() if each)


def row_of(plan: PerfPlan, results: Sequence[Row]) -> Row:
    """Return a row of throughput: the plan, the medians, what limits them, and all
    runs."""
    figures = medians(results)
    return {"title": plan.title, "naive": plan.naive, "members": plan.members,
            "senders": plan.senders, "batch": plan.batch, "rate": plan.rate, "size": plan.size,
            "loss": plan.loss, "stack": plan.stack,
            **figures,
            "limit": ("its rate" if keeps_rate(plan, figures)
                      else limit(figures, plan.loss, cores_available())),
            "all_runs": list(results)}


def keeps_rate(plan: PerfPlan, figures: Row) -> bool:
    """Return whether there is a rate, and senders kept it."""
    wanted = plan.rate * plan.senders
    return wanted > 0 and figures["sent_per_second"] >= KEPT * wanted


def ratio(name: str, ours: Sequence[Row], theirs: Sequence[Row]) -> float:
    """Return the median of the ratios of a figure, each of two runs that were
    neighbours in time."""
    return median(our[name] / their[name] for our, their in zip(ours, theirs, strict=True))


def show(sections: Sequence[Section], to_error: bool) -> None:
    """Print the tables and their legends, to standard output unless the JSON goes
    there."""
    out = page(to_error)
    for section in sections:
        words = [0, *(number for number, column in enumerate(section.columns, 1) if column.words)]
        show_table(out, ["row", *(column.heading for column in section.columns)],
                   [[row["title"], *(column.write(row) for column in section.columns)]
                    for row in section.rows], words=words)
        out.print(section.legend)
