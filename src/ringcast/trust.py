"""The keys that a member trusts: a folder with `NAME.pub` for each member, and
`NAME.key` for this one alone.

    /etc/flights.trust/
        tower.key       our private key: nobody else's, and only its owner can read it
        tower.pub       our public key
        radar.pub       those of the others

The key of the file NAME.pub may use the name NAME, and names that begin with NAME and a
`/`. Keys are Ed25519, written as OpenSSH does: `ssh-keygen -t ed25519` makes them too.

The folder is read when a member starts, and again within LOOK when something in it has
changed. So a key that was added is trusted soon, and one that was removed is not. A
file that is there and whose key cannot be read takes no trust away: the process has too
many open files, or may not read it, or somebody is just copying another key over it.
Its key stays as it was, and the next look reads it again. To take trust away, the file
is removed.
"""

import os
import stat
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ringcast.config import MAX_NAME
from ringcast.errors import ConfigError
from ringcast.logs import printable
from ringcast.paths import check_characters, create, typed
from ringcast.secret import require_cryptography

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Trust = str | os.PathLike[str]

PUBLIC, PRIVATE = ".pub", ".key"        # the ends of the files' names
LONGEST_NAME = 40                       # bytes; there is room for what comes behind the /
LONGEST = 4096                          # bytes of a file
MOST_KEYS = 1024                        # public keys in a folder
LOOK = 1_000_000_000                    # nanoseconds between two looks at the folder
Stamps = dict[str, tuple[int, ...] | None]     # None: of a file that could not be read


class UnreadableError(ConfigError):
    """A file is there, and its key cannot be read now."""


class Trusted(NamedTuple):
    """Holds what was read in a folder: the names of each public key, and what is wrong
    with files, as far as it was not said before."""

    names: dict[bytes, frozenset[str]]
    faults: list[str]                   # of files whose keys are not trusted
    unread: list[str]                   # of those whose keys are trusted as they were


