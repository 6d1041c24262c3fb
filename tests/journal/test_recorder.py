"""What the recorder acknowledges is on disk, whatever kills it. With `ringcast record`,
the command around it."""

import itertools
import os
import re
import resource
import signal
import subprocess
import threading

import pytest
from journals import column, durable
from ports import free_port
from processes import PATIENCE, RINGCAST, wait_for

from ringcast import Address, Batch, Channel, ConfigError, Digest, Flag, JournalError
from ringcast.cli.record import record_command
from ringcast.config import configure
from ringcast.journal.recorder import record, resume_of
from ringcast.journal.retention import Retention
from ringcast.journal.subscriptions import subscribe
from ringcast.spark import Journal, JournalReader

numbers = itertools.count()



def rows(path):
    """Return {sender: [(seqno, payload), ...]} of everything that is durable."""
    reader = JournalReader(path)
    found = {}
    for sender, high in reader.digest().items():
        batches = list(reader.read(sender, 1, high))
        found[sender] = list(zip(column(batches, "seqno"), column(batches, "payload"), strict=True))
    return found


def payloads(count):
    return [b"message %d" % k for k in range(count)]


def sent(count):
    """Return `count` rows (seqno, payload)."""
    return list(enumerate(payloads(count), 1))


def joined(*channels):
    """Connect channels side by side and return them."""
    threads = [threading.Thread(target=channel.connect) for channel in channels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return channels


def pair(**options):
    """Connect a publisher and a recorder of a new group."""
    group = f"recorder-{next(numbers)}"
    both = {"min_members": 2, "stack": "inproc"} | options
    return joined(Channel(group, name="p", deliver=False, **both),
                  Channel(group, name="r", oob_in_order=True, **both))


def publisher_to(port, **options):
    """Return a publisher, not connected yet, for a group with the command `record`."""
    return Channel("g", name="p", port=port, deliver=False, min_members=2, **options)


@pytest.fixture
def ended():
    """Return a function that notes a process or channel and returns it. All that it
    noted are ended with the test, even if that fails."""
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
    """Runs record() on a thread of its own and keeps what it raised."""

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
        publisher.send_many(payloads(5000))
        wait_for(lambda: publisher.status().multicast.num_unacked == 0)
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
        wait_for(lambda: recorder.status().delivery.num_undelivered == 100)
        assert publisher.status().multicast.low == 0
        go_on.set()
        wait_for(lambda: publisher.status().multicast.low == 100)
        publisher.close()
        recorder.close()
        recording.join(PATIENCE)


def test_a_journal_that_fails_ends_the_recording_and_nothing_more_is_acknowledged(tmp_path):
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
    """Takes the place of a channel for record(): delivers what it was given."""

    config = configure({"oob_in_order": True})

    def __init__(self, *batches):
        self.batches = batches

    def deliveries(self):
        yield from ([batch] for batch in self.batches)


def test_messages_that_the_sender_had_purged_are_noted_as_lost(tmp_path):
    a = Address("a", 1)
    with Journal(tmp_path / "j", group="g") as journal:
        batches = Batch(a, 1, [b"1", b"2"]), Batch(a, 11, [b"11", b"12"]), Batch(a, 13, [b"13"])
        record(Delivering(*batches), journal)
        assert journal.digest == {str(a): 13}
    assert JournalReader(tmp_path / "j").extents()[str(a)].lost == [(3, 10)]
    expected = [(seqno, b"%d" % seqno) for seqno in (1, 2, 11, 12, 13)]
    assert rows(tmp_path / "j") == {str(a): expected}


def test_what_is_delivered_again_after_a_restart_is_written_once(tmp_path):
    a = Address("a", 1)
    with Journal(tmp_path / "j", group="g") as journal:
        assert record(Delivering(Batch(a, 1, [b"1", b"2"])), journal) == 2
    with Journal(tmp_path / "j", group="g") as journal:
        assert record(Delivering(Batch(a, 1, [b"1", b"2", b"3"])), journal) == 1
    assert rows(tmp_path / "j") == {str(a): [(1, b"1"), (2, b"2"), (3, b"3")]}


def test_resume_has_all_senders(tmp_path):
    with Journal(tmp_path / "j", group="g") as journal:
        for sender in range(1, 30):
            journal.append(f"a#{sender:016x}", 1, [b"x"], view_id=1, sent_at=1, delivered_at=1)
        journal.sync()
        digest = resume_of(journal)
        assert digest == Digest.from_names(journal.digest) and digest.to_names() == journal.digest
        assert len(resume_of(journal)) == 29


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
    monkeypatch.setattr("ringcast.journal.recorder.RETENTION_INTERVAL_S", 0.005)
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


def test_an_index_that_cannot_be_read_ends_the_recording_with_its_path(tmp_path):
    channel = Waiting(Batch(Address("a", 1), 1, [b"1", b"2"]))
    journal = Journal(tmp_path, group="g", segment_rows=1)
    journal.append("old#0000000000000001", 1, [b"1"], view_id=1, sent_at=1, delivered_at=1)
    journal.sync()
    [index] = tmp_path.glob("old*/*.idx")
    index.unlink()
    index.mkdir()
    with journal, pytest.raises(JournalError, match=rf"{index} cannot be read \(Is a directory"):
        record(channel, journal, retention=Retention(keep_ns=1))
    assert channel.left is False


def test_any_error_of_retention_ends_the_recording(tmp_path, monkeypatch):
    def failing(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Retention, "enforce", failing)
    channel = Waiting(Batch(Address("a", 1), 1, [b"1", b"2"]))
    with Journal(tmp_path, group="g") as journal, pytest.raises(RuntimeError, match="of ours"):
        record(channel, journal, retention=Retention(keep_ns=1))
    assert channel.left is False


# -------------------------------------------------------------------------------------- the command

def command(path, port, *options, group="g", **settings):
    settings = {"port": port, **settings}
    return [*RINGCAST, "record", str(path), "--group", group, "--quiet", *options,
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))]


