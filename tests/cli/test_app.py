"""The application: commands are imported when they are called."""

import json
import os
import signal
import subprocess
import sys

import pytest
from channels import new_group
from processes import PATIENCE, RINGCAST, ringcast, wait_for

from ringcast import Channel
from ringcast.cli.app import COMMANDS, load
from ringcast.statusfile import snapshots

SLOW = {"pyarrow", "numpy", "msgspec", "ringcast.channel", "ringcast.stacks", "ringcast.sim"}


NOT_FOR_HELP = {"rich", "pydantic", "multiprocessing", "pyarrow", "numpy", "pandas", "pyspark",
                "plotly", "isal", "ringcast.channel", "ringcast.stack", "ringcast.stacks",
                "ringcast.transport", "ringcast.protocols.membership", "ringcast.sim.cluster",
                "ringcast.journal.writer", "ringcast.audit.verdict", "ringcast.spark.session"}


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


@pytest.mark.parametrize("words", [*([name] for name in COMMANDS), ["journal", "show"]],
                         ids=" ".join)
def test_a_help_loads_nothing_that_only_the_command_needs(words):
    loaded = modules_after(*words, "--help")
    assert "typer" in loaded
    assert loaded & NOT_FOR_HELP == set()


def test_python_m_ringcast_is_the_command():
    done = subprocess.run([sys.executable, "-m", "ringcast", "--version"], capture_output=True,
                          text=True)
    assert (done.returncode, done.stdout) == (0, ringcast("--version").stdout)


@pytest.mark.parametrize("words", [[], ["perf"], ["journal"], ["journal", "show"]],
                         ids=" ".join)
def test_h_is_help_everywhere(words):
    short = ringcast(*words, "-h")
    assert short.returncode == 0
    assert short.stdout == ringcast(*words, "--help").stdout != ""


@pytest.mark.parametrize(("line", "offered"), [
    ("ringcast pe", {"perf"}), ("ringcast journal p", {"purge"}),
    ("ringcast members --s", {"--stack", "--secret-file", "--set"}),
    ("ringcast members g --stack nak", {"nakack2-udp", "nakack2-tcp"}),
    ("ringcast members g --set cap", {"capacity="})])
def test_a_shell_completes_commands_options_and_their_values(line, offered):
    assert completed(line) == offered


@pytest.mark.parametrize("line", ["top", "status", "monitor", "doctor", "members", "join",
                                  "record j --group", "publish o --group"])
def test_a_shell_completes_the_groups_that_have_members_here(line):
    group = new_group()
    with (Channel(group, name="A", stack="inproc"), Channel(f"{group};ls", stack="inproc")):
        assert completed(f"ringcast {line} {group[:-1]}") >= {group}
        assert completed(f"ringcast {line} {group}") == {group}


def completed(line):
    """Return what bash is offered for the last word of a line."""
    asking = {"_RINGCAST_COMPLETE": "complete_bash", "COMP_WORDS": line,
              "COMP_CWORD": str(line.count(" "))}
    return set(ringcast(env={**os.environ, **asking}).stdout.split())


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


def test_a_word_too_many_is_told_with_the_whole_name_of_its_command():
    done = ringcast("journal", "retire", "one", "two")
    assert done.returncode == 2 and "Usage: ringcast journal retire " in done.stderr


@pytest.mark.parametrize(("words", "says"), [
    (["keygen", "./keys//of.us"], "./keys//of.us holds a new secret"),
    (["members", "g", "--secret-file", "./no//key"], "the secret './no//key' cannot be read: "),
    (["members", "g", "--trust", "./keys//no"], "the folder './keys//no' of trusted keys cannot "),
    (["trust", "list", "./keys//no"], "the folder './keys//no' of trusted keys cannot be read: "),
    (["keygen", "file://{}/keys/of.us"], "file://{}/keys/of.us holds a new secret"),
    (["perf", "--seconds", "12345678.5"], "--seconds 12345678.5 is outside 0.01 to 3,600"),
    (["perf", "--size", "12345678"], "--size 12345678 is outside"),
    (["perf", "--stack", "MCAST"], "there is no stack 'MCAST'; choose one of mcast-udp"),
    (["members", "g", "--stack", "inproc"], "there is no stack 'inproc' that connects processes"),
    (["simulate", "--stack", "inproc"], "there is no stack 'inproc' that connects processes"),
    (["journal", "show", "./not//here/"], "there is no journal at ./not//here/: "),
    (["record", "s3a://b/j", "--group", "g"], "s3a://b/j is not a path of this machine"),
    (["demo", "--keep", "s3a://b/j"], "s3a://b/j is not a path of this machine"),
    (["members", "g", "--set", "capacity=1k"], "capacity takes a whole number from 1 up to "
                                                "67108864, not '1k'; "),
    (["record", "j", "--group", "g", "--keep-for", "1.50h"], "not '1.50h'")])
