"""The columns that Spark sees: those that a segment stores, and those that are the same
in all rows of a sender.

Stored columns are passed on as they are in the file. A column that is the same in every
row is built once for the largest batch so far and then sliced, which costs nothing.
"""

from collections.abc import Mapping

import pyarrow as pa

from ringcast.journal.segments import STORED

# sender: name#incarnation
ROWS = pa.schema([("cluster", pa.string()), ("sender", pa.string()), *STORED])

HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))

# The columns that come from the recorder. The others come from the sender, and are the
# same in every journal.
RECORDER_COLUMNS = ("view_id", "delivered_at", "headers")

WITH_HEADERS = pa.schema([*ROWS, HEADERS])


class Rows:
    """Makes rows of `schema`, any selection of the fields of WITH_HEADERS, from the
    stored batches of one sender."""

    def __init__(self, schema: pa.Schema, cluster: str, sender: str,
                 headers: Mapping[str, str]) -> None:
        values = {"cluster": cluster, "sender": sender,
                  "headers": [{"key": key, "value": value.encode()}
                              for key, value in sorted(headers.items())]}
        self._schema = schema
        self._constants = {name: pa.scalar(values[name], schema.field(name).type)
                           for name in schema.names if name in values}
        self._columns: dict[str, pa.Array] = {}
        self._built = 0  # rows in each of _columns

    def __call__(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a stored batch, without copying what is stored."""
        count = stored.num_rows
        if count > self._built:
            self._columns = {name: pa.repeat(value, count)
                             for name, value in self._constants.items()}
            self._built = count
        columns = [self._columns[name].slice(0, count) if name in self._columns
                   else stored.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
