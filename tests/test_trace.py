"""What a channel writes when its option `trace` is set; and that a trace never holds
its member up."""

import random
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as arrow
import pyarrow.compute as compute
import pytest
from channels import PATIENCE, Collector, joined
from ports import free_port
from pyarrow import parquet

from ringcast import Channel, ConfigError, Flag
from ringcast.protocols.faults import Discard
from ringcast.trace import PART, writer as writing
from ringcast.trace.schema import SCHEMA
from ringcast.trace.writer import Writer, folder_of


def read(directory):
    """All rows of all members."""
    parts = [parquet.read_table(path).cast(SCHEMA)
             for path in sorted(Path(directory).glob("*/*.parquet"))]
    return arrow.concat_tables(parts).unify_dictionaries()


def rows(table, event, **wanted):
    table = table.filter(compute.equal(table["event"], event))
    for name, value in wanted.items():
        table = table.filter(compute.is_null(table[name]) if value is None
                             else compute.equal(table[name], value))
    return table


def total(table, event, **wanted):
    return compute.sum(rows(table, event, **wanted)["count"]).as_py() or 0


@pytest.mark.parametrize("stack", ["inproc", "nakack2-tcp",
                                   pytest.param("mcast-udp", marks=pytest.mark.udp)])
def test_every_message_sent_and_delivered_is_in_the_trace(tmp_path, stack):
    place = {} if stack == "inproc" else {"port": free_port()}
    ears = {name: Collector(2 * 3000 + 1) for name in "AB"}
    with joined("AB", {name: {"on_message": ear} for name, ear in ears.items()}, stack=stack,
                trace=str(tmp_path), **place) as group:
        for channel in group:
            channel.send_many([b"x" * 100] * 2999)
            channel.send(b"y" * 200_000)
        group[0].send(b"to B alone", dest="B")
        group[1].send(b"to A alone", dest="A", flags=Flag.OOB)
        for ear in ears.values():
            ear.wait()
    table = read(tmp_path)
    for name in map(str, (channel.address for channel in group)):
        mine = table.filter(compute.equal(table["member"], name))
        assert sorted(mine["ev"].to_pylist()) == list(range(len(mine)))
        assert total(mine, "deliver", conn_id=None) == 2 * 3000
        flags = compute.bit_wise_and(rows(mine, "send")["flags"], PART)
        parts = compute.sum(compute.not_equal(flags, 0)).as_py()
        assert total(mine, "send", conn_id=None) - parts == 3000 and parts > 1
        nbytes = rows(mine, "send", conn_id=None)["nbytes"]
        assert compute.sum(nbytes).as_py() == 2999 * 100 + 200_000
        assert compute.min(compute.subtract(mine["wall"], mine["sent_at"])).as_py() >= 0
        assert len(rows(mine, "view")) >= 1 and len(rows(mine, "close", flags=1)) == 1
    to_one = table.filter(compute.is_valid(table["conn_id"]))
    assert sorted(rows(to_one, "deliver")["flags"].to_pylist()) == [0, 1]
    assert total(to_one, "send") == 2


@pytest.mark.udp
def test_loss_shows_as_requests_and_retransmissions(tmp_path):
    ear = Collector(4000)
    per_member = {"A": {"deliver": False}, "B": {"on_message": ear,
                                                 "faults": [Discard(0.2, random.Random(1))]}}
    options = {"trace": str(tmp_path), "max_bundle_size": 2000}
    with joined("AB", per_member, **options) as (sender, _):
        sender.send_many([b"x" * 100] * 4000)
        ear.wait()
    table = read(tmp_path)
    assert total(table, "xmit_req") > 0 and total(table, "retransmit") > 0
    assert total(table, "deliver", member=str(sender.address)) == 0
    assert len(rows(table, "refuse", member=str(sender.address))) == 1


def test_a_blocked_send_says_how_long_it_waited(tmp_path):
    with Channel("alone", stack="inproc", capacity=10, trace=str(tmp_path)) as channel:
        for _ in range(10):
            channel.send(b"")
        with pytest.raises(TimeoutError):
            channel.send(b"", timeout=0.02)
    (waited,) = rows(read(tmp_path), "blocked")["duration"].to_pylist()
    assert waited >= 20_000_000