def test_what_was_typed_is_echoed_as_it_was_typed(words, says, tmp_path):
    (tmp_path / "keys").mkdir()
    done = ringcast(*(word.format(tmp_path) for word in words), cwd=tmp_path)
    assert says.format(tmp_path) in " ".join((done.stdout + done.stderr).split())


printing = pytest.mark.parametrize("words", [
    ["--help"], ["--version"], ["perf", "--help"], ["status", "nobody"],
    ["simulate", "--seed", "1", "--duration", "0.1", "--members", "2"]], ids=" ".join)


def with_output(output, words, unbuffered):
    """Run a command with this output. Return its status and errors."""
    done = subprocess.run([*RINGCAST, *words], stdout=output, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"PYTHONUNBUFFERED": unbuffered}, timeout=PATIENCE)
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@printing
def test_where_no_room_is_left_for_the_output_a_sentence_says_so(words, unbuffered):
    with open("/dev/full", "w") as full:
        assert with_output(full, words, unbuffered) == (
            2, "ringcast: there is no room left on the device of a file, or of standard output; "
               "make room and run it again\n")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@printing
def test_a_command_whose_output_nobody_reads_ends_without_a_word(words, unbuffered):
    there, here = os.pipe()
    os.close(there)
    with os.fdopen(here, "w") as pipe:
        assert with_output(pipe, words, unbuffered) == (128 + signal.SIGPIPE, "")


def test_an_option_before_the_command_does_not_hide_it():
    load(["--some-option", "members", "--json"])
    assert "ringcast.cli.members" in sys.modules


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["top"]])
def test_what_the_encoding_of_the_output_lacks_is_escaped(words):
    with Channel(new_group() + "-ä", name="\u00c4\U0001f600", stack="inproc",
                 deliver=False) as channel:
        wait_for(lambda: snapshots(channel.group))
        said = subprocess.run([*RINGCAST, words[0], channel.group, *words[1:]], capture_output=True,
                              env=os.environ | {"PYTHONIOENCODING": "ascii"}, timeout=PATIENCE)
    assert said.returncode == 0 and rb"\u00c4\ud83d\ude00" in said.stdout, said.stderr
    if "--json" in words:
        assert json.loads(said.stdout.splitlines()[0])["name"] == "\u00c4\U0001f600"


@pytest.mark.parametrize("words", [["status", "nobody"], ["top", "nobody"], ["--version"]],
                         ids=" ".join)
def test_standard_streams_may_be_closed(words):
    done = subprocess.run(["sh", "-c", '"$@" <&- >&-', "sh", *RINGCAST, *words],
                          stderr=subprocess.PIPE, text=True)
    assert (done.stderr, done.returncode) == ("", ringcast(*words).returncode)


def test_a_member_whose_input_is_closed_leaves_and_sends_nothing_of_its_own():
    done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *RINGCAST, "join", new_group(), "--json",
                           "--stack", "mcast-tcp"], capture_output=True, text=True)
    assert done.returncode == 0 and '"message"' not in done.stdout


@pytest.mark.parametrize("name", ["name", "secret", "on_message", "deliver"])
def test_an_argument_of_a_channel_is_no_option_to_set(name):
    done = ringcast("join", new_group(), "--set", f"{name}=x")
    assert done.returncode == 2 and f"there is no option '{name}'" in done.stderr