class Folder:
    """A folder of trusted keys. ConfigError, which repeats no private key, if it cannot
    be used. Where it `may_lack` keys, what is wrong with single public keys is in
    `faults` instead."""

    def __init__(self, trust: Trust, *, may_lack: bool = False) -> None:
        if not isinstance(trust, str | os.PathLike):
            raise TypeError(f"trust is the path of a folder, not {type(trust).__name__}")
        require_cryptography("trust=")
        check_characters("trust", trust)
        self.path = Path(trust)
        self.typed = typed(trust)
        self.stamps: Stamps = {}                        # of what was read
        self.keys: dict[str, bytes] = {}                # by file
        self.unread: dict[str, str] = {}                # what is wrong now, by file
        self.is_full = False
        self.names: dict[bytes, frozenset[str]] = {}
        stamps = self._look()
        private = [name for name in stamps if name.endswith(PRIVATE)]
        if len(private) != 1:
            found = f"{len(private)} private keys" if private else "no private key"
            raise ConfigError(f"the folder {self.typed!r} of trusted keys has {found}; it must "
                              "have exactly one, this member's own, which `ringcast trust new` "
                              "makes")
        self.own = private[0].removesuffix(PRIVATE)
        self.private = read_private(self.path / private[0])
        self.key = self.private.public_key().public_bytes_raw()
        self.faults = self._read_changed(stamps).faults
        if self.faults and not may_lack:
            raise ConfigError(self.faults[0])
        if not self.faults and self.own not in self.names.get(self.key, ()):
            raise ConfigError(f"{self.path / private[0]} is not the private key of {self.own}"
                              f"{PUBLIC}, which has to be in the same folder")

    def _look(self) -> Stamps:
        """Return what changes if a file does."""
        try:
            is_fixed = os.statvfs(self.path).f_flag & os.ST_RDONLY
            is_open = self.path.stat().st_mode & stat.S_IWOTH and not is_fixed
            with os.scandir(self.path) as entries:
                found: Stamps = {entry.name: _stamp(entry) for entry in entries
                                 if entry.name.endswith((PUBLIC, PRIVATE))
                                 and not entry.name.startswith(".")}
        except OSError as error:
            raise ConfigError(f"the folder {self.typed!r} of trusted keys cannot be read: "
                              f"{error.strerror}; give the one that `ringcast trust new` "
                              "made") from None
        if is_open:
            raise ConfigError(f"everybody on this machine can put keys into {self.typed!r}; "
                              "look at what is there, and `chmod o-w` the folder")
        return found

    def changed(self) -> Trusted | None:
        """Return what is in the folder, if it has changed since it was read."""
        stamps = self._look()
        return None if stamps == self.stamps else self._read_changed(stamps)

    def _read_changed(self, stamps: Stamps) -> Trusted:
        """Read the public keys whose files have changed. Of those that cannot be read
        no stamp is kept, so the next look reads them again, or sees that they have
        gone."""
        keys: dict[str, bytes] = {}
        faults: list[str] = []
        unread: dict[str, str] = {}
        for file in sorted(stamps):
            if not file.endswith(PUBLIC):
                continue
            try:
                if stamps[file] != self.stamps.get(file):
                    keys[file] = read_public(self.path / file)
                    continue
            except UnreadableError as error:
                unread[file] = str(error)
            except ConfigError as error:
                faults.append(str(error))
                continue
            if file in self.keys:
                keys[file] = self.keys[file]
        new = {file: fault for file, fault in unread.items() if self.unread.get(file) != fault}
        faults += [fault for file, fault in new.items() if file not in keys]
        self.stamps = stamps | dict.fromkeys(unread)
        self.keys, self.unread = keys, unread
        faults += self._name(keys)
        return Trusted(self.names, faults, [fault for file, fault in new.items() if file in keys])

    def _name(self, keys: dict[str, bytes]) -> list[str]:
        """Note the names of keys. Of too many take our own first, and those that were
        trusted. Return what is wrong with it."""
        names: dict[bytes, set[str]] = {}
        for file, key in keys.items():
            names.setdefault(key, set()).add(file.removesuffix(PUBLIC))
        order = sorted(names, key=lambda key: (key != self.key, key not in self.names))
        was_full, self.is_full = self.is_full, len(order) > MOST_KEYS
        self.names = {key: frozenset(names[key]) for key in order[:MOST_KEYS]}
        if not self.is_full or was_full:
            return []
        first = min(names[order[MOST_KEYS]])
        return [f"{self.path / first}{PUBLIC} is a key too many: at most {MOST_KEYS} are read"]

    def name(self, name: str) -> str:
        """Return a name for a member with our key: this one, if we may use it, else one
        below ours. ConfigError if it has no room behind ours."""
        if self._is_ours(name):
            return name
        below = f"{self.own}/{name}"
        if len(below.encode()) > MAX_NAME:
            raise ConfigError(f"{self.path / self.own}{PRIVATE} has so long a name that {name!r} "
                              "finds no room behind it in a member's name of at most "
                              f"{MAX_NAME} bytes: rename it, and its {PUBLIC} in all folders, to "
                              f"at most {LONGEST_NAME} bytes")
        return below

    def _is_ours(self, name: str) -> bool:
        from ringcast.protocols.security.identity import may_use

        return may_use(name, self.names.get(self.key, frozenset()))

    def check(self, name: str) -> None:
        """Raise ConfigError if a member with our key may not have this name."""
        if not self._is_ours(name):
            raise ConfigError(f"name={name!r} is not a name of the key in {str(self.path)!r}: take "
                              f"{self.own!r}, or one that begins with {self.own + '/'!r}")


# ----------------------------------------------------------------------------------- files

