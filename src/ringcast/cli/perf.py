"""`ringcast perf`: how many messages a second a group carries on this machine, and what it costs.

Every member is a process of its own, every message one call of send(). A row counts only if every receiver got every message
once and in order; the runs of all rows take turns, so that a noisy minute hits all of them, and a figure is the median.
"""

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import ringcast
from ringcast import MAX_PAYLOAD, ConfigError
from ringcast.cli.app import app, console
from ringcast.cli.perf_member import Plan
from ringcast.cli.perf_run import RunError, cores_available, limit, medians, run_once
from ringcast.config import configure

MAX_MEMBERS = 16
MAX_SECONDS = 3600.0
WIDTH = 170                             # of the table where the output is no terminal

COLUMNS = [                             # heading, figure, how it is written
    ("sent/s", "sent_per_second", "{:,.0f}"),
    ("delivered/s", "delivered_per_second", "{:,.0f}"),
    ("MB/s", "megabytes_per_second", "{:,.0f}"),
    ("repeated", "retransmitted", "{:,.0f}"),
    ("requests", "requests", "{:,.0f}"),
    ("blockings", "blockings", "{:,.0f}"),
    ("CPU s/M\nsender", "sender_cpu_per_million", "{:.2f}"),
    ("CPU s/M\nreceiver", "receiver_cpu_per_million", "{:.2f}"),
]
LEGEND = """\
sent/s: all senders together. delivered/s: at the receiver that got fewest, messages of all senders, in order, its own too if it
sends. repeated: messages sent again on request. requests: datagrams that ask for that. blockings: sends that waited for room.
CPU s/M: CPU seconds for a million messages, at the sender (when it only sends) and at the costliest receiver.
cores used: CPU time of each process by time; what limits it is said from these and from what else the machine did meanwhile.
naive: plain Python that joins messages into 64 KB TCP writes; one sender, no membership, no limit on waiting."""


@dataclass(frozen=True)
class Scenario:
    """One row but for the size of its messages."""

    members: int
    senders: int = 1
    loss: float = 0.0
    naive: bool = False


SIZES = ["1000", "100"]
STANDARD = [Scenario(2), Scenario(2, naive=True), Scenario(3), Scenario(4), Scenario(2, loss=0.05), Scenario(3, senders=3)]


