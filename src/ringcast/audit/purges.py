"""Purges that came too early: a sender freed a message that a member of its view had
not acknowledged.

This needs no clocks. A purge is certainly too early if it happened before the ack that
it needed. That is so if the member, before this ack, was given a message that the
sender sent after the purge. Both count the sender's messages, so their positions show
it:

    r   of an ack: the last message that the member was given before the ack
    S   of a purge: the last message that the sender sent before the purge

An ack may have come in time for a purge if r <= S. Other statements count as acks: the
messages before the place where the stream begins for a member (start) are not for it. A
member that takes no messages (refuse) may have acknowledged anything from then on; so
may a member whose trace ends without a close.

An early purge is not found if the sender sends nothing between it and the ack. If the
largest difference between the clocks of two members is known (`skew`), such purges are
found too: then an ack was too late if it came more than that after the purge, by the
clocks.
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
NOTHING = -(1 << 62)                                # before all positions
ACK_COLUMNS = ("last", "ord", "wall")
PURGE_COLUMNS = ("last", "sent", "wall", "view_id")
# A row has all acks of one stream in one part file, or all purges; `rows` is a matrix
# with the columns above.
STATEMENTS = pa.schema([*((name, pa.int64()) for name in (
    "is_purge", "sender_id", "receiver_id", "ev", "sent")), ("rows", pa.binary())])
EARLY = pa.schema([(name, pa.int64()) for name in (
    "sender_id", "receiver_id", "by_clock", "wall", "view_id", "known", "position")])

Numbers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]
Found = tuple[int | None, ...]                      # a row of EARLY


@dataclass
class Obligations:
    """Tell who must acknowledge whose messages, from the events that are few. Members
    are their numbers."""

    # sender: view: receivers
    views: dict[int, dict[int, set[int]]] = field(default_factory=dict)
    # (sender, receiver): (view, last position that is not for the receiver)
    starts: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    # (sender, receiver): the first position for the receiver
    begins: dict[tuple[int, int], int] = field(default_factory=dict)
    # receiver: wall of its refuse, or of its observe
    refusals: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)       # receivers whose traces end properly

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event that aggregates.marked read; call it in their order."""
        member, what = id_of(event["member"]), event["event"]
        if what in ("view", "install"):
            others = {id_of(name) for name in event["members"]} - {member}
            self.views.setdefault(member, {}).setdefault(event["view_id"], set()).update(others)
        elif what == "start":
            key = id_of(event["sender"]), id_of(event["peer"])
            self.starts.setdefault(key, []).append((event["view_id"], event["first"] - 1))
            self.begins[key] = min(event["first"], self.begins.get(key, FOREVER))
        elif what == "resume":
            key = id_of(event["sender"]), member
            self.begins[key] = min(event["last"] + 1, self.begins.get(key, FOREVER))
        elif what in ("refuse", "observe"):
            self.refusals.setdefault(member, event["wall"])
        elif what == "close":
            self.closed.add(member)


def early_purges(spark: "SparkSession", parts: Sequence[Path], events: Sequence[Mapping[str, Any]],
                 skew: int | None) -> list[dict[str, Any]]:
    """Find the first early purge of each sender and receiver, as rows of EARLY; with
    `skew`, in nanoseconds, also the first by the clocks."""
    from pyspark.sql.pandas.types import from_arrow_schema

    obligations = Obligations()
    for event in events:
        obligations.add(event)

    def judge(sender: int, table: pa.Table) -> list[dict[str, Any]]:
        return [dict(zip(EARLY.names, row, strict=True))
                for row in judge_sender(sender, table, obligations, skew)]

    if aggregates.are_small(parts):
        table = aggregates.collected(spark, parts, read_statements, STATEMENTS)
        return [row for sender in pc.unique(table["sender_id"]).to_pylist()
                for row in judge(sender, table.filter(pc.equal(table["sender_id"], sender)))]
    by_sender = aggregates.over(spark, parts, read_statements, STATEMENTS).groupBy("sender_id")
    judged = by_sender.applyInArrow(
        lambda key, table: pa.Table.from_pylist(judge(key[0].as_py(), table), EARLY),
        from_arrow_schema(EARLY))
    found: list[dict[str, Any]] = judged.toArrow().to_pylist()
    return found


def read_statements(part: Path) -> pa.Table:
    """Read one part file: a row of STATEMENTS for each stream that its member
    acknowledged, and one for the purges of the member's own stream."""
    columns = ["kind", "member_id", "sender_id", "conn_id", "view_id", "ev", "last", "ord", "wall"]
    table = aggregates.read(part, columns, ("send", "retransmit", "ack", "purge"))
    table = table.filter(pc.and_(pc.is_null(table["conn_id"]), pc.is_valid(table["last"])))
    rows = {name: pc.fill_null(table[name], 0).to_numpy() for name in columns if name != "conn_id"}
    found: list[tuple[int, int, int, int, int, bytes]] = []
    for member in numpy.unique(rows["member_id"]):
        mine = {name: column[rows["member_id"] == member] for name, column in rows.items()}
        is_ack, is_purge = mine["kind"] == KINDS["ack"], mine["kind"] == KINDS["purge"]
        begin = int(mine["ev"].min())
        for sender in numpy.unique(mine["sender_id"][is_ack & (mine["sender_id"] != 0)]):
            acks = matrix(mine, ACK_COLUMNS, is_ack & (mine["sender_id"] == sender))
            found.append((0, sender, member, begin, NOTHING, acks.tobytes()))
        is_sent = ~(is_ack | is_purge)
        sent = mine | {"sent": sent_before(mine, is_sent)}
        last = int(mine["last"][is_sent].max(initial=NOTHING))
        found.append((1, member, 0, begin, last, matrix(sent, PURGE_COLUMNS, is_purge).tobytes()))
    values = zip(*found, strict=True) if found else [[]] * len(STATEMENTS)
    arrays = [pa.array(column, kind) for column, kind in zip(values, STATEMENTS.types, strict=True)]
    return pa.Table.from_arrays(arrays, STATEMENTS.names)


