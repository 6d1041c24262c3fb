"""What a member does, as rows of its trace.

The recorder stands beside the stack and reads what goes out of it: datagrams,
deliveries, views, the LOW of the send window. It knows the wire, not what the layers
think, so that an audit of its rows judges them. It counts what it has seen of each
stream; no protocol depends on that.
"""

from collections.abc import Callable
from typing import Any

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import EVERYONE, Address
from ringcast.digest import Digest
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.frag import HEAD
from ringcast.protocols.multicast import base as multicast, mcast, nakack2, stable
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.starts import START
from ringcast.protocols.seqnos import MODULUS, Seqno
from ringcast.protocols.unicast3 import Unicast3, control
from ringcast.protocols.unicast3.control import PREFIX
from ringcast.protocols.unreliable import STAMP, UNRELIABLE
from ringcast.stack import Effects, Packet
from ringcast.trace import PART, SENT
from ringcast.trace.writer import Writer
from ringcast.view import View

KIND = 3                                # where the kind stands in a datagram
SAMPLE = 10_000_000                     # nanoseconds between two looks at the send window
MOST_STREAMS = 4096                     # to single members, of which something is remembered
UNORDERED = int(Flag.OOB | Flag.NO_RELIABILITY)

StreamKey = tuple[int, int, int | None]  # incarnations of sender and receiver (0: everybody),
                                         # conn-id


