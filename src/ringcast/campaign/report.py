"""The answer of a campaign, as a page and as tables: which capacity and xmit_interval
for a loss and a group size."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast import html_page as page
from ringcast.campaign.points import RULE, Point, choose, groups
from ringcast.campaign.runs import Planned
from ringcast.sim.runs.replay import replay

if TYPE_CHECKING:
    import plotly.graph_objects as go

TITLES = ("loss", "members", "capacity", "xmit_interval (ms)", "messages/s", "50 % within (ms)",
          "99 % within (ms)", "overhead",
          "blocked")
MAPS = (("throughput", "messages/s", "Viridis", 1.0, ",.0f"),
        ("p99", "99 % within (ms)", "Viridis_r", 1.0, ",.2f"),
        ("overhead", "overhead (%)", "Viridis_r", 100.0, ",.1f"))
MODEL = ("All times are simulated. The model has a wire of the stated bandwidth into and out of each member, a fixed delay, loss of "
         "whole datagrams, and the real protocol with its windows and timers; it has no time for "
         "handling a message, no packets below "
         "the datagram, and no other traffic. Compare settings by it, not machines. Throughput is "
         "what the slowest receiver is handed; "
         "latency is from a message's first leaving its sender until a receiver's application is "
         "handed it, at most 9 % too high here; "
         "overhead is what is on the wire beyond the payloads; blocked is the share of the time in "
         "which a sender waited for room, "
         "nearly all of it where it has as much to send as finds room.")


def verdict(points: Sequence[Point], failed: int) -> str:
    """The answer in a sentence: for the largest group with the most loss, as the table
    has the others."""
    chosen = [point for group in groups(points) if (point := choose(group)) is not None]
    spoilt = f"{failed:,} of {sum(point.runs for point in points):,} runs failed. " if failed else ""
    if not chosen:
        return f"{spoilt}Nothing was measured."
    point = chosen[-1]
    others = f", and what the table says for the other {len(chosen) - 1}" if len(chosen) > 1 else ""
    return (f"{spoilt}For {point.loss:g} loss and {point.members} members take a capacity of {point.capacity:,} and an xmit_interval "
            f"of {point.xmit_interval:g} ms ({point.throughput:,.0f} messages/s, 99 % within "
            f"{point.p99:,.2f} ms, {point.overhead:.1%} "
            f"overhead){others}.")


def cells(point: Point) -> tuple[str, ...]:
    """A row under TITLES."""
    start = (f"{point.loss:g}", f"{point.members}", f"{point.capacity:,}",
             f"{point.xmit_interval:g}")
    if point.throughput is None or point.p99 is None:
        return (*start, "nothing was sent" if point.ok else "no run was ok", *[""] * 4)
    return (*start, f"{point.throughput:,.0f}", f"{point.p50:,.2f}", f"{point.p99:,.2f}",
            f"{point.overhead:.1%}",
            f"{point.blocked:.0%}")


def answers(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """For each loss and group size, the row of what to take; where nothing was
    measured, it says so."""
    return [cells(choose(group) or group[0]) for group in groups(points)]


def write(path: Path, points: Sequence[Point], run: Planned, failures: Sequence[tuple[str, str, str]]) -> None:
    """Write the page; `run` is one of the campaign, `failures` are (status, what
    happened, the command that replays it)."""
    fixed = run.settings
    load = "as many messages as found room" if not fixed.steady else f"{fixed.steady:,.0f} messages a second"
    runs = sum(point.runs for point in points)
    story = page.text(
        f"{runs:,} simulated runs of {fixed.stack}: for {fixed.duration:g} s each of "
        f"{fixed.senders} sender(s) had {load} of "
        f"{fixed.size:,} bytes to send, over wires of {fixed.bandwidth:g} MB/s with a delay of "
        f"{fixed.delay:g} ms. One of the runs: "
        f"{replay(run.seed, fixed)}")
    parts = [story, "<h2>What to take</h2>", page.table(TITLES, answers(points)), page.text(RULE)]
    if failures:
        parts += ["<h2>Failures</h2>", page.table(("status", "what happened", "replay"), failures)]
    maps = [heat_maps(group) for group in groups(points)]
    every = ["<h2>Every setting</h2>", page.table(TITLES, [cells(point) for point in points]),
             page.text(MODEL)]
    page.write(path, "ringcast simulate: which capacity, which interval",
               verdict(points, len(failures)), [*parts, *maps, *every])


def heat_maps(group: Sequence[Point]) -> "go.Figure":
    """Throughput, latency and overhead over capacity and interval, for one loss and
    group size; the choice has a frame."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    intervals, capacities = sorted({each.xmit_interval for each in group}), sorted({each.capacity
                                                                                    for each in group})
    at = {(each.capacity, each.xmit_interval): each for each in group}
    figure = make_subplots(1, len(MAPS), subplot_titles=[title for _, title, *_ in MAPS],
                           shared_yaxes=True)
    for column, (name, title, colours, factor, style) in enumerate(MAPS, 1):
        values = [[None if (value := getattr(at[capacity, interval], name)) is None
                   else value * factor for interval in intervals]
                  for capacity in capacities]
        figure.add_trace(go.Heatmap(
            x=[f"{each:g}" for each in intervals], y=[f"{each:,}" for each in capacities], z=values,
            colorscale=colours,
            showscale=False, name=title, texttemplate=f"%{{z:{style}}}",
            hovertemplate=f"capacity %{{y}}, interval %{{x}} ms: %{{z:{style}}} {title}"),
            row=1, col=column)
        if (best := choose(group)) is not None:
            x, y = intervals.index(best.xmit_interval), capacities.index(best.capacity)
            figure.add_shape(type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5,
                             line={"color": "crimson", "width": 4},
                             row=1, col=column)
    figure.update_xaxes(title="xmit_interval (ms)", type="category").update_yaxes(type="category")
    figure.update_yaxes(title="capacity (messages)", col=1)
    return figure.update_layout(title=f"{group[0].loss:g} loss, {group[0].members} members",
                                height=140 + 55 * len(capacities))
