"""The channel layer for Django Channels."""

import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

import ringcast

CASES = Path(__file__).with_name("django_cases.py")


@pytest.mark.udp
@pytest.mark.kill
def test_the_cases_of_the_channel_layer(tmp_path):
    """They run in a process of their own, with the same ringcast: `channels` is Django
    Channels there, and a helper of the tests here."""
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir",
                          CASES.parent, "--confcutdir", CASES.parent, "-p", "no:cacheprovider",
                          "-p", "no:xdist", "-p", "no:hypothesispytest", "--timeout", "60", CASES],
                         capture_output=True, text=True, cwd=tmp_path,
                         env={"PATH": "/usr/bin:/bin", "CASES_PORT": str(free_port()),
                              "PYTHONPATH": str(Path(ringcast.__file__).parents[1])})
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout and "skipped" not in run.stdout


def test_each_module_is_short():
    package = Path(__file__).parents[2] / "src" / "ringcast" / "contrib"
    assert {path.name: lines for path in package.glob("*.py")
            if (lines := path.read_text().count("\n")) >= 150} == {}
