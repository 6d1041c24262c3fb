"""Coverage-guided fuzzing of the targets in targets.py: `make fuzz`.

    python tests/fuzz/fuzz.py [TARGET ...] [-max_total_time=60] [-runs=N]
                                            # or any other option of libFuzzer
    python tests/fuzz/fuzz.py TARGET build/fuzz/crash-...   # run one input again
    python tests/fuzz/fuzz.py --merge       # make the smallest corpus that reaches as much

For the target `decoder`, the core is built by clang with its branches visible to the
fuzzer and AddressSanitizer watching. In the others, atheris instruments the Python
layers; AddressSanitizer would let them do a third as much. It looks on while it runs
their corpus: make asan TESTS=tests/fuzz/test_corpus.py.

Inputs that reach something new are kept in build/fuzz/. The corpus in the repository is
the best of them, in one file for each target. An input that breaks a promise stays in
build/fuzz/ and the run fails.
"""

import os
import runpy
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import corpus

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "fuzz"
TARGETS = ("decoder", "mcast-udp", "mcast-tcp", "nakack2-udp", "nakack2-tcp", "tcp", "connecting",
           "files", "sealed", "trusting", "outsider", "insider-mcast-udp", "insider-mcast-tcp",
           "insider-nakack2-udp", "insider-nakack2-tcp")
WATCHED = ("decoder",)                  # by AddressSanitizer
DEFAULTS = ["-max_total_time=60", "-timeout=300", "-max_len=600", "-len_control=0",
            "-print_final_stats=1", f"-artifact_prefix={WORK}/"]


def find_clang() -> str:
    found = [path for name in ("clang", *(f"clang-{number}" for number in range(22, 13, -1)))
             if (path := shutil.which(name))]
    if not found:
        raise SystemExit("make fuzz needs clang, which shows the fuzzer the core's branches; "
                         "install it (Debian: apt-get install clang libclang-rt-dev), or name "
                         f"other targets than {' and '.join(WATCHED)}")
    return found[0]


def environment(target: str) -> dict[str, str]:
    if target not in WATCHED:
        return os.environ | {"PYTHONPATH": str(ROOT / "src")}
    import atheris

    package = build()
    runtime = Path(atheris.path()) / "asan_with_fuzzer.so"
    if not runtime.exists():
        raise SystemExit(f"this build of atheris has no {runtime.name}; install atheris from a "
                         "wheel")
    # Without the stack of every allocation, which takes most of AddressSanitizer's
    # time: an input that it finds can be run again with it.
    options = "detect_leaks=0:symbolize=0:quarantine_size_mb=16:malloc_context_size=0"
    return os.environ | {"LD_PRELOAD": str(runtime), "ASAN_OPTIONS": options,
                         "PYTHONMALLOC": "malloc", "PYTHONPATH": str(package)}


@cache
def build() -> Path:
    compiler = find_clang()
    sanitize = runpy.run_path(str(ROOT / "tests" / "sanitizers" / "sanitize.py"),
                              run_name="sanitize")
    return sanitize["build"]("fuzz", {"CC": compiler, "LDSHARED": f"{compiler} -shared"})


def run_harness(target: str, *arguments: str) -> int:
    """Run the process that is fuzzed. To merge, libFuzzer starts itself again by the
    first word of its command."""
    WORK.mkdir(parents=True, exist_ok=True)
    script = WORK / f"{target}.sh"
    command = f'"{sys.executable}" "{HERE / "harness.py"}" {target} "$0" "$@"'
    script.write_text(f"#!/bin/sh\nexec {command}\n")
    script.chmod(0o755)
    environ = environment(target)
    return subprocess.run([str(script), *arguments], env=environ, cwd=ROOT).returncode


def folder(target: str) -> Path:
    """Return the folder of this machine's inputs and those of the repository."""
    path = WORK / target
    path.mkdir(parents=True, exist_ok=True)
    corpus.unpack(target, path)
    return path


def fuzz(target: str, options: list[str]) -> int:
    print(f"--- {target}", flush=True)
    before = broken()
    status = run_harness(target, str(folder(target)), *DEFAULTS, *options)
    for path in sorted(broken() - before):
        print(f"to run it again: python tests/fuzz/fuzz.py {target} {path.relative_to(ROOT)}")
    return status


def broken() -> set[Path]:
    """Return the inputs that broke a promise, took too long or too much memory."""
    return {path for kind in ("crash", "timeout", "oom") for path in WORK.glob(f"{kind}-*")}


def merge(target: str) -> int:
    """Keep the smallest inputs that together reach everything that was reached."""
    small = WORK / f"{target}-small"
    shutil.rmtree(small, ignore_errors=True)
    small.mkdir(parents=True)
    status = run_harness(target, "-merge=1", str(small), str(folder(target)))
    if not status:
        print(f"{target}: {corpus.pack(target, small)} inputs")
    return status


def main(words: list[str]) -> int:
    options = [word for word in words if word.startswith("-") and word != "--merge"]
    inputs = [word for word in words if Path(word).is_file()]
    names = [word for word in words if word not in options and word not in inputs
             and word != "--merge"]
    if any(name not in TARGETS for name in names):
        raise SystemExit(f"the targets are {', '.join(TARGETS)}, not {' '.join(names)}")
    targets = names or TARGETS
    if set(WATCHED).intersection(targets):
        build()                             # first, or it would be missing after minutes
    if inputs:
        status = [run_harness(target, *options, *inputs) for target in targets]
    elif "--merge" in words:
        status = [merge(target) for target in targets if not target.startswith(corpus.BORROWS)]
    else:
        status = [fuzz(target, options) for target in targets]
    return int(any(status))                 # one that a signal has ended is below 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
