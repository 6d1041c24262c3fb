"""The second stage of an audit: it examines, row by row, the streams that the
aggregates do not prove.

A gap is a message that its sender sent, that was for this member, and that the member
skipped. Some positions are not delivered to anybody, and are no gaps: all fragments but
the last, messages that their sender did not want to receive itself, and a message that
began before the member's stream did. So a gap is a hole in the deliveries together with
a row of the sender as evidence. The same holds for an ack of a message that was not
delivered yet. (An OOB message larger than a datagram has the position of the fragment
that came last. For these it is only checked that none came twice at one position.)
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringcast.audit.groups import SENT, Skip, Stream
from ringcast.flags import FRAGMENT, Flag
from ringcast.trace import PART

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OOB, DONT_LOOPBACK = int(Flag.OOB), int(Flag.DONT_LOOPBACK)
FOUND = ("member", "stream", "position", "ev", "wall", "view_id")
OF_MEMBER = ("member", "stream")        # a partition: what one member had of one stream
HOLE = {"kind": "string", "member": "string", "stream": "int64", "begin": "int64", "low": "int64",
        "high": "int64", "ev": "int64", "wall": "int64", "view_id": "int64"}

FOREVER = 1 << 62                               # behind all positions
Asked = tuple[str, str, Stream, int]            # kind, member, stream, position
# the columns of HOLE, with a Stream
Hole = tuple[str, str, Stream, int | None, int, int, int | None, int, int]
Found = tuple[str, str, Stream, int, int, int]  # kind, member, stream, position, wall, view
Skips = Mapping[tuple[str, Stream], Sequence[Skip]]     # by member and stream


class Rows:
    """The rows of a trace, and the questions of the second stage.

    `suspects` are the members and streams to examine. `begins` are the positions from
    which on a member must have been given all; `first_begins` are those from which on
    it may acknowledge nothing else, if the stream began for it before, and it was given
    nothing then. `ends` are the last positions that were sent, where known. For
    the messages in `asked` only the time of delivery is looked up. `skips` are the
    positions that are not for a member, because it and the sender had parted and met
    again, and the event with which its layers met the sender. `told` are those of which
    an observer was told that it missed them. Use it as a context manager: it caches the
    rows until the end.
    """

    def __init__(self, rows: "DataFrame", suspects: Sequence[tuple[str, Stream]],
                 begins: Mapping[tuple[str, Stream], int],
                 first_begins: Mapping[tuple[str, Stream], int],
                 holes: Sequence[Hole] = (), ends: Mapping[Stream, int] | None = None,
                 asked: Sequence[Asked] = (), skips: Skips | None = None,
                 told: Skips | None = None) -> None:
        from pyspark.sql import functions as F

        self.spark = rows.sparkSession
        self._rows = rows.withColumn("peer", F.when(F.col("conn_id").isNotNull(), F.col("peer")))
        self.streams = list(dict.fromkeys([stream for _, stream in suspects]
                                          + [hole[2] for hole in holes]))
        number = {stream: index for index, stream in enumerate(self.streams)}
        self._groups = table(
            self.spark, {"member": "string", "stream": "int64", "begin": "int64",
                         "first_begin": "int64"},
            [(member, number[stream], begin, first_begins.get((member, stream), begin))
             for member, stream in suspects for begin in [begins.get((member, stream))]])
        self._streams = table(
            self.spark, {"sender": "string", "peer": "string", "conn_id": "int64",
                         "stream": "int64"},
            [(stream.sender, stream.peer, stream.conn_id, number[stream])
             for stream in self.streams])
        self._ends = table(
            self.spark, {"stream": "int64", "low": "int64", "high": "int64"},
            [(number[stream], last + 1, FOREVER) for stream, last in (ends or {}).items()
             if stream in number])
        self._asked = table(
            self.spark, {"number": "int64", "member": "string", "stream": "int64",
                         "position": "int64"},
            [(index, member, number[stream], position)
             for index, (_, member, stream, position) in enumerate(asked)])
        self._kinds = [kind for kind, *_ in asked]
        self._skips = {(member, number[stream]): ranges
                       for (member, stream), ranges in (skips or {}).items() if stream in number}
        ranges_told = {key: ranges for key, ranges in (told or {}).items() if key[1] in number}
        for (member, stream), ranges in ranges_told.items():
            known = self._skips.get((member, number[stream]), ())
            self._skips[member, number[stream]] = [*known, *ranges]
        self._told = table(
            self.spark, {"member": "string", "stream": "int64", "low": "int64", "high": "int64"},
            [(member, number[stream], first, last)
             for (member, stream), ranges in ranges_told.items() for first, last, _ in ranges])
        self._holes = [dict(zip(HOLE, (*hole[:2], number[hole[2]], *hole[3:]), strict=True))
                       for hole in holes]
        events = self._select("deliver", "ack", "purge")
        self._events = events.join(F.broadcast(self._groups), ["member", "stream"]).cache()
        self._delivered = self._events.where(F.col("event") == "deliver")
        self._sent = self._select(*SENT).drop("member", "event", "ev", "wall", "view_id").cache()

    def __enter__(self) -> "Rows":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._events.unpersist()
        self._sent.unpersist()

    def _select(self, *events: str) -> "DataFrame":
        from pyspark.sql import functions as F

        rows = self._rows.where(F.col("event").isin(*events) & F.col("first").isNotNull())
        streams = F.broadcast(self._streams)
        same = [rows[name].eqNullSafe(streams[name]) for name in ("sender", "peer", "conn_id")]
        columns = ("member", "event", "ev", "wall", "view_id", "sender", "conn_id", "first",
                   "last", "ord", "flags")
        return rows.join(streams, same).select(*[rows[name] for name in columns], streams["stream"])

    def found(self) -> Iterator[Found]:
        """Find all violations, with the position of the message that shows each.

        If the sender's trace does not have a message as sent, it is `unproven` if the
        member skipped it, and `forged` if the member was given it.
        """
        twice = self.duplicates().toArrow().to_pylist()
        known = {(row["member"], row["stream"], row["ev"], row["position"]) for row in twice}
        early = self.early().toArrow().to_pylist()
        yield from (self._found("duplicate", row) for row in twice)
        yield from (self._found("order", row) for row in early if row["kind"] == "deliver" and (
            row["member"], row["stream"], row["ev"], row["position"]) not in known)
        holes = self._holes + self.gaps().toArrow().to_pylist()
        holes += [{name: row[name] for name in HOLE} for row in early if row["kind"] != "deliver"]
        holes = [piece for hole in holes for piece in self._without_skips(hole)]
        evidence = self._evidence(holes)
        for number, hole in enumerate(holes):
            position, is_told, is_explained = evidence.get(number, (None, False, False))
            if position is not None:
                yield self._found(hole["kind"], hole | {"position": position})
            elif hole["kind"] == "gap" and not (hole["is_behind"] or is_told):
                yield self._found("unproven", hole | {"position": hole["low"]})
            elif hole["kind"] == "synchrony" and not is_explained:
                yield self._found("synchrony", hole | {"position": hole["low"]})
        yield from (self._found("forged", row) for row in self.unsent().toArrow().to_pylist())
        yield from (self._found("skipped", row)
                    for row in self.given_all_the_same().toArrow().to_pylist())
        if self._kinds:
            yield from (self._found(self._kinds[row["number"]], row)
                        for row in self.looked_up().toArrow().to_pylist())

    def _without_skips(self, hole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the pieces of a hole that are for its member. The stream begins anew
        behind a skip. A large message that began before is for nobody, and an ack from
        then on says nothing of messages before: it may say no more than where a stream
        began in a view that its sender never had."""
        begin, low, is_behind = hole["begin"], hole["low"], False
        for first, last, ev in sorted(self._skips.get((hole["member"], hole["stream"]), ())):
            is_behind_it = hole["kind"] == "ack" and hole["ev"] > ev and (
                hole["high"] >= min(first - 1, last))
            if first > hole["high"] and not is_behind_it:
                break
            if low < first and not is_behind_it:
                yield dict(hole, begin=begin, low=low, high=first - 1, is_behind=is_behind)
            begin = last + 1
            if low <= begin:
                low, is_behind = max(low, begin), True
        if low <= hole["high"]:
            yield dict(hole, begin=begin, low=low, is_behind=is_behind)

    def _found(self, kind: str, row: Mapping[str, Any]) -> Found:
        return (kind, row["member"], self.streams[row["stream"]], row["position"], row["wall"],
                row["view_id"])

    def _before(self, value: "Column | str", partition: Sequence[str], *order: str) -> "Column":
        """Return the highest `value` of the rows before this one, in this order, in its
        partition."""
        from pyspark.sql import Window, functions as F

        window = Window.partitionBy(*partition).orderBy(*order)
        return F.max(value).over(window.rowsBetween(Window.unboundedPreceding, -1))

    def duplicates(self) -> "DataFrame":
        """Find messages that were delivered twice."""
        from pyspark.sql import functions as F

        before = self._before("last", OF_MEMBER, "first", "ev")
        twice = self._delivered.withColumn("before", before).where(
            F.col("first") <= F.col("before"))
        return twice.withColumnRenamed("first", "position").select(*FOUND)

    def early(self) -> "DataFrame":
        """Find messages in order that were delivered after a later one (kind
        `deliver`); acks of messages that the member had not been given (`ack`); and own
        messages that a member purged before it was given them (`purge`)."""
        from pyspark.sql import functions as F

        in_order = F.when((F.col("event") == "deliver") & F.col("ord").isNotNull(), F.col("last"))
        rows = self._events.where(F.col("ord").isNotNull()).withColumn(
            "reached", self._before(in_order, OF_MEMBER, "ev"))
        known = F.coalesce("reached", F.col("first_begin") - 1)
        is_delivery = F.col("event") == "deliver"
        is_wrong = F.when(is_delivery, F.col("first") <= F.col("reached")).otherwise(
            F.col("last") > known)
        return rows.where(is_wrong).select(
            F.col("event").alias("kind"), "member", "stream",
            F.col("first_begin").alias("begin"), (known + 1).alias("low"),
            F.col("last").alias("high"), "ev", "wall", "view_id", F.col("first").alias("position"))

    def unsent(self) -> "DataFrame":
        """Find the first message of each stream that a member was given although its
        sender did not send it: the sender sent later ones, or is known to have sent no
        more."""
        from pyspark.sql import functions as F

        before = self._before("last", ["stream"], "first", "last")
        sent = self._sent.select("stream", "first", (before + 1).alias("low"))
        holes = sent.where(F.col("low") < F.col("first")).select(
            "stream", "low", (F.col("first") - 1).alias("high")).unionByName(self._ends)
        others = self._delivered.where(F.col("member") != F.col("sender"))
        given = others.join(F.broadcast(holes), "stream").where(
            (F.col("first") <= F.col("high")) & (F.col("last") >= F.col("low")))
        position = F.greatest("first", "low").alias("position")
        first = F.min(F.struct(position, "ev", "wall", "view_id")).alias("found")
        return given.groupBy("member", "stream").agg(first).select("member", "stream", "found.*")

    def given_all_the_same(self) -> "DataFrame":
        """Find messages that an observer was given although it was told that it missed
        them."""
        from pyspark.sql import functions as F

        given = self._delivered.join(F.broadcast(self._told), [*OF_MEMBER]).where(
            (F.col("first") <= F.col("high")) & (F.col("last") >= F.col("low")))
        return given.withColumn("position", F.greatest("first", "low")).select(*FOUND)

    def looked_up(self) -> "DataFrame":
        """Find the first delivery of each message in `asked`."""
        from pyspark.sql import functions as F

        given = self._delivered.join(F.broadcast(self._asked), ["member", "stream"]).where(
            F.col("position").between(F.col("first"), F.col("last")))
        first = F.min(F.struct("ev", "wall", "view_id")).alias("found")
        return given.groupBy("number", "member", "stream", "position").agg(first).select(
            "number", "member", "stream", "position", "found.wall", "found.view_id")

    def gaps(self) -> "DataFrame":
        """Find holes: positions without a delivery, although the member was given a
        later message in order. A message that is for nobody, according to its sender,
        counts as delivered. The event and time of a hole are those of the next delivery
        in order."""
        from pyspark.sql import functions as F

        nothing = [F.lit(None).cast("bigint").alias(name)
                   for name in ("ord", "ev", "wall", "view_id")]
        columns = ("member", "stream", "begin", "first", "last", "ord", "ev", "wall", "view_id")
        begin = self._groups.where(F.col("begin").isNotNull()).select(
            "member", "stream", "begin", F.col("begin").alias("first"),
            (F.col("begin") - 1).alias("last"), *nothing)
        is_silent = self._is_for_nobody() & (F.col("first") >= F.col("begin"))
        silent = self._sent.join(F.broadcast(self._groups), "stream").where(is_silent).select(
            *columns[:5], *nothing)
        # A unicast message to oneself does not leave the member, so no row says that it
        # was sent.
        is_traced = F.col("conn_id").isNull() | (F.col("member") != F.col("sender"))
        covered = self._delivered.where(is_traced).select(*columns)
        covered = covered.unionByName(begin).unionByName(silent)
        covered = covered.withColumn("before", self._before("last", OF_MEMBER, "first", "last"))
        behind = F.when(F.col("ord").isNotNull(), F.struct("first", "ev", "wall", "view_id"))
        covered = covered.withColumn("behind", self._next(behind)).where(
            F.col("behind").isNotNull())
        high = F.least(F.col("first"), F.col("behind.first")) - 1
        low = F.greatest(F.col("before") + 1, F.col("begin"))   # OOB ones may come before the begin
        holes = covered.withColumn("low", low).withColumn("high", high)
        return holes.where(F.col("low") <= F.col("high")).select(
            F.lit("gap").alias("kind"), "member", "stream", "begin", "low", "high", "behind.ev",
            "behind.wall", "behind.view_id")

    def _next(self, value: "Column") -> "Column":
        """Return the first `value` that is not null, from this row on, in a member's
        stream."""
        from pyspark.sql import Window, functions as F

        window = Window.partitionBy(*OF_MEMBER).orderBy("first", "last")
        return F.first(value, ignorenulls=True).over(
            window.rowsBetween(0, Window.unboundedFollowing))

    def _is_for_nobody(self) -> "Column":
        """Return whether a sent row is of messages that are not delivered to `member`,
        whose stream begins at `begin`."""
        from pyspark.sql import functions as F

        flags = F.col("flags")
        is_part = flags.bitwiseAND(PART) != 0
        is_own = (flags.bitwiseAND(DONT_LOOPBACK) != 0) & (F.col("member") == F.col("sender"))
        is_scattered = flags.bitwiseAND(FRAGMENT | OOB) == FRAGMENT | OOB
        began_before = (flags.bitwiseAND(FRAGMENT) != 0) & (F.col("ord").isNull()
                                                            | (F.col("ord") < F.col("begin")))
        return is_part | is_own | is_scattered | F.coalesce(began_before, F.lit(False))

    def _evidence(self, holes: Sequence[Mapping[str, Any]],
                  ) -> dict[int, tuple[int | None, bool, bool]]:
        """Find for each hole, by its number, the first message in it that was sent and
        was for this member; and whether the hole begins, and whether it ends, with one
        that was for nobody: the end of a large message, say, that began before the
        stream did."""
        from pyspark.sql import functions as F

        if not holes:
            return {}
        asked = table(self.spark, {"number": "int64"} | HOLE, [
            (number, *(hole[name] for name in HOLE)) for number, hole in enumerate(holes)])
        sent = self._sent.drop("conn_id").withColumnsRenamed({"first": "from", "last": "to"})
        is_inside = (F.col("from") <= F.col("high")) & (F.col("to") >= F.col("low"))
        counts = (F.col("kind") == "gap") | (F.col("flags").bitwiseAND(OOB) == 0)
        found = sent.join(F.broadcast(asked), "stream").where(is_inside & counts)
        position = F.when(~self._is_for_nobody(), F.greatest("from", "low"))
        first = found.groupBy("number").agg(
            F.min(position).alias("position"),
            F.max(position.isNull() & (F.col("from") <= F.col("low"))).alias("is_told"),
            F.max(position.isNull() & (F.col("to") >= F.col("high"))).alias("is_explained"))
        return {row["number"]: (row["position"], row["is_told"], row["is_explained"])
                for row in first.toArrow().to_pylist()}


def table(spark: "SparkSession", columns: Mapping[str, str],
          rows: Sequence[Sequence[Any]]) -> "DataFrame":
    """Make a small table of rows that the driver has."""
    import pyarrow as pa

    arrays = [pa.array([row[index] for row in rows], pa.type_for_alias(kind))
              for index, kind in enumerate(columns.values())]
    return spark.createDataFrame(pa.table(arrays, names=list(columns)))
