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
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ringcast.audit import aggregates
from ringcast.trace import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 64                  # slots of time; in each, the least delay of a stream is used
# Times in nanoseconds. A member that sends nothing may have received even its fastest
# message with this delay.
FASTEST = 10_000_000_000
REPORTED = 1_000_000        # smaller differences between clocks are not reported
POINTS = pa.schema([(name, pa.int64()) for name in (
    "member_id", "epoch", "sender_id", "slot", "delay", "sent_from", "sent_to", "wall")])


class Key(NamedTuple):
    """The clock of one process of a member."""

    member: str
    epoch: int


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

    receiver: Key
    sender: Key
    wall: int
    delay: int


@dataclass
class Clocks:
    """The clocks that are apart, and the times at which members with several processes
    changed from one process to the next."""

    apart: dict[Key, Clock] = field(default_factory=dict)
    # The member whose clock this one is compared with.
    against: dict[Key, str] = field(default_factory=dict)
    # For members with several processes: (sent_at, epoch).
    periods: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    # Clocks that cannot be as close to the others as the user said.
    loose: set[Key] = field(default_factory=set)

    def true(self, member: str, wall: int, epoch: int = 0) -> int:
        """Return the time of an event by the clock that the others are compared
        with."""
        clock = self.apart.get(Key(member, epoch))
        return wall if clock is None else wall - clock.at(wall)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each clock that is apart, for a table."""
        return [{"member": key.member, "epoch": key.epoch, "against": self.against[key],
                 "ahead_s": clock.ahead / 1e9,
                 "within_s": None if clock.within is None else clock.within / 1e9,
                 "rate_ppm": clock.rate * 1e6}
                for key, clock in sorted(self.apart.items())
                if abs(clock.ahead) >= max(REPORTED, clock.within or 0) or self._drifts(clock)]

    def _drifts(self, clock: Clock) -> bool:
        return abs(clock.rate) >= 1e-5

    def sentences(self) -> Iterator[str]:
        """Describe each clock that is apart."""
        for row in self.rows():
            of = row["member"] + (f", process {row['epoch']}" if row["epoch"] else "")
            error = "unless its messages took that long"
            if row["within_s"] is not None:
                error = f"± {row['within_s'] * 1e3:.3g} ms"
            way = "ahead of" if row["ahead_s"] >= 0 else "behind"
            ppm = row["rate_ppm"]
            drift = f", and {'gains' if ppm > 0 else 'loses'} {abs(ppm):.0f} µs a second"
            yield (f"the clock of {of} is {abs(row['ahead_s']):,.4f} s {way} that of "
                   f"{row['against']} ({error})" + (drift if abs(ppm) >= 10 else ""))


def gather(spark: "SparkSession", parts: Sequence[Path],
           events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read the least delays of each stream to one member, by slots of time; `events`
    are those of aggregates.marked."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for event in events:
        low, high = spans.get(key := (event["member"], event["epoch"]),
                              (event["wall"], event["wall"]))
        spans[key] = min(low, event["wall"]), max(high, event["wall"])
    longest = max((high - low for low, high in spans.values()), default=0)
    width = max(REPORTED, longest // SLOTS)
    has_epochs = any(event["epoch"] for event in events)
    found: list[dict[str, Any]] = aggregates.collected(
        spark, parts, lambda part: points(part, width, has_epochs), POINTS).to_pylist()
    return found


def points(part: Path, width: int, has_epochs: bool) -> pa.Table:
    """Read the least delays in one part. With `has_epochs`, also the times at which its
    member sent its messages: rows with `slot` -1."""
    columns = ["kind", "member_id", "epoch", "sender_id", "sent_at", "wall"]
    table = aggregates.read(part, columns, ("deliver", "send") if has_epochs else ("deliver",))
    is_send = pc.equal(table["kind"], KINDS["send"])
    foreign = pc.or_(is_send, pc.not_equal(table["sender_id"], table["member_id"]))
    table = table.filter(pc.and_(foreign, pc.greater(pc.fill_null(table["sent_at"], 0), 0)))
    is_send = pc.equal(table["kind"], KINDS["send"])
    kept = {name: table[name] for name in ("member_id", "epoch", "sender_id", "sent_at", "wall")}
    made = pa.table(kept | {"slot": pc.if_else(is_send, -1, pc.divide(table["wall"], width)),
                            "delay": pc.subtract(table["wall"], table["sent_at"])})
    keys = ["member_id", "epoch", "sender_id", "slot"]
    result = made.group_by(keys, use_threads=False).aggregate(
        [("delay", "min"), ("sent_at", "min"), ("sent_at", "max"), ("wall", "mean")])
    found = [*(result[name] for name in keys), result["delay_min"], result["sent_at_min"],
             result["sent_at_max"], pc.round(result["wall_mean"])]
    return pa.Table.from_arrays([column.cast(pa.int64()) for column in found], POINTS.names)


# ----------------------------------------------------------------------------- estimate

def estimate(rows: Sequence[Mapping[str, Any]], names: Mapping[int, str],
             skew: int | None = None) -> Clocks:
    """Compare the clocks. `names` are the members that the numbers in the rows stand
    for; `skew` is the largest difference of clocks, in nanoseconds, as the user
    knows."""
    clocks = Clocks(periods=periods(rows, names))
    found = [point for row in rows if row["slot"] != -1
             and (point := _point(row, names, clocks.periods)) is not None]
    for group in connected(found):
        _compare(clocks, group, skew)
    return clocks


def periods(rows: Sequence[Mapping[str, Any]],
            names: Mapping[int, str]) -> dict[str, list[tuple[int, int]]]:
    """Return, for members with several processes, the sent_at of the first message of
    each process, with its epoch."""
    first: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        if row["slot"] == -1 and row["member_id"] in names:
            epochs = first[names[row["member_id"]]]
            epochs[row["epoch"]] = min(row["sent_from"], epochs.get(row["epoch"], row["sent_from"]))
    return {member: sorted((wall, epoch) for epoch, wall in epochs.items())
            for member, epochs in first.items()}


def _point(row: Mapping[str, Any], names: Mapping[int, str],
           periods: Mapping[str, list[tuple[int, int]]]) -> Point | None:
    """Return the point of a row; None if its messages came from different processes, or
    if a member is unknown."""
    receiver, sender = names.get(row["member_id"]), names.get(row["sender_id"])
    if receiver is None or sender is None:
        return None
    first, last = (epoch_at(periods.get(sender, ()), row[name])
                   for name in ("sent_from", "sent_to"))
    if first != last:
        return None
    return Point(Key(receiver, row["epoch"]), Key(sender, first), row["wall"], row["delay"])


def epoch_at(periods: Sequence[tuple[int, int]], sent_at: int) -> int:
    """Return the epoch in which a message was sent."""
    earliest = 0, periods[0][1] if periods else 0
    return max(((wall, epoch) for wall, epoch in periods if wall <= sent_at), default=earliest)[1]


def connected(points: Sequence[Point]) -> list[list[Point]]:
    """Split the points into groups of clocks that are connected by messages."""
    parents: dict[Key, Key] = {}

    def root(key: Key) -> Key:
        while parents.setdefault(key, key) != key:
            parents[key] = parents[parents[key]]
            key = parents[key]
        return key

    for point in points:
        parents[root(point.receiver)] = root(point.sender)
    groups: dict[Key, list[Point]] = defaultdict(list)
    for point in points:
        groups[root(point.receiver)].append(point)
    return list(groups.values())


def _compare(clocks: Clocks, points: list[Point], skew: int | None) -> None:
    """Compare the clocks of one group of members, and note those that are apart."""
    if skew is not None and len(equal(points, skew)) < len(keys_of(points)):
        clocks.loose |= keys_of(points)
    right = equal(points)
    known = dict.fromkeys(right, Clock())
    while rest := keys_of(points) - known.keys():
        shared = {key: [point for point in points
                        if (point.receiver == key and point.sender in known)
                        or (point.sender == key and point.receiver in known)]
                  for key in sorted(rest)}
        key = max(shared, key=lambda key: len(shared[key]))
        known[key] = clocks.apart[key] = _against(known, key, shared[key])
        clocks.against[key] = min(right).member


def keys_of(points: Sequence[Point]) -> set[Key]:
    return {point.receiver for point in points} | {point.sender for point in points}


def equal(points: Sequence[Point], skew: int = 0) -> set[Key]:
    """Return a set of clocks, the largest or nearly so, in which no two clocks need to
    be apart by more than `skew`."""
    least: dict[tuple[Key, Key], int] = {}
    for point in points:
        pair = point.sender, point.receiver
        least[pair] = min(point.delay, least.get(pair, point.delay))
    keys = keys_of(points)
    while contrary := Counter(key for pair, delay in least.items()
                              if delay < -skew and keys.issuperset(pair) for key in pair):
        agreed = Counter(key for pair, delay in least.items()
                         if delay >= -skew and keys.issuperset(pair) for key in pair)
        keys.remove(max(contrary, key=lambda key: (contrary[key], -agreed[key], key)))
    senders = {sender for sender, _ in least}
    late = {key for key in keys - senders
            if all(delay > FASTEST + skew for (sender, receiver), delay in least.items()
                   if receiver == key and sender in keys)}
    return keys - late


def _against(known: Mapping[Key, Clock], key: Key, points: Sequence[Point]) -> Clock:
    """Compare one clock with those that are known already."""
    there = [(point.wall, point.delay + known[point.sender].at(point.wall - point.delay))
             for point in points if point.receiver == key]
    back = [(point.wall - point.delay, known[point.receiver].at(point.wall) - point.delay)
            for point in points if point.sender == key]
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
