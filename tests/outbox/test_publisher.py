"""A publisher sends every row once, in the order of the batches, whatever kills it."""

import os
import random
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from journals import column, durable
from outboxes import (
    GROUP,
    Member,
    Publishing,
    batches_of,
    put,
    served,
    start_publisher,
)
from ports import free_port
from processes import PATIENCE, wait_for

from ringcast import Channel, ConfigError, OutboxError
from ringcast.config import configure
from ringcast.journal.recorder import record
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.publisher import Publisher, channel_factory
from ringcast.outbox.store import BATCHES, PARTS, Outbox, name_of
from ringcast.spark import Journal, JournalReader

KILLS = [("nakack2-tcp", 5), ("mcast-tcp", 2), pytest.param("mcast-udp", 5, marks=pytest.mark.udp),
         pytest.param("nakack2-udp", 2, marks=pytest.mark.udp)]


def rows(query, batch, count, size=0):
    return [b"%s %d %d" % (query.encode(), batch, row) + bytes(size) for row in range(count)]


def test_batches_and_their_parts_are_sent_in_order_and_finished_when_all_have_them(tmp_path):
    with served(tmp_path / "o") as (publishing, member):
        outbox = Outbox(tmp_path / "o")
        expected = []
        for batch in range(5):
            parts = rows("a", batch, 3000), rows("b", batch, 10)
            expected += parts[0] + parts[1]
            number = put(outbox, "q", batch, *parts)
        wait_for(lambda: outbox.is_finished(number))
        assert member.got == expected
        wait_for(lambda: not list(outbox.parts.iterdir()))
        assert not list(outbox.batches.iterdir())
        assert outbox.ledger().queries == {"q": 4}
        assert outbox.find("q", 3) == 0 and outbox.find("q", 5) is None
        assert publishing.publisher.acknowledged == 5 * 3010


def test_a_batch_is_not_finished_before_every_member_has_acknowledged_it(tmp_path):
    with served(tmp_path / "o") as (_, member):
        outbox = Outbox(tmp_path / "o")
        member.may_finish.clear()
        number = put(outbox, "q", 0, rows("a", 0, 100))
        wait_for(lambda: (status := outbox.status()) is not None and status.waiting_for == "r")
        assert not outbox.is_finished(number)
        member.may_finish.set()
        wait_for(lambda: outbox.is_finished(number))


@pytest.mark.prove
@pytest.mark.kill
@pytest.mark.parametrize(("stack", "kills"), KILLS)
def test_a_publisher_that_is_killed_several_times_sends_every_row_once(tmp_path, stack, kills):
    """The recorder of its group checks that no seqno is missing or repeated."""
    port, chance = free_port(), random.Random(stack)
    outbox, journal = Outbox(tmp_path / "o"), tmp_path / "j"
    channel = Channel(GROUP, name="r", port=port, stack=stack, oob_in_order=True)
    with Journal(journal, group=GROUP, fsync=False) as kept:
        recording = threading.Thread(target=record, args=(channel, kept))
        publisher = start_publisher(tmp_path / "o", port, stack=stack)
        try:
            channel.connect()
            recording.start()
            wait_for(lambda: outbox.ledger() is not None)
            expected = [rows("a", batch, 4000, size=100) for batch in range(kills)]
            for batch, payloads in enumerate(expected):
                number = put(outbox, "q", batch, payloads[:1500], payloads[1500:])
                goal = 4000 * batch + chance.randrange(4000)
                wait_for(lambda goal=goal: durable(journal) > goal)
                publisher.kill()
                publisher.wait()
                publisher = start_publisher(tmp_path / "o", port, stack=stack)
            wait_for(lambda: outbox.is_finished(number) and outbox.is_served())
            publisher.terminate()
            assert publisher.communicate(timeout=PATIENCE) and publisher.returncode == 0
        finally:
            publisher.kill()
            publisher.communicate()
            channel.close(0)
            recording.join(PATIENCE)
    check_journal(journal, [payload for payloads in expected for payload in payloads])


