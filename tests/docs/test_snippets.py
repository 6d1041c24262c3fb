"""The Python that the documents show runs as it stands, and shows every public name."""

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from ports import FIRST, free_port, moved

import ringcast
from ringcast import Batch, Channel, Digest, Message, View, aio
from ringcast.secret import write_secret
from ringcast.trust import new_key

ROOT = Path(__file__).parents[2]
WITH_SPARK = "## With Spark"            # in docs/errors.md: what follows is a program of its own


def blocks(text):
    """Return the Python blocks of a text, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def program(page):
    """Return the Python blocks of a page, as one program."""
    return blocks((ROOT / page).read_text())


def printed(source, folder):
    """Run a program in an empty folder, on ports of its own, to its good end. Return
    what it has written."""
    source = moved(source, free_port(200))
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines(), run.stderr


def test_a_program_has_ports_of_its_own(tmp_path):
    source = "from ringcast.config import configure\nprint(configure({}).port, 7700, 7790)"
    lines, _ = printed(source, tmp_path)
    default, first, last = map(int, lines[0].split())
    assert default == first == last - 90 and first >= FIRST


def test_the_blocks_of_the_page_on_groups_are_one_program_that_runs(tmp_path):
    lines, _ = printed(program("docs/groups.md"), tmp_path)
    both = "in the view of ('A', 'B')"
    assert lines == ["('A',), led by A", "A has come",
                     f"B1, {both}", f"B2, {both}", f"B3, {both}",
                     "B is gone; everybody has its messages up to 3",
                     "0 messages were not delivered", "('A',)",
                     "('A',) ('B',)", "one again: ['A', 'B'] tell the others"]


def test_the_blocks_of_the_guide_are_one_program_that_runs(tmp_path):
    lines, error = printed(program("docs/guide.md"), tmp_path)
    unread = r"A#\w+: A#\w+ left before it had acknowledged 1 message to it alone\n"
    assert re.fullmatch(rf"(?:{unread})?", error)           # nobody reads the one to A alone
    assert lines[:3] == ["A of guide, over mcast-udp: ('A',)",
                         "17 of the 32768 places in the window",
                         f"a datagram has {ringcast.MAX_PAYLOAD} bytes of at most "
                         f"{ringcast.MAX_PAYLOAD}"]
    assert lines[3:7] == [f"A {seqno} b'{word}'" for seqno, word in
                          enumerate(["hello", "one", "two", "three"], 1)]
    assert lines[7:10] == ["8 bytes, 0 late, all in this view: True", "newest: b'21.9'",
                           "A says b'hello'"]
    assert lines[10].startswith("no member 'B' is in the view")
    assert lines[11:17] == ["out of band: b'now'", "['recorder'] is expected back",
                            "goes on with b'two'", "None", "the others have 2 [(0, 2)]", "3 True"]
    assert lines[17].startswith("this member was to end with the view [")
    assert len(lines) == 20


def test_the_blocks_of_the_page_on_errors_are_one_program_that_runs(tmp_path):
    lines, _ = printed(blocks((ROOT / "docs/errors.md").read_text().partition(WITH_SPARK)[0]),
                       tmp_path)
    said = ["there is no option 'capasity'; did you mean 'capacity'?", "99 no interface ",
            "group 'errors' has 1 of the 2 members ", "10 of 100 are sent; slow takes nothing",
            "a message of 100000 bytes does not fit ", "another member has the name 'A'; ",
            "closed by itself: True False", "not all members said within 0.2 s ",
            "the end is 1", "[b'one', b'two']", "There is no journal at flights.journal: ",
            "The outbox outbox cannot be used ", "flights: no member 'B' is in the view"]
    assert [line for line, begin in zip(lines, said, strict=True)
            if not line.startswith(begin)] == []


@pytest.mark.spark
def test_the_blocks_on_errors_in_spark_are_one_program_that_runs(tmp_path):
    lines, _ = printed(blocks((ROOT / "docs/errors.md").read_text().partition(WITH_SPARK)[2]),
                       tmp_path)
    assert lines == ["the publisher is not there, or a member does not acknowledge",
                     "there is no traces; name the directory that a channel's option trace, or "
                     "simulate --trace, names"]


def test_the_blocks_of_the_page_on_windows_print_what_their_comments_say(tmp_path):
    source = program("docs/windows.md")
    lines, error = printed(source, tmp_path)
    said = re.findall(r"print\(.*\) +# ([^:\n]+)", source)
    assert len(said) == 8
    assert (lines, error) == ([*said, "b'the first one after 100' None"], "")


@pytest.mark.udp
def test_the_blocks_of_the_page_on_security_are_one_program_that_runs(tmp_path):
    write_secret(tmp_path / "flights.secret")
    new_key(tmp_path / "flights.trust", "tower")
    source = program("docs/security.md").replace("/etc/", f"{tmp_path}/")
    assert printed(source, tmp_path) == (["b'sealed'", "('tower/1', 'tower/2')"], "")


# ------------------------------------------------------------------------- every public name

PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in
                               ("guide", "groups", "errors", "windows", "security"))]
PROGRAMS = [*map(program, PAGES), *(path.read_text() for path in (ROOT / "examples").glob("*.py"))]

# Layers give these to each other; a program has no use for them.
OF_LAYERS = {"Batch.addressed", "Batch.stamp", "Batch.stream"}
BY_PYTHON = {"Channel.fileno"}          # a selector calls it


def shown():
    """Return the names that the programs use, by what they are used as."""
    used = defaultdict(set)
    for node in (node for text in PROGRAMS for node in ast.walk(ast.parse(text))):
        match node:
            case ast.ImportFrom():
                used["import"] |= {each.name for each in node.names}
            case ast.Name(id):
                used["name"].add(id)
            case ast.Attribute():
                used["attribute"].add(node.attr)
            case ast.keyword():
                used["argument"].add(node.arg)
    return used


def attributes(kind):
    """Return the public attributes of a class, and those that its constructor makes.
    What a built-in type has is not ours."""
    own = {each for each in dir(kind) if not each.startswith("_")}
    if inspect.isfunction(kind.__init__):
        own |= set(re.findall(r"^        self\.([a-z]\w*)(?=[:, =])",
                              inspect.getsource(kind.__init__), re.MULTILINE))
    return own - {each for base in (dict, object) if issubclass(kind, base) for each in dir(base)}


def test_every_public_name_is_imported_by_a_program_that_runs_and_used_there():
    used = shown()
    assert set(ringcast.__all__) - (used["import"] & (used["name"] | {"Address"})) == set()


@pytest.mark.parametrize("kind", [Channel, aio.Channel, View, Digest, Batch, Message],
                         ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_public_attribute_is_used_by_a_program_that_runs(kind):
    there = attributes(kind) - shown()["attribute"]
    assert {f"{kind.__name__}.{name}" for name in there} - OF_LAYERS - BY_PYTHON == set()


def test_every_argument_of_a_channel_is_given_by_a_program_that_runs():
    there = {name for name, each in inspect.signature(Channel).parameters.items()
             if each.kind is each.KEYWORD_ONLY}
    assert len(there) > 15 and there - shown()["argument"] == set()


def test_attributes_of_a_channel_are_found():
    assert {"send", "view", "config", "group", "stack", "address"} <= attributes(Channel)
    assert attributes(Digest) == {"from_names", "to_names"}
