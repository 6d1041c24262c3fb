"""The recorder: on disk before it is acknowledged, whatever kills it; and `ringcast
record`, the command around it."""

import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest
from ports import free_port

from ringcast import Address, Batch, Channel, ConfigError, Digest, Flag, JournalError
from ringcast.config import configure
from ringcast.journal.recorder import record, resume_of
from ringcast.journal.retention import Retention
from ringcast.journal.subscriptions import subscribe
from ringcast.spark import Journal, JournalReader

numbers = itertools.count()
PATIENCE = 60                           # seconds


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def rows(path):
    """{sender: [(seqno, payload), ...]} of everything that is durable."""
    reader = JournalReader(path)
    found = {}
    for sender, high in reader.digest().items():
        batches = list(reader.read(sender, 1, high))
        found[sender] = [pair for batch in batches
                         for pair in zip(batch.column("seqno").to_pylist(),
                                         batch.column("payload").to_pylist(), strict=True)]
    return found


def sent(count):
    return [(k + 1, b"message %d" % k) for k in range(count)]


def joined(*channels):
    threads = [threading.Thread(target=channel.connect) for channel in channels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return channels


def pair(**options):
    group = f"recorder-{next(numbers)}"
    return joined(Channel(group, name="p", members=["p", "r"], stack="inproc", deliver=False,
                          **options),
                  Channel(group, name="r", members=["p", "r"], stack="inproc", oob_in_order=True,
                          **options))


@pytest.fixture
def ended():
    """Notes a process or channel, and returns it: it is ended with the test, however
    that ends."""
    things = []

    def note(thing):
        things.append(thing)
        return thing

    yield note
    for thing in things:
        if isinstance(thing, Channel):
            thing.close(0)
        else:
            thing.kill()
            thing.wait()


class Recording(threading.Thread):
    """record() on a thread of its own, with what it raised."""

    def __init__(self, channel, journal):
        super().__init__()
        self.channel, self.journal, self.error = channel, journal, None
        self.start()

    def run(self):
        try:
            record(self.channel, self.journal)
        except JournalError as error:
            self.error = error


def test_what_is_acknowledged_is_durable(tmp_path):
    publisher, recorder = pair()
    with Journal(tmp_path / "j", group="g") as journal:
        recording = Recording(recorder, journal)
        publisher.send_many([payload for _, payload in sent(5000)])
        wait_for(lambda: publisher.status()["num_unacked"] == 0)
        assert rows(tmp_path / "j") == {str(publisher.address): sent(5000)}
        publisher.close()
        recorder.close()
        recording.join(PATIENCE)
        assert recording.error is None


def test_nothing_is_acknowledged_before_it_is_synced(tmp_path):
    publisher, recorder = pair()
    entered, go_on = threading.Event(), threading.Event()
    with Journal(tmp_path / "j", group="g") as journal:
        sync = journal.sync

        def slow_sync():
            entered.set()
            assert go_on.wait(PATIENCE)
            return sync()

        journal.sync = slow_sync
        recording = Recording(recorder, journal)
        publisher.send_many([b"x"] * 100)
        assert entered.wait(PATIENCE)
        wait_for(lambda: recorder.status()["num_undelivered"] == 100)
        assert publisher.status()["low"] == 0
        go_on.set()
        wait_for(lambda: publisher.status()["low"] == 100)
        publisher.close()
        recorder.close()
        recording.join(PATIENCE)


def test_a_journal_that_fails_ends_the_recording_and_acknowledges_nothing_more(tmp_path):
    publisher, recorder = pair()
    with Journal(tmp_path / "j", group="g") as journal:
        def full(*_, **__):
            raise JournalError("the disk is full; make room")

        journal.append = full
        recording = Recording(recorder, journal)
        publisher.send_many([b"x"] * 100)
        recording.join(PATIENCE)
        assert "make room" in str(recording.error)
        assert publisher.close(timeout=0.1) == 100
        recorder.close()


class Delivering:
    """Stands where a channel stands for record(): delivers what it was given."""

    config = configure({"oob_in_order": True})

    def __init__(self, *batches):
        self.batches = batches

    def deliveries(self):
        yield from ([batch] for batch in self.batches)


def test_messages_that_the_sender_had_purged_are_noted_as_lost(tmp_path):
    a = Address("a", 1)
    with Journal(tmp_path / "j", group="g") as journal:
        record(Delivering(Batch(a, 1, [b"1", b"2"]), Batch(a, 11, [b"11", b"12"]), Batch(a, 13, [b"13"])), journal)
        assert journal.digest == {str(a): 13}
    assert JournalReader(tmp_path / "j").extents()[str(a)].lost == [(3, 10)]
    assert rows(tmp_path / "j") == {str(a): [(1, b"1"), (2, b"2"), (11, b"11"), (12, b"12"),
                                             (13, b"13")]}


def test_what_comes_again_after_a_restart_is_written_once(tmp_path):
    a = Address("a", 1)
    with Journal(tmp_path / "j", group="g") as journal:
        assert record(Delivering(Batch(a, 1, [b"1", b"2"])), journal) == 2
    with Journal(tmp_path / "j", group="g") as journal:
        assert record(Delivering(Batch(a, 1, [b"1", b"2", b"3"])), journal) == 1
    assert rows(tmp_path / "j") == {str(a): [(1, b"1"), (2, b"2"), (3, b"3")]}


def test_resume_takes_the_lives_of_members_only(tmp_path):
    with Journal(tmp_path / "j", group="g") as journal:
        for sender in ("a#0000000000000001", "a#0000000000000002", "z#0000000000000003"):
            journal.append(sender, 1, [b"x", b"y"], view_id=1, sent_at=1, delivered_at=1)
        journal.sync()
        digest = resume_of(journal, ["a", "b"])
        assert digest == Digest.from_names({"a#0000000000000001": 2, "a#0000000000000002": 2})


class Waiting(Delivering):
    """Delivers, and then stays open until it is closed."""

    def __init__(self, *batches):
        super().__init__(*batches)
        self.closed = threading.Event()

    def deliveries(self):
        yield from super().deliveries()
        assert self.closed.wait(PATIENCE)

    def close(self, leave=True):
        self.left = leave
        self.closed.set()


def test_retention_is_enforced_while_nothing_is_delivered(tmp_path, monkeypatch):
    monkeypatch.setattr("ringcast.journal.recorder.RETENTION_S", 0.005)
    a = Address("a", 1)
    channel = Waiting(Batch(a, 1, [b"1", b"2"]))
    with Journal(tmp_path, group="g") as journal:
        recording = threading.Thread(target=record, args=(channel, journal),
                                     kwargs={"retention": Retention(subscriptions=("s",))})
        recording.start()
        wait_for(lambda: rows(tmp_path) == {str(a): [(1, b"1"), (2, b"2")]})
        subscribe(tmp_path, "s", {str(a): 2})
        wait_for(lambda: rows(tmp_path) == {str(a): []})
        channel.close()
        recording.join(PATIENCE)
        assert not recording.is_alive()


def test_retention_that_fails_ends_the_recording_without_leaving_the_group(tmp_path):
    channel = Waiting(Batch(Address("a", 1), 1, [b"1", b"2"]))
    with Journal(tmp_path, group="g") as journal:
        (tmp_path / "subscriptions").mkdir()
        (tmp_path / "subscriptions" / "s.json").write_text("{}")
        with pytest.raises(JournalError, match="s.json is damaged"):
            record(channel, journal, retention=Retention(subscriptions=("s",)))
    assert channel.left is False


# -------------------------------------------------------------------------------------- the command

def command(path, port, *options, members="p,recorder", group="g"):
    return [sys.executable, "-c", "from ringcast.cli import main; main()", "record", str(path),
            "--group", group, "--members", members,
            "--set", f"port={port}", "--quiet", *options]


@pytest.mark.prove
@pytest.mark.udp
@pytest.mark.kill
@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp", "nakack2-tcp"])
def test_killed_again_and_again_it_keeps_every_message_once(tmp_path, ended, stack):
    port = free_port()
    path, count = tmp_path / "journal", 60_000
    publisher = ended(Channel("g", name="p", members=["p", "recorder"], stack=stack, port=port,
                              deliver=False, capacity=2000,
                              max_bundle_size=4000))

    def start():
        return ended(subprocess.Popen(command(path, port, "--stop-when-alone", "--stack", stack),
                                      stdout=subprocess.PIPE, text=True))

    def durable():
        try:
            return sum(JournalReader(path).digest().values())
        except JournalError:
            return 0

    recorder = start()
    publisher.connect()
    sender = threading.Thread(target=publisher.send_many,
                              args=([payload for _, payload in sent(count)],))
    sender.start()
    for goal in (5_000, 20_000, 21_000, 45_000):
        wait_for(lambda goal=goal: durable() >= goal)
        os.kill(recorder.pid, signal.SIGKILL)
        recorder.communicate()
        recorder = start()
    sender.join(PATIENCE)
    assert publisher.close(timeout=PATIENCE) == 0
    output, _ = recorder.communicate(timeout=PATIENCE)
    assert recorder.returncode == 0 and output.endswith("messages recorded\n")
    assert rows(path) == {str(publisher.address): sent(count)}


@pytest.mark.udp
def test_it_ends_in_order_on_sigterm(tmp_path):
    port = free_port()
    with subprocess.Popen(command(tmp_path / "j", port), stdout=subprocess.PIPE,
                          text=True) as recorder:
        try:
            with Channel("g", name="p", members=["p", "recorder"], port=port, deliver=False) as publisher:
                publisher.send_many([payload for _, payload in sent(100)])
                wait_for(lambda: publisher.status()["num_unacked"] == 0)
                recorder.send_signal(signal.SIGTERM)
                assert recorder.communicate(timeout=PATIENCE)[0] == "100 messages recorded\n"
                assert recorder.returncode == 0
        finally:
            recorder.kill()
    assert rows(tmp_path / "j") == {str(publisher.address): sent(100)}


@pytest.mark.udp
def test_it_ends_on_sigterm_while_others_go_on_sending(tmp_path):
    port = free_port()
    over = threading.Event()
    with subprocess.Popen(command(tmp_path / "j", port), stdout=subprocess.PIPE,
                          text=True) as recorder:
        try:
            with Channel("g", name="p", members=["p", "recorder"], port=port, deliver=False) as publisher:
                sender = threading.Thread(target=lambda: [publisher.send(b"x" * 100)
                                                          for _ in iter(over.is_set, True)])
                sender.start()
                wait_for(lambda: publisher.status()["low"] > 10_000)
                recorder.send_signal(signal.SIGTERM)
                assert recorder.wait(PATIENCE) == 0
                over.set()
                sender.join(PATIENCE)
        finally:
            over.set()
            recorder.kill()
    seqnos = [seqno for seqno, _ in rows(tmp_path / "j")[str(publisher.address)]]
    assert len(seqnos) > 10_000 and seqnos == list(range(1, len(seqnos) + 1))


@pytest.mark.prove
@pytest.mark.udp
def test_a_full_disk_ends_it_with_one_sentence_and_nothing_acknowledged_is_lost(tmp_path, ended):
    port = free_port()
    path, count = tmp_path / "journal", 3000
    publisher = ended(Channel("g", name="p", members=["p", "recorder"], port=port, deliver=False,
                              capacity=1000,
                              max_bundle_size=2000))

    def cramped():
        resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))

    recorder = ended(subprocess.Popen(command(path, port), stderr=subprocess.PIPE, text=True,
                                      preexec_fn=cramped))
    publisher.connect()
    sender = threading.Thread(target=publisher.send_many,
                              args=([payload for _, payload in sent(count)],))
    sender.start()
    complaint = recorder.communicate(timeout=PATIENCE)[1]
    assert recorder.returncode == 2 and complaint.startswith("ringcast: ") and complaint.count("\n") == 1, complaint
    acknowledged = publisher.status()["low"]
    kept = [seqno for seqno, _ in rows(path).get(str(publisher.address), [])]
    # what was synced last may not have been told
    assert kept == list(range(1, len(kept) + 1)) and len(kept) >= acknowledged
    recorder = ended(subprocess.Popen(command(path, port, "--stop-when-alone")))
    sender.join(PATIENCE)
    assert publisher.close(timeout=PATIENCE) == 0
    assert recorder.wait(PATIENCE) == 0
    assert rows(path) == {str(publisher.address): sent(count)}


