"""How many trace rows a second the audit judges.

    python benchmarks/audit_speed.py [millions of rows] [rounds]

Each of eight members sends to all. Every range of 50 messages is one row where it is
sent and one at each receiver. Every third delivery is followed by an ack, every sixth
range by a purge. In the same rounds the window form (lag over each stream) is measured,
which proves no more than the order of the deliveries. A first round, in which Spark
starts, is not counted.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy
import pyarrow as arrow

from ringcast.audit.files import find
from ringcast.audit.verdict import audit
from ringcast.spark import session
from ringcast.trace import KINDS, id_of, part_name, schema
from ringcast.trace.schema import SCHEMA
from ringcast.trace.writer import folder_of

MEMBERS = [f"M{number}#{number + 1:016x}" for number in range(8)]
RUN, PART_ROWS = 50, 500_000
LEAD = 1 + len(MEMBERS)                 # rows in front: the view, and where the streams start


def columns(me: int, steps: int) -> dict[str, numpy.ndarray]:
    """Return the rows of one member for `steps` ranges of each sender, as codes and
    numbers, without the rows in front."""
    step = numpy.arange(steps, dtype=numpy.int64)
    pieces = []

    def add(event: int, sender: int, steps: numpy.ndarray, delay: int, claims: bool = False,
            reach: int = 1) -> None:
        first = (steps - reach + 1) * RUN + 1
        ends, times = (steps + 1) * RUN, steps * 100_000 + sender * 1000
        ordinal = ends if claims else steps * RUN if event == 1 else numpy.full(len(steps), -1)
        pieces.append((times + delay, numpy.full(len(steps), event),
                       numpy.full(len(steps), sender), first, ends, ordinal, times))

    add(0, me, step, 0)
    for sender in range(len(MEMBERS)):
        add(1, sender, step, 20_000 + me)
        if sender != me:
            add(2, sender, step[2::3], 21_000 + me, True, 3)
    add(3, me, step[5::6], 60_000, True, 6)
    names = ("wall", "event", "sender", "first", "last", "ord", "sent_at")
    table = {name: numpy.concatenate([piece[index] for piece in pieces])
             for index, name in enumerate(names)}
    order = numpy.argsort(table["wall"], kind="stable")
    return {name: column[order] for name, column in table.items()}


def write(directory: Path, rows: int) -> int:
    """Write about so many rows. Return how many there are."""
    steps = int(rows / len(MEMBERS) / (1 + 8 + 7 / 3 + 1 / 6))
    total = 0
    for me, name in enumerate(MEMBERS):
        folder = folder_of(directory, name)
        folder.mkdir(parents=True)
        data = columns(me, steps)
        count = len(data["wall"])
        front = [{"event": "view", "view_id": 1, "members": MEMBERS, "flags": 0, "wall": -1}]
        front += [{"event": "start", "sender": name, "peer": other, "first": 1, "flags": 0,
                   "wall": -1} for other in MEMBERS]
        close = {"event": "close", "flags": 1, "wall": 1 << 50, "ev": LEAD + count}
        common = {"time": -1, "member": name, "view_id": 1, "member_id": id_of(name)}
        front = [{"ev": number, "peer_id": id_of(row.get("peer")),
                  "sender_id": id_of(row.get("sender")), "kind": KINDS[row["event"]]}
                 | common | row for number, row in enumerate([*front, close])]
        close = front.pop()
        for number, start in enumerate(range(0, count, PART_ROWS)):
            data_of_part = {key: column[start:start + PART_ROWS] for key, column in data.items()}
            part = table(name, data_of_part, LEAD + start)
            ends = [arrow.Table.from_pylist(front, SCHEMA)] * (start == 0) + [part]
            ends += [arrow.Table.from_pylist([close], SCHEMA)] * (start + PART_ROWS >= count)
            schema.write(arrow.concat_tables(ends).unify_dictionaries(),
                         folder / part_name(number + 1))
        total += LEAD + count + 1
    return total


def table(name: str, data: dict[str, numpy.ndarray], start: int) -> arrow.Table:
    count = len(data["wall"])
    events = arrow.array(["send", "deliver", "ack", "purge"])

    def coded(codes: numpy.ndarray, names: arrow.Array) -> arrow.Array:
        return arrow.DictionaryArray.from_arrays(arrow.array(codes, arrow.int32()), names)

    known = {
        "ev": numpy.arange(start, start + count), "time": data["wall"], "wall": data["wall"],
        "member": coded(numpy.zeros(count), arrow.array([name])),
        "event": coded(data["event"], events), "view_id": numpy.ones(count),
        "sender": coded(data["sender"], arrow.array(MEMBERS)), "first": data["first"],
        "last": data["last"], "count": data["last"] - data["first"] + 1,
        "ord": arrow.array(data["ord"], mask=data["ord"] < 0), "flags": numpy.zeros(count),
        "nbytes": numpy.full(count, 100 * RUN),
        "sent_at": arrow.array(data["sent_at"], mask=data["event"] > 1)}
    ids = numpy.array([0, *map(id_of, MEMBERS)])
    known |= {"member_id": numpy.full(count, id_of(name)),
              "sender_id": ids[data["sender"] + 1], "peer_id": numpy.zeros(count),
              "kind": numpy.array([KINDS[event.as_py()] for event in events])[data["event"]]}

    def column(field: arrow.Field) -> arrow.Array:
        if field.name not in known:
            return arrow.nulls(count, field.type)
        values = known[field.name]
        if isinstance(values, numpy.ndarray):
            values = arrow.array(values)
        return values.cast(field.type)

    arrays = [column(field) for field in SCHEMA]
    return arrow.table(arrays, schema=SCHEMA)


def main() -> None:
    millions = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as directory:
        rows = write(Path(directory), int(millions * 1e6))
        spark = session(master="local[2]", conf={"spark.sql.shuffle.partitions": "2",
                                                 "spark.ui.showConsoleProgress": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        parts = find([directory]).parts
        megabytes = sum(path.stat().st_size for path in parts) / 1e6
        print(f"{rows:,} rows in {len(parts)} parts, {megabytes:.0f} MB")
        speeds: dict[str, list[float]] = {"guarantees": [], "window form": []}
        for turn in range(rounds + 1):
            for name, work in (("guarantees", lambda: judge(spark, directory)),
                               ("window form", lambda: lag(spark, parts))):
                began = time.perf_counter()
                work()
                speed = rows / (time.perf_counter() - began) / 1e6
                print(f"  {name}: {speed:.2f} M rows/s", flush=True)
                if turn:
                    speeds[name].append(speed)
        for name, each in speeds.items():
            print(f"{name}: median {statistics.median(each):.2f}, best {max(each):.2f} M rows/s")


def judge(spark, directory) -> None:
    result, _ = audit(spark, [directory])
    assert result.status == 0, result.verdict


def lag(spark, parts) -> None:
    from pyspark.sql import Window, functions as F

    from ringcast.audit.verdict import read

    given = read(spark, parts).where(F.col("event") == "deliver")
    before = F.lag("last").over(Window.partitionBy("member", "sender").orderBy("ev"))
    wrong = given.withColumn("before", before).where(F.col("first") != F.col("before") + 1)
    assert wrong.count() == 0


if __name__ == "__main__":
    main()
