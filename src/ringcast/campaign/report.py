"""The result of a campaign, as a page and as tables: the best capacity and
xmit_interval for each loss and group size."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast import html_page as page
from ringcast.campaign.points import RULE, Point, choose, groups
from ringcast.campaign.runs import Planned
from ringcast.sim.runs.replay import replay
from ringcast.units import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go

TITLES = ("loss", "members", "capacity", "xmit_interval (ms)", "messages/s", "50 % within (ms)",
          "99 % within (ms)", "overhead", "blocked")
HEADING = "Recommended settings"
MAPS = (("throughput", "messages/s", "Viridis", 1.0, ",.0f"),
        ("p99", "99 % within (ms)", "Viridis_r", 1.0, ",.2f"),
        ("overhead", "overhead (%)", "Viridis_r", 100.0, ",.1f"))
MODEL = ("All times are simulated. The model has a wire of the given bandwidth into and out of "
         "each member, a fixed delay, loss of whole datagrams, and the real protocol with its "
         "windows and timers. It has no time for handling a message, no packets below the "
         "datagram, and no other traffic. Use it to compare settings, not machines. Throughput is "
         "the messages that the slowest receiver gets in a second. Latency is the time from the "
         "first send of a message until a receiver's application gets it; percentiles are at most "
         "9 % too high. Overhead is the bytes on the wire beyond the payloads. Blocked is the "
         "share of the time in which a sender waited for room; it is nearly all of the time if "
         "senders always have more to send.")


def verdict(points: Sequence[Point], failed: int) -> str:
    """Return the result in a sentence: for the largest group with the most loss. The
    table has the others."""
    chosen = [point for group in groups(points) if (point := choose(group)) is not None]
    total = sum(point.runs for point in points)
    failures = f"{failed:,} of {total:,} runs failed. " if failed else ""
    if not chosen:
        return f"{failures}Nothing was measured."
    point = chosen[-1]
    others = f"; the table has {counted(len(chosen) - 1, 'other case')}" if len(chosen) > 1 else ""
    return (f"{failures}For {point.loss:g} loss and {point.members} members take a capacity of "
            f"{point.capacity:,} and an xmit_interval of {point.xmit_interval:g} ms "
            f"({point.throughput:,.0f} messages/s, 99 % within {point.p99:,.2f} ms, "
            f"{point.overhead:.1%} overhead){others}.")


def cells(point: Point) -> tuple[str, ...]:
    """Return a row for the columns TITLES."""
    start = (f"{point.loss:g}", f"{point.members}", f"{point.capacity:,}",
             f"{point.xmit_interval:g}")
    if point.throughput is None or point.p99 is None:
        return (*start, "nothing was sent" if point.ok else "no run was ok", *[""] * 4)
    return (*start, f"{point.throughput:,.0f}", f"{point.p50:,.2f}", f"{point.p99:,.2f}",
            f"{point.overhead:.1%}", f"{point.blocked:.0%}")


def recommendations(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """Return the row of the best setting for each loss and group size. Where nothing
    was measured, the row says so."""
    return [cells(choose(group) or group[0]) for group in groups(points)]


def write(path: Path, points: Sequence[Point], run: Planned,
          failures: Sequence[tuple[str, str, str]]) -> None:
    """Write the page. `run` is any run of the campaign, `failures` are (status, error,
    command that replays the run)."""
    fixed = run.settings
    assert fixed.senders is not None, "a campaign has a value for all that its load needs"
    load = (f"{fixed.steady:,.0f} messages a second" if fixed.steady
            else "as many messages as found room")
    story = page.text(
        f"{sum(point.runs for point in points):,} simulated runs of {fixed.stack}. In each, "
        f"{counted(fixed.senders, 'sender')} sent {load}, of {fixed.size:,} bytes, for "
        f"{fixed.duration:g} s over wires of {fixed.bandwidth:g} MB/s with a delay of "
        f"{fixed.delay:g} ms. One of the runs: {replay(run.seed, fixed)}")
    parts = [story, f"<h2>{HEADING}</h2>", page.table(TITLES, recommendations(points)),
             page.text(RULE)]
    if failures:
        parts += ["<h2>Failures</h2>", page.table(("status", "error", "replay"), failures)]
    maps = [heat_maps(group) for group in groups(points)]
    every = ["<h2>All settings</h2>", page.table(TITLES, [cells(point) for point in points]),
             page.text(MODEL)]
    page.write(path, "ringcast simulate: which capacity, which xmit_interval",
               verdict(points, len(failures)), [*parts, *maps, *every])


def heat_maps(group: Sequence[Point]) -> "go.Figure":
    """Plot throughput, latency and overhead over capacity and interval, for one loss
    and group size, with a frame around the best setting."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    intervals = sorted({each.xmit_interval for each in group})
    capacities = sorted({each.capacity for each in group})
    at = {(each.capacity, each.xmit_interval): each for each in group}
    figure = make_subplots(1, len(MAPS), subplot_titles=[title for _, title, *_ in MAPS],
                           shared_yaxes=True)
    for column, (name, title, colours, factor, style) in enumerate(MAPS, 1):
        values = [[None if (value := getattr(at[capacity, interval], name)) is None
                   else value * factor for interval in intervals] for capacity in capacities]
        figure.add_trace(go.Heatmap(
            x=[f"{each:g}" for each in intervals], y=[f"{each:,}" for each in capacities], z=values,
            colorscale=colours, showscale=False, name=title, texttemplate=f"%{{z:{style}}}",
            hovertemplate=f"capacity %{{y}}, interval %{{x}} ms: %{{z:{style}}} {title}"),
            row=1, col=column)
        if (best := choose(group)) is not None:
            x, y = intervals.index(best.xmit_interval), capacities.index(best.capacity)
            figure.add_shape(type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5,
                             line={"color": "crimson", "width": 4}, row=1, col=column)
    figure.update_xaxes(title="xmit_interval (ms)", type="category").update_yaxes(type="category")
    figure.update_yaxes(title="capacity (messages)", col=1)
    return figure.update_layout(title=f"{group[0].loss:g} loss, {group[0].members} members",
                                height=140 + 55 * len(capacities))
