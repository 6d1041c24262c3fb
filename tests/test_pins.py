"""What builds the sdist and the wheels is pinned by hashes: what is installed for that
is what was looked at, wherever it comes from."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "packaging"


def wanted():
    """The requirements of packaging/requirements.in."""
    lines = [line.partition("#")[0].strip()
             for line in (FOLDER / "requirements.in").read_text().splitlines()]
    return [line for line in lines if line]


def pinned():
    """Each pinned package with its version and its hashes."""
    text = (FOLDER / "requirements.txt").read_text().replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name.partition("==")[0]): (name.partition("==")[2], hashes)
            for name, *hashes in entries}


def test_the_pins_are_versions_that_are_wanted():
    for requirement in map(Requirement, wanted()):
        version, _ = pinned()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_what_the_build_requires_is_among_them():
    with (ROOT / "pyproject.toml").open("rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    assert requires and set(requires) <= set(wanted())


def test_every_pin_has_hashes():
    assert len(pinned()) >= len(wanted())
    for name, (version, hashes) in pinned().items():
        assert version and hashes, name
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes), name


def test_wheels_are_built_with_these_and_nothing_else():
    """Pip fetches what a build in isolation requires without a look at hashes."""
    program = (FOLDER / "wheels.py").read_text()
    assert '"--require-hashes", "--requirement", PINS' in program
    _, _, recipe = (ROOT / "Makefile").read_text().partition("\n$(VENV)/wheels.stamp:")
    assert "--require-hashes" in recipe.partition("\n\n")[0]
    for command, option in (('"wheel", ', "--no-build-isolation"), ('"build", ', "--no-isolation")):
        assert program.count(command) == program.count(option) == 1
    assert "run: make wheels" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
