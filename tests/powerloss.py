"""A model of a disk that loses power: what was not synced may be gone.

After a power loss a file has the bytes of its last fsync (none, if there was no fsync).
A directory has either the names of its last fsync or those that it has now. This holds
for each directory alone, so every combination is checked. `PowerLoss` watches the calls
that change a directory. Before each of them it builds every state that may be left and
calls the check of the test.
"""

import itertools
import os
import shutil
from pathlib import Path

CHANGES = ("fsync", "link", "mkdir", "rename", "replace", "unlink")


class PowerLoss:
    """Calls `check(copy of root)` for each state that a power loss may leave."""

    def __init__(self, root, scratch, monkeypatch, check):
        self.root, self.scratch, self.check = Path(root), Path(scratch), check
        self.names = {}                         # {directory: its names at its last fsync}
        self.contents = {}                      # {inode: bytes at the last fsync of that file}
        self.kept = self.scratch / "kept"       # links that keep the inodes from being used again
        self.kept.mkdir(parents=True)
        self.real = {name: getattr(os, name) for name in CHANGES}
        self.busy = False
        self.names[self.root] = self.list_names(self.root)
        for name in CHANGES:
            monkeypatch.setattr(os, name, self.watched(name))

    def watched(self, name):
        real = self.real[name]

        def call(*args, **options):
            if self.busy:
                return real(*args, **options)
            self.check_states()
            result = real(*args, **options)
            if name == "fsync":
                self.note_fsync(Path(os.readlink(f"/proc/self/fd/{args[0]}")))
            return result
        return call

    def note_fsync(self, path):
        if self.root not in (path, *path.parents):
            return
        if path.is_dir():
            self.names[path] = self.list_names(path)
        else:
            inode = path.stat().st_ino
            if inode not in self.contents:
                self.real["link"](path, self.kept / str(inode))
            self.contents[inode] = path.read_bytes()

    def list_names(self, directory):
        """Return what `directory` has now: {name: inode of a file, or None}."""
        return {entry.name: None if entry.is_dir() else entry.inode()
                for entry in os.scandir(directory)}

    def check_states(self):
        """Check every state that a power loss at this moment may leave."""
        self.busy = True
        try:
            checked = set()
            directories = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
            for lost in itertools.product((False, True), repeat=len(directories)):
                names = {path: self.names.get(path, {}) if is_lost else self.list_names(path)
                         for path, is_lost in zip(directories, lost, strict=True)}
                state = tuple(self.walk(names, self.root))
                if state not in checked:
                    checked.add(state)
                    self.check(self.build(state))
        finally:
            self.busy = False

    def walk(self, names, directory):
        """Yield the paths below `directory`, with the bytes of a file, or None."""
        for name, inode in sorted(names.get(directory, {}).items()):
            path = directory / name
            content = None if inode is None else self.contents.get(inode, b"")
            yield str(path.relative_to(self.root)), content
            if inode is None:
                yield from self.walk(names, path)

    def build(self, state):
        copy = self.scratch / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        self.real["mkdir"](copy)
        for path, content in state:
            if content is None:
                self.real["mkdir"](copy / path)
            else:
                (copy / path).write_bytes(content)
        return copy
