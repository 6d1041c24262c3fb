"""What an executor does with a run: carry it out within its time, and make a row of
whatever comes of it.

A run that takes too long is ended by a signal, which Python code notices at once; one
that sits in compiled code and notices nothing ends with its whole process, by a
watchdog that needs neither the interpreter's lock nor a signal. Where Spark keeps the
last words of a worker, the name of the run stands in them, so that the driver knows
which one it was.
"""

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, TextIO

import msgspec
import pyarrow as arrow
import pyarrow.compute  # noqa: F401  (what a run needs at its end, loaded before its time begins)

from ringcast.campaign.runs import ERROR, SCHEMA, TIMEOUT, Planned
from ringcast.sim.runs.plan import Settings
from ringcast.sim.runs.run import Outcome

AGAIN = 1.0                         # seconds until a run is told once more, if it has not noticed

Simulate = Callable[[int, Settings], Outcome]


class RunTimeout(BaseException):
    """Not an Exception: nothing in a run that catches those may hold it up."""


def work(chunk: bytes, limit: float, grace: float, simulate: Simulate,
         batches: Iterator[arrow.RecordBatch]) -> Iterator[arrow.RecordBatch]:
    """For mapInArrow: one row for each run of the chunk whose index comes in. `limit`
    is in seconds, for each, and so is `grace`, in which one may still notice that its
    time is over."""
    runs = msgspec.json.decode(chunk, type=list[Planned])
    with last_words() as words:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield arrow.RecordBatch.from_pylist([attempt(runs[index], limit, grace, simulate, words)], SCHEMA)


def attempt(run: Planned, limit: float, grace: float, simulate: Simulate, words: TextIO | None = None) -> dict[str, Any]:
    """The row of a run, whatever happens in it."""
    began = monotonic()
    try:
        with limited(limit, grace, words, run.name):
            outcome = simulate(run.seed, run.settings)
        return run.row_of(outcome, monotonic() - began)
    except RunTimeout:
        return run.row(TIMEOUT, f"it was ended after {limit:g} seconds", traceback.format_exc(),
                       monotonic() - began)
    except Exception as error:
        return run.row(ERROR, f"{type(error).__name__}: {error}", traceback.format_exc(),
                       monotonic() - began)


@contextmanager
def limited(limit: float, grace: float, words: TextIO | None, name: str) -> Iterator[None]:
    """RunTimeout after `limit` seconds; the end of the process `grace` seconds later,
    if that has no effect."""
    file = words or sys.__stderr__
    assert file is not None
    if words is not None:
        words.truncate(0)
        words.write(f"run {name}\n")
        words.flush()
    faulthandler.dump_traceback_later(limit + grace, exit=True, file=file)
    try:
        # signals are for the main thread alone
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = signal.signal(signal.SIGALRM, end_it)
        signal.setitimer(signal.ITIMER_REAL, limit, AGAIN)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
    finally:
        faulthandler.cancel_dump_traceback_later()


def end_it(number: int, frame: FrameType | None) -> None:
    raise RunTimeout


@contextmanager
def last_words() -> Iterator[TextIO | None]:
    """The file whose text Spark adds to its report when a worker dies, if it keeps one:
    what faulthandler writes goes there too."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    path = Path(folder, str(os.getpid())) if folder else None
    if path is None or not path.exists():
        yield None
        return
    with path.open("a", encoding="utf-8") as words:
        faulthandler.enable(file=words)             # into this handle, behind the name of the run
        try:
            yield words
        finally:
            faulthandler.disable()                  # before the handle is closed
