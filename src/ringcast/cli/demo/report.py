"""The page that a demo leaves behind: three plots and the figures, in one file that
needs no network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast import html_page as page
from ringcast.cli.demo.flights import Figures
from ringcast.cli.demo.members import Outcome

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ringcast.cli.demo.command import Run


@dataclass(frozen=True)
class Sample:
    """How far things were at one moment: seconds since the start, and messages."""

    at: float
    published: int
    recorded: int
    in_table: int
    announced: int


def write(path: Path, run: "Run", verdict: str) -> None:
    """Write the page to `path`."""
    plan = run.plan
    story = page.text(f"{plan.messages:,} flight records from {plan.publishers} publishers through a group over {plan.stack} that "
                      f"loses {plan.loss:.0%} of its datagrams (seed {plan.seed}), recorded, "
                      f"streamed by Spark into a table, and "
                      f"compared with the file. {plan.announcements:,} of the flights are late; "
                      f"Spark announced them to the group.")
    page.write(path, "ringcast demo", verdict, [story, table(run.outcomes), progress(run.samples),
                                                delays(run.computed),
                                                datagrams(run.outcomes), *run.story])


def table(outcomes: Sequence[Outcome]) -> str:
    names = {"num_discard": "datagrams lost", "num_duplicate": "repeated",
             "num_shuffle": "overtaken", "xmit_reqs_sent": "requests",
             "xmit_rsps_sent": "retransmitted"}
    rows = [[each.name, f"{each.sent:,}", f"{each.delivered:,}",
             *(f"{each.status[key]:,}" for key in names)] for each in outcomes]
    return page.table(("member", "sent", "delivered", *names.values()), rows)


def progress(samples: Sequence[Sample]) -> "go.Figure":
    """Messages published, recorded, in the table and announced, over time."""
    import plotly.graph_objects as go

    at = [sample.at for sample in samples]
    figure = go.Figure([go.Scatter(x=at, y=[getattr(sample, name) for sample in samples],
                                   name=name.replace("_", " "))
                        for name in ("published", "recorded", "in_table", "announced")])
    return figure.update_layout(title="Messages over time", xaxis_title="seconds",
                                yaxis_title="messages")


def delays(figures: Sequence[Figures]) -> "go.Figure":
    """Mean departure delay per carrier and hour, as Spark computed it."""
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
    """What the network did to each member, and what it took to mend it."""
    import plotly.graph_objects as go

    names = [each.name for each in outcomes]
    bars = {"datagrams lost": "num_discard", "repeated": "num_duplicate",
            "overtaken": "num_shuffle",
            "requests for repeats": "xmit_reqs_sent"}
    figure = go.Figure([go.Bar(x=names, y=[each.status[key] for each in outcomes], name=title)
                        for title, key in bars.items()])
    return figure.update_layout(title="What the network did to each member",
                                yaxis_title="datagrams")
