"""The audit: a Spark job that reads the traces of a group and proves, or refutes, what
ringcast promises.

For every sender, view and receiver:

- `gap`, `duplicate`, `order`: what a member is given of a stream begins where the
  stream begins for it, leaves nothing out, brings nothing twice, and keeps the order;
  OOB messages only come once.
- `forged`: nothing is delivered that was not sent. `start`: nothing from before where
  the stream begins for the member.
- `ack`: a member acknowledges only what it was given. `purge`: a sender gives up only
  what every member of its view has acknowledged.
- `set`: all who went through a view together with a sender got the same set of its
  messages: all those that it gave up in that view.
- `view`: the ids of a member's views grow, it is in each of them, and one id means one
  set of members. `member`: no two members have one incarnation. `stranger`: a member is
  given nothing of who has not been in a view with it.
- `send`: a sender leaves out no position of its stream.

What comes before what, the messages say: one is sent before it is delivered, and what a
member does has an order of its own. The clocks of two members are never compared,
unless somebody knows how far they are apart at most (`skew_ms`); how far they seem to
be apart is told, and taken out of latencies (audit/clocks.py).

There is no flush: a message is not bound to the view in which it was sent, and of a
sender that crashed some may have more than others, each of them an unbroken beginning.
What a sender had not given up when the traces end, or when it went, is therefore not
judged for sameness (see the table `views`), nor is what a member did behind the end of
a trace that it did not close.

Nothing is concluded from a trace that has holes: the numbers of its events show them,
and then the verdict is that it is incomplete. So it is when a member of a view has no
trace at all.

One pass of aggregates proves most streams (audit/aggregates.py, audit/groups.py); only
the others are looked at row by row (audit/rows.py; of purges and acks,
audit/purges.py). The ordinals that it relies on are counted by who writes the trace,
and checked for being dense; a test compares both ways.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringcast.audit import (
    aggregates,
    clocks as audit_clocks,
    files as audit_files,
    groups as audit_groups,
    purges as audit_purges,
)
from ringcast.audit.clocks import Clocks
from ringcast.audit.groups import Groups, Stream
from ringcast.audit.rows import Asked, Hole, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"  # paths above which Spark lists
                                                                    # them by a job of as many tasks

SENTENCES = {
    "gap": "was sent, and {member} was given later ones without it",
    "unproven": "did not come to {member}, which was given later ones; nobody's trace says that it "
                "was sent",
    "duplicate": "was given to {member} twice",
    "order": "was given to {member} behind a later one",
    "forged": "was given to {member}, and its sender sent no such message",
    "start": "was given to {member} though the stream begins later for it",
    "ack": "was acknowledged by {member}, which had not been given it",
    "own": "was given up by {member} before it had been given its own message",
    "purge": "was given up by its sender before {member} had acknowledged it",
    "send": "was never sent, says the whole trace of its sender, and {member} was given later ones",
    "stranger": "was given to {member}, which had not been in a view with its sender",
    "set": "was given up by its sender as delivered to all, and {member}, which was in the view, "
           "never got it",
}


@dataclass(frozen=True, order=True)
class Violation:
    """A promise that was broken: the first message that shows it, of one kind, member
    and stream. `wall` is when, by the clock that the others of its group are compared
    with."""

    wall: int
    kind: str
    member: str
    view_id: int
    stream: Stream | None
    position: int | None
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence} ({self.member}, view {self.view_id}, at {self.wall / 1e9:.6f} s)"


@dataclass
class Audit:
    """What an audit came to. `violations` are in the order of time; `unproven` are
    those that a trace with holes may explain."""

    files: audit_files.Files
    groups: Groups
    violations: list[Violation] = field(default_factory=list)
    unproven: list[Violation] = field(default_factory=list)
    incomplete: dict[str, str] = field(default_factory=dict)  # members, and what their traces lack
    untraced: dict[str, str] = field(default_factory=dict)    # members without a trace, and where
                                                              # they are named
    clocks: Clocks = field(default_factory=Clocks)
    views: list[dict[str, Any]] = field(default_factory=list)  # what was sent, given up and
                                                               # delivered in each view

    @property
    def is_complete(self) -> bool:
        return not (self.incomplete or self.untraced or self.files.bad)

    @property
    def status(self) -> int:
        """Exit status: 1 when a promise is broken, 3 when the traces do not tell, else
        0."""
        return 1 if self.violations else 0 if self.is_complete and not self.unproven else 3

    @property
    def verdict(self) -> str:
        counted = f"{self.groups.num_messages:,} deliveries of {len(self.groups.members)} members"
        if self.violations:
            return f"BROKEN: {len(self.violations)} violations in {counted}; the first: {self.violations[0]}"
        if self.status == 0:
            return f"no promise was broken in {counted}"
        return f"INCOMPLETE: no promise was seen broken in {counted}, but " + "; ".join(
            self.doubts())

    def doubts(self) -> Iterator[str]:
        """Why the traces do not tell everything."""
        yield from (f"{path} {why}" for path, why in sorted(self.files.bad.items()))
        yield from (f"the trace of {member} has a hole: {why}" for member,
                    why in sorted(self.incomplete.items()))
        yield from (f"there is no trace of {member}, which is in {where}" for member,
                    where in sorted(self.untraced.items()))
        if self.unproven:
            yield f"{len(self.unproven)} things cannot be accounted for; the first: {self.unproven[0]}"

    def remarks(self) -> Iterator[str]:
        """What bounds the verdict, though nothing is wrong with the traces."""
        crashed = [name for name, member in sorted(self.groups.members.items())
                   if not member.is_closed]
        if crashed:
            yield f"{len(crashed)} members did not close their traces, so what they did last is not known: {', '.join(crashed[:5])}" + (
                ", ..." if len(crashed) > 5 else "")
        if self.files.unfinished:
            yield f"{len(self.files.unfinished)} parts were being written when their member ended"
        yield from self.clocks.sentences()


def read(spark: "SparkSession", parts: Sequence[Path]) -> "DataFrame":
    """The rows of these part files."""
    before = spark.conf.get(LISTING)
    spark.conf.set(LISTING, str(len(parts) + 1))
    try:
        return spark.read.schema(
            "ev bigint, time bigint, wall bigint, member string, event string, view_id bigint, "
            "sender string, peer string, "
            "conn_id bigint, first bigint, last bigint, count bigint, ord bigint, flags int, "
            "nbytes bigint, sent_at bigint, "
            "duration bigint, fill double, members array<string>, epoch int, member_id bigint, "
            "sender_id bigint, peer_id bigint, "
            "kind int").parquet(*map(str, parts))
    finally:
        spark.conf.set(LISTING, str(before))


def audit(spark: "SparkSession", traces: Sequence[Path | str], skew_ms: float | None = None) -> tuple[Audit, "DataFrame"]:
    """Judge the traces in these directories; returns the verdict, and the rows for
    whoever wants more of them.

    `skew_ms` is how far the clocks of two members are apart at most, in milliseconds,
    for who knows that (0 in a simulation): what no message tells is then judged by the
    clocks. Where messages show that they are further apart, they are not asked.
    TraceError when there is no trace; a part that turns out to be damaged inside is
    left out and reported.
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


