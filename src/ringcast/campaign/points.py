"""From runs to a recommendation: the figures of each combination over its seeds, and
the choice of the best combination.

Only runs with the status ok count. The histograms of all runs of a point are added up
before a percentile is read, so a percentile here is one of all deliveries, and not a
mean of percentiles.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ringcast.campaign.runs import OK
from ringcast.histogram import upper_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = ["loss", "members", "capacity", "xmit_interval"]
COLUMNS = [*KEYS, "status", "senders", "throughput", "load_seconds", "payload_bytes", "overhead",
           "blocked_seconds", "latency", "latency_max"]

NEARLY = 0.95           # of the highest throughput counts as the highest
MAX_LATENCY = 10        # times the shortest p99; up to it, a latency is acceptable
MAX_OVERHEAD = 1.0      # bytes for each byte of payload, above the least overhead
RULE = ("The rule: a setting is acceptable if its 99th percentile of latency is at most "
        f"{MAX_LATENCY} times the shortest, and its overhead at most {MAX_OVERHEAD:.0%} of the "
        "payload above the least of these. Of the acceptable settings whose throughput is within "
        f"{1 - NEARLY:.0%} of the highest, take the one with the shortest 99th percentile, then "
        "the least overhead, then the smallest window.")


class Point(NamedTuple):
    """The figures of one combination. Latencies are milliseconds, overhead is bytes for
    each byte of payload; None if no run was ok, or if nothing was sent."""

    loss: float
    members: int
    capacity: int
    xmit_interval: float
    runs: int
    ok: int
    throughput: float | None        # messages a second at the slowest receiver, mean of the runs
    lowest: float | None            # of all runs
    highest: float | None
    p50: float | None
    p99: float | None
    overhead: float | None
    blocked: float | None           # share of the time, mean of the senders


def points(spark: "SparkSession", rows: pa.Table) -> list[Point]:
    """Return the combinations in the order of loss, members, capacity and interval;
    `rows` have ringcast.campaign.runs.SCHEMA."""
    frame = spark.createDataFrame(rows.select(COLUMNS))
    table = sums(frame).join(percentiles(frame), KEYS, "left").orderBy(KEYS).toArrow()
    return [point(row) for row in table.to_pylist()]


def sums(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    is_ok = F.col("status") == OK
    measured = frame.withColumn("wire", (F.col("overhead") + 1) * F.col("payload_bytes"))
    measured = measured.withColumn("sending",
                                   F.col("load_seconds") * F.coalesce("senders", F.lit(1)))

    def of_ok(name: str) -> "F.Column":
        return F.when(is_ok, F.col(name))

    return measured.groupBy(KEYS).agg(
        F.count("*").alias("runs"), F.count(F.when(is_ok, 1)).alias("ok"),
        F.avg(of_ok("throughput")).alias("throughput"),
        F.min(of_ok("throughput")).alias("lowest"), F.max(of_ok("throughput")).alias("highest"),
        F.max(of_ok("latency_max")).alias("latency_max"),
        (F.try_divide(F.sum(of_ok("wire")), F.sum(of_ok("payload_bytes"))) - 1).alias("overhead"),
        F.try_divide(F.sum(of_ok("blocked_seconds")), F.sum(of_ok("sending"))).alias("blocked"))


def percentiles(frame: "DataFrame") -> "DataFrame":
    """Return the buckets of latency that have the 50th and the 99th percentile of each
    point's deliveries."""
    from pyspark.sql import Window, functions as F

    each = frame.where(F.col("status") == OK).select(*KEYS, F.explode("latency").alias("each"))
    classes = each.groupBy(*KEYS, F.col("each.class").alias("class")).agg(
        F.sum("each.count").alias("count"))
    of_point = Window.partitionBy(KEYS)
    ranked = classes.select(*KEYS, "class",
                            F.sum("count").over(of_point.orderBy("class")).alias("upto"),
                            F.sum("count").over(of_point).alias("all"))

    def reached(share: float) -> "F.Column":
        return F.min(F.when(F.col("upto") >= share * F.col("all"), F.col("class")))

    return ranked.groupBy(KEYS).agg(reached(0.5).alias("p50"), reached(0.99).alias("p99"))


def point(row: dict[str, float]) -> Point:
    """Return the point of a row, with latencies in milliseconds."""
    def latency(name: str) -> float | None:
        if row[name] is None:
            return None
        return min(upper_end(int(row[name])), row["latency_max"]) / 1e6

    return Point(**{name: latency(name) if name in ("p50", "p99") else row[name]
                    for name in Point._fields})      # type: ignore[arg-type]


def groups(of: Sequence[Point]) -> list[list[Point]]:
    """Group the points by loss and group size."""
    return [list(group) for _, group in groupby(of, lambda each: (each.loss, each.members))]


def choose(of: Sequence[Point]) -> Point | None:
    """Choose by RULE among the points of one loss and group size; None if nothing was
    measured there."""
    figures = [(each.throughput, each.p99, each.overhead, each) for each in of
               if each.throughput is not None and each.p99 is not None
               and each.overhead is not None]
    if not figures:
        return None
    shortest = min(p99 for _, p99, _, _ in figures)
    quick = [each for each in figures if each[1] <= MAX_LATENCY * shortest]
    least = min(overhead for _, _, overhead, _ in quick)
    acceptable = [each for each in quick if each[2] <= least + MAX_OVERHEAD]
    highest = max(throughput for throughput, *_ in acceptable)
    good = [each for each in acceptable if each[0] >= NEARLY * highest]
    return min(good, key=lambda each: (each[1], each[2], each[3].capacity))[3]
