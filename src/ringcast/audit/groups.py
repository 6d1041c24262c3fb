"""The first stage of an audit: proofs from one pass of aggregates over all rows
(aggregates.grouped).

A row of messages that a member was given in order has their positions and their
ordinals (how many came before). If position and ordinal differ by the same number from
the first row to the last, and there are as many messages as positions, then no message
is missing, duplicated or out of order. This needs no sort. A stream for which it is not
true, because something is wrong or because messages had flags, is examined row by row
in the second stage (audit/rows.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringcast.trace import KINDS, id_of

EVENTS = tuple(KINDS)
SENT = ("send", "retransmit")


# First and last position, and the number of an event.
Skip = tuple[int, int, int]


@dataclass(frozen=True)
class Stream:
    """The messages of `sender` to everybody, or on one connection to `peer`."""

    sender: str
    peer: str | None = None
    conn_id: int | None = None

    def __str__(self) -> str:
        return f"{self.sender} to {self.peer}" if self.peer else self.sender


@dataclass
class Sent:
    """The messages of a stream that were sent, according to the traces."""

    first: int
    last: int
    flags: int = 0
    messages: int = 0                   # that were sent for the first time

    @property
    def is_whole(self) -> bool:
        """Return whether there are as many first sends as positions."""
        return self.messages == self.last - self.first + 1


@dataclass
class Got:
    """The messages of one stream that one member was given, or claims to have
    finished."""

    messages: int = 0                   # in order
    first: int | None = None
    last: int | None = None
    # The least and the largest difference between position and ordinal.
    shifts: set[int] = field(default_factory=set)
    ordinal: int | None = None          # the least
    flags: int = 0
    claim: int | None = None            # the most by which an ack was ahead of the deliveries

    @property
    def is_proven(self) -> bool:
        """Return whether the ordinals prove that the messages are consecutive, each
        once and in order."""
        if self.flags:
            return False
        if not self.messages:
            return self.claim is None
        assert self.first is not None and self.last is not None
        whole = self.messages == self.last - self.first + 1
        shift, *others = self.shifts
        return (whole and self.ordinal == 0 and not others
                and (self.claim is None or self.claim < shift))

    def claims(self, begin: int | None) -> bool:
        """Return whether it may have acknowledged a message from this position on,
        beyond what it was given."""
        return self.claim is not None and (begin is None or self.claim >= begin)


@dataclass
class Member:
    """The trace of one member."""

    name: str
    rows: int = 0
    last_ev: int = -1
    sum_ev: int = 0
    dropped: int = 0
    is_closed: bool = False             # the trace ends with a close, and so has no open end
    has_left: bool = False              # ... and that was in good order
    last_wall: int = 0
    refused_at: int | None = None       # since when nobody waits for it
    observes: bool = False
    # (wall, id, members), in their order
    views: list[tuple[int, int, tuple[str, ...]]] = field(default_factory=list)
    # The members of each view that its layers installed or its application was shown.
    installed: dict[int, tuple[str, ...]] = field(default_factory=dict)
    # The primary ones that its layers installed: (wall, id).
    primaries: list[tuple[int, int]] = field(default_factory=list)

    def hole(self) -> str | None:
        """Return what is wrong with the numbers of the events; None if each is there
        once."""
        if self.dropped:
            return f"it had no room for {self.dropped:,} events"
        if self.rows > self.last_ev + 1:
            return (f"more than one process wrote it, or it is there twice: {self.rows:,} events "
                    f"have numbers up to {self.last_ev:,}")
        if self.rows != self.last_ev + 1:
            return (f"its events are numbered from 0 to {self.last_ev:,}, but there are only "
                    f"{self.rows:,}")
        if self.sum_ev != self.last_ev * (self.last_ev + 1) // 2:
            return "some numbers of events are there twice and others are missing"
        return None


@dataclass
class Groups:
    """All that the first stage found."""

    # The names of members by the numbers in the rows.
    names: dict[int, str] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    sent: dict[Stream, Sent] = field(default_factory=dict)
    # (sender, view): the last position sent in it
    sent_in: dict[tuple[str, int], int] = field(default_factory=dict)
    # (member, stream)
    got: dict[tuple[str, Stream], Got] = field(default_factory=dict)
    # (sender, view): the last position purged in it, and the latest time of a purge
    purged: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    # (member, stream): what an observer was told that it missed
    skipped: dict[tuple[str, Stream], list[Skip]] = field(default_factory=dict)
    # (member, stream): the positions at which the stream may begin for the member
    begins: dict[tuple[str, Stream], set[int]] = field(default_factory=dict)
    # The same, each with the view in which its start was said.
    starts: dict[tuple[str, Stream], list[tuple[int, int]]] = field(default_factory=dict)
    # (member, stream): streams of departed senders that were kept for a member
    fetched: set[tuple[str, Stream]] = field(default_factory=set)
    # (member, stream, view): the first position given
    heard: dict[tuple[str, Stream, int], int] = field(default_factory=dict)
    # (member, stream, view): the last position given in order
    reached: dict[tuple[str, Stream, int], int] = field(default_factory=dict)
    twins: list[tuple[str, str]] = field(default_factory=list)      # names with one incarnation
    num_rows: int = 0
    num_messages: int = 0       # delivered
    begin: int = 1 << 62        # the time of the first view, the first event of a member, and ...
    end: int = -(1 << 62)       # ... of the last event


def gather(table: Iterable[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> Groups:
    """Collect what aggregates.grouped and aggregates.marked found. The views have the
    names of the members."""
    groups = Groups()
    names = {name for event in events
             for name in (event["member"], event["sender"], event["peer"],
                          *(event["members"] or ())) if name is not None}
    # A name that begins with # is a number without a name: last, in case one has it.
    for name in sorted(names, key=lambda name: (name.startswith("#"), name)):
        known = groups.names.setdefault(id_of(name), name)
        if known != name and not name.startswith("#"):
            groups.twins.append((known, name))
    for numbers in table:
        row = dict(numbers)
        for who in ("member", "sender", "peer"):
            number = row[f"{who}_id"]
            row[who] = groups.names.get(number, f"#{number % (1 << 64):016x}") if number else None
        row["event"], row["conn_id"] = EVENTS[row["kind"]], row["conn_id"] or None
        _add(groups, row)
    for event in events:
        _note(groups, event)
    return groups


def _add(groups: Groups, row: Mapping[str, Any]) -> None:
    _count(groups, row)
    stream = Stream(row["sender"], row["peer"] if row["conn_id"] is not None else None,
                    row["conn_id"])
    if row["event"] in SENT and row["last"] is not None:
        _add_sent(groups, stream, row)
    elif row["event"] == "deliver":
        groups.num_messages += row["messages"]
        if row["last"] is not None:
            heard = row["member"], stream, row["view_id"]
            groups.heard[heard] = min(row["first"], groups.heard.get(heard, row["first"]))
            if row["ord"] is not None:
                groups.reached[heard] = max(row["last"], groups.reached.get(heard, row["last"]))
            _add_got(groups.got.setdefault((row["member"], stream), Got()), row)
    elif row["event"] in ("ack", "purge") and row["last"] is not None:
        _add_claim(groups, stream, row)


def _count(groups: Groups, row: Mapping[str, Any]) -> None:
    member = groups.members.setdefault(row["member"], Member(row["member"]))
    member.rows += row["rows"]
    member.last_ev = max(member.last_ev, row["last_ev"])
    member.sum_ev += row["sum_ev"]
    member.last_wall = max(member.last_wall, row["wall"])
    groups.num_rows += row["rows"]
    groups.end = max(groups.end, row["wall"])


def _add_sent(groups: Groups, stream: Stream, row: Mapping[str, Any]) -> None:
    sent = groups.sent.setdefault(stream, Sent(row["first"], row["last"]))
    sent.first, sent.last = min(sent.first, row["first"]), max(sent.last, row["last"])
    sent.flags |= row["flags"]
    if row["event"] == "send":
        sent.messages += row["messages"]
    if stream.conn_id is None and row["event"] == "send":
        key = stream.sender, row["view_id"]
        groups.sent_in[key] = max(groups.sent_in.get(key, row["last"]), row["last"])


def _add_got(got: Got, row: Mapping[str, Any]) -> None:
    got.flags |= row["flags"]
    if row["ord"] is None:              # OOB messages
        return
    got.messages += row["messages"]
    got.first = row["first"] if got.first is None else min(got.first, row["first"])
    got.last = row["last"] if got.last is None else max(got.last, row["last"])
    got.shifts |= {row["least_shift"], row["most_shift"]}
    got.ordinal = row["ord"] if got.ordinal is None else min(got.ordinal, row["ord"])


def _add_claim(groups: Groups, stream: Stream, row: Mapping[str, Any]) -> None:
    if row["event"] == "purge":
        key = row["sender"], row["view_id"]
        position, wall = groups.purged.get(key, (row["last"], row["wall"]))
        groups.purged[key] = max(position, row["last"]), max(wall, row["wall"])
    if row["most_shift"] is not None:   # a member that takes no messages purges without having any
        got = groups.got.setdefault((row["member"], stream), Got())
        got.claim = row["most_shift"] if got.claim is None else max(got.claim, row["most_shift"])


def _note(groups: Groups, event: Mapping[str, Any]) -> None:
    member = groups.members.setdefault(event["member"], Member(event["member"]))
    what = event["event"]
    if what == "start":
        key = event["peer"], Stream(event["sender"])
        groups.begins.setdefault(key, set()).add(event["first"])
        groups.starts.setdefault(key, []).append((event["view_id"], event["first"]))
        if event["member"] == event["peer"] and (
                event["sender"] not in member.installed.get(event["view_id"], ())):
            groups.fetched.add(key)
    elif what == "resume":
        groups.begins.setdefault((event["member"], Stream(event["sender"])), set()).add(
            event["last"] + 1)
    elif what == "view":
        groups.begin = min(groups.begin, event["wall"])
        member.views.append((event["wall"], event["view_id"], tuple(event["members"])))
        member.installed[event["view_id"]] = tuple(event["members"])
    elif what == "install":
        member.installed[event["view_id"]] = tuple(event["members"])
        if event["flags"]:
            member.primaries.append((event["wall"], event["view_id"]))
    elif what == "skip":
        groups.skipped.setdefault((event["member"], Stream(event["sender"])), []).append(
            (event["first"], event["last"], event["ev"]))
    elif what in ("refuse", "observe"):
        member.observes |= what == "observe"
        member.refused_at = event["wall"] if member.refused_at is None else member.refused_at
    elif what == "dropped":
        member.dropped += event["count"]
    elif what == "close":
        member.is_closed, member.has_left = True, bool(event["flags"])


def suspects(groups: Groups,
             first_begins: Mapping[tuple[str, Stream], int]) -> list[tuple[str, Stream]]:
    """Return the members and streams that the aggregates do not prove, for the second
    stage. If a stream begins more than once for a member, an ack counts from where it
    begins first."""
    found = []
    for (member, stream), got in groups.got.items():
        sent = groups.sent.get(stream)
        begins = groups.begins.get((member, stream))
        is_plain = sent is None or not sent.flags
        is_begun = got.first is None or begins is None or got.first in begins
        is_sent = member == stream.sender or got.last is None or (
            sent is not None and sent.is_whole and got.last <= sent.last)
        begin = first_begin(groups, first_begins, member, stream)
        is_later = got.first is not None and begin is not None and got.first > begin
        is_proven = got.is_proven and not (is_later and got.claims(begin))
        has_nothing = not (got.flags or got.messages or got.claims(begin))
        if not (is_plain and is_begun and is_sent and (is_proven or has_nothing)):
            found.append((member, stream))
    return found


def first_begin(groups: Groups, first_begins: Mapping[tuple[str, Stream], int], member: str,
                stream: Stream) -> int | None:
    """Return where a stream begins first for a member; if its sender's trace does not
    tell that, the last of its begins that are known."""
    known = groups.begins.get((member, stream), ())
    return first_begins.get((member, stream), max(known, default=None))
