"""The application: commands are imported when they are called."""

import subprocess
import sys

import pytest
from processes import ringcast

from ringcast.cli.app import COMMANDS, load

SLOW = {"pyarrow", "numpy", "msgspec", "ringcast.channel", "ringcast.stacks", "ringcast.sim"}


def modules_after(*words):
    """Return the modules that are loaded when the command line has ended."""
    code = ("import atexit, sys; from ringcast.cli import main; "
            "atexit.register(lambda: print('\\n', *sys.modules)); main()")
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--help"], ["--version"], [], ["no-such-command"]])
def test_what_calls_no_command_loads_nothing_slow(words):
    loaded = modules_after(*words)
    assert "typer" in loaded
    assert loaded & SLOW == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_of_the_list_is_there(name):
    done = ringcast(name, "--help")
    assert done.returncode == 0
    assert f" {name} [OPTIONS]" in done.stdout


def test_the_list_has_all_commands():
    done = ringcast("--help")
    listed = done.stdout.partition("Commands:\n")[2].splitlines()
    assert {line.split()[0]: line.split(maxsplit=1)[1] for line in listed if line} == {
        name: summary for name, (_, summary) in COMMANDS.items()}


def test_an_option_before_the_command_does_not_hide_it():
    load(["--some-option", "members", "--json"])
    assert "ringcast.cli.members" in sys.modules
