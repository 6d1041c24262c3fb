"""The status file: what a channel writes, who may read it, and when it goes away."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import msgspec
import pytest
from channels import joined, new_group
from processes import wait_for

from ringcast import Channel, RingcastError, statusfile
from ringcast.channel import publishing
from ringcast.snapshot import Snapshot
from ringcast.status import InprocStatus, Status
from ringcast.statusfile import Life, StatusFile, escaped, life_of, next_snapshots, read, snapshots

MEMBER = """
import sys, time
from ringcast import Channel
channel = Channel(sys.argv[1], name="A", stack="inproc", deliver=False).connect()
channel.send_many([b"x"] * 7)
while channel.acknowledged < 7:
    time.sleep(0.01)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def shared(tmp_path, monkeypatch):
    """The folder for shared memory, of this test alone."""
    monkeypatch.setattr(statusfile, "SHARED", tmp_path)
    return tmp_path


@pytest.fixture
def killed(shared):
    """A function that runs a member and kills it; returns the name of its group."""
    def kill():
        group = new_group()
        code = (f"from ringcast import statusfile; from pathlib import Path; "
                f"statusfile.SHARED = Path({str(shared)!r})\n{MEMBER}")
        with subprocess.Popen([sys.executable, "-c", code, group], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            wait_for(lambda: snapshots(group)[0].status.multicast.low == 7)
            process.kill()
        return group
    return kill


def snapshot(**fields):
    return Snapshot(**{
        "group": "g", "name": "n", "incarnation": 1, "stack": "inproc", "version": "0", "pid": 1,
        "place": "", "is_sealed": False, "started": 0, "namespace": statusfile.namespace(),
        "opened_at": 0, "written_at": 0, "quiet_after": 2, "capacity": 1,
        "max_undelivered": 1, "state": "member",
        "status": Status(transport=InprocStatus())} | fields)


def found(channel):
    """What a channel has published last."""
    return next(each for each in snapshots(channel.group)
                if each.incarnation == channel.address.incarnation)


def test_a_channel_publishes_what_it_knows_and_removes_the_file_when_it_closes(shared):
    group = new_group()
    with Channel(group, name="A", stack="inproc", deliver=False) as channel:
        channel.send(b"1")
        wait_for(lambda: snapshots(group) and snapshots(group)[0].status.multicast.low == 1)
        found, = snapshots(group)
        assert (found.name, found.state, found.pid) == ("A", "member", os.getpid())
        assert [peer.name for peer in found.peers] == ["A"]
        assert life_of(found) is Life.RUNNING
        path = shared / f"ringcast-{os.geteuid()}" / f"{group}.A"
        assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert snapshots(group) == [] and not path.exists()


def test_a_channel_that_is_closed_while_it_connects_leaves_no_file():
    """A signal handler may close it at any moment."""
    group = new_group()
    with Channel(group, stack="inproc") as channel:
        channel._publishing.close()
        channel._publishing.open()
        channel._publishing.hurry()
        assert snapshots(group) == [] and channel._publishing.due == publishing.NEVER


def test_a_channel_without_the_option_publishes_nothing(shared):
    with Channel(new_group(), stack="inproc", status_file=False):
        assert list(shared.iterdir()) == []


def test_the_file_of_a_killed_process_says_that_it_is_dead_until_the_next_one_opens(killed):
    group = killed()
    found, = snapshots(group)
    assert life_of(found) is Life.DEAD and found.status.multicast.low == 7
    with Channel(group, name="A", stack="inproc"):
        wait_for(lambda: snapshots(group) != [found])
        now, = snapshots(group)
        assert now.pid == os.getpid()


def test_an_old_file_of_a_dead_process_is_removed_when_any_channel_opens(killed, monkeypatch):
    group = killed()
    with Channel(new_group(), stack="inproc"):
        assert len(snapshots(group)) == 1
    monkeypatch.setattr(statusfile, "KEEP", -1)
    with Channel(new_group(), stack="inproc"):
        assert snapshots(group) == []


def test_of_many_files_of_dead_processes_the_newest_stay(shared, monkeypatch):
    """A service that dies again and again leaves one each time; stopped processes keep
    theirs."""
    monkeypatch.setattr(statusfile, "MOST_KEPT", 2)
    living = {"pid": os.getpid(), "started": statusfile.process("self")[1]}
    for number in range(5):
        file = statusfile.StatusFile("g", f"n{number}", 1)
        file.write(msgspec.msgpack.encode(snapshot(name=f"n{number}", **(
            living if number == 1 else {"pid": os.getpid(), "started": -2}))))
        written_at = time.time() - statusfile.SILENT - 60 + number
        os.utime(file.path, (written_at, written_at))
        file.forget()
    statusfile.StatusFile("g", "new", 1).forget()
    names = {each.name for each in statusfile.folder().iterdir()}
    assert names == {"g.n1", "g.n3", "g.n4", "g.new"}


def test_an_old_file_of_another_container_is_removed_too(killed, monkeypatch):
    group = killed()
    monkeypatch.setattr(statusfile, "life_of", lambda snapshot: Life.UNKNOWN)
    with Channel(new_group(), stack="inproc"):
        assert len(snapshots(group)) == 1
    monkeypatch.setattr(statusfile, "KEEP", -1)
    with Channel(new_group(), stack="inproc"):
        assert snapshots(group) == []


def test_a_stopped_process_is_known_as_one_and_its_last_words_can_be_read(shared):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        words = snapshot(pid=process.pid, started=statusfile.process(process.pid)[1])
        assert life_of(words) is Life.RUNNING
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: life_of(words) is Life.STOPPED)
        os.kill(process.pid, signal.SIGCONT)
        wait_for(lambda: life_of(words) is Life.RUNNING)


