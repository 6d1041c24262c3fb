"""`ringcast status` and `ringcast top`: on members that run, hang, and were killed."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from contextlib import suppress

import pytest
from channels import new_group
from ports import free_port
from processes import RINGCAST, ringcast, wait_for
from rich.console import Console

from ringcast import Channel
from ringcast.cli import live, seen
from ringcast.cli.seen import Seen
from ringcast.snapshot import Peer, Rates, Snapshot, Waiting
from ringcast.status import InprocStatus, McastStatus, Status
from ringcast.statusfile import Life, snapshots

MEMBER = """
import sys
import termios
from contextlib import suppress
from ringcast import Channel
with Channel(sys.argv[1], name="A", deliver=False, stack="inproc") as channel:
    channel.send_many([b"x"] * 7)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def member():
    """A member in a process of its own, and its group; it has sent seven messages."""
    group = new_group()
    with subprocess.Popen([sys.executable, "-c", MEMBER, group], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        wait_for(lambda: snapshots(group) and snapshots(group)[0].status.multicast.low == 7)
        yield process, group
        process.kill()
        process.wait()
    for each in snapshots(group):
        os.unlink(seen.statusfile.folder() / f"{each.group}.{each.name}")


def test_status_and_top_show_a_member_that_runs_one_that_hangs_and_one_that_was_killed(member):
    process, group = member
    said = ringcast("status", group)
    assert said.returncode == 0 and f"A of group {group}: " in said.stdout
    assert f"process {process.pid}" in said.stdout and " low " in said.stdout

    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: seen.look(group)[0].life is Life.STOPPED)
    known = json.loads(ringcast("status", group, "--json").stdout)
    assert known["life"] == "stopped" and known["status"]["multicast"]["low"] == 7
    assert "kill -CONT" in ringcast("top", group).stdout

    process.kill()
    process.wait()
    assert f"A (process {process.pid}) is dead" in ringcast("status", group).stdout
    said = ringcast("top", group)
    assert said.returncode == 0 and "dead since" in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 80


@pytest.mark.parametrize("words", [["status"], ["top"], ["status", "--json"]])
def test_a_group_of_which_nothing_is_here_is_status_1(words):
    said = ringcast(*words, new_group())
    assert said.returncode == 1 and ("--json" in words) is (said.stdout == "")


