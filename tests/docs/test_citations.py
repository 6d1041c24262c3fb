"""The documents describe what code and tests cite, and name what exists."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
NAMED_BY = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".h", ".c", ".txt"}
SOURCES = sorted(path for room in ("src", "ext", "tests", "examples")
                 for path in (ROOT / room).rglob("*")
                 if path.suffix in SUFFIXES and path.is_file() and "corpus" not in path.parts
                 and path.parent != Path(__file__).parent)
PLAYS = sorted((ROOT / "tests" / "transcripts").glob("*.txt"))

DECISION = re.compile(r"\bdecisions?[ _-]0?(\d+)(?: (?:to|and) (\d+))?", re.IGNORECASE)
SLIP = re.compile(r"\b(?:table of )?slips?,? (T\d+)(?: and (T\d+))?|\bT(\d+) of\b")
RULE = re.compile(r'(?<=[(\s"])([RMUNJVFS]\d{1,2})(?=[:),. ])')
TEXT = re.compile(
    r"\b((?:MCAST|NAKACK2-no-retransmission|RingBuffer|UNICAST3-SYNC|UNICAST3)\.txt)\b")
ROOM = r"(?:src|ext|tests|docs|examples|benchmarks|\.ci)"
PATH = re.compile(rf"`({ROOM}/[\w/.*-]+)`")
PROGRAM = re.compile(rf"(?:python|pytest) ({ROOM}/[\w/.*-]+\.py)")


def relative(path):
    return str(path.relative_to(ROOT))


@cache
def headings(page):
    """Return the headings of a page, without their marks."""
    return re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)


@cache
def texts():
    return {path: path.read_text(errors="replace") for path in SOURCES}


def described(prefix):
    """Return the names, such as R1, that the headings of all pages describe."""
    return {match[1] for page in PAGES for heading in headings(page)
            if (match := re.match(rf"({prefix}\d+): ", heading))}


def comments(path, text):
    """Return the parts of a source that may cite rules. In code, R1 may be a member."""
    if path.suffix in (".txt", ".h", ".c"):
        return "\n".join(re.findall(r"(?:^|\s)(?:#|//|/\*).*", text))
    return "\n".join(re.findall(r'"""[\s\S]*?"""|#.*', text))


def page_of(text):
    """Return the page that describes a text."""
    return ROOT / "docs" / "protocols" / f"{text.removesuffix('.txt').lower()}.md"


def cited_decisions():
    for path, text in texts().items():
        for first, last in DECISION.findall(text + " " + path.name):
            for number in range(int(first), int(last or first) + 1):
                yield number, path


def test_every_decision_that_is_cited_is_described():
    there = {int(match[1]) for heading in headings(ROOT / "docs" / "decisions.md")
             if (match := re.match(r"Decision (\d+): ", heading))}
    cited = set(cited_decisions())
    assert there == set(range(1, max(there) + 1))
    assert len({number for number, _ in cited}) >= 25
    assert sorted({(number, relative(path)) for number, path in cited if number not in there}) == []


def test_every_slip_that_is_cited_is_described():
    there = described("T")
    cited = {f"T{name.removeprefix('T')}" for text in texts().values()
             for names in SLIP.findall(text) for name in names if name}
    assert len(cited) >= 10 and cited - there == set()


def test_every_rule_that_is_cited_is_described():
    there = described("[RMUNJVFS]")
    cited = {(rule, relative(path)) for path, text in texts().items() if path.parts[-2] != "perf"
             for rule in RULE.findall(comments(path, text))}
    assert len({rule for rule, _ in cited}) >= 10
    assert sorted(each for each in cited if each[0] not in there) == []


def test_every_text_that_is_cited_has_a_page():
    cited = {name for text in texts().values() for name in TEXT.findall(text)}
    assert len(cited) == 5
    assert [name for name in cited if f"Cited as {name}." not in page_of(name).read_text()] == []


@pytest.mark.parametrize("play", PLAYS, ids=lambda path: path.stem)
def test_the_heading_that_a_play_cites_is_on_the_page(play):
    name, rest = re.match(r"# ([\w-]+)\.txt, (.*)", play.read_text()).groups()
    there = headings(page_of(name))
    assert any(rest.startswith(heading) for heading in there), rest



# ------------------------------------------------------------ what the documents name

def paths_in(page):
    """Return the paths that a page names: in backquotes, in commands, as links."""
    text = page.read_text()
    for name in PATH.findall(text) + PROGRAM.findall(text):
        yield ROOT, name
    for name in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        yield page.parent, name


@pytest.mark.parametrize("page", NAMED_BY, ids=relative)
def test_every_path_that_a_page_names_exists(page):
    named = set(paths_in(page))
    assert sorted(name for base, name in named if not any(base.glob(name))) == []


def test_pages_name_many_paths():
    assert sum(len(set(paths_in(page))) for page in NAMED_BY) > 150


def test_every_test_that_a_page_names_exists():
    there = {name for text in texts().values()
             for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    named = {(name, relative(page)) for page in NAMED_BY
             for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 100
    assert sorted(each for each in named if each[0] not in there) == []


@pytest.mark.parametrize("page", NAMED_BY, ids=relative)
def test_links_to_headings_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        goal = page if not target else (page.parent / target).resolve()
        slugs = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings(goal)]
        assert anchor.replace("-", " ") in [slug.replace("-", " ") for slug in slugs], target
