"""Spark writes to a group: each row once, in the order of the partitions. A batch that
Spark runs again is not sent again."""

import os
import shutil
import threading
import time

import pytest
from outboxes import GROUP, Member, Publishing, served, start_publisher
from ports import free_port
from processes import PATIENCE, wait_for
from spark_help import start_query

from ringcast import Channel
from ringcast.journal.recorder import record
from ringcast.outbox.store import Outbox
from ringcast.spark import Journal, JournalReader

pytestmark = pytest.mark.spark


def numbers(spark, first, last, parts=2):
    """Return a frame of the numbers from `first` to before `last`, as payloads."""
    return spark.range(first, last, 1, parts).selectExpr("CAST(id AS STRING) AS payload")


def expected(first, last):
    return [b"%d" % number for number in range(first, last)]


def write(frame, path, **options):
    frame.write.format("ringcast").mode("append").options(**options).save(str(path))


def start(frame, path, checkpoint, **options):
    return start_query(frame, "ringcast", checkpoint, path, **options)


def test_a_batch_write_is_delivered_in_order_when_it_returns(spark, tmp_path):
    with served(tmp_path / "o") as (_, member):
        write(numbers(spark, 0, 10_000, 3), tmp_path / "o")
        assert member.got == expected(0, 10_000)
        write(numbers(spark, 0, 0), tmp_path / "o")
        write(spark.createDataFrame([(b"\x00\xff",)], "payload binary"), tmp_path / "o")
        assert member.got[10_000:] == [b"\x00\xff"]
        wait_for(lambda: Outbox(tmp_path / "o").nbytes() == 0)


def test_a_batch_write_with_a_version_is_not_sent_twice(spark, tmp_path):
    with served(tmp_path / "o") as (_, member):
        for version in (3, 3, 2, 4):
            write(numbers(spark, 10 * version, 10 * version + 5), tmp_path / "o", txnAppId="job",
                  txnVersion=version)
        write(numbers(spark, 0, 2), tmp_path / "o", txnAppId="other", txnVersion=0)
        assert member.got == expected(30, 35) + expected(40, 45) + expected(0, 2)
        assert Outbox(tmp_path / "o").ledger().queries == {"app job": 4, "app other": 0}


def test_a_failed_attempt_of_a_task_leaves_nothing(spark, tmp_path):
    flag = str(tmp_path / "failed once")

    def fails(batches):
        yield from batches
        open(flag, "x").close()
        raise RuntimeError("this attempt fails at its end")

    with served(tmp_path / "o") as (_, member):
        with pytest.raises(Exception, match="fails at its end"):
            write(numbers(spark, 0, 5000, 1).mapInArrow(fails, "payload string"), tmp_path / "o")
        assert os.path.exists(flag)
        write(numbers(spark, 7, 9), tmp_path / "o")
        assert member.got == expected(7, 9)
        wait_for(lambda: os.listdir(tmp_path / "o" / "parts") == [])


@pytest.mark.parametrize(("columns", "says"), [
    ("id AS payload", "payload bigint"), ("'x' AS payload, 1 AS flags", "flags int"),
    ("'x' AS value", "value string")])
def test_other_columns_are_refused_at_once(spark, tmp_path, columns, says):
    says = f"ringcast sends one column.*{says}.*select what is to be sent"
    with pytest.raises(Exception, match=says):
        write(spark.range(1).selectExpr(*columns.split(", ")), tmp_path / "nowhere")


def test_overwriting_and_null_payloads_are_refused(spark, tmp_path):
    with pytest.raises(Exception, match="cannot be taken back"):
        numbers(spark, 0, 1).write.format("ringcast").mode("overwrite").save(str(tmp_path / "o"))
    with served(tmp_path / "o") as (_, member):
        with pytest.raises(Exception, match="payloads are null"):
            write(spark.createDataFrame([("x",), (None,)], "payload string"), tmp_path / "o")
        assert member.got == []


def test_without_a_publisher_a_task_fails_in_time_and_says_what_to_start(spark, tmp_path):
    began = time.monotonic()
    says = "no publisher runs on the outbox.*start one: ringcast publish"
    with pytest.raises(Exception, match=says):
        write(numbers(spark, 0, 5), tmp_path / "o", ackTimeout="1s")
    assert 1 <= time.monotonic() - began < 20


def test_a_member_that_does_not_acknowledge_fails_the_commit_in_time_by_name(spark, tmp_path):
    with served(tmp_path / "o") as (_, member):
        member.may_finish.clear()
        says = ("not acknowledged by every member within 3 s: the publisher waits for the "
                "member r")
        with pytest.raises(Exception, match=says):
            write(numbers(spark, 0, 5), tmp_path / "o", ackTimeout="3s")
        member.may_finish.set()
        # it stays in the outbox, as the sentence says
        wait_for(lambda: member.got == expected(0, 5))


def test_a_publisher_that_is_alone_is_reported_as_waiting(spark, tmp_path):
    with Publishing(tmp_path / "o", port=free_port()):
        with pytest.raises(Exception, match="waits for another member to join the group"):
            write(numbers(spark, 0, 5), tmp_path / "o", ackTimeout="1s")


def test_a_full_outbox_makes_tasks_wait(spark, tmp_path):
    with served(tmp_path / "o") as (_, member):
        straggler = tmp_path / "o" / "parts" / "straggler.arrow"
        wait_for(straggler.parent.exists)
        straggler.write_bytes(bytes(200_000))
        with pytest.raises(Exception, match="is full"):
            write(numbers(spark, 0, 5), tmp_path / "o", ackTimeout="1s", maxOutboxBytes="100k")
        threading.Timer(1, straggler.unlink).start()
        write(numbers(spark, 0, 5), tmp_path / "o", maxOutboxBytes="100k")
        assert member.got == expected(0, 5)


