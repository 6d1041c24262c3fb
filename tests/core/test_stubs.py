"""Every compiled module has a .pyi, and every .pyi is true."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringcast._core

MODULES = sorted(module.name for module in pkgutil.iter_modules(ringcast._core.__path__))


@pytest.mark.prove
@pytest.mark.parametrize("module", MODULES)
def test_the_stub_of_a_module_is_there_and_true(module):
    folders = map(Path, ringcast._core.__path__)
    assert any((folder / f"{module}.pyi").exists() for folder in folders), f"{module} has no .pyi"
    allowed = Path(__file__).with_name("stubtest-allowed.txt")
    command = [sys.executable, "-m", "mypy.stubtest", f"ringcast._core.{module}"]
    options = ["--allowlist", str(allowed), "--ignore-unused-allowlist"]
    run = subprocess.run(command + options, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
