"""Puts into words what status files say about a group, for `status`, `top` and
`monitor`."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from ringcast import arguments, statusfile
from ringcast.cli.options import printable
from ringcast.snapshot import Snapshot, Waiting
from ringcast.statusfile import Life
from ringcast.units import counted

NOBODY = ("no channel of group {} has a status file here; look on its machine, as its user, and "
          "see that it does not have status_file=False")


@dataclass(frozen=True)
class Seen:
    """A snapshot, what has become of its process, and how old it is in seconds."""

    snapshot: Snapshot
    life: Life
    age: float

    @property
    def state(self) -> str:
        """Return in few words how the member is."""
        if self.life is Life.DEAD:
            return f"dead since {clock(self.snapshot.written_at)}"
        if self.life is Life.STOPPED:
            return f"stopped for {span(self.age)}"
        if self.is_quiet:
            return f"hangs for {span(self.age)}"
        return self.snapshot.state

    @property
    def is_quiet(self) -> bool:
        """Return whether the member has written nothing for longer than it should: it
        writes at least with each heartbeat."""
        return self.age > self.snapshot.quiet_after

    @property
    def is_well(self) -> bool:
        """Return whether the member is in its group, and its process works."""
        return self.state == "member"


def look(group: str) -> list[Seen]:
    """Return what is known about the members of a group on this machine."""
    now = time.time_ns()
    return [Seen(each, statusfile.life_of(each), max(0.0, (now - each.written_at) / 1e9))
            for each in statusfile.snapshots(arguments.text("group", group))]


def nobody(group: str) -> str:
    """Return what to say if no file of a group is here."""
    return NOBODY.format(printable(group))


def clock(instant: int) -> str:
    """Return the local time of day of a wall time in nanoseconds."""
    return datetime.fromtimestamp(instant / 1e9).strftime("%H:%M:%S")


def span(seconds: float) -> str:
    """Return a time in seconds, or what is easier to read."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def remarks(found: Iterable[Seen]) -> Iterator[str]:
    """Yield sentences about who waits for whom, who is ill, and why."""
    for seen in found:
        snapshot, name = seen.snapshot, printable(seen.snapshot.name)
        if snapshot.fault:
            yield f"{name} has closed by itself: {printable(snapshot.fault)}"
        elif seen.life is Life.DEAD:
            yield f"{name} (process {snapshot.pid}) is dead; what is shown is its last state"
        elif seen.life is Life.STOPPED:
            yield (f"{name} (process {snapshot.pid}) is stopped, by a signal or a debugger; "
                   f"kill -CONT {snapshot.pid} lets it go on")
        elif seen.is_quiet:
            yield f"{name} (process {snapshot.pid}) lives, but has taken no turn for a while"
        if (longest := snapshot.longest_waiting()) is not None:
            yield f"{name} waits for room {to_whom(longest)}, for {span(longest.seconds)}: " + (
                reason(snapshot, longest))
        elif snapshot.slowest:
            yield f"{name} sends; {printable(snapshot.slowest)} is the slowest to acknowledge"
        for peer in snapshot.peers:
            if peer.suspected:
                silence = f": silent for {span(peer.silent_for)}" if peer.silent_for else ""
                yield f"{name} suspects {printable(peer.name)}{silence}"


def to_whom(waiting: Waiting) -> str:
    """Return for whom the message is that waits."""
    return "to send to all" if waiting.dest is None else f"to send to {printable(waiting.dest)}"


def reason(snapshot: Snapshot, waiting: Waiting) -> str:
    """Return what a blocked sender waits for."""
    slowest = snapshot.awaited(waiting)
    if slowest is None:
        return "who is slow is not known"
    if slowest == snapshot.name:
        return "this member does not take its own messages"
    unacked = next((peer.unacked for peer in snapshot.peers if peer.name == slowest), None)
    if waiting.dest is not None:
        unacked = snapshot.status.unicast.unicast_unacked
    owes = counted(unacked, "message") if unacked else "the oldest message"
    return f"{printable(slowest)} has not acknowledged {owes}"
