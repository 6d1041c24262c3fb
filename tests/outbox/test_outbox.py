"""The outbox as its writers see it: a batch is there once, or not at all."""

import os
import threading
import time

import pyarrow as pa
import pytest
from outboxes import GROUP, batches_of, put

from ringcast import ConfigError, MessageTooLargeError, OutboxError
from ringcast.config import configure
from ringcast.journal.manifest import write_json
from ringcast.outbox.publisher import OwnedOutbox
from ringcast.outbox.store import META, PAYLOADS, Meta, Outbox, name_of, number_of
from ringcast.spark.sink import Options, payloads


@pytest.fixture
def outbox(tmp_path):
    with OwnedOutbox(tmp_path / "o", GROUP, configure({}, "mcast-udp")) as held:
        yield held


def stored(outbox, part):
    return [payload for batch in outbox.read_part(part)
            for payload in batch.column("payload").to_pylist()]


def test_a_part_gives_back_what_was_put_in(outbox):
    written = [b"", b"x" * 100_000, *(b"%d" % number for number in range(5000))]
    part = outbox.write_part(batches_of(written), 1 << 30)
    assert stored(outbox, part) == written and part.rows == len(written)
    assert outbox.nbytes() == part.size == os.path.getsize(outbox.parts / part.name)


def test_a_batch_that_comes_again_is_the_one_that_is_there(outbox):
    assert outbox.find("q", 0) is None
    assert put(outbox, "q", 0, [b"a"]) == 1
    assert put(outbox, "q", 0, [b"a"]) == 1
    assert outbox.find("q", 0) == 1 and outbox.find("q", 1) is None and outbox.find("other", 0) is None
    assert len(os.listdir(outbox.parts)) == 1


def test_a_write_that_has_no_name_is_new_each_time(outbox):
    assert [put(outbox, None, 0, [b"a"]) for _ in range(3)] == [1, 2, 3]


def test_of_many_who_commit_at_once_each_gets_a_number_and_no_batch_is_there_twice(outbox):
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


def test_a_batch_whose_part_is_gone_does_not_come_to_be(outbox):
    part = outbox.write_part(batches_of([b"x"]), 1 << 30)
    (outbox.parts / part.name).unlink()
    with pytest.raises(OutboxError, match="it is gone"):
        outbox.commit("q", 0, [part])
    assert outbox.pending()[0] == {} and os.listdir(outbox.batches) == []


def test_a_lock_that_is_only_looked_at_does_not_keep_a_publisher_out(tmp_path):
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


def test_another_version_says_that_it_is_one(outbox):
    (outbox.path / META).unlink()
    write_json(outbox.path / META, Meta("ringcast-outbox", 99, GROUP), fsync=False)
    with pytest.raises(OutboxError, match="of version 99"):
        outbox.meta()


@pytest.mark.parametrize(("name", "number"), [(name_of(7), 7), ("7.json", None), ("x.json", None),
                                              (name_of(7) + ".tmp", None)])
def test_a_batch_has_the_number_in_its_name(name, number):
    assert number_of(name) == number


KNOWN = ("path", "ackTimeout", "maxOutboxBytes", "txnAppId", "txnVersion")


@pytest.mark.parametrize(("given", "says"), [
    ({}, "Name the outbox"), ({"path": "/o", "topic": "x"}, "no option 'topic'"),
    ({"path": "/o", "acktimeout": "60"}, "like 60s"),
    ({"path": "/o", "ackTimeout": "-1s"}, "like 60s"), ({"path": "/o", "maxOutboxBytes": "many"},
                                                        "500m or 1g"),
    ({"path": "/o", "txnAppId": "a"}, "belong together"), ({"path": "/o", "txnVersion": "1"},
                                                           "belong together"),
    ({"path": "/o", "txnAppId": "a", "txnVersion": "-1"}, "whole number from 0"),
])
def test_options_that_make_no_sense_are_refused_with_what_to_do(given, says):
    with pytest.raises(ConfigError, match=says):
        Options(given, KNOWN)


def test_options_have_units():
    options = Options({"PATH": "file:/o", "acktimeout": "1500ms", "maxoutboxbytes": "2m", "checkpointlocation": "/c"}, KNOWN)
    assert (str(options.path), options.ack_timeout, options.max_outbox_bytes) == ("/o", 1.5,
                                                                                  2 << 20)
    assert Options({"path": "/o"}, KNOWN).ack_timeout == 60 and Options({"path": "/o"}, KNOWN).max_outbox_bytes == 1 << 30


def test_what_cannot_be_a_message_is_refused(outbox):
    meta = outbox.meta()
    batch = pa.RecordBatch.from_arrays([pa.array(["ä", "b"])], names=["payload"])
    assert payloads(batch, meta).schema == PAYLOADS and payloads(batch, meta).column(0).to_pylist() == ["ä".encode(), b"b"]
    with pytest.raises(ConfigError, match="1 payloads are null"):
        payloads(pa.RecordBatch.from_arrays([pa.array([b"x", None])], names=["payload"]), meta)
    meta.max_message_size = 10
    with pytest.raises(MessageTooLargeError, match="11 bytes"):
        payloads(pa.RecordBatch.from_arrays([pa.array([b"x" * 11])], names=["payload"]), meta)


def test_what_a_driver_that_died_has_begun_is_not_counted_among_what_is_old(outbox):
    """A part that was written long before its batch is committed is young again when
    the batch names it."""
    part = outbox.write_part(batches_of([b"x"]), 1 << 30)
    os.utime(outbox.parts / part.name, (1, 1))
    outbox.commit("q", 0, [part])
    assert time.time() - os.path.getmtime(outbox.parts / part.name) < 60
