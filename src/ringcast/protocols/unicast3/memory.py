"""What a receiver remembers of closed connections, and messages that come too early
(decisions 16 and 19).

Of a closed connection the receiver remembers the conn-id and the highest delivered
seqno (a tombstone). If messages of it come again, because the last ack was lost, they
are not taken for new ones: nothing is delivered twice, and the sender gets its ack. The
most recently closed connections are remembered, max_closed_connections of them; with 0
the texts' own behaviour remains. If a connection had gaps, or a large message that was
not complete, its whole stream is kept: which messages came behind the gap is known
nowhere else. So it is if the application has messages of it that are not finished,
which must not be acknowledged. The oldest of these are given up when all together take
too many bytes: their connections go on when the application has finished what it has.
Only streams of members that left are kept here, and may be given up: a window whose
sender is in the view, and that is not idle, stays open (lifecycle.py). If a given up
stream had a large message whose begin was acknowledged, its sender has no begin to send
again. The rest must not be acknowledged: the sender is refused, closes the connection,
and reports the rest.

Messages may come before the first one of their connection, or before the view that has
their sender. They are kept, but few of them and not for long: their sender repeats what
is not acknowledged.
"""

from collections import OrderedDict

import msgspec

from ringcast.protocols.seqnos import Seqno, later
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3.control import ConnId
from ringcast.stack import Instant, Packet

MOST_EARLY = 16                         # datagrams kept of one member ...
MOST_EARLY_OF_ALL = 256                 # ... and of all
MOST_WINDOWS = 16                       # times max_bytes that the streams kept of them may take


class Closed(msgspec.Struct):
    """What is remembered of a closed connection."""

    conn_id: ConnId
    delivered: Seqno                    # the highest
    by_sender: bool = False             # its sender has closed it too: nothing new can come
    stream: Stream | None = None        # if there is more to it than what was finished
    is_given_up: bool = False           # nothing of the stream but its place is kept
    is_torn: bool = False               # and the begin of a message was acknowledged

    @property
    def finished(self) -> Seqno:
        """Return up to where the application has finished everything."""
        return self.delivered if self.stream is None else self.stream.finished

    @property
    def is_held(self) -> bool:
        """Return whether the connection may not go on: never if it is torn, and not
        before the application has finished what it has."""
        is_unfinished = self.stream is not None and self.stream.outstanding > 0
        return self.is_torn or (self.is_given_up and is_unfinished)

    @property
    def is_resumable(self) -> bool:
        """Return whether its stream is kept, and new messages of it may come."""
        return self.stream_for(self.conn_id) is not None and self.is_open_for(self.conn_id)

    def is_open_for(self, conn_id: ConnId) -> bool:
        """Return whether this is the connection, and new messages of it may come."""
        return self.conn_id == conn_id and not self.by_sender

    def stream_for(self, conn_id: ConnId) -> Stream | None:
        """Return the stream with which a connection goes on; None: with a new one."""
        return self.stream if self.conn_id == conn_id and not self.is_given_up else None

    def give_up(self) -> None:
        """Keep only the place of the stream, if there is one: behind the last whole
        message that the application was given, or what was acknowledged."""
        if self.stream is not None and not self.is_given_up:
            self.is_given_up, self.is_torn = True, self.stream.is_torn
            self.delivered = later(self.stream.finished, self.stream.whole)
            self.stream.retire()

    @property
    def nbytes(self) -> int:
        """Return how many bytes its stream keeps."""
        if self.stream is None:
            return 0
        reassembly = self.stream.reassembly
        parts = 0 if reassembly is None else reassembly.ordered.size + reassembly.oob.size
        nbytes: int = self.stream.ring.nbytes
        return nbytes + parts


class ClosedConnections:
    """The latest closed connection of each sender, of `most` senders at most. Their
    streams take up to `max_bytes` together."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self.most, self.max_bytes = most, max_bytes
        self.entries: OrderedDict[int, Closed] = OrderedDict()
        self.streams: OrderedDict[int, Closed] = OrderedDict()      # those that have a stream

    def __len__(self) -> int:
        return len(self.entries)

    def remember(self, sender: int, closed: Closed) -> None:
        self.forget(sender)
        self.entries[sender] = closed
        if closed.stream is not None:
            self.streams[sender] = closed
            while sum(each.nbytes for each in self.streams.values()) > self.max_bytes:
                self.streams.popitem(last=False)[1].give_up()
        while len(self.entries) > self.most:
            oldest = next(iter(self.entries))
            self.entries[oldest].give_up()
            self.forget(oldest)

    def get(self, sender: int) -> Closed | None:
        return self.entries.get(sender)

    def forget(self, sender: int) -> None:
        self.entries.pop(sender, None)
        self.streams.pop(sender, None)


class EarlyPackets:
    """Packets that have no window yet, by their sender, in the order in which they
    came."""

    def __init__(self) -> None:
        self.packets: dict[int, list[tuple[Instant, Packet]]] = {}
        self.size = 0

    def keep(self, packet: Packet, now: Instant) -> bool:
        """Keep a packet; return False if there is no room for it."""
        if self.size >= MOST_EARLY_OF_ALL or len(self.packets.get(packet.sender, ())) >= MOST_EARLY:
            return False
        self.packets.setdefault(packet.sender, []).append((now, packet.copy()))
        self.size += 1
        return True

    def take(self, sender: int) -> list[Packet]:
        """Remove and return what is kept of this sender."""
        found = self.packets.pop(sender, [])
        self.size -= len(found)
        return [packet for _, packet in found]

    def expire(self, before: Instant) -> int:
        """Drop what came before that; return how many packets those were."""
        dropped = self.size
        for sender in list(self.packets):
            self.packets[sender] = [(since, packet) for since, packet in self.packets[sender]
                                    if since >= before]
            if not self.packets[sender]:
                del self.packets[sender]
        self.size = sum(map(len, self.packets.values()))
        return dropped - self.size
