"""The recorder turns what a member does into rows of its trace.

It stands beside the stack and reads what comes out of it: datagrams, deliveries, views,
the LOW of the send window. It knows the wire and not the layers' reasons, so that an
audit of its rows judges the layers. It counts what it has seen of each stream; no
protocol depends on that.
"""

from collections.abc import Callable
from typing import Any

from ringcast._core import wire
from ringcast._core.batch import Batch, Skipped
from ringcast._core.wire_trace import list_runs, runs_of
from ringcast.address import EVERYONE, Address
from ringcast.digest import Digest
from ringcast.flags import FRAGMENT, STATE, Flag
from ringcast.protocols.frag import HEAD
from ringcast.protocols.latest import Latest
from ringcast.protocols.multicast import base as multicast, mcast, stable
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.seqnos import MODULUS, Seqno
from ringcast.protocols.unicast3 import Unicast3, control
from ringcast.protocols.unicast3.control import PREFIX
from ringcast.protocols.unreliable import STAMP, UNRELIABLE
from ringcast.stack import Effects, Installed, Packet
from ringcast.trace import PART, SENT, signed
from ringcast.trace.writer import Writer
from ringcast.view import View

KIND = 3                                # the offset of the kind in a datagram
SAMPLE = 10_000_000                     # nanoseconds between two samples of the send window
MOST_STREAMS = 4096                     # to single members, of which something is remembered
UNORDERED = int(Flag.OOB | Flag.NO_RELIABILITY)

# Incarnations of sender and receiver (0: everybody), conn-id.
StreamKey = tuple[int, int, int | None]


