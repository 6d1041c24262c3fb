"""kill -9 at points nobody chose: the journal keeps what it confirmed, and a stream's table has every message once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from journal_help import A, B, record, seqnos

from ringcast.spark import Journal, JournalReader

pytestmark = pytest.mark.kill

DEADLINE_S = 90

RECORDER = """
import json, sys
from ringcast.spark import Journal

path, senders = sys.argv[1], sys.argv[2:]
journal = Journal(path, group="g", segment_rows=100)
next_seqno = {sender: max(1, journal.digest.get(sender, 0) - 10) for sender in senders}   # the group delivers some again
while True:
    for sender in senders:
        first = next_seqno[sender]
        journal.append(sender, first, [b"%d" % seqno for seqno in range(first, first + 13)], view_id=1, sent_at=1, delivered_at=1)
        next_seqno[sender] = first + 13
    print(json.dumps(journal.sync()), flush=True)
"""

DRIVER = """
import sys
from ringcast.spark import session

path, out = sys.argv[1:]
java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = session(conf={"spark.driver.extraJavaOptions": java, "spark.local.dir": out + ".local"})
stream = spark.readStream.format("ringcast").option("maxOffsetsPerTrigger", 500).load(path)
stream.writeStream.format("parquet").option("checkpointLocation", out + ".checkpoint").start(out).awaitTermination()
"""


def kill_group(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_recorder_killed_at_any_point_keeps_what_it_confirmed_once(tmp_path):
    path = tmp_path / "journal"
    chance = random.Random(7)
    for _ in range(6):
        recorder = subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(path), A, B], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            lines = [recorder.stdout.readline() for _ in range(chance.randint(1, 60))]
        finally:
            kill_group(recorder)
        lines += recorder.stdout.read().splitlines(keepends=True)  # confirmed, and printed, before the kill hit
        confirmed = json.loads([line for line in lines if line.endswith("\n")][-1])
        digest = JournalReader(path).digest()
        for sender in (A, B):
            assert digest[sender] >= confirmed[sender]
            assert seqnos(path, sender) == list(range(1, digest[sender] + 1))
    with Journal(path, group="g") as journal:
        assert all(journal.digest[sender] >= digest[sender] for sender in digest)
        for sender, high in journal.digest.items():
            assert seqnos(path, sender) == list(range(1, high + 1))


def committed(out: Path) -> int:
    """How many batches the query has committed so far."""
    return sum(file.name.isdecimal() for file in Path(f"{out}.checkpoint/commits").glob("*"))


@pytest.mark.spark
def test_a_driver_killed_in_mid_stream_leaves_a_table_with_every_message_once(spark, tmp_path):
    path, out = tmp_path / "journal", tmp_path / "table"
    high = 0
    with Journal(path, group="g", segment_rows=2000, fsync=False) as journal:

        def grow():
            nonlocal high
            for sender in (A, B):
                record(journal, sender, high + 1, high + 100)
            high += 100
            journal.sync()

        for _ in range(15):
            grow()
        seen = 0
        with open(tmp_path / "driver.log", "w+") as log:
            driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(path), str(out)], stdout=log, stderr=log, start_new_session=True
            )
            try:
                deadline = time.monotonic() + DEADLINE_S
                while seen < 4:  # batches of 500 messages: the driver dies over unread ones
                    assert driver.poll() is None and time.monotonic() < deadline, (tmp_path / "driver.log").read_text()
                    if committed(out) > seen:
                        seen = committed(out)
                        for _ in range(5):
                            grow()
                    time.sleep(0.01)
            finally:
                kill_group(driver)
        grow()
    query = (
        spark.readStream.format("ringcast")
        .load(str(path))
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{out}.checkpoint")
        .trigger(availableNow=True)
        .start(str(out))
    )
    assert query.awaitTermination(DEADLINE_S)
    table = spark.read.parquet(str(out))
    rows = table.groupBy("sender").agg({"seqno": "max", "sender": "count"}).sort("sender").collect()
    assert [(row.sender, row["max(seqno)"], row["count(sender)"]) for row in rows] == [(A, high, high), (B, high, high)]
    assert table.agg({"seqno": "min"}).first()[0] == 1
    assert table.select("sender", "seqno").distinct().count() == 2 * high
    assert table.where("cast(cast(payload as string) as bigint) != seqno").count() == 0