@pytest.mark.prove
@pytest.mark.udp
def test_a_recorder_that_keeps_its_place_misses_nothing_between_two_runs(tmp_path, ended):
    port = free_port()
    path = tmp_path / "journal"
    publisher = ended(Channel("g", name="p", members=["p", "recorder"], port=port, deliver=False))
    recorder = ended(subprocess.Popen(command(path, port, "--keep-place")))
    publisher.connect()
    publisher.send_many([payload for _, payload in sent(100)])
    wait_for(lambda: publisher.status()["num_unacked"] == 0)
    recorder.send_signal(signal.SIGTERM)
    assert recorder.wait(PATIENCE) == 0
    publisher.send_many([payload for _, payload in sent(200)[100:]])
    recorder = ended(subprocess.Popen(command(path, port, "--stop-when-alone")))
    assert publisher.close(timeout=PATIENCE) == 0
    assert recorder.wait(PATIENCE) == 0
    assert rows(path) == {str(publisher.address): sent(200)}


def foreign(path):
    path.mkdir()
    (path / "letter.txt").write_text("somebody's")


def other_version(path):
    Journal(path, group="g").close()
    meta = path / "journal.json"
    meta.write_bytes(meta.read_bytes().replace(b'"version":3', b'"version":9'))


def other_group(path):
    Journal(path, group="another").close()


