"""The filters of a query, pushed down: bounds on senders, seqnos and times. Segments
outside of them are not opened.

Senders and seqnos are filtered exactly. Times are filtered as far as the index knows
them, by whole record batches, so Spark must still filter the rows that are left.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ringcast.journal.manifest import Extent
from ringcast.journal.merge import Journals
from ringcast.journal.offsets import Copy, Range
from ringcast.journal.reader import JournalReader, PurgedError
from ringcast.journal.rows import ROWS
from ringcast.journal.segments import Entry

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNBOUNDED = 2**63 - 1

_NUMBERS = ("seqno", "sent_at", "delivered_at")


class Bounds:
    """The rows that a query may want: those that meet all filters given to `narrow`."""

    def __init__(self) -> None:
        self.senders: frozenset[str] | None = None          # None: all
        self._from = dict.fromkeys(_NUMBERS, -UNBOUNDED)
        self._to = dict.fromkeys(_NUMBERS, UNBOUNDED)       # inclusive

    def narrow(self, filter_: Filter) -> bool:
        """Narrow the bounds by a filter. Return False if Spark must still apply it,
        because the bounds cannot express it exactly."""
        column = ".".join(getattr(filter_, "attribute", ()))
        match filter_:
            case IsNotNull():
                return column in ROWS.names     # no column has nulls
            case EqualTo(_, value) | EqualNullSafe(_, value):
                return self._narrow_to(column, [value])
            case In(_, values):
                return self._narrow_to(column, values)
            case GreaterThan(_, value) | GreaterThanOrEqual(_, value):
                return self._narrow_from(column, value, isinstance(filter_, GreaterThan))
            case LessThan(_, value) | LessThanOrEqual(_, value):
                return self._narrow_up_to(column, value, isinstance(filter_, LessThan))
        return False

    def _narrow_from(self, column: str, value: object, is_exclusive: bool) -> bool:
        if (number := _number(column, value)) is None:
            return False
        self._from[column] = max(self._from[column], number + is_exclusive)
        return column == "seqno"

    def _narrow_up_to(self, column: str, value: object, is_exclusive: bool) -> bool:
        if (number := _number(column, value)) is None:
            return False
        self._to[column] = min(self._to[column], number - is_exclusive)
        return column == "seqno"

    def _narrow_to(self, column: str, values: Iterable[object]) -> bool:
        values = list(values)
        if column == "sender" and all(isinstance(value, str) for value in values):
            wanted = frozenset(map(str, values))
            self.senders = wanted if self.senders is None else self.senders & wanted
            return True
        numbers = [number for value in values if (number := _number(column, value)) is not None]
        if len(numbers) < len(values) or not numbers:
            return False
        self._from[column] = max(self._from[column], min(numbers))
        self._to[column] = min(self._to[column], max(numbers))
        return column == "seqno" and len(numbers) == 1

    def ranges(self, spans: Iterable[Range]) -> list[Range]:
        """Cut the ranges to the bounds on sender and seqno."""
        kept = [Range(sender, max(first, self._from["seqno"]), min(last, self._to["seqno"]))
                for sender, first, last in spans if self.senders is None or sender in self.senders]
        return [span for span in kept if span.first <= span.last]

    def in_time(self, journals: Journals, copies: list[Copy]) -> list[Copy]:
        """Cut the copies to the bounds on times. If there are such bounds, this reads
        indexes, but never a segment."""
        if all(self._from[name] == -UNBOUNDED and self._to[name] == UNBOUNDED
               for name in ("sent_at", "delivered_at")):
            return copies
        return [piece for copy in copies
                for piece in self._in_time(journals.named(copy.journal), copy)]

    def _in_time(self, journal: JournalReader, copy: Copy) -> list[Copy]:
        pieces: list[Copy] = []
        for begin, end, entry in _indexed(journal, copy.sender, copy.first, copy.last):
            if entry is not None and not self._meets(entry):
                continue
            if pieces and pieces[-1].last + 1 == begin:
                pieces[-1] = pieces[-1]._replace(last=end)
            else:
                pieces.append(copy._replace(first=begin, last=end))
        return pieces

    def _meets(self, entry: Entry) -> bool:
        return (self._from["sent_at"] <= entry.sent_to and entry.sent_from <= self._to["sent_at"]
                and self._from["delivered_at"] <= entry.delivered_to
                and entry.delivered_from <= self._to["delivered_at"])


def _indexed(journal: JournalReader, sender: str, first: int,
             last: int) -> Iterator[tuple[int, int, Entry | None]]:
    """Cut a range into the record batches of the indexes. A piece without an index
    entry (its segment is being sealed, or its index is damaged) comes with None: it has
    to be read, which succeeds or reports the damage."""
    for entry in journal.entries(sender, first, last):
        if first < entry.first:
            yield first, entry.first - 1, None
        begin, first = max(first, entry.first), entry.last + 1
        yield begin, min(last, entry.last), entry
    if first <= last:
        yield first, last, None


def _number(column: str, value: object) -> int | None:
    """Return a bound as the journal stores it, times in microseconds; None for a value
    that cannot be compared here."""
    if column == "seqno" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if column in ("sent_at", "delivered_at") and isinstance(value, datetime):
        return microseconds(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
    return None


def microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time with a zone."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def sent_before(journals: Journals, moment: int, extents: Mapping[str, Extent]) -> dict[str, int]:
    """Return for each sender the seqno before its first message that was sent at
    `moment` (microseconds since 1970) or later; its highest seqno if there is no such
    message. Opens one record batch of each sender."""
    found = {}
    for sender, extent in extents.items():
        while sender not in found:
            try:
                found[sender] = _last_before(journals, moment, sender, extent)
            except PurgedError:             # meanwhile, by retention: of what is left now
                extent = journals.extents().get(sender, extent)
    return found


def _last_before(journals: Journals, moment: int, sender: str, extent: Extent) -> int:
    for copy in journals.copies([Range(sender, extent.low, extent.high)]):
        journal = journals.named(copy.journal)
        for begin, end, entry in _indexed(journal, sender, copy.first, copy.last):
            if entry is not None and entry.sent_to < moment:
                continue
            for _, stored in journal.stored(sender, begin, end, payloads=False):
                late = pc.greater_equal(stored.column("sent_at").cast(pa.int64()), moment)
                if (row := pc.index(late, True).as_py()) >= 0:
                    return int(stored.column("seqno")[row].as_py()) - 1
    return extent.high
