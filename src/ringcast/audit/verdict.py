"""The audit: a Spark job that reads the traces of a group and proves or refutes the
promises of ringcast.

The promises, for every sender, view and receiver, by the kind of their violation:

- `gap`, `duplicate`, `order`: the messages of a stream that a member is given begin
  where the stream begins for it. None is missing, none comes twice, and they are in
  order. For OOB messages: none comes twice.
- `forged`: no message is delivered that was not sent. `start`: no message is delivered
  from before the beginning of the stream for the member.
- `ack`: a member acknowledges only what it was given. `purge`: a sender frees a message
  only after every member of its view has acknowledged it.
- `set`: all members that went through a view together with a sender got the same set of
  its messages: all that the sender freed in that view.
- `synchrony`: members of a group that forms itself, which go together from one view to
  the next, have been given the same messages before it, also those of senders that
  crashed. `departed`: what a view says of the end of such a sender's stream is true.
- `view`: the ids of a member's views grow, the member is in each of them, and a view id
  stands for one list of members. `member`: no two members have the same incarnation.
  `stranger`: a member is given no message of a sender that it had no view with, unless
  it was kept for a durable member that is back.
- `primary`: at most one part of a group is primary, and each primary view has a
  majority of the one before.
- `send`: a sender skips no position of its stream.

An observer owes no completeness. For it only order, once, and what it is given are
judged; and `skipped`: it is told what it missed, and is given nothing of that.

The messages determine the order of events: a message is sent before it is delivered,
and the events of one member have an order. The clocks of two members are never
compared, unless the user knows their largest difference (`skew_ms`). The estimated
differences are reported, and latencies are corrected by them (audit/clocks.py).

Messages that a sender had not freed when the traces end, or when it crashed, are not
judged for `set` (see the table `views`). Nor is anything that a member did after the
end of a trace that it did not close.

Nothing is concluded from a trace with holes. The numbers of its events show the holes,
and the verdict is then that the trace is incomplete; also when a member of a view has
no trace.

One pass of aggregates proves most streams (audit/aggregates.py, audit/groups.py). Only
the others are examined row by row (audit/rows.py; purges in audit/purges.py). The
proofs rely on ordinals, which the writer of the trace counts and the audit checks to be
dense; a test compares both ways.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringcast.address import Address
from ringcast.audit import (
    aggregates,
    clocks as audit_clocks,
    files as audit_files,
    groups as audit_groups,
    purges as audit_purges,
    synchrony as audit_synchrony,
)
from ringcast.audit.clocks import Clocks
from ringcast.audit.groups import Groups, Stream
from ringcast.audit.primaries import Primaries
from ringcast.audit.rows import Asked, Hole, Rows
from ringcast.units import counted
from ringcast.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# With more paths than this, Spark lists them in a job with one task for each.
LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
PATTERN = r"[\\*?\[\]{}]"               # what Spark takes for a pattern in a path

SENTENCES = {
    "gap": "was sent, but {member} was given later messages without it",
    "unproven": "did not come to {member}, which was given later ones; no trace says that it was "
                "sent",
    "duplicate": "was given to {member} twice",
    "order": "was given to {member} after a later one",
    "forged": "was given to {member}, but its sender did not send it",
    "start": "was given to {member}, but the stream begins later for this member",
    "ack": "was acknowledged by {member}, which had not been given it",
    "own": "was freed by {member} before it was given its own message",
    "purge": "was freed by its sender before {member} had acknowledged it",
    "send": "was never sent, according to the whole trace of its sender, but {member} was given "
            "later ones",
    "stranger": "was given to {member}, which had not been in a view with its sender",
    "synchrony": "was given to others that went to this view together with {member}, but not to "
                 "{member}",
    "begun": "was given to others that went to this view together with {member}, but not to "
             "{member}, for which the stream began before",
    "departed": "is before the end that the view of {member} tells of this stream, but was not "
                "given to {member}",
    "beyond": "was given to {member}, but is behind the end that its view tells of this stream",
    "skipped": "was given to {member}, which had been told that it missed it",
    "set": "was freed by its sender as delivered to all, but {member}, which was in the view, "
           "never got it",
}

REPORTED_AS = {"own": "purge", "begun": "synchrony", "beyond": "departed"}

SCHEMA = ("ev bigint, time bigint, wall bigint, member string, event string, view_id bigint, "
          "sender string, peer string, conn_id bigint, first bigint, last bigint, count bigint, "
          "ord bigint, flags int, nbytes bigint, sent_at bigint, duration bigint, fill double, "
          "members array<string>, member_id bigint, sender_id bigint, peer_id bigint, kind int")


@dataclass(frozen=True, order=True)
class Violation:
    """A promise that was broken: the first message that shows it, for one kind, member
    and stream. `wall` is its time, by the clock that the others of the group are
    compared with."""

    wall: int
    kind: str
    member: str
    view_id: int
    stream: Stream | None
    position: int | None
    sentence: str

    def __str__(self) -> str:
        return (f"{self.kind}: {self.sentence} ({self.member}, view {self.view_id}, "
                f"at {self.wall / 1e9:.6f} s)")


@dataclass
class Audit:
    """The result of an audit. `violations` are ordered by time; `unproven` are those
    that a hole in a trace may explain."""

    files: audit_files.Files
    groups: Groups
    violations: list[Violation] = field(default_factory=list)
    unproven: list[Violation] = field(default_factory=list)
    # Members, and what their traces lack.
    incomplete: dict[str, str] = field(default_factory=dict)
    # Members without a trace, and a view that names them.
    untraced: dict[str, str] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=Clocks)
    # What was sent, freed and delivered in each view.
    views: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not (self.incomplete or self.untraced or self.files.bad)

    @property
    def status(self) -> int:
        """Return the exit status: 1 if a promise was broken, 3 if the traces do not
        tell, else 0."""
        return 1 if self.violations else 0 if self.is_complete and not self.unproven else 3

    @property
    def verdict(self) -> str:
        seen = (f"{self.groups.num_messages:,} deliveries of "
                f"{counted(len(self.groups.members), 'member')}")
        if self.violations:
            return (f"BROKEN: {counted(len(self.violations), 'violation')} in {seen}; the first: "
                    f"{self.violations[0]}")
        if self.status == 0:
            return f"no promise was broken in {seen}"
        return (f"INCOMPLETE: no promise was seen broken in {seen}, but "
                + "; ".join(self.doubts()))

    def doubts(self) -> Iterator[str]:
        """Return why the traces do not tell everything."""
        yield from (f"{path} {why}" for path, why in sorted(self.files.bad.items()))
        yield from (f"the trace of {member} has a hole: {why}"
                    for member, why in sorted(self.incomplete.items()))
        yield from (f"there is no trace of {member}, which is in {where}: its directory was not "
                    "named, or it died before it had written anything, in its first second"
                    for member, where in sorted(self.untraced.items()))
        if self.unproven:
            yield (f"{len(self.unproven)} possible violations may be due to holes in traces; the "
                   f"first: {self.unproven[0]}")

    def remarks(self) -> Iterator[str]:
        """Return what limits the verdict, although the traces are whole."""
        crashed = [name for name, member in sorted(self.groups.members.items())
                   if not member.is_closed]
        if crashed:
            names = ", ".join(crashed[:5]) + (", ..." if len(crashed) > 5 else "")
            yield (f"{counted(len(crashed), 'member')} did not close a trace, so the last events "
                   f"are not known: {names}")
        if self.files.unfinished:
            yield (f"{counted(len(self.files.unfinished), 'part')} not written to the end: a "
                   "member ended meanwhile")
        yield from self.clocks.sentences()


def read(spark: "SparkSession", parts: Sequence[Path]) -> "DataFrame":
    """Read the rows of these part files."""
    before = spark.conf.get(LISTING)
    is_low = len(parts) > int(before or 0)
    if is_low:
        spark.conf.set(LISTING, str(len(parts)))
    try:
        return spark.read.schema(SCHEMA).parquet(
            *(re.sub(PATTERN, r"\\\g<0>", str(part.absolute())) for part in parts))
    finally:
        if is_low:
            spark.conf.set(LISTING, str(before))


def audit(spark: "SparkSession", traces: Sequence[Path | str],
          skew_ms: float | None = None) -> tuple[Audit, "DataFrame"]:
    """Judge the traces in these directories. Return the result, and the rows of the
    traces.

    `skew_ms` is the largest difference between the clocks of two members, in
    milliseconds, if it is known (0 in a simulation). Then the clocks decide where no
    message tells which event came first. They are not used for members whose messages
    show that the clocks are further apart. Raises TraceError if there is no trace. A
    part that turns out to be damaged inside is left out and reported.
    """
    files = audit_files.find(traces)
    try:
        return judge(spark, files, skew_ms)
    except Exception:
        damaged = {path: fault for path in files.parts
                   if (fault := audit_files.fault_of(path, whole=True)) is not None}
        if not damaged:
            raise
        files.bad |= damaged
        files.parts = [path for path in files.parts if path not in damaged]
    return judge(spark, files, skew_ms)


def judge(spark: "SparkSession", files: audit_files.Files,
          skew_ms: float | None) -> tuple[Audit, "DataFrame"]:
    """Judge these parts, which are believed to be whole."""
    skew = None if skew_ms is None else int(skew_ms * 1e6)
    rows = read(spark, files.parts)
    events = audit_synchrony.believed(aggregates.marked(files.parts))
    with ThreadPoolExecutor(2) as pool:     # one pass alone does not keep all cores busy
        purges = pool.submit(audit_purges.early_purges, spark, files.parts, events, skew)
        delays = pool.submit(audit_clocks.gather, spark, files.parts, events)
        groups = audit_groups.gather(aggregates.grouped(spark, files.parts).to_pylist(), events)
        early, clocks = purges.result(), audit_clocks.estimate(delays.result(), groups.names, skew)
    result = Audit(files, groups, incomplete=files.incomplete(), untraced=dict(untraced(groups)),
                   clocks=clocks)
    result.incomplete |= {name: hole for name, member in groups.members.items()
                          if (hole := member.hole()) is not None}
    _Judge(rows, result, skew, early, audit_synchrony.paths(events)).judge()
    return result, rows


def untraced(groups: Groups) -> Iterator[tuple[str, str]]:
    """Return the members of views that have no trace, and a view of each."""
    for member in groups.members.values():
        for *_, view_id, names in member.views:
            yield from ((name, f"view {view_id} of {member.name}") for name in names
                        if name not in groups.members)


class _Judge:
    """Decides what the first stage shows, asks the second stage about the rest, and
    collects the violations."""

    def __init__(self, rows: "DataFrame", result: Audit, skew: int | None,
                 early: Sequence[Mapping[str, Any]],
                 paths: audit_synchrony.Paths) -> None:
        self.paths, self.first_begins = paths, audit_synchrony.first_begins(paths)
        self.rows, self.result, self.groups = rows, result, result.groups
        self.skew, self.early = skew, early
        self.trusted = [name for name in self.groups.members if name not in result.incomplete]

    def judge(self) -> None:
        asked = [*self._starts(), *self._strangers()]
        suspects = list(dict.fromkeys(audit_groups.suspects(self.groups, self.first_begins)
                                      + [(name, stream) for _, name, stream, _ in asked]))
        holes = [*self._unlike_sets(),
                 *audit_synchrony.holes(self.groups, self.paths, self.trusted)]
        found = [*self._twins(), *self._views(), *self._primaries(), *self._purges()]
        if suspects or holes:
            found += self._by_rows(suspects, holes, asked)
        self._keep(found)
        self.result.views = list(self._agreement())

    def _by_rows(self, suspects: list[tuple[str, Stream]], holes: list[Hole],
                 asked: list[Asked]) -> list[Violation]:
        """Ask the second stage."""
        begins = {key: begin for key in suspects if (begin := self._begin(*key)) is not None}
        ends = {stream: sent.last for stream, sent in self.groups.sent.items()
                if self._is_told(stream) and self.groups.members[stream.sender].is_closed}
        skips = audit_synchrony.skips(self.groups, self.paths)
        told = self.groups.skipped
        with Rows(self.rows, suspects, begins, self.first_begins, holes, ends, asked, skips,
                  told) as second:
            return [self._violation(kind, member, stream, position, wall, view_id)
                    for first, member, stream, position, wall, view_id in second.found()
                    if (kind := self._kind(first, member, stream, position)) is not None]

    def _kind(self, kind: str, member: str, stream: Stream, position: int) -> str | None:
        """Return the kind of a violation that the rows show, given how complete the
        sender's trace is; None if it is none. A member is given its own messages also
        before they are sent: of a large one nobody knows yet where it begins."""
        if kind == "purge":
            return "own"
        if kind == "forged":
            return kind if self._is_told(stream) else None
        if kind == "unproven" and self._is_told(stream):
            sent = self.groups.sent.get(stream)
            is_past = sent is not None and position < sent.last
            if is_past or self.groups.members[stream.sender].is_closed:
                return "send"
            return None if member == stream.sender else kind
        return kind

    def _is_told(self, stream: Stream) -> bool:
        """Return whether the traces have all messages of a stream, up to the end of its
        sender's trace."""
        return stream.sender in self.trusted

    def _begin(self, member: str, stream: Stream) -> int | None:
        """Return the first position that is for the member: as its sender told it, or
        after what it had resumed; else the first that it was given."""
        got, sent = self.groups.got[member, stream], self.groups.sent.get(stream)
        if stream.conn_id is not None or member == stream.sender:
            return sent.first if sent is not None and stream.sender in self.trusted else got.first
        begins = self.groups.begins.get((member, stream), set())
        return max((begin for begin in begins if got.first is None or begin <= got.first),
                   default=got.first)

    def _violation(self, kind: str, member: str, stream: Stream, position: int, wall: int,
                   view_id: int, clock: str | None = None) -> Violation:
        """Make a violation. `wall` is by the clock of the member `clock`; if that is
        not given, of the sender for `set`, else of `member`."""
        sentence = f"message {position} of {stream} " + SENTENCES[kind].format(member=member)
        wall = self.result.clocks.true(clock or (stream.sender if kind == "set" else member), wall)
        return Violation(wall, REPORTED_AS.get(kind, kind), member, view_id, stream, position,
                         sentence)

    def _keep(self, found: list[Violation]) -> None:
        """Keep the first violation of each kind, member and stream. Those that a hole
        in a trace may explain are unproven."""
        first: dict[tuple[str, str, Stream | None], Violation] = {}
        for violation in sorted(found, key=lambda each: (each.wall, each.kind, each.member,
                                                         str(each.stream), each.position or 0)):
            first.setdefault((violation.kind, violation.member, violation.stream), violation)
        for violation in first.values():
            is_doubtful = (violation.kind == "unproven" or violation.member not in self.trusted
                           or (violation.kind == "primary"
                               and not self._tells_all_views(violation.member)))
            (self.result.unproven if is_doubtful else self.result.violations).append(violation)

    def _tells_all_views(self, member: str) -> bool:
        """Return whether all views of a member's group are in the traces. One that only
        a member without a whole trace installed may be missing between two others."""
        members, group, new = self.groups.members, set[str](), {member}
        while new:
            if any(name not in self.trusted or not members[name].is_closed for name in new):
                return False
            group |= new
            new = {name for each in new for names in members[each].installed.values()
                   for name in names} - group
        return True

    # ----------------------------------------------------------------- what groups show

    def _twins(self) -> Iterator[Violation]:
        for one, other in self.groups.twins:
            wall = min((wall for name in (one, other) if name in self.groups.members
                        for wall, *_ in self.groups.members[name].views), default=self.groups.begin)
            yield Violation(wall, "member", other, 0, None, None,
                            f"{one} and {other} have one incarnation")

    def _starts(self) -> Iterator[Asked]:
        """Find messages from before the beginning of a stream for a member. A sender
        that never had the first view with the member does not tell where that is."""
        for (name, stream), got in self.groups.got.items():
            key = name, stream
            is_known = key in self.first_begins or key in self.groups.fetched
            if got.first is None or not is_known or stream.sender not in self.trusted:
                continue
            if got.first < min(self.groups.begins[key]):
                yield "start", name, stream, got.first

    def _strangers(self) -> Iterator[Asked]:
        """Find messages of senders that had not been in a view with the member. The
        application may be shown the view later than OOB messages and those to it
        alone."""
        for (name, stream, view_id), first in self.groups.heard.items():
            member = self.groups.members[name]
            views = [(number, names) for *_, number, names in member.views if number <= view_id]
            in_order = stream.conn_id is None and (name, stream, view_id) in self.groups.reached
            if not in_order:
                views += member.installed.items()
            known = {each for _, names in views for each in names}
            if stream.sender not in known | {name} and (name, stream) not in self.groups.fetched:
                yield "stranger", name, stream, first

    def _views(self) -> Iterator[Violation]:
        """Find views that break their promises. (Traces of several groups may be
        audited together, so views with the same id are compared only if they have a
        member in common.)"""
        known: dict[tuple[int, str], tuple[tuple[str, ...], str]] = {}
        for member in self.groups.members.values():
            before: int | None = None
            for wall, view_id, names in member.views:
                wrong = None
                for name in names:
                    others, who = known.setdefault((view_id, name), (names, member.name))
                    if set(others) != set(names):
                        wrong = f"{member.name} and {who} have different members in view {view_id}"
                    elif others != names:
                        wrong = (f"{member.name} and {who} have the members of view {view_id} in "
                                 "different orders")
                if before is not None and view_id <= before:
                    wrong = f"{member.name} installed view {view_id} after view {before}"
                if member.name not in names:
                    wrong = f"{member.name} installed view {view_id}, which it is not in"
                if wrong is not None:
                    yield Violation(self.result.clocks.true(member.name, wall), "view",
                                    member.name, view_id, None, None, wrong)
                before = view_id

    def _primaries(self) -> list[Violation]:
        """Find primary views that break the rule of them."""
        members = self.groups.members
        left = [Address.parse(member.name) for member in members.values() if member.has_left]
        walls: dict[View, tuple[int, str]] = {}
        for member in members.values():
            for wall, view_id in member.primaries:
                names = member.installed[view_id]
                view = View(view_id, tuple(map(Address.parse, names)),
                            observers=tuple(Address.parse(name) for name in names
                                            if name in members and members[name].observes))
                walls[view] = min(walls.get(view, (wall, member.name)), (wall, member.name))
        found: list[Violation] = []

        def violated(view: View, sentence: str) -> None:
            wall, name = walls[view]
            found.append(Violation(self.result.clocks.true(name, wall), "primary", name, view.id,
                                   None, None, sentence))

        primaries = Primaries(violated)
        for view in walls:
            primaries.add(view, left)
        primaries.check()
        return found

    def _purges(self) -> Iterator[Violation]:
        for row in self.early:
            sender, receiver = (self.groups.names.get(row[who], "")
                                for who in ("sender_id", "receiver_id"))
            if receiver not in self.trusted or sender not in self.groups.members:
                continue
            if (self._has_clocks(sender, receiver) if row["by_clock"]
                    else self._has_ordinals(receiver, Stream(sender))):
                position = row["position"] if row["known"] is None else row["known"] + 1
                yield self._violation("purge", receiver, Stream(sender), position, row["wall"],
                                      row["view_id"], sender)

    def _has_ordinals(self, member: str, stream: Stream) -> bool:
        """Return whether the ordinals of a member's deliveries say how far it had got.
        They do not if it was given a message twice, one from before the beginning, or
        one that was not sent."""
        got, sent = self.groups.got.get((member, stream)), self.groups.sent.get(stream)
        if got is None or got.first is None or got.last is None:
            return True
        is_sent = sent is not None and (got.last <= sent.last
                                        or not self.groups.members[stream.sender].is_closed)
        return is_sent and got.messages <= got.last - got.first + 1 and got.first >= min(
            self.groups.begins.get((member, stream), {got.first}))

    # --------------------------------------------------------------------- the same set

    def _unlike_sets(self) -> Iterator[Hole]:
        """Find messages that a sender freed in a view and that a member of that view
        does not have at the end of its trace, although its stream began before them."""
        for (sender, view_id), (position, wall) in self.groups.purged.items():
            stream = Stream(sender)
            for name in set(self._members_of(sender, view_id)) - {sender}:
                reached = self._reached(name, stream)
                begun = max((first for met, first in self.groups.starts.get((name, stream), ())
                             if met <= view_id), default=position)
                if self._owes(name, sender, wall) and reached is not None and (
                        begun <= position > reached):
                    yield ("set", name, stream, self._begin_of(name, stream), reached + 1,
                           position, None, wall, view_id)

    def _members_of(self, member: str, view_id: int) -> tuple[str, ...]:
        """Return the members of a view that this member installed."""
        return self.groups.members[member].installed.get(view_id, ())

    def _owes(self, name: str, sender: str, wall: int) -> bool:
        """Return whether the trace of a member must have the messages that were freed
        at this time."""
        if name not in self.trusted:
            return False
        member = self.groups.members[name]
        if member.is_closed and member.refused_at is None:
            return True
        if not self._has_clocks(sender, name):
            return False
        assert self.skew is not None
        ends = [each for each in (member.refused_at, None if member.is_closed else member.last_wall)
                if each is not None]
        return wall < min(ends) - self.skew

    def _has_clocks(self, *names: str) -> bool:
        """Return whether the clocks of these members are known to be close, and no
        message shows otherwise."""
        return self.skew is not None and self.result.clocks.loose.isdisjoint(names)

    def _reached(self, name: str, stream: Stream) -> int | None:
        """Return the last position up to which a member has a stream; None if its trace
        does not tell."""
        got = self.groups.got.get((name, stream))
        if got is not None and got.last is not None:
            return got.last
        begin = self._begin_of(name, stream)
        return None if begin is None else begin - 1

    def _begin_of(self, name: str, stream: Stream) -> int | None:
        return audit_groups.first_begin(self.groups, self.first_begins, name, stream)

    def _agreement(self) -> Iterator[dict[str, Any]]:
        """Return the rows of the table `views`: what the members of each view sent in
        it, and how far the others have it."""
        for (sender, view_id), last in sorted(self.groups.sent_in.items()):
            member, names = self.groups.members[sender], self._members_of(sender, view_id)
            reached = [upto for name in names if name != sender
                       and self.groups.members.get(name) is not None
                       and (upto := self._reached(name, Stream(sender))) is not None]
            given_up, _ = self.groups.purged.get((sender, view_id), (None, 0))
            is_last = not member.views or view_id == member.views[-1][1]
            yield {"view_id": view_id, "sender": sender, "members": len(names), "sent_to": last,
                   "given_up_to": given_up,
                   "least": min((min(upto, last) for upto in reached), default=None),
                   "most": max((min(upto, last) for upto in reached), default=None),
                   "status": self._status(reached, last, is_last)}

    def _status(self, reached: list[int], last: int, is_last: bool) -> str:
        if all(upto >= last for upto in reached):
            return "the same for all"
        if is_last:
            return "open: not judged beyond what was purged"
        return "the same as far as purged: a member left before it had all"
