"""`ringcast join`, a member at a terminal, and `ringcast members`, who asks who is
there."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from itertools import islice

import pytest
from channels import new_group
from ports import free_port
from processes import PATIENCE, RINGCAST, ringcast, wait_for

from ringcast import Address, Channel, View
from ringcast.cli.join.terminal import Terminal

STACKS = [pytest.param("mcast-udp", marks=pytest.mark.udp), "nakack2-tcp"]


@pytest.fixture(params=STACKS)
def group(request):
    """What a test's group shares, for a channel and for a command."""
    class Group:
        name, stack, port = new_group(), request.param, free_port()
        options = {"stack": stack, "port": port}
        words = [name, "--stack", stack, "--set", f"port={port}"]
    return Group


class Member:
    """A command `ringcast join`, and what it has said."""

    def __init__(self, group, *words, **options):
        self.process = subprocess.Popen(
            [*RINGCAST, "join", *group.words, *words],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               **options})
        self.said = []

    def type(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def until(self, condition):
        """Read lines until one is as wanted. Return it."""
        for line in self.process.stdout:
            self.said.append(line.decode())
            if condition(self.said[-1]):
                return self.said[-1]
        raise AssertionError(f"it ended: {self.process.stderr.read().decode()}")

    def until_json(self, kind):
        """Read lines until one tells of a view, or of a message. Return that."""
        return json.loads(self.until(lambda line: kind in json.loads(line)))[kind]

    def end(self):
        """Wait until it has ended. Return its exit status and what else it said."""
        rest, complaint = self.process.communicate(timeout=PATIENCE)
        self.said += rest.decode().splitlines(keepends=True)
        return self.process.returncode, complaint.decode()


@pytest.fixture
def join():
    """Return a function that starts the command. The test ends what it starts."""
    started = []

    def start(*words, **options):
        started.append(Member(*words, **options))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def test_two_terminals_show_each_other_as_json(group, join):
    ann, bob = (join(group, "--name", name, "--json") for name in ("ann", "bob"))
    for each in (ann, bob):
        view = each.until_json("view")
        while set(view["members"]) != {"ann", "bob"}:
            view = each.until_json("view")
        assert list(view) == ["id", "members", "coordinator", "joined", "left", "primary",
                              "absent", "observers"]
        assert view["coordinator"] == view["members"][0] and view["left"] == []
        assert view["primary"] is True
    ann.type("grüß \t dich\n".encode())
    message = {"sender": "ann", "seqno": 1, "payload": "grüß \t dich"}
    assert bob.until_json("message") == ann.until_json("message") == message
    bob.type(b"\xff\x00\nno end")
    assert bob.end() == (0, "")                     # at the end of its input
    assert ann.until_json("message") == {"sender": "bob", "seqno": 1, "payload_base64": "/wA="}
    assert ann.until_json("message") == {"sender": "bob", "seqno": 2, "payload": "no end"}
    assert ann.until_json("view")["left"] == ["bob"]
    assert json.loads(bob.said[-1])["message"]["payload"] == "no end"      # it has seen its own


def test_an_observer_joins_and_is_named(group, join):
    ann = join(group, "--name", "ann", "--json")
    ann.until_json("view")
    watcher = join(group, "--name", "watcher", "--json", "--slow", "observe")
    for each in (ann, watcher):
        view = each.until_json("view")
        while view["members"] != ["ann", "watcher"]:
            view = each.until_json("view")
        assert view["observers"] == ["watcher"]
    ann.type(b"hello\n")
    assert watcher.until_json("message") == {"sender": "ann", "seqno": 1, "payload": "hello"}


def test_an_observer_shows_what_it_missed(capfd):
    Terminal(as_json=True, observes=True).on_skipped(Address("ann", 1), 3, 7)
    assert json.loads(capfd.readouterr().out) == {
        "skipped": {"sender": "ann", "first": 3, "last": 7}}
    Terminal(as_json=False, observes=True).on_skipped(Address("an\x1bn", 1), 3, 7)
    assert capfd.readouterr().out == "-- missed messages 3 to 7 of an\\x1bn\n"


def test_a_view_with_the_same_members_says_so(capfd):
    """As when the key of a view was old."""
    Terminal(as_json=False).on_view(View(5, (Address("ann", 1), Address("bob", 2))))
    assert capfd.readouterr().out == "-- ann, bob (the same members)\n"


def test_in_a_narrow_terminal_a_view_is_folded_between_words(monkeypatch, capfd):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in {"COLUMNS": "30", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    members = tuple(Address(name, number) for number, name in enumerate(
        ("recorder.example.org", "dashboard.example.org"), 1))
    Terminal(as_json=False).on_view(View(5, members, joined=members[1:]))
    assert capfd.readouterr().out.splitlines() == [
        "-- recorder.example.org,", "   dashboard.example.org", "   (dashboard.example.org",
        "   joined)"]


def test_what_people_read_has_no_code_that_steers_the_terminal(group, join):
    reader = join(group, "--name", "reader")
    reader.until(lambda line: line == "-- reader (reader joined)\n")
    with Channel(group.name, name="e\x1b[2Jvil", on_message=print, **group.options) as channel:
        assert reader.until(lambda line: "evil" not in line and "vil joined" in line) == (
            "-- reader, e\\x1b[2Jvil (e\\x1b[2Jvil joined)\n")
        channel.send("[bold]\x1b]0;title\x07 \xff €".encode() + b"\xfe")
        channel.send(b"secret", "reader")
        lines = {reader.until(lambda line: "vil" in line and ": " in line) for _ in range(2)}
    assert lines == {"e\\x1b[2Jvil: [bold]\\x1b]0;title\\x07 ÿ €\\xfe\n",
                     "e\\x1b[2Jvil (to this member alone): secret\n"}
    reader.until(lambda line: line == "-- reader (e\\x1b[2Jvil left)\n")


def test_an_output_without_a_character_shows_its_escape(group, join):
    """As in all commands; a question mark could be any other name."""
    listener = join(group, "--name", "J\u00fcrg", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    listener.type("gr\u00fcezi\n".encode())
    assert listener.until(lambda line: "gr" in line) == "J\\u00fcrg: gr\\u00fcezi\n"


def test_a_message_to_the_terminal_alone_says_so_in_json(group, join):
    reader = join(group, "--name", "reader", "--json")
    reader.until_json("view")
    with Channel(group.name, name="A", on_message=print, **group.options) as channel:
        wait_for(lambda: len(channel.view) == 2)
        channel.send(b"psst", "reader")
        message = reader.until_json("message")
    assert (message["sender"], message["dest"], message["payload"]) == ("A", "reader", "psst")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_ends_it_in_good_order(group, join, number):
    with Channel(group.name, name="A", on_message=print, **group.options) as channel:
        reader = join(group, "--name", "reader")
        reader.until(lambda line: "reader joined" in line)
        wait_for(lambda: len(channel.view) == 2)
        reader.process.send_signal(number)
        assert reader.end() == (128 + number, "")
        wait_for(lambda: channel.view.names == ("A",))
        assert channel.status().membership.num_suspected == 0       # it has said that it leaves


def test_a_signal_ends_it_while_it_joins(group, join):
    with Channel(group.name, name="A", on_message=print, **group.options) as channel:
        reader = join(group, "--set", "min_members=3")
        wait_for(lambda: len(channel.view) == 2)            # so it handles signals
        reader.process.send_signal(signal.SIGINT)
        assert reader.end() == (130, "")
        wait_for(lambda: channel.view.names == ("A",))


def test_a_reader_that_goes_away_ends_it_quietly(group, join):
    there, here = os.pipe()
    reader = join(group, "--json", stdout=here)
    os.close(here)
    with os.fdopen(there, "rb") as output:
        output.readline()
    reader.type(b"nobody reads this\n")
    assert reader.process.wait(PATIENCE) == 128 + signal.SIGPIPE
    assert reader.process.stderr.read() == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_does_not_block_gets_every_line(group, join, unbuffered):
    """As where programs share a terminal, and one of them has chosen so for all."""
    there, here = os.pipe()
    os.set_blocking(here, False)
    room = fcntl.fcntl(here, fcntl.F_SETPIPE_SZ, 4096)
    reader = join(group, "--json", stdout=here, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    os.close(here)
    for number in range(100):
        reader.type(b"%d" % number + b"x" * 1000 + b"\n")
    wait_for(lambda: waiting_in(there) > room // 2)
    with os.fdopen(there, "rb") as output:
        view, *messages = map(json.loads, islice(output, 101))
    assert "view" in view
    assert [each["message"]["seqno"] for each in messages] == [*range(1, 101)]


def waiting_in(pipe):
    """Return how many bytes wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_full_disk_ends_it_with_a_sentence(group):
    with open("/dev/full", "w") as full:
        run = subprocess.run([*RINGCAST, "join", *group.words], stdin=subprocess.PIPE, stdout=full,
                             stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert run.returncode == 2
    assert run.stderr.startswith("ringcast: there is no room left") and len(run.stderr) < 200


def test_lines_of_a_file_arrive_whole_and_in_order(group, join, tmp_path):
    lines = [b"%d " % number + b"x" * (number % 3000) for number in range(3000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    got = []
    with Channel(group.name, on_message=lambda batch: got.extend(batch.payloads),
                 **group.options) as channel:
        with open(tmp_path / "lines", "rb") as file:
            sender = join(group, "--name", "S", "--set", "min_members=2", stdin=file)
            assert sender.end() == (0, "")
        wait_for(lambda: len(got) >= 3000)
        assert got == lines and len(channel.view) >= 1


def test_lines_of_a_member_without_the_majority_wait(group, join):
    """The older of two dies. The younger one may send again when all have started
    again; until then its lines wait."""
    options = {"heartbeat_interval": 20, "suspect_timeout": 300, "partition": "primary",
               "min_members": 1}
    channel = Channel(group.name, name="A", on_message=print, **group.options, **options).connect()
    young = join(group, "--name", "young", "--json", "--partition", "primary",
                 *(word for name in ("heartbeat_interval", "suspect_timeout", "min_members")
                   for word in ("--set", f"{name}={options[name]}")))
    assert young.until_json("view")["primary"] is True
    young.type(b"with A\n")
    assert young.until_json("message")["payload"] == "with A"
    channel.close(0, leave=False)
    view = young.until_json("view")
    assert (view["members"], view["primary"]) == (["young"], False)
    young.type(b"alone\n")
    assert b"ringcast: this member is in" in young.process.stderr.readline()
    young.process.send_signal(signal.SIGINT)
    assert young.end() == (130, "") and "alone" not in young.said[-1]


def test_a_second_member_with_the_same_name_says_what_to_do(group, join):
    with Channel(group.name, name="A", on_message=print, **group.options):
        second = join(group, "--name", "A")
        assert second.end() == (2, "ringcast: another member has the name 'A'; give every member "
                                   "its own name\n")


def test_members_names_all_without_joining(group):
    views = []
    with (Channel(group.name, name="A", on_view=views.append, on_message=print,
                  **group.options) as channel,
          Channel(group.name, name="\x07B", on_message=print, **group.options)):
        wait_for(lambda: len(channel.view) == 2)
        asked = ringcast("members", *group.words)
        assert (asked.returncode, asked.stdout, asked.stderr) == (0, "A\n\\x07B\n", "")
        asked = ringcast("members", *group.words, "--json")
        assert asked.returncode == 0 and asked.stdout.count("\n") == 1
        assert json.loads(asked.stdout) == {"view": {
            "id": channel.view.id, "members": ["A", "\x07B"], "coordinator": "A"}}
        assert len(views) <= 2


def test_members_of_a_group_that_is_not_there(group):
    asked = ringcast("members", *group.words, "--timeout", "0.2")
    assert (asked.returncode, asked.stderr) == (1, "")
    assert asked.stdout == f"nobody of group {group.name} has answered within 0.2 s\n"
    asked = ringcast("members", *group.words, "--timeout", "0.2", "--json")
    assert (asked.returncode, asked.stdout, asked.stderr) == (1, "", "")


@pytest.mark.parametrize("command", ["join", "members"])
def test_a_discovery_that_is_none_is_refused(group, command):
    run = ringcast(command, *group.words, "--discovery", "bees", stdin=subprocess.DEVNULL)
    assert run.returncode == 2 and "discovery='bees' is none of multicast" in run.stderr
    assert run.stderr.count("\n") == 1


def test_members_that_a_folder_names_are_found(tmp_path):
    """Over TCP; without it, each would dial no port but its own."""
    first = free_port(2)
    folder, options = f"folder:{tmp_path}", {"stack": "mcast-tcp", "port_range": 1}
    with Channel("folder", name="A", port=first, discovery=folder, on_message=print, **options):
        wait_for(lambda: list(tmp_path.glob("*.json")))
        asked = ringcast("members", "folder", "--stack", "mcast-tcp", "--set", "port_range=1",
                         "--set", f"port={first + 1}", "--discovery", folder, "--timeout", "20")
    assert (asked.returncode, asked.stdout) == (0, "A\n")
