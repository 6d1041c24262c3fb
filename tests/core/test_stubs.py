"""Every compiled module has a .pyi, and every .pyi is true."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringcast._core

MODULES = sorted(module.name for module in pkgutil.iter_modules(ringcast._core.__path__))


@pytest.mark.prove
def test_the_stub_of_each_module_is_there_and_true():
    """In one process: mypy takes longer to begin than for all of them."""
    folders = [Path(folder) for folder in ringcast._core.__path__]
    without = [module for module in MODULES
               if not any((folder / f"{module}.pyi").exists() for folder in folders)]
    assert MODULES and not without
    allowed = Path(__file__).with_name("stubtest-allowed.txt")
    command = [sys.executable, "-m", "mypy.stubtest", "--allowlist", str(allowed)]
    run = subprocess.run([*command, *(f"ringcast._core.{module}" for module in MODULES)],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
