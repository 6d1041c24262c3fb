"""The columns of a trace, and its part files.

`ev`: number of the event. Each member counts from 0 without a gap, so a number that is
missing was lost by the trace.
`time`: nanoseconds on the member's monotonic clock.
`wall`: nanoseconds since 1970, by the same clock's anchor to wall time; in a simulation
since its begin.
`member`: the member that recorded the event, as `name#incarnation`.
`event`: see below.
`view_id`: the id of the view that the member's application has; of an install, a purge
and a start, of the view that its layers have, which the application may see later.
`sender`: the member whose stream has the positions `first` to `last`.
`peer`: the receiver, if it is one member; of a message to one member, that member.
`conn_id`: of messages to one member, the connection whose stream has these positions.
`first`, `last`: positions in the stream, inclusive; of an ack or a purge, the new ones.
`count`: the number of messages.
`ord`: of a delivery, how many of the stream's messages this member had been given in
order before; of an ack or a purge, how many until then.
`flags`: ringcast.Flag, FRAGMENT and PART (below).
`nbytes`: bytes of the payloads; of a control message, of its datagram.
`sent_at`: when the messages left their sender, by the sender's `wall`.
`duration`: nanoseconds for which a send was blocked.
`fill`: of a window, how full it is; 1.0 is full.
`members`: of a view or an install, the members of the view.
`member_id`, `sender_id`, `peer_id`, `kind`: member, sender, peer and event as numbers,
by which an audit groups.

A position is a seqno, counted from where its sender's seqnos begin: the first message
has position 1. (Only in simulations do seqnos begin elsewhere than at 1, so that they
wrap; positions do not wrap.)

The events:

`send`, `retransmit`: messages to everybody or to `peer` were sent.
`deliver`: messages were delivered; also those that are held back from the application
until it has been given a state. Of a message whose begin comes with the state there is
no row.
`ack`: this member said that it has finished the stream of `sender` up to `last`.
`xmit_req`: it asked for messages again.
`start`: at which position its stream begins for `peer`, as all agreed on. Or at which
one the stream of `sender` begins for itself: it was kept for members that come back, or
the application is not shown the view in which the sender said another one, or the two
had parted and meet again.
`resume`: it had finished the stream of `sender` up to `last` in an earlier incarnation.
`refuse`: it accepts no messages from now on.
`observe`: nobody waits for it.
`skip`: as an observer it was told that it missed `first` to `last` of `sender`.
`purge`: it freed its own messages up to `last`.
`install`: its layers installed a view that the group agreed on. `flags` is 1 if the
view is primary.
`depart`: for the view that follows, the stream of `sender`, which has left, ends at
`last`.
`view`: the application was shown a view. `flags` is 1 if the member takes messages and
is no observer: then what it was given before the view, the others have, too.
`blocked`: a send waited for room for `duration`.
`window`: its send window keeps `first` to `last`, and `ord` is HD.
`dropped`: the trace had no room for `count` events before this one.
`close`: the trace ends properly; `flags` is 1 if the member left in good order, `count`
is the number of messages that were not acknowledged.

A datagram of a layer that is not ringcast's own is `sent ` and the name of its kind; no
verdict of an audit depends on it.

An OOB message has no `ord`. A message larger than a datagram is sent as several rows
with FRAGMENT. All but the last also have PART: they are not given to applications as
messages. The `ord` of the last is the position of the first.
"""

from pathlib import Path

import pyarrow as arrow
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from ringcast.trace import KINDS, ROW_GROUPS, VERSION, VERSION_KEY
from ringcast.trace.seal import seal

NAME = arrow.dictionary(arrow.int32(), arrow.string())
I32, I64 = arrow.int32(), arrow.int64()
SCHEMA = arrow.schema([
    ("ev", I64), ("time", I64), ("wall", I64), ("member", NAME), ("event", NAME), ("view_id", I64),
    ("sender", NAME), ("peer", NAME), ("conn_id", I64), ("first", I64), ("last", I64),
    ("count", I64), ("ord", I64), ("flags", I32), ("nbytes", I64), ("sent_at", I64),
    ("duration", I64), ("fill", arrow.float64()), ("members", arrow.list_(arrow.string())),
    ("member_id", I64), ("sender_id", I64), ("peer_id", I64), ("kind", I32),
], metadata={VERSION_KEY: VERSION})
# Columns that rise by little from one event of a kind to the next.
RISING = ("ev", "time", "wall", "first", "last", "ord", "sent_at")
CODED = ["members.list.element" if name == "members" else name for name in SCHEMA.names
         if name not in RISING]


def write(table: arrow.Table, path: Path | str) -> None:
    """Write a part file, in which the events of each kind are together; `ev` has their
    order.

    Numbers that rise are written as differences. That makes a part several times
    smaller than dictionaries, which suit the other columns, and it is written and read
    twice as fast. The pages have Parquet's checksums for readers of some of them; the
    file has one of its own (seal.py).
    """
    buffer = arrow.BufferOutputStream()
    with parquet.ParquetWriter(buffer, SCHEMA, compression="zstd", compression_level=1,
                               use_dictionary=CODED,
                               column_encoding=dict.fromkeys(RISING, "DELTA_BINARY_PACKED"),
                               write_page_checksum=True) as file:
        for events in ROW_GROUPS:
            kinds = arrow.array([KINDS[event] for event in events], I32)
            rows = table.filter(compute.is_in(table["kind"], kinds))
            if rows.num_rows:
                file.write_table(rows)
    Path(path).write_bytes(seal(buffer.getvalue().to_pybytes()))
