"""Measure the goals of docs/performance.md again, with the commands that stand there.

    python benchmarks/goals.py [WORD ...]       # the goals with one of these words; none: all
    python benchmarks/goals.py --list           # only print them

Each command runs once, for all of its goals. Before its output the goals are printed,
each with the figure of the page. No figure is read out of the output: whoever compares
must know the machine. All commands take more than an hour; those that say how many
rounds they make can be run alone with fewer. The exit status is 1 if a command failed.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ringcast.secret import write_secret

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
PROGRAMS = {"python": [], "ringcast": ["-m", "ringcast"], "pytest": ["-m", "pytest"]}


class Goal(NamedTuple):
    """A row of the table of goals."""

    goal: str
    measured: str
    command: str


def goals() -> list[Goal]:
    """Read the table."""
    section = PAGE.read_text().partition("\n## Goals")[2].partition("\n## ")[0]
    return [Goal(*row) for row in re.findall(r"^\| (.+) \| (.+) \| `(.+)` \|$", section,
                                             re.MULTILINE)]


def run(command: str, secret: Path) -> bool:
    """Run a command; return whether it succeeded. FILE stands for the file of a
    secret."""
    program, *words = shlex.split(command)
    words = [str(secret) if word == "FILE" else word for word in words]
    done = subprocess.run([sys.executable, *PROGRAMS[program], *words], cwd=ROOT)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", metavar="WORD", nargs="*")
    parser.add_argument("--list", action="store_true", help="only print the goals")
    given = parser.parse_args()
    chosen = [each for each in goals()
              if not given.words or any(word in " ".join(each) for word in given.words)]
    if not chosen:
        raise SystemExit(f"no goal in {PAGE.name} has one of these words")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        write_secret(secret := Path(folder) / "secret")
        for command in dict.fromkeys(each.command for each in chosen):
            for each in chosen:
                if each.command == command:
                    print(f"goal: {each.goal}\n      {PAGE.name}: {each.measured}")
            print(f"$ {command}", flush=True)
            if not given.list and not run(command, secret):
                failed.append(command)
            print(flush=True)
    if failed:
        raise SystemExit("these failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
