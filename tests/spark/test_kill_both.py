"""The proof of the whole way: the driver and the recorder are killed with -9 again and
again while a group sends, and the table has every message that was sent, once.

The moments are drawn: some fall into a start, some between two commits, some into a
micro-batch or a sync. The next driver starts beside the one that is going to die,
because each would otherwise spend most of its time on the start of its JVM.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ports import free_port
from processes import RINGCAST, wait_for
from spark_help import start_query

from ringcast import Channel, SendTimeoutError

pytestmark = [pytest.mark.kill, pytest.mark.spark]

KILLS = {"driver": 5, "recorder": 15}
PATIENCE = 120                              # seconds without any progress
LONGEST = {"driver": 1.5, "recorder": 0.8}  # seconds that one runs after it has worked, at most
PUBLISHERS = ("p", "q")

DRIVER = """
import sys
from ringcast.spark import session

journal, out, local = sys.argv[1:]
spark = session(master="local[1]", conf={
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.local.dir": local})
sys.stdin.readline()                                        # until it is this one's turn
stream = spark.readStream.format("ringcast").option("maxOffsetsPerTrigger", 2000).load(journal)
query = stream.select("sender", "seqno", "payload").writeStream.format("parquet")
query.option("checkpointLocation", out + ".checkpoint").start(out).awaitTermination()
"""


class Sender(threading.Thread):
    """A member that sends until it is told to stop. Its message k says so."""

    def __init__(self, group, name, port):
        super().__init__(daemon=True)
        self.channel = Channel(group, name=name, min_members=3, stack="nakack2-tcp",
                               deliver=False, port=port, capacity=2048)
        self.stopping = threading.Event()
        self.sent = 0
        self.error = None
        self.start()

    def run(self):
        try:
            with self.channel:
                while not self.stopping.is_set():
                    try:
                        self.channel.send_many([b"%d" % (self.sent + k) for k in range(1, 21)],
                                               timeout=PATIENCE)
                    except SendTimeoutError:
                        raise AssertionError("no member took anything for long") from None
                    self.sent += 20
                    self.stopping.wait(0.01)
                assert self.channel.close(PATIENCE) == 0
        except BaseException as error:
            self.error = error


class Mortal:
    """One of the two processes that are killed, and its successors."""

    def __init__(self, command, log):
        self.command, self.log = command, log
        self.process = self.spawn()

    def spawn(self):
        return subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=self.log,
                                stderr=self.log, start_new_session=True)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Driver(Mortal):
    """A driver with a successor that waits for its turn."""

    def __init__(self, command, log):
        super().__init__(command, log)
        self.next = self.spawn()
        self.go()

    def go(self):
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def succeed(self):
        self.process, self.next = self.next, self.spawn()
        self.go()

    def kill_all(self):
        self.kill()
        self.process = self.next
        self.kill()


def commits(checkpoint):
    """Return the last batch that the query has committed, -1 before any."""
    files = (checkpoint / "commits").glob("*")
    return max((int(file.name) for file in files if file.name.isdecimal()), default=-1)


def size_of(folder):
    """Return the bytes of the journal's segments: they grow with each sync."""
    total = 0
    for file in folder.glob("*/*.arrow*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:       # sealed a moment ago
            continue
    return total


def wait_for_progress(condition, what, mortal):
    wait_for(lambda: condition() or mortal.process.poll() is not None, PATIENCE)
    assert condition(), f"no {what}; {Path(mortal.log.name).read_text()[-2000:]}"


def test_with_driver_and_recorder_killed_twenty_times_a_table_has_every_message_once(spark,
                                                                                     tmp_path):
    chance = random.Random(6)
    journal, table = tmp_path / "journal", tmp_path / "table"
    checkpoint = tmp_path / "table.checkpoint"
    group, port = f"kill-{os.getpid()}", free_port()
    order = [who for who, times in KILLS.items() for _ in range(times)]
    chance.shuffle(order)
    assert len(order) >= 20
    numbers = iter(range(100))
    with open(tmp_path / "log", "w+") as log:
        recorder = Mortal(lambda: [
            *RINGCAST, "record", journal, "--group", group, "--stack", "nakack2-tcp", "--quiet",
            "--set", f"port={port}", "--set", "capacity=2048", "--stop-when-alone"], log)
        senders = [Sender(group, name, port) for name in PUBLISHERS]
        driver = Driver(lambda: [sys.executable, "-c", DRIVER, journal, table,
                                 tmp_path / f"local{next(numbers)}"], log)
        try:
            for who in order:
                if who == "recorder":
                    size = size_of(journal)
                    wait_for_progress(lambda size=size: size_of(journal) != size, "recording",
                                      recorder)
                elif chance.random() < 0.7:     # the others die before they have committed anything
                    batch = commits(checkpoint)
                    wait_for_progress(lambda batch=batch: commits(checkpoint) > batch,
                                      "committed batch", driver)
                time.sleep(chance.uniform(0, LONGEST[who]))
                if who == "recorder":
                    recorder.kill()
                    recorder.process = recorder.spawn()
                else:
                    driver.kill()
                    driver.succeed()
            for sender in senders:
                sender.stopping.set()
            for sender in senders:
                sender.join(PATIENCE)
                assert not sender.is_alive() and sender.error is None, sender.error
            said = Path(log.name).read_text(errors="replace")
            assert recorder.process.wait(PATIENCE) == 0, said[-2000:]
        finally:
            driver.kill_all()
            if recorder.process.poll() is None:
                recorder.kill()
            for sender in senders:
                sender.channel.close(0)
    sent = {str(sender.channel.address): sender.sent for sender in senders}
    read_the_rest_and_check(spark, journal, table, checkpoint, sent)


def read_the_rest_and_check(spark, journal, table, checkpoint, sent):
    """Read what no driver got to. Compare the table with what was sent."""
    stream = spark.readStream.format("ringcast").load(str(journal))
    query = start_query(stream.select("sender", "seqno", "payload"), "parquet", checkpoint, table)
    assert query.awaitTermination(PATIENCE)
    check_statistics(query)
    rows = spark.read.parquet(str(table))
    found = rows.groupBy("sender").agg({"*": "count", "seqno": "max"}).collect()
    assert {row["sender"]: (row["count(1)"], row["max(seqno)"]) for row in found} == {
        sender: (count, count) for sender, count in sent.items()}
    assert all(sent.values())
    assert rows.select("sender", "seqno").distinct().count() == sum(sent.values())
    assert rows.where("cast(cast(payload as string) as bigint) != seqno").count() == 0


def check_statistics(query):
    """Check Spark's own progress: each batch has as many rows as its two digests say,
    at a rate that fits its duration. Only the first may have none. A killed driver had
    put it into the table but not yet into the table's log, and it is not read again."""
    assert query.recentProgress
    for number, progress in enumerate(query.recentProgress):
        (source,) = progress["sources"]
        start, end = ({} if not source[key] else json.loads(source[key])
                      if isinstance(source[key], str) else source[key]
                      for key in ("startOffset", "endOffset"))
        # streams begin with seqno 1
        expected, read = sum(end.values()) - sum(start.values()), progress["numInputRows"]
        assert read == expected or (number == 0 and read == 0)
        if read:
            rate = read * 1000 / progress["durationMs"]["triggerExecution"]
            assert 0 < rate == pytest.approx(progress["processedRowsPerSecond"], rel=0.2)