@pytest.mark.prove
@pytest.mark.udp
@pytest.mark.kill
@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp", "nakack2-tcp"])
def test_a_recorder_that_is_killed_several_times_keeps_every_message_once(tmp_path, ended, stack):
    port = free_port()
    path, count = tmp_path / "journal", 60_000
    publisher = ended(publisher_to(port, stack=stack, capacity=2000, max_bundle_size=4000))

    def start():
        return ended(subprocess.Popen(command(path, port, "--stop-when-alone", "--stack", stack,
                                              capacity=2000),
                                      stdout=subprocess.PIPE, text=True))

    recorder = start()
    publisher.connect()
    sender = threading.Thread(target=publisher.send_many, args=(payloads(count),))
    sender.start()
    for goal in (5_000, 20_000, 21_000, 45_000):
        wait_for(lambda goal=goal: durable(path) >= goal)
        os.kill(recorder.pid, signal.SIGKILL)
        recorder.communicate()
        recorder = start()
    sender.join(PATIENCE)
    assert publisher.close(timeout=PATIENCE) == 0
    output, _ = recorder.communicate(timeout=PATIENCE)
    assert recorder.returncode == 0 and output.endswith("messages recorded\n")
    assert rows(path) == {str(publisher.address): sent(count)}


@pytest.mark.udp
@pytest.mark.parametrize(("options", "says"), [
    ([], "100 messages recorded\n"),
    (["--json"], '{{"recorded": {{"messages": 100, "path": "{}/j"}}}}\n')])
def test_a_recorder_leaves_in_order_on_sigterm(tmp_path, options, says):
    port = free_port()
    with subprocess.Popen(command(tmp_path / "j", port, *options), stdout=subprocess.PIPE,
                          text=True) as recorder:
        try:
            with publisher_to(port) as publisher:
                publisher.send_many(payloads(100))
                wait_for(lambda: publisher.status().multicast.num_unacked == 0)
                recorder.send_signal(signal.SIGTERM)
                assert recorder.communicate(timeout=PATIENCE)[0] == says.format(tmp_path)
                assert recorder.returncode == 0
        finally:
            recorder.kill()
    assert rows(tmp_path / "j") == {str(publisher.address): sent(100)}


