"""Fetching: how a member gets what it misses of a departed sender.

FETCH asks the holder for it, a member that has everything up to the cut (flush.py), or
the one that has the next part (keeping.py). HELD brings it: the messages as their
sender sent them, with the sender's incarnation in front. What the sender itself has
sent and comes late counts as well. A holder answers as fast as the pace allows, with no
more than was asked for (retransmission.py).

Over a connection an answer is not lost, but under load it waits behind messages, for a
second and more. So all that is missing is asked for at once, and again only if nothing
comes for STALLED scans, and ever more rarely.

If nothing comes of one holder for SLOW scans, another one is asked that has a part,
too. A holder of which nothing comes for WITHHELD scans, and for 12 s at least, does not
have what it has reported, or does not give it. The group would wait for it for ever, so
it is suspected, like one that is silent (membership/detection.py). A datagram that is
lost now and then is not enough for that: over UDP it was asked a hundred times by then.

A member that does not give, for as long, what it has sent before the last view
(Flush.incomplete) is suspected, too: it may have freed it, because of a false ack in
our name.
"""

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ringcast._core import wire
from ringcast._core.marks import Marks
from ringcast._core.stamps import Stamps
from ringcast._core.window import Window
from ringcast.kinds import Kind
from ringcast.protocols.multicast.windows import Departed
from ringcast.protocols.retransmission import (
    MAX_RANGES,
    Pace,
    Ranges,
    Requests,
    between,
    clipped,
    requests,
)
from ringcast.protocols.seqnos import Range, Seqno, ahead, count, earlier, precedes
from ringcast.protocols.stream import Stream
from ringcast.stack import Instant, Packet

if TYPE_CHECKING:
    from ringcast.protocols.multicast.base import Multicast

SLOW = 256              # scans without an answer, until somebody else is asked who has it
WITHHELD = 4096         # scans without an answer: nobody waits so long for one that is only slow
WITHHELD_FOR = 12_000_000_000   # nanoseconds that these are at least, if scans are frequent
PREFIX = wire.HEADER_SIZE + 8           # of HELD: the header, and who sent the messages first


class Fetch(msgspec.Struct, array_like=True):
    origin: int                         # the departed sender
    ranges: Ranges                      # missing of its messages, inclusive, oldest first


FETCH = Kind(20, "fetch", Fetch, about="ranges")        # what I miss of a departed sender
HELD = Kind(21, "held", messages_at=PREFIX, of_another=True, measured="repeat")     # what I hold


class Held(NamedTuple):
    """Messages of another member, to be sent on."""

    ring: Window
    marks: Marks
    stamps: Stamps
    bundle: int


