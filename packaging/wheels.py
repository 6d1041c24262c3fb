"""`make wheels`: build and check an sdist, and wheels for all Pythons that are found.

What builds them is pinned by its hash (requirements.txt). Each wheel is built from the
sdist, and is repaired and stripped by auditwheel. Then it is installed in an empty
environment, whose PATH has no compiler, and check_wheel.py runs there. The result is in
dist/.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST, WORK = ROOT / "dist", ROOT / "build" / "wheels"
PINS = ROOT / "packaging" / "requirements.txt"
MINORS = range(11, 15)          # of the Pythons that ringcast has wheels for
ASK = ("import sys, sysconfig; print(sys.version_info[0], sys.version_info[1], "
       "sysconfig.get_config_var('Py_GIL_DISABLED') or 0)")


def run(*command: str | Path, **options: object) -> None:
    """Run a command, and end this program if it fails."""
    print("+", *command, flush=True)
    if status := subprocess.run([*map(str, command)], **options).returncode:  # type: ignore
        sys.exit(f"make wheels: {command[0]} ended with status {status}; its error is above")


def candidates() -> Iterator[Path]:
    """Yield where Pythons may be: those of PYTHONS, or those on PATH and of pyenv."""
    if named := os.environ.get("PYTHONS", "").split():
        yield from map(Path, named)
        return
    for minor in MINORS:
        for folder in os.get_exec_path():
            yield Path(folder) / f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.*/bin/python"))


def pythons() -> dict[int, Path]:
    """Return a Python for each minor version that is found."""
    found: dict[int, Path] = {}
    for path in candidates():
        if not path.is_file():
            continue
        said = subprocess.run([path, "-c", ASK], capture_output=True, text=True).stdout.split()
        if len(said) == 3 and said[0] == "3" and int(said[1]) in MINORS and said[2] == "0":
            found.setdefault(int(said[1]), path)
    return dict(sorted(found.items()))


def build(python: Path, sdist: Path, folder: Path) -> Path:
    """Build a wheel of the sdist with a Python, and with nothing but what is pinned.
    Return the one that auditwheel has repaired and stripped."""
    run(python, "-m", "venv", folder / "pinned")
    pip = [folder / "pinned" / "bin" / "python", "-m", "pip"]
    run(*pip, "install", "--quiet", "--require-hashes", "--requirement", PINS)
    run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir",
        folder / "raw", sdist)
    (raw,) = (folder / "raw").glob("*.whl")
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", folder / "repaired",
        raw, env=tools)
    (wheel,) = (folder / "repaired").glob("*-manylinux*.whl")
    return Path(shutil.copy(wheel, DIST))


def check(python: Path, wheel: Path, folder: Path) -> None:
    """Install a wheel in an empty environment without a compiler, and check it
    there."""
    run(python, "-m", "venv", folder / "empty")
    inside = folder / "empty" / "bin"
    alone = {**{name: value for name, value in os.environ.items()
                if name not in ("PYTHONPATH", "VIRTUAL_ENV")}, "PATH": str(inside)}
    install = [inside / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    run(*install, wheel, env=alone, cwd=folder)
    run(inside / "python", ROOT / "packaging" / "check_wheel.py", env=alone, cwd=folder)
    run(*install, "mypy", env=alone, cwd=folder)
    run(inside / "python", "-m", "mypy", "--strict", "--config-file=",
        *sorted((ROOT / "examples").glob("*.py")), env=alone, cwd=folder)


def main() -> None:
    """Build and check everything."""
    found = pythons()
    if not found:
        sys.exit("make wheels: no Python from 3.11 to 3.14 was found; name some: "
                 'make wheels PYTHONS="/path/of/python3.12 ..."')
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    for minor, python in found.items():
        folder = WORK / f"3.{minor}"
        check(python, build(python, sdist, folder), folder)
    print("\nchecked, in dist/:", sdist.name)
    for wheel in sorted(DIST.glob("*.whl")):
        print(f"  {wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB")
    missing = [f"3.{minor}" for minor in MINORS if minor not in found]
    if missing:
        print(f"not found, and so not built: Python {', '.join(missing)}")


if __name__ == "__main__":
    main()
