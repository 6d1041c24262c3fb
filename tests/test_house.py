"""Rules of the house that a program can check: what layers may not touch, what is never
done, what documents claim."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port, moved

import ringcast

ROOT = Path(__file__).parent.parent
PACKAGE = Path(ringcast.__file__).parent        # a copy of it while a planted mistake is hunted
SOURCES = sorted(PACKAGE.rglob("*.py"))
LAYERS = [PACKAGE / "stack.py", *sorted((PACKAGE / "protocols").rglob("*.py"))]


def imports(path):
    """Names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def relative(path):
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", LAYERS, ids=relative)
def test_layers_have_no_clock_no_thread_and_no_io(path):
    forbidden = {"time", "datetime", "threading", "socket", "select", "asyncio", "queue", "os",
                 "secrets", "logging", "subprocess"}
    assert forbidden.isdisjoint(name.partition(".")[0] for name in imports(path))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_decision_24_nothing_is_unpickled_or_evaluated(path):
    assert {"pickle", "marshal", "dill", "shelve", "cloudpickle", "yaml"}.isdisjoint(imports(path))
    calls = {node.func.id for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert {"eval", "exec"}.isdisjoint(calls)


def test_layers_point_downward():
    """_core knows no layer, protocols know the stack and the core, spark and cli know
    the public names."""
    below = {"protocols": {"channel", "transport.udp", "transport.inproc", "spark", "cli"},
             "transport": {"channel", "spark", "cli"},
             **dict.fromkeys(("spark", "journal", "outbox", "audit"),
                             {"stack", "protocols", "_core", "cli"})}
    for room, strangers in below.items():
        for path in (ROOT / "src/ringcast" / room).rglob("*.py"):
            known = {name.removeprefix("ringcast.") for name in imports(path)
                     if name.startswith("ringcast.")}
            assert not {name for name in known for stranger in strangers if name == stranger
                        or name.startswith(stranger + ".")}, path


def test_atomics_are_in_one_place():
    for path in (ROOT / "ext").rglob("*.p[yx][xd]"):
        assert "__atomic" not in path.read_text() and "__sync" not in path.read_text(), path


def test_the_code_in_the_readme_runs_as_it_stands():
    """In two terminals, as it says: the listener is ended with Ctrl-C."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    port = free_port()
    listen, say = (moved(block, port) for block in blocks)
    with subprocess.Popen([sys.executable, "-u", "-c", listen], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as listener:
        try:
            said = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True,
                                  timeout=60)
            assert said.stdout == "not acknowledged: 0\n", said.stderr
            assert listener.stdout.readline() == "A says hello (seqno 1)\n"
            listener.send_signal(signal.SIGINT)
            assert listener.stderr.read().endswith("KeyboardInterrupt\n")
        finally:
            listener.kill()


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100 and max(map(len, lines)) <= 100


def test_the_make_targets_that_the_documents_name_are_there():
    rules = re.findall(r"^([a-z ]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages
             for name in re.findall(r"(?:`|^    )make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert len(named) > 5 and named - {name for rule in rules for name in rule.split()} == set()


def test_the_commands_that_the_readme_names_are_there():
    named = set(re.findall(r"`ringcast (\w+)", (ROOT / "README.md").read_text()))
    command = [sys.executable, "-c", "from ringcast.cli import main; main()", "--help"]
    listed = subprocess.run(command, capture_output=True, text=True)
    missing = [name for name in named
               if not re.search(rf"^\W*{name}\b", listed.stdout, re.MULTILINE)]
    assert named and not missing, listed.stdout + listed.stderr


def long_lines(path, limit=100):
    """Return the lines of a file that are too long. Tables and addresses may be."""
    lines = path.read_text().splitlines()
    return [f"{path.relative_to(ROOT)}:{number}" for number, line in enumerate(lines, 1)
            if len(re.sub(r"https?://\S+", "", line)) > limit and not line.startswith("|")]


def files(*endings):
    """Return the files of the repository that have these endings."""
    rooms = ("benchmarks", "docs", "examples", "ext", "src", "tests")
    found = [*ROOT.iterdir(), *(path for room in rooms for path in (ROOT / room).rglob("*"))]
    return sorted(path for path in found if path.suffix in endings)


def test_lines_of_pages_have_at_most_100_columns():
    pages = files(".md")
    assert len(pages) > 20
    assert [line for page in pages for line in long_lines(page)] == []


def test_lines_of_the_compiled_core_have_at_most_100_columns():
    sources = [path for path in files(".pyx", ".pxd", ".pyi", ".h", ".c")
               if path.suffix != ".c" or not path.with_suffix(".pyx").exists()]
    assert len(sources) > 40
    assert [line for source in sources for line in long_lines(source)] == []


def test_docstrings_and_comments_have_at_most_88_columns():
    """Of lines that stand alone. Section lines and tables may be longer."""
    run = subprocess.run([sys.executable, "-m", "ruff", "check", "--select", "W505", "--config",
                          "lint.pycodestyle.max-doc-length=88", "--output-format", "concise", "."],
                         capture_output=True, text=True, cwd=ROOT)
    found = []
    for path, number in re.findall(r"^(.+?):(\d+):.* W505", run.stdout, re.MULTILINE):
        line = (ROOT / path).read_text().splitlines()[int(number) - 1]
        if not re.search(r"# -{3,}|\S {3,}\S", line):
            found.append(f"{path}:{number}")
    assert found == [] and run.returncode in (0, 1), run.stderr


def test_ruff_finds_nothing():
    run = subprocess.run([sys.executable, "-m", "ruff", "check", "."], capture_output=True,
                         text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout


def test_the_types_are_complete_and_true():
    run = subprocess.run([sys.executable, "-m", "mypy"], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout


def test_importing_the_spark_part_needs_no_compiled_core():
    """It runs on Spark's workers, which may not have it."""
    code = ("import sys, ringcast.spark.source, ringcast.spark.sink, ringcast.journal.writer; "
            "sys.exit([name for name in sys.modules if name.startswith('ringcast._core')] != [])")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_every_test_that_the_page_on_threats_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "threats.md").read_text()))
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert len(named) > 10 and not named - there