class Fetching:
    """Asks and answers for one layer. `departed` has the streams of departed
    senders, by incarnation."""

    def __init__(self, layer: "Multicast", departed: dict[int, Departed]) -> None:
        self.layer, self.departed = layer, departed
        self.wanted: dict[int, Requests] = {}       # what members asked for in this turn, by origin
        self.paces: dict[Stream, Pace] = {}         # of the streams that were asked for

    def forget(self, origin: int, stream: Stream) -> None:
        """Forget a stream that is not held any more."""
        self.wanted.pop(origin, None)
        self.paces.pop(stream, None)

    def is_needed(self) -> bool:
        """Return whether anything must be fetched."""
        return self.layer.receiving and bool(self.departed) and any(
            gone.is_held and not gone.is_complete for gone in self.departed.values())

    def ask(self, now: Instant) -> None:
        """Ask the holders for what is missing of departed senders. Note for how long
        members do not give what is missing of their own streams."""
        layer = self.layer
        for window in layer.flushing.incomplete().values():
            if window.is_idle:
                window.standing.scan((window.come_up_to, layer.view_id))
        if not self.is_needed():
            return
        for origin, gone in self.departed.items():
            if gone.is_complete:
                continue
            before = gone.asked
            if gone.in_vain and gone.in_vain % SLOW == 0:
                gone.passed_over |= {before[0]}
            holder, end = gone.asked = gone.source()
            gone.in_vain = gone.in_vain + gone.has_room if holder == before[0] else 0
            gaps = self._gaps_of(gone, before) if layer.lossless else gone.gaps.scan(gone.ring)
            missing = [(first, earlier(last, end)) for first, last in gaps
                       if not precedes(end, first)]
            for ranges in requests(missing, layer.config.max_datagram):
                layer.counters.fetches_sent += 1
                layer.counters.num_missing_asked += count(ranges)
                layer.send_control(FETCH, Fetch(origin, ranges), holder, now)

    def _gaps_of(self, gone: Departed, before: tuple[int, Seqno]) -> list[Range]:
        """Return what to ask for now over a connection: all, if somebody else has it
        than when we asked `before`, or if nothing comes."""
        is_known = gone.asked == before
        stalls = gone.stalled.stalls((gone.asked, gone.ring.num_missing))
        return [] if is_known and not stalls else gone.ring.missing(MAX_RANGES, gone.asked[1])

    def withholding(self) -> set[int]:
        """Return the members that have given nothing for long of what they should: what
        they hold, or have sent."""
        enough = max(WITHHELD, WITHHELD_FOR // self.layer.scan_pause)
        holders = {gone.asked[0] for gone in self.departed.values()
                   if gone.in_vain >= enough and gone.is_held and not gone.is_complete}
        return holders | {member for member, window in self.layer.flushing.incomplete().items()
                          if window.standing.scans >= enough}

    def note(self, member: int, origin: int, ranges: list[Range]) -> bool:
        """Note what a member misses, clipped to what we have. Return False if it makes
        no sense."""
        streams = self._streams_of(origin)
        if not streams:
            return True                 # it has settled, and the FETCH came late
        wanted = clipped(ranges, streams[-1].ring.low, end_of(streams[0]))
        if wanted is None:
            return False
        self.wanted.setdefault(origin, Requests()).add(member, wanted)
        return True

    def answer(self, now: Instant) -> None:
        """Answer the FETCHes of a batch together, as far as the pace allows."""
        layer, wanted = self.layer, self.wanted
        self.wanted = {}
        for origin, requested in wanted.items():
            if not (streams := self._streams_of(origin)):
                continue
            sources = [(self._held(stream), end_of(stream),
                        self.paces.setdefault(stream, Pace(layer.config.max_bytes)))
                       for stream in streams]
            for dest, ranges in requested.take(streams[-1].ring.low, now, layer.pause).items():
                prefix = layer.stack.header(HELD, dest) + origin.to_bytes(8, "little")
                for held, end, pace in sources:
                    here = between(ranges, held.ring.low, end)
                    datagrams, messages = pace.pack(held, here, prefix, layer.pause, now)
                    layer.counters.held_sent += messages
                    layer.send_datagrams(HELD, dest, datagrams, now)

    def _streams_of(self, origin: int) -> list[Stream]:
        """Return what we hold of a sender, the last stream first. It may be ourselves:
        one that was cut off may have heard us through somebody who has died."""
        if origin == self.layer.local.incarnation:
            return [self.layer.own]
        return [window.stream for window in self.layer.flushing.held_of(origin)]

    def _held(self, stream: Stream) -> Held:
        """Return what is kept of a stream, delivered or not, with all flags."""
        marks = stream.marks
        if stream.kept_marks is not None and stream.kept_marks.flags:
            marks = Marks()
            marks.flags.update(stream.kept_marks.flags | stream.marks.flags)
        return Held(stream.ring, marks, stream.stamps, self.layer.send_window.bundle)

    def take_held(self, packet: Packet, now: Instant) -> bool:
        """Add the messages of a HELD to the stream of a departed sender. Return False
        if the datagram is damaged."""
        if len(packet.data) < PREFIX:
            return False
        gone = self.departed.get(HELD.origin(packet.data) or 0)
        return gone is None or self._add(gone, packet, PREFIX, now)

    def take_late(self, packet: Packet, now: Instant) -> bool:
        """Add what comes late from a departed sender itself. Return whether the sender
        is one."""
        gone = self.departed.get(packet.sender)
        if gone is None:
            return False
        if not self._add(gone, packet, wire.HEADER_SIZE, now):
            self.layer.counters.num_bad += 1
        return True

    def _add(self, gone: Departed, packet: Packet, prefix: int, now: Instant) -> bool:
        """Add messages up to the cut. Return False if the datagram is damaged."""
        if gone.is_complete:
            return True
        ring = gone.ring
        room = min(ahead(ring.low, gone.cut), ring.capacity)
        arrivals = wire.read_data(packet.data, ring.low, room, prefix)
        if arrivals is None:
            return False
        added = self.layer.add(gone, packet.kind, arrivals, now)
        if added:
            gone.in_vain = 0
        if packet.kind == HELD:
            self.layer.counters.held_received += added
        return True


def end_of(stream: Stream) -> Seqno:
    """Return up to where there are messages of a stream that others may have."""
    return stream.ring.hr if stream.own is None else stream.own.sent
