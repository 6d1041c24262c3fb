"""What a channel knows at one moment, for operators: its Status, and who is who.

A channel writes it into its status file (statusfile.py); `ringcast status`, `top` and
`monitor` read it there. It has no secret, no option and no payload.
"""

import msgspec

from ringcast.status import Status


class Peer(msgspec.Struct, kw_only=True):
    """A member of the view, as this one sees it."""

    name: str
    incarnation: int
    observes: bool = False      # nobody waits for it
    # Own messages to everybody that it has not acknowledged; None if only the
    # coordinator knows (NAKACK2), or if nobody waits for it.
    unacked: int | None = None
    missing: int = 0            # its messages to everybody that are missing here
    undelivered: int = 0        # of those that came, how many the application was not given
    silent_for: float | None = None     # seconds since it was heard; None: not watched here
    suspected: bool = False     # by this member


class Waiting(msgspec.Struct):
    """A call of send that waits for room."""

    dest: str | None            # the name of a member; None: everybody
    seconds: float              # for so long


class Rates(msgspec.Struct, kw_only=True):
    """What happened in each of the last seconds, about."""

    sent: float = 0             # own messages to everybody
    delivered: float = 0        # messages to everybody, and to this member alone
    repeated: float = 0         # own messages that were sent again
    requests: float = 0         # requests for missing messages, sent
    duplicates: float = 0       # messages that came again


class Event(msgspec.Struct, kw_only=True):
    """Something that happened to a member or in its group."""

    number: int                 # of this member's events, from 1
    at: int                     # wall time in nanoseconds
    # view, suspects, excludes, must go, warning, fault
    kind: str
    who: str = ""               # the name of the member that did it or finds it
    whom: str = ""              # and of the other one
    text: str                   # what happened, or what shows it


class Snapshot(msgspec.Struct, kw_only=True):
    """What a channel knows at one moment."""

    group: str
    name: str
    incarnation: int
    stack: str
    version: str                # of ringcast
    place: str                  # where its datagrams go: interface, address and port
    is_sealed: bool
    pid: int
    started: int                # when the process began, as in /proc/<pid>/stat
    namespace: int              # of process ids, by the number of its inode
    opened_at: int              # wall time in nanoseconds
    written_at: int             # wall time in nanoseconds
    quiet_after: float          # seconds without a snapshot, after which something is wrong
    capacity: int               # of the send window, in messages
    max_undelivered: int
    state: str                  # joining, member, closing, failed
    fault: str | None = None
    view_id: int = 0
    is_primary: bool = True
    peers: list[Peer] = []      # the members of the view, the oldest first
    absent: list[str] = []      # durable members that are expected back
    slowest: str | None = None  # who has not acknowledged the oldest message
    waiting: list[Waiting] = []
    rates: Rates = msgspec.field(default_factory=Rates)
    events: list[Event] = []    # the last ones
    status: Status

    def longest_waiting(self) -> Waiting | None:
        """Return the call of send that has waited longest; None if none waits."""
        return max(self.waiting, key=lambda waiting: waiting.seconds, default=None)

    def awaited(self, waiting: Waiting) -> str | None:
        """Return the name of the member for which a call of send waits; None if that is
        not known."""
        return self.slowest if waiting.dest is None else waiting.dest
