"""Where other members may be: a list, a DNS name, a folder that all share, or what a
function of the user returns.

A Finder never keeps anybody waiting. A resolver, a network file system or a user's
function may take long, so it looks on a thread of its own, and `find` returns what is
known now. It looks again and again, because members come and go. What fails is logged
once, and what was known before stays known.

In a folder each member keeps one small file, which says where the member can be
reached. A member that dies cannot remove its file, so each writes its own again every
few seconds, and a file that was not written for a while is ignored.
"""

import ipaddress
import os
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias
from weakref import ref

import msgspec

from ringcast.arguments import callback
from ringcast.decoding import UNDECODABLE
from ringcast.errors import ConfigError
from ringcast.logs import log
from ringcast.transport.ipv4 import MOST_PLACES

Discovery: TypeAlias = str | Callable[[], Iterable[str]]

# Seconds until a name or a function is asked again: shortest, after each answer that is
# new, and longest.
ASK_FIRST, ASK_LAST = 0.5, 30.0

REWRITE = 2.0           # seconds between two rounds through a folder; each writes the own file
STALE = 15.0            # seconds after which a file that was not written again is ignored
DEAD = 3_600.0          # seconds after which anybody removes it
MOST_ENTRIES = 10_000   # of a folder that are looked at
LARGEST_FILE = 4_096    # bytes
_FILE = re.compile(r"member-[0-9a-f]{16}\.json(\.draft)?")

CHOICES = ("multicast, hosts:HOST:PORT,HOST..., dns:NAME, dns:NAME:PORT, folder:PATH, "
           "or a function that returns such addresses")


class Finder(Protocol):
    """Finds addresses where other members may be, for `Transport.seek`.

    Threads: any thread may call everything. Nothing waits or raises for what others do.
    In a forked child nothing happens.
    """

    def find(self) -> list[str]:
        """Return the addresses that are known now, each as host:port, or host alone."""

    @property
    def has_looked(self) -> bool:
        """Return whether it has looked once: more may be known soon if not."""

    def publish(self, physical: str) -> None:
        """Let others find this member at `physical`, where that is possible. A later
        call replaces the address."""

    def close(self) -> None:
        """Look no more, and let nobody find this member. A second call does nothing."""


def parse(discovery: Discovery, name: str = "", needs_ports: bool = False) -> Finder:
    """Return the Finder that `discovery` describes; it looks from the first call on.

    Args:
        discovery: "multicast": the transport itself reaches everybody, so nothing is
            added. "hosts:a:7700,b:7700": these hosts. "dns:NAME" or "dns:NAME:PORT":
            all IPv4 addresses of a name. "folder:PATH": what the members that share
            this folder write there. A function: the addresses that it returns; it is
            called on a thread of the Finder. An address without a port stands for all
            ports where members may be.
        name: this member's name, which its file in a folder tells.
        needs_ports: True refuses an address without a port.

    Raises ConfigError if it is none of these, and TypeError if the function is async.
    """
    if callable(discovery):
        return Asked(callback("discovery", discovery, may_yield=True))
    kind, colon, rest = discovery.partition(":") if isinstance(discovery, str) else ("", "", "")
    if discovery == "multicast":
        return Names([])
    if kind == "hosts" and colon:
        return Names([_host(discovery, each, needs_ports) for each in rest.split(",")])
    if kind == "dns" and colon:
        return Names([_host(discovery, rest, needs_ports)])
    if kind == "folder" and rest and "\0" not in rest:
        path = Path(rest).absolute()
        _check_folder(discovery, path)
        return Folder(path, name)
    raise ConfigError(f"discovery={discovery!r} is none of {CHOICES}")


