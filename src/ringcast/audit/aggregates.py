"""The passes of an audit over all rows, part by part: a task reads its part files with
pyarrow and returns their aggregates.

Arrow groups whole columns five times as fast as Spark groups rows that it has to decode
first (measured here: 7.6 against 1.6 million rows a second and core). Spark distributes
the part files and collects the results; the caller merges them. The workers must see
the files under the same paths.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringcast.audit.files import READERS
from ringcast.trace import KINDS, ROW_GROUPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = ("kind", "member_id", "sender_id", "peer_id", "conn_id", "view_id", "flags")
TASKS_PER_CORE = 2
SMALL = 16_000_000              # bytes; a trace up to this size is read by the driver itself

_AGGREGATES = [("ev", "count"), ("count", "sum"), ("first", "min"), ("last", "max"),
               ("shift", "min"), ("shift", "max"),
               ("ord", "min"), ("ev", "max"), ("ev", "sum"), ("wall", "max")]
_NAMES = ("rows", "messages", "first", "last", "least_shift", "most_shift", "ord", "last_ev",
          "sum_ev", "wall")
GROUPED = pa.schema([(name, pa.int64()) for name in (*KEYS, *_NAMES)])

# Events that are few. They are read one by one.
MARKS = ROW_GROUPS[0]
MARKED = pa.schema([
    ("member", pa.string()), ("ev", pa.int64()), ("event", pa.string()), ("wall", pa.int64()),
    ("view_id", pa.int64()), ("sender", pa.string()), ("peer", pa.string()),
    ("first", pa.int64()), ("last", pa.int64()), ("count", pa.int64()), ("flags", pa.int32()),
    ("members", pa.list_(pa.string()))])

Summary = Callable[[Path], pa.Table]


def grouped(spark: "SparkSession", parts: Sequence[Path]) -> pa.Table:
    """Return a row for each combination of part, member, event, stream, view and flags:
    counts, and the range of positions and ordinals."""
    return collected(spark, parts, group, GROUPED)


def marked(parts: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the events of MARKS, for each member in their order. (The driver reads
    them itself, which is faster than a Spark job.)"""
    with ThreadPoolExecutor(READERS) as pool:
        events: list[dict[str, Any]] = pa.concat_tables(pool.map(marks, parts)).to_pylist()
    return sorted(events, key=lambda event: (event["member"], event["ev"]))


def are_small(parts: Sequence[Path]) -> bool:
    """Return whether the driver reads these parts faster than a Spark job would."""
    return sum(part.stat().st_size for part in parts) <= SMALL


def collected(spark: "SparkSession", parts: Sequence[Path], summary: Summary,
              schema: pa.Schema) -> pa.Table:
    """Apply `summary` to every part, and return all results; small traces are read
    here."""
    if not are_small(parts):
        return over(spark, parts, summary, schema).toArrow()
    with ThreadPoolExecutor(READERS) as pool:
        return pa.concat_tables(pool.map(lambda part: summary(part).cast(schema), parts))


def over(spark: "SparkSession", parts: Sequence[Path], summary: Summary,
         schema: pa.Schema) -> "DataFrame":
    """Return the results of `summary` for every part, from a Spark job with enough
    tasks to keep all cores busy."""
    from pyspark.sql.pandas.types import from_arrow_schema

    largest_first = sorted(parts, key=lambda part: part.stat().st_size, reverse=True)
    number = max(1, min(len(parts), TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    shares = [largest_first[task::number] for task in range(number)]

    def summaries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for part in shares[task]:
                    yield from summary(part).cast(schema).to_batches()

    return spark.range(0, number, 1, number).mapInArrow(summaries, from_arrow_schema(schema))


def read(part: Path, columns: list[str], events: Sequence[str]) -> pa.Table:
    """Read the rows of some kinds of events; a part has row groups for each kind."""
    kinds = pc.field("kind").isin([KINDS[event] for event in events])
    return pq.read_table(part, columns=columns, filters=kinds, use_threads=False, partitioning=None)


def group(part: Path) -> pa.Table:
    """Aggregate one part, for `grouped`."""
    table = pq.read_table(part, columns=[*KEYS, "count", "first", "last", "ord", "ev", "wall"],
                          use_threads=False, partitioning=None)
    place = pc.if_else(pc.equal(table["kind"], KINDS["deliver"]), table["first"], table["last"])
    table = table.append_column("shift", pc.subtract(place, table["ord"]))
    fixed, keys = {}, ["kind"]
    for name in KEYS[1:]:   # most keys have one value in a part, and need no grouping
        column = pc.fill_null(table[name], 0)
        least, most = pc.min_max(column).as_py().values()
        if least == most:
            fixed[name] = least
        else:
            keys.append(name)
            table = table.set_column(table.column_names.index(name), name, column)
    result = table.group_by(keys, use_threads=False).aggregate(_AGGREGATES)
    columns = [pa.repeat(pa.scalar(fixed[name], pa.int64()), len(result)) if name in fixed
               else result[name] for name in KEYS]
    columns += [result[f"{name}_{function}"] for name, function in _AGGREGATES]
    return pa.Table.from_arrays(columns, [*KEYS, *_NAMES])


def marks(part: Path) -> pa.Table:
    """Read the events of MARKS in one part, for `marked`."""
    return read(part, MARKED.names, MARKS).cast(MARKED)
