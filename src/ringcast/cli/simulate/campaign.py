"""`ringcast simulate --spark`: a campaign, its progress, and its result."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ringcast import html_page
from ringcast.cli.document import check_writable
from ringcast.cli.interrupts import started, stopping
from ringcast.cli.options import print_json, typed
from ringcast.cli.screen import console, page, show_table
from ringcast.config import configure
from ringcast.errors import ConfigError, RingcastError
from ringcast.sim.runs.settings import Settings
from ringcast.spark.session import CONF as DEFAULTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ringcast.campaign.runs import Planned

LONGEST = 86_400                # seconds that a run may take
MAX_LISTED = 20                 # failures that are printed; the results and the page have all

Axes = dict[str, Sequence[Any]]


def split_axes(fixed: Settings, options: Mapping[str, str],
               **axes: Sequence[Any] | None) -> tuple[Settings, Axes]:
    """Return the settings that are the same for all runs, and the axes: `axes`, and the
    options of the stack that may have several values."""
    from ringcast.campaign.runs import OF_STACK

    lists = {name: text.split(",") for name, text in options.items() if name in OF_STACK}
    values = {name: [getattr(configure({name: value}, fixed.stack), name) for value in texts]
              for name, texts in lists.items()}
    others = {name: value for name, value in options.items() if name not in OF_STACK}
    several: Axes = {name: list(each) for name, each in (axes | values).items() if each}
    return msgspec.structs.replace(fixed, options=others), several


def run(fixed: Settings, axes: Axes, seeds: Sequence[int], *, master: str | None,
        results: Path | None, report: Path | None, limit: float,
        conf: Mapping[str, str] | None = None, as_json: bool = False) -> int:
    """Run a campaign, print its result, and return the exit status: 1 if a run
    failed."""
    try:
        from ringcast.campaign.points import points
        from ringcast.campaign.results import Results
        from ringcast.campaign.runs import OK, plan
    except ImportError as error:
        raise RingcastError('Campaigns need Spark: run pip install "ringcast[spark]".') from error
    if not 0 < limit <= LONGEST:
        raise ConfigError(f"--limit is {limit:g}; it is seconds, more than 0 and at most a day")
    if report is not None:
        html_page.check()
        check_writable(report, "--report")
    runs = plan(fixed, axes, seeds)
    kept = Results(results)
    for path in kept.strange:
        console.print(f"{path} is not read: it is damaged, or does not have rows of a campaign",
                      soft_wrap=True, highlight=False, markup=False)
    spark = start_spark(master, conf)
    with stopping(spark):
        is_whole = carry_out(spark, runs, kept, limit)
        rows = kept.rows_of(each.name for each in runs)
        failures = [row for row in rows.select(["status", "error", "replay"]).to_pylist()
                    if row["status"] != OK]
        if not as_json:
            show_failures(failures)
        if not is_whole:
            where = (f"kept in {typed(results)}: the same command continues from there" if results
                     else "lost; --results would keep them")
            print(f"interrupted: {len(rows):,} of {len(runs):,} runs are {where}",
                  file=sys.stderr if as_json else sys.stdout)
            raise KeyboardInterrupt
        found = points(spark, rows)
        if as_json:
            print_result(found, failures)
        else:
            show_result(found, failures)
        if report is not None:
            write_page(found, runs[0], failures, report)
            if not as_json:
                print(f"the page is {typed(report)}")
        if not failures and not as_json:
            print(f"no promise was broken in {sum(point.runs for point in found):,} runs")
    return int(bool(failures))


def start_spark(master: str | None, conf: Mapping[str, str] | None) -> "SparkSession":
    from ringcast.campaign.jobs import CONF

    with console.status("starting Spark"):      # without a log: the row of a run says why it died
        return started("ringcast campaign", "OFF", master=master, conf=conf,
                       defaults=DEFAULTS | CONF)


def carry_out(spark: "SparkSession", runs: "Sequence[Planned]", kept: Any, limit: float) -> bool:
    """Carry out the runs that have no rows yet, with a progress bar. Return False if
    they were interrupted."""
    from ringcast.campaign.jobs import Campaign
    from ringcast.campaign.runs import OK

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("simulated", total=len(runs))

        def on_rows(rows: "pa.Table") -> None:
            progress.advance(task, len(rows))
            for row in rows.select(["status", "error", "replay"]).to_pylist():
                if row["status"] != OK:
                    progress.console.print(
                        f"{row['status']}  {row['error']}\n    replay: {row['replay']}",
                        soft_wrap=True, highlight=False, markup=False)

        campaign = Campaign(spark, runs, kept, limit=limit, on_rows=on_rows)
        progress.advance(task, len(runs) - len(campaign.to_run))
        try:
            campaign.run()
        except KeyboardInterrupt:
            return False
        except ConnectionError:         # to Spark's Java
            raise
        except OSError as error:
            raise ConfigError(f"the results cannot be kept in {kept.folder}: "
                              f"{error.strerror or error}") from None
    return True


def show_failures(failures: Sequence[Mapping[str, str]]) -> None:
    for row in failures[:MAX_LISTED]:
        print(f"{row['status'].upper()}  {row['error']}\n        {row['replay']}")
    if len(failures) > MAX_LISTED:
        print(f"and {len(failures) - MAX_LISTED:,} more")


def print_result(points: Sequence[Any], failures: Sequence[Mapping[str, str]]) -> None:
    """Print the failures, the recommended settings and the sums as lines of JSON."""
    from ringcast.campaign.points import choose, groups

    for row in failures:
        print_json({"failure": row})
    for group in groups(points):
        if (point := choose(group)) is not None:
            print_json({"setting": point._asdict()})
    print_json({"sum": {"runs": sum(point.runs for point in points), "failed": len(failures)}})


def show_result(points: Sequence[Any], failures: Sequence[Mapping[str, str]]) -> None:
    """Print the table of recommended settings."""
    from ringcast.campaign import report as campaign_report
    from ringcast.campaign.points import RULE

    out = page()
    show_table(out, campaign_report.TITLES, campaign_report.recommendations(points),
               title=campaign_report.HEADING, words=())
    out.print(RULE)
    out.print(campaign_report.verdict(points, len(failures)))


def write_page(points: Sequence[Any], one: "Planned", failures: Sequence[Mapping[str, str]],
               report: Path) -> None:
    """Write the page. Raises ConfigError if that fails."""
    from ringcast.campaign import report as campaign_report

    try:
        campaign_report.write(report, points, one,
                              [(row["status"], row["error"], row["replay"]) for row in failures])
    except OSError as error:
        raise ConfigError(f"the page cannot be written to {report}: "
                          f"{error.strerror or error}") from None
