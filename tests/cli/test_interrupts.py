"""Ctrl-C ends every command, with the exit status 130, and all that it has started."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from channels import new_group
from ports import free_port
from processes import PATIENCE, RINGCAST, ringcast, wait_for


def session_of(pid):
    """Return the processes of a session that are no zombies, and what they run."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):                     # it has just ended
            state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(session) == pid and state not in "ZX":
                found[int(entry.name)] = (entry / "cmdline").read_bytes()
    return found


class Command:
    """A command at a terminal of its own, which sends Ctrl-C to all its processes."""

    def __init__(self, words, folder):
        self.process = subprocess.Popen(
            [*RINGCAST, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder)
        self.pid = self.process.pid

    def num_running(self, program):
        """Return how many of its processes run a program, by a word of the command
        line."""
        return sum(program in line for line in session_of(self.pid).values())

    def interrupt(self):
        """Send Ctrl-C. Return the exit status and what the command has written."""
        os.killpg(self.pid, signal.SIGINT)
        out, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, said


@pytest.fixture
def command(tmp_path):
    """Yield a function that starts a command; the test ends what is left."""
    started = []

    def start(*words):
        started.append(Command(words, tmp_path))
        return started[-1]

    yield start
    for each in started:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.process.communicate()


# What Spark's own Python says when it finds that its Java is gone; it may be cut off.
SPARKS_OWN = re.compile(r'Traceback \(most recent call last\):\n'
                        r'(  File "[^"]*/pyspark/[^\n]*\n?(    [^\n]*\n?)*)*'
                        r'(BrokenPipeError[^\n]*\n?)?')


def assert_ends(running):
    status, out, said = running.interrupt()
    said = SPARKS_OWN.sub("", said)
    assert status == 130, said
    assert not re.search('Traceback|^  File "|Error', said, re.MULTILINE), said
    wait_for(lambda: not session_of(running.pid))
    return out


@pytest.mark.udp
@pytest.mark.parametrize("words", [
    ["join", "g"], ["record", "j", "--group", "g"], ["publish", "o", "--group", "g"],
    ["members", "g", "--timeout", "600"]], ids=lambda words: words[0])
def test_ctrl_c_ends_a_member(command, words):
    port = free_port()
    if words[0] == "members":
        words = [*words, "--set", "seek_interval=60000"]
    running = command(*words, "--set", f"port={port}")
    socket = f":{port:04X} "
    wait_for(lambda: socket in Path("/proc/net/udp").read_text())
    assert_ends(running)


@pytest.mark.prove
def test_ctrl_c_ends_simulations_and_their_workers(command):
    running = command("simulate", "--seeds", "100000", "--workers", "2")
    wait_for(lambda: running.num_running(b"spawn_main") == 2)
    assert_ends(running)


@pytest.mark.prove
@pytest.mark.udp
def test_ctrl_c_ends_a_measurement_and_its_members(command):
    running = command("perf", "--members", "3", "--seconds", "60", "--runs", "1",
                      "--port", free_port())
    wait_for(lambda: running.num_running(b"spawn_main") == 3)
    assert_ends(running)


@pytest.mark.spark
@pytest.mark.parametrize(("words", "program", "number"), [
    (["audit", "traces"], b"SparkSubmit", 1),
    (["simulate", "--spark", "--loss", "0,0.01"], b"SparkSubmit", 1),
    (["simulate", "--audit", "--workers", "2"], b"spawn_main", 2),
    (["demo"], b"spawn_main", 5)], ids=["audit", "simulate", "simulate-audit", "demo"])
def test_ctrl_c_ends_a_command_its_java_and_its_members(command, words, program, number, tmp_path):
    if words[0] == "audit":
        assert ringcast("simulate", "--seed", "3", "--trace", tmp_path / "traces").returncode == 0
    running = command(*words)
    wait_for(lambda: running.num_running(program) == number, patience=200)
    assert_ends(running)


@pytest.mark.spark
def test_a_java_that_was_killed_is_one_sentence_and_status_2(command):
    """Status 1 would say that a run has failed."""
    running = command("simulate", "--spark")
    wait_for(lambda: running.num_running(b"pyspark.daemon"), patience=200)
    for pid, line in session_of(running.pid).items():
        if b"SparkSubmit" in line:
            os.kill(pid, signal.SIGKILL)
    _, said = running.process.communicate(timeout=PATIENCE)
    assert running.process.returncode == 2, said
    assert "ringcast: Spark's Java has ended before" in said
    assert "Traceback" not in SPARKS_OWN.sub("", said)


# ------------------------------------------------------------- at the beginning and at the end

BEFORE = """
import atexit, os, signal, sys
from ringcast.cli import main

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)

def when_imported(name, act):
    sys.addaudithook(lambda event, words: event == "import" and words[0] == name and act())
"""


def run_with(setting):
    """Run `ringcast status` of a group of which nobody is here, with this before it.
    Return its exit status, what it has said, and its errors."""
    done = subprocess.run(
        [sys.executable, "-c", f"{BEFORE}{setting}\nsys.argv[1:] = ['status', {new_group()!r}]\n"
                               "main()"], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


LOADED = ["typer", "ringcast.cli.app", "ringcast.errors", "msgspec", "ringcast.cli.seen",
          "ringcast.snapshot", "ringcast.statusfile"]


@pytest.mark.parametrize("name", LOADED)
def test_ctrl_c_while_a_command_is_loaded_is_status_130(name):
    assert run_with(f"when_imported({name!r}, interrupt)") == (130, "", "")


@pytest.mark.parametrize("register", ["atexit.register", "threading._register_atexit"])
def test_ctrl_c_while_python_waits_for_threads_and_modules_at_the_end_is_status_130(register):
    status, said, error = run_with("import threading\nwhen_imported('ringcast.cli.seen', "
                                   f"lambda: {register}(interrupt))")
    assert (status, error) == (130, "") and said.startswith("no channel of group ")


def test_ctrl_c_is_status_130_if_an_error_of_spark_takes_its_place():
    """As PySpark's toArrow(), which calls Java while the KeyboardInterrupt passes."""
    assert run_with("""
def interrupted(group):
    interrupts.let_end_java()
    logging.error("what Spark's Python says")
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        raise RuntimeError("Java is gone")

import logging
from ringcast.cli import interrupts, seen
seen.look = interrupted""") == (130, "", "")


def test_ctrl_c_while_python_takes_its_modules_apart_leaves_the_status_as_it_is():
    status, said, error = run_with(
        "class Last:\n    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGINT):\n"
        "        kill(me, number)\nlast = Last()")
    assert (status, error) == (1, "") and said.startswith("no channel of group ")