def _stamp(entry: os.DirEntry[str]) -> tuple[int, ...]:
    """Return what changes if a file does, or who may read and write it. Empty, if there
    is nothing to see: to read it shows why."""
    try:
        status = entry.stat()
    except OSError:
        return ()
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode)


def read_public(path: Path) -> bytes:
    """Return the public key in a file."""
    return parse_public(_read(path), str(path))


def parse_public(text: bytes, where: str) -> bytes:
    """Return the public key in a text, as OpenSSH writes it. ConfigError, which says
    `where` it came from, if there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(text.strip())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise UnreadableError(f"{where} has no public key; it should have one line that begins "
                              "with ssh-ed25519, as `ringcast trust new` prints it")
    return key.public_bytes_raw()


def read_private(path: Path) -> "Ed25519PrivateKey":
    """Return the private key in a file that only its owner can read."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    text = _read(path, is_private=True)
    try:
        key = load_ssh_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None                      # the error may show what is in the file
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} has no private key of Ed25519 without a passphrase; make one "
                          "with `ringcast trust new`")
    return key


def _read(path: Path, is_private: bool = False) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(LONGEST + 1) if stat.S_ISREG(mode) else b""
    except FileNotFoundError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path} is not a regular file")
    if is_private and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"others can read or write {path}; make a new key, since they may have "
                          "this one, or `chmod 600` the file if nobody can")
    if mode & stat.S_IWOTH:
        raise ConfigError(f"everybody on this machine can write {path}; look whose key it is, and "
                          "`chmod o-w` the file")
    if len(text) > LONGEST:
        raise UnreadableError(f"{path} is too large for a key")
    return text


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; wait for nobody, if it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


# ----------------------------------------------------------------------------------- changes

def checked_name(name: str) -> str:
    """Return the name of a key, which is that of its file and of its member."""
    if not name or "/" in name or name.startswith(".") or not name.isprintable() or (
            len(name.encode()) > LONGEST_NAME):
        raise ConfigError(f"{printable(name)!r} cannot be the name of a key: it is that of a file "
                          f"and of a member, without / and of at most {LONGEST_NAME} bytes")
    return name


def new_key(folder: Path, name: str) -> str:
    """Make a pair of keys in a folder, which is made if it is not there. Return the
    public one. ConfigError if the folder has a private key already."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    checked_name(name)
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        there = [path.name for path in folder.glob(f"*{PRIVATE}")]
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None
    if there:
        raise ConfigError(f"{folder} has the private key {there[0]} already; it is the identity of "
                          "this member, so give another folder")
    add_key(folder, name, public)
    try:
        _write(folder / f"{name}{PRIVATE}", key.private_bytes(
            Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    except ConfigError:
        remove_key(folder, name)        # nobody has its private key
        raise
    return public


def add_key(folder: Path, name: str, public: str) -> None:
    """Trust a public key under a name. ConfigError if the name has a key already."""
    parse_public(public.encode(), "the text")
    path = folder / f"{checked_name(name)}{PUBLIC}"
    _write(path, " ".join(public.split()[:2]).encode() + f" {name}\n".encode(), 0o644)


def remove_key(folder: Path, name: str) -> None:
    """Trust the public key of a name no more."""
    path = folder / f"{checked_name(name)}{PUBLIC}"
    try:
        path.unlink()
    except OSError as error:
        raise ConfigError(f"{path} cannot be removed: {error.strerror}") from None


def fingerprint(key: bytes) -> str:
    """Return the short form of a public key that people compare, as `ssh-keygen -l`
    shows it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import ssh_key_fingerprint

    digest = ssh_key_fingerprint(Ed25519PublicKey.from_public_bytes(key), SHA256())
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def _write(path: Path, text: bytes, mode: int) -> None:
    """Write a new file, which nobody sees before it is whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        create(draft, text, mode)
        os.link(draft, path)
    except FileExistsError:
        raise ConfigError(f"{path} is there already; remove it first, if that key is to be "
                          "trusted no more") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
