"""`ringcast audit`: prove from traces that a group kept its promises, and report its
speed."""

from pathlib import Path
from typing import Annotated

import typer

from ringcast.cli.app import app
from ringcast.cli.options import AsJson, Conf, Master, pairs, path
from ringcast.errors import ConfigError


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
    as_json: AsJson = False,
) -> None:
    """Prove from the traces of a group that no message was lost, duplicated, delivered
    out of order or freed too early, or name the first message that was. Report latency,
    retransmissions and blocked sends.

    The messages, and not the members' clocks, decide which event came first. Clocks
    that are apart are reported, and latencies are corrected by them.

    Exit status: 0 when no promise was broken, 1 when one was, 2 for a mistake in the
    call, 3 when no promise was seen broken but the traces have holes, so they prove
    nothing: events are missing, a part is damaged, or a member of a view has no trace.
    With --json, print one object, "audit".
    """
    if skew is not None and not 0 <= skew < 86_400_000:
        raise ConfigError(f"--skew is {skew:g}; it is milliseconds, 0 or more and less than a day")
    from ringcast.cli.audit.run import run

    raise typer.Exit(run(traces, tables=tables, report=report, skew=skew, master=master,
                         conf=pairs(conf, "--conf"), as_json=as_json))
