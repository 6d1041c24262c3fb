"""The columns that Spark sees: what a segment stores, and beside it what all rows of a
sender have in common.

Stored columns are handed on as they lie in the file. A column that is the same in every
row is built once for each size of batch and then sliced, which costs nothing.
"""

from collections.abc import Mapping

import pyarrow as pa

from ringcast.journal.segments import STORED

# sender: name#incarnation
ROWS = pa.schema([("cluster", pa.string()), ("sender", pa.string()), *STORED])

HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))

OF_THE_RECORDER = ("view_id", "delivered_at", "headers")  # the rest is what the sender said, the
                                                          # same in every journal

WITH_HEADERS = pa.schema([*ROWS, HEADERS])


class Rows:
    """Makes rows of `schema`, any selection of the fields of WITH_HEADERS, from the
    stored batches of one sender."""

    def __init__(self, schema: pa.Schema, cluster: str, sender: str, headers: Mapping[str, str]) -> None:
        values = {"cluster": cluster, "sender": sender,
                  "headers": [{"key": key, "value": value.encode()} for key,
                              value in sorted(headers.items())]}
        self._schema = schema
        self._constants = {name: pa.scalar(values[name], schema.field(name).type)
                           for name in schema.names if name in values}
        self._columns: dict[str, pa.Array] = {}
        self._built = 0  # rows in each of _columns

    def __call__(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a stored batch; nothing stored is copied."""
        count = stored.num_rows
        if count > self._built:
            self._columns = {name: pa.repeat(value, count) for name,
                             value in self._constants.items()}
            self._built = count
        columns = [self._columns[name].slice(0, count) if name in self._columns
                   else stored.column(name)
                   for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
