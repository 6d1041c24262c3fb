"""The log: `logging.getLogger("ringcast")`, with rules that hold for every line.

What others can choose (names, addresses, texts of errors) is escaped, so that it cannot
steer a terminal or forge a line. And a cause gets one line a second: the ones between
are counted, and the next line of that cause says how many there were. So a fault that
comes back with every message does not fill a disk.

A handler is the application's: it may call a channel, and wait for its lock. So the
lines of a thread that holds such a lock are held, and written when it has released it.
It may raise, too: that is shown on stderr, and ends no thread of ours.
"""

import logging
import os
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PAUSE = 1.0             # seconds between two lines of one cause
MOST_CAUSES = 1000      # that are remembered

held: dict[int, list[logging.LogRecord]] = {}       # lines of threads, by ident
os.register_at_fork(after_in_child=held.clear)


def hold_lines(thread: int) -> None:
    """Hold the lines of this thread, whose ident is `thread`, until write_lines()."""
    held[thread] = []


def write_lines(thread: int) -> None:
    """Write the lines that were held."""
    for record in held.pop(thread, ()):
        log.handle(record)


def shielded(handle: Callable[[logging.LogRecord], None]) -> Callable[[logging.LogRecord], None]:
    """Return the `handle` of a logger that shows on stderr what handlers raise, as
    those of logging do by themselves."""
    def handle_all(record: logging.LogRecord) -> None:
        try:
            handle(record)
        except Exception:
            traceback.print_exc()
    return handle_all


def printable(text: str) -> str:
    """Return text from elsewhere with escapes for what would steer the terminal."""
    return "".join(each if each.isprintable() or each == "\t" else
                   each.encode("unicode_escape", "backslashreplace").decode() for each in text)


class Escaped:
    """An argument of a line that is escaped when the line is written."""

    def __init__(self, argument: object) -> None:
        self.argument = argument

    def __str__(self) -> str:
        return printable(str(self.argument))

    def __repr__(self) -> str:
        return printable(repr(self.argument))


class Rules(logging.Filter):
    """Lets one line a second of each cause pass, escaped. A cause is a text and its
    first argument, which is the member or the path."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[tuple[str, str], tuple[float, int]] = {}    # when, and how many since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line may be written; see logging.Filter."""
        if (lines := held.get(threading.get_ident())) is not None:
            lines.append(record)
            return False
        arguments = record.args if isinstance(record.args, tuple) else ()
        cause = record.msg, str(arguments[0]) if arguments else ""
        at, dropped = self.said.get(cause, (float("-inf"), 0))
        if 0 <= record.created - at < PAUSE:
            self.said[cause] = at, dropped + 1
            return False
        self.said.pop(cause, None)                      # the oldest come first
        self.said[cause] = record.created, 0
        with suppress(RuntimeError):                    # another thread changes it, too
            while len(self.said) > MOST_CAUSES:
                self.said.pop(next(iter(self.said)), None)
        record.msg, record.args = printable(record.msg), tuple(map(escaped, arguments))
        if dropped:
            record.msg += " (and %d more like this, in the meantime)"
            record.args += (dropped,)
        return True


def as_cause(sentence: str) -> str:
    """Return the text of a line about a member for a sentence that is a cause of its
    own."""
    return f"%s: {sentence.replace('%', '%%')}"


def escaped(argument: Any) -> Any:
    """Return an argument so that it is escaped when it is written."""
    return argument if isinstance(argument, int | float) else Escaped(argument)


log = logging.getLogger("ringcast")
if not any(isinstance(each, Rules) for each in log.filters):
    log.addFilter(Rules())
    log.handle = shielded(log.handle)   # type: ignore[assignment,method-assign]
