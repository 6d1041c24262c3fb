"""Audit traces on Spark, and show the verdict and the figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringcast import html_page
from ringcast.audit import files as audit_files, report as audit_report, verdict as audit
from ringcast.audit.figures import Figures, figures
from ringcast.cli.document import check_writable
from ringcast.cli.interrupts import started
from ringcast.cli.options import print_json, typed
from ringcast.cli.screen import console, lines, page
from ringcast.spark.session import CONF

MAX_SHOWN = 20                          # violations
QUIET = {**CONF, "spark.ui.showConsoleProgress": "false"}


def run(traces: Sequence[Path], *, tables: Path | None, report: Path | None, skew: float | None,
        master: str | None, conf: Mapping[str, str], as_json: bool) -> int:
    """Audit, and show what was found. Return the exit status."""
    if report is not None:
        html_page.check()
        check_writable(report, "--report")
    audit_files.find(traces)            # raises for a mistake in the call before Spark starts
    spark = started("ringcast audit", "ERROR", master=master, conf=conf, defaults=QUIET)
    with console.status("reading the traces"):
        result, rows = audit.audit(spark, list(traces), skew)
        numbers = figures(rows, result.groups, result.clocks)
    if as_json:
        print_json({"audit": as_object(result, numbers)})
    else:
        show(result, audit_report.summary(numbers))
    if tables is not None:
        audit_report.write_tables(tables, result, numbers)
    if report is not None:
        audit_report.write_page(report, result, numbers)
    for name, written in (("tables", tables), ("report", report)):
        if written is not None and not as_json:
            print(f"{name} in {typed(written)}")
    return result.status


def as_object(result: audit.Audit, numbers: Figures) -> dict[str, Any]:
    """Return the verdict and the figures for a program. It has all violations."""
    return {"status": result.status, "verdict": result.verdict,
            "violations": audit_report.flat(result.violations),
            "unproven": audit_report.flat(result.unproven),
            "doubts": list(result.doubts()), "notes": list(result.remarks()),
            "seconds": numbers.duration,
            "latency_s": {name: numbers.percentile(share)
                          for name, share in audit_report.SHARES.items()},
            "members": audit_report.members(numbers)}


def show(result: audit.Audit, summary: list[tuple[str, str]]) -> None:
    """Print the verdict and the figures."""
    out = page()
    out.print(result.verdict)
    for violation in result.violations[:MAX_SHOWN]:
        out.print(f"  {violation}")
    if len(result.violations) > MAX_SHOWN:
        out.print(f"  and {len(result.violations) - MAX_SHOWN} more, which --tables lists")
    out.print(lines([*summary, *[("doubt", doubt) for doubt in result.doubts()],
                     *[("note", note) for note in result.remarks()]]))
