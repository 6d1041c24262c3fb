"""How fast Spark reads a journal, as a ratio to its own Parquet source; and why
segments are Arrow IPC and not Parquet.

    python benchmarks/spark_source.py [--rounds 9] [--size 100 --size 1000]
                                      [--text] [--formats]

Held still: 4 senders, 2,000,000 messages of 100 B or 400,000 of 1 KB, in sealed
segments, which do not compress, or with --text are flight records; all eight columns;
`ringcast.spark.session` on local[2], writing to the `noop` sink; files in the page
cache. The peer reads a Parquet copy of the same rows, written by Spark with its
defaults. The sources take turns, round by round, after eight rounds that are not
counted (the JVM compiles its way through Arrow slower than through its own Parquet
reader). The ratio is the median over the rounds of (time of Parquet / time of
ringcast), with its quartiles. CPU seconds are those of the JVM and the Python workers
together: on a busy machine they say more than the clock.

With --formats the stored columns of the same rows are written as one file in each
format, and read back by a plain Python source that does nothing else, so that only the
format differs.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from test_spark_throughput import ROWS, write_journal

from ringcast.journal.segments import SEALED_BATCH_ROWS, STORED
from ringcast.spark import JournalReader, session

WARMUP = 8


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--size", type=int, action="append", choices=sorted(ROWS))
    parser.add_argument("--text", action="store_true",
                        help="payloads are text of real records instead of noise")
    parser.add_argument("--formats", action="store_true",
                        help="compare formats of segments instead")
    arguments = parser.parse_args()
    spark = session("ringcast-benchmarks", master="local[2]",
                    conf={"spark.ui.showConsoleProgress": "false"})
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.size or sorted(ROWS):
            journal = Path(folder) / f"journal-{size}"
            write_journal(journal, size, arguments.text)
            (formats if arguments.formats else ratio)(spark, journal, size, arguments.rounds)
    spark.stop()


def ratio(spark, journal, size, rounds):
    """Compare ringcast with Parquet, in turns."""
    copy = f"{journal}.parquet"
    spark.read.format("ringcast").load(str(journal)).write.parquet(copy)
    frames = {"ringcast": spark.read.format("ringcast").load(str(journal)),
              "parquet": spark.read.parquet(copy)}
    times, cpus = alternate(frames, rounds)
    ratios = [parquet / ours
              for ours, parquet in zip(times["ringcast"], times["parquet"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    for name in frames:
        print(f"{size:5} B {name:9} {speeds(size, times[name], cpus[name])}")
    print(f"{size:5} B ratio     {middle:6.2f} ({low:.2f}..{high:.2f}), of CPU "
          f"{statistics.median(cpus['parquet']) / statistics.median(cpus['ringcast']):.2f}")


def speeds(size, times, cpus):
    """Return the median rows a second and CPU seconds a million rows, as text."""
    return (f"{ROWS[size] / statistics.median(times) / 1e6:6.2f} Mrows/s"
            f" {statistics.median(cpus) / ROWS[size] * 1e6:6.2f} CPU s/Mrow")


def alternate(frames, rounds):
    """Return the seconds and the CPU seconds of each frame and round."""
    times, cpus = {name: [] for name in frames}, {name: [] for name in frames}
    for number in range(-WARMUP, rounds):
        for name, frame in frames.items():
            used, began = cpu_seconds(), time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if number >= 0:
                times[name].append(time.perf_counter() - began)
                cpus[name].append(cpu_seconds() - used)
    return times, cpus


def cpu_seconds():
    """Return what all descendants of this process have used."""
    parents, used = {}, {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:             # it has ended
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while found := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= found
    return sum(used.get(pid, 0) for pid in ours - {os.getpid()})


# ------------------------------------------------------------------------------------------ formats

def write_ipc(path, table, codec=None):
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with (pa.OSFile(str(path), "wb") as file,
          pa.ipc.new_file(file, STORED, options=options) as writer):
        writer.write_table(table, max_chunksize=SEALED_BATCH_ROWS)


def write_parquet(path, table, codec="none"):
    pq.write_table(table, path, compression=codec, row_group_size=SEALED_BATCH_ROWS)


FORMATS = {
    "Arrow IPC": (write_ipc, {}),
    "Arrow IPC, lz4": (write_ipc, {"codec": "lz4"}),
    "Parquet": (write_parquet, {}),
    "Parquet, snappy": (write_parquet, {"codec": "snappy"}),
}


class Files(DataSource):
    """A source that reads a folder of such files as they are."""

    @classmethod
    def name(cls):
        return "plain_files"

    def schema(self):
        return from_arrow_schema(STORED)

    def reader(self, schema):
        return FilesReader(self.options["path"])


class FilesReader(DataSourceReader):
    def __init__(self, path):
        self.path = path

    def partitions(self):
        return [InputPartition(str(file)) for file in sorted(Path(self.path).iterdir())]

    def read(self, partition):
        if partition.value.endswith("parquet"):
            for batch in pq.ParquetFile(partition.value).iter_batches(SEALED_BATCH_ROWS):
                yield batch.cast(STORED)
        else:
            reader = pa.ipc.open_file(pa.memory_map(partition.value))
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def formats(spark, journal, size, rounds):
    """Compare the formats: how fast they are written, how large they are, and how fast
    a Python source reads them."""
    spark.dataSource.register(Files)
    reader = JournalReader(journal)
    tables = []
    for sender, extent in reader.extents().items():
        batches = [batch for _, batch in reader.stored(sender, extent.low, extent.high)]
        tables.append(pa.Table.from_batches(batches).combine_chunks())
    frames, written, sizes = {}, {}, {}
    for name, (write, options) in FORMATS.items():
        folder = journal.with_name(f"{size}-{name.replace(' ', '-').replace(',', '')}")
        folder.mkdir()
        suffix = ".parquet" if write is write_parquet else ".arrow"
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            for number, table in enumerate(tables):
                write(folder / f"{number}{suffix}", table, **options)
            seconds.append(time.perf_counter() - began)
        written[name] = statistics.median(seconds)
        sizes[name] = sum(file.stat().st_size for file in folder.iterdir())
        frames[name] = spark.read.format("plain_files").load(str(folder))
    times, cpus = alternate(frames, rounds)
    for name in FORMATS:
        print(f"{size:5} B {name:16} written {ROWS[size] / written[name] / 1e6:6.2f} Mrows/s, "
              f"{sizes[name] / ROWS[size]:7.1f} B/row, "
              f"read {speeds(size, times[name], cpus[name])}")


if __name__ == "__main__":
    main()
