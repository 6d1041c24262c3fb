"""The outbox of its one publisher: it holds the lock, and writes the ledger."""

import os
import time
from pathlib import Path
from types import TracebackType

from ringcast import OutboxError, Succession
from ringcast.config import Config
from ringcast.journal.manifest import lock_within, make_directory, sync_directory, write_json
from ringcast.logs import log
from ringcast.outbox.store import (
    BATCHES,
    FORMAT,
    LEDGER,
    LOCK,
    META,
    NUMBERS,
    PARTS,
    STATUS,
    VERSION,
    Ledger,
    Outbox,
    OutboxMeta,
    Status,
    name_of,
    number_of,
    os_errors_as_outbox_error,
)

LOCK_TIMEOUT = 2.0          # seconds for the lock, which sinks hold for a moment to test it
MOST_FORMER = 8             # members of the succession that are remembered


class OwnedOutbox(Outbox):
    """The outbox of a publisher, which holds its lock. It is made if it does not exist.

    `config` is that of the publisher's channel. Raises OutboxError if another publisher
    has the outbox, or if it belongs to another group.
    """

    def __init__(self, path: str | os.PathLike[str], group: str, config: Config) -> None:
        super().__init__(path)
        self._lock: int | None = None
        try:
            with os_errors_as_outbox_error(self.path):
                self._open(OutboxMeta(FORMAT, VERSION, group, config.max_message_size))
                self.own_ledger = self._resume(config.max_bundle_size, config.max_datagram)
        except BaseException:
            self.release()
            raise

    def _open(self, meta: OutboxMeta) -> None:
        make_directory(self.path, fsync=True)
        known = self.meta()
        ours = {LOCK, NUMBERS, PARTS, BATCHES, META + ".tmp"}
        if known is None and set(os.listdir(self.path)) - ours:
            raise OutboxError(f"{self.path} is not an outbox (it has files but no {META}): name an "
                              "outbox, or an empty directory.")
        if known is not None and known.group != meta.group:
            raise OutboxError(f"{self.path} is the outbox of group {known.group!r}, not of "
                              f"{meta.group!r}: name another directory.")
        self._lock = self._take_lock()
        self.parts.mkdir(exist_ok=True)
        self.batches.mkdir(exist_ok=True)
        if not (self.path / NUMBERS).exists():
            (self.path / NUMBERS).touch()
        if known != meta:
            write_json(self.path / META, meta, fsync=True)

    def _take_lock(self) -> int:
        fd = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not lock_within(fd, LOCK_TIMEOUT):
            os.close(fd)
            raise OutboxError(f"{self.path} has a publisher already: stop that one, or name "
                              "another directory.")
        return fd

    def _resume(self, bundle: int, datagram: int) -> Ledger:
        """Return the ledger, a new one or the one that goes on, and write it."""
        ledger = self.ledger()
        if ledger is None:
            ledger = Ledger(Succession.begin().origin, bundle, datagram)
        elif ((ledger.bundle, ledger.datagram) != (bundle, datagram)
                and self.manifest(ledger.finished + 1) is not None):
            raise OutboxError(f"{self.path} has batches that were begun with max_bundle_size="
                              f"{ledger.bundle} and max_datagram={ledger.datagram}: pass the same "
                              "until these are published.")
        ledger.bundle, ledger.datagram = bundle, datagram
        self.own_ledger = ledger
        self.commit_ledger()
        for name in os.listdir(self.batches):
            number = number_of(name)
            if number is None:
                if not name.endswith(".tmp"):
                    log.warning("%s is not a batch and is ignored; move it away",
                                self.batches / name)
            elif number <= ledger.finished:
                self.remove(number)
        return ledger

    def commit_ledger(self) -> None:
        """Make the ledger durable as it is now."""
        with os_errors_as_outbox_error(self.path):
            write_json(self.path / LEDGER, self.own_ledger, fsync=True)

    def note_member(self, incarnation: int) -> None:
        """Note, durably, that this incarnation sends from now on."""
        self.own_ledger.former = [*self.own_ledger.former, incarnation][-MOST_FORMER:]
        self.commit_ledger()

    def write_status(self, status: Status) -> None:
        """Write the status, for writers that wait."""
        with os_errors_as_outbox_error(self.path):
            write_json(self.path / STATUS, status, fsync=False)

    def remove(self, number: int) -> None:
        """Remove a finished batch. Its manifest goes first, so that no manifest ever
        names a part that is gone."""
        manifest = self.manifest(number)
        (self.batches / name_of(number)).unlink(missing_ok=True)
        if manifest is not None:
            sync_directory(self.batches, fsync=True)
            for part in manifest.parts:
                (self.parts / part.name).unlink(missing_ok=True)

    def sweep(self, older_than: float) -> int:
        """Remove the parts (and drafts) that no batch names and that were not written
        to for this number of seconds. Return how many they were. Folders are not ours,
        and stay. If a batch is given its number just now, remove nothing, and do not
        wait: its driver may be stopped."""
        before = time.time() - older_than
        # The lock: no batch comes into being meanwhile that names one of them.
        with os_errors_as_outbox_error(self.path), self._numbering(0) as is_held:
            if not is_held:
                return 0
            named = self._named()
            unnamed = [path for place in (self.parts, self.batches) for path in place.iterdir()
                       if (place == self.parts or path.suffix == ".tmp")
                       and path.name not in named and _written_at(path) < before
                       and not path.is_dir()]
            for path in unnamed:
                path.unlink(missing_ok=True)
        return len(unnamed)

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "OwnedOutbox":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