@pytest.mark.prove
def test_a_publisher_killed_within_a_large_row_continues_there(tmp_path):
    port = free_port()
    outbox = Outbox(tmp_path / "o")
    payloads = [os.urandom(3_000_000), b"small", os.urandom(70_000), *rows("a", 0, 50),
                os.urandom(9_000_000)]
    with Member(port=port) as member:
        publisher = start_publisher(tmp_path / "o", port)
        try:
            wait_for(lambda: outbox.ledger() is not None)
            number = put(outbox, "q", 0, payloads)
            for count in (1, 3, 53):
                wait_for(lambda count=count: len(member.got) >= count)
                publisher.kill()
                publisher.wait()
                publisher = start_publisher(tmp_path / "o", port)
            wait_for(lambda: outbox.is_finished(number))
        finally:
            publisher.kill()
            publisher.communicate()
        assert member.got == payloads


@pytest.mark.prove
def test_a_publisher_that_was_killed_and_excluded_comes_back(tmp_path):
    port = free_port()
    outbox = Outbox(tmp_path / "o")
    with Member(port=port) as member:
        for batch in range(3):
            publisher = start_publisher(tmp_path / "o", port)
            wait_for(lambda: outbox.is_served() and outbox.ledger() is not None)
            put(outbox, "q", batch, rows("a", batch, 20_000))
            wait_for(lambda batch=batch: len(member.got) > 20_000 * batch)
            publisher.kill()
            publisher.communicate()
            with suppress(ConfigError):                 # the group has noticed it
                member.channel.exclude("spark")
        with Publishing(tmp_path / "o", port=port):
            wait_for(lambda: outbox.is_finished(3))
        assert member.got == [row for batch in range(3) for row in rows("a", batch, 20_000)]


def start_recorder(path, port, stack="nakack2-tcp"):
    """Start a process that records into a journal. It ends when it is killed."""
    program = f"""
from ringcast import Channel
from ringcast.journal.recorder import record
from ringcast.spark import Journal
with Journal({str(path)!r}, group={GROUP!r}, fsync=False) as journal:
    channel = Channel({GROUP!r}, name="r", port={port}, stack={stack!r}, oob_in_order=True)
    record(channel.connect(), journal)
"""
    return subprocess.Popen([sys.executable, "-c", program])


def check_journal(path, expected):
    """Check that a journal has these rows, as one stream without gaps."""
    (sender, last), = JournalReader(path).digest().items()
    assert last == len(expected)
    assert column(JournalReader(path).read(sender, 1, last), "payload") == expected


@pytest.mark.prove
@pytest.mark.kill
@pytest.mark.parametrize(("stack", "kills"), [
    ("nakack2-tcp", 9), pytest.param("mcast-udp", 6, marks=pytest.mark.udp)])
def test_whichever_is_killed_a_journal_has_every_row_once(tmp_path, stack, kills):
    """The publisher, the recorder and both at once: whoever comes back first finds
    nobody who knows how far the stream has come, or somebody who knows."""
    port, chance = free_port(), random.Random(f"all {stack}")
    outbox, journal = Outbox(tmp_path / "o"), tmp_path / "j"
    start = {"p": lambda: start_publisher(tmp_path / "o", port, "--expect", "r", stack=stack),
             "r": lambda: start_recorder(journal, port, stack)}
    running = {who: begin() for who, begin in start.items()}
    try:
        wait_for(lambda: outbox.ledger() is not None)
        expected = []
        for batch in range(kills):
            payloads = rows("a", batch, 4000, size=100)
            number = put(outbox, "q", batch, payloads[:1500], payloads[1500:])
            goal = len(expected) + chance.randrange(4000)
            expected += payloads
            wait_for(lambda goal=goal: durable(journal) > goal)
            killed = chance.sample(sorted(running), k=1 + (batch % 3 == 0))
            for who in killed:
                running[who].kill()
            for who in killed:
                running[who].communicate()
                running[who] = start[who]()
        wait_for(lambda: outbox.is_finished(number))
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    check_journal(journal, expected)