def test_a_reader_waits_until_each_channel_of_its_group_has_written_again():
    with joined("AB", {"A": {"deliver": False}, "B": {"deliver": False}}, stack="inproc") as (a, _):
        wait_for(lambda: len(snapshots(a.group)) == 2)
        began = time.time_ns()
        assert [each.written_at > began for each in next_snapshots(a.group)] == [True, True]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_reader_does_not_wait_for_a_process_that_writes_no_more(end, monkeypatch):
    monkeypatch.setattr(statusfile, "PATIENCE", 60)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"],
                          stdin=subprocess.PIPE) as process:
        _, started = statusfile.process(process.pid)
        process.send_signal(end)
        last = snapshot(pid=process.pid, started=started)
        wait_for(lambda: life_of(last) in (Life.DEAD, Life.STOPPED))
        file = StatusFile("g", "n", 1)
        file.write(msgspec.msgpack.encode(last))
        began = time.monotonic()
        assert next_snapshots("g") == [last] and time.monotonic() - began < 50
        process.kill()
    file.close()


def test_a_reader_waits_a_bounded_time_for_a_process_that_hangs(monkeypatch):
    monkeypatch.setattr(statusfile, "PATIENCE", 0.1)
    _, started = statusfile.process(os.getpid())
    file = StatusFile("g", "n", 1)
    file.write(msgspec.msgpack.encode(last := snapshot(pid=os.getpid(), started=started)))
    assert life_of(last) is Life.RUNNING and next_snapshots("g") == [last]
    file.close()


def test_another_process_with_the_same_number_is_not_taken_for_the_dead_one():
    assert life_of(snapshot(pid=os.getpid(), started=1)) is Life.DEAD


def test_a_process_of_another_container_is_unknown():
    assert life_of(snapshot(namespace=1)) is Life.UNKNOWN


def test_two_living_members_of_one_name_have_two_files():
    group = new_group()
    files = [StatusFile(group, "A", incarnation) for incarnation in (1, 2)]
    assert files[0].path != files[1].path
    for file in files:
        file.close()
        assert not file.path.exists()


@pytest.mark.parametrize("spoil", [
    lambda folder, other: folder.symlink_to(other),
    lambda folder, other: folder.mkdir(0o755),
    lambda folder, other: folder.touch(0o600)], ids=["symlink", "open to others", "a file"])
