"""What the sink does with attempts of tasks, without Spark running."""

import os
import shutil
from types import SimpleNamespace

import pytest
from outboxes import GROUP, batches_of
from pyspark.sql.types import BinaryType, StructField, StructType

from ringcast.errors import AckTimeoutError
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.publisher import channel_factory
from ringcast.spark import sink

PART = 40_000                           # bytes; the outbox has room for two and a half


@pytest.fixture
def writer(tmp_path):
    """The writer of a batch; the publisher of its outbox sends nothing."""
    config, _ = channel_factory(GROUP, name="spark", stack="inproc")
    with OwnedOutbox(tmp_path / "o", GROUP, config):
        yield sink.BatchWriter({"path": str(tmp_path / "o"), "ackTimeout": "10ms",
                                "maxOutboxBytes": "100k"},
                               StructType([StructField("payload", BinaryType())]), False)


def attempt(writer, monkeypatch, partition):
    """Write the rows of a task."""
    task = SimpleNamespace(partitionId=lambda: partition)
    monkeypatch.setattr(sink.TaskContext, "get", lambda: task)
    return writer.write(iter(batches_of([bytes([partition]) * PART])))


def test_attempts_of_one_task_take_the_room_of_one_and_those_that_lose_are_removed(writer,
                                                                                   monkeypatch):
    """With speculation Spark runs tasks twice, and takes what ends first."""
    first, _, second, _ = [attempt(writer, monkeypatch, each) for each in (0, 0, 1, 1)]
    draft = writer.outbox.parts / f"{writer._label(0)}1.abc.arrow.tmp"
    draft.touch()                       # of one that is killed, or still at work
    with pytest.raises(AckTimeoutError):
        writer.commit([first, second])
    assert {*os.listdir(writer.outbox.parts)} == {first.part.name, second.part.name}
    assert [part.name for part in writer.outbox.manifest(1).parts] == [
        first.part.name, second.part.name]


def test_a_batch_that_failed_leaves_no_part_of_any_attempt(writer, monkeypatch):
    told, *_ = [attempt(writer, monkeypatch, 0) for _ in range(2)]
    writer.abort([told, None])
    assert os.listdir(writer.outbox.parts) == []


def test_a_batch_can_be_aborted_when_its_outbox_is_gone(writer):
    shutil.rmtree(writer.outbox.parts)
    writer.abort([])
