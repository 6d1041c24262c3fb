"""Purges that came too early: a sender gave up what a member of its view had not
acknowledged.

No clocks are compared. A purge is too early for sure when it happened before the ack
that it needed, and that is so when the member had, before this ack, been given a
message that the sender sent after the purge. Both sides count the sender's messages, so
that positions say it:

    r   of an ack: the last message of the stream that the member had been given when it sent the ack
    S   of a purge: the last message that the sender had sent before it

An ack may have come in time for a purge when r <= S. What else is said: a START says
that what lies before it is not for the member; a member that takes no messages
(refuse), or whose trace ends without a close, may have said anything from then on.

An early purge is not seen when the sender sends nothing between it and the ack. Who
knows how far the clocks of two members are apart at most (`skew`) finds these too: then
an ack that came more than that later than the purge came too late, by the clocks.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from ringcast.audit import aggregates
from ringcast.trace import KINDS, id_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOREVER = 1 << 62
NOTHING = -(1 << 62)                    # before all positions
STATEMENT = ("last", "ord", "wall")     # columns of what a member said of a stream ...
PURGE = ("ev", "last", "sent", "wall", "view_id")       # ... and of what its sender gave up
SAID = pa.schema([("is_purge", pa.int64()), ("sender_id", pa.int64()), ("receiver_id", pa.int64()),
                  ("epoch", pa.int64()),
                  ("ev", pa.int64()), ("sent", pa.int64()), ("rows", pa.binary())])
EARLY = pa.schema([(name, pa.int64()) for name in ("sender_id", "receiver_id", "by_clock", "wall",
                                                   "view_id", "known", "position")])

Numbers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


@dataclass
class Told:
    """What the events that are few say about who is waited for, by the members'
    numbers."""

    # sender: view: whom
    views: dict[int, dict[int, set[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    starts: dict[tuple[int, int], list[tuple[int, int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    # (sender, receiver): the first position for it
    begins: dict[tuple[int, int], int] = field(default_factory=dict)
    refusals: dict[int, tuple[int, int]] = field(default_factory=dict)  # receiver: epoch, wall
    # receiver: epochs
    closed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def note(self, event: Mapping[str, Any]) -> None:
        """Take one of the events that aggregates.marked reads, in their order."""
        member, what = id_of(event["member"]), event["event"]
        if what == "view":
            self.views[member][event["view_id"]] |= {id_of(name) for name in event["members"]} - {member}
        elif what == "start":
            key = id_of(event["sender"]), id_of(event["peer"])
            self.starts[key].append((event["epoch"], event["ev"], event["view_id"],
                                     event["first"] - 1))
            self.begins[key] = min(event["first"], self.begins.get(key, FOREVER))
        elif what == "resume":
            key = id_of(event["sender"]), member
            self.begins[key] = min(event["last"] + 1, self.begins.get(key, FOREVER))
        elif what == "refuse":
            self.refusals.setdefault(member, (event["epoch"], event["wall"]))
        elif what == "close":
            self.closed[member].add(event["epoch"])


def early_purges(spark: "SparkSession", parts: Sequence[Path], events: Sequence[Mapping[str, Any]],
                 skew: int | None) -> list[dict[str, Any]]:
    """Find the first early purge of each sender and receiver; with `skew`, in
    nanoseconds, also the first by the clocks."""
    from pyspark.sql.pandas.types import from_arrow_schema

    told = Told()
    for event in events:
        told.note(event)
    if aggregates.are_small(parts):
        said = aggregates.collected(spark, parts, say, SAID)
        return [dict(zip(EARLY.names, row, strict=True))
                for sender in pc.unique(said["sender_id"]).to_pylist()
                for row in early(sender, said.filter(pc.equal(said["sender_id"], sender)),
                                 told, skew)]
    views, starts, begins, refusals, closed = (
        {sender: dict(each) for sender, each in told.views.items()}, dict(told.starts), told.begins,
        told.refusals, dict(told.closed))

    def judged(key: tuple[pa.Scalar, ...], said: pa.Table) -> pa.Table:
        found = list(early(key[0].as_py(), said, Told(views, starts, begins, refusals, closed),
                           skew))
        return pa.Table.from_pylist([dict(zip(EARLY.names, row, strict=True)) for row in found],
                                    EARLY)

    by_sender = aggregates.over(spark, parts, say, SAID).groupBy("sender_id")
    found: list[dict[str, Any]] = by_sender.applyInArrow(judged, from_arrow_schema(EARLY)).toArrow().to_pylist()
    return found


def say(part: Path) -> pa.Table:
    """Read one part: a row for each stream that its member acknowledged, with all acks,
    and one for its purges."""
    columns = ["kind", "member_id", "epoch", "sender_id", "conn_id", "view_id", "ev", "last",
               "ord", "wall"]
    table = aggregates.read(part, columns, ("send", "retransmit", "ack", "purge"))
    table = table.filter(pc.and_(pc.is_null(table["conn_id"]), pc.is_valid(table["last"]))).drop_columns(["conn_id"])
    rows = {name: pc.fill_null(table[name], 0).to_numpy() for name in table.column_names}
    found: list[tuple[int, int, int, int, int, int, bytes]] = []
    for member in numpy.unique(rows["member_id"]):
        mine = {name: column[rows["member_id"] == member] for name, column in rows.items()}
        is_ack, is_purge = mine["kind"] == KINDS["ack"], mine["kind"] == KINDS["purge"]
        for sender in numpy.unique(mine["sender_id"][is_ack & (mine["sender_id"] != 0)]):
            said = matrix(mine, STATEMENT, is_ack & (mine["sender_id"] == sender))
            found.append((0, sender, member, *head(mine), NOTHING, said.tobytes()))
        sent = mine | {"sent": sent_before(mine, ~(is_ack | is_purge))}
        last = int(mine["last"][~(is_ack | is_purge)].max(initial=NOTHING))
        found.append((1, member, 0, *head(mine), last, matrix(sent, PURGE, is_purge).tobytes()))
    return pa.Table.from_arrays([pa.array(column, kind) for column, kind in zip(
        zip(*found, strict=True) if found else [[]] * len(SAID), SAID.types, strict=True)],
                                SAID.names)


def head(rows: Mapping[str, Numbers]) -> tuple[int, int]:
    """Tell where a part belongs among the others of its member."""
    return int(rows["epoch"][0]), int(rows["ev"].min())


def matrix(rows: Mapping[str, Numbers], columns: Sequence[str], which: Numbers) -> Numbers:
    order = numpy.argsort(rows["ev"][which], kind="stable")
    return numpy.stack([rows[name][which][order] for name in columns]).astype(numpy.int64)


def sent_before(rows: Mapping[str, Numbers], is_sent: Numbers) -> Numbers:
    """Tell of each row up to where its member had sent before it, as far as this part
    knows."""
    order = numpy.argsort(rows["ev"][is_sent], kind="stable")
    reached = numpy.maximum.accumulate(rows["last"][is_sent][order])
    before = numpy.searchsorted(rows["ev"][is_sent][order], rows["ev"])
    return numpy.concatenate([[NOTHING], reached])[before]


# --------------------------------------------------------------------------------------- one sender

def early(sender: int, said: pa.Table, told: Told, skew: int | None) -> Iterator[tuple[int | None,
                                                                                       ...]]:
    """Judge one sender's purges by what was said of its stream: rows of EARLY."""
    pieces = sorted(said.to_pylist(), key=lambda piece: (piece["epoch"], piece["ev"]))
    purges = purges_of([piece for piece in pieces if piece["is_purge"]])
    acks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for piece in pieces:
        if not piece["is_purge"]:
            acks[piece["receiver_id"]].append(piece)
    views = told.views.get(sender, {})
    for receiver in sorted(set().union(*views.values())):
        owed = purges[:, numpy.isin(purges[-1], [view_id for view_id, names in views.items()
                                                 if receiver in names])]
        if owed.size:
            last, given, wall = statements(sender, receiver, acks[receiver], told)
            started = starts(told.starts.get((sender, receiver), ()), owed)
            in_time = numpy.searchsorted(given, owed[2], "right")
            yield from _first(sender, receiver, 0, owed, numpy.maximum(started, last[in_time]))
            if skew is not None:
                in_time = numpy.searchsorted(wall, owed[3] + skew, "right")
                yield from _first(sender, receiver, 1, owed, numpy.maximum(started, last[in_time]))


