"""`make nogil`: run the tests of the core, of the channel and of many threads on a
CPython without the GIL.

The interpreter is NOGIL_PYTHON, or one that is found on PATH, or it is built from
Debian's source package in some minutes, in build/nogil; nothing is installed on the
machine. It fails if the GIL is on once everything is imported.

msgspec, which ringcast needs, has no version for a CPython 3.13 without the GIL. There
only those tests run that need the compiled core alone.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "nogil"
NAMES = ("python3.14t", "python3.13t")
SOURCES = ("python3.14", "python3.13")          # of Debian, the one that is wanted most first
SUITES = "testing unstable stable"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
ASK = ("import sys, sysconfig; "
       "print(sysconfig.get_config_var('Py_GIL_DISABLED'), sys.version_info[1])")
MSGSPEC_FROM = 14                               # the first minor version that it supports

CORE = ["tests/core", "-m", "not prove"]
NEEDS_MSGSPEC = ["--ignore=tests/core/test_batch.py", "--ignore=tests/core/test_payloads.py"]
CHANNEL = ["tests/test_driver.py", "tests/test_inbox.py", "tests/test_receive.py",
           "tests/transport/test_poller.py", "tests/transport/test_transport_locks.py",
           "tests/conformance", *sorted(str(path.relative_to(ROOT))
                                        for path in ROOT.glob("tests/test_channel*.py"))]


def run(*command: str | Path, **options: object) -> None:
    """Run a command, and end this program if it fails."""
    print("+", *command, flush=True)
    if status := subprocess.run([*map(str, command)], **options).returncode:  # type: ignore
        sys.exit(f"make nogil: {command[0]} ended with status {status}; its error is above")


def minor_of(python: Path) -> int:
    """Return the minor version of a Python; 0 if it has a GIL."""
    said = subprocess.run([python, "-c", ASK], capture_output=True, text=True).stdout.split()
    return int(said[1]) if said[:1] == ["1"] else 0


def find() -> Path | None:
    """Return a Python without the GIL, or None."""
    if named := os.environ.get("NOGIL_PYTHON"):
        if not minor_of(Path(named)):
            sys.exit(f"make nogil: {named} is no Python that was built without the GIL")
        return Path(named)
    built = [str(path) for path in WORK.glob("python3.*/bin")]
    path = os.pathsep.join([*built, os.environ["PATH"]])
    return next((Path(found) for name in NAMES if (found := shutil.which(name, path=path))), None)


def fetch(folder: Path) -> tuple[str, Path]:
    """Fetch a source package by its name, with lists of our own: the machine's say of
    which archive it is, and perhaps nothing of sources. Return the name and the
    archive."""
    archives = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
         "Origin: Debian", "Label: Debian"], capture_output=True, text=True, check=True)
    uri = next(iter(archives.stdout.split()), None)
    if uri is None:
        sys.exit("make nogil: apt-get knows no archive of Debian; run apt-get update, or name a "
                 "Python: make nogil NOGIL_PYTHON=/path/of/python3.14t")
    for each in ("lists/partial", "cache/archives/partial", "sources"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    (folder / "sources" / "nogil.sources").write_text(
        f"Types: deb-src\nURIs: {uri}\nSuites: {SUITES}\nComponents: main\n"
        f"Signed-By: {KEYS}\n")
    apt = ["apt-get", "-o", "Dir::Etc::sourcelist=/dev/null",
           *(option for name, place in (("Etc::sourceparts", "sources"), ("State::lists", "lists"),
                                        ("Cache", "cache"))
             for option in ("-o", f"Dir::{name}={folder / place}"))]
    run(*apt, "update", "-q")
    for name in SOURCES:
        for suite in SUITES.split():
            got = subprocess.run([*apt, "source", "-q", "--download-only", f"{name}/{suite}"],
                                 cwd=folder)
            found = sorted(folder.glob(f"{name}_*.orig.tar.xz"))
            if not got.returncode and found:
                return name, found[-1]
    sys.exit(f"make nogil: there is no Python without the GIL on PATH ({', '.join(NAMES)}), and "
             f"no source package {' or '.join(SOURCES)} to build one; name one: "
             "make nogil NOGIL_PYTHON=/path/of/python3.14t")


def build() -> Path:
    """Build a Python without the GIL, and return it."""
    if shutil.which("apt-get") is None:
        sys.exit("make nogil: there is no Python without the GIL on PATH, and no apt-get to fetch "
                 "the sources of one; name one: make nogil NOGIL_PYTHON=/path/of/python3.14t")
    name, archive = fetch(WORK / "apt")
    source, prefix = WORK / "source", WORK / name
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    run("tar", "-xf", archive, "-C", source, "--strip-components=1")
    quiet = {"cwd": source, "stdout": subprocess.DEVNULL}
    run("./configure", "--disable-gil", "-q", f"--prefix={prefix}", **quiet)
    run("make", "-s", f"-j{os.cpu_count()}", **quiet)
    run("make", "-s", "install", **quiet)
    shutil.rmtree(source)
    return prefix / "bin" / f"{name}t"


def main() -> None:
    """Make an environment, build ringcast for it, and run the tests."""
    python = find() or build()
    is_whole = minor_of(python) >= MSGSPEC_FROM
    shutil.rmtree(WORK / "venv", ignore_errors=True)
    run(python, "-m", "venv", WORK / "venv")
    inside = WORK / "venv" / "bin" / "python"
    pip = [inside, "-m", "pip", "install", "--quiet", "--prefer-binary"]
    run(*pip, "--upgrade", "pip")
    run(*pip, "--group", "nogil", *(["msgspec>=0.20"] if is_whole else []), cwd=ROOT)
    run(inside, "setup.py", "-q", "build_ext", "--build-lib", WORK / "lib", "--build-temp",
        WORK / "temp", "--force", cwd=ROOT)
    shutil.copytree(ROOT / "src" / "ringcast", WORK / "lib" / "ringcast", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    env = {**os.environ, "PYTHONPATH": str(WORK / "lib")}
    env.pop("PYTHON_GIL", None)
    tests = [*CORE, *(CHANNEL if is_whole else NEEDS_MSGSPEC)]
    run(inside, "-m", "pytest", "-W", "error:The global interpreter lock:RuntimeWarning", *tests,
        cwd=ROOT, env=env)
    if not is_whole:
        sys.exit("make nogil: the tests of the compiled core pass without the GIL. Those of the "
                 f"channel did not run: msgspec needs a CPython 3.{MSGSPEC_FROM} without the GIL, "
                 "or a newer one")


if __name__ == "__main__":
    main()
