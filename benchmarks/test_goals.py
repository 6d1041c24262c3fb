"""The table of goals can be run: each row has a command that is there."""

import shlex

from goals import PAGE, PROGRAMS, ROOT, goals


def test_every_row_of_the_table_is_read_and_its_command_exists():
    section = PAGE.read_text().partition("\n## Goals")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(goals()) == len(rows) - 2                # less the heading and its line
    for goal in goals():
        program, first, *_ = shlex.split(goal.command)
        assert program in PROGRAMS
        assert first in ("perf", "demo") if program == "ringcast" else (ROOT / first).is_file()
