"""`ringcast monitor`: what happens in a group, as the members on this machine see
it."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from ringcast.cli.app import app
from ringcast.cli.options import AsJson, GroupHere, print_json, printable
from ringcast.cli.seen import Seen, look, nobody
from ringcast.cli.sentences import folded
from ringcast.statusfile import Life

PAUSE = 0.1         # seconds between two looks
INDENT = 14         # columns of the time and the spaces after it


@dataclass(frozen=True)
class Line:
    """One thing that happened: `member` saw or did it."""

    at: int         # wall time in nanoseconds
    member: str
    kind: str
    who: str
    whom: str
    text: str

    def as_object(self) -> dict[str, Any]:
        """Return it for a program."""
        return {"at": self.at / 1e9, "member": self.member, "kind": self.kind, "who": self.who,
                "whom": self.whom, "text": self.text}

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.at / 1e9).strftime("%H:%M:%S.%f")[:-3]
        if self.whom:
            what = f"{self.who} {self.kind} {self.whom}" if self.kind != "must go" else (
                f"{self.whom} must go")
            return f"{at}  {printable(self.member)}: {printable(what)}: {printable(self.text)}"
        return f"{at}  {printable(self.member)}: {self.kind}: {printable(self.text)}"


@app.command("monitor")
def monitor_command(
    group: GroupHere,
    as_json: AsJson = False,
    past: Annotated[bool, typer.Option(
        "--past", help="Show only what has happened already, and end.")] = False,
) -> None:
    """Follow what happens in a group, as its members on this machine see it: views,
    suspicions and what shows them, who must go and why, warnings, faults, processes
    that stop, die or go on. First it shows what has happened already, up to 64 events
    of each member. Ctrl-C ends it.

    It reads the status files of the members, also of those that were killed. With
    --json, print one object a line. With --past, exit status 1 if nobody of the group
    has a status file here.
    """
    follower = Follower()
    while True:
        found = look(group)
        if past and not found:
            if not as_json:
                print(folded(nobody(group)))
            raise typer.Exit(1)
        for line in follower.news(found):
            if as_json:
                print_json(line.as_object())
            else:
                show(line)
        if past:
            return
        time.sleep(PAUSE)


def show(line: Line) -> None:
    """Print a line."""
    print(folded(str(line), INDENT), flush=True)


class Follower:
    """Knows what was shown already."""

    def __init__(self) -> None:
        self.shown: dict[int, int] = {}         # of each incarnation: the last event's number
        self.lives: dict[int, tuple[str, Life]] = {}    # its name, and how it was

    def news(self, found: Iterable[Seen]) -> list[Line]:
        """Return what is new, the oldest first."""
        found = list(found)
        lines: list[Line] = []
        for seen in found:
            lines += self._events(seen)
            lines += self._life(seen)
        here = {seen.snapshot.incarnation for seen in found}
        for gone in self.lives.keys() - here:
            name, life = self.lives.pop(gone)
            if life is not Life.DEAD:           # a dead one's file was removed
                lines.append(Line(time.time_ns(), name, "process", name, "", "closed its channel"))
        return sorted(lines, key=lambda line: line.at)

    def _events(self, seen: Seen) -> Iterator[Line]:
        snapshot = seen.snapshot
        last = self.shown.get(snapshot.incarnation, 0)
        for event in snapshot.events:
            if event.number > last:
                yield Line(event.at, snapshot.name, event.kind, event.who, event.whom, event.text)
                self.shown[snapshot.incarnation] = event.number

    def _life(self, seen: Seen) -> Iterator[Line]:
        """Yield what has become of the process, if that has changed."""
        snapshot, life = seen.snapshot, seen.life
        _, before = self.lives.get(snapshot.incarnation, ("", Life.RUNNING))
        self.lives[snapshot.incarnation] = snapshot.name, life
        if life is not before:
            text = {Life.DEAD: "is dead, without having closed its channel",
                    Life.STOPPED: "is stopped, by a signal or a debugger",
                    Life.RUNNING: "goes on", Life.UNKNOWN: "is in another container"}[life]
            at = snapshot.written_at + 1 if life is Life.DEAD else time.time_ns()
            yield Line(at, snapshot.name, "process", snapshot.name, "",
                       f"process {snapshot.pid} {text}")
