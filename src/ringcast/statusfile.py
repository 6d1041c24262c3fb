"""The status file: what a channel knows, in shared memory, for who looks from outside.

    /dev/shm/ringcast-<uid>/<group>.<name>      (or in the folder for temporary files)

The file has a header, and two slots for a Snapshot each. The writer fills the slot that
the header does not name, and then names it. So a reader takes no lock and disturbs
nobody, and a process that is killed while it writes leaves the snapshot before. A
reader that was too slow sees another number or a wrong checksum, and reads again.

The folder and the files are for their owner alone. A folder that is somebody else's, or
open to others, is refused. Names are escaped. A file is removed when its channel
closes. One of a dead process stays, because it says how the process ended: until a
channel of the same group and name opens, or for a day; but of many only the newest, so
that a service that dies again and again fills no memory.
"""

import hashlib
import os
import stat
import struct
import tempfile
import time
import zlib
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import msgspec

from ringcast.decoding import UNDECODABLE
from ringcast.errors import RingcastError
from ringcast.snapshot import Snapshot

MAGIC, VERSION = b"ringcast", 1
HEADER = struct.Struct("<8sIIQ")        # magic, version, size of a slot, number of the snapshot
SLOT = struct.Struct("<QII")            # number, length and CRC-32 of a snapshot, which follows
PAGE, SLOT_SIZE = 4096, 1 << 18
TRIES = 20                              # of a reader; a writer needs 0.1 s for each slot
KEEP = 86_400                           # seconds that the file of a dead process stays ...
MOST_KEPT = 64                          # ... but not more files than this ...
SILENT = 60.0                           # ... that nobody has written to for so many seconds
PATIENCE = 2.0                          # seconds for which a reader waits for the next snapshot
PAUSE = 0.02                            # seconds between two looks for it
LONGEST = 100                           # bytes of a name in the name of a file

SHARED = Path("/dev/shm")

# Made here, in one thread: two threads that make what msgspec knows of a type at one
# time make the process crash.
DECODER = msgspec.msgpack.Decoder(Snapshot)


class Life(StrEnum):
    """What has become of the process that wrote a file."""

    RUNNING = "running"
    STOPPED = "stopped"     # by a signal or a debugger
    DEAD = "dead"
    UNKNOWN = "unknown"     # it is in another container


