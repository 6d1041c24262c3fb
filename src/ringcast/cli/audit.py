"""`ringcast audit`: prove from traces that a group kept its promises, and report its
speed."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ringcast import html_page as page
from ringcast.audit import files as audit_files, report as audit_report, verdict as audit
from ringcast.audit.figures import figures
from ringcast.cli.app import app
from ringcast.cli.interrupts import let_end_java
from ringcast.cli.options import Conf, Master, console, path, settings
from ringcast.errors import ConfigError
from ringcast.spark import session
from ringcast.spark.session import CONF

MAX_SHOWN = 20                          # violations
QUIET = {**CONF, "spark.ui.showConsoleProgress": "false"}


@app.command("audit")
def audit_command(
    traces: Annotated[list[Path], typer.Argument(
        parser=path, metavar="TRACE...", help="Directories with traces, written by --set trace=DIR "
                                              "or by simulate --trace DIR. Several are audited "
                                              "together.")],
    tables: Annotated[Path | None, typer.Option(
        parser=path, metavar="DIR", help="Write tables (Parquet): violations, views, members, "
                                         "series over time, latency histograms.")] = None,
    report: Annotated[Path | None, typer.Option(
        parser=path, metavar="FILE",
        help="Write a page (HTML, one file) with plots over time.")] = None,
    skew: Annotated[float | None, typer.Option(
        metavar="MS", help="The largest difference between the clocks of two members, in "
        "milliseconds, if you know it; 0 for simulations. Then the clocks decide where no message "
        "tells which event came first. Without it, no clock is used.", show_default=False)] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Prove from the traces of a group that no message was lost, duplicated, delivered
    out of order or freed too early, or name the first message that was. Report latency,
    retransmissions and blocked sends.

    The messages, and not the members' clocks, decide which event came first. Clocks
    that are apart are reported, and latencies are corrected by them.

    Exit status: 0 when no promise was broken, 1 when one was, 2 for a mistake in the
    call, 3 when no promise was seen broken but the traces have holes, so they prove
    nothing: events are missing, a part is damaged, or a member of a view has no trace.
    """
    if skew is not None and not 0 <= skew < 86_400_000:
        raise ConfigError(f"--skew is {skew:g}; it is milliseconds, 0 or more and less than a day")
    if report is not None:
        page.check()
    chosen = settings(conf, "--conf")
    audit_files.find(traces)            # raises for a mistake in the call before Spark starts
    let_end_java()
    spark = session("ringcast audit", master=master, conf=chosen, defaults=QUIET)
    let_end_java()
    spark.sparkContext.setLogLevel("ERROR")
    with console.status("reading the traces"):
        result, rows = audit.audit(spark, traces, skew)
        numbers = figures(rows, result.groups, result.clocks)
    show(result, audit_report.summary(numbers))
    if tables is not None:
        audit_report.write_tables(tables, result, numbers)
        print(f"tables in {tables}")
    if report is not None:
        audit_report.write_page(report, result, numbers)
        print(f"report in {report}")
    raise typer.Exit(result.status)


def show(result: audit.Audit, lines: list[tuple[str, str]]) -> None:
    """Print the verdict and the figures."""
    out = Console(width=160, highlight=False, markup=False)
    out.print(result.verdict, soft_wrap=True)
    for violation in result.violations[:MAX_SHOWN]:
        out.print(f"  {violation}", soft_wrap=True)
    if len(result.violations) > MAX_SHOWN:
        out.print(f"  and {len(result.violations) - MAX_SHOWN} more, which --tables lists")
    table = Table(show_header=False, box=None)
    for name, text in [*lines, *[("doubt", doubt) for doubt in result.doubts()],
                       *[("note", note) for note in result.remarks()]]:
        table.add_row(name, text)
    out.print(table)
