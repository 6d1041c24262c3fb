"""`ringcast record` at a terminal."""

import signal
import subprocess

import pytest
from ports import free_port
from processes import PATIENCE, RINGCAST, ringcast, wait_for

from ringcast.spark import Journal


def has_handler(process, number):
    """Say whether a process handles a signal yet."""
    with open(f"/proc/{process.pid}/status") as status:
        mask = next(line.split()[1] for line in status if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> number - 1 & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_recorder_that_is_stopped_while_it_joins_says_so_and_nothing_else(tmp_path, number):
    recorder = subprocess.Popen(
        [*RINGCAST, "record", tmp_path / "j", "--group", "g", "--name", "r",
         "--quiet", "--stack", "mcast-tcp", "--set", f"port={free_port()}",
         "--set", "min_members=2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: has_handler(recorder, signal.SIGTERM) or recorder.poll() is not None)
        recorder.send_signal(number)
        out, said = recorder.communicate(timeout=PATIENCE)
    finally:
        recorder.kill()
    assert said == "ringcast: stopped before it had joined the group; nothing was recorded\n"
    assert (out, recorder.returncode) == ("", 128 + number)
    with Journal(tmp_path / "j", group="g", recorder="r") as journal:
        assert journal.digest == {}


def test_a_group_without_a_name_is_refused(tmp_path):
    run = ringcast("record", tmp_path / "j", "--group", "")
    assert run.returncode == 2 and "group is empty" in run.stderr
    assert "Traceback" not in run.stderr and not (tmp_path / "j").exists()