def test_a_folder_that_is_not_this_users_alone_is_refused(shared, tmp_path_factory, spoil, caplog):
    other = tmp_path_factory.mktemp("other")
    spoil(shared / f"ringcast-{os.geteuid()}", other)
    with Channel(new_group(), name="A", stack="inproc") as channel:
        channel.send(b"it works all the same")
    assert "no status file" in caplog.text and list(other.iterdir()) == []
    with pytest.raises(RingcastError):
        snapshots()


def test_a_folder_of_another_user_is_refused(shared, monkeypatch):
    folder = statusfile.open_folder()
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    monkeypatch.setattr(statusfile, "folder", lambda: folder)
    with pytest.raises(RingcastError, match="not this user's alone"):
        statusfile.open_folder()


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", ".", "\x1b[31m", "a\nb", "~",
                                  "\u00e9", "x" * 300])
def test_names_are_escaped_and_do_not_leave_the_folder(name):
    part = escaped(name)
    assert part.isascii() and part.isprintable() and not set(part) & set("/.") and len(part) <= 100
    file = StatusFile(name, name, 1)
    assert file.path.parent == statusfile.folder()
    file.close()


def test_different_names_have_different_files():
    names = ["a.b", "a", "b", "a%2Eb", "a~b", "x" * 200, "x" * 201]
    assert len({escaped(name) for name in names}) == len(names)


