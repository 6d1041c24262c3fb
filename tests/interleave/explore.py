"""Builds the explorer with the shipped core, or with a changed copy of it, and runs
programs of small threads under it.

The sources are copied, so that a test may change one line. In the copy a block has 2
seqnos unless a test says 32: a window of one to three messages then wraps after four to
eight of them, and a lap is short enough to try everything.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
CORE = HERE.parents[1] / "ext/ringcast/_core"
SOURCES = ["atomics.h", "atomics.pxd", "block_ring.pxd", "seqno.pxd", "slots.pxd"]

INTERLEAVED, WEAK = 0, 1
ORDERS = {0: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}


@dataclass(frozen=True)
class Change:
    """One place of a source, otherwise written; `file` is a source of the core, or
    programs.pyx."""

    name: str
    file: str
    old: str
    new: str


def sized(size: int) -> list[Change]:
    shift = size.bit_length() - 1
    return [Change("size", "block_ring.pxd", "    BLOCK = 32 ", f"    BLOCK = {size} "),
            Change("shift", "block_ring.pxd", "    BLOCK_SHIFT = 5\n",
                   f"    BLOCK_SHIFT = {shift}\n")]


def changed(text: str, change: Change) -> str:
    if text.count(change.old) != 1:
        raise ValueError(f"{change.name}: {change.file} has {text.count(change.old)} places like "
                         f"{change.old!r}; there must be one")
    return text.replace(change.old, change.new)


def compile_c(*arguments: str) -> None:
    """One call of the C compiler, without what a sanitizer's run adds: the memory is
    the explorer's."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([*compiler, "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-U_FORTIFY_SOURCE",
                    "-w", f"-I{HERE}", *arguments],
                   check=True, env=environment)


@cache
def explorer() -> tempfile.TemporaryDirectory:
    """A folder with the compiled search; it is the same for every build of the
    programs."""
    folder = tempfile.TemporaryDirectory(prefix="ringcast-explorer-")
    compile_c("-O2", "-c", str(HERE / "explorer.c"), "-o", f"{folder.name}/explorer.o")
    return folder


def build(block: int = 2, change: Change | None = None) -> ModuleType:
    """The compiled programs, over the core as shipped or with one change."""
    with tempfile.TemporaryDirectory(prefix="ringcast-interleave-") as folder:
        copy_sources(Path(folder), [*sized(block), *([change] if change else [])])
        # A change is found after few schedules: there the compiler takes longer than
        # the search.
        library = compile_programs(Path(folder), "-O0" if change else "-O1")
        spec = importlib.util.spec_from_file_location("programs", library)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def copy_sources(folder: Path, changes: list[Change]) -> None:
    texts = {f"ringcast/_core/{name}": (CORE / name).read_text() for name in SOURCES}
    texts["programs.pyx"] = (HERE / "programs.pyx").read_text()
    for change in changes:
        name = change.file if change.file in texts else f"ringcast/_core/{change.file}"
        texts[name] = changed(texts[name], change)
    (folder / "ringcast/_core").mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


def compile_programs(folder: Path, optimisation: str) -> Path:
    from Cython.Compiler.Main import CompilationOptions, compile_single

    options = CompilationOptions(include_path=[str(folder)], emit_linenums=True, language_level=3)
    source = str(folder / "programs.pyx")
    if compile_single(source, options, full_module_name="programs").num_errors:
        raise RuntimeError("Cython refuses the programs; its words are above")
    library = folder / f"programs{sysconfig.get_config_var('EXT_SUFFIX')}"
    compile_c(optimisation, "-fsanitize=thread", "-DEXPLORER_PROGRAM", "-include",
              str(HERE / "explorer.h"),
              f"-I{folder}/ringcast/_core", f"-I{sysconfig.get_path('include')}",
              "-c", str(folder / "programs.c"), "-o", str(folder / "programs.o"))
    compile_c("-shared", str(folder / "programs.o"), f"{explorer().name}/explorer.o", "-o",
              str(library))
    return library


