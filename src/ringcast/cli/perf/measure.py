"""Measure the rows of `ringcast perf`: which they are, their runs in turns, the
tables.

Every member is a process of its own, every message is one call of send(). A row counts
only if every receiver got every message once and in order. The runs of all rows take
turns, so that a noisy minute affects all rows, and a figure is the median.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ringcast import MAX_PAYLOAD, ConfigError
from ringcast.cli.document import check_writable, write_json
from ringcast.cli.options import check_loss, names
from ringcast.cli.perf import unicast as perf_unicast
from ringcast.cli.perf.command import (
    MAX_MEMBERS,
    ROUND_TRIP_SIZE,
    SIZES,
    STANDARD_STACKS,
    UNICAST_STACKS,
    given,
)
from ringcast.cli.perf.legends import MULTICAST
from ringcast.cli.perf.plan import PerfPlan
from ringcast.cli.perf.run import RunError, run_once
from ringcast.cli.perf.steady import STAMP
from ringcast.cli.perf.table import COLUMNS, Row, Section, row_of, show
from ringcast.cli.screen import console
from ringcast.config import STACKS_WITH, check_stack, configure, own_options
from ringcast.secret import read_secret
from ringcast.stacks import STACKS
from ringcast.trust import Folder

MAX_SECONDS = 3600
MAX_LOSS = 0.9
MAX_BATCH = 10_000
MAX_RATE = 10_000_000


@dataclass(frozen=True)
class Scenario:
    """A row without the size of its messages."""

    members: int
    senders: int = 1
    batch: int = 1
    rate: int = 0
    loss: float = 0.0
    naive: bool = False


STANDARD = [Scenario(2), Scenario(2, naive=True), Scenario(2, batch=100), Scenario(3), Scenario(4),
            Scenario(2, loss=0.05), Scenario(3, senders=3), Scenario(2, rate=10_000)]


def measure_rows(
    options: dict[str, Any], *, members: int | None, senders: str | None, batch: int | None,
    rate: int | None, loss: float | None, stack: list[str] | None, unicast: bool,
    size: list[str] | None, seconds: float, runs: int, seed: int, naive: bool | None,
    timeout: float, json_file: str | None, secret_file: Path | None, trust: Path | None,
) -> None:
    """Measure what was asked for, and show it. Raises ConfigError for a mistake in the
    call."""
    within("--seconds", seconds, 0.01, MAX_SECONDS)
    within("--runs", runs, 1, 1000)
    within("--timeout", timeout, 0.1, MAX_SECONDS)
    within("--loss", loss or 0, 0, MAX_LOSS)
    row = row_asked_for(members, senders, batch, rate, loss)
    chosen = stacks_of(stack or (UNICAST_STACKS if unicast else STANDARD_STACKS))
    if useless := [name for name in options if not {*STACKS_WITH[name]}.intersection(chosen)]:
        configure({name: options[name] for name in useless}, chosen[0])     # raises
    for each in chosen:
        own = own_options(options, each)
        configure(own, each)
        check_loss(loss or 0, each, own)
    common = {"group": "perf", "seconds": seconds, "timeout": timeout, "seed": seed,
              "options": options}
    throughput_sizes = sizes(size or SIZES)
    if rate is not None:
        within("with --rate, --size", min(throughput_sizes), STAMP.size, MAX_PAYLOAD)
    access: dict[str, Any] = {}
    if secret_file is not None:
        access["secret"] = str(secret_file)
        read_secret(secret_file)        # raises now if it cannot be used
    if trust is not None:
        access |= {"trust": str(trust), "prefix": f"{Folder(trust).own}/"}
    sealings: list[dict[str, Any]] = [{}]
    if access:
        access["options"] = {name: options[name] for name in options if name != "insecure"}
        wire = {name: options[name] for name in options if name in ("interface", "insecure")}
        sealings = [{}, access] if configure(wire).may_be_plain else [access]
    if unicast:
        only_multicast(members=members, senders=senders, batch=batch, rate=rate, naive=naive)
        round_trip_sizes = sizes(size or [ROUND_TRIP_SIZE])
        plans = perf_unicast.plans_of(chosen, throughput_sizes, round_trip_sizes, loss or 0.0,
                                      common | access)
    else:
        plans = [plan_of(scenario, each, name, common | sealing)
                 for each in throughput_sizes
                 for scenario in scenarios(row, naive is not False)
                 if not scenario.rate or each >= STAMP.size
                 for name in stacks_for(scenario, chosen, options)
                 for sealing in ([{}] if scenario.naive else sealings)]
    if json_file:
        check_writable(json_file)
    try:
        results = measure(plans, runs)
    except RunError as error:
        print(f"ringcast perf: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    tables_of = perf_unicast.sections if unicast else multicast_sections
    sections = tables_of(plans, results)
    show(list(sections.values()), to_error=json_file == "-")
    if json_file:
        write_json(json_file, {"runs": runs, **common,
                               **{name: section.rows for name, section in sections.items()}})


def stacks_of(texts: Sequence[str]) -> list[str]:
    """Return the names in the values of --stack. Raises ConfigError for an unknown
    one."""
    chosen = names(",".join(texts))
    for name in chosen or [""]:
        check_stack(name, STACKS)
    return chosen


def stacks_for(scenario: Scenario, chosen: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Return the stacks that a row is measured with: all that were chosen. The naive
    bundle has no stack, and is measured once. A row with loss is for stacks that
    retransmit."""
    if scenario.naive:
        return [STANDARD_STACKS[0]]
    return [name for name in chosen if not scenario.loss
            or configure(own_options(options, name), name).xmit_interval > 0]


