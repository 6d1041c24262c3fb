"""What outlives a connection, and what comes before it (decisions 16 and 19).

Of a closed connection its receiver remembers the conn-id and what was delivered.
Messages of it that come after that, because an ack was lost, are then told from new
ones: nothing is delivered twice, and the sender gets the ack that it lacks. This is
kept as long as there is room for it, for the most recently closed connections; with
max_closed_connections=0 the texts' own behaviour remains. Of a few, which had gaps or a
large message that was not complete, the whole stream is kept: what of it was taken out
of order, or is acknowledged and not yet whole, is known nowhere else.

Messages that come before their window exists are kept: before the first of a
connection, or before the view that lets their sender in. Few of them, and not for long:
their sender repeats what is not acknowledged.
"""

from collections import OrderedDict

import msgspec

from ringcast.protocols.seqnos import Seqno
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3.control import ConnId
from ringcast.stack import Instant, Packet

MOST_EARLY = 16                         # datagrams kept of one member ...
MOST_EARLY_OF_ALL = 256                 # ... and of all
MOST_STREAMS = 16                       # closed connections of which the whole stream is kept


class Closed(msgspec.Struct):
    """A connection that was closed, as its receiver remembers it."""

    conn_id: ConnId
    delivered: Seqno                    # the highest
    by_sender: bool                     # it sent CLOSE: nothing of it that is new can come
    stream: Stream | None               # when there is more to it than what was delivered


class ClosedConnections:
    """The latest closed connection of each sender; of `most` senders at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.entries: OrderedDict[int, Closed] = OrderedDict()
        self.streams: OrderedDict[int, Closed] = OrderedDict()      # those that have a stream

    def __len__(self) -> int:
        return len(self.entries)

    def remember(self, sender: int, closed: Closed) -> None:
        self.forget(sender)
        self.entries[sender] = closed
        if closed.stream is not None:
            self.streams[sender] = closed
        while len(self.entries) > self.most:
            self.forget(next(iter(self.entries)))
        while len(self.streams) > MOST_STREAMS:
            self.streams.popitem(last=False)[1].stream = None

    def get(self, sender: int) -> Closed | None:
        return self.entries.get(sender)

    def forget(self, sender: int) -> None:
        self.entries.pop(sender, None)
        self.streams.pop(sender, None)


class EarlyPackets:
    """Packets without a window, by their sender, in the order in which they came."""

    def __init__(self) -> None:
        self.packets: dict[int, list[tuple[Instant, Packet]]] = {}
        self.size = 0

    def keep(self, packet: Packet, now: Instant) -> bool:
        """Whether there was room for it."""
        if self.size >= MOST_EARLY_OF_ALL or len(self.packets.get(packet.sender, ())) >= MOST_EARLY:
            return False
        self.packets.setdefault(packet.sender, []).append((now, packet.copy()))
        self.size += 1
        return True

    def take(self, sender: int) -> list[Packet]:
        """What is there of this sender, for good."""
        found = self.packets.pop(sender, [])
        self.size -= len(found)
        return [packet for _, packet in found]

    def expire(self, before: Instant) -> int:
        """Drop what came before that; how many packets those were."""
        dropped = self.size
        for sender in list(self.packets):
            self.packets[sender] = [(since, packet) for since, packet in self.packets[sender]
                                    if since >= before]
            if not self.packets[sender]:
                del self.packets[sender]
        self.size = sum(map(len, self.packets.values()))
        return dropped - self.size
