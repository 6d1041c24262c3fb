"""A wire that loses frames stops nobody: everything arrives, once, in order and without
a pause. A wire that is slower than its sender loses nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from namespaces import Network, refusal

pytestmark = [pytest.mark.prove, pytest.mark.udp,
              pytest.mark.skipif(bool(refusal()), reason=f"no lossy wire: {refusal()}")]
TALKER = [sys.executable, str(Path(__file__).with_name("talker.py"))]
PAUSE = 5.0                             # seconds; 0.1 are usual, and a busy machine has its own


def run_group(members, command, *, timeout, loss=0.0, megabits=None):
    """Run a command at each member; return what each printed last, as JSON, by its
    name."""
    with Network(members, loss, megabits) as network:
        processes = {name: network.start(name, command, stdout=subprocess.PIPE, text=True, env={
            **os.environ, "LAB_MEMBER": name, "LAB_ADDRESS": network.address(name)})
            for name in members}
        said = {}
        for name, process in processes.items():
            output, _ = process.communicate(timeout=timeout)
            assert process.returncode == 0, f"{name} ended with {process.returncode}"
            said[name] = json.loads(output.splitlines()[-1])
    return said


def check(said, names, senders, count, whom):
    """Everybody got all that was sent to it, once and in order, and was never kept
    waiting."""
    after = dict(zip(names, names[1:] + names[:1], strict=True))
    for name, report in said.items():
        print(name, report)
        due = {each: count for each in senders if whom == "all" or after[each] == name}
        assert report["counts"] == due and not report["errors"], (name, report)
        assert report["unacked"] == 0, (name, report)
        assert report["pause"] < PAUSE, (name, report)


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp"])
def test_large_messages_come_over_a_wire_that_loses_frames(stack):
    command = [*TALKER, stack, "AB", "A", "60", "200000", "0", "all", "60"]
    check(run_group(["A", "B"], command, loss=0.01, timeout=150), "AB", "A", 60, "all")


@pytest.mark.parametrize("stack, whom", [("mcast-udp", "all"), ("nakack2-udp", "all"),
                                         ("mcast-udp", "one")])
@pytest.mark.parametrize("names, senders, count, rate, loss", [
    pytest.param("AB", "A", 30_000, 0, 0.01, id="1-percent-at-full-speed"),
    pytest.param("ABC", "ABC", 6_000, 2000, 0.05, id="5-percent-of-three-senders"),
])
def test_frames_are_lost_and_messages_come_without_a_pause(stack, whom, names, senders, count,
                                                           rate, loss):
    command = [*TALKER, stack, names, senders, str(count), "1000", str(rate), whom, "60"]
    said = run_group(list(names), command, loss=loss, timeout=150)
    check(said, names, senders, count, whom)


@pytest.mark.parametrize("stack, whom", [("mcast-udp", "all"), ("nakack2-udp", "all"),
                                         ("mcast-udp", "one")])
def test_what_waits_for_a_slow_wire_is_not_dropped(stack, whom):
    """Twice as much is sent as the socket buffer holds."""
    command = [*TALKER, stack, "ABC", "A", "10000", "1000", "0", whom, "60"]
    said = run_group(list("ABC"), command, megabits=100, timeout=150)
    check(said, "ABC", "A", 10_000, whom)
    repeats = ("send_dropped", "xmit_rsps_sent", "unicast_xmit_rsps_sent")
    assert not any(said["A"][name] for name in repeats), said["A"]
