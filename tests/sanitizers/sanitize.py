"""Build the core under a sanitizer and run its tests: `make tsan`, `make asan`, `make
ubsan`.

    python tests/sanitizers/sanitize.py asan [what pytest runs]

The build goes to build/<variant>/ and leaves the one of `make test` alone. First comes
a planted mistake, built with the same flags: if it is not reported, the run proves
nothing and fails. Then come the tests. A report in any process fails the run, even if
no test noticed anything.
"""

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ["tests/core", "tests/conformance", "tests/protocols", "tests/test_aio.py",
         "tests/security/test_seal.py", "tests/security/test_threats.py", "tests/test_channel.py",
         "tests/transport"]
NOT_HERE = "tests/core/test_stubs.py"           # runs mypy, not our code
VARIANTS = runpy.run_path(str(ROOT / "setup.py"), run_name="variants")["VARIANTS"]


@dataclass(frozen=True)
class Sanitizer:
    """How a sanitizer runs: the library to load, its options, and its plant."""

    runtime: str | None
    options: dict[str, str]
    plant: str                          # calls the mistake
    report: str                         # what it says


SANITIZERS = {
    "tsan": Sanitizer("libtsan.so.2", {"TSAN_OPTIONS": "exitcode=66:log_path={log}"},
                      "from threading import Thread; "
                      "threads = [Thread(target=plants.race) for _ in range(2)]; "
                      "[thread.start() for thread in threads]; "
                      "[thread.join() for thread in threads]", "data race"),
    # PYTHONMALLOC: Python's own allocator gives out pieces of large blocks, and a read
    # past the end of a piece is not seen.
    "asan": Sanitizer("libasan.so", {"ASAN_OPTIONS": "detect_leaks=0:log_path={log}",
                                     "PYTHONMALLOC": "malloc"},
                      "plants.overread()", "heap-buffer-overflow"),
    "ubsan": Sanitizer(None, {"UBSAN_OPTIONS": "print_stacktrace=1:log_path={log}"},
                       "plants.shift()", "shift exponent"),
}


def environment(variant: str, log: Path) -> dict[str, str]:
    """Return the variables of a process that runs code built under this sanitizer."""
    sanitizer = SANITIZERS[variant]
    env = os.environ | {name: value.format(log=log) for name, value in sanitizer.options.items()}
    if sanitizer.runtime is not None:
        found = subprocess.run(["gcc", f"-print-file-name={sanitizer.runtime}"],
                               capture_output=True, text=True, check=True).stdout
        if not Path(found.strip()).is_absolute():
            raise SystemExit(f"gcc has no {sanitizer.runtime}; install the sanitizer libraries of "
                             "your gcc (Debian: libgcc-12-dev)")
        env["LD_PRELOAD"] = found.strip()
    return env


def is_plant_reported(variant: str, folder: Path, compile_flags: list[str] | None = None) -> bool:
    """Say whether the planted mistake, built with the variant's flags (or others), ends
    its process and is named."""
    source = shutil.copy(Path(__file__).with_name("plants.pyx"), folder)
    flags, link = VARIANTS[variant][:2]
    build = ("import sys; from Cython.Build import cythonize; "
             "from setuptools import Extension, setup; "
             "sys.argv[1:] = ['build_ext', '--inplace']; "
             "setup(ext_modules=cythonize([Extension('plants', ['plants.pyx'], "
             f"extra_compile_args={compile_flags or flags!r}, extra_link_args={link!r})], "
             "language_level=3, quiet=True))")
    built = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True,
                           text=True)
    if built.returncode:
        raise SystemExit(f"{source} could not be built\n{built.stdout}{built.stderr}")
    log = folder / "report"
    run = subprocess.run([sys.executable, "-c", f"import plants; {SANITIZERS[variant].plant}"],
                         cwd=folder, env=environment(variant, log), capture_output=True, text=True)
    said = run.stdout + run.stderr + reports(log)
    return run.returncode != 0 and SANITIZERS[variant].report in said


def reports(log: Path) -> str:
    """Return what all processes wrote."""
    return "".join(path.read_text(errors="replace")
                   for path in sorted(log.parent.glob(log.name + ".*")))


def build(variant: str, compiler: dict[str, str] | None = None) -> Path:
    """Build the package with its core in this variant, with the compiler that
    environment variables name. Return where it is."""
    folder = ROOT / "build" / variant
    shutil.rmtree(folder / "package", ignore_errors=True)
    command = [sys.executable, "setup.py", "--quiet", "build",
               "--build-lib", str(folder / "package"), "--build-temp", str(folder / "objects")]
    env = os.environ | {"RINGCAST_BUILD": variant} | (compiler or {})
    run = subprocess.run(command, cwd=ROOT, env=env)
    if run.returncode:
        raise SystemExit(f"the {variant} build failed")
    return folder / "package"


def run_tests(variant: str, package: Path, what: list[str]) -> int:
    """Run the tests. Return 0 when they pass and nothing is reported."""
    flags, link = VARIANTS[variant][:2]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "report"
        env = environment(variant, log) | {"PYTHONPATH": str(package), "CFLAGS": " ".join(flags),
                                           "LDFLAGS": " ".join(link)}
        where = subprocess.run(
            [sys.executable, "-c", "import ringcast._core.wire as wire; print(wire.__file__)"],
            env=env, capture_output=True, text=True).stdout
        if not where.startswith(str(package)):
            raise SystemExit(f"the tests would run another build: {where}")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                   "--ignore", NOT_HERE, *what]
        status = subprocess.run(command, cwd=ROOT, env=env).returncode
        said = reports(log)
    if said:
        print(said)
        print(f"{variant}: {said.count('SUMMARY')} reports")
    return status or int(bool(said))


def main(variant: str, *what: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        if not is_plant_reported(variant, Path(folder)):
            raise SystemExit(f"{variant} does not report a planted mistake: this build cannot "
                             "fail, so its success means nothing")
    print(f"{variant}: the planted mistake was reported")
    return run_tests(variant, build(variant), list(what) or TESTS)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in SANITIZERS:
        raise SystemExit(f"name a sanitizer: {' or '.join(SANITIZERS)}")
    sys.exit(main(*sys.argv[1:]))