@dataclass(frozen=True)
class Program:
    """Threads, one string each, their verbs separated by `;` (see VERBS in
    programs.pyx).

    Seqnos count from 1, the first that the threads can add, after `used` that came and
    went; `before` is done first. At the end `accepted` must have been accepted,
    `delivered` be the highest delivered seqno, and `freed` be LOW."""

    threads: tuple[str, ...]
    capacity: int = 1
    used: int = 0
    offset: int = 0
    before: str = ""
    accepted: tuple[int, ...] = ()
    delivered: int = -1
    freed: int = -1
    contents_only: bool = False

    def __str__(self):
        shape = [f"capacity {self.capacity}", f"{self.used} used"]
        shape += [f"offset {self.offset}"] if self.offset else []
        shape += [f"before: {self.before}"] if self.before else []
        return f"{' | '.join(self.threads)} ({', '.join(shape)})"


@dataclass(frozen=True)
class Answer:
    failure: str | None
    schedule: str
    states: int
    schedules: float
    ends: tuple[int, int]
    gave_up: bool
    trace: list[str] = field(default_factory=list)

    def __str__(self):
        if self.failure is None:
            return f"{self.schedules:.0f} schedules, {self.states} states"
        return "\n".join([self.failure, *self.trace, f"replay: {self.schedule}"])


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.split(";") if line.strip()]


def prepare(programs: ModuleType, program: Program) -> None:
    programs.prepare(program, lines(program.before), [lines(text) for text in program.threads],
                     any(verb in text for text in program.threads
                         for verb in ("text_", "tell", "cross")))


def explore(programs: ModuleType, program: Program, memory: int = INTERLEAVED, plain: bool = False,
            most_states: int = 1 << 18) -> Answer:
    """Every schedule of the program; the answer names the first that fails, step by
    step.

    `plain` goes through them one by one, without merging equal states. Beyond
    most_states the search gives up, and says so."""
    prepare(programs, program)
    answer = Answer(**programs.search(memory, plain, most_states))
    return replay(programs, program, answer.schedule, memory) if answer.failure else answer


def replay(programs: ModuleType, program: Program, schedule: str,
           memory: int = INTERLEAVED) -> Answer:
    """One run along a schedule; beyond its end, and where it is wrong, the first thread
    that can goes on."""
    prepare(programs, program)
    found, steps = programs.replay(memory, schedule.encode())
    return replace(Answer(**found), trace=[describe(step, memory) for step in steps])


def describe(step: tuple, memory: int) -> str:
    thread, kind, word, before, after, swapped, older, order, file, line = step
    what = ["reads {w} = {b:#x}", "writes {w} = {a:#x}", "updates {w} {b:#x} -> {a:#x}" if swapped
            else "fails to swap {w} = {b:#x}",
            "reads {w} = {b:#x}", "writes {w}", "is woken by {w} = {b:#x}"][kind].format(w=word,
                                                                                         b=before,
                                                                                         a=after)
    detail = [ORDERS[order]] if memory == WEAK else []
    detail += [f"{older} stores ago"] if older else []
    detail += [f"{Path(file).name}:{line}"] if line else []
    return f"T{thread + 1} {what}" + (f"    ({', '.join(detail)})" if detail else "")


def accesses() -> Iterator[tuple[int, str, str]]:
    """(line, function, text from the access on) of every access of block_ring.pxd that
    has an order."""
    function = None
    for line, text in enumerate((CORE / "block_ring.pxd").read_text().splitlines(), 1):
        if head := re.match(r"cdef inline .*?(\w+)\(", text):
            function = head.group(1)
        code = text.partition("#")[0]
        for found in re.finditer(r"\b\w+_(acquire|release|acq_rel)(_relaxed)?\(",
                                 code) if function else ():
            yield line, function, code[found.start():]


def line_of(function: str, access: str) -> int:
    """The line of the one access of a function that begins with these words."""
    (line,) = [line for line, name, text in accesses() if name == function
               and text.startswith(access)]
    return line
