"""The work of an executor: it carries out a run within its time limit, and makes a row
of the result, whatever it is.

A run that takes too long is ended by a signal, which interrupts Python code at once. If
it is in compiled code, where a signal has no effect, a watchdog ends the whole process;
it needs neither the interpreter's lock nor a signal. Spark can keep a file with the
last output of a worker. The name of the run is written there, so that the driver knows
which run it was.
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
import pyarrow as pa
import pyarrow.compute  # noqa: F401  (a run needs it at its end; loaded before its time begins)

from ringcast.campaign.runs import ERROR, SCHEMA, TIMEOUT, Planned
from ringcast.sim.runs.run import Outcome
from ringcast.sim.runs.settings import Settings

REPEAT_INTERVAL = 1.0               # seconds between signals, until a run ends

Simulate = Callable[[int, Settings], Outcome]


class RunTimeout(BaseException):
    """The time of a run is over. Not an Exception, so that `except Exception` in a run
    does not catch it."""


def work(chunk: bytes, limit: float, grace: float, simulate: Simulate,
         batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Carry out the runs of the chunk whose indexes come in, and return a row for each;
    for mapInArrow. `limit` is the seconds for each run; `grace` the seconds in which it
    may still end by the signal."""
    runs = msgspec.json.decode(chunk, type=list[Planned])
    with worker_log() as log:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                row = attempt(runs[index], limit, grace, simulate, log)
                yield pa.RecordBatch.from_pylist([row], SCHEMA)


def attempt(run: Planned, limit: float, grace: float, simulate: Simulate,
            log: TextIO | None = None) -> dict[str, Any]:
    """Carry out a run, and return its row, whatever happens in it."""
    began = monotonic()
    try:
        with limited(limit, grace, log, run.name):
            outcome = simulate(run.seed, run.settings)
        return run.row_of(outcome, monotonic() - began)
    except RunTimeout:
        return run.row(TIMEOUT, f"it was ended after {limit:g} seconds", traceback.format_exc(),
                       monotonic() - began)
    except Exception as error:
        return run.row(ERROR, f"{type(error).__name__}: {error}", traceback.format_exc(),
                       monotonic() - began)


@contextmanager
def limited(limit: float, grace: float, log: TextIO | None, name: str) -> Iterator[None]:
    """Raise RunTimeout after `limit` seconds, and end the process `grace` seconds later
    if that had no effect."""
    file = log or sys.__stderr__
    assert file is not None
    if log is not None:
        log.truncate(0)
        log.write(f"run {name}\n")
        log.flush()
    faulthandler.dump_traceback_later(limit + grace, exit=True, file=file)
    try:
        # Only the main thread gets signals.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = signal.signal(signal.SIGALRM, raise_timeout)
        signal.setitimer(signal.ITIMER_REAL, limit, REPEAT_INTERVAL)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
    finally:
        faulthandler.cancel_dump_traceback_later()


def raise_timeout(number: int, frame: FrameType | None) -> None:
    raise RunTimeout


@contextmanager
def worker_log() -> Iterator[TextIO | None]:
    """Open the file whose text Spark adds to its report when a worker dies, if it keeps
    one. The output of faulthandler goes there too."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    path = Path(folder, str(os.getpid())) if folder else None
    if path is None or not path.exists():
        yield None
        return
    with path.open("a", encoding="utf-8") as log:
        faulthandler.enable(file=log)               # through this handle, after the name of the run
        try:
            yield log
        finally:
            faulthandler.disable()                  # before the handle is closed
