"""The protocol events of a run as a table, one row for each range of seqnos: what an audit reads.

| column | meaning |
|---|---|
| `time` | nanoseconds on the member's monotonic clock |
| `wall` | nanoseconds since 1970 by the same clock's anchor to wall time; in a simulation, since its begin |
| `member` | whose event it is, as `name#incarnation` |
| `event` | `send`, `deliver`, `ack`, `xmit_req`, `retransmit`, `purge` or `view` |
| `view_id` | the view that the member had |
| `sender` | whose stream `first` to `last` belong to |
| `peer` | to whom it was said, when not to everybody; of a message to a single member, that member |
| `conn_id` | of messages to single members, the connection whose stream `first` to `last` belong to |
| `first`, `last` | the seqnos, inclusive; of an ack, a purge: those from `first` on are new |
| `nbytes` | of the payloads, where the event carries them |
| `members` | of a view: who is in it |
"""

from pathlib import Path
from typing import Any

import pyarrow as arrow
from pyarrow import parquet

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.protocols import mcast, multicast
from ringcast.protocols.seqnos import MODULUS, later, precedes
from ringcast.protocols.unicast3 import control
from ringcast.protocols.unicast3.layer import PREFIX
from ringcast.sim.cluster import Observer
from ringcast.sim.member import Member
from ringcast.stack import EVERYONE, Kind, Packet, decoded
from ringcast.view import View

NAME = arrow.dictionary(arrow.int32(), arrow.string())
SCHEMA = arrow.schema([
    ("time", arrow.int64()), ("wall", arrow.int64()), ("member", NAME), ("event", NAME), ("view_id", arrow.int64()),
    ("sender", NAME), ("peer", NAME), ("conn_id", arrow.uint64()), ("first", arrow.uint64()), ("last", arrow.uint64()),
    ("nbytes", arrow.int64()), ("members", arrow.list_(arrow.string()))])
ROWS = 50_000                           # of a row group


class Trace(Observer):
    """Writes the events of a cluster to a Parquet file; use as a context manager, and as the cluster's observer."""

    def __init__(self, path: Path | str) -> None:
        self.writer = parquet.ParquetWriter(path, SCHEMA, compression="zstd")
        self.rows: list[tuple[Any, ...]] = []
        self.num_rows = 0
        self.acked: dict[tuple[int, int], int] = {}     # (member, sender): highest ack so far
        self.purged: dict[int, int] = {}                # LOW of each member's send window
        self.sent_to_one: dict[tuple[int, int, int], int] = {}      # (sender, receiver, conn-id): highest seqno sent

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._flush()
        self.writer.close()

    # ----------------------------------------------------------------------------------------------------- the events

    def sent(self, member: Member, dest: int, datagram: bytes) -> None:
        header = wire.open_datagram(datagram, member.stack.group)
        if header is None:
            return
        packet = Packet(header.kind, header.sender, header.dest, datagram)
        peer = None if dest == EVERYONE else self._name(member, dest)
        if packet.kind in (Kind.DATA, Kind.REPEAT):
            ring = member.multicast.send_window.ring
            arrivals = wire.read_data(datagram, ring.low, ring.capacity)
            for batch in arrivals.batches if arrivals else ():
                self._row(member, "send" if packet.kind == Kind.DATA else "retransmit", str(member.address), peer, batch.first,
                          batch.last, batch.nbytes)
        elif packet.kind in (Kind.UNICAST, Kind.UNICAST_FIRST):
            self._sent_to_one(member, dest, packet)
        elif packet.kind == Kind.ACK and (ack := decoded(mcast.ACK, packet)) and ack.budget:
            before = self.acked.get((member.incarnation, dest), member.multicast.windows[dest].offset)
            self.acked[member.incarnation, dest] = ack.seqno
            self._row(member, "ack", peer, peer, (before + 1) % MODULUS, ack.seqno)
        elif packet.kind == Kind.UNICAST_ACK and (answer := decoded(control.ACK, packet)) and answer.budget:
            self._row(member, "ack", peer, peer, answer.seqno, answer.seqno, conn_id=answer.conn_id)
        elif packet.kind == Kind.XMIT_REQ and (request := decoded(multicast.XMIT_REQ, packet)):
            for first, last in request.ranges:
                self._row(member, "xmit_req", peer, peer, first, last)
        elif packet.kind == Kind.UNICAST_XMIT_REQ and (wanted := decoded(control.XMIT_REQ, packet)):
            for first, last in wanted.ranges:
                self._row(member, "xmit_req", peer, peer, first, last, conn_id=wanted.conn_id)

    def _sent_to_one(self, member: Member, dest: int, packet: Packet) -> None:
        """A message of a connection is sent for the first time when it is above all that was sent before."""
        entry = member.unicast.senders[dest]
        key = (member.incarnation, dest, entry.conn_id)
        before = self.sent_to_one.get(key, (entry.first - 1) % MODULUS)
        arrivals = wire.read_data(packet.data, entry.ring.low, entry.ring.capacity, PREFIX)
        for batch in arrivals.batches if arrivals else ():
            is_new = precedes(before, batch.first)
            self._row(member, "send" if is_new else "retransmit", str(member.address), self._name(member, dest), batch.first,
                      batch.last, batch.nbytes, conn_id=entry.conn_id)
            self.sent_to_one[key] = later(self.sent_to_one.get(key, before), batch.last)

    def delivered(self, member: Member, batch: Batch) -> None:
        peer = conn_id = None
        if batch.dest is not None:
            peer = str(batch.dest)
            conn_id = self._connection_of(member, batch)
        self._row(member, "deliver", str(batch.sender), peer, batch.first, batch.last, batch.nbytes, conn_id=conn_id)

    def _connection_of(self, member: Member, batch: Batch) -> int | None:
        unicast = member.unicast
        if batch.stream is unicast.own:
            return unicast.senders[member.incarnation].conn_id
        connections = (*unicast.receivers.values(), *unicast.leaving)
        return next((entry.conn_id for entry in connections if entry.stream is batch.stream), None)

    def viewed(self, member: Member, view: View) -> None:
        self._row(member, "view", members=[str(address) for address in view.members])

    def purged_to(self, member: Member, low: int) -> None:
        before = self.purged.get(member.incarnation, member.offset)
        self.purged[member.incarnation] = low
        self._row(member, "purge", str(member.address), None, (before + 1) % MODULUS, low)

    # ------------------------------------------------------------------------------------------------------- the table

    def _name(self, member: Member, incarnation: int) -> str:
        return str(member.cluster.lives[incarnation].address)

    def _row(self, member: Member, event: str, sender: str | None = None, peer: str | None = None, first: int | None = None,
             last: int | None = None, nbytes: int | None = None, members: list[str] | None = None,
             conn_id: int | None = None) -> None:
        now = member.cluster.now
        view_id = member.views[-1].id if member.views else 0
        self.rows.append((member.clock.read(now), now, str(member.address), event, view_id, sender, peer, conn_id, first, last, nbytes,
                          members))
        if len(self.rows) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        columns = list(zip(*self.rows, strict=True)) if self.rows else [()] * len(SCHEMA)
        arrays = [arrow.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        self.writer.write_table(arrow.table(arrays, schema=SCHEMA))
        self.num_rows += len(self.rows)
        self.rows = []
