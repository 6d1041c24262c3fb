"""How a datagram gets into its window when nothing may be dropped.

Over a lossless transport nobody repeats what a receiver drops. So a datagram that finds
no room is held, and nothing more is read of its sender until it has found some; the
sender's connection fills up, and the sender waits: back-pressure. A window without
retransmission holds any number of bytes as far as its structure goes; the limits are
here, because a datagram must find room as a whole.

One case must not be held: when the room comes only with a message that is missing, then
its sender must be read on. That datagram is dropped, and a RESYNC has it sent again.

In a group that agrees on its views nothing is held: the room may come only with the
view, and the view behind the datagram. There all members have the same limits, so a
sender never sends what has no room (retention.py). If one does, that is dropped.
"""

from collections import deque
from typing import TYPE_CHECKING

from ringcast._core import wire
from ringcast.protocols.multicast.windows import ReceiveWindow
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.stack import Instant, Packet

if TYPE_CHECKING:
    from ringcast.protocols.multicast.nakack2 import Nakack2

ROOM = 2                                # times max_bytes that a window holds as a rule
MOST_ROOM = 8                           # and when only what its sender repeats brings it on


class Intake:
    """Puts datagrams into their windows. `held` are those without room, by sender."""

    def __init__(self, layer: "Nakack2") -> None:
        self.layer = layer
        self.held: dict[int, deque[Packet]] = {}

    def take(self, window: ReceiveWindow, packet: Packet, now: Instant) -> None:
        """Add a datagram to its window; or hold it, or drop it and ask for it again."""
        if packet.sender in self.held:
            self._hold(packet)
        elif not self._place(window, packet, now):
            if self.layer.flushes or self._is_blocked_by_gap(window, packet):
                self.layer.resyncs.drop(1, window, now)
            else:
                self._hold(packet)

    def release(self, now: Instant) -> None:
        """Add what is held, in its order, as far as there is room by now."""
        counters = self.layer.counters
        duplicates = counters.num_duplicates
        for sender in list(self.held):
            packets, window = self.held[sender], self.layer.windows[sender]
            self.layer.stack.effects.arrived = True
            while packets and self._place(window, packets[0], now):
                packets.popleft()
            if packets and self._is_blocked_by_gap(window, packets[0]):
                self.layer.resyncs.drop(len(packets), window, now)
                packets.clear()
            if not packets:
                self.forget(sender)
        counters.num_duplicates = duplicates        # a part of it had found room before

    def forget(self, sender: int) -> None:
        """Hold nothing of a sender any more, and read it again."""
        if self.held.pop(sender, None) is not None:
            self.layer.stack.effects.held = set(self.held)

    def _hold(self, packet: Packet) -> None:
        """Keep a datagram, and read no more of its sender."""
        if packet.sender not in self.held:
            self.held[packet.sender] = deque()
            self.layer.stack.effects.held = set(self.held)
        self.layer.counters.num_held += 1
        self.held[packet.sender].append(packet.copy())

    def _place(self, window: ReceiveWindow, packet: Packet, now: Instant) -> bool:
        """Add a datagram to its window. Return whether all of it found room."""
        layer = self.layer
        if layer.lossless and self._is_over_limit(window, packet):
            self._discard(window)
            if not self._has_room(window, packet):
                return False
        arrivals = wire.read_data(packet.data, window.ring.low, window.ring.capacity)
        if arrivals is None:
            layer.counters.num_bad += 1
            return True
        if layer.lossless and arrivals.beyond:
            added = window.stream.add(arrivals, layer.oob.batches, layer.flushing.view_id, now,
                                      window.started and not layer.oob.is_flooded)
            if not self._discard(window) or not self._place(window, packet, now):
                return False
            layer.counters.num_duplicates -= added      # it was read twice, not received twice
            return True
        layer.add(window, packet, arrivals, now)
        return True

    def _discard(self, window: ReceiveWindow) -> int:
        """Free what is finished and was kept for others: it must not take the room of
        what comes. Return how many messages that were. (In a group that agrees on its
        views it has room of its own: see retention.py.)"""
        if self.layer.flushes:
            return 0
        return window.ring.stable(window.stream.finished)

    def _is_over_limit(self, window: ReceiveWindow, packet: Packet) -> bool:
        """Return whether a datagram has too many bytes for what the window holds as a
        rule."""
        nbytes = window.ring.nbytes
        return nbytes > 0 and nbytes + len(packet.data) > ROOM * self.layer.config.max_bytes

    def _has_room(self, window: ReceiveWindow, packet: Packet) -> bool:
        """Return whether a window takes a datagram. It takes more than as a rule while
        the application has nothing to do, because then only what its sender repeats
        brings it on; and it takes what comes next in order, whatever its size."""
        if not self._is_over_limit(window, packet):
            return True
        if window.stream.outstanding or window.is_deliverable:
            return False
        ring, first = window.ring, wire.first_seqno(packet.data)
        is_next = first is not None and not precedes((ring.hd + 1) % MODULUS, first)
        return is_next or (
            ring.nbytes + len(packet.data) <= MOST_ROOM * self.layer.config.max_bytes)

    def _is_blocked_by_gap(self, window: ReceiveWindow, packet: Packet) -> bool:
        """Return whether a datagram finds no room before a missing message comes, so
        that its sender must be read on."""
        if window.stream.outstanding or window.is_deliverable:
            return False
        ring, first = window.ring, wire.first_seqno(packet.data)
        is_behind_gap = first is not None and precedes((ring.hr + 1) % MODULUS, first)
        return ring.num_missing > 0 or is_behind_gap
