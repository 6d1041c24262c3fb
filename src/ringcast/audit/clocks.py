"""The offsets between the members' clocks, estimated from the messages: each message
was sent before it was delivered.

If a message was sent at s by the sender's clock and delivered at d by the receiver's
clock, then the receiver's clock is ahead by at most d - s. The minimum over all
messages to a member bounds how far its clock is ahead of the others; the minimum over
all messages from it bounds how far it is behind. The estimate is the middle. If
messages went in one direction only, the fastest one is assumed to have taken no time.

Clocks that can be equal are assumed to be equal. So the figures of members on one
machine stay as measured, and no clock is blamed that need not be wrong. Of clocks that
cannot be equal, those that contradict most others are apart. Clocks also run at
different rates: a line below the smallest delays over time shows how much a clock gains
(Moon, Skelly and Towsley, 1999).

No promise is judged by these estimates. They order violations, correct latencies, and
are reported.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ringcast.audit import aggregates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 64                  # slots of time; in each, the least delay of a stream is used
# Times in nanoseconds. A member that sends nothing may have received even its fastest
# message with this delay.
FASTEST = 10_000_000_000
REPORTED = 1_000_000        # smaller differences between clocks are not reported
POINTS = pa.schema([(name, pa.int64()) for name in (
    "member_id", "sender_id", "slot", "delay", "wall")])


@dataclass(frozen=True)
class Clock:
    """A clock that is ahead by `ahead` nanoseconds when it shows `origin`, and by
    `rate` more for each nanosecond after that. (Negative: it is behind.)"""

    ahead: float = 0.0
    rate: float = 0.0
    origin: int = 0
    within: float | None = 0.0  # nanoseconds of error; None: messages went in one direction only

    def at(self, wall: int) -> int:
        """Return how far the clock is ahead when it shows `wall`."""
        return round(self.ahead + self.rate * (wall - self.origin))


@dataclass
class Point:
    """The least delay of the messages from one clock's owner to another's in a slot of
    time, and the mean time of their deliveries."""

    receiver: str
    sender: str
    wall: int
    delay: int


@dataclass
class Clocks:
    """The clocks that are apart, by their members."""

    apart: dict[str, Clock] = field(default_factory=dict)
    # The member whose clock this one is compared with.
    against: dict[str, str] = field(default_factory=dict)
    # Members whose clocks cannot be as close to the others as the user said.
    loose: set[str] = field(default_factory=set)

    def true(self, member: str, wall: int) -> int:
        """Return the time of an event by the clock that the others are compared
        with."""
        clock = self.apart.get(member)
        return wall if clock is None else wall - clock.at(wall)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each clock that is apart, for a table."""
        return [{"member": member, "against": self.against[member], "ahead_s": clock.ahead / 1e9,
                 "within_s": None if clock.within is None else clock.within / 1e9,
                 "rate_ppm": clock.rate * 1e6}
                for member, clock in sorted(self.apart.items())
                if abs(clock.ahead) >= max(REPORTED, clock.within or 0) or self._drifts(clock)]

    def _drifts(self, clock: Clock) -> bool:
        return abs(clock.rate) >= 1e-5

    def sentences(self) -> Iterator[str]:
        """Describe each clock that is apart."""
        for row in self.rows():
            error = "unless its messages took that long"
            if row["within_s"] is not None:
                error = f"± {row['within_s'] * 1e3:.3g} ms"
            way = "ahead of" if row["ahead_s"] >= 0 else "behind"
            ppm = row["rate_ppm"]
            drift = f", and {'gains' if ppm > 0 else 'loses'} {abs(ppm):.0f} µs a second"
            yield (f"the clock of {row['member']} is {abs(row['ahead_s']):,.4f} s {way} that of "
                   f"{row['against']} ({error})" + (drift if abs(ppm) >= 10 else ""))


