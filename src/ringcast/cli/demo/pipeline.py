"""What Spark does in the demo: stream the journal into a table while it grows, compute from the table, and be compared."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast.cli.demo.flights import COLUMNS, MISSING, Figures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH = 60_000                          # messages of one micro-batch, so that the table can be seen growing


def stream_to_table(spark: "SparkSession", journal: Path, table: Path, checkpoint: Path) -> "StreamingQuery":
    """Start the query that parses each message into a row of a Parquet table, once each whatever fails and restarts."""
    from pyspark.sql.functions import col, from_csv

    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    messages = spark.readStream.format("ringcast").option("maxOffsetsPerTrigger", BATCH).option(
        "startingOffsets", "earliest").load(str(journal))
    rows = messages.select("sender", "seqno", from_csv(col("payload").cast("string"), schema, {"nullValue": MISSING}).alias("flight"))
    return (rows.select("sender", "seqno", "flight.*").writeStream.format("parquet").option("path", str(table))
            .option("checkpointLocation", str(checkpoint)).trigger(processingTime="0 seconds").start())


def rows_so_far(query: "StreamingQuery") -> int:
    """Messages that the query has put into the table: its offset is a digest, and streams begin with seqno 1."""
    progress = query.lastProgress
    if not progress or not progress["sources"] or not progress["sources"][0]["endOffset"]:
        return 0
    offset = progress["sources"][0]["endOffset"]
    return sum((json.loads(offset) if isinstance(offset, str) else offset).values())


def computed(table: "DataFrame") -> list[Figures]:
    """Delay figures per carrier and hour, in the form of flights.expected."""
    from pyspark.sql.functions import count, max, min, sum

    delay = "dep_delay"
    rows = table.groupBy("carrier", "hour").agg(count("*"), count(delay), sum(delay), min(delay), max(delay)).collect()
    return sorted(tuple(row) for row in rows)


def streams(table: "DataFrame") -> dict[str, tuple[int, int, int, int]]:
    """Of each sender in the table: rows, distinct seqnos, lowest and highest seqno."""
    from pyspark.sql.functions import count, count_distinct, max, min

    rows = table.groupBy("sender").agg(count("*"), count_distinct("seqno"), min("seqno"), max("seqno")).collect()
    return {row[0]: tuple(row[1:]) for row in rows}