def test_a_writer_that_dies_in_the_middle_leaves_the_snapshot_before():
    file = StatusFile("g", "n", 1)
    encode = publishing.msgspec.msgpack.encode
    file.write(encode(snapshot(view_id=1)))
    file.write(encode(snapshot(view_id=2)))
    with suppress(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        def die(*arguments):
            raise KeyboardInterrupt

        patch.setattr(os, "pwrite", die)                # before the header names the new slot
        file.write(encode(snapshot(view_id=3)))
    assert read(file.path).view_id == 2
    file.write(encode(snapshot(view_id=4)))
    assert read(file.path).view_id == 4
    file.close()


def test_a_damaged_file_and_one_of_something_else_is_left_out():
    file = StatusFile("g", "n", 1)
    assert read(file.path) is None                      # nothing is written yet
    file.write(publishing.msgspec.msgpack.encode(snapshot()))
    whole = file.path.read_bytes()
    body = statusfile.PAGE + statusfile.SLOT_SIZE
    for at in [*range(statusfile.HEADER.size), *range(body, len(whole), 11)]:
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        file.path.write_bytes(damaged)
        assert read(file.path) is None
    for content in (b"", b"ringcast", bytes(5000)):
        file.path.write_bytes(content)
        assert read(file.path) is None
    for body in (b"\xc1", b"\x81\xa5group\xa1\xff", b"\x81\xa1x" + b"\x91" * 3000):
        file.write(body)                                # of another version, with its checksum
        assert read(file.path) is None
    file.close()


def test_a_snapshot_that_is_too_large_is_dropped():
    file = StatusFile("g", "n", 1)
    file.write(publishing.msgspec.msgpack.encode(snapshot(view_id=1)))
    file.write(bytes(statusfile.SLOT_SIZE))
    assert read(file.path).view_id == 1
    file.close()


def test_the_largest_view_fits():
    names = ["\U0001f600" * 16] * 256
    peers = [{"name": name, "incarnation": 2**63, "silent_for": 1e9, "unacked": 2**31,
              "missing": 2**31, "undelivered": 2**31, "suspected": True} for name in names]
    event = {"number": 2**40, "at": 2**60, "kind": "suspects", "who": names[0], "whom": names[0],
             "text": "\U0001f600" * publishing.LONGEST_TEXT}
    body = publishing.msgspec.msgpack.encode({
        **publishing.msgspec.structs.asdict(snapshot()), "peers": peers, "absent": names,
        "events": [event] * publishing.MOST_EVENTS})
    assert len(body) < statusfile.SLOT_SIZE - statusfile.SLOT.size


def test_a_full_memory_ends_the_file_and_not_the_channel(monkeypatch, caplog):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with Channel(new_group(), stack="inproc", deliver=False) as channel:
        channel.send(b"1")
        wait_for(lambda: channel.acknowledged == 1)
    assert caplog.text.count("the status file is given up") == 1


def test_an_error_of_whatever_kind_ends_the_file_and_not_the_channel(caplog):
    group = new_group()
    with Channel(group, stack="inproc", deliver=False) as channel:
        channel._publishing._group = "\udc80"           # no UTF-8
        channel.send(b"1")
        wait_for(lambda: channel.acknowledged == 1)
        wait_for(lambda: "the status file is given up" in caplog.text)
        channel.send(b"2")
        wait_for(lambda: channel.acknowledged == 2)


def test_a_snapshot_that_takes_long_is_written_rarely(monkeypatch):
    times = iter(range(0, 10**12, 300_000))             # 0.3 ms of processor time each
    with Channel(new_group(), stack="inproc") as channel:
        published, turn = channel._publishing, channel._driver.turn
        wait_for(lambda: found(channel))
        with turn:
            monkeypatch.setattr(publishing.time, "thread_time_ns", lambda: next(times))
            published.publish(channel._status, 10)
            assert published.due == 10 + 300_000 * publishing.SHARE
            monkeypatch.undo()


def test_a_blocked_sender_says_for_whom_it_waits():
    with joined("AB", {"A": {"deliver": False}}, capacity=4, stack="inproc") as (a, b):
        sender = threading.Thread(target=a.send_many, args=([b"x"] * 5,), daemon=True)
        sender.start()
        wait_for(lambda: found(a).waiting)
        said = found(a)
        assert (said.slowest, said.waiting[0].dest, said.status.application.num_blockings) == (
            "B", None, 1)
        assert {peer.name: peer.unacked for peer in said.peers} == {"A": None, "B": 4}
        assert a.slowest == said.slowest
        for _ in range(5):
            b.receive()
        assert b.receive(timeout=0) is None             # it finishes the last one
        wait_for(lambda: a.slowest is None and found(a).slowest is None)
        sender.join()
        wait_for(lambda: not found(a).waiting)


def test_a_forked_child_leaves_the_file_alone(shared):
    group = new_group()
    with Channel(group, name="A", stack="inproc") as channel:
        wait_for(lambda: snapshots(group))
        child = os.fork()
        if not child:
            with suppress(BaseException):
                channel.close()
            os._exit(0)
        os.waitpid(child, 0)
        first, = snapshots(group)
        wait_for(lambda: snapshots(group)[0].written_at > first.written_at)


@pytest.mark.udp
def test_the_file_has_no_secret_and_no_payload(shared):
    secret, group = bytes(range(100, 132)), new_group()
    with Channel(group, name="A", secret=lambda: secret, deliver=False) as channel:
        channel.send(b"nobody else may read this")
        wait_for(lambda: snapshots(group) and snapshots(group)[0].status.multicast.low == 1)
        found, = snapshots(group)
        content = (statusfile.folder() / f"{group}.A").read_bytes()
    assert found.is_sealed and found.status.seal is not None
    assert secret not in content and secret.hex().encode() not in content
    assert b"nobody else" not in content


def test_a_fault_is_in_the_file_until_the_channel_is_closed():
    group = new_group()
    with Channel(group, name="A", stack="inproc") as first:
        second = Channel(group, name="A", stack="inproc")
        with suppress(RingcastError):
            second._joining.start()
            wait_for(lambda: second.fault is not None)
        wait_for(lambda: any(each.state == "failed" for each in snapshots(group)))
        failed, = (each for each in snapshots(group) if each.state == "failed")
        assert failed.fault == second.fault and first.fault is None
        second.close(0)
    assert snapshots(group) == []


def test_times_are_wall_time():
    group = new_group()
    before = time.time_ns()
    with Channel(group, stack="inproc"):
        wait_for(lambda: snapshots(group))
        found, = snapshots(group)
    assert before <= found.opened_at <= found.written_at <= time.time_ns()
