"""What a query asks for, pushed down: senders, seqnos and times, so that what it does
not ask for is not opened.

Senders and seqnos are kept exactly; times only as far as the index knows them, a record
batch at a time, so that Spark still looks at each row that is left.
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
from ringcast.journal.reader import JournalReader
from ringcast.journal.rows import ROWS
from ringcast.journal.segments import Entry

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVER = 2**63 - 1

_NUMBERS = ("seqno", "sent_at", "delivered_at")


class Bounds:
    """The rows that a query may want: the conjunction of everything that `narrow` was
    given."""

    def __init__(self) -> None:
        self.senders: frozenset[str] | None = None  # all
        self._from = dict.fromkeys(_NUMBERS, -EVER)
        self._to = dict.fromkeys(_NUMBERS, EVER)  # inclusive

    def narrow(self, wish: Filter) -> bool:
        """Takes in one filter; False if Spark has to look at the rows itself, because
        this is not exact or not understood."""
        column = ".".join(getattr(wish, "attribute", ()))
        match wish:
            case IsNotNull():
                return column in ROWS.names  # no column has nulls
            case EqualTo(_, value) | EqualNullSafe(_, value):
                return self._one_of(column, [value])
            case In(_, values):
                return self._one_of(column, values)
            case GreaterThan(_, value) | GreaterThanOrEqual(_, value) | LessThan(_, value) | LessThanOrEqual(_, value):
                number = _number(column, value)
                if number is None:
                    return False
                if isinstance(wish, (GreaterThan, GreaterThanOrEqual)):
                    self._raise(column, number + isinstance(wish, GreaterThan), EVER)
                else:
                    self._raise(column, -EVER, number - isinstance(wish, LessThan))
                return column == "seqno"
        return False

    def _one_of(self, column: str, values: Iterable[object]) -> bool:
        values = list(values)
        if column == "sender" and all(isinstance(value, str) for value in values):
            wanted = frozenset(map(str, values))
            self.senders = wanted if self.senders is None else self.senders & wanted
            return True
        numbers = [number for value in values if (number := _number(column, value)) is not None]
        if len(numbers) < len(values) or not numbers:
            return False
        self._raise(column, min(numbers), max(numbers))
        return column == "seqno" and len(numbers) == 1

    def _raise(self, column: str, low: int, high: int) -> None:
        self._from[column] = max(self._from[column], low)
        self._to[column] = min(self._to[column], high)

    def ranges(self, spans: Iterable[Range]) -> list[Range]:
        """What of the ranges may be wanted by sender and seqno."""
        kept = [Range(sender, max(first, self._from["seqno"]), min(last, self._to["seqno"]))
                for sender, first, last in spans if self.senders is None or sender in self.senders]
        return [span for span in kept if span.first <= span.last]

    def timely(self, journals: Journals, copies: list[Copy]) -> list[Copy]:
        """What of the copies may be wanted by time; reads indexes, if times are
        bounded, and never a segment."""
        if all(self._from[name] == -EVER and self._to[name] == EVER
               for name in ("sent_at", "delivered_at")):
            return copies
        return [piece for copy in copies
                for piece in self._timely(journals.named(copy.journal), copy)]

    def _timely(self, journal: JournalReader, copy: Copy) -> list[Copy]:
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


def _indexed(journal: JournalReader, sender: str, first: int, last: int) -> Iterator[tuple[int, int,
                                                                                           Entry | None]]:
    """A range cut as the indexes cut it. Where they have no entry, because a segment is
    sealed at this moment or its index is damaged, there is None: that part has to be
    read, which finds it or says what is wrong."""
    for entry in journal.entries(sender, first, last):
        if first < entry.first:
            yield first, entry.first - 1, None
        begin, first = max(first, entry.first), entry.last + 1
        yield begin, min(last, entry.last), entry
    if first <= last:
        yield first, last, None


def _number(column: str, value: object) -> int | None:
    """A bound as stored: seqnos as they are, times in microseconds; None for what
    cannot be compared here."""
    if column == "seqno" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if column in ("sent_at", "delivered_at") and isinstance(value, datetime):
        return microseconds(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
    return None


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970 of a time with a zone."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def sent_before(journals: Journals, moment: int, extents: Mapping[str, Extent]) -> dict[str, int]:
    """For each sender the seqno before its first message that was sent at `moment`
    (microseconds since 1970) or later; the highest one if there is none. Opens one
    record batch of each sender."""
    return {sender: _last_before(journals, moment, sender, extent) for sender,
            extent in extents.items()}


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
