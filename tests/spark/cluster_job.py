"""What a driver does in a cluster while executors die and tasks stall: it reads a
journal, and streams it to a group.

    python cluster_job.py FOLDER        # with the journal j; prints what came, as JSON

Spark's own files and variables say where it runs, nothing here does.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from outboxes import served
from processes import PATIENCE, wait_for

from ringcast.spark import session

BATCH = 2000                            # messages in a micro-batch


def stall_once(folder, name):
    """Return a step in which the first task stalls after a part of its rows."""
    def step(batches):
        from pyspark import TaskContext

        yield next(batches)
        batch = TaskContext.get().getLocalProperty("streaming.sql.batchId") or ""
        try:
            fd = os.open(f"{folder}/{name}{batch}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            yield from batches
            return
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()     # a child of the executor
        with open(fd, "w") as flag:
            flag.write(daemon.rpartition(") ")[2].split()[1] + "\n")
        while True:
            time.sleep(0.05)

    return step


class Killer(threading.Thread):
    """Kills the executor whose task stalls."""

    def __init__(self, flag):
        super().__init__()
        self.flag, self.killed = Path(flag), None
        self.start()

    def run(self):
        wait_for(lambda: self.flag.exists() and self.flag.read_text().endswith("\n"))
        executor = int(self.flag.read_text())
        assert "CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_text()
        os.kill(executor, signal.SIGKILL)
        self.killed = executor

    def victim(self):
        self.join(PATIENCE)
        return self.killed


def read(spark, folder, name):
    """Read the journal with a task that stalls. Return the seqnos."""
    rows = spark.read.format("ringcast").option("minPartitions", 4).load(f"{folder}/j")
    rows = rows.select("seqno").mapInArrow(stall_once(folder, name), "seqno bigint")
    return sorted(row.seqno for row in rows.collect())


def main(folder):
    spark = session("cluster test")
    spark.sparkContext.setLogLevel("ERROR")
    said = {"master": spark.sparkContext.master, "speculation": spark.conf.get("spark.speculation")}
    killer = Killer(f"{folder}/read")
    said["read"] = read(spark, folder, "read")
    said["killed"] = [killer.victim()]
    said["read again"] = read(spark, folder, "again")       # only a speculative copy can end it
    killer = Killer(f"{folder}/write0")
    with served(Path(folder) / "o") as (_, member):
        reader = spark.readStream.format("ringcast").option("minPartitions", 4)
        rows = reader.option("maxOffsetsPerTrigger", BATCH).load(f"{folder}/j")
        texts = rows.selectExpr("CAST(seqno AS STRING) AS payload")
        texts = texts.mapInArrow(stall_once(folder, "write"), "payload string")
        writer = texts.writeStream.format("ringcast").queryName("to the group")
        writer = writer.option("checkpointLocation", f"{folder}/c").trigger(availableNow=True)
        query = writer.start(f"{folder}/o")
        query.awaitTermination()
        said["sent"] = [int(payload) for payload in member.got]
        said["batches"] = len(query.recentProgress)
    said["killed"].append(killer.victim())
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
