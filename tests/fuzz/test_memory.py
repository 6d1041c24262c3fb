"""What a hostile member or a stranger sends takes no memory without limit (decision
24): a member that is flooded lives in an address space that is hardly larger than what
it had before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flood import FLOODS

import ringcast

PACKAGE = str(Path(ringcast.__file__).parents[1])


@pytest.mark.parametrize(("stack", "flood"), [
    *(("mcast-udp", flood) for flood in FLOODS),
    *(("nakack2-tcp", flood) for flood in ("never_low", "of_strangers", "numbers"))])
def test_a_flood_finds_no_memory_without_a_bound(stack, flood):
    run = subprocess.run([sys.executable, Path(__file__).with_name("flood.py"), stack, flood],
                         capture_output=True, text=True, env=os.environ | {"PYTHONPATH": PACKAGE})
    assert run.returncode == 0, run.stderr
    assert " datagrams" in run.stdout
