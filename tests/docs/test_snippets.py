"""The Python that the documents show runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page):
    """Return the Python blocks of a page, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))


def test_the_blocks_of_the_page_on_groups_are_one_program_that_runs():
    run = subprocess.run([sys.executable, "-c", blocks("docs/groups.md")], capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["('A',), led by A", "0 messages were not delivered",
                                       "('A',)"]


def test_the_blocks_of_the_guide_are_one_program_that_runs():
    run = subprocess.run([sys.executable, "-c", blocks("docs/guide.md")], capture_output=True,
                         text=True)
    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stderr
    unread = r"A#\w+: 1 messages to A#\w+ were not acknowledged before it left\n"
    assert re.fullmatch(rf"(?:{unread})?", run.stderr)      # nobody reads the one to A alone
    assert lines[:4] == [f"A {seqno} b'{word}'" for seqno, word in
                         enumerate(["hello", "one", "two", "three"], 1)]
    assert lines[4] == "A says b'hello'"
    assert lines[5].startswith("no member 'B' is in the view")
    assert len(lines) == 8
