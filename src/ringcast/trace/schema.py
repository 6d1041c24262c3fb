"""The columns of a trace, and the files that it consists of.

| column | meaning |
|---|---|
| `ev` | number of the event, counted from 0 by each member without a gap: one that is missing was lost by the trace |
| `time` | nanoseconds on the member's monotonic clock |
| `wall` | nanoseconds since 1970 by the same clock's anchor to wall time; in a simulation, since its begin |
| `member` | whose event it is, as `name#incarnation` |
| `epoch` | of an incarnation that several processes lead one after the other (ringcast.Session), which of them; `ev` is counted in each |
| `event` | see below |
| `view_id` | the view that the member had |
| `sender` | whose stream `first` to `last` belong to |
| `peer` | to whom it was said, when not to everybody; of a message to a single member, that member |
| `conn_id` | of messages to single members, the connection whose stream `first` to `last` belong to |
| `first`, `last` | positions in the stream, inclusive; of an ack, a purge: those from `first` on are new |
| `count` | how many messages these are |
| `ord` | of a delivery, how many of the stream's messages this member was given in order before; of an ack or a purge, up to then |
| `flags` | ringcast.Flag, FRAGMENT and PART (below) |
| `nbytes` | of the payloads; of a control message, of its datagram |
| `sent_at` | when the messages left their sender, by its `wall` |
| `duration` | nanoseconds that a send was blocked |
| `fill` | of a window, how full it is: 1.0 is full |
| `members` | of a view: who is in it |
| `member_id`, `sender_id`, `peer_id`, `kind` | member, sender, peer and event as numbers, by which an audit groups them |

A position is a seqno, counted from where its sender's seqnos begin: the first message
is 1. (Only simulations begin elsewhere than at seqno 0, so that seqnos wrap; positions
do not.)

Events: `send` and `retransmit` (messages, to everybody or to `peer`), `deliver`, `ack`
(this member says that it has finished the stream of `sender` up to `last`), `xmit_req`
(it asks for messages again), `start` (it says from which position on `peer` gets its
stream), `resume` (it had finished the stream of `sender` up to `last` in an earlier
incarnation), `refuse` (it takes no messages from now on), `purge` (it gave up its
messages up to `last`), `view`, `blocked` (a send waited for room for `duration`),
`window` (its send
window: `first` to `last` are not purged, `ord` is HD), `dropped` (the trace had no room
for `count` events before this one), `close` (the trace ends properly; `flags` is 1 when
the member left in good order, `count` is what was not acknowledged). A datagram of a
layer that is not ringcast's own is `sent ` and the name of its kind; what an audit
judges does not depend on it.

An OOB message has no `ord`. A message larger than a datagram is sent as several rows
with FRAGMENT; all but the last have PART too: nobody is given these as messages. The
`ord` of the last is the position of the first.
"""

from pathlib import Path

import pyarrow as arrow
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from ringcast.trace import KINDS, ROW_GROUPS, VERSION, VERSION_KEY
from ringcast.trace.seal import SEALED, SEALED_KEY, seal

NAME = arrow.dictionary(arrow.int32(), arrow.string())
SCHEMA = arrow.schema([
    ("ev", arrow.int64()), ("time", arrow.int64()), ("wall", arrow.int64()), ("member", NAME), ("event", NAME),
    ("view_id", arrow.int64()), ("sender", NAME), ("peer", NAME), ("conn_id", arrow.int64()), ("first", arrow.int64()),
    ("last", arrow.int64()), ("count", arrow.int64()), ("ord", arrow.int64()), ("flags", arrow.int32()), ("nbytes", arrow.int64()),
    ("sent_at", arrow.int64()), ("duration", arrow.int64()), ("fill", arrow.float64()), ("members", arrow.list_(arrow.string())),
    ("epoch", arrow.int32()), ("member_id", arrow.int64()), ("sender_id", arrow.int64()), ("peer_id", arrow.int64()),
    ("kind", arrow.int32()),
], metadata={VERSION_KEY: VERSION, SEALED_KEY: SEALED})
RISING = ("ev", "time", "wall", "first", "last", "ord", "sent_at")  # among the events of one kind,
                                                                    # by little
CODED = ["members.list.element" if name == "members" else name for name in SCHEMA.names
         if name not in RISING]


def write(table: arrow.Table, path: Path | str) -> None:
    """Write a part file, in which the events of each kind stand together: `ev` keeps
    their order.

    Numbers that rise are kept as differences: that makes a part several times smaller,
    and written and read twice as fast, as with the dictionaries that suit the other
    columns. The pages have Parquet's checksums for whoever reads some of them, and the
    file has one of its own (seal.py).
    """
    buffer = arrow.BufferOutputStream()
    with parquet.ParquetWriter(buffer, SCHEMA, compression="zstd", compression_level=1,
                               use_dictionary=CODED,
                               column_encoding=dict.fromkeys(RISING, "DELTA_BINARY_PACKED"),
                               write_page_checksum=True) as file:
        for events in ROW_GROUPS:
            rows = table.filter(compute.is_in(table["kind"],
                                              arrow.array([KINDS[event] for event in events],
                                                          arrow.int32())))
            if rows.num_rows:
                file.write_table(rows)
    Path(path).write_bytes(seal(buffer.getvalue().to_pybytes()))
