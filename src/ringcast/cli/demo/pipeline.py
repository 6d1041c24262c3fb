"""Spark's part of the demo: stream the growing journal into a table, announce late
flights to the group, compute figures from the table, and audit the traces."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringcast.cli.demo.flights import ANNOUNCED, COLUMNS, LATE, MISSING, Figures
from ringcast.journal.offsets import digest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from ringcast.audit.verdict import Audit

BATCH = 60_000                  # messages in a micro-batch, so that the table grows visibly


def records(spark: "SparkSession", journal: Path, senders: Sequence[str]) -> "DataFrame":
    """Return the stream of the publishers' flight records."""
    from pyspark.sql.functions import col, from_csv

    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    messages = (spark.readStream.format("ringcast").option("maxOffsetsPerTrigger", BATCH)
                .option("startingOffsets", "earliest").option("senders", ",".join(senders))
                .load(str(journal)))
    flight = from_csv(col("payload").cast("string"), schema, {"nullValue": MISSING})
    return messages.select("sender", "seqno", flight.alias("flight")).select("sender", "seqno",
                                                                             "flight.*")


def stream_to_table(rows: "DataFrame", table: Path, checkpoint: Path) -> "StreamingQuery":
    """Start the query that makes each message a row of a Parquet table, exactly
    once."""
    return (rows.writeStream.format("parquet").option("path", str(table))
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="0 seconds").start())


def stream_to_group(rows: "DataFrame", outbox: Path, checkpoint: Path) -> "StreamingQuery":
    """Start the query that announces late flights to the group of the publishers,
    exactly once."""
    from pyspark.sql.functions import col, concat_ws

    late = rows.where(col("dep_delay") >= LATE).select(concat_ws(" ", *ANNOUNCED).alias("payload"))
    return (late.writeStream.format("ringcast").option("path", str(outbox))
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="0 seconds").start())


def announced(spark: "SparkSession", journal: Path, sender: str) -> list[tuple[int, str]]:
    """Return the announcements of the publisher in the journal as (seqno, text), by
    seqno."""
    rows = spark.read.format("ringcast").option("senders", sender).load(str(journal)).selectExpr(
        "seqno", "cast(payload as string)")
    return sorted(tuple(row) for row in rows.collect())


def judged(spark: "SparkSession", traces: Path) -> "tuple[Audit, list[Any]]":
    """Audit the members' traces. Return the result, and parts for the page."""
    from ringcast.audit import report as audit_report, verdict as audit
    from ringcast.audit.figures import figures

    result, rows = audit.audit(spark, [traces])
    return result, audit_report.page_parts(result, figures(rows, result.groups, result.clocks))


def rows_so_far(query: "StreamingQuery") -> int:
    """Return how many messages the query has put into the table. (Each stream begins
    with seqno 1.)"""
    progress = query.lastProgress
    if not progress or not progress["sources"] or not progress["sources"][0]["endOffset"]:
        return 0
    offset = progress["sources"][0]["endOffset"]
    return sum(digest_of(json.loads(offset) if isinstance(offset, str) else offset).values())


def computed(table: "DataFrame") -> list[Figures]:
    """Compute the delay figures per carrier and hour, in the form of
    flights.expected."""
    from pyspark.sql.functions import count, max, min, sum

    delay = "dep_delay"
    rows = table.groupBy("carrier", "hour").agg(count("*"), count(delay), sum(delay), min(delay),
                                                max(delay)).collect()
    return sorted(tuple(row) for row in rows)


def streams(table: "DataFrame") -> dict[str, tuple[int, int, int, int]]:
    """Return for each sender in the table: rows, distinct seqnos, lowest and highest
    seqno."""
    from pyspark.sql.functions import count, count_distinct, max, min

    rows = table.groupBy("sender").agg(count("*"), count_distinct("seqno"), min("seqno"),
                                       max("seqno")).collect()
    return {row[0]: tuple(row[1:]) for row in rows}