def folder() -> Path:
    """Return where the status files of this user are."""
    base = SHARED if os.access(SHARED, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return base / f"ringcast-{os.geteuid()}"


def escaped(name: str) -> str:
    """Return a group's or member's name as a part of a file's name. A part has no dot,
    and a long one ends with a checksum."""
    part = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(part) <= LONGEST:
        return part
    return f"{part[:LONGEST - 17]}~{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


class StatusFile:
    """The file of one channel, which writes it.

    Raises OSError if the system refuses, RingcastError for a folder that others can
    write to.

    Threads: one at a time.
    """

    def __init__(self, group: str, name: str, incarnation: int) -> None:
        self.path = open_folder() / f"{escaped(group)}.{escaped(name)}"
        remove_stale(self.path)
        try:
            self._fd = make(self.path)
        except FileExistsError:         # a live process has this name, too
            self.path = self.path.with_name(f"{self.path.name}~{incarnation:x}")
            self._fd = make(self.path)
        self._number = 0

    def write(self, body: bytes) -> None:
        """Write an encoded Snapshot. OSError if the memory is full; then the one before
        stays. One that is larger than a slot is dropped."""
        if len(body) > SLOT_SIZE - SLOT.size:
            return
        number = self._number + 1
        head = SLOT.pack(number, len(body), zlib.crc32(body))
        size = len(head) + len(body)
        if os.pwritev(self._fd, [head, body], PAGE + number % 2 * SLOT_SIZE) == size:
            os.pwrite(self._fd, HEADER.pack(MAGIC, VERSION, SLOT_SIZE, number), 0)
            self._number = number

    def forget(self) -> None:
        """Close a forked child's copy of the descriptor."""
        os.close(self._fd)

    def close(self) -> None:
        """Remove the file."""
        os.close(self._fd)
        with suppress(FileNotFoundError):
            self.path.unlink()


def make(path: Path) -> int:
    """Make a file that is not there, and open it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def open_folder() -> Path:
    """Return the folder of this user's status files; make it if it is not there."""
    path = folder()
    with suppress(FileExistsError):
        path.mkdir(0o700)
    check_folder(path)
    return path


def check_folder(path: Path) -> None:
    """Raise RingcastError if others own the folder or can write to it."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise RingcastError(f"{path} is not a folder, but status files belong there; remove it")
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise RingcastError(f"{path} is not this user's alone, so no status file is written or "
                            "read there; remove it, or make its mode 0700")


def remove_stale(path: Path) -> None:
    """Remove files of dead processes: those of this path, those that are old, and all
    but the newest of the others."""
    now, silent = time.time(), []
    for entry in os.scandir(path.parent):
        with suppress(OSError):
            age = now - entry.stat(follow_symlinks=False).st_mtime
            if entry.name == path.name or entry.name.startswith(f"{path.name}~") or age > KEEP:
                remove_dead(entry.path, age)
            elif age > SILENT:
                silent.append((age, entry.path))
    for age, each in sorted(silent)[MOST_KEPT:]:
        with suppress(OSError):
            remove_dead(each, age)


def remove_dead(path: str, age: float) -> None:
    """Remove a file if its process is dead, or an old one if that is unknown."""
    snapshot = read(Path(path))
    life = Life.UNKNOWN if snapshot is None else life_of(snapshot)
    if life is Life.DEAD or (life is Life.UNKNOWN and age > KEEP):
        os.unlink(path)


def read(path: Path) -> Snapshot | None:
    """Return the snapshot in a file; None if it has none, or is no status file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for _ in range(TRIES):
            head = os.pread(fd, HEADER.size, 0)
            if len(head) < HEADER.size:
                return None
            magic, version, slot_size, number = HEADER.unpack(head)
            if (magic, version, slot_size) != (MAGIC, VERSION, SLOT_SIZE) or not number:
                return None
            slot = os.pread(fd, SLOT_SIZE, PAGE + number % 2 * SLOT_SIZE)
            written, length, checksum = SLOT.unpack_from(slot.ljust(SLOT.size, b"\0"))
            body = slot[SLOT.size:SLOT.size + length]
            if (written, len(body), zlib.crc32(body)) == (number, length, checksum):
                return DECODER.decode(body)
    except (OSError, *UNDECODABLE):
        pass                            # it is no status file, or another version's
    finally:
        os.close(fd)
    return None


def snapshots(group: str | None = None) -> list[Snapshot]:
    """Return what this user's channels wrote last, of one group or of all, by group,
    name and incarnation. RingcastError if the folder is not this user's alone."""
    path = folder()
    if not path.exists():
        return []
    check_folder(path)
    found = filter(None, map(read, path.iterdir()))
    return sorted((each for each in found if group in (None, each.group)),
                  key=lambda each: (each.group, each.name, each.incarnation))


def next_snapshots(group: str) -> list[Snapshot]:
    """Return what this user's channels of all groups wrote last, once those of one
    group have written again. Wait at most PATIENCE seconds, and for no channel that
    writes no more."""
    began, end, found = time.time_ns(), time.monotonic() + PATIENCE, snapshots()
    while time.monotonic() < end and any(
            each.group == group and each.written_at <= began and goes_on(each) for each in found):
        time.sleep(PAUSE)
        found = snapshots()
    return found


def goes_on(snapshot: Snapshot) -> bool:
    """Return whether the channel that wrote a snapshot should write another one."""
    return snapshot.fault is None and life_of(snapshot) in (Life.RUNNING, Life.UNKNOWN)


def life_of(snapshot: Snapshot) -> Life:
    """Return what has become of the process that wrote a snapshot."""
    if snapshot.namespace != namespace():
        return Life.UNKNOWN
    state, started = process(snapshot.pid)
    if started != snapshot.started or state in "ZX":
        return Life.DEAD
    return Life.STOPPED if state in "Tt" else Life.RUNNING


def process(pid: int | str) -> tuple[str, int]:
    """Return the state of a process and when it began, as in /proc; ("X", -1) if there
    is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "X", -1
    fields = text.rpartition(")")[2].split()        # its name may have anything but is in brackets
    return fields[0], int(fields[19])


def namespace() -> int:
    """Return the number of this process's namespace of process ids; 0 if unknown."""
    with suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino
    return 0
