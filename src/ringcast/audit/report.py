"""The output of an audit: tables for further queries, and a page that shows when the
group was slow, and why."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringcast import html_page as page
from ringcast.audit.figures import Figures
from ringcast.audit.verdict import Audit, Violation
from ringcast.errors import TraceError
from ringcast.histogram import UNKNOWN

if TYPE_CHECKING:
    import plotly.graph_objects as go

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
COLUMNS = {                             # of the tables, for those without rows
    **dict.fromkeys(("violations", "unproven"), ("wall", "kind", "member", "view_id", "stream",
                                                 "position", "sentence", "sender")),
    "views": ("view_id", "sender", "members", "sent_to", "given_up_to", "least", "most", "status"),
    "members": ("member",),
    "clocks": ("member", "against", "ahead_s", "within_s", "rate_ppm"),
    "series": ("slot", "event", "member", "rows", "messages", "nbytes", "duration", "fill",
               "fullest"),
    "latency": ("slot", "member", "bucket", "messages"),
    "acked": ("slot", "sender", "member", "last")}
MAX_MARKED_VIEWS = 40                   # in a plot
WIDEST_NAME = 0.2                       # of the width of a plot: the name of a view
MAX_LISTED = 50                         # violations on the page; the tables have all


def short(member: str) -> str:
    """Return the name of a member without the incarnation."""
    return member.rpartition("#")[0] or member


def seconds(value: float | None) -> str:
    """Return a duration as text, with a unit that fits."""
    if value is None:
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def ratio(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "-"


def summary(figures: Figures) -> list[tuple[str, str]]:
    """Return the figures of the whole group as lines of a name and a text."""
    sent, delivered = figures.total("send"), figures.total("deliver")
    again, asked = figures.total("retransmit"), figures.total("xmit_req")
    control = sum(figures.total(event, "nbytes") for event in ("ack", "xmit_req"))
    payload = figures.total("send", "nbytes") + figures.total("retransmit", "nbytes")
    acks, slowest = figures.total("ack", "rows"), figures.slowest_member()
    lines = [
        ("latency", ", ".join(f"{name} {seconds(figures.percentile(share))}"
                              for name, share in SHARES.items())),
        ("messages", f"{sent:,} sent, {delivered:,} delivered in {figures.duration:.3g} s"),
        ("repair", f"{asked:,} requested, {again:,} retransmitted ({ratio(again, sent)} of the "
                   "messages sent)"),
        ("acks", f"{acks:,}, {delivered / max(1, acks):,.1f} deliveries for each; control "
                 f"datagrams have {ratio(control, payload)} of the payload bytes"),
        ("blocked", f"{figures.total('blocked', 'rows'):,} sends waited, "
                    f"{seconds(figures.total('blocked', 'duration') / 1e9)} in all"),
        ("slowest", "no member was behind the others" if slowest is None else
                    f"{short(slowest[0])}, the last to acknowledge in {slowest[1]:.0%} of the time "
                    "in which a member was behind"),
    ]
    if early := figures.histogram()[UNKNOWN]:
        lines.append(("clocks", f"{early:,} messages seem to arrive before they were sent: the "
                                "clocks are apart"))
    return lines


def members(figures: Figures) -> list[dict[str, Any]]:
    """Return a row for each member: what it did, and the latency of its messages."""
    rows = []
    for name in sorted({row["member"] for row in figures.series}):
        fills = [row for row in figures.series if row["member"] == name
                 and row["fullest"] is not None]
        counts = {"sent": "send", "delivered": "deliver", "asked_for": "xmit_req",
                  "sent_again": "retransmit"}
        rows.append({"member": name}
            | {column: figures.total(event, member=name) for column, event in counts.items()}
            | {"acks": figures.total("ack", "rows", name),
               "blocked_s": figures.total("blocked", "duration", name) / 1e9,
               "fullest": max((row["fullest"] for row in fills), default=None),
               "slots_behind": figures.slowest[name]}
            | {f"latency_{share}_s": figures.percentile(value, name)
               for share, value in SHARES.items()})
    return rows


# ------------------------------------------------------------------------------- tables

def write_tables(directory: Path, audit: Audit, figures: Figures) -> list[Path]:
    """Write Parquet files into `directory`, which is made: violations, unproven, views,
    members, clocks, series, latency, acked. Raises TraceError if that fails."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables: dict[str, list[dict[str, Any]]] = {
        "violations": flat(audit.violations), "unproven": flat(audit.unproven),
        "views": audit.views, "members": members(figures), "clocks": audit.clocks.rows(),
        "series": figures.series, "latency": figures.latency, "acked": figures.acked}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            empty: dict[str, list[Any]] = {column: [] for column in COLUMNS[name]}
            table = pa.Table.from_pylist(rows) if rows else pa.table(empty)
            pq.write_table(table, directory / f"{name}.parquet")
    except OSError as error:
        raise TraceError(f"the tables cannot be written to {directory}: {error.strerror or error}; "
                         "name another directory") from None
    return [directory / f"{name}.parquet" for name in tables]