def test_rows_are_sent_again_when_the_recorder_that_is_expected_has_gone(tmp_path):
    """Another member has acknowledged them, and gets them again: nobody is left who
    knows that the recorder has them."""
    port, payloads = free_port(), rows("a", 0, 100)
    outbox = Outbox(tmp_path / "o")
    with (Member("x", port=port) as other,
          Publishing(tmp_path / "o", port=port, expect=["r"])):
        wait_for(lambda: (status := outbox.status()) is not None
                 and status.state == "waits for r to join the group")
        number = put(outbox, "q", 0, payloads)
        with Member("r", port=port) as first:
            first.may_finish.clear()
            wait_for(lambda: other.got == payloads)
            first.channel.close(0, leave=False)
            with suppress(ConfigError):                         # the group has noticed it
                other.channel.exclude("r")
            wait_for(lambda: outbox.status().state == "waits for r to join the group")
            assert not outbox.is_finished(number) and outbox.ledger().seqno == 0
        with Member("r", port=port) as second:
            wait_for(lambda: outbox.is_finished(number))
            assert second.got == payloads and other.got == 2 * payloads


@pytest.mark.parametrize("stack", ["nakack2-tcp", pytest.param("mcast-udp", marks=pytest.mark.udp)])
def test_a_publisher_that_is_excluded_while_it_runs_comes_back_and_repeats_nothing(tmp_path,
                                                                                    stack):
    port, payloads = free_port(), rows("a", 0, 60_000)
    options = {"port": port, "stack": stack}
    with Member(**options) as member, Publishing(tmp_path / "o", **options) as publishing:
        outbox = Outbox(tmp_path / "o")
        wait_for(lambda: outbox.ledger() is not None)
        number = put(outbox, "q", 0, payloads)
        wait_for(lambda: len(member.got) > 100)
        before = publishing.publisher.channel
        member.channel.exclude("spark")
        wait_for(lambda: publishing.publisher.channel is not before)
        wait_for(lambda: outbox.is_finished(number))
        assert member.got == payloads


def test_a_publisher_that_expects_itself_is_refused(tmp_path):
    config, join = channel_factory(GROUP, name="spark", stack="nakack2-tcp")
    with (OwnedOutbox(tmp_path / "o", GROUP, config) as held,
          pytest.raises(ConfigError, match="'spark' is the publisher itself")):
        Publisher(held, "spark", join, threading.Event(), expect=["r", "spark"])


def test_a_second_publisher_of_an_outbox_is_refused(tmp_path):
    config = configure({}, "mcast-udp")
    with (OwnedOutbox(tmp_path / "o", GROUP, config),
          pytest.raises(OutboxError, match="has a publisher already")):
        OwnedOutbox(tmp_path / "o", GROUP, config)
    OwnedOutbox(tmp_path / "o", GROUP, config).release()


def test_an_outbox_belongs_to_one_group_and_other_directories_are_left_alone(tmp_path):
    config = configure({}, "mcast-udp")
    OwnedOutbox(tmp_path / "o", GROUP, config).release()
    with pytest.raises(OutboxError, match="outbox of group 'g'"):
        OwnedOutbox(tmp_path / "o", "other", config)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(OutboxError, match="not an outbox"):
        OwnedOutbox(tmp_path / "mine", GROUP, config)
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]


@pytest.mark.parametrize("option, before, after", [
    ("max_bundle_size", 60_000, 1500), ("max_datagram", 8972, 1472)])
def test_with_unsent_batches_the_size_of_a_datagram_stays(tmp_path, option, before, after):
    """It decides which rows take several seqnos: on a wire, its MTU does."""
    def config(size):
        return configure({"max_bundle_size": 1000, option: size}, "mcast-udp")

    with OwnedOutbox(tmp_path / "o", GROUP, config(before)) as held:
        put(held, "q", 0, rows("a", 0, 1))
    with pytest.raises(OutboxError, match=f"{option}={before}"):
        OwnedOutbox(tmp_path / "o", GROUP, config(after))