def _check_folder(discovery: str, path: Path) -> None:
    """Raise ConfigError if what is at a path is no folder, or cannot be seen."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"discovery={discovery!r}: {path} cannot be read: {error.strerror}; "
                          "name a folder that this user may read and write") from None
    if not is_folder:
        raise ConfigError(f"discovery={discovery!r}: {path} is no folder; name one that all "
                          "members share, or one that can be made")


def _host(discovery: str, text: str, needs_port: bool) -> tuple[str, str]:
    """Return the host, and ":port" or nothing, of one address that a user gives."""
    host, colon, port = text.partition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not re.fullmatch(r"[\w.-]{1,253}", host) or (colon and not is_port):
        raise ConfigError(f"discovery={discovery!r}: {text!r} is not HOST or HOST:PORT, as in "
                          "127.0.0.1:7700 or db1.example.org:7700")
    if needs_port and not colon:
        raise ConfigError(f"discovery={discovery!r}: over UDP nobody is at {text!r} without a "
                          "port, which the system chooses for each member; take multicast or "
                          "folder:PATH, or a stack over TCP")
    return host, colon + port


class Watcher:
    """A Finder that looks again and again. A subclass provides `look` and `what`.

    Its thread begins with the first call of `find` or `publish`. It holds no reference
    while it waits, so that a Finder which everybody has forgotten can be collected.
    """

    what = ""                               # what is asked, for the log

    def __init__(self) -> None:
        self.has_looked = False             # see Finder.has_looked
        self._known: list[str] = []         # replaced as a whole
        self._look_now = threading.Event()
        self._is_closed = False
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._pause = ASK_FIRST             # this and the next are for the thread alone
        self._has_failed = False

    def look(self) -> list[str]:
        """Return the addresses of now, however long that takes. May raise anything."""
        raise NotImplementedError

    def kept(self) -> list[str]:
        """Return the addresses that are known after look() has failed."""
        return self._known

    def find(self) -> list[str]:
        """See `Finder.find`."""
        self._start()
        return list(self._known)

    def publish(self, physical: str) -> None:
        """See `Finder.publish`: who is asked knows already who is there."""

    def close(self) -> None:
        """See `Finder.close`."""
        if self._is_own:
            self._is_closed = True
            self._look_now.set()

    @property
    def _is_own(self) -> bool:
        """Return whether this is no forked child, where the thread is missing."""
        return os.getpid() == self._pid

    def _start(self) -> None:
        if self._thread is None and self._is_own:
            with self._start_lock:
                if self._thread is None and not self._is_closed:
                    thread = threading.Thread(target=_watch, args=(ref(self), self._look_now),
                                              name="ringcast discovery", daemon=True)
                    with suppress(RuntimeError):        # no more threads: the next call tries again
                        thread.start()
                        self._thread = thread

    def turn(self) -> float | None:
        """Look once. Return for how many seconds to wait, or None after close()."""
        if self._is_closed:
            return None
        try:
            found = list(dict.fromkeys(self.look()))[:MOST_PLACES]
        except BaseException as error:                  # a user's function may raise anything
            found = self.kept()
            if not (self._has_failed or self._is_closed):
                log.warning("cannot look for members: %s: %s; trying again", self.what, error)
            self._has_failed = True
        else:
            self._has_failed = False
        is_new, self._known = found != self._known, found
        self.has_looked = True
        return self.next_pause(is_new)

    def next_pause(self, is_new: bool) -> float:
        """Return for how long to wait: longer and longer while the answer stays the
        same."""
        self._pause = ASK_FIRST if is_new else min(2 * self._pause, ASK_LAST)
        return self._pause


def _watch(watcher: "ref[Watcher]", look_now: threading.Event) -> None:
    """Look until the watcher is closed, or nobody has it any more."""
    while True:
        look_now.clear()                    # before it looks: what comes later is looked at again
        finder = watcher()
        pause = finder.turn() if finder is not None else None
        del finder
        if pause is None:
            return
        look_now.wait(pause)


class Names(Watcher):
    """Hosts that are given, by name or address. Names are resolved."""

    def __init__(self, hosts: list[tuple[str, str]]) -> None:
        super().__init__()
        self.hosts = hosts                          # (host, ":port" or nothing)
        self.what = ", ".join(host + port for host, port in hosts)
        self.names = [host for host, _ in hosts if not _is_address(host)]
        self.has_looked = not self.names
        self._addresses: dict[str, list[str]] = {}  # of a name, as far as known
        self._known = self._list()

    def find(self) -> list[str]:
        """See `Finder.find`. Without names there is nothing to ask."""
        return super().find() if self.names else list(self._known)

    def look(self) -> list[str]:
        """Resolve each name. A name that cannot be resolved keeps its addresses, and
        does not keep the others from being resolved."""
        failure: Exception | None = None
        for name in self.names:
            try:
                self._addresses[name] = _resolve(name)
            except (OSError, UnicodeError) as error:
                failure = error
        if failure is not None:
            raise failure
        return self._list()

    def kept(self) -> list[str]:
        """Return the addresses of all names, as far as they are known."""
        return self._list()

    def _list(self) -> list[str]:
        return [address + port for host, port in self.hosts
                for address in self._addresses.get(host, [] if host in self.names else [host])]


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ipaddress.IPv4Address(host)
        return True
    return False


def _resolve(name: str) -> list[str]:
    """Return the IPv4 addresses of a name."""
    found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    return sorted({str(address[4][0]) for address in found})


class Asked(Watcher):
    """A function of the user."""

    def __init__(self, ask: Callable[[], Iterable[str]]) -> None:
        super().__init__()
        self.ask = ask
        self.what = getattr(ask, "__qualname__", repr(ask))

    def look(self) -> list[str]:
        """Ask the function."""
        answer = self.ask()
        found = [answer] if isinstance(answer, str) else list(islice(answer, MOST_PLACES))
        for each in found:
            if not isinstance(each, str):
                raise TypeError(f"{each!r} is no address; return strings such as 127.0.0.1:7700")
        return found


class Entry(msgspec.Struct):
    """Describes a member in its file: its name, where it can be reached, and when
    it wrote that, in nanoseconds since 1970 by its own clock. The last is for who looks
    at the file; members compare the times that the file system keeps."""

    name: str
    physical: str
    time: int


ENTRY = msgspec.json.Decoder(Entry)     # made here, as in statusfile.py


class Folder(Watcher):
    """A folder that members share."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__()
        self.path, self.name, self.what = path, name, f"folder {path}"
        self.file = path / f"member-{secrets.token_hex(8)}.json"
        self._physical = ""

    def publish(self, physical: str) -> None:
        """See `Finder.publish`."""
        self._physical = physical
        self._start()
        self._look_now.set()

    def close(self) -> None:
        """See `Finder.close`."""
        super().close()
        if self._is_own:
            self._remove()

    def next_pause(self, is_new: bool) -> float:
        """Return for how long to wait: always the same."""
        return REWRITE

    def look(self) -> list[str]:
        """Write the own file, and read those of the others, also if it cannot be
        written. Who has nothing to write makes no folder: its path may be a mistake."""
        if self._physical:
            self.path.mkdir(parents=True, exist_ok=True)
        now, failure = time.time(), None
        try:
            now = self._write() if self._physical else now
        except OSError as error:
            failure = error
        if self._is_closed:                 # perhaps since it was written: this side is the second
            self._remove()
        found = sorted(self._read(now))
        if failure is not None:
            self._known = found[:MOST_PLACES]
            raise failure
        return found

    def _remove(self) -> None:
        with suppress(OSError):
            self.file.unlink()

    def _write(self) -> float:
        """Write the own file. Return what time it is by the clock of the file system,
        which may be that of another machine."""
        draft = self.file.with_name(self.file.name + ".draft")
        draft.write_bytes(msgspec.json.encode(Entry(self.name, self._physical, time.time_ns())))
        written = draft.stat().st_mtime
        os.replace(draft, self.file)
        return written

    def _read(self, now: float) -> list[str]:
        """Return where the other members can be reached. Files that are damaged or no
        longer written are ignored, and removed in the end."""
        found: list[str] = []
        with os.scandir(self.path) as entries:
            for entry in islice(entries, MOST_ENTRIES):
                if _FILE.fullmatch(entry.name) and entry.name != self.file.name:
                    with suppress(OSError, *UNDECODABLE):
                        found += self._read_entry(entry, now)
        return found

    def _read_entry(self, entry: "os.DirEntry[str]", now: float) -> list[str]:
        status = entry.stat(follow_symlinks=False)
        age = now - status.st_mtime
        if not stat.S_ISREG(status.st_mode):
            return []
        if age > DEAD:
            os.unlink(entry.path)
            return []
        if age > STALE or entry.name.endswith(".draft") or status.st_size > LARGEST_FILE:
            return []
        return [ENTRY.decode(Path(entry.path).read_bytes()).physical]
