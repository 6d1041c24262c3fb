"""Type checkers find mistakes in what users write."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MISTAKES = Path(__file__).with_name("mistakes.py")
USELESS = "    opens(min_members=2)    # type: ignore[call-arg]\n"
SETTINGS = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}
CHECKERS = {"mypy": ["mypy", "--strict", "--config-file", ROOT / "pyproject.toml", "mistakes.py",
                     *sorted((ROOT / "examples").glob("*.py"))],
            "pyright": ["pyright", "--pythonpath", sys.executable]}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_type_checker_finds_each_wrong_option(checker, tmp_path):
    """All that it reports is a mark in the last line, which nothing needs: so it does
    look at the file. mypy finds nothing in the examples either."""
    text = MISTAKES.read_text() + USELESS
    (tmp_path / "mistakes.py").write_text(text)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(SETTINGS))
    done = subprocess.run([sys.executable, "-m", *map(str, CHECKERS[checker])],
                          capture_output=True, text=True, cwd=tmp_path)
    assert re.findall(r"(\w+)\.py:(\d+):.*error", done.stdout) == [
        ("mistakes", str(len(text.splitlines())))], done.stdout + done.stderr
