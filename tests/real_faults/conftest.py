"""Faults of real networks and processes: which stacks, and the table of results."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from faulty_group import Group
from namespaces import Network

DEFAULT = "mcast-udp,nakack2-tcp"
TABLE = Path(__file__).parents[2] / "build" / "faults.txt"
HEADER = "cell", "stack", "seconds until the views were right", "views", "messages", "verdict"
FORM_GOAL = 1.0         # seconds in which ten members that start at once form a group
RATE = 1_000            # messages a second that each member sends, unless the load is full


def pytest_addoption(parser):
    parser.addoption("--stacks", default=DEFAULT, help="stacks to try, with commas between them")


def pytest_generate_tests(metafunc):
    if "stack" in metafunc.fixturenames:
        # pytest asks this file for options only if it is told to run this directory.
        stacks = metafunc.config.getoption("--stacks", DEFAULT).split(",")
        metafunc.parametrize("stack", [
            pytest.param(each, marks=[pytest.mark.udp] if each.endswith("udp") else [])
            for each in stacks])


@pytest.fixture
def start(request, stack, tmp_path, record_property, spark):
    """Return a function that starts a group and returns it when it has one view. What
    the table says of the test is noted in `group.row`."""
    with ExitStack() as running:
        def start(names, rate=RATE, loss=0.0, **options):
            network = running.enter_context(Network(names, loss))
            group = Group(network, tmp_path, stack, rate, spark, **options)
            group.row |= {"cell": cell(request.node), "stack": stack}
            record_property("row", group.row)
            group.start(*names)
            group.wait_for_view(names, names, "formed", group.connecting(names),
                                goal=FORM_GOAL if not loss and len(names) <= 10 else None)
            return group
        yield start


def cell(test):
    """Return what the table calls a test: its name and parameters, but the stack."""
    words = [test.originalname.removeprefix("test_").replace("_", " ")]
    return " ".join(words + [f"{value}" for name, value in test.callspec.params.items()
                             if name != "stack"])


def pytest_terminal_summary(terminalreporter):
    """Print the table, and write it to a file."""
    rows = [HEADER]
    for report in (*terminalreporter.stats.get("passed", ()),
                   *terminalreporter.stats.get("failed", ())):
        row = dict(report.user_properties).get("row")
        if row is not None and report.when == "call":
            rows.append(in_words(row, report))
    if len(rows) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    terminalreporter.section("faults")
    for line in lines:
        terminalreporter.line(line)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")


def in_words(row, report):
    """Return a row of the table."""
    goals = {what: f" (goal {seconds:g})" for what, seconds in row["goals"].items()}
    times = ", ".join(f"{what} {seconds:.2f}{goals.get(what, '')}"
                      for what, seconds in row["times"].items())
    verdict = "good"
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        verdict = f"FAILED: {(crash.message if crash else 'see above').splitlines()[0][:200]}"
    return (row["cell"], row["stack"], times, str(row.get("views", "-")),
            str(row.get("messages", "-")), verdict)
