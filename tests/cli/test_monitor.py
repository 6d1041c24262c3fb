"""`ringcast monitor`: events of a group, with what shows them."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from channels import joined, new_group
from processes import RINGCAST, ringcast, wait_for
from test_top import known

from ringcast import statusfile
from ringcast.cli.monitor import Follower, Line
from ringcast.cli.options import json_line
from ringcast.cli.seen import look
from ringcast.snapshot import Event
from ringcast.statusfile import Life, snapshots


def told(group):
    """What all members of a group have told, without the time."""
    return [(line.member, line.kind, line.whom, line.text) for line in Follower().news(look(group))]


def test_a_view_is_told_with_who_joined_and_who_left():
    with joined("AB", stack="inproc") as (a, b):
        wait_for(lambda: any(each[1] == "view" and "2 members" in each[3]
                             for each in told(a.group)))
        b.close()
        wait_for(lambda: any(each[:2] == ("A", "view") and "left: B" in each[3]
                             for each in told(a.group)))


def test_who_excludes_is_told_and_who_must_go():
    with joined("AB", stack="inproc") as (a, b):
        wait_for(lambda: look(a.group))
        a.exclude("B")
        wait_for(lambda: ("A", "excludes", "B", "an operator says so") in told(a.group))


def test_a_member_that_was_killed_is_suspected_with_evidence_and_leaves():
    with joined("AB", stack="mcast-udp", suspect_timeout=300) as (a, b):
        wait_for(lambda: len(look(a.group)) == 2)
        b._driver.poller.stop()                 # it says nothing any more
        wait_for(lambda: any(each[:3] == ("A", "suspects", "B") for each in told(a.group)))
        said, = (each[3] for each in told(a.group) if each[:3] == ("A", "suspects", "B"))
        assert said.startswith("silent for 0.") and said.endswith(("answered", "datagrams"))
        wait_for(lambda: ("A", "must go", "B", "suspected by A, 1 of the 1 that watch it")
                 in told(a.group))
        wait_for(lambda: any("left: B" in each[3] for each in told(a.group)))
        a.close(0)
        b.close(0)


def test_what_was_shown_is_not_shown_again_and_a_process_that_dies_is_told():
    follower, first = Follower(), known("A", events=[event(1), event(2)])
    assert [line.text for line in follower.news([first])] == ["1", "2"]
    assert follower.news([first]) == []
    later = known("A", Life.DEAD, events=[event(2), event(3)])
    assert [line.text for line in follower.news([later])] == [
        "process 7 is dead, without having closed its channel", "3"]
    assert follower.news([]) == []              # its file is removed


def test_a_channel_that_closes_and_a_process_that_stops_are_told():
    follower = Follower()
    follower.news([known("A")])
    assert "is stopped" in follower.news([known("A", Life.STOPPED)])[0].text
    assert "goes on" in follower.news([known("A")])[0].text
    assert follower.news([])[0].text == "closed its channel"


def event(number):
    return Event(number=number, at=number, kind="view", text=str(number))


def test_names_and_texts_do_not_steer_the_terminal():
    line = Line(0, "\x1b[1m", "suspects", "\x1b", "\x1b", "\x1b")
    assert "\x1b" not in str(line) and "\x1b" not in json_line(line.as_object()).decode()


def test_the_command_shows_the_past_of_a_killed_member_and_ends():
    group = new_group()
    member = ("import sys; from ringcast import Channel; "
              "c = Channel(sys.argv[1], name='A', stack='inproc').connect(); print(1, flush=True); "
              "sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", member, group], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        wait_for(lambda: snapshots(group) and snapshots(group)[0].events)
        follow = subprocess.Popen([*RINGCAST, "monitor", group, "--json"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert json.loads(follow.stdout.readline())["kind"] == "view"
        process.kill()
    assert "is dead" in json.loads(follow.stdout.readline())["text"]
    follow.send_signal(signal.SIGINT)
    assert follow.communicate()[1] == "" and follow.returncode == 130
    said = ringcast("monitor", group, "--past")
    assert said.returncode == 0 and "view: view" in said.stdout and "is dead" in said.stdout
    with suppress(FileNotFoundError):
        os.unlink(statusfile.folder() / f"{group}.A")
    assert ringcast("monitor", group, "--past").returncode == 1