def test_without_the_option_nothing_is_imported_or_written(tmp_path):
    code = ("import sys; from ringcast import Channel\n"
            "with Channel('g', stack='inproc') as c: c.send(b'x')\n"
            "sys.exit('pyarrow' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 0
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_the_option_says_what_to_install(tmp_path):
    code = ("import sys; sys.modules['pyarrow'] = None\nfrom ringcast import Channel, ConfigError\n"
            "try: Channel('g', stack='inproc', trace='t')\nexcept ConfigError as error: "
            "print(error)")
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "pip install" in run.stdout and not list(tmp_path.iterdir()), run.stderr


def test_a_directory_that_cannot_be_made_is_refused_at_once():
    with pytest.raises(ConfigError, match="cannot be written"):
        Channel("g", stack="inproc", trace="/proc/nowhere")


@pytest.mark.parametrize("option", ["trace", "secret", "trust"])
@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_a_path_that_cannot_be_one_is_refused_with_a_sentence(option, path):
    with pytest.raises(ConfigError, match=f"{option}=.* has a character that no path can have"):
        Channel("g", stack="inproc", **{option: path})


def test_a_folder_that_holds_a_trace_is_refused(tmp_path):
    writer = Writer(tmp_path, "A#0000000000000001", threaded=False)
    writer.folder.joinpath("000001.parquet").write_bytes(b"x")
    with pytest.raises(ConfigError, match="is not empty"):
        Writer(tmp_path, "A#0000000000000001")


def test_a_member_name_with_a_slash_stays_within_the_directory(tmp_path):
    assert folder_of(tmp_path, "../a b/c#0000000000000001").parent == tmp_path


@pytest.fixture
def writer(monkeypatch, tmp_path):
    """A writer that has room for 10 events, and was given 25."""
    monkeypatch.setattr(writing, "MOST_ROWS", 10)
    monkeypatch.setattr(writing, "PART_SECONDS", 3600)
    writer = Writer(tmp_path, "A#0000000000000001")
    for at in range(25):
        writer.append(at, at, "view", 1)
    return writer


def test_what_the_disk_cannot_follow_is_dropped_and_counted(writer, tmp_path):
    writer._flush()
    writer.append(99, 99, "close", 1)
    writer.close()
    table = read(tmp_path)
    assert table["ev"].to_pylist() == [*range(10), 25, 26]
    assert rows(table, "dropped")["count"].to_pylist() == [15]


def test_a_pause_leaves_no_empty_part_and_does_not_end_the_trace(tmp_path, caplog):
    """The writer's thread looks each second, and there may be nothing to write."""
    writer = Writer(tmp_path, "A#0000000000000001", threaded=False)
    for at in range(2):
        writer.append(at, at, "view", 1)
        for _ in range(3):
            writer._flush()
        names = [f"{number:06d}.parquet" for number in range(1, at + 2)]
        assert sorted(path.name for path in writer.folder.iterdir()) == names
    writer.close()
    assert writer.num_parts == 2 and read(tmp_path)["ev"].to_pylist() == [0, 1]
    assert not caplog.records


def test_a_disk_that_fails_ends_the_trace_and_not_the_channel(monkeypatch, tmp_path, caplog):
    failing = threading.Event()

    def fail(*_):
        failing.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "_write", fail)
    monkeypatch.setattr(writing, "PART_SECONDS", 0.01)
    ear = Collector(2)
    with Channel("alone", stack="inproc", trace=str(tmp_path), on_message=ear) as channel:
        channel.send(b"1")
        assert failing.wait(60)
        channel.send(b"2")
        ear.wait()
    assert "tracing ends" in caplog.text and "No space left" in caplog.text


def test_a_disk_that_hangs_holds_no_close_up(monkeypatch, tmp_path, caplog):
    hangs, write = threading.Event(), Writer._write
    monkeypatch.setattr(Writer, "_write", lambda *args: (hangs.wait(PATIENCE), write(*args)))
    monkeypatch.setattr(writing, "PART_SECONDS", 0.01)
    monkeypatch.setattr(writing, "CLOSE_SECONDS", 0.05)
    channel = Channel("alone", stack="inproc", trace=str(tmp_path)).connect()
    closing = threading.Thread(target=channel.close, args=(None,), daemon=True)
    closing.start()
    closing.join(PATIENCE / 2)
    assert not closing.is_alive() and "the disk hangs" in caplog.text
    hangs.set()                         # the rest is written, if the process lives so long
    channel._driver.trace.writer._thread.join(PATIENCE)
    assert rows(read(tmp_path), "close").num_rows == 1


def test_a_part_that_is_being_written_has_another_name(monkeypatch, tmp_path):
    """A crash at any moment leaves whole parts, and at most one that is known to be
    none."""
    writer = Writer(tmp_path, "A#0000000000000001", threaded=False)
    writer.append(1, 1, "view", 1)
    monkeypatch.setattr(writing.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("crash")))
    writer.close()
    assert [path.suffix for path in writer.folder.iterdir()] == [".part"]


def test_what_comes_of_a_connection_that_is_closed_has_its_conn_id(tmp_path):
    """B is slow, and A closes before it has all."""
    with joined("AB", trace=str(tmp_path), max_undelivered=10) as (a, b):
        for _ in range(45):
            a.send(b"to all")
            a.send(b"to B", dest="B")
        a.close(0.1)
        while b.receive(0.5) is not None:
            pass
    given = [row for row in rows(read(tmp_path), "deliver").to_pylist() if row["peer"] is not None]
    assert given and all(row["conn_id"] is not None for row in given)


def test_a_message_without_reliability_to_one_member_has_no_conn_id(tmp_path):
    """Also if the member has sent something to itself."""
    with joined("AB", trace=str(tmp_path)) as (a, b):
        b.send(b"to myself", dest="B")
        assert b.receive(PATIENCE).payload == b"to myself"
        a.send(b"perhaps", dest="B", flags=Flag.NO_RELIABILITY)
        assert b.receive(PATIENCE).payload == b"perhaps"
    given = rows(read(tmp_path), "deliver").to_pylist()
    assert [row["conn_id"] is None for row in given if row["peer"] is not None] == [False, True]


def test_the_close_finds_room_and_says_what_was_dropped(writer, tmp_path):
    writer.append(99, 99, "close", 1)
    writer.close()
    table = read(tmp_path)
    assert rows(table, "dropped")["count"].to_pylist() == [15]
    assert table["event"].to_pylist()[-2:] == ["dropped", "close"]


def test_a_system_without_a_thread_for_it_does_not_end_the_member(monkeypatch, tmp_path):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("ringcast trace"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ear = Collector(1)
    with Channel("alone", stack="inproc", trace=str(tmp_path), on_message=ear) as channel:
        channel.send(b"1")
        ear.wait()
    assert rows(read(tmp_path), "close").num_rows == 1
