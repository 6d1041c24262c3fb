"""Ctrl-C: the command alone handles it, and ends its processes.

A terminal sends SIGINT to all processes of a command. Those that a command has started
never get it: they inherit that it is held back.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = 0.5            # seconds that Spark's Java has to remove its files

_has_ended_java = False


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back while processes are started. For them it stays held back.

    The mask is for them. Another thread may still take the signal, so the handler only
    notes that it came.
    """
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()   # its start, with the first process, would let Ctrl-C in
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stopping(spark: "SparkSession") -> Iterator[None]:
    """Stop Spark at the end of the block, but not after Ctrl-C, which ends its Java."""
    try:
        yield
    finally:
        if not isinstance(sys.exception(), KeyboardInterrupt):
            spark.stop()


def started(app_name: str, log_level: str, **options: Any) -> "SparkSession":
    """Start Spark, and let Ctrl-C end its Java. `options` are those of
    ringcast.spark.session."""
    from ringcast.spark import session

    let_end_java()
    spark = session(app_name, **options)
    let_end_java()
    spark.sparkContext.setLogLevel(log_level)
    return spark


def let_end_java() -> None:
    """Let Ctrl-C end Spark's Java first, so that nothing waits for it. Call this before
    Spark starts and after: Spark sets a handler that asks Java to end its jobs."""
    def end(*_: object) -> None:
        global _has_ended_java
        logging.disable()               # Spark's Python logs each call that fails now
        _has_ended_java = True
        end_java()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, end)
    logging.getLogger().addFilter(is_named)


def is_named(record: logging.LogRecord) -> bool:
    """Return whether a line of the log is for people. Spark's Python logs each call to
    Java that fails, with a traceback and without a name; its error is raised as
    well."""
    return record.name != "root"


def has_ended_java() -> bool:
    """Return whether Ctrl-C has ended Spark's Java. Any error after that is no other:
    Spark's Python calls Java also while the KeyboardInterrupt passes through it, and
    what this call raises takes its place."""
    return _has_ended_java


def end_java() -> None:
    """End Spark's Java, if this process has started one and it still runs."""
    end = time.monotonic() + MOMENT
    for child in others():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
    while others() and time.monotonic() < end:
        time.sleep(0.01)
    for child in others():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def others() -> list[int]:
    """Return the children of this process that run another program than it."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):                     # the thread has just ended
            found += (thread / "children").read_text().split()
    return [int(child) for child in found if program(child) not in ("", program("self"))]


def program(process: str) -> str:
    """Return the program that a process runs; nothing if it has ended."""
    try:
        return os.readlink(f"/proc/{process}/exe")
    except OSError:
        return ""
