"""An outbox holds each batch of its writers once, or not at all."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from journals import column
from outboxes import GROUP, batches_of, put
from pyspark.sql.types import BinaryType, StructField, StructType

from ringcast import AckTimeoutError, ConfigError, MessageTooLargeError, OutboxError
from ringcast.config import configure
from ringcast.journal.manifest import write_json
from ringcast.outbox import store
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.store import (
    META,
    PAYLOADS,
    Outbox,
    OutboxMeta,
    Status,
    name_of,
    number_of,
)
from ringcast.spark.sink import BatchWriter, WriteOptions, payloads


@pytest.fixture
def outbox(tmp_path):
    with OwnedOutbox(tmp_path / "o", GROUP, configure({}, "mcast-udp")) as held:
        yield held


def stored(outbox, part):
    return column(outbox.read_part(part), "payload")


def test_a_part_has_the_payloads_that_were_written(outbox):
    written = [b"", b"x" * 100_000, *(b"%d" % number for number in range(5000))]
    part = outbox.write_part(batches_of(written), 1 << 30)
    assert stored(outbox, part) == written and part.rows == len(written)
    assert outbox.nbytes() == part.size == os.path.getsize(outbox.parts / part.name)


def test_a_batch_that_is_committed_again_keeps_its_number_and_parts(outbox):
    assert outbox.find("q", 0) is None
    assert put(outbox, "q", 0, [b"a"]) == 1
    assert put(outbox, "q", 0, [b"a"]) == 1
    assert outbox.find("q", 0) == 1
    assert outbox.find("q", 1) is outbox.find("other", 0) is None
    assert len(os.listdir(outbox.parts)) == 1


def test_a_version_below_one_that_waits_is_not_sent(outbox):
    assert [put(outbox, "app x", version, [b"a"]) for version in (5, 4, 7, 6)] == [1, 1, 2, 2]
    assert outbox.find("app x", 3) == 1 and outbox.find("app x", 6) == 2
    assert outbox.find("app x", 8) is outbox.find("app y", 4) is None
    assert len(os.listdir(outbox.parts)) == 2


def test_a_write_without_a_query_is_a_new_batch_each_time(outbox):
    assert [put(outbox, None, 0, [b"a"]) for _ in range(3)] == [1, 2, 3]


def test_many_writers_commit_at_once_and_each_batch_gets_one_number(outbox):
    numbers = []

    def commit(batch):
        numbers.append((batch, put(Outbox(outbox.path), "q", batch, [b"%d" % batch])))

    threads = [threading.Thread(target=commit, args=(batch % 6,)) for batch in range(18)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(numbers)) == 6 and {number for _, number in numbers} == set(range(1, 7))
    assert sorted(manifest.batch for manifest in outbox.pending()[0].values()) == list(range(6))
    assert len(os.listdir(outbox.parts)) == 6


def check_locked(outbox):
    """Check that somebody holds the lock under which batches are given numbers."""
    with open(outbox.path / "batches.lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_number_is_given_while_nobody_else_gives_one(outbox, monkeypatch):
    """Else the batch with that number could be sent, and its manifest be gone."""
    link, locks = os.link, []

    def is_locked(*names):
        check_locked(outbox)
        locks.append(names)
        link(*names)

    monkeypatch.setattr(os, "link", is_locked)
    assert [put(outbox, "q", batch, [b"a"]) for batch in range(2)] == [1, 2]
    assert len(locks) == 2
    with open(outbox.path / "batches.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_nobody_waits_for_ever_for_a_driver_that_was_stopped_while_it_gave_a_number(
        outbox, monkeypatch):
    """The publisher does not wait at all: its members do."""
    monkeypatch.setattr(store, "NUMBER_TIMEOUT", 0.0)
    (outbox.parts / "old").touch()
    with open(outbox.path / "batches.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert outbox.sweep(-1) == 0
        with pytest.raises(OutboxError, match="batches.lock is held by another .*kill -CONT"):
            put(outbox, "q", 0, [b"a"])
    assert not outbox.pending()[0] and not [*outbox.batches.iterdir()]
    assert put(outbox, "q", 0, [b"a"]) == 1 and outbox.sweep(-1) >= 1


@pytest.mark.parametrize("query", ["q", None])
def test_a_link_that_was_made_and_is_said_to_be_there_already_counts(outbox, monkeypatch, query):
    """NFS asks again when an answer is lost."""
    link = os.link

    def link_twice(*names):
        link(*names)
        link(*names)

    monkeypatch.setattr(os, "link", link_twice)
    assert put(outbox, query, 0, [b"a"]) == 1
    manifest = outbox.manifest(1)
    assert [*outbox.pending()[0]] == [1] and stored(outbox, manifest.parts[0]) == [b"a"]


def test_a_part_that_is_too_large_leaves_nothing(outbox):
    with pytest.raises(OutboxError, match="maxOutboxBytes"):
        outbox.write_part(batches_of([b"x" * 1000] * 1000, rows=10), 100_000)
    assert os.listdir(outbox.parts) == []


def test_a_writer_that_fails_leaves_nothing(outbox):
    def failing():
        yield from batches_of([b"x"])
        raise RuntimeError("the task was killed")

    with pytest.raises(RuntimeError):
        outbox.write_part(failing(), 1 << 30)
    assert os.listdir(outbox.parts) == []


def test_a_batch_whose_part_is_gone_is_not_committed(outbox):
    part = outbox.write_part(batches_of([b"x"]), 1 << 30)
    (outbox.parts / part.name).unlink()
    with pytest.raises(OutboxError, match="it is gone"):
        outbox.commit("q", 0, [part])
    assert outbox.pending()[0] == {} and os.listdir(outbox.batches) == []


def test_asking_whether_an_outbox_is_served_keeps_no_publisher_out(tmp_path):
    config = configure({}, "mcast-udp")
    OwnedOutbox(tmp_path / "o", GROUP, config).release()
    over = threading.Event()
    looking = threading.Thread(target=lambda: [Outbox(tmp_path / "o").is_served()
                                               for _ in iter(over.is_set, True)])
    looking.start()
    try:
        for _ in range(10):
            with OwnedOutbox(tmp_path / "o", GROUP, config) as held:
                assert held.is_served()
    finally:
        over.set()
        looking.join()
    assert not held.is_served()


def test_another_version_is_refused_with_its_number(outbox):
    (outbox.path / META).unlink()
    write_json(outbox.path / META, OutboxMeta("ringcast-outbox", 99, GROUP), fsync=False)
    with pytest.raises(OutboxError, match="of version 99"):
        outbox.meta()


@pytest.mark.parametrize(("name", "read"), [
    ("outbox.json", Outbox.meta), ("ledger.json", Outbox.ledger), ("status.json", Outbox.status),
    (f"batches/{name_of(1)}", Outbox.pending)])
@pytest.mark.parametrize("damage", ["bytes", "cannot be read"])
def test_a_damaged_file_is_an_error_of_the_outbox(outbox, name, read, damage):
    path = outbox.path / name
    path.unlink(missing_ok=True)
    path.write_bytes(b"x") if damage == "bytes" else path.mkdir()
    with pytest.raises(OutboxError, match=f"{path} (is damaged|cannot be read)"):
        read(outbox)


@pytest.mark.parametrize(("name", "number"), [(name_of(7), 7), ("7.json", None), ("x.json", None),
                                              (name_of(7) + ".tmp", None)])
def test_the_name_of_a_batch_has_its_number(name, number):
    assert number_of(name) == number


KNOWN = ("path", "ackTimeout", "maxOutboxBytes", "txnAppId", "txnVersion")


@pytest.mark.parametrize(("given", "says"), [
    ({}, "Name the outbox"),
    ({"path": "/o", "topic": "x"}, "no option 'topic'"),
    ({"path": "/o", "acktimeout": "60"}, "like 60s"),
    ({"path": "/o", "ackTimeout": "-1s"}, "like 60s"),
    ({"path": "/o", "maxOutboxBytes": "many"}, "500m or 1g"),
    ({"path": "/o", "txnAppId": "a"}, "belong together"),
    ({"path": "/o", "txnVersion": "1"}, "belong together"),
    ({"path": "/o", "txnAppId": "a", "txnVersion": "-1"}, "whole number from 0"),
])
def test_impossible_options_are_refused_with_what_to_do(given, says):
    with pytest.raises(ConfigError, match=says):
        WriteOptions(given, KNOWN)


def test_options_have_units():
    given = {"PATH": "file:/o", "acktimeout": "1500ms", "maxoutboxbytes": "2m",
             "checkpointlocation": "/c"}
    options, defaults = WriteOptions(given, KNOWN), WriteOptions({"path": "/o"}, KNOWN)
    assert (str(options.path), str(defaults.path)) == ("/o", "/o")
    assert (options.ack_timeout, options.max_outbox_bytes) == (1.5, 2 << 20)
    assert (defaults.ack_timeout, defaults.max_outbox_bytes) == (60, 1 << 30)


def batch_of(values):
    return pa.RecordBatch.from_arrays([pa.array(values)], names=["payload"])


def test_what_cannot_be_a_message_is_refused(outbox):
    meta = outbox.meta()
    made = payloads(batch_of(["ä", "b"]), meta)
    assert made.schema == PAYLOADS and column([made], "payload") == ["ä".encode(), b"b"]
    with pytest.raises(ConfigError, match="1 payloads are null"):
        payloads(batch_of([b"x", None]), meta)
    meta.max_message_size = 10
    with pytest.raises(MessageTooLargeError, match="11 bytes"):
        payloads(batch_of([b"x" * 11]), meta)


def test_the_age_of_a_part_counts_from_the_commit_of_its_batch(outbox):
    """A driver that died may have written a part long before its batch is committed."""
    part = outbox.write_part(batches_of([b"x"]), 1 << 30)
    os.utime(outbox.parts / part.name, (1, 1))
    outbox.commit("q", 0, [part])
    assert time.time() - os.path.getmtime(outbox.parts / part.name) < 60


def test_no_part_is_swept_that_a_batch_names_meanwhile(outbox, monkeypatch):
    """Sweep looks for batches and removes under one lock; commit finds its parts and
    names them under the same. So one of them is first."""
    kept, loose = (outbox.write_part(batches_of([b"x"]), 1 << 30) for _ in range(2))
    for part in (kept, loose):
        os.utime(outbox.parts / part.name, (1, 1))
    locked = []

    def under_lock(call):
        def checked(self, *args, **options):
            check_locked(outbox)
            locked.append(call)
            return call(self, *args, **options)
        return checked

    with monkeypatch.context() as patched:
        patched.setattr(os, "utime", under_lock(os.utime))
        outbox.commit("q", 0, [kept])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", under_lock(Path.unlink))
        patched.setattr(Outbox, "pending", under_lock(Outbox.pending))
        assert outbox.sweep(60) == 1
    assert len(locked) == 3 and os.listdir(outbox.parts) == [kept.name]


def test_folders_that_somebody_made_in_an_outbox_do_not_end_its_publisher(outbox):
    part = outbox.write_part(batches_of([b"x"]), 1 << 30)
    for path in (outbox.parts / "mine", outbox.batches / "mine.tmp"):
        path.mkdir()
        os.utime(path, (0, 0))
    os.utime(outbox.parts / part.name, (0, 0))
    assert outbox.sweep(60) == 1 and os.listdir(outbox.parts) == ["mine"]


def test_parts_of_a_batch_stay_when_they_are_committed_again(outbox):
    part = outbox.write_part(batches_of([b"x"]), 1 << 30)
    assert [outbox.commit("q", 0, [part]) for _ in range(2)] == [1, 1]
    assert stored(outbox, part) == [b"x"]


def test_a_batch_that_fills_the_outbox_by_itself_fails_at_once(outbox):
    """Nothing of it is sent before its commit, so its tasks would wait for each
    other."""
    outbox.write_status(Status("is publishing"))
    payload = StructType([StructField("payload", BinaryType())])
    first, second = (BatchWriter({"path": str(outbox.path), "maxOutboxBytes": "2k",
                                  "ackTimeout": "1ms"}, payload, False) for _ in range(2))
    rows = batch_of([b"x" * 1500])
    for _ in range(2):
        first.write(iter([rows]))
    with pytest.raises(OutboxError, match="batch is larger than the 2048 bytes") as failed:
        first.write(iter([rows]))
    assert not isinstance(failed.value, AckTimeoutError)
    # Another write has room when that one is over.
    with pytest.raises(AckTimeoutError, match="is full"):
        second.write(iter([rows]))
    first.abort([])
    assert second.write(iter([rows])).part.rows == 1
