"""What one needs to build ringcast, and what the forge runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_without_a_compiler_the_build_says_in_one_sentence_what_to_install(tmp_path):
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", tmp_path, "--build-temp",
               tmp_path, "--force"]
    empty = {name: value for name, value in os.environ.items() if name != "CC"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT,
                          env={**empty, "PATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ringcast compiles its core, and there is no C compiler ")
    assert done.stderr.endswith(": install one (Debian: apt-get install gcc libc6-dev).\n")
    assert list(tmp_path.rglob("*.so")) == []


def test_the_forge_runs_what_a_developer_runs():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    targets = set(re.findall(r"run: make (\w+)", text))
    rules = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets == {"wheels"} <= rules
    assert " .ci/run" in text and os.access(ROOT / ".ci" / "run", os.X_OK)