def judge(spark: "SparkSession", files: audit_files.Files, skew_ms: float | None) -> tuple[Audit,
                                                                                           "DataFrame"]:
    """Do the same with parts that are believed to be whole."""
    skew = None if skew_ms is None else int(skew_ms * 1e6)
    rows, events = read(spark, files.parts), aggregates.marked(files.parts)
    with ThreadPoolExecutor(2) as beside:  # no pass alone keeps all cores busy from its first task
                                           # to its last
        purges = beside.submit(audit_purges.early_purges, spark, files.parts, events, skew)
        delays = beside.submit(audit_clocks.gather, spark, files.parts, events)
        groups = audit_groups.gather(aggregates.grouped(spark, files.parts).to_pylist(), events)
        early, clocks = purges.result(), audit_clocks.estimate(delays.result(), groups.names, skew)
    result = Audit(files, groups, incomplete=files.incomplete(), untraced=dict(untraced(groups)),
                   clocks=clocks)
    result.incomplete |= {name: hole for name, member in groups.members.items()
                          if (hole := member.hole()) is not None}
    _Judge(rows, result, skew, early).judge()
    return result, rows


def untraced(groups: Groups) -> Iterator[tuple[str, str]]:
    """Name the members of views that have no trace, and a view of each."""
    for member in groups.members.values():
        for *_, view_id, names in member.views:
            yield from ((name, f"view {view_id} of {member.name}") for name in names
                        if name not in groups.members)


