"""The figures that the traces give: latency, repair, acks, blocked senders and full
windows, over time and for each member. Latencies are kept as histograms, see
ringcast.histogram."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringcast.audit.clocks import Clocks
from ringcast.audit.groups import Groups
from ringcast.histogram import PER_OCTAVE, UNKNOWN, Histogram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOTS = 120         # that the time is divided into


@dataclass
class Figures:
    """Tables, as lists of rows. A slot is `width` nanoseconds; the first slot begins at
    `begin`."""

    begin: int
    width: int
    # slot, event, member: rows, messages, nbytes, duration, fill, fullest
    series: list[dict[str, Any]]
    # slot, member, bucket: messages
    latency: list[dict[str, Any]]
    # slot, sender, member: last, the last position that was acknowledged
    acked: list[dict[str, Any]]
    # For each member the slots of a stream in which it was behind all others.
    slowest: Counter[str] = field(default_factory=Counter)

    def total(self, event: str, column: str = "messages", member: str | None = None) -> int:
        """Return the sum of a column for an event, of a member or of all."""
        return sum(row[column] or 0 for row in self.series
                   if row["event"] == event and member in (None, row["member"]))

    def seconds(self, slot: int) -> float:
        """Return the middle of a slot, in seconds since the beginning."""
        return (slot + 0.5) * self.width / 1e9

    @property
    def duration(self) -> float:
        """Return the duration of all slots in seconds."""
        return max((row["slot"] + 1 for row in self.series), default=0) * self.width / 1e9

    def histogram(self, member: str | None = None, slot: int | None = None) -> Histogram:
        """Count the latencies of a member, or of all; in a slot, or in all."""
        counts = Histogram()
        for row in self.latency:
            if member in (None, row["member"]) and slot in (None, row["slot"]):
                counts[row["bucket"]] += row["messages"]
        return counts

    def percentile(self, share: float, member: str | None = None,
                   slot: int | None = None) -> float | None:
        """Return the latency in seconds within which this share of the messages came;
        None when there were none."""
        latency = self.histogram(member, slot).percentile(share)
        return None if latency is None else latency / 1e9

    def slowest_member(self) -> tuple[str, float] | None:
        """Return the member that was most often the last to acknowledge, and its share
        of the slots in which a member was; None if there are no such slots."""
        if not self.slowest:
            return None
        name, times = self.slowest.most_common(1)[0]
        return name, times / self.slowest.total()


def figures(rows: "DataFrame", groups: Groups, clocks: Clocks | None = None) -> Figures:
    """Compute the figures from the rows of the traces, with all times by one clock."""
    from pyspark.sql import functions as F

    clocks = clocks or Clocks()
    begin, end = span(groups, clocks)
    width = max(1, (end - begin) // SLOTS + 1)
    rows = corrected(rows, clocks)
    slot = F.greatest((F.col("wall") - begin) / width, F.lit(0)).cast("int")
    timed = rows.withColumn("slot", slot)
    series = timed.groupBy("slot", "event", "member").agg(
        F.count(F.lit(1)).alias("rows"), F.sum("count").alias("messages"),
        F.sum("nbytes").alias("nbytes"), F.sum("duration").alias("duration"),
        F.avg("fill").alias("fill"), F.max("fill").alias("fullest"))
    delay = F.col("wall") - F.col("sent_at")
    octaves = F.log2(F.greatest(delay, F.lit(1)))
    bucket = F.when(delay < 0, UNKNOWN).otherwise(F.floor(octaves * PER_OCTAVE)).cast("int")
    is_timed = ((F.col("event") == "deliver") & (F.col("sender") != F.col("member"))
                & (F.col("sent_at") > 0))
    latency = timed.where(is_timed).groupBy("slot", "member", bucket.alias("bucket")).agg(
        F.sum("count").alias("messages"))
    is_ack = (F.col("event") == "ack") & F.col("conn_id").isNull() & F.col("sender").isNotNull()
    acked = timed.where(is_ack).groupBy("slot", "sender", "member").agg(F.max("last").alias("last"))
    tables = [table.toArrow().to_pylist() for table in (series, latency, acked)]
    result = Figures(begin, width, *tables)
    result.slowest = lagging(result.acked)
    return result


def span(groups: Groups, clocks: Clocks) -> tuple[int, int]:
    """Return the times of the first view and of the last event."""
    if not clocks.apart:
        return min(groups.begin, groups.end), groups.end
    views = [clocks.true(member.name, wall)
             for member in groups.members.values() for wall, *_ in member.views]
    end = max(clocks.true(member.name, member.last_wall) for member in groups.members.values())
    return min([*views, end]), end


def corrected(rows: "DataFrame", clocks: Clocks) -> "DataFrame":
    """Correct `wall` and `sent_at` of the rows to the clock that the others of a group
    are compared with."""
    if not clocks.apart:
        return rows
    apart = [(member, clock.ahead, clock.rate, clock.origin)
             for member, clock in clocks.apart.items()]
    return _corrected(_corrected(rows, apart, "wall", "member"), apart, "sent_at", "sender")


def _corrected(rows: "DataFrame", clocks: list[Any], time: str, who: str) -> "DataFrame":
    """Correct the column `time`, which is by the clock of the member in the column
    `who`."""
    from pyspark.sql import functions as F

    columns = "clock_of string, clock_ahead double, clock_rate double, clock_origin bigint"
    table = rows.sparkSession.createDataFrame(clocks, columns)
    ahead = F.col("clock_ahead") + F.col("clock_rate") * (F.col(time) - F.col("clock_origin"))
    right = F.col(time) - F.coalesce(F.round(ahead).cast("bigint"), F.lit(0))
    same = F.col(who) == F.col("clock_of")
    return rows.join(F.broadcast(table), same, "left").withColumn(time, right).drop(*table.columns)


def lagging(acked: Iterable[dict[str, Any]]) -> Counter[str]:
    """Count, for each member, the slots in which it had acknowledged less of a stream
    than all others."""
    slots: dict[str, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in acked:
        if row["member"] != row["sender"]:
            slots[row["sender"]][row["slot"]][row["member"]] = row["last"]
    times: Counter[str] = Counter()
    for stream in slots.values():
        known: dict[str, int] = {}
        for slot in sorted(stream):
            known |= stream[slot]
            last = min(known, key=known.__getitem__)
            if known[last] < max(known.values()):
                times[last] += 1
    return times