def _first(sender: int, receiver: int, by_clock: int, purges: Numbers, known: Numbers) -> Iterator[
        tuple[int | None, ...]]:
    early = numpy.flatnonzero(purges[1] > known)
    if len(early):
        _, position, _, wall, view_id = map(int, purges[:, early[0]])
        reached = int(known[early[0]])
        yield sender, receiver, by_clock, wall, view_id, None if reached == NOTHING else reached, position


def purges_of(pieces: Sequence[Mapping[str, Any]]) -> Numbers:
    """Put the parts of a sender together: the columns of PURGE, of which `ev` counts on
    from process to process."""
    found, sent = [numpy.empty((len(PURGE), 0), numpy.int64)], NOTHING
    for piece in pieces:
        purges = decoded(piece["rows"], len(PURGE)).copy()
        purges[0] = placed(piece["epoch"], purges[0])
        purges[2] = numpy.maximum(purges[2], sent)
        sent = max(sent, piece["sent"])
        found.append(purges)
    return numpy.concatenate(found, axis=1)


def statements(sender: int, receiver: int, pieces: Sequence[Mapping[str, Any]], told: Told) -> tuple[Numbers, Numbers, Numbers]:
    """Put together what a receiver said: up to where it had acknowledged (one more
    entry, in front: nothing yet), the last message that it had been given then, and
    when. None of these ever goes back."""
    begin = told.begins.get((sender, receiver), NOTHING)
    epochs = sorted({0} | {piece["epoch"] for piece in pieces})
    found = []
    for epoch in epochs:
        said = numpy.concatenate([numpy.empty((len(STATEMENT), 0), numpy.int64)] + [
            decoded(piece["rows"], len(STATEMENT)) for piece in pieces if piece["epoch"] == epoch],
                                 axis=1)
        last, count, wall = said
        # what it was given in order has positions without a gap, or with gaps: it had
        # come at least as far as this
        given = numpy.where((count > 0) & (begin != NOTHING), begin + count - 1, NOTHING)
        refused = told.refusals.get(receiver, (None, 0))
        if refused[0] == epoch:
            at = int(numpy.searchsorted(wall, refused[1]))
            last, given, wall = (numpy.insert(column, at, value) for column, value in (
                (last, FOREVER), (given, given[at - 1] if at else NOTHING), (wall, refused[1])))
        found.append((last, given, wall))
        if epoch not in told.closed.get(receiver, ()):
            ended = numpy.array([[FOREVER], [NOTHING], [wall[-1] if len(wall) else NOTHING]],
                                numpy.int64)
            found.append((ended[0], ended[1], ended[2]))
    last, given, wall = (numpy.maximum.accumulate(numpy.concatenate(columns))
                         for columns in zip(*found, strict=True))
    return numpy.concatenate([[NOTHING], last]), given, wall


def starts(starts: Sequence[tuple[int, int, int, int]], purges: Numbers) -> Numbers:
    """Tell of each purge up to where nothing was for the receiver, as its sender had
    told it before, or told it in the same view."""
    ordered = sorted(starts)
    reached = numpy.maximum.accumulate(numpy.array([NOTHING, *(position for *_, position in ordered)], numpy.int64))
    keys = numpy.array([placed(epoch, ev) for epoch, ev, *_ in ordered], numpy.int64)
    known = reached[numpy.searchsorted(keys, purges[0])]
    for _, _, view_id, position in ordered:
        known = numpy.where(purges[-1] == view_id, numpy.maximum(known, position), known)
    return known


def placed(epoch: int, ev: Any) -> Any:
    """One number for the place of an event among all of its member."""
    return (epoch << 48) + ev


def decoded(rows: bytes, columns: int) -> Numbers:
    return numpy.frombuffer(rows, numpy.int64).reshape(columns, -1)
