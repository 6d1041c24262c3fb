"""Write what a demo found: as a page with plots and figures, in one file that needs no
network, and as an object for a program."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringcast import html_page as page
from ringcast.cli.demo.flights import Figures
from ringcast.cli.demo.members import Outcome

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ringcast.cli.demo.run import DemoRun


# Counters of Channel.status(), with the titles of their columns.
COUNTERS = {"num_discard": "datagrams lost", "num_duplicate": "duplicated",
            "num_shuffle": "reordered", "xmit_reqs_sent": "requests",
            "xmit_rsps_sent": "retransmitted"}
DELAYS = ("carrier", "hour", "flights", "left", "sum", "least", "greatest")     # Figures
TITLES = ("member", "sent", "delivered", *COUNTERS.values())


@dataclass(frozen=True)
class Sample:
    """The progress at one moment: seconds since the start, and numbers of messages."""

    at: float
    published: int
    recorded: int
    in_table: int
    announced: int


def write(path: Path, run: "DemoRun", verdict: str) -> None:
    """Write the page to `path`."""
    plan = run.plan
    summary = page.text(
        f"{plan.publishers} publishers sent {plan.messages:,} flight records over {plan.stack}, "
        f"with {plan.loss:.0%} of the datagrams lost (seed {plan.seed}). A recorder wrote them to "
        "a journal, and Spark streamed them from there into a table. The table was compared with "
        f"the file. {plan.announcements:,} of the flights are late; Spark announced them to the "
        "group.")
    page.write(path, "ringcast demo", verdict, [
        summary, page.table(TITLES, [cells(each) for each in run.outcomes]), progress(run.samples),
        delays(run.computed), datagrams(run.outcomes), *run.audit_parts])


def as_object(run: "DemoRun", differences: Sequence[str]) -> dict[str, Any]:
    """Return the results for a program: what the page and the tables have, all rows of
    the result, and every counter of each member."""
    plan, audit = run.plan, run.audit
    return {
        "differences": list(differences),
        **{name: getattr(plan, name) for name in ("publishers", "messages", "announcements",
                                                  "loss", "seed", "stack", "options")},
        "audit": None if audit is None else {"status": audit.status, "verdict": audit.verdict},
        "members": [asdict(each) for each in run.outcomes],
        "streams": {sender: dict(zip(("rows", "distinct", "lowest", "highest"), stream,
                                     strict=True)) for sender, stream in run.streams.items()},
        "delays": [dict(zip(DELAYS, row, strict=True)) for row in run.computed],
        "progress": [asdict(each) for each in run.samples]}


def cells(outcome: Outcome) -> list[str]:
    """Return the row of a member for the columns TITLES."""
    return [outcome.name, f"{outcome.sent:,}", f"{outcome.delivered:,}",
            *(f"{outcome.status[counter]:,}" for counter in COUNTERS)]


def progress(samples: Sequence[Sample]) -> "go.Figure":
    """Plot the messages published, recorded, in the table and announced over time."""
    import plotly.graph_objects as go

    at = [sample.at for sample in samples]
    figure = go.Figure([go.Scatter(x=at, y=[getattr(sample, name) for sample in samples],
                                   name=name.replace("_", " "))
                        for name in ("published", "recorded", "in_table", "announced")])
    return figure.update_layout(title="Messages over time", xaxis_title="seconds",
                                yaxis_title="messages")


def delays(figures: Sequence[Figures]) -> "go.Figure":
    """Plot the mean departure delay per carrier and hour, as Spark computed it."""
    import plotly.graph_objects as go

    carriers = sorted({row[0] for row in figures})
    hours = sorted({row[1] for row in figures})
    mean = {(row[0], row[1]): row[4] / row[3] for row in figures if row[3] and row[4] is not None}
    figure = go.Figure(go.Heatmap(x=hours, y=carriers,
                                  z=[[mean.get((carrier, hour)) for hour in hours]
                                     for carrier in carriers],
                                  colorbar_title="minutes", colorscale="RdYlBu_r", zmid=0))
    return figure.update_layout(title="Mean departure delay by carrier and hour",
                                xaxis_title="hour of departure", height=520)


def datagrams(outcomes: Sequence[Outcome]) -> "go.Figure":
    """Plot the network faults of each member, and its requests for retransmission."""
    import plotly.graph_objects as go

    names = [each.name for each in outcomes]
    figure = go.Figure([go.Bar(x=names, y=[each.status[counter] for each in outcomes], name=title)
                        for counter, title in COUNTERS.items() if counter != "xmit_rsps_sent"])
    return figure.update_layout(title="Network faults and requests of each member",
                                yaxis_title="datagrams")
