"""The page that a demo leaves behind: three plots and the figures, in one file that needs no network."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast.cli.demo.flights import Figures
from ringcast.cli.demo.members import Outcome, Plan

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Sample:
    """How far things were at one moment: seconds since the start, and messages."""

    at: float
    published: int
    recorded: int
    in_table: int


STYLE = """body{font-family:system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .8rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}.verdict{font-size:1.2rem;font-weight:600}"""


def write(path: Path, plan: Plan, outcomes: Sequence[Outcome], figures: Sequence[Figures], samples: Sequence[Sample],
          verdict: str) -> None:
    """Write the page to `path`."""
    plots = [progress(samples), delays(figures), datagrams(outcomes)]
    body = "\n".join(plot.to_html(full_html=False, include_plotlyjs=number == 0) for number, plot in enumerate(plots))
    path.write_text(f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>ringcast demo</title><style>{STYLE}</style>
<h1>ringcast demo</h1><p class="verdict">{html.escape(verdict)}</p>
<p>{plan.messages:,} flight records from {plan.publishers} publishers through a group over {plan.stack} that loses
{plan.loss:.0%} of its datagrams (seed {plan.seed}), recorded, streamed by Spark into a table, and compared with the file.</p>
{table(outcomes)}{body}</html>""", encoding="utf-8")


def table(outcomes: Sequence[Outcome]) -> str:
    names = {"num_discard": "datagrams lost", "num_duplicate": "repeated", "num_shuffle": "overtaken", "xmit_reqs_sent": "requests",
             "xmit_rsps_sent": "retransmitted"}
    head = "".join(f"<th>{title}</th>" for title in ("member", "sent", "delivered", *names.values()))
    rows = "".join(f"<tr><td>{html.escape(each.name)}</td><td>{each.sent:,}</td><td>{each.delivered:,}</td>"
                   + "".join(f"<td>{each.status[key]:,}</td>" for key in names) + "</tr>" for each in outcomes)
    return f"<table><tr>{head}</tr>{rows}</table>"


def progress(samples: Sequence[Sample]) -> "go.Figure":
    """Messages published, recorded and in the table, over time."""
    import plotly.graph_objects as go

    at = [sample.at for sample in samples]
    figure = go.Figure([go.Scatter(x=at, y=[getattr(sample, name) for sample in samples], name=name.replace("_", " "))
                        for name in ("published", "recorded", "in_table")])
    return figure.update_layout(title="Messages over time", xaxis_title="seconds", yaxis_title="messages")


def delays(figures: Sequence[Figures]) -> "go.Figure":
    """Mean departure delay per carrier and hour, as Spark computed it."""
    import plotly.graph_objects as go

    carriers = sorted({row[0] for row in figures})
    hours = sorted({row[1] for row in figures})
    mean = {(row[0], row[1]): row[4] / row[3] for row in figures if row[3] and row[4] is not None}
    figure = go.Figure(go.Heatmap(x=hours, y=carriers, z=[[mean.get((carrier, hour)) for hour in hours] for carrier in carriers],
                                  colorbar_title="minutes", colorscale="RdYlBu_r", zmid=0))
    return figure.update_layout(title="Mean departure delay by carrier and hour", xaxis_title="hour of departure", height=520)


def datagrams(outcomes: Sequence[Outcome]) -> "go.Figure":
    """What the network did to each member, and what it took to mend it."""
    import plotly.graph_objects as go

    names = [each.name for each in outcomes]
    bars = {"datagrams lost": "num_discard", "repeated": "num_duplicate", "overtaken": "num_shuffle",
            "requests for repeats": "xmit_reqs_sent"}
    figure = go.Figure([go.Bar(x=names, y=[each.status[key] for each in outcomes], name=title) for title, key in bars.items()])
    return figure.update_layout(title="What the network did to each member", yaxis_title="datagrams")
