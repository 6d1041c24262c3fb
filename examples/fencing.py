"""A leader writes to a file, with a fencing token: a former leader can write no more.

    python examples/fencing.py ann /tmp/ledger      # in three terminals
    python examples/fencing.py bob /tmp/ledger
    python examples/fencing.py cid /tmp/ledger

The oldest member leads. After it was stopped or cut off, it may believe so for a while
although there is a new leader. So the file has the last word: each write has a token,
the id of the view in which its writer leads, and the file takes none that is lower than
one that it has seen. Each line that you type is a write.
"""

import argparse
import fcntl
import sys
from pathlib import Path

from ringcast import Channel, View


class Ledger:
    """A file of lines. It stands for a database, or any service that can compare."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a+")

    def write(self, token: int, line: str) -> bool:
        """Append a line, unless one with a higher token is there; say if it did."""
        fcntl.flock(self.file, fcntl.LOCK_EX)           # compare and write in one step
        try:
            self.file.seek(0)
            if any(int(each.split()[0]) > token for each in self.file):
                return False
            print(token, line, file=self.file, flush=True)
            return True
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)


def on_view(view: View) -> None:
    print(f"-- {', '.join(view.names)}: {view.coordinator.name} leads", flush=True)


parser = argparse.ArgumentParser(description="A leader writes with a fencing token.")
parser.add_argument("name")
parser.add_argument("path", type=Path)
parser.add_argument("--port", type=int, default=7700, help="port of the group")
args = parser.parse_args()
ledger = Ledger(args.path)
# Only the part with a majority of three leads, so the tokens of all leaders only grow.
with Channel("fencing", name=args.name, port=args.port, on_view=on_view, min_members=2,
             partition="primary") as channel:
    for line in map(str.strip, sys.stdin):
        view = channel.view
        if view.coordinator != channel.address or not view.primary:
            print(f"{args.name} does not lead in {view}", flush=True)
        elif ledger.write(view.id, line):
            print(f"{args.name} wrote {line}", flush=True)
        else:
            print(f"the file refused {line}: there is another leader", flush=True)