@pytest.mark.udp
def test_a_recorder_ends_on_sigterm_while_others_keep_sending(tmp_path):
    port = free_port()
    over = threading.Event()
    with subprocess.Popen(command(tmp_path / "j", port), stdout=subprocess.PIPE,
                          text=True) as recorder:
        try:
            with publisher_to(port) as publisher:
                sender = threading.Thread(target=lambda: [publisher.send(b"x" * 100)
                                                          for _ in iter(over.is_set, True)])
                sender.start()
                wait_for(lambda: publisher.status().multicast.low > 10_000)
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
def test_a_full_disk_ends_a_recorder_and_no_acknowledged_message_is_lost(tmp_path, ended):
    port = free_port()
    path, count = tmp_path / "journal", 3000
    publisher = ended(publisher_to(port, capacity=1000, max_bundle_size=2000))

    def limit_file_size():
        resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))

    # The limit holds for every file of the process, so it has no status file.
    recorder = ended(subprocess.Popen(command(path, port, capacity=1000, status_file="false"),
                                      text=True, stderr=subprocess.PIPE,
                                      preexec_fn=limit_file_size))
    publisher.connect()
    sender = threading.Thread(target=publisher.send_many, args=(payloads(count),))
    sender.start()
    complaint = recorder.communicate(timeout=PATIENCE)[1]
    assert recorder.returncode == 2, complaint
    assert complaint.startswith("ringcast: ") and complaint.count("\n") == 1, complaint
    acknowledged = publisher.status().multicast.low
    kept = [seqno for seqno, _ in rows(path).get(str(publisher.address), [])]
    # the last sync may not have been acknowledged yet
    assert kept == list(range(1, len(kept) + 1)) and len(kept) >= acknowledged
    recorder = ended(subprocess.Popen(command(path, port, "--stop-when-alone", capacity=1000)))
    sender.join(PATIENCE)
    assert publisher.close(timeout=PATIENCE) == 0
    assert recorder.wait(PATIENCE) == 0
    assert rows(path) == {str(publisher.address): sent(count)}


@pytest.mark.prove
@pytest.mark.udp
def test_a_recorder_with_keep_place_loses_no_message_between_two_runs(tmp_path, ended):
    port = free_port()
    path = tmp_path / "journal"
    publisher = ended(publisher_to(port))
    recorder = ended(subprocess.Popen(command(path, port, "--keep-place")))
    publisher.connect()
    publisher.send_many(payloads(100))
    wait_for(lambda: publisher.status().multicast.num_unacked == 0)
    recorder.send_signal(signal.SIGTERM)
    assert recorder.wait(PATIENCE) == 0
    publisher.send_many(payloads(200)[100:])
    recorder = ended(subprocess.Popen(command(path, port, "--stop-when-alone")))
    assert publisher.close(timeout=PATIENCE) == 0
    assert recorder.wait(PATIENCE) == 0
    assert rows(path) == {str(publisher.address): sent(200)}


def nothing(path):
    pass


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
    (foreign, "", "is not a"),
    (other_version, "", "version|damaged"),
    (other_group, "", "another"),
    (nothing, "--set prot=1", "did you mean 'port'"),
    (nothing, "--set port", "--set NAME=VALUE"),
    (nothing, "--set interface=192.0.2.1 --set insecure=true", "ip -4 address"),
    (nothing, "--keep-for 7", "--keep-for must be a whole number from 1 with a unit"),
    (nothing, "--keep-until-committed a/b", "subscription's name"),
    (nothing, "--stack inproc", "that connects processes"),
    (nothing, "--set join_timeout=50 --set min_members=2", "1 of the 2 members"),
])
def test_an_impossible_option_or_place_is_one_sentence_and_status_2(tmp_path, prepare, options,
                                                                    says):
    prepare(tmp_path / "j")
    run = subprocess.run(command(tmp_path / "j", 45_678, *options.split()), capture_output=True,
                         text=True, timeout=PATIENCE)
    assert run.returncode == 2, run.stderr
    assert run.stderr.startswith("ringcast: ") and run.stderr.count("\n") == 1
    assert re.search(says, run.stderr), run.stderr


@pytest.mark.parametrize("option", ["nonsense=1", "max_bytes=none", "ack_timeout=1"])
def test_an_impossible_option_leaves_no_journal(tmp_path, option):
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        record_command(tmp_path / "j", "g", options=[option])
    assert not (tmp_path / "j").exists()


def test_all_messages_but_those_to_the_recorder_are_recorded_in_order(tmp_path, ended):
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
    batches = list(JournalReader(tmp_path).read(sender, 1, extent.high))
    assert column(batches, "payload") == [b"1", large, b"2", b"oob", b"3"]
    high = extent.high
    assert extent.lost == [] and column(batches, "seqno") == [1, *range(high - 3, high + 1)]
    assert high > 5


def test_a_channel_that_delivers_oob_messages_early_cannot_be_recorded(tmp_path, ended):
    [channel] = joined(ended(Channel("g", name="r", stack="inproc")))
    with (Journal(tmp_path, group="g") as journal,
          pytest.raises(ConfigError, match="oob_in_order=True")):
        record(channel, journal)