@pytest.mark.parametrize(("prepare", "options", "says"), [
    (foreign, (), "is not a"), (other_version, (), "version|damaged"), (other_group, (), "another"),
    (lambda path: None, ("--set", "prot=1"), "did you mean 'port'"), (lambda path: None, ("--set", "port"), "--set NAME=VALUE"),
    (lambda path: None, ("--set", "interface=192.0.2.1", "--set", "insecure=true"),
     "ip -4 address"),
    (lambda path: None, ("--keep-for", "7"), "--keep-for must be a whole number from 1 with a unit"),
    (lambda path: None, ("--keep-until-committed", "a b"), "subscription's name"),
    (lambda path: None, ("--stack", "inproc"), "on which processes meet"),
    (lambda path: None, ("--name", "x"), "add it"), (lambda path: None, ("--set", "join_timeout=50"), "p of group 'g' did not appear"),
], ids=["foreign directory", "other version", "other group", "unknown property", "no value",
        "no such interface", "no unit", "no name",
        "no network", "not a member", "nobody comes"])
def test_what_cannot_be_is_one_sentence_and_status_2(tmp_path, prepare, options, says):
    prepare(tmp_path / "j")
    run = subprocess.run(command(tmp_path / "j", 45_678, *options), capture_output=True, text=True,
                         timeout=PATIENCE)
    assert run.returncode == 2, run.stderr
    assert run.stderr.startswith("ringcast: ") and run.stderr.count("\n") == 1
    assert re.search(says, run.stderr), run.stderr


