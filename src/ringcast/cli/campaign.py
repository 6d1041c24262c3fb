"""`ringcast simulate --spark`: a campaign, what is seen of it while it runs, and its
answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from ringcast import html_page as page
from ringcast.cli.app import console
from ringcast.config import configure
from ringcast.errors import ConfigError, RingcastError
from ringcast.sim.runs.plan import Settings
from ringcast.spark.session import CONF as DEFAULTS, session

if TYPE_CHECKING:
    import pyarrow as arrow
    from pyspark.sql import SparkSession

    from ringcast.campaign.runs import Planned

SEEDS = 3                       # of each combination
LIMIT = 300.0                   # real seconds of a run
LISTED = 20                     # failures that are printed; all are in the results and on the page
INTERRUPTED = 130               # exit status, as shells have it

Axes = dict[str, Sequence[Any]]


def order(fixed: Settings, options: Mapping[str, str], **axes: Sequence[Any] | None) -> tuple[
        Settings, Axes]:
    """What is the same for all runs, and what is not: `axes`, and the options of the
    stack that may have several values."""
    from ringcast.campaign.runs import OF_STACK

    lists = {name: text.split(",") for name, text in options.items() if name in OF_STACK}
    values = {name: [getattr(configure({name: value}, fixed.stack), name) for value in texts]
              for name, texts in lists.items()}
    others = {name: value for name, value in options.items() if name not in OF_STACK}
    return msgspec.structs.replace(fixed, options=others), {name: list(each) for name,
                                                            each in (axes | values).items() if each}


def run(fixed: Settings, axes: Axes, seeds: Sequence[int], *, master: str | None,
        results: Path | None, report: Path | None, limit: float,
        conf: Mapping[str, str] | None = None) -> int:
    """Carry out a campaign, print its answer, and return the exit status: 1 when a run
    failed."""
    try:
        from ringcast.campaign.points import points
        from ringcast.campaign.results import Results
        from ringcast.campaign.runs import OK, plan
    except ImportError as error:
        raise RingcastError('Campaigns need Spark: run pip install "ringcast[spark]".') from error
    if limit <= 0:
        raise ConfigError(f"--limit is {limit:g}; it is seconds, more than 0")
    if report is not None:
        page.check()
        if not report.parent.is_dir():
            raise ConfigError(f"the page cannot be written to {report}: there is no folder {report.parent}")
    runs = plan(fixed, axes, seeds)
    kept = Results(results)
    for path in kept.strange:
        console.print(f"{path} is not read: it is damaged, or no rows of a campaign",
                      soft_wrap=True, highlight=False, markup=False)
    spark = started(master, conf)
    try:
        is_whole = carry_out(spark, runs, kept, limit)
        rows = kept.rows_of(each.name for each in runs)
        failures = [row for row in rows.select(["status", "error", "replay"]).to_pylist()
                    if row["status"] != OK]
        show_failures(failures)
        if not is_whole:
            where = f"kept in {results}: the same command goes on from there" if results else "lost; with --results they would be kept"
            print(f"interrupted: {len(rows):,} of {len(runs):,} runs are {where}")
            return INTERRUPTED
        answer(points(spark, rows), runs[0], failures, report)
    finally:
        spark.stop()
    return int(bool(failures))


def started(master: str | None, conf: Mapping[str, str] | None) -> "SparkSession":
    from ringcast.campaign.jobs import CONF

    with console.status("starting Spark"):
        spark = session("ringcast campaign", master=master, conf=conf, defaults=DEFAULTS | CONF)
        spark.sparkContext.setLogLevel("OFF")           # what a worker dies of stands in its row
    return spark


def carry_out(spark: "SparkSession", runs: "Sequence[Planned]", kept: Any, limit: float) -> bool:
    """Run what is not there yet, with a bar that shows how far it is; whether it came
    to its end."""
    from ringcast.campaign.jobs import Campaign
    from ringcast.campaign.runs import OK

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("simulated", total=len(runs))

        def told(rows: "arrow.Table") -> None:
            progress.advance(task, len(rows))
            for row in rows.select(["status", "error", "replay"]).to_pylist():
                if row["status"] != OK:
                    progress.console.print(f"{row['status']}  {row['error']}\n    replay: {row['replay']}", soft_wrap=True,
                                           highlight=False, markup=False)

        campaign = Campaign(spark, runs, kept, limit=limit, told=told)
        progress.advance(task, len(runs) - len(campaign.to_run))
        try:
            campaign.run()
        except KeyboardInterrupt:
            return False
        except OSError as error:
            raise ConfigError(f"the results cannot be kept in {kept.folder}: {error.strerror or error}") from None
    return True


def show_failures(failures: Sequence[Mapping[str, str]]) -> None:
    for row in failures[:LISTED]:
        print(f"{row['status'].upper()}  {row['error']}\n        {row['replay']}")
    if len(failures) > LISTED:
        print(f"and {len(failures) - LISTED:,} more")


def answer(points: Sequence[Any], one: "Planned", failures: Sequence[Mapping[str, str]],
           report: Path | None) -> None:
    """The table for the terminal, and the page."""
    from ringcast.campaign import report as answers
    from ringcast.campaign.points import RULE

    table = Table(title="What to take", title_justify="left", box=None)
    for title in answers.TITLES:
        table.add_column(title, justify="right")
    for cells in answers.answers(points):
        table.add_row(*cells)
    wide = Console(width=160, highlight=False)
    wide.print(table)
    wide.print(RULE, markup=False)
    print(answers.verdict(points, len(failures)))
    if report is not None:
        try:
            answers.write(report, points, one, [(row["status"], row["error"], row["replay"])
                                                for row in failures])
        except OSError as error:
            raise ConfigError(f"the page cannot be written to {report}: {error.strerror or error}") from None
        print(f"the page is {report}")
    if not failures:
        print(f"no promise was broken in {sum(point.runs for point in points):,} runs")