def within(option: str, value: float, low: float, high: float) -> None:
    """Raise ConfigError unless low <= value <= high; NaN is outside."""
    if not low <= value <= high:
        typed = str(value).removesuffix(".0")
        raise ConfigError(f"{option} {typed} is outside {low:,} to {high:,}")


def only_multicast(**options: Any) -> None:
    """Raise ConfigError if one of these options was given: with --unicast the number of
    members is fixed."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"--{name} and --unicast do not go together: one member sends to one "
                              "other; leave out one of the two")


def sizes(texts: Sequence[str]) -> list[int]:
    """Return the numbers of bytes in the values of --size. Raises ConfigError for
    anything else."""
    found = []
    for text in ",".join(texts).split(","):
        if not text.strip().isdecimal():
            raise ConfigError(f"--size {text!r} is not a number of bytes")
        found.append(int(text))
        within("--size", found[-1], 1, MAX_PAYLOAD)
    return found


def scenarios(row: dict[str, Any], naive: bool) -> list[Scenario]:
    """Return the standard rows; or the one `row` that was asked for, and the naive
    bundle with the same number of receivers."""
    if not row:
        return [scenario for scenario in STANDARD if naive or not scenario.naive]
    scenario = Scenario(**{"members": 2} | row)
    return [scenario, Scenario(scenario.members, naive=True)] if naive else [scenario]


def row_asked_for(members: int | None, senders: str | None, batch: int | None, rate: int | None,
                  loss: float | None) -> dict[str, Any]:
    """Return what was said of a single row. Raises ConfigError if that cannot be."""
    num_members = 2 if members is None else members
    within("--members", num_members, 2, MAX_MEMBERS)
    number = None if senders is None else count_of(senders, num_members)
    row = given(members=members, senders=number, batch=batch, rate=rate, loss=loss)
    for name, most in (("batch", MAX_BATCH), ("rate", MAX_RATE)):
        within(f"--{name}", row.get(name, 1), 1, most)
    if batch is not None and rate is not None:
        raise ConfigError("--batch and --rate do not go together: at a steady rate each call sends "
                          "one message; leave out one of the two")
    return row


def count_of(senders: str, members: int) -> int:
    if senders == "all":
        return members
    if not senders.isdecimal() or not 1 <= int(senders) <= members:
        raise ConfigError(f"--senders {senders!r} is neither a number from 1 to {members}, the "
                          "members, nor all")
    return int(senders)


def plan_of(scenario: Scenario, size: int, stack: str, common: dict[str, Any]) -> PerfPlan:
    return PerfPlan(members=scenario.members, senders=scenario.senders, batch=scenario.batch,
                    rate=scenario.rate, loss=scenario.loss, naive=scenario.naive, size=size,
                    stack=stack, **common)


def multicast_sections(plans: Sequence[PerfPlan],
                       results: Sequence[Sequence[Row]]) -> dict[str, Section]:
    rows = [row_of(plan, runs) for plan, runs in zip(plans, results, strict=True)]
    return {"rows": Section(COLUMNS, rows, MULTICAST)}


def measure(plans: Sequence[PerfPlan], runs: int) -> list[list[Row]]:
    """Run every plan `runs` times, in turns. Return for each plan the figures of its
    runs. Raises RunError with the title of the row."""
    figures: list[list[Row]] = [[] for _ in plans]
    for index in turns(plans, runs):
        try:
            figures[index].append(run_once(plans[index]))
        except RunError as error:
            raise RunError(f"{plans[index].title}: {error}") from None
    return figures


def turns(plans: Sequence[PerfPlan], runs: int) -> Iterator[int]:
    """Return the index of each plan, `runs` times around, and show a progress bar. The
    bar is drawn between runs only, so as not to disturb them."""
    columns = (TextColumn("{task.description:34}"), BarColumn(),
               TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=runs * len(plans))
        for _ in range(runs):
            for index, plan in enumerate(plans):
                progress.update(task, description=plan.title, refresh=True)
                yield index
                progress.update(task, advance=1, refresh=True)