def test_watching_ends_with_ctrl_c(member):
    _, group = member
    with subprocess.Popen([*RINGCAST, "status", group, "--json", "--watch"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        first = json.loads(process.stdout.readline())
        assert json.loads(process.stdout.readline())["written_at"] >= first["written_at"]
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
        assert process.returncode == 130 and said == b""


def known(name, life=Life.RUNNING, age=0.0, **fields):
    """What is known about a member."""
    return Seen(Snapshot(**{
        "group": "g", "name": name, "incarnation": sum(name.encode()), "stack": "inproc",
        "version": "0", "pid": 7, "place": "", "is_sealed": False, "started": 0, "namespace": 0,
        "opened_at": 0, "written_at": 0, "quiet_after": 2, "capacity": 1,
        "max_undelivered": 1, "state": "member",
        "status": Status(transport=InprocStatus())} | fields), life, age)


def shown(*found, width=80):
    """What top shows, as text."""
    console = Console(file=io.StringIO(), width=width)
    console.print(live.picture(console, "g", found))
    return console.file.getvalue()


def test_top_fits_80_columns_with_long_names_and_large_numbers():
    peers = [Peer(name="B" * 64, incarnation=66 * 64, unacked=123_456_789)]
    text = shown(known("A" * 64, Life.DEAD, peers=peers, rates=Rates(
        sent=1_234_567, delivered=99_950, repeated=999.4)), known("B" * 64))
    assert max(map(len, text.splitlines())) <= 80
    for word in ("123M", "1.2M", "100k", "999", "dead since", "AAA", "BBB"):
        assert word in text, word


def test_top_says_in_which_views_the_members_here_are():
    one, two = Peer(name="A", incarnation=65), Peer(name="B", incarnation=66)
    text = shown(known("A", peers=[one], view_id=7, is_primary=False))
    assert "view 7: 1 member, led by A; it is not primary" in text.splitlines()[1]
    text = shown(known("B", peers=[two, one], view_id=8),
                 known("A", Life.DEAD, peers=[one, two], view_id=7))
    assert text.splitlines()[1].rstrip() == "view 8: 2 members, led by B" and "view 7" not in text
    text = shown(known("A", Life.DEAD, peers=[one, two], view_id=7))
    assert text.splitlines()[1].rstrip() == "view 7: 2 members, led by A"
    text = shown(known("A", peers=[one], view_id=7), known("B", peers=[two], view_id=8))
    assert "view 7: " in text and "view 8: " in text
    assert "view" not in shown(known("A", state="joining"))


def test_top_names_whom_a_blocked_sender_waits_for():
    peers = [Peer(name="B", incarnation=66, unacked=32_768)]
    text = shown(known("A", peers=peers, slowest="B", waiting=[Waiting(None, 1.5)],
                       status=Status(transport=InprocStatus(),
                                     multicast=McastStatus(num_unacked=32_768))))
    assert "A waits for room to send to all, for 1.5 s: B has not acknowledged" in text
    assert "elsewhere" in text                  # B has no file here


def test_a_member_that_does_not_take_its_own_messages_is_told_so():
    said, = seen.remarks([known("A", slowest="A", waiting=[Waiting(None, 1)])])
    assert "does not take its own messages" in said


@pytest.mark.parametrize(("fields", "state"), [
    ({}, "member"), ({"age": 9}, "hangs for 9.0 s"), ({"age": 9, "quiet_after": 30}, "member"),
    ({"state": "joining"}, "joining"),
    ({"life": Life.STOPPED, "age": 130}, "stopped for 2 min 10 s")])
def test_a_state_says_how_a_member_is(fields, state):
    assert known("A", **fields).state == state


def test_names_from_elsewhere_do_not_steer_the_terminal():
    peers = [Peer(name="\x1b[2J", incarnation=5, suspected=True, silent_for=3)]
    text = shown(known("\x1b[31m[bold]A", peers=peers, fault="\x1b[0m"))
    assert "\x1b" not in text and "[bold]A" in text


@pytest.mark.parametrize(("number", "text"), [
    (0, "0"), (999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (999_950, "1.0M"), (5e13, "50000G")])
def test_numbers_are_short(number, text):
    assert live.short(number) == text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_top_in_a_terminal_is_live_until_a_signal_and_gives_the_screen_back(member, number):
    _, group = member
    mine, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 80))
    with subprocess.Popen([*RINGCAST, "top", group], stdin=its, stdout=its, stderr=its,
                          env={**os.environ, "TERM": "xterm"}, start_new_session=True) as process:
        os.close(its)
        said = b""
        while said.count(b"sent/s") < 2:                # it is drawn again
            said += os.read(mine, 1 << 16)
        process.send_signal(number)
        with suppress(OSError):                         # the terminal is gone
            while more := os.read(mine, 1 << 16):
                said += more
        assert process.wait() == 128 + number
    os.close(mine)
    assert b"\x1b[?1049h" in said and said.rstrip().endswith((b"\x1b[?25h", b"\x1b[?1049l"))
    assert b"Traceback" not in said


@pytest.mark.udp
def test_who_looks_at_a_sealed_group_without_its_secret_makes_no_fault_for_the_next_one():
    group, port = new_group(), free_port()
    words = ["doctor", group, "--json", "--seconds", 0.3, "--set", f"port={port}"]
    with Channel(group, name="A", secret=lambda: bytes(32), port=port):
        ringcast(*words)
        said = ringcast(*words)
        assert snapshots(group)[0].status.seal.datagrams_unsealed
    levels = {each["check"]: each["level"] for each in map(json.loads, said.stdout.splitlines())}
    assert levels["secret"] == "warning" and said.returncode == 0, said.stdout