class Recorder:
    """The rows of one member, whose layers are `multicast` and `unicast`, go to
    `writer`. `offset_of` says before which seqno the streams of a member (its
    incarnation) begin.

    `time` and `wall` of all calls are the columns of that name. Threads: as the stack,
    but `blocked`, which any thread may call.
    """

    def __init__(self, writer: Writer, local: Address, multicast: Multicast, unicast: Unicast3, *,
                 offset_of: Callable[[int], Seqno] = lambda incarnation: 0) -> None:
        self.writer = writer
        self.local = local
        self.multicast, self.unicast = multicast, unicast
        self.offset_of = offset_of
        self.view_id = 0
        self.names: dict[int, str] = {local.incarnation: str(local)}
        self.low = multicast.send_window.ring.low
        self.next_sample = 0
        self.num_delivered: dict[StreamKey, int] = {}      # in order
        self.acked: dict[StreamKey, int] = {}              # position
        self.sent_to: dict[StreamKey, int] = {}            # highest position sent on a connection
        self.begun: dict[tuple[StreamKey, int], int] = {}  # position of the first fragment of a
                                                           # message, by its number
        self.started: dict[int, tuple[int, int]] = {}      # what each member was told last about
                                                           # where the stream starts
        self.has_refused = False

    def resumes(self, digest: Digest, time: int, wall: int) -> None:
        """What this member has from an earlier incarnation."""
        for sender, seqno in digest.items():
            self._row(time, wall, "resume", sender=str(sender),
                      last=self._position(sender.incarnation, seqno))

    # ---------------------------------------------------------------------------------------- turns

    def turn(self, effects: Effects, time: int, wall: int) -> None:
        """All that a turn asks for."""
        for view in effects.views:
            self.learn(view)
        for dest, datagram in effects.packets:
            self.sent(dest, datagram, time, wall)
        for view in effects.views:
            self.viewed(view, time, wall)
        for batch in effects.deliveries:
            self.delivered(batch, time, wall)
        self.looked(time, wall)

    def learn(self, view: View) -> None:
        """Who the members are that datagrams name by their incarnations."""
        for member in view.members:
            remember(self.names, member.incarnation, str(member))

    def looked(self, time: int, wall: int) -> None:
        """The send window after a turn: what was purged, and now and then how full it
        is."""
        ring = self.multicast.send_window.ring
        if ring.low != self.low:
            self.purged(ring.low, time, wall)
        if time >= self.next_sample and (ring.hr != ring.low or self.next_sample):
            self.next_sample = time + SAMPLE
            count, position = (ring.hr - ring.low) % MODULUS, self._own_position
            self._row(time, wall, "window", sender=str(self.local), first=position(ring.low) + 1,
                      last=position(ring.hr), count=count,
                      ord=position(ring.hd), nbytes=ring.nbytes,
                      fill=max(count / ring.capacity, ring.nbytes / ring.max_bytes))

    # -------------------------------------------------------------------------------------- sending

    def sent(self, dest: int, datagram: bytes, time: int, wall: int) -> None:
        """A datagram went to the network; `dest` is an incarnation or EVERYONE."""
        number = datagram[KIND]
        write = self._rows_of.get(number)
        if write is not None:
            write(self, Packet(number, self.local.incarnation, dest, datagram), time, wall)
        elif (kind := self.multicast.stack.kind(number)).traced:
            self._row(time, wall, SENT + kind.name, peer=self._name(dest),
                      conn_id=signed(kind.conn_id(datagram)),
                      nbytes=len(datagram))

    def _sent_to_all(self, packet: Packet, time: int, wall: int) -> None:
        event = "send" if packet.kind == multicast.DATA else "retransmit"
        key = (self.local.incarnation, EVERYONE, None)
        for run in wire.list_runs(packet.data, wire.HEADER_SIZE, self.multicast.send_window.marks):
            self._sent_run(event, key, self._name(packet.dest), packet.data, run, time, wall)

    def _sent_to_one(self, packet: Packet, time: int, wall: int) -> None:
        """A message of a connection is sent for the first time when it is above all
        that was sent before."""
        key = (self.local.incarnation, packet.dest,
               int.from_bytes(packet.data[wire.HEADER_SIZE:PREFIX], "little"))
        for run in wire.list_runs(packet.data, PREFIX):
            last = self._own_position(run[0]) + run[1] - 1
            before = self.sent_to.get(key)
            is_new = before is None or before < last
            self._sent_run("send" if is_new else "retransmit", key, self._name(packet.dest),
                           packet.data, run, time, wall)
            if is_new:
                remember(self.sent_to, key, last)

    def _sent_run(self, event: str, key: StreamKey, peer: str | None, datagram: bytes,
                  run: tuple[int, int, int, int, int, int],
                  time: int, wall: int) -> None:
        seqno, count, flags, nbytes, sent_at, at = run
        first = self._own_position(seqno)
        begins = None
        if flags & FRAGMENT and nbytes >= HEAD.size:
            number, index, parts = HEAD.unpack_from(datagram, at)
            nbytes -= HEAD.size
            if index == 0 and event == "send":
                remember(self.begun, (key, number), first)
            begins = self.begun.get((key, number))
            if index < parts - 1:
                flags, begins = flags | PART, None
        self._row(time, wall, event, sender=str(self.local), peer=peer, conn_id=signed(key[2]),
                  first=first, last=first + count - 1,
                  count=count, ord=begins, flags=flags, nbytes=nbytes, sent_at=sent_at)

    def _sent_unreliably(self, packet: Packet, time: int, wall: int) -> None:
        self._row(time, wall, "send", sender=str(self.local), peer=self._name(packet.dest), count=1,
                  flags=int(Flag.NO_RELIABILITY),
                  nbytes=len(packet.data) - wire.HEADER_SIZE - STAMP.size,
                  sent_at=STAMP.unpack_from(packet.data, wire.HEADER_SIZE)[0])

    def _started(self, packet: Packet, time: int, wall: int) -> None:
        start = START.decode(packet.data)
        if start is not None and self.started.get(packet.dest) != (start.seqno, start.view_id):
            self.started[packet.dest] = start.seqno, start.view_id
            self._row(time, wall, "start", sender=str(self.local), peer=self._name(packet.dest),
                      nbytes=len(packet.data),
                      first=self._own_position(start.seqno) + 1)

    def purged(self, low: Seqno, time: int, wall: int) -> None:
        before, self.low = self._own_position(self.low), low
        last = self._own_position(low)
        own = self.num_delivered.get((self.local.incarnation, EVERYONE, None),
                                     0) if self.multicast.receiving else None
        self._row(time, wall, "purge", sender=str(self.local), first=before + 1, last=last,
                  count=last - before, ord=own)

    def blocked(self, duration: int, dest: Address | None, time: int, wall: int) -> None:
        """A send waited for room, and has it now or gave up."""
        self._row(time, wall, "blocked", sender=str(self.local), peer=None if dest is None
                  else str(dest), duration=duration)

    # ------------------------------------------------------------------------------------ receiving

    def delivered(self, batch: Batch, time: int, wall: int) -> None:
        """The application is handed a batch: a row for each run of messages that left
        their sender together."""
        sender = batch.sender.incarnation
        conn_id, peer = None, None
        if batch.dest is not None:
            peer, conn_id = str(batch.dest), self._connection_of(batch)
        if batch.flags & Flag.NO_RELIABILITY:
            for count, nbytes, sent_at in wire.runs_of(batch):
                self._row(time, wall, "deliver", sender=str(batch.sender), peer=peer, count=count,
                          flags=batch.flags, nbytes=nbytes,
                          sent_at=sent_at)
            return
        key = (sender, EVERYONE if batch.dest is None else batch.dest.incarnation, conn_id)
        first = self._position(sender, batch.first)
        ord = None if batch.flags & UNORDERED else self.num_delivered.get(key, 0)
        for count, nbytes, sent_at in wire.runs_of(batch):
            self._row(time, wall, "deliver", sender=str(batch.sender), peer=peer,
                      conn_id=signed(conn_id), first=first,
                      last=first + count - 1, count=count, ord=ord, flags=batch.flags,
                      nbytes=nbytes, sent_at=sent_at)
            first += count
            ord = None if ord is None else ord + count
        if ord is not None:
            remember(self.num_delivered, key, ord)

    def _connection_of(self, batch: Batch) -> int | None:
        unicast, stream = self.unicast, batch.stream
        if stream is unicast.own:
            return unicast.senders[self.local.incarnation].conn_id if self.local.incarnation in unicast.senders else None
        entry = unicast.receivers.get(batch.sender.incarnation)
        if entry is not None and entry.stream is stream:
            return entry.conn_id
        return next((entry.conn_id for entry in unicast.leaving if entry.stream is stream), None)

    def _acked_mcast(self, packet: Packet, time: int, wall: int) -> None:
        ack = mcast.ACK.decode(packet.data)
        if ack is not None and ack.budget == 0:
            self._refused(time, wall)
        elif ack is not None:
            self._acked((packet.dest, EVERYONE, None), ack.seqno, len(packet.data), time, wall)

    def _acked_unicast(self, packet: Packet, time: int, wall: int) -> None:
        ack = control.ACK.decode(packet.data)
        if ack is not None and ack.seqno is not None:
            self._acked((packet.dest, self.local.incarnation, ack.conn_id), ack.seqno,
                        len(packet.data), time, wall)

    def _acked(self, key: StreamKey, seqno: Seqno, nbytes: int, time: int, wall: int) -> None:
        """This member says that it has finished a stream up to a seqno."""
        sender, dest, conn_id = key
        last = self._position(sender, seqno)
        before = self.acked.get(key, last)
        remember(self.acked, key, last)
        self._row(time, wall, "ack", sender=self._name(sender), peer=None if dest == EVERYONE
                  else str(self.local),
                  conn_id=signed(conn_id), first=before + 1, last=last, count=last - before,
                  ord=self.num_delivered.get(key, 0),
                  nbytes=nbytes)

    def _voted(self, packet: Packet, time: int, wall: int) -> None:
        vote = stable.VOTE.decode(packet.data)
        if vote is not None:
            self._finished(vote.digest, vote.receiving, len(packet.data), time, wall)

    def _reported(self, packet: Packet, time: int, wall: int) -> None:
        """The coordinator sends its own vote to nobody; but what it says of all, it
        says of itself."""
        report = stable.STABILITY.decode(packet.data)
        if report is not None:
            self._finished(report.digest, self.multicast.receiving, len(packet.data), time, wall)

    def _finished(self, digest: stable.Digest, receiving: bool, nbytes: int, time: int,
                  wall: int) -> None:
        """A row for each stream of which more is finished; the datagram's bytes count
        once."""
        if not receiving:
            self._refused(time, wall)
            return
        for sender, (seqno, _) in digest.items():
            if self.acked.get((sender, EVERYONE, None)) != self._position(sender, seqno):
                self._acked((sender, EVERYONE, None), seqno, nbytes, time, wall)
                nbytes = 0
        if nbytes:
            self._row(time, wall, "ack", nbytes=nbytes)

    def _answered_start(self, packet: Packet, time: int, wall: int) -> None:
        started = nakack2.STARTED.decode(packet.data)
        if started is not None and not started.receiving:
            self._refused(time, wall)

    def _refused(self, time: int, wall: int) -> None:
        if not self.has_refused:
            self.has_refused = True
            self._row(time, wall, "refuse")

    def _asked_all(self, packet: Packet, time: int, wall: int) -> None:
        request = multicast.XMIT_REQ.decode(packet.data)
        if request is not None:
            self._asked((packet.dest, EVERYONE, None), request.ranges, len(packet.data), time, wall)

    def _asked_one(self, packet: Packet, time: int, wall: int) -> None:
        request = control.XMIT_REQ.decode(packet.data)
        if request is not None:
            self._asked((packet.dest, self.local.incarnation, request.conn_id), request.ranges,
                        len(packet.data), time, wall)

    def _asked(self, key: StreamKey, ranges: list[tuple[Seqno, Seqno]], nbytes: int, time: int,
               wall: int) -> None:
        sender, dest, conn_id = key
        for low, high in ranges:
            first, last = self._position(sender, low), self._position(sender, high)
            self._row(time, wall, "xmit_req", sender=self._name(sender), peer=None
                      if dest == EVERYONE else str(self.local),
                      conn_id=signed(conn_id), first=first, last=last, count=last - first + 1,
                      nbytes=nbytes)
            nbytes = 0

    _rows_of: dict[int, Callable[["Recorder", Packet, int, int], None]] = {
        multicast.DATA: _sent_to_all, multicast.REPEAT: _sent_to_all, control.MESSAGE: _sent_to_one,
        control.FIRST: _sent_to_one,
        UNRELIABLE: _sent_unreliably, START: _started, nakack2.STARTED: _answered_start,
        mcast.ACK: _acked_mcast,
        control.ACK: _acked_unicast, stable.VOTE: _voted, stable.STABILITY: _reported,
        multicast.XMIT_REQ: _asked_all,
        control.XMIT_REQ: _asked_one}

    # ---------------------------------------------------------------------------------------- views

    def viewed(self, view: View, time: int, wall: int) -> None:
        """A view was installed."""
        self.learn(view)
        self.view_id = view.id
        self._row(time, wall, "view", count=len(view),
                  members=[str(member) for member in view.members])

    def close(self, has_left: bool, unacked: int, time: int, wall: int) -> None:
        """The member ends; one that crashes does not come to this."""
        self._row(time, wall, "close", count=unacked, flags=int(has_left))
        self.writer.close()

    # ----------------------------------------------------------------------------------------- rows

    def _row(self, time: int, wall: int, event: str, **columns: Any) -> None:
        self.writer.append(time, wall, event, self.view_id, **columns)

    def _name(self, incarnation: int) -> str | None:
        return self.names.get(incarnation,
                              f"#{incarnation:016x}") if incarnation != EVERYONE else None

    def _position(self, sender: int, seqno: Seqno) -> int:
        return signed((seqno - self.offset_of(sender)) % MODULUS) or 0

    def _own_position(self, seqno: Seqno) -> int:
        return self._position(self.local.incarnation, seqno)


def signed(value: int | None) -> int | None:
    """64 bits as the number that a signed column holds."""
    return value if value is None or value < MODULUS // 2 else value - MODULUS


def remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Put it at the end; what has not changed for longest goes when there is no
    room."""
    table.pop(key, None)
    table[key] = value
    if len(table) > MOST_STREAMS:
        del table[next(iter(table))]
