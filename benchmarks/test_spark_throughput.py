"""How fast the journal is written, and how fast Spark reads it, each beside the
plainest thing that does the same job.

Held still: 4 senders, appends of 1,000 messages, a sync every 20 appends, payloads of
100 B or 1 KB that do not compress; Spark local[2] writing to its `noop` sink. The
peers: bare Arrow streams with the same fsyncs of the data, but no checksum, digest or
sealing; Spark's own Parquet source over the same rows. Run with:

    pytest benchmarks/test_spark_throughput.py --benchmark-enable
           --benchmark-columns=median,stddev,rounds

and read `rows_per_s` with --benchmark-json, or divide ROWS by the median.
"""

import os
import shutil

import pyarrow as pa
import pytest

from ringcast.cli.demo.flights import lines
from ringcast.spark import Journal, session

ROWS = {100: 2_000_000, 1000: 400_000}
SENDERS = [f"{name}#{number:016x}" for number, name in enumerate("ABCD", 1)]
APPEND, APPENDS_PER_SYNC = 1000, 20
# a prime above every payload size: payloads neither overlap their neighbours nor come
# again
STRIDE = 1009

pytestmark = pytest.mark.parametrize("size", ROWS)


def appends(size, text=False):
    """Yield (sender, first seqno, payloads) of every append, and None where a sync
    belongs.

    No two payloads are alike: Parquet would shrink them, and then read something else
    than we do. With `text` they are flight records, as many in one payload as its size
    asks for.
    """
    noise = b"\n".join(lines()) if text else os.urandom(1 << 24)
    for number in range(ROWS[size] // APPEND):
        starts = range(number * APPEND * STRIDE, (number + 1) * APPEND * STRIDE, STRIDE)
        payloads = [noise[start % (1 << 23) : start % (1 << 23) + size] for start in starts]
        round_, place = divmod(number, len(SENDERS))
        yield SENDERS[place], round_ * APPEND + 1, payloads
        if number % APPENDS_PER_SYNC == APPENDS_PER_SYNC - 1:
            yield None


def write_journal(path, size, text=False):
    with Journal(path, group="g") as journal:
        for number, step in enumerate(appends(size, text)):
            if step is None:
                journal.sync()
            else:
                now = 1_700_000_000_000_000_000 + number * 1_000_000
                journal.append(*step, view_id=1, sent_at=now, delivered_at=now + 500_000)


def write_bare(path, size):
    schema = pa.schema([("seqno", pa.int64()), ("payload", pa.binary())])
    os.mkdir(path)
    files = {sender: open(path / sender, "wb") for sender in SENDERS}
    writers = {sender: pa.ipc.new_stream(file, schema) for sender, file in files.items()}
    for step in appends(size):
        if step is None:
            for file in files.values():
                file.flush()
                os.fdatasync(file.fileno())
        else:
            sender, first, payloads = step
            seqnos = pa.array(range(first, first + len(payloads)))
            writers[sender].write_batch(pa.record_batch([seqnos, pa.array(payloads, pa.binary())],
                                                        schema=schema))
    for sender, file in files.items():
        writers[sender].close()
        file.close()


@pytest.fixture(scope="module")
def spark():
    running = session("ringcast-benchmarks", master="local[2]",
                      conf={"spark.ui.showConsoleProgress": "false"})
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    """Write for each payload size the journal, and a Parquet copy of the same rows."""
    folder = tmp_path_factory.mktemp("tables")
    for size in ROWS:
        write_journal(folder / f"ringcast-{size}", size)
        rows = spark.read.format("ringcast").load(str(folder / f"ringcast-{size}"))
        rows.write.parquet(str(folder / f"parquet-{size}"))
    return folder


def report(benchmark, size):
    if benchmark.enabled:
        benchmark.extra_info["rows_per_s"] = round(ROWS[size] / benchmark.stats.stats.median)


@pytest.mark.parametrize("write", [write_journal, write_bare])
def test_append_and_sync(benchmark, tmp_path, size, write):
    benchmark.group = f"write {size} B"
    path = tmp_path / "out"
    benchmark.pedantic(write, (path, size), setup=lambda: shutil.rmtree(path, ignore_errors=True),
                       rounds=3)
    report(benchmark, size)


@pytest.mark.parametrize("kind", ["ringcast", "parquet"])
def test_batch_read(benchmark, spark, tables, size, kind):
    benchmark.group = f"batch read {size} B"
    frame = spark.read.format(kind).load(str(tables / f"{kind}-{size}"))
    benchmark.pedantic(lambda: frame.write.format("noop").mode("overwrite").save(), rounds=4,
                       warmup_rounds=2)
    report(benchmark, size)


@pytest.mark.parametrize("kind", ["ringcast", "parquet"])
def test_stream_read(benchmark, spark, tables, tmp_path, size, kind):
    benchmark.group = f"stream {size} B"
    source = str(tables / f"{kind}-{size}")
    schema = spark.read.format(kind).load(source).schema
    frame = spark.readStream.schema(schema).format(kind).load(source)
    checkpoints = iter(range(100))

    def run():
        checkpoint = str(tmp_path / str(next(checkpoints)))
        sink = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        assert sink.trigger(availableNow=True).start().awaitTermination(120)

    benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    report(benchmark, size)