def forget_last_commit(checkpoint):
    """Do what a death of the driver between the sink's commit and Spark's own does."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()),
               key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def table(spark, path, *ranges):
    """Append a file for each range of numbers. Return a stream of one file a batch."""
    for first, last in ranges:
        numbers(spark, first, last).write.mode("append").parquet(str(path))
    stream = spark.readStream.schema("payload string").option("maxFilesPerTrigger", 1)
    return stream.parquet(str(path))


def test_a_micro_batch_that_runs_again_is_not_sent_twice(spark, tmp_path):
    frame = table(spark, tmp_path / "t", (0, 100), (100, 200))
    with served(tmp_path / "o") as (_, member):
        start(frame, tmp_path / "o", tmp_path / "c").awaitTermination(PATIENCE)
        sent = list(member.got)
        assert sorted(sent) == sorted(expected(0, 200))
        forget_last_commit(tmp_path / "c")
        table(spark, tmp_path / "t", (200, 250))
        start(frame, tmp_path / "o", tmp_path / "c").awaitTermination(PATIENCE)
        assert member.got[:200] == sent and sorted(member.got[200:]) == sorted(expected(200, 250))
        shutil.rmtree(tmp_path / "c")
        start(frame, tmp_path / "o", tmp_path / "c").awaitTermination(PATIENCE)
        assert len(member.got) == 500                   # without its checkpoint it is another query


def test_a_commit_that_failed_is_waited_for_when_the_query_starts_again(spark, tmp_path):
    frame = table(spark, tmp_path / "t", (0, 100))
    with served(tmp_path / "o") as (_, member):
        member.may_finish.clear()
        query = start(frame, tmp_path / "o", tmp_path / "c", ackTimeout="2s")
        with pytest.raises(Exception, match="start the query again, and it is not sent twice"):
            query.awaitTermination(PATIENCE)
        member.may_finish.set()
        start(frame, tmp_path / "o", tmp_path / "c").awaitTermination(PATIENCE)
        assert sorted(member.got) == sorted(expected(0, 100))


def test_a_query_reads_from_a_group_and_writes_to_it(spark, tmp_path):
    """A member sends, and a recorder records. A streaming query doubles the numbers,
    the sink sends them, and the recorder records these as well."""
    options = {"stack": "nakack2-tcp", "port": free_port()}
    recorder = Channel(GROUP, name="r", min_members=2, oob_in_order=True, **options)
    sender = Channel(GROUP, name="p", min_members=2, deliver=False, **options)
    with (Journal(tmp_path / "j", group=GROUP, fsync=False) as journal,
          Publishing(tmp_path / "o", expect=["r"], **options)):
        recording = threading.Thread(target=record, args=(recorder, journal))
        connecting = [threading.Thread(target=channel.connect) for channel in (recorder, sender)]
        for thread in connecting:
            thread.start()
        for thread in connecting:
            thread.join(PATIENCE)
        recording.start()
        try:
            sender.send_many([b"%d" % number for number in range(1000)])
            wait_for(lambda: sender.acknowledged == 1000)
            stream = spark.readStream.format("ringcast").load(str(tmp_path / "j"))
            frame = stream.where("sender LIKE 'p#%'").selectExpr(
                "CAST(2 * CAST(CAST(payload AS STRING) AS INT) AS STRING) AS payload")
            start(frame, tmp_path / "o", tmp_path / "c").awaitTermination(PATIENCE)
            digest = JournalReader(tmp_path / "j").digest()
        finally:
            sender.close()
            recorder.close(0)
            recording.join(PATIENCE)
    last = {name.partition("#")[0]: seqno for name, seqno in digest.items()}
    assert last == {"p": 1000, "spark": 1000}
    rows = spark.read.format("ringcast").load(str(tmp_path / "j")).where("sender LIKE 'spark#%'")
    payloads = [row.payload for row in rows.orderBy("seqno").collect()]
    assert payloads == [b"%d" % (2 * number) for number in range(1000)]


def test_a_slow_member_slows_the_query_and_nothing_grows(spark, tmp_path):
    ranges = [(first, first + 1000) for first in range(0, 4000, 1000)]
    frame = table(spark, tmp_path / "t", *ranges)
    with served(tmp_path / "o") as (_, member):
        member.may_finish.clear()
        query = start(frame, tmp_path / "o", tmp_path / "c")
        outbox = Outbox(tmp_path / "o")
        wait_for(lambda: (status := outbox.status()) is not None and status.waiting_for == "r")
        assert query.isActive and len(outbox.pending()[0]) == 1
        assert not (tmp_path / "c" / "commits" / "0").exists()
        member.may_finish.set()
        assert query.awaitTermination(PATIENCE)
        assert sorted(member.got) == sorted(expected(0, 4000))


@pytest.mark.kill
def test_a_publisher_that_is_killed_while_a_query_runs_costs_time_and_no_row(spark, tmp_path):
    batches, port = 5, free_port()
    ranges = [(first, first + 2000) for first in range(0, 2000 * batches, 2000)]
    frame = table(spark, tmp_path / "t", *ranges)
    with Member(port=port) as member:
        publisher = start_publisher(tmp_path / "o", port)
        try:
            query = start(frame, tmp_path / "o", tmp_path / "c")
            for batch in range(1, batches):
                wait_for(lambda batch=batch: len(member.got) > 2000 * batch - 1000)
                publisher.kill()
                publisher.communicate()
                publisher = start_publisher(tmp_path / "o", port)
            assert query.awaitTermination(PATIENCE)
        finally:
            publisher.kill()
            publisher.communicate()
        assert sorted(member.got) == sorted(expected(0, 2000 * batches))
