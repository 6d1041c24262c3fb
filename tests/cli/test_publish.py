"""`ringcast publish` continues where it was, ends in order on a signal, and says in one
sentence why it cannot start."""

import signal
import subprocess
import sys

import pytest
from outboxes import Member, put, start_publisher
from ports import free_port
from processes import PATIENCE, ringcast, wait_for

from ringcast.outbox.store import Outbox


@pytest.fixture
def publisher(tmp_path):
    """Return a function that starts the command. The test ends what it starts."""
    started = []

    def start(*more, port):
        started.append(start_publisher(tmp_path / "o", port, *more))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


@pytest.mark.parametrize(("options", "says"), [
    ([], "1,000 messages published\n"),
    (["--json"], '{{"published": {{"messages": 1000, "path": "{}/o"}}}}\n')])
def test_a_publisher_publishes_until_a_signal_and_says_how_much(tmp_path, publisher, options, says):
    port, outbox = free_port(), Outbox(tmp_path / "o")
    with Member(port=port) as member:
        running = publisher(*options, port=port)
        wait_for(lambda: outbox.is_served() and outbox.ledger() is not None)
        number = put(outbox, "q", 0, [b"%d" % number for number in range(1000)])
        wait_for(lambda: outbox.is_finished(number))
        running.send_signal(signal.SIGTERM)
        said, complained = running.communicate(timeout=PATIENCE)
        assert (running.returncode, said, complained) == (0, says.format(tmp_path), "")
        wait_for(lambda: member.channel.view.names == ("r",))       # nobody waits for its acks
        assert "was stopped" in outbox.status().state and not outbox.is_served()


IN_ITS_LOCK = """
import signal
from ringcast.cli import main
from ringcast.outbox.publisher import Publisher

def run(self):
    with self._stop._cond:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
    assert self._stop.wait(60)

Publisher.run = run
main()
"""


def test_a_signal_that_interrupts_the_publisher_while_it_waits_is_heard(tmp_path):
    """An event that waits has a lock, for a moment."""
    ran = subprocess.run([sys.executable, "-c", IN_ITS_LOCK, "publish", tmp_path / "o", "--group",
                          "g", "--quiet"], capture_output=True, text=True, timeout=PATIENCE,
                         check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "0 messages published\n", "")


def test_a_publisher_stopped_within_a_batch_leaves_and_the_next_one_continues(tmp_path, publisher):
    port, outbox = free_port(), Outbox(tmp_path / "o")
    payloads = [b"%d" % number for number in range(200_000)]
    with Member(port=port) as member:
        running = publisher(port=port)
        wait_for(lambda: outbox.is_served() and outbox.ledger() is not None)
        member.may_finish.clear()
        number = put(outbox, "q", 0, payloads)
        wait_for(lambda: outbox.status().waiting_for == "r")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
        publisher(port=port)
        wait_for(lambda: "waits for members to finish" in outbox.status().state)
        assert not outbox.is_finished(number)
        member.may_finish.set()
        wait_for(lambda: outbox.is_finished(number))
        assert member.got == payloads


def test_a_second_publisher_of_an_outbox_is_refused(tmp_path, publisher):
    port = free_port()
    publisher(port=port)
    wait_for(lambda: Outbox(tmp_path / "o").is_served())
    second = publisher(port=port)
    said = second.communicate(timeout=PATIENCE)[1]
    assert second.returncode == 2 and "has a publisher already" in said
    assert said.startswith("ringcast: ") and said.count("\n") == 1


@pytest.mark.parametrize(("options", "missing"), [
    (["--expect", "r, s"], "r, s"), (["--expect", "r"], "r"), ([], "another member")])
def test_members_that_are_missing_are_named_in_the_status(tmp_path, publisher, options, missing):
    publisher(*options, port=free_port())
    outbox = Outbox(tmp_path / "o")
    wait_for(lambda: (status := outbox.status()) is not None
             and status.state == f"waits for {missing} to join the group")


def test_a_publisher_that_is_interrupted_while_it_joins_ends_at_once(tmp_path, publisher):
    running, outbox = publisher(port=free_port()), Outbox(tmp_path / "o")
    wait_for(lambda: (status := outbox.status()) is not None and "join" in status.state)
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=20) == ("0 messages published\n", "")
    assert running.returncode == 130


@pytest.mark.parametrize("seconds", ["nan", "-1", "0"])
def test_the_files_of_failed_tasks_are_kept_for_a_time(tmp_path, seconds):
    run = ringcast("publish", tmp_path / "o", "--group", "g", "--keep-parts", seconds)
    assert run.returncode == 2 and "greater than or equal to 1" in run.stderr


def test_a_stack_that_joins_no_processes_is_refused(tmp_path):
    run = ringcast("publish", tmp_path / "o", "--group", "g", "--stack", "inproc")
    assert run.returncode == 2 and "that connects processes" in run.stderr