class Recorder:
    """Records one member, whose layers are `multicast` and `unicast`, with `writer`.
    `offset_of(incarnation)` is the seqno before the first one of a member's streams.

    `time` and `wall` of all calls are the columns of these names.

    Threads: as for the stack; but any thread may call `record_blocked`.
    """

    def __init__(self, writer: Writer, local: Address, multicast: Multicast, unicast: Unicast3, *,
                 offset_of: Callable[[int], Seqno] = lambda incarnation: 0) -> None:
        self.writer = writer
        self.local = local
        self.multicast, self.unicast = multicast, unicast
        self.offset_of = offset_of
        self.view_id = 0                                # of the view that the application has ...
        self.installed_id = 0                           # ... and of the one that the layers have
        self.names: Latest[int, str] = Latest(MOST_STREAMS)
        self.names.remember(local.incarnation, str(local))
        self.low = multicast.send_window.ring.low
        self.next_sample = 0
        self.num_delivered: Latest[StreamKey, int] = Latest(MOST_STREAMS)  # messages, in order
        self.acked: Latest[StreamKey, int] = Latest(MOST_STREAMS)  # position
        # Highest position sent on a connection.
        self.sent_to: Latest[StreamKey, int] = Latest(MOST_STREAMS)
        # Position of the first fragment of a message, by the number of the message.
        self.begun: Latest[tuple[StreamKey, int], int] = Latest(MOST_STREAMS)
        self.has_refused = False

    def record_begin(self, digest: Digest, time: int, wall: int) -> None:
        """Record whether this member observes, and what it has from an earlier
        incarnation."""
        if self.multicast.observing is not None:
            self._row(time, wall, "observe")
        for sender, seqno in digest.items():
            self._row(time, wall, "resume", sender=str(sender),
                      last=self._position(sender.incarnation, seqno))

    # ---------------------------------------------------------------------------------------- turns

    def record_turn(self, effects: Effects, time: int, wall: int) -> None:
        """Record the effects of a turn. What is held back until a state is there was
        delivered when it came."""
        views, deliveries = effects.came or (effects.views, effects.deliveries)
        for view in views:
            self.learn_names(view)
        for installed in effects.installed:
            self.record_installed(installed, time, wall)
        for dest, datagram in effects.packets:
            self.record_datagram(dest, datagram, time, wall)
        for view in views:
            self.record_view(view, time, wall)
        for batch in deliveries:
            if not batch.bits & FRAGMENT:       # the rest of a message, of which more is elsewhere
                self.record_delivery(batch, time, wall)
        self.record_window(time, wall)

    def learn_names(self, view: View) -> None:
        """Remember the names of members, because datagrams have only incarnations."""
        for member in view.members:
            self.names.remember(member.incarnation, str(member))

    def record_window(self, time: int, wall: int) -> None:
        """Record what was purged from the send window, and from time to time how full
        it is."""
        ring = self.multicast.send_window.ring
        if ring.low != self.low:
            self.record_purge(ring.low, time, wall)
        if time >= self.next_sample and (ring.hr != ring.low or self.next_sample):
            self.next_sample = time + SAMPLE
            count, position = (ring.hr - ring.low) % MODULUS, self._own_position
            self._row(time, wall, "window", sender=str(self.local), first=position(ring.low) + 1,
                      last=position(ring.hr), count=count, ord=position(ring.hd),
                      nbytes=ring.nbytes,
                      fill=max(count / ring.capacity, ring.nbytes / ring.max_bytes))

    # -------------------------------------------------------------------------------------- sending

    def record_datagram(self, dest: int, datagram: bytes, time: int, wall: int) -> None:
        """Record a datagram that was sent; `dest` is an incarnation or EVERYONE."""
        number = datagram[KIND]
        record = self._recorders.get(number)
        if record is not None:
            record(self, Packet(number, self.local.incarnation, dest, datagram), time, wall)
        elif (kind := self.multicast.stack.kind(number)).traced:
            self._row(time, wall, SENT + kind.name, peer=self._name(dest),
                      conn_id=signed_or_none(kind.conn_id(datagram)), nbytes=len(datagram))

    def _record_multicast(self, packet: Packet, time: int, wall: int) -> None:
        event = "send" if packet.kind == multicast.DATA else "retransmit"
        key = (self.local.incarnation, EVERYONE, None)
        for run in list_runs(packet.data, wire.HEADER_SIZE, self.multicast.send_window.marks):
            self._record_run(event, key, self._name(packet.dest), packet.data, run, time, wall)

    def _record_unicast(self, packet: Packet, time: int, wall: int) -> None:
        """Record messages of a connection. A message is sent for the first time if it
        is above all that were sent before."""
        key = (self.local.incarnation, packet.dest,
               int.from_bytes(packet.data[wire.HEADER_SIZE:PREFIX], "little"))
        for run in list_runs(packet.data, PREFIX):
            last = self._own_position(run[0]) + run[1] - 1
            before = self.sent_to.get(key)
            is_new = before is None or before < last
            self._record_run("send" if is_new else "retransmit", key, self._name(packet.dest),
                           packet.data, run, time, wall)
            if is_new:
                self.sent_to.remember(key, last)

    def _record_run(self, event: str, key: StreamKey, peer: str | None, datagram: bytes,
                    run: tuple[int, int, int, int, int, int], time: int, wall: int) -> None:
        """Record messages that stand together in a datagram, or one fragment."""
        seqno, count, flags, nbytes, sent_at, at = run
        first = self._own_position(seqno)
        begins = None
        if flags & FRAGMENT and nbytes >= HEAD.size:
            number, index, parts = HEAD.unpack_from(datagram, at)
            nbytes -= HEAD.size
            if index == 0 and event == "send":
                self.begun.remember((key, number), first)
            begins = self.begun.get((key, number))
            if index < parts - 1:
                flags, begins = flags | PART, None
        if flags & STATE:                               # no application is given it as a message
            flags |= PART
        self._row(time, wall, event, sender=str(self.local), peer=peer,
                  conn_id=signed_or_none(key[2]), first=first, last=first + count - 1, count=count,
                  ord=begins, flags=flags, nbytes=nbytes, sent_at=sent_at)

    def _record_unreliable(self, packet: Packet, time: int, wall: int) -> None:
        self._row(time, wall, "send", sender=str(self.local), peer=self._name(packet.dest), count=1,
                  flags=int(Flag.NO_RELIABILITY),
                  nbytes=len(packet.data) - wire.HEADER_SIZE - STAMP.size,
                  sent_at=STAMP.unpack_from(packet.data, wire.HEADER_SIZE)[0])

    def record_installed(self, installed: Installed, time: int, wall: int) -> None:
        """Record that the layers installed a view; where the own stream begins for
        members that are new to this one, and where those of others begin here."""
        view, new, begun = installed
        self.learn_names(view)
        for sender in begun:
            self.names.remember(sender.incarnation, str(sender))
        self.installed_id = view.id
        self._row(time, wall, "install", view_id=view.id, count=len(view),
                  flags=int(view.primary),
                  members=[str(member) for member in view.members])
        starts = [(self.local, member, seqno) for member, seqno in new.items()]
        starts += [(sender, self.local, seqno) for sender, seqno in begun.items()]
        for sender, receiver, seqno in starts:
            self._row(time, wall, "start", view_id=view.id, sender=str(sender),
                      peer=str(receiver), first=self._position(sender.incarnation, seqno) + 1)

    def record_purge(self, low: Seqno, time: int, wall: int) -> None:
        """Record that LOW of the send window has risen."""
        before, self.low = self._own_position(self.low), low
        last, own = self._own_position(low), None
        if self.multicast.receiving:
            own = self.num_delivered.get((self.local.incarnation, EVERYONE, None), 0)
        self._row(time, wall, "purge", view_id=self.installed_id,
                  sender=str(self.local), first=before + 1, last=last, count=last - before, ord=own)

    def record_blocked(self, duration: int, dest: Address | None, time: int, wall: int) -> None:
        """Record that a send waited for room for `duration` nanoseconds."""
        self._row(time, wall, "blocked", sender=str(self.local),
                  peer=None if dest is None else str(dest), duration=duration)

    # ------------------------------------------------------------------------------------ receiving

    def record_delivery(self, batch: Batch, time: int, wall: int) -> None:
        """Record a delivered batch: a row for each run of messages that left their
        sender together."""
        sender = batch.sender.incarnation
        if isinstance(batch, Skipped):
            self._row(time, wall, "skip", sender=str(batch.sender), count=batch.count,
                      first=self._position(sender, batch.first),
                      last=self._position(sender, batch.last))
            return
        peer = None if batch.dest is None else str(batch.dest)
        if batch.bits & Flag.NO_RELIABILITY:
            for count, nbytes, sent_at in runs_of(batch):
                self._row(time, wall, "deliver", sender=str(batch.sender), peer=peer, count=count,
                          flags=batch.bits, nbytes=nbytes, sent_at=sent_at)
            return
        conn_id = None if batch.dest is None else self._connection_of(batch)
        key = (sender, EVERYONE if batch.dest is None else batch.dest.incarnation, conn_id)
        first = self._position(sender, batch.first)
        ord = None if batch.bits & UNORDERED else self.num_delivered.get(key, 0)
        for count, nbytes, sent_at in runs_of(batch):
            self._row(time, wall, "deliver", sender=str(batch.sender), peer=peer,
                      conn_id=signed_or_none(conn_id), first=first, last=first + count - 1,
                      count=count, ord=ord, flags=batch.bits, nbytes=nbytes, sent_at=sent_at)
            first += count
            ord = None if ord is None else ord + count
        if ord is not None:
            self.num_delivered.remember(key, ord)

    def _connection_of(self, batch: Batch) -> int | None:
        """Return the conn-id of the connection over which a batch came."""
        if batch.stream is not self.unicast.loopback.stream:
            conn_id: int | None = batch.stream.conn_id
            return conn_id
        sender = self.unicast.senders.get(self.local.incarnation)
        return None if sender is None else sender.conn_id

    def _record_mcast_ack(self, packet: Packet, time: int, wall: int) -> None:
        ack = mcast.ACK.decode(packet.data)
        if ack is not None:
            self._record_finished(ack.finished, ack.budget > 0, len(packet.data), time, wall)

    def _record_unicast_ack(self, packet: Packet, time: int, wall: int) -> None:
        ack = control.ACK.decode(packet.data)
        if ack is not None and ack.seqno is not None:
            self._record_ack((packet.dest, self.local.incarnation, ack.conn_id), ack.seqno,
                             len(packet.data), time, wall)

    def _record_ack(self, key: StreamKey, seqno: Seqno, nbytes: int, time: int, wall: int) -> None:
        """Record that this member said that it has finished a stream up to a seqno."""
        sender, dest, conn_id = key
        last = self._position(sender, seqno)
        before = self.acked.get(key, last)
        self.acked.remember(key, last)
        self._row(time, wall, "ack", sender=self._name(sender), peer=self._me_unless_all(dest),
                  conn_id=signed_or_none(conn_id), first=before + 1, last=last,
                  count=last - before, ord=self.num_delivered.get(key, 0), nbytes=nbytes)

    def _me_unless_all(self, dest: int) -> str | None:
        """Return the column `peer` of what is said about a stream to this member or to
        everybody."""
        return None if dest == EVERYONE else str(self.local)

    def _record_vote(self, packet: Packet, time: int, wall: int) -> None:
        vote = stable.VOTE.decode(packet.data)
        if vote is not None:
            self._record_voted(vote.digest, vote.receiving, len(packet.data), time, wall)

    def _record_stability(self, packet: Packet, time: int, wall: int) -> None:
        """Record a STABILITY report of the coordinator. It sends its own vote to
        nobody, but what it reports of all members holds for itself, unless it
        observes."""
        report = stable.STABILITY.decode(packet.data)
        if report is not None:
            digest = report.digest if self.multicast.observing is None else {}
            self._record_voted(digest, self.multicast.receiving, len(packet.data), time, wall)

    def _record_voted(self, digest: stable.Digest, receiving: bool, nbytes: int, time: int,
                      wall: int) -> None:
        self._record_finished({sender: seqno for sender, (seqno, _) in digest.items()}, receiving,
                              nbytes, time, wall)

    def _record_finished(self, finished: dict[int, Seqno], receiving: bool, nbytes: int, time: int,
                         wall: int) -> None:
        """Record an ack for each stream of which more is finished; the datagram's bytes
        count once."""
        if not receiving:
            self._record_refusal(time, wall)
            return
        for sender, seqno in finished.items():
            if self.acked.get((sender, EVERYONE, None)) != self._position(sender, seqno):
                self._record_ack((sender, EVERYONE, None), seqno, nbytes, time, wall)
                nbytes = 0
        if nbytes:
            self._row(time, wall, "ack", nbytes=nbytes)

    def _record_refusal(self, time: int, wall: int) -> None:
        if not self.has_refused:
            self.has_refused = True
            self._row(time, wall, "refuse")

    def _record_multicast_request(self, packet: Packet, time: int, wall: int) -> None:
        request = multicast.XMIT_REQ.decode(packet.data)
        if request is not None:
            self._record_request((packet.dest, EVERYONE, None), request.ranges, len(packet.data),
                                 time, wall)

    def _record_unicast_request(self, packet: Packet, time: int, wall: int) -> None:
        request = control.XMIT_REQ.decode(packet.data)
        if request is not None:
            self._record_request((packet.dest, self.local.incarnation, request.conn_id),
                                 request.ranges, len(packet.data), time, wall)

    def _record_request(self, key: StreamKey, ranges: list[tuple[Seqno, Seqno]], nbytes: int,
                        time: int, wall: int) -> None:
        sender, dest, conn_id = key
        for low, high in ranges:
            first, last = self._position(sender, low), self._position(sender, high)
            self._row(time, wall, "xmit_req", sender=self._name(sender),
                      peer=self._me_unless_all(dest), conn_id=signed_or_none(conn_id),
                      first=first, last=last, count=last - first + 1, nbytes=nbytes)
            nbytes = 0

    _recorders: dict[int, Callable[["Recorder", Packet, int, int], None]] = {
        multicast.DATA: _record_multicast, multicast.REPEAT: _record_multicast,
        control.MESSAGE: _record_unicast, control.FIRST: _record_unicast,
        UNRELIABLE: _record_unreliable,
        mcast.ACK: _record_mcast_ack, control.ACK: _record_unicast_ack,
        stable.VOTE: _record_vote, stable.STABILITY: _record_stability,
        multicast.XMIT_REQ: _record_multicast_request, control.XMIT_REQ: _record_unicast_request}

    # ---------------------------------------------------------------------------------------- views

    def record_view(self, view: View, time: int, wall: int) -> None:
        """Record that the application was shown a view, and before it where the streams
        of those that have left end for it."""
        self.learn_names(view)
        for member, seqno in view.departed.items():
            self._row(time, wall, "depart", sender=str(member),
                      last=self._position(member.incarnation, seqno))
        self.view_id = view.id
        owes_all = self.multicast.receiving and self.multicast.observing is None
        self._row(time, wall, "view", count=len(view), flags=int(owes_all),
                  members=[str(member) for member in view.members])

    def close(self, has_left: bool, unacked: int, time: int, wall: int) -> None:
        """Record that the member closes, and end the trace. A member that crashes does
        not."""
        self._row(time, wall, "close", count=unacked, flags=int(has_left))
        self.writer.close()

    # ----------------------------------------------------------------------------------------- rows

    def _row(self, time: int, wall: int, event: str, **columns: Any) -> None:
        view_id = columns.pop("view_id", self.view_id)
        self.writer.append(time, wall, event, view_id, **columns)

    def _name(self, incarnation: int) -> str | None:
        if incarnation == EVERYONE:
            return None
        return self.names.get(incarnation, f"#{incarnation:016x}")

    def _position(self, sender: int, seqno: Seqno) -> int:
        return signed((seqno - self.offset_of(sender)) % MODULUS)

    def _own_position(self, seqno: Seqno) -> int:
        return self._position(self.local.incarnation, seqno)


def signed_or_none(value: int | None) -> int | None:
    """Return a number of 64 bits as a signed column holds it, and None as None."""
    return None if value is None else signed(value)