def flip_a_bit(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("harm", ["flipped", "torn", "gone", "other"])
def test_a_part_that_is_not_what_was_written_is_reported_and_not_sent(tmp_path, harm):
    with OwnedOutbox(tmp_path / "o", GROUP, configure({}, "nakack2-tcp")) as held:
        put(held, "q", 0, rows("good", 0, 10))
        put(held, "q", 1, rows("bad", 1, 1000))
        part = held.parts / held.manifest(2).parts[0].name
        if harm == "flipped":
            flip_a_bit(part)
        elif harm == "torn":
            part.write_bytes(part.read_bytes()[:-100])
        elif harm == "gone":
            part.unlink()
        else:
            part.write_bytes((held.parts / held.manifest(1).parts[0].name).read_bytes())
    port = free_port()
    with Member(port=port) as member, Publishing(tmp_path / "o", port=port) as publishing:
        publishing.join(PATIENCE)
    assert isinstance(publishing.error, OutboxError) and part.name in str(publishing.error)
    assert member.got == rows("good", 0, 10)
    assert "has stopped" in Outbox(tmp_path / "o").status().state


def test_a_publisher_says_why_it_stopped_even_if_it_cannot_write_that(tmp_path, monkeypatch):
    config, join = channel_factory(GROUP, name="spark", stack="nakack2-tcp", max_bundle_size=2000)
    with OwnedOutbox(tmp_path / "o", GROUP, config) as held:
        held.own_ledger.bundle = 1000
        publisher = Publisher(held, "spark", join, threading.Event())
        write = held.write_status

        def fill_up(status):
            write(status)
            (held.path / "status.json.tmp").mkdir()         # the next one cannot be written

        monkeypatch.setattr(held, "write_status", fill_up)
        with pytest.raises(OutboxError, match="pass the same to both"):
            publisher.run()
        assert held.status().state == "is joining the group"


def test_a_manifest_that_is_damaged_is_reported_and_nothing_behind_it_is_sent(tmp_path):
    with OwnedOutbox(tmp_path / "o", GROUP, configure({}, "nakack2-tcp")) as held:
        for batch in range(3):
            put(held, "q", batch, rows("a", batch, 10))
        flip_a_bit(held.batches / name_of(2))
    port = free_port()
    with Member(port=port) as member, Publishing(tmp_path / "o", port=port) as publishing:
        publishing.join(PATIENCE)
    assert name_of(2) in str(publishing.error) and member.got in ([], rows("a", 0, 10))


def test_files_that_no_batch_names_are_ignored_and_old_parts_are_removed(tmp_path, caplog):
    with OwnedOutbox(tmp_path / "o", GROUP, configure({}, "nakack2-tcp")) as held:
        straggler = held.write_part(batches_of(rows("late", 0, 10)), 1 << 30)
        (held.parts / "foreign.txt").write_text("x")
        (held.batches / "foreign.json").write_text("{}")
        number = put(held, "q", 0, rows("a", 0, 10))
    with served(tmp_path / "o", keep_parts=0.0) as (_, member):
        wait_for(lambda: held.is_finished(number) and not (held.parts / straggler.name).exists())
        assert member.got == rows("a", 0, 10)
    assert "foreign.json is not a batch" in caplog.text and (held.batches / "foreign.json").exists()


def test_parts_that_a_batch_names_stay_however_old(tmp_path):
    with OwnedOutbox(tmp_path / "o", GROUP, configure({}, "nakack2-tcp")) as held:
        put(held, "q", 0, rows("a", 0, 10))
        loose = held.write_part(batches_of(rows("late", 0, 10)), 1 << 30)
        for path in (*held.parts.iterdir(), *held.batches.iterdir()):
            os.utime(path, (1, 1))
        assert held.sweep(60) == 1 and not (held.parts / loose.name).exists()
        kept = os.listdir(tmp_path / "o" / PARTS), os.listdir(tmp_path / "o" / BATCHES)
        assert [len(names) for names in kept] == [1, 1]