class _Judge:
    """Asks the second stage what the first left open, and writes down what is wrong."""

    def __init__(self, rows: "DataFrame", result: Audit, skew: int | None, early: Sequence[Mapping[str, Any]]) -> None:
        self.rows, self.result, self.groups, self.skew, self.early = rows, result, result.groups, skew, early
        self.trusted = [name for name in self.groups.members if name not in result.incomplete]

    def judge(self) -> None:
        asked = [*self._starts(), *self._strangers()]
        suspects = list(dict.fromkeys(audit_groups.suspects(self.groups)
                                      + [(name, stream) for _, name, stream, _ in asked]))
        holes = list(self._unlike_sets())
        found = [*self._twins(), *self._views(), *self._purges()]
        if suspects or holes:
            found += self._by_rows(suspects, holes, asked)
        self._keep(found)
        self.result.views = list(self._agreement())

    def _by_rows(self, suspects: list[tuple[str, Stream]], holes: list[Hole], asked: list[Asked]) -> list[Violation]:
        begins = {key: begin for key in suspects if (begin := self._begin(*key)) is not None}
        ends = {stream: sent.last for stream, sent in self.groups.sent.items()
                if self._is_told(stream) and self.groups.members[stream.sender].is_closed}
        with Rows(self.rows, suspects, begins, holes, ends, asked) as second:
            return [self._violation(kind, member, stream, position, wall, view_id)
                    for first, member, stream, position, wall, view_id in second.found()
                    if (kind := self._kind(first, stream, position)) is not None]

    def _kind(self, kind: str, stream: Stream, position: int) -> str | None:
        """What rows found, given how much the trace of the sender is worth; None when
        nothing."""
        if kind == "purge":
            return "own"
        if kind == "forged":
            return kind if self._is_told(stream) else None
        if kind == "unproven" and self._is_told(stream):
            sent = self.groups.sent.get(stream)
            is_past = sent is not None and position < sent.last
            return "send" if is_past or self.groups.members[stream.sender].is_closed else kind
        return kind

    def _is_told(self, stream: Stream) -> bool:
        """Whether the traces have all that was sent of a stream, up to where its
        sender's trace ends."""
        return stream.sender in self.trusted and self.groups.members[stream.sender].has_all_epochs

    def _begin(self, member: str, stream: Stream) -> int | None:
        """The first position that is for the member: what its sender told it, or what
        it had from an earlier incarnation; else where it does begin."""
        got, sent = self.groups.got[member, stream], self.groups.sent.get(stream)
        if stream.conn_id is not None or member == stream.sender:
            return sent.first if sent is not None and stream.sender in self.trusted else got.first
        begins = self.groups.begins.get((member, stream), set())
        return max((begin for begin in begins if got.first is None or begin <= got.first),
                   default=got.first)

    def _violation(self, kind: str, member: str, stream: Stream, position: int, wall: int,
                   view_id: int,
                   clock: str | None = None) -> Violation:
        """`wall` is by the clock of the member, of who gave up, or of whoever is
        named."""
        sentence = f"message {position} of {stream} " + SENTENCES[kind].format(member=member)
        wall = self.result.clocks.true(clock or (stream.sender if kind == "set" else member), wall)
        return Violation(wall, "purge" if kind == "own" else kind, member, view_id, stream,
                         position, sentence)

    def _keep(self, found: list[Violation]) -> None:
        """The first of each kind, member and stream; what a hole in a trace may explain
        is not held against anybody."""
        first: dict[tuple[str, str, Stream | None], Violation] = {}
        for violation in sorted(found, key=lambda each: (each.wall, each.kind, each.member,
                                                         str(each.stream), each.position or 0)):
            first.setdefault((violation.kind, violation.member, violation.stream), violation)
        for violation in first.values():
            is_doubtful = violation.kind == "unproven" or violation.member not in self.trusted
            (self.result.unproven if is_doubtful else self.result.violations).append(violation)

    # ----------------------------------------------------------------------------- what groups show

    def _twins(self) -> Iterator[Violation]:
        for one, other in self.groups.twins:
            wall = min((wall for name in (one, other) if name in self.groups.members
                        for wall, *_ in self.groups.members[name].views), default=self.groups.begin)
            yield Violation(wall, "member", other, 0, None, None,
                            f"{one} and {other} have one incarnation")

    def _starts(self) -> Iterator[Asked]:
        """Messages from before the beginning."""
        for (name, stream), got in self.groups.got.items():
            begins = self.groups.begins.get((name, stream))
            if got.first is not None and begins and stream.sender in self.trusted and got.first < min(begins):
                yield "start", name, stream, got.first

    def _strangers(self) -> Iterator[Asked]:
        """Messages of who has not been in a view with the member up to then."""
        for (name, stream, view_id), first in self.groups.heard.items():
            known = {each for *_, number, names in self.groups.members[name].views
                     if number <= view_id for each in names}
            if stream.sender not in known | {name}:
                yield "stranger", name, stream, first

    def _views(self) -> Iterator[Violation]:
        """(Traces of several groups may be audited together: views of one id are
        compared when they have a member in common.)"""
        known: dict[tuple[int, str], tuple[frozenset[str], str]] = {}
        for member in self.groups.members.values():
            before: tuple[int, int] | None = None
            for wall, epoch, view_id, names in member.views:
                wrong = None
                for name in names:
                    others, who = known.setdefault((view_id, name), (frozenset(names), member.name))
                    if others != frozenset(names):
                        wrong = f"{member.name} and {who} have different members in view {view_id}"
                if before is not None and before[0] == epoch and view_id <= before[1]:
                    wrong = f"{member.name} installed view {view_id} after view {before[1]}"
                if member.name not in names:
                    wrong = f"{member.name} installed view {view_id}, which it is not in"
                if wrong is not None:
                    yield Violation(self.result.clocks.true(member.name, wall, epoch), "view",
                                    member.name, view_id, None, None, wrong)
                before = epoch, view_id

    def _purges(self) -> Iterator[Violation]:
        for row in self.early:
            sender, receiver = (self.groups.names.get(row[who], "")
                                for who in ("sender_id", "receiver_id"))
            if receiver in self.trusted and sender in self.groups.members and (
                    self._has_clocks(sender, receiver) if row["by_clock"]
                    else self._has_ordinals(receiver, Stream(sender))):
                position = row["position"] if row["known"] is None else row["known"] + 1
                yield self._violation("purge", receiver, Stream(sender), position, row["wall"],
                                      row["view_id"], sender)

    def _has_ordinals(self, member: str, stream: Stream) -> bool:
        """Whether the ordinals of what a member was given say how far it had come: they
        do not when it was given something twice, from before the beginning, or that was
        not sent."""
        got, sent = self.groups.got.get((member, stream)), self.groups.sent.get(stream)
        if got is None or got.first is None or got.last is None:
            return True
        is_sent = sent is not None and (got.last <= sent.last
                                        or not self.groups.members[stream.sender].is_closed)
        return is_sent and got.messages <= got.last - got.first + 1 and got.first >= min(
            self.groups.begins.get((member, stream), {got.first}))

    # --------------------------------------------------------------------------------- the same set

    def _unlike_sets(self) -> Iterator[Hole]:
        """What a sender gave up in a view, and a member of that view does not have at
        the end of its trace."""
        for sender, view_id, position, wall, names in self._given_up():
            stream = Stream(sender)
            for name in set(names) - {sender}:
                reached = self._reached(name, stream)
                if self._owes(name, sender, wall) and reached is not None and position > reached:
                    yield "set", name, stream, self._begin_of(name, stream), reached + 1, position, None, wall, view_id

    def _given_up(self) -> Iterator[tuple[str, int, int, int, tuple[str, ...]]]:
        for (sender, view_id), (position, wall) in self.groups.purged.items():
            names = next((names for *_, number, names in self.groups.members[sender].views if number == view_id), ())
            yield sender, view_id, position, wall, names

    def _owes(self, name: str, sender: str, wall: int) -> bool:
        """Whether a member has what was given up at that time, as far as its trace can
        tell."""
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
        """Whether the clocks of these members are known to be close, and nothing says
        otherwise."""
        return self.skew is not None and not any(key.member in names
                                                 for key in self.result.clocks.loose)

    def _reached(self, name: str, stream: Stream) -> int | None:
        """Up to where a member has what is for it of a stream; None when nothing
        tells."""
        got = self.groups.got.get((name, stream))
        if got is not None and got.last is not None:
            return got.last
        begin = self._begin_of(name, stream)
        return None if begin is None else begin - 1

    def _begin_of(self, name: str, stream: Stream) -> int | None:
        return max(self.groups.begins.get((name, stream), ()), default=None)

    def _agreement(self) -> Iterator[dict[str, Any]]:
        """Of each view what its members sent in it, and who has that."""
        for (sender, view_id), last in sorted(self.groups.sent_in.items()):
            member = self.groups.members[sender]
            names = next((names for *_, number, names in member.views if number == view_id), ())
            reached = [upto for name in names if name != sender
                       and self.groups.members.get(name) is not None
                       and (upto := self._reached(name, Stream(sender))) is not None]
            given_up, _ = self.groups.purged.get((sender, view_id), (None, 0))
            is_last = not member.views or view_id == member.views[-1][2]
            yield {"view_id": view_id, "sender": sender, "members": len(names), "sent_to": last,
                   "given_up_to": given_up,
                   "least": min((min(upto, last) for upto in reached), default=None),
                   "most": max((min(upto, last) for upto in reached), default=None),
                   "status": self._status(reached, last, is_last)}

    def _status(self, reached: list[int], last: int, is_last: bool) -> str:
        if all(upto >= last for upto in reached):
            return "the same for all"
        return "open: not judged beyond what was given up" if is_last else "as far as given up: somebody went before it had all"