def flat(violations: Iterable[Violation]) -> list[dict[str, Any]]:
    """Return violations as rows of plain values."""
    return [{**dataclasses.asdict(each),
             "stream": None if each.stream is None else str(each.stream),
             "sender": None if each.stream is None else each.stream.sender} for each in violations]


# --------------------------------------------------------------------------------- page

def write_page(path: Path, audit: Audit, figures: Figures) -> None:
    """Write one HTML file that needs no others. Raises TraceError if that fails."""
    try:
        page.write(path, "ringcast audit", audit.verdict, page_parts(audit, figures))
    except OSError as error:
        raise TraceError(f"the page cannot be written to {path}: {error.strerror or error}; name "
                         "another file") from None


def page_parts(audit: Audit, figures: Figures) -> list[Any]:
    """Return the parts of the page: sentences, tables and plots."""
    listed = [*audit.violations, *audit.unproven][:MAX_LISTED]
    parts: list[Any] = [page.text(sentence) for sentence in (*audit.doubts(), *audit.remarks())]
    if listed:
        parts.append(page.table(("kind", "member", "view", "at", "violation"), [
            (each.kind, short(each.member), each.view_id,
             f"{(each.wall - figures.begin) / 1e9:.6f} s", each.sentence) for each in listed]))
    parts.append(page.table(("figure", "value"), summary(figures)))
    parts += [latencies(audit, figures), repair(figures), fill(figures), slow(figures),
              blocked(figures), table_of(members(figures)), views(audit)]
    return [part for part in parts if part is not None]


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return the table of the members."""
    def text(name: str, value: Any) -> str:
        if name == "member":
            return short(value)
        if name.endswith("_s"):
            return seconds(value)
        return "-" if value is None else f"{value:.1%}" if name == "fullest" else f"{value:,}"

    names = list(rows[0]) if rows else []
    return page.table([name.removesuffix("_s").replace("_", " ") for name in names],
                      [[text(name, row[name]) for name in names] for row in rows])


def views(audit: Audit) -> str:
    """Return the table of the views: what was sent in each, and how far its members
    received it."""
    titles = ("view", "sender", "members", "sent up to", "purged up to", "least received",
              "most received", "status")
    columns = ("view_id", "sender", "members", "sent_to", "given_up_to", "least", "most", "status")
    rows = [["-" if row[name] is None else row[name] for name in columns]
            for row in audit.views[:MAX_LISTED]]
    return page.table(titles, [[row[0], short(row[1]), *row[2:]] for row in rows])


def chart(figures: Figures, title: str, axis: str) -> "go.Figure":
    import plotly.graph_objects as go

    return go.Figure().update_layout(title=title, xaxis_title="seconds", yaxis_title=axis,
                                     xaxis_range=[0, figures.duration])


def mark_views(figure: "go.Figure", audit: Audit, figures: Figures) -> None:
    """Draw a line where each view was installed first, and one at each violation. Where
    views follow each other closely, the first of them has its name there."""
    first: dict[int, int] = {}
    for member in audit.groups.members.values():
        for shown, view_id, _ in member.views:
            wall = audit.clocks.true(member.name, shown)
            first[view_id] = min(wall, first.get(view_id, wall))
    room, named = WIDEST_NAME * figures.duration, float("-inf")
    for view_id, wall in sorted(first.items())[:MAX_MARKED_VIEWS]:
        at = (wall - figures.begin) / 1e9
        has_room = at >= named + room
        named = at if has_room else named
        figure.add_vline(at, line_dash="dot", line_color="#888",
                         annotation_text=f"view {view_id}" if has_room else "",
                         annotation_position="top left" if at > (1 - WIDEST_NAME) * figures.duration
                         else "top right")
    for violation in audit.violations[:MAX_MARKED_VIEWS]:
        figure.add_vline((violation.wall - figures.begin) / 1e9, line_color="#c00",
                         annotation_text=violation.kind)


def latencies(audit: Audit, figures: Figures) -> "go.Figure":
    """Plot the latency over time, with views and violations."""
    figure = chart(figures, "Latency over time (views dotted, violations red)", "milliseconds")
    figure.update_yaxes(type="log")
    slots = sorted({row["slot"] for row in figures.latency})
    for name, share in SHARES.items():
        values = [figures.percentile(share, slot=slot) for slot in slots]
        figure.add_scatter(x=[figures.seconds(slot) for slot in slots], name=name,
                           y=[None if value is None else value * 1e3 for value in values])
    mark_views(figure, audit, figures)
    return figure


def over_time(figures: Figures, event: str, column: str) -> tuple[list[float], list[int]]:
    """Return the times of the slots, and the sum of a column for an event in each."""
    sums: dict[int, int] = {row["slot"]: 0 for row in figures.series}
    for row in figures.series:
        if row["event"] == event:
            sums[row["slot"]] += row[column] or 0
    return [figures.seconds(slot) for slot in sorted(sums)], [sums[slot] for slot in sorted(sums)]


def repair(figures: Figures) -> "go.Figure":
    """Plot the messages sent and delivered, and, with a scale of their own, those that
    were requested and retransmitted."""
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    figure.update_layout(title="Loss and repair over time, in messages a second",
                         xaxis2_title="seconds", xaxis_range=[0, figures.duration])
    for event, name, row in (("send", "sent", 1), ("deliver", "delivered, all members together", 1),
                             ("xmit_req", "requested", 2), ("retransmit", "retransmitted", 2)):
        at, messages = over_time(figures, event, "messages")
        figure.add_scatter(x=at, y=[count / figures.width * 1e9 for count in messages], name=name,
                           row=row, col=1)
    return figure.update_yaxes(rangemode="tozero")


def fill(figures: Figures) -> "go.Figure":
    """Plot how full the send windows were: a full window blocks its sender."""
    figure = chart(figures, "Fill of the send windows over time", "share of the window")
    figure.update_yaxes(tickformat=".2~p", rangemode="tozero")
    rows = sorted((row for row in figures.series if row["event"] == "window"),
                  key=lambda row: row["slot"])
    for name in sorted({row["member"] for row in rows}):
        mine = [row for row in rows if row["member"] == name]
        figure.add_scatter(x=[figures.seconds(row["slot"]) for row in mine],
                           y=[row["fullest"] for row in mine], name=short(name))
    return figure


def slow(figures: Figures) -> "go.Figure":
    """Plot the p99 latency of each member over time."""
    import plotly.graph_objects as go

    slots = sorted({row["slot"] for row in figures.latency})
    names = sorted({row["member"] for row in figures.latency})
    late = [[figures.percentile(0.99, name, slot) for slot in slots] for name in names]
    figure = go.Figure(go.Heatmap(x=[figures.seconds(slot) for slot in slots],
                                  y=[short(name) for name in names],
                                  z=[[None if value is None else value * 1e3 for value in row]
                                     for row in late],
                                  colorbar_title="ms", colorscale="YlOrRd"))
    return figure.update_layout(title="p99 latency of the messages to each member over time",
                                xaxis_title="seconds")


def blocked(figures: Figures) -> "go.Figure | None":
    """Plot the time that sends waited for room; None if none waited."""
    at, waited = over_time(figures, "blocked", "duration")
    if not any(waited):
        return None
    figure = chart(figures, "Time that sends were blocked", "seconds in a second")
    return figure.add_bar(x=at, y=[each / figures.width for each in waited])
