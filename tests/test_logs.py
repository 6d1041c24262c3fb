"""The log: one line a second of a cause, nothing that steers a terminal, and an entry
in the documents for every warning."""

import ast
import logging
import re
import threading
from functools import cache, partial
from pathlib import Path

import pytest
from channels import PATIENCE, joined, new_group
from processes import wait_for

from ringcast import Channel, logs
from ringcast.channel import driver
from ringcast.channel.driver import Driver
from ringcast.logs import MOST_CAUSES, Rules, log

ROOT = Path(__file__).parent.parent


@pytest.fixture
def pause(monkeypatch):
    """The pause between two lines of one cause."""
    monkeypatch.setattr(logs, "PAUSE", 1.0)


def line(text, *arguments, at=0.0):
    """A line of the log at a time."""
    record = logging.LogRecord("ringcast", logging.WARNING, "", 0, text, arguments, None)
    record.created = at
    return record


def written(*records):
    """What the rules let pass of these lines."""
    rules = Rules()
    return [record.getMessage() for record in records if rules.filter(record)]


def test_a_cause_has_one_line_a_second_and_the_next_one_says_how_many_there_were(pause):
    records = [line("%s: no room for %d", "A", number, at=number / 10) for number in range(12)]
    assert written(*records) == ["A: no room for 0",
                                 "A: no room for 10 (and 9 more like this, in the meantime)"]


def test_other_texts_and_other_members_are_other_causes(pause):
    assert len(written(line("%s: a", "A"), line("%s: a", "B"), line("%s: b", "A"))) == 3


def test_a_clock_that_goes_back_silences_nobody(pause):
    assert len(written(line("%s", "A", at=100.0), line("%s", "A", at=1.0))) == 2


def test_the_causes_that_are_remembered_are_bounded(pause):
    rules = Rules()
    for number in range(3 * MOST_CAUSES):
        rules.filter(line("%s", number))
    assert len(rules.said) == MOST_CAUSES


class Sends(logging.Handler):
    """A handler that calls a channel for each line, and fails on views."""

    def __init__(self, channel):
        super().__init__()
        self.channel, self.lines = channel, []

    def emit(self, record):
        self.channel.status()
        self.channel.send(b"a line")
        self.lines.append(record.getMessage())
        if "view" in self.lines[-1]:
            raise ValueError("the disk is full")


def test_a_handler_may_call_the_channel_whose_line_it_writes(capsys, caplog):
    caplog.set_level(logging.INFO, "ringcast")
    with Channel(new_group(), name="a", stack="inproc") as channel:
        handler = Sends(channel)
        log.addHandler(handler)
        try:
            with Channel(channel.group, name="b", stack="inproc"):
                wait_for(lambda: any("joined: b" in line for line in handler.lines))
                channel.send(b"another message")
        finally:
            log.removeHandler(handler)
    assert channel.fault is None and "ValueError: the disk is full" in capsys.readouterr().err


def test_a_handler_that_raises_ends_no_thread_that_logs(capsys):
    """Here that of the callbacks, which logs that one of them raised."""
    class Fails(logging.Handler):
        def emit(self, record):
            raise ValueError("the disk is full")

    got, handler = [], Fails()

    def fail(batch):
        got.extend(batch.payloads)
        raise RuntimeError("the callback fails")

    log.addHandler(handler)
    try:
        with Channel(new_group(), name="a", stack="inproc", on_message=fail) as channel:
            for number in range(3):
                channel.send(b"")
                wait_for(lambda number=number: len(got) > number)
    finally:
        log.removeHandler(handler)
    assert "ValueError: the disk is full" in capsys.readouterr().err