@app.command(epilog=LEGEND.replace("\n", " "))
def perf(
    members: Annotated[int | None, typer.Option(help=f"Processes in the group, 2 to {MAX_MEMBERS}.  [default: 2]")] = None,
    senders: Annotated[str | None, typer.Option(help="How many of them send: a number, or all.  [default: 1]")] = None,
    loss: Annotated[float | None, typer.Option(
        help="Probability, 0 to 0.9, that a member loses a datagram that reached it.  [default: 0]")] = None,
    size: Annotated[list[str], typer.Option(help="Bytes of a message; several times, or a list with commas.")] = SIZES,
    seconds: Annotated[float, typer.Option(help="Time that each run of a row sends.")] = 0.7,
    runs: Annotated[int, typer.Option(help="Runs of each row; the figures are their medians.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the payloads and of what is lost.")] = 1,
    naive: Annotated[bool, typer.Option(help="Show the naive bundle beside it.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds that members may take to join, to receive the rest, to close.")] = 20.0,
    json_file: Annotated[str | None, typer.Option("--json", metavar="FILE",
                                                  help="Write all figures of all runs as JSON; - is standard output.")] = None,
    group_address: Annotated[str | None, typer.Option(help="IPv4 multicast group.")] = None,
    port: Annotated[int | None, typer.Option(help="UDP port of the multicast group.")] = None,
    interface: Annotated[str | None, typer.Option(help="Address of the interface to use.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow an interface other than loopback, unencrypted.")] = False,
    receive_buffer: Annotated[int | None, typer.Option(help="Bytes asked of the kernel for each socket.")] = None,
    capacity: Annotated[int | None, typer.Option(help="Messages in a transmission window.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Bytes in a transmission window.")] = None,
    max_bundle_size: Annotated[int | None, typer.Option(help="Bytes of a datagram that messages are packed into.")] = None,
    bundle_delay: Annotated[float | None, typer.Option(help="Milliseconds that a message may wait for company.")] = None,
    ack_threshold: Annotated[int | None, typer.Option(help="Deliveries after which an ack goes out at once.")] = None,
    xmit_interval: Annotated[float | None, typer.Option(help="Milliseconds between looks for gaps.")] = None,
) -> None:
    """Measure messages a second of a group on this machine.

    Without --members, --senders and --loss: the standard table, which takes about a minute: one sender with 1, 2 and 3 receivers,
    the naive bundle, 5 % loss, and three members that all send. With any of them: that one row.

    Exit status: 0 when every receiver of every run got every message once and in order, 1 when not or when a member died or
    hung, 2 for options that cannot be.
    """
    options = given(group_address=group_address, port=port, interface=interface, insecure=insecure or None,
                    receive_buffer=receive_buffer, capacity=capacity, max_bytes=max_bytes, max_bundle_size=max_bundle_size,
                    bundle_delay=bundle_delay, ack_threshold=ack_threshold, xmit_interval=xmit_interval)
    within("--seconds", seconds, 0.01, MAX_SECONDS)
    within("--runs", runs, 1, 1000)
    within("--timeout", timeout, 0.1, MAX_SECONDS)
    common = {"group": "perf", "seconds": seconds, "timeout": timeout, "seed": seed, "options": options}
    plans = [plan_of(scenario, each, common) for each in sizes(size) for scenario in scenarios(members, senders, loss, naive)]
    if json_file:
        check_writable(json_file)
    try:
        rows = measure(plans, runs)
    except RunError as error:
        print(f"ringcast perf: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    show(rows, to_error=json_file == "-")
    if json_file:
        write_json(json_file, {**about(), "runs": runs, **common, "rows": rows})


def given(**properties: Any) -> dict[str, Any]:
    """Those properties of a Channel that were given; ConfigError when one is outside its range."""
    options = {name: value for name, value in properties.items() if value is not None}
    configure(options)
    return options


def within(option: str, value: float, low: float, high: float) -> None:
    """ConfigError unless low <= value <= high; NaN is outside."""
    if not low <= value <= high:
        raise ConfigError(f"{option} {value:g} is outside {low:g} to {high:g}")


def sizes(texts: Sequence[str]) -> list[int]:
    """The numbers of bytes in what was given for --size; ConfigError for what is none."""
    found = []
    for text in ",".join(texts).split(","):
        if not text.strip().isdecimal():
            raise ConfigError(f"--size {text!r} is not a number of bytes")
        found.append(int(text))
        within("--size", found[-1], 1, MAX_PAYLOAD)
    return found


def scenarios(members: int | None, senders: str | None, loss: float | None, naive: bool) -> list[Scenario]:
    """The standard rows, or the one that was asked for with the naive bundle of as many receivers behind it."""
    if members is None and senders is None and loss is None:
        return [scenario for scenario in STANDARD if naive or not scenario.naive]
    processes = 2 if members is None else members
    within("--members", processes, 2, MAX_MEMBERS)
    within("--loss", loss or 0, 0, 0.9)
    row = Scenario(processes, count_of(senders or "1", processes), loss or 0.0)
    return [row, Scenario(processes, naive=True)] if naive else [row]


def count_of(senders: str, members: int) -> int:
    if senders == "all":
        return members
    if not senders.isdecimal() or not 1 <= int(senders) <= members:
        raise ConfigError(f"--senders {senders!r} is neither a number from 1 to {members}, the members, nor all")
    return int(senders)


def plan_of(scenario: Scenario, size: int, common: dict[str, Any]) -> Plan:
    return Plan(members=scenario.members, senders=scenario.senders, loss=scenario.loss, naive=scenario.naive, size=size, **common)


def title(plan: Plan) -> str:
    """What a row is, in words."""
    receivers = plan.members - 1
    if plan.naive:
        return f"{plan.size:,} B, naive, 1 -> {receivers}"
    who = f"1 -> {receivers}" if plan.senders == 1 else f"{plan.senders} of {plan.members} send"
    return f"{plan.size:,} B, {who}" + (f", {100 * plan.loss:g} % lost" if plan.loss else "")


def measure(plans: Sequence[Plan], runs: int) -> list[dict[str, Any]]:
    """Run every plan `runs` times, taking turns; one row of figures for each. RunError names the row."""
    figures: list[list[dict[str, Any]]] = [[] for _ in plans]
    for index in turns(plans, runs):
        try:
            figures[index].append(run_once(plans[index]))
        except RunError as error:
            raise RunError(f"{title(plans[index])}: {error}") from None
    return [row_of(plan, results) for plan, results in zip(plans, figures, strict=True)]


def turns(plans: Sequence[Plan], runs: int) -> Iterator[int]:
    """The index of each plan, `runs` times round, while a progress bar moves; it redraws between runs only, not to disturb them."""
    columns = (TextColumn("{task.description:34}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=runs * len(plans))
        for _ in range(runs):
            for index, plan in enumerate(plans):
                progress.update(task, description=title(plan), refresh=True)
                yield index
                progress.update(task, advance=1, refresh=True)


def row_of(plan: Plan, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A row of the JSON: what was run, the medians, what limits them, and all runs."""
    figures = medians(results)
    return {"title": title(plan), "naive": plan.naive, "members": plan.members, "senders": plan.senders, "size": plan.size,
            "loss": plan.loss, **figures, "limit": limit(figures, plan.loss, cores_available()), "all_runs": list(results)}


def about() -> dict[str, Any]:
    """What the figures were taken with."""
    return {"ringcast": ringcast.__version__, "python": platform.python_version(), "system": platform.platform(),
            "cores_available": cores_available()}


def check_writable(target: str) -> None:
    """ConfigError, before anything is measured, when the file for the figures cannot be written."""
    try:
        if target != "-":
            Path(target).open("a").close()
    except OSError as error:
        raise ConfigError(f"--json {target}: {error.strerror}") from None


def write_json(target: str, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def show(rows: Sequence[dict[str, Any]], to_error: bool) -> None:
    """The table and its legend, on standard output unless the JSON is there."""
    output = Console(stderr=to_error)
    if not output.is_terminal:
        output = Console(stderr=to_error, width=WIDTH)
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("row", no_wrap=True)
    for heading, _, _ in COLUMNS:
        table.add_column(heading, justify="right")
    table.add_column("cores used", no_wrap=True)
    table.add_column("what limits it")
    for row in rows:
        cells = ["-" if row[name] is None else form.format(row[name]) for _, name, form in COLUMNS]
        table.add_row(row["title"], *cells, shares(row["cores"]), row["limit"])
    output.print(table)
    output.print(LEGEND, markup=False, highlight=False)


def shares(cores: dict[str, float]) -> str:
    """Each member's, or of many members the range of those that send (S) and of those that only receive (R)."""
    if len(cores) <= 4:
        return " ".join(f"{name} {share:.2f}" for name, share in cores.items())
    kinds = {kind: [share for name, share in cores.items() if name[0] == kind] for kind in "SR"}
    return ", ".join(f"{len(each)} {kind} {min(each):.2f}-{max(each):.2f}" for kind, each in kinds.items() if each)