def test_large_and_oob_messages_are_recorded_in_order_and_messages_to_the_recorder_are_not(tmp_path,
                                                                                           ended):
    publisher, recorder = map(ended, pair())
    large = bytes(range(256)) * 1000
    with Journal(tmp_path, group="g") as journal:
        publisher.send_many([b"1", large, b"2"])
        publisher.send(b"to you", "r")
        publisher.send(b"oob", flags=Flag.OOB)
        publisher.send(b"gone with the wind", flags=Flag.NO_RELIABILITY)
        publisher.send(b"3")
        closing = threading.Thread(target=lambda: (publisher.close(PATIENCE),
                                                   recorder.close(PATIENCE)))
        closing.start()
        record(recorder, journal)
        closing.join(PATIENCE)
        [(sender, extent)] = JournalReader(tmp_path).extents().items()
    rows = [row for batch in JournalReader(tmp_path).read(sender, 1, extent.high)
            for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == [b"1", large, b"2", b"oob", b"3"]
    assert extent.lost == [] and [row["seqno"] for row in rows] == [1, *range(extent.high - 3,
                                                                              extent.high + 1)]
    assert extent.high > 5


def test_a_channel_that_lets_messages_overtake_cannot_be_recorded(tmp_path, ended):
    [channel] = joined(ended(Channel("g", name="r", stack="inproc")))
    with Journal(tmp_path, group="g") as journal, pytest.raises(ConfigError,
                                                                match="oob_in_order=True"):
        record(channel, journal)