@pytest.mark.parametrize("wants", [Channel.status, partial(Channel.send, payload=bytes(60_000))])
@pytest.mark.parametrize("has", [Driver.run_in_turn, Driver.run_next])
def test_a_handler_may_wait_for_a_thread_that_has_a_turn(has, wants):
    """Two threads log at the same time: one holds the handler's lock and wants a turn,
    the other one has the turn and wants the lock."""
    with Channel(new_group(), name="a", stack="inproc") as channel:
        in_turn = threading.Event()

        class Waits(logging.Handler):
            def emit(self, record):
                if record.getMessage() == "from outside":
                    in_turn.set()
                    wants(channel)

        handler = Waits()
        log.addHandler(handler)
        try:
            def act(now):
                channel._driver._waits_since -= 2 * driver.PATIENCE     # so that others let it pass
                other.start()
                in_turn.wait()                          # it has the handler's lock now
                log.warning("from a turn")

            other = threading.Thread(target=log.warning, args=("from outside",), daemon=True)
            turn = threading.Thread(target=has, args=(channel._driver, act), daemon=True)
            turn.start()
            turn.join(PATIENCE)
            assert not turn.is_alive()
            other.join(PATIENCE)
            assert not other.is_alive()
        finally:
            log.removeHandler(handler)


@pytest.mark.parametrize("text", ["%s", "%r"])
def test_what_others_choose_is_escaped(text):
    said, = written(line(f"\x1b[1m{text} %d", "\x1b[2J\nA: forged", 5))
    assert said.isprintable() and "forged" in said and said.endswith(" 5")


def test_the_rules_hold_for_the_log_of_ringcast(caplog):
    assert [type(each) for each in log.filters] == [Rules]
    with caplog.at_level("WARNING", "ringcast"):
        log.warning("%s \x1b", "\x1b")
    assert caplog.messages == ["\\x1b \\x1b"]


def test_joins_leaves_and_closing_are_told_at_info(caplog):
    with caplog.at_level("INFO", "ringcast"):
        with joined("AB", stack="inproc") as (a, b):
            b.close()
            wait_for(lambda: any("left: B" in each for each in caplog.messages))
        said = caplog.messages
    assert any(each.startswith(str(a.address)) and "2 members" in each for each in said)
    assert f"{b.address} is closed" in said
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_a_fault_is_told_at_info(caplog):
    group = new_group()
    with caplog.at_level("INFO", "ringcast"), Channel(group, name="A", stack="inproc") as channel:
        channel._halt("because")
    assert f"{channel.address} closes by itself: because" in caplog.messages


# -------------------------------------------------------------------------------- the documents


def text_of(node):
    """The text of an expression, with … for what differs; None if it has none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%\d*\w", "…", node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return re.sub(r"%\d*\w", "…", "".join(parts))
    return None


# Methods that log, and of what.
LOGS = {**dict.fromkeys(("warning", "error", "exception"), "log"), "append": r".*\.warnings",
        "_warn_once": "self"}


@cache
def warnings():
    """The lines that the code may log as a warning or worse: (file, text)."""
    return [*found_in_code()]


def found_in_code():
    for path in sorted((ROOT / "src/ringcast").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_method and node.func.attr in LOGS and re.fullmatch(
                    LOGS[node.func.attr], ast.unparse(node.func.value)):
                yield str(path.relative_to(ROOT / "src/ringcast")), text_of(node.args[0])


# What is logged with a text that comes from elsewhere, and where that is found.
PASSED_ON = {
    ("channel/channel.py", None): "the layers' warnings",
    ("spark/source.py", "…"): "calls of _warn_once",
    ("protocols/membership/meeting.py", None): "terms.Difference.warning",
}


def test_every_warning_in_the_code_has_an_entry_in_the_documents():
    page = (ROOT / "docs/operations.md").read_text()
    found = set(warnings())
    assert len(found) > 20 and PASSED_ON.keys() <= found
    for path, text in found - PASSED_ON.keys():
        assert text is not None and f"`{text}`" in page, f"{path}: `{text}`"


def test_every_entry_in_the_documents_is_a_warning_of_the_code():
    page = (ROOT / "docs/operations.md").read_text()
    table = page.partition("| line | what it means")[2].partition("\n\n")[0]
    entries = {each for row in table.splitlines()[2:]
               for each in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    there = {text for _, text in warnings()}
    assert entries - there == {each for each in entries if "so it is not let in" in each}


class Changing(dict):
    """A table that another thread changes while the oldest entry is looked for."""

    def __iter__(self):
        raise RuntimeError("dictionary changed size during iteration")


def test_a_line_is_written_whatever_another_thread_writes_meanwhile():
    rules = Rules()
    rules.said = Changing({("%s", str(number)): (0.0, 0) for number in range(MOST_CAUSES)})
    assert rules.filter(line("%s", "one more", at=5.0))
