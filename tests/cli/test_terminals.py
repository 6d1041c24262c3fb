"""What commands print in narrow terminals, without colours, and in pipes."""

import io
import json
import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress
from types import SimpleNamespace

import pytest
from journals import A, B, open_journal, record
from processes import RINGCAST, ringcast

from ringcast.campaign.points import Point
from ringcast.cli import doctor as examine, monitor as follow, screen, status as look
from ringcast.cli.audit import run as audit_run
from ringcast.cli.demo import run as demo_run
from ringcast.cli.demo.members import Outcome
from ringcast.cli.demo.report import COUNTERS
from ringcast.cli.perf import measure, table as perf_table
from ringcast.cli.seen import Seen
from ringcast.cli.simulate import campaign, seeds
from ringcast.doctor import Finding
from ringcast.journal.subscriptions import subscribe
from ringcast.snapshot import Peer, Snapshot
from ringcast.status import InprocStatus, Status
from ringcast.statusfile import Life

LONG = "a long sentence of several words about what the traces do not tell " * 3
CALLS = {}
SNAPSHOT = Snapshot(
    group="g", name="A", incarnation=1, stack="mcast-udp", version="0.1.0", pid=12_345, started=0,
    namespace=0, place="127.0.0.1 239.255.17.12:7700", is_sealed=True, opened_at=0, written_at=0,
    quiet_after=2, capacity=1, max_undelivered=1, state="member", view_id=4_436_327_744,
    peers=[Peer(name=f"a-member-of-the-group-{number}", incarnation=number) for number in range(9)],
    status=Status(transport=InprocStatus(datagrams_sent=12_345)))


class Terminal(io.StringIO):
    """An output that is a terminal."""

    def isatty(self):
        return True


def prints(call):
    CALLS[call.__name__] = call
    return call


@prints
def simulate():
    seeds.show_sum(seeds.Counter(runs=1000, events=10**9, num_lost=10**8, cpu=10**9))
    return "100,000,000 lost"


@prints
def simulate_spark():
    point = Point(0.1, 8, 32_768, 3.0, 3, 3, 1e6, 1e6, 1e6, 0.5, 99.5, 0.1, 0.5)
    campaign.show_result([point], [])
    return "99.50"


@prints
def audit():
    found = SimpleNamespace(verdict=LONG, violations=[LONG] * 30, doubts=lambda: [LONG],
                            remarks=lambda: [])
    audit_run.show(found, [("latency", "p50 1.2 ms, p90 3 ms, p99 5 ms, p99.9 17 ms")])
    return "p99.9 17 ms"


@prints
def perf():
    figures = {"sent_per_second": 1e7, "delivered_per_second": 1e7, "megabytes_per_second": 1e3,
               "p50_us": None, "p99_us": 12345.0, "retransmitted": 10**6, "requests": 10**6,
               "blockings": 10**6, "sender_cpu_per_million": 1.2, "receiver_cpu_per_million": 1.25,
               "cores": {"S": 0.98, "R1": 0.97}, "limit": "the sender", "title": "1,000 B, 1 -> 1"}
    perf_table.show([perf_table.Section(perf_table.COLUMNS, [figures], measure.MULTICAST)], False)
    return "12,345"


@prints
def demo():
    outcomes = [Outcome("publisher-1", 500, 500, status=dict.fromkeys(COUNTERS, 1_234_567))]
    demo_run.show_results(screen.page(), SimpleNamespace(
        outcomes=outcomes, audit=None, plan=SimpleNamespace(messages=500, announcements=1),
        streams={"publisher-1#1": (5, 5, 1, 5)}, computed=[("AA", 5, 10, 1, 120, 0, 60)],
        expected=[("AA", 5, 10, 1, 120, 0, 60)]), 12.0)
    return "120.000"


@prints
def doctor():
    examine.show(Finding("ports", "ok", "nobody else is there"))
    examine.show(Finding("multicast", "fault", LONG.strip(), f"{LONG}1.25 s"))
    return "1.25"


@prints
def status():
    look.show(Seen(SNAPSHOT, Life.DEAD, 1.5))
    return "12,345"


@prints
def monitor():
    for kind, whom in (("suspects", "B"), ("warning", "")):
        follow.show(follow.Line(0, "A", kind, "A", whom, f"{LONG}1.25 s"))
    return "1.25"


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("name", CALLS)
def test_in_a_narrow_terminal_no_line_is_too_long_and_nothing_is_cut_off(
        name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    figure = CALLS[name]()
    text = terminal.getvalue()
    for style in ("\x1b[1m", "\x1b[0m"):
        text = text.replace(style, "")
    assert "\x1b" not in text, "there are colours"
    assert [line for line in text.splitlines() if len(line) > columns] == []
    assert "\N{HORIZONTAL ELLIPSIS}" not in text and figure in text


@pytest.mark.parametrize("name", CALLS)
def test_in_a_pipe_a_row_is_a_line_and_there_are_no_escapes(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", pipe := io.StringIO())
    figure = CALLS[name]()
    assert "\x1b" not in pipe.getvalue()
    assert any(figure in line for line in pipe.getvalue().splitlines())


@pytest.fixture
def journal(tmp_path):
    for name, sender in (("one", A), ("two", B)):
        with open_journal(tmp_path / name, group="flights", fsync=False) as opened:
            record(opened, sender, 1, 3)
            opened.skip(sender, 5)
            record(opened, sender, 6, 12_345)
    subscribe(tmp_path / "one", "table", {A: 4})
    return tmp_path


def in_terminal(columns, *words):
    """Run a command in a terminal of so many columns, and return what it prints."""
    mine, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    env.pop("COLUMNS", None)                            # of who runs the tests
    with subprocess.Popen([*RINGCAST, *map(str, words)], stdin=its, stdout=its, stderr=its,
                          env=env) as process:
        os.close(its)
        said = b""
        with suppress(OSError):                         # the terminal is gone
            while more := os.read(mine, 1 << 16):
                said += more
    os.close(mine)
    assert process.returncode == 0, said
    return said.decode().replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 80])
def test_a_journal_is_shown_in_a_narrow_terminal(journal, columns):
    text = in_terminal(columns, "journal", "show", journal)
    rows = [line for line in text.splitlines() if not line.startswith("/")]
    assert max(map(len, rows)) <= columns
    assert "4..5 (2)" in text and A in text and B in text and "\x1b" not in text


def test_a_journal_in_a_pipe_has_a_line_for_each_sender(journal):
    text = ringcast("journal", "show", journal, env={**os.environ, "COLUMNS": "40"}).stdout
    assert sum("4..5 (2)" in line and (A in line or B in line)
               for line in text.splitlines()) == 4      # one of each journal, and of both together


def test_a_journal_as_json_has_all_that_the_tables_have(journal):
    one, two, together = map(json.loads, ringcast("journal", "show", journal,
                                                  "--json").stdout.splitlines())
    assert one["journal"]["path"] == str(journal / "one") and not one["journal"]["retired"]
    sender, = one["journal"]["senders"]
    assert (sender["sender"], sender["from"], sender["to"]) == (A, 1, 12_345)
    assert sender["lost"] == [[4, 5]] and sender["purged"] == [] and sender["bytes"] > 0
    subscription, = one["journal"]["subscriptions"]
    assert subscription["name"] == "table" and subscription["behind"] == 12_341
    assert two["journal"]["subscriptions"] == []
    assert [each["sender"] for each in together["together"]["senders"]] == [A, B]


def test_a_console_for_results_has_the_width_of_the_terminal_only_in_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert screen.page().width == 40
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert screen.page().width == screen.ENDLESS