def matrix(rows: Mapping[str, Numbers], columns: Sequence[str], which: Numbers) -> Numbers:
    """Return these columns of some rows, in the order of the events."""
    order = numpy.argsort(rows["ev"][which], kind="stable")
    return numpy.stack([rows[name][which][order] for name in columns]).astype(numpy.int64)


def sent_before(rows: Mapping[str, Numbers], is_sent: Numbers) -> Numbers:
    """Return for each row the last position that its member had sent before it, as far
    as this part knows."""
    order = numpy.argsort(rows["ev"][is_sent], kind="stable")
    reached = numpy.maximum.accumulate(rows["last"][is_sent][order])
    before = numpy.searchsorted(rows["ev"][is_sent][order], rows["ev"])
    return numpy.concatenate([[NOTHING], reached])[before]


# --------------------------------------------------------------------------- one sender

def judge_sender(sender: int, table: pa.Table, obligations: Obligations,
                 skew: int | None) -> Iterator[Found]:
    """Judge one sender's purges by the statements about its stream: rows of EARLY."""
    pieces = sorted(table.to_pylist(), key=lambda piece: piece["ev"])
    purges = purges_of([piece for piece in pieces if piece["is_purge"]])
    acks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for piece in pieces:
        if not piece["is_purge"]:
            acks[piece["receiver_id"]].append(piece)
    views = obligations.views.get(sender, {})
    for receiver in sorted(set().union(*views.values())):
        in_view = [view_id for view_id, receivers in views.items() if receiver in receivers]
        owed = purges[:, numpy.isin(purges[-1], in_view)]
        if owed.size:
            last, given, wall = acks_of(sender, receiver, acks[receiver], obligations)
            started = starts_before(obligations.starts.get((sender, receiver), ()), owed)
            in_time = numpy.searchsorted(given, owed[1], "right")
            yield from _first(sender, receiver, 0, owed, numpy.maximum(started, last[in_time]))
            if skew is not None:
                in_time = numpy.searchsorted(wall, owed[2] + skew, "right")
                yield from _first(sender, receiver, 1, owed, numpy.maximum(started, last[in_time]))


def _first(sender: int, receiver: int, by_clock: int, purges: Numbers,
           known: Numbers) -> Iterator[Found]:
    """Return the first of these purges that is beyond the position `known`, if any."""
    early = numpy.flatnonzero(purges[0] > known)
    if len(early):
        position, _, wall, view_id = map(int, purges[:, early[0]])
        reached = int(known[early[0]])
        yield (sender, receiver, by_clock, wall, view_id, None if reached == NOTHING else reached,
               position)


def purges_of(pieces: Sequence[Mapping[str, Any]]) -> Numbers:
    """Join the parts of a sender: PURGE_COLUMNS."""
    found, sent = [numpy.empty((len(PURGE_COLUMNS), 0), numpy.int64)], NOTHING
    for piece in pieces:
        purges = decoded(piece["rows"], len(PURGE_COLUMNS)).copy()
        purges[1] = numpy.maximum(purges[1], sent)
        sent = max(sent, piece["sent"])
        found.append(purges)
    return numpy.concatenate(found, axis=1)


def acks_of(sender: int, receiver: int, pieces: Sequence[Mapping[str, Any]],
            obligations: Obligations) -> tuple[Numbers, Numbers, Numbers]:
    """Join the acks of a receiver: the position that each acknowledges (with one more
    entry in front: nothing yet), the last message that the receiver was given before
    it, and its time. None of these ever decreases."""
    begin = obligations.begins.get((sender, receiver), NOTHING)
    none = numpy.empty((len(ACK_COLUMNS), 0), numpy.int64)
    parts = (decoded(piece["rows"], len(ACK_COLUMNS)) for piece in pieces)
    last, count, wall = numpy.concatenate([none, *parts], axis=1)
    # The positions of messages in order have no gaps, or some: so the receiver was
    # given this position at least.
    given = numpy.where((count > 0) & (begin != NOTHING), begin + count - 1, NOTHING)
    if (refused := obligations.refusals.get(receiver)) is not None:
        at = int(numpy.searchsorted(wall, refused))
        last, given, wall = (numpy.insert(column, at, value) for column, value in (
            (last, FOREVER), (given, given[at - 1] if at else NOTHING), (wall, refused)))
    if receiver not in obligations.closed:
        last, given, wall = (numpy.append(column, value) for column, value in (
            (last, FOREVER), (given, NOTHING), (wall, wall[-1] if len(wall) else NOTHING)))
    last, given, wall = map(numpy.maximum.accumulate, (last, given, wall))
    return numpy.concatenate([[NOTHING], last]), given, wall


def starts_before(starts: Sequence[tuple[int, int]], purges: Numbers) -> Numbers:
    """Return for each purge the last position that was not for the receiver, by where
    the stream began for it in the views up to that of the purge."""
    ordered = sorted(starts)
    positions = numpy.array([NOTHING, *(position for _, position in ordered)], numpy.int64)
    views = numpy.array([view_id for view_id, _ in ordered], numpy.int64)
    known: Numbers = numpy.maximum.accumulate(positions)[
        numpy.searchsorted(views, purges[-1], "right")]
    return known


def decoded(rows: bytes, columns: int) -> Numbers:
    return numpy.frombuffer(rows, numpy.int64).reshape(columns, -1)