def gather(spark: "SparkSession", parts: Sequence[Path],
           events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read the least delays of each stream to one member, by slots of time; `events`
    are those of aggregates.marked."""
    spans: dict[str, tuple[int, int]] = {}
    for event in events:
        low, high = spans.get(event["member"], (event["wall"], event["wall"]))
        spans[event["member"]] = min(low, event["wall"]), max(high, event["wall"])
    longest = max((high - low for low, high in spans.values()), default=0)
    width = max(REPORTED, longest // SLOTS)
    found: list[dict[str, Any]] = aggregates.collected(
        spark, parts, lambda part: points(part, width), POINTS).to_pylist()
    return found


def points(part: Path, width: int) -> pa.Table:
    """Read the least delays in one part, in slots of `width` nanoseconds."""
    table = aggregates.read(part, ["member_id", "sender_id", "sent_at", "wall"], ("deliver",))
    is_foreign = pc.not_equal(table["sender_id"], table["member_id"])
    table = table.filter(pc.and_(is_foreign, pc.greater(pc.fill_null(table["sent_at"], 0), 0)))
    made = table.append_column("slot", pc.divide(table["wall"], width)).append_column(
        "delay", pc.subtract(table["wall"], table["sent_at"]))
    keys = ["member_id", "sender_id", "slot"]
    result = made.group_by(keys, use_threads=False).aggregate([("delay", "min"), ("wall", "mean")])
    found = [*(result[name] for name in keys), result["delay_min"], pc.round(result["wall_mean"])]
    return pa.Table.from_arrays([column.cast(pa.int64()) for column in found], POINTS.names)


# ----------------------------------------------------------------------------- estimate

def estimate(rows: Sequence[Mapping[str, Any]], names: Mapping[int, str],
             skew: int | None = None) -> Clocks:
    """Compare the clocks. `names` are the members that the numbers in the rows stand
    for; `skew` is the largest difference of clocks, in nanoseconds, as the user
    knows."""
    clocks = Clocks()
    found = [Point(names[row["member_id"]], names[row["sender_id"]], row["wall"], row["delay"])
             for row in rows if row["member_id"] in names and row["sender_id"] in names]
    for group in connected(found):
        _compare(clocks, group, skew)
    return clocks


def connected(points: Sequence[Point]) -> list[list[Point]]:
    """Split the points into groups of clocks that are connected by messages."""
    parents: dict[str, str] = {}

    def root(member: str) -> str:
        while parents.setdefault(member, member) != member:
            parents[member] = parents[parents[member]]
            member = parents[member]
        return member

    for point in points:
        parents[root(point.receiver)] = root(point.sender)
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        groups[root(point.receiver)].append(point)
    return list(groups.values())


def _compare(clocks: Clocks, points: list[Point], skew: int | None) -> None:
    """Compare the clocks of one group of members, and note those that are apart."""
    if skew is not None and len(equal(points, skew)) < len(owners(points)):
        clocks.loose |= owners(points)
    right = equal(points)
    known = dict.fromkeys(right, Clock())
    while rest := owners(points) - known.keys():
        shared = {member: [point for point in points
                        if (point.receiver == member and point.sender in known)
                        or (point.sender == member and point.receiver in known)]
                  for member in sorted(rest)}
        member = max(shared, key=lambda each: len(shared[each]))
        known[member] = clocks.apart[member] = _against(known, member, shared[member])
        clocks.against[member] = min(right)


def owners(points: Sequence[Point]) -> set[str]:
    return {point.receiver for point in points} | {point.sender for point in points}


def equal(points: Sequence[Point], skew: int = 0) -> set[str]:
    """Return a set of clocks, the largest or nearly so, in which no two clocks need to
    be apart by more than `skew`."""
    least: dict[tuple[str, str], int] = {}
    for point in points:
        pair = point.sender, point.receiver
        least[pair] = min(point.delay, least.get(pair, point.delay))
    members = owners(points)
    while contrary := Counter(member for pair, delay in least.items()
                              if delay < -skew and members.issuperset(pair) for member in pair):
        agreed = Counter(member for pair, delay in least.items()
                         if delay >= -skew and members.issuperset(pair) for member in pair)
        members.remove(max(contrary, key=lambda each: (contrary[each], -agreed[each], each)))
    senders = {sender for sender, _ in least}
    late = {member for member in members - senders
            if all(delay > FASTEST + skew for (sender, receiver), delay in least.items()
                   if receiver == member and sender in members)}
    return members - late


def _against(known: Mapping[str, Clock], member: str, points: Sequence[Point]) -> Clock:
    """Compare one clock with those that are known already."""
    there = [(point.wall, point.delay + known[point.sender].at(point.wall - point.delay))
             for point in points if point.receiver == member]
    back = [(point.wall - point.delay, known[point.receiver].at(point.wall) - point.delay)
            for point in points if point.sender == member]
    drift, origin = rate(there, back), min(wall for wall, _ in there + back)
    most = min((ahead - drift * (wall - origin) for wall, ahead in there), default=None)
    least = max((ahead - drift * (wall - origin) for wall, ahead in back), default=None)
    if most is None or least is None:
        ahead = least if most is None else most
        assert ahead is not None                # there is a point in one direction at least
        return Clock(ahead, drift, origin, None)
    return Clock((least + most) / 2, drift, origin, max(0.0, most - least) / 2)


Limit = tuple[int, float]   # a time by a clock, and how far it was ahead then at most (or at least)


def rate(there: Sequence[Limit], back: Sequence[Limit]) -> float:
    """Return how much faster a clock runs than the others, by the messages to its owner
    and by those from its owner; 0 if the two directions disagree on the sign."""
    slopes = [slope(there)] if there else []
    slopes += [-slope([(wall, -ahead) for wall, ahead in back])] if back else []
    if len(slopes) == 2 and slopes[0] * slopes[1] <= 0:
        return 0.0
    return min(slopes, key=abs, default=0.0)


def slope(points: Sequence[Limit]) -> float:
    """Return the slope of the line that is below all points and nearest to them: the
    edge of their lower convex hull at their middle."""
    hull: list[Limit] = []
    for x, y in sorted(points):
        while len(hull) > 1 and not _is_convex(hull[-2], hull[-1], (x, y)):
            hull.pop()
        if not hull or x > hull[-1][0]:
            hull.append((x, y))
    middle = sum(x for x, _ in points) / len(points)
    return next(((y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(hull)
                 if x0 <= middle <= x1), 0.0)


def _is_convex(one: Limit, two: Limit, three: Limit) -> bool:
    return (two[0] - one[0]) * (three[1] - one[1]) > (two[1] - one[1]) * (three[0] - one[0])
