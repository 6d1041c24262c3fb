"""The packages that the README says to install are enough."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CODE = """
import importlib, pkgutil, sys
from ringcast import cli
for module in pkgutil.walk_packages(cli.__path__, "ringcast.cli."):
    importlib.import_module(module.name)
print(*(module.__file__ for name, module in sys.modules.items()
        if name.partition(".")[0] == "ringcast" and (module.__file__ or "").endswith(".py")))
"""


def imports_at_import(path):
    """Yield the packages that a module imports when it is imported itself."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_every_command_runs_with_the_packages_of_the_extra_cli():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    files = [Path(name) for name in run.stdout.split()]
    assert len(files) > 50, run.stderr
    needed = {name for path in files for name in imports_at_import(path)}
    needed -= {"ringcast", *sys.stdlib_module_names}
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["cli"]
    assert needed - {re.match(r"[\w-]+", each)[0] for each in wanted} == set()
