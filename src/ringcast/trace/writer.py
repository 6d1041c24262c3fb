"""Writing rows to the disk: threads of the member append tuples, and a thread of the
trace writes them.

Nothing here waits for the disk, but for a member that closes, for some seconds; and
nothing raises into the member. If the disk is too slow, events are dropped and counted:
their numbers are missing in the trace, and a `dropped` row says how many. If the disk
fails, tracing ends with a warning in the log.
"""

import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ringcast.errors import ConfigError
from ringcast.logs import log
from ringcast.paths import check_characters
from ringcast.trace import UNFINISHED, id_of, number_of, part_name

if TYPE_CHECKING:
    import pyarrow

PART_ROWS = 100_000         # of a part; with so many it is written at once
PART_SECONDS = 1.0          # until a smaller part is written: what a crash may lose
MOST_ROWS = 400_000         # in memory; more are dropped
CLOSE_SECONDS = 5.0         # for which a member that closes waits for the disk


def needed() -> ModuleType:
    """Return the module `schema`; ConfigError if pyarrow is missing."""
    try:
        from ringcast.trace import schema
    except ImportError as error:
        raise ConfigError("a trace is written with pyarrow, which is not installed: "
                          'run pip install "ringcast[cli]"') from error
    return schema


def folder_of(directory: Path | str, member: str) -> Path:
    """Return the folder of a member (`name#incarnation`). A name may have any
    characters, so those that are unusual in paths are replaced."""
    return Path(directory) / re.sub(r"[^A-Za-z0-9_.-]", "_", member)


def make(folder: Path) -> Path:
    """Make a folder for a trace, unless there is an empty one; return it. ConfigError
    if it cannot be made or is not empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"the trace cannot be written to {folder}: {error.strerror}; "
                          "name another directory") from None
    if not is_empty:
        raise ConfigError(f"{folder} is not empty; name another directory for the trace, "
                          "or remove what is there")
    return folder


class Writer:
    """The trace of one member, `name#incarnation`, in a folder of `directory`.

    ConfigError if pyarrow is missing, or the folder cannot be made or is not empty.
    With `threaded` False, the thread that appends also writes: for simulations, whose
    events take no time.

    Threads: any thread may call append; close is called once.
    """

    def __init__(self, directory: Path | str, member: str, threaded: bool = True) -> None:
        self._schema = needed()
        check_characters("trace", directory)
        self.folder = make(folder_of(directory, member))
        self.member = member
        self.num_events = 0                         # including those that were dropped
        self.num_parts = 0
        self._rows: list[tuple[Any, ...]] = []
        self._dropped = 0                               # events, since there was no room
        self._has_failed = False
        self._lock = threading.Lock()
        self._is_due = threading.Event()
        self._is_closed = False
        self._threaded = threaded
        self._thread: threading.Thread | None = None    # started with the first event

    def append(self, time: int, wall: int, event: str, view_id: int, sender: str | None = None,
               peer: str | None = None, conn_id: int | None = None, first: int | None = None,
               last: int | None = None, count: int | None = None, ord: int | None = None,
               flags: int = 0, nbytes: int | None = None, sent_at: int | None = None,
               duration: int | None = None, fill: float | None = None,
               members: list[str] | None = None) -> None:
        """Append one event; the arguments are the columns."""
        with self._lock:
            ev = self.num_events
            self.num_events += 1
            is_full = len(self._rows) >= MOST_ROWS and event != "close"
            if self._has_failed or is_full:
                self._dropped += 1
                return
            if self._dropped:
                self._rows.append((ev, time, wall, "dropped", view_id, None, None, None, None, None,
                                   self._dropped, *[None] * 7))
                self._dropped = 0
                self.num_events += 1
                ev += 1
            self._rows.append((ev, time, wall, event, view_id, sender, peer, conn_id, first, last,
                               count, ord, flags, nbytes, sent_at, duration, fill, members))
            is_due = len(self._rows) >= PART_ROWS
            if self._threaded and self._thread is None:
                thread = threading.Thread(target=self._run, name=f"ringcast trace {self.member}",
                                          daemon=True)
                with suppress(RuntimeError):        # none is to be had: try at the next event
                    thread.start()
                    self._thread = thread
        if is_due and self._threaded:
            self._is_due.set()
        elif is_due:
            self._flush()

    def close(self) -> None:
        """Let the thread write what there is, and end. Do not wait for ever: a disk may
        hang."""
        self._is_closed = True
        self._is_due.set()
        if self._thread is None:
            self._flush()
            return
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("%s: the end of its trace is still not written after %g seconds; the disk "
                        "hangs or is very slow", self.member, CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._is_closed:
            self._is_due.wait(PART_SECONDS)
            self._is_due.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
        if not rows or self._has_failed:
            return
        try:
            self._write(rows)
        except Exception as error:  # most likely the disk is full; the member goes on in any case
            self._has_failed = True
            log.warning("%s: tracing ends, as its part %d cannot be written: %s", self.member,
                        self.num_parts + 1, error)

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        number = self.num_parts + 1
        unfinished = self.folder / f".{number:06d}{UNFINISHED}"
        self._schema.write(self._table(rows), unfinished)
        os.replace(unfinished, self.folder / part_name(number))
        self.num_parts = number

    def _table(self, rows: list[tuple[Any, ...]]) -> "pyarrow.Table":
        import pyarrow

        ev, time, wall, event, view_id, sender, peer, *others = zip(*rows, strict=True)
        num_rows = len(rows)
        columns = (ev, time, wall, [self.member] * num_rows, event, view_id, sender, peer, *others,
                   [id_of(self.member)] * num_rows, self._ids_of(sender), self._ids_of(peer),
                   [number_of(each) for each in event])
        schema = self._schema.SCHEMA
        arrays = [pyarrow.array(column, field.type)
                  for column, field in zip(columns, schema, strict=True)]
        return pyarrow.table(arrays, schema=schema)

    @staticmethod
    def _ids_of(names: Sequence[str | None]) -> list[int]:
        """Return the members of a column as numbers; each different one is read
        once."""
        ids = {name: id_of(name) for name in set(names)}
        return [ids[name] for name in names]
