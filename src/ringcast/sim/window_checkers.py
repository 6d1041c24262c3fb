"""Checks the windows and tables of a member, after each of its turns."""

from typing import TYPE_CHECKING

from ringcast.address import EVERYONE
from ringcast.config import MAX_DATAGRAM, Config
from ringcast.protocols.frag import SHARES
from ringcast.protocols.multicast.base import HIGHEST, XMIT_REQ
from ringcast.protocols.multicast.lossless import MOST_ROOM
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.multicast.observing import OBSERVERS_ROOM
from ringcast.protocols.multicast.retention import ROOM
from ringcast.protocols.seqnos import MODULUS, Seqno, precedes
from ringcast.protocols.stream import Stream

if TYPE_CHECKING:
    from ringcast._core.window import Window
    from ringcast.sim.checkers import Checkers
    from ringcast.sim.member import Member


def most_sent(config: Config) -> int:
    """Return how many bytes a send window holds at most. What receivers have behind a
    gap may exceed max_bytes. So may one message, else it could never be sent; and a
    large one that goes in whole."""
    return config.max_bytes * 3 // 2 + max(MAX_DATAGRAM, config.max_bytes // SHARES)


class WindowCheckers:
    """The checks, and what they remember."""

    def __init__(self, checkers: "Checkers") -> None:
        self.cluster, self.checkers = checkers.cluster, checkers
        self.violated = checkers.violated
        self.lows: dict[int, Seqno] = {}                # LOW of each incarnation's send window
        self._kept_from: dict[Stream, Seqno] = {}       # LOW of windows that keep what is finished

    def after_turn(self, member: "Member") -> None:
        """Check the windows for messages to everybody, and the tables beside them."""
        layer = member.multicast
        ring = layer.send_window.ring
        self._check_windows(member)
        if len(layer.windows) >= max(1, len(layer.members)) or layer.requests:
            self.violated("memory", f"{member.name} has {len(layer.windows)} windows and "
                                    f"{len(layer.requests)} open requests in a view of "
                                    f"{len(layer.members)}")
        if isinstance(layer, Nakack2):
            self._check_queue(member, layer)
            self._check_kept(member, layer)
        low, before = ring.low, self.lows.get(member.incarnation, member.offset)
        if low != before:
            if precedes(low, before):
                self.violated("window", f"{member.name} moved LOW of its own messages back from "
                                        f"{before} to {low}")
            self.lows[member.incarnation] = low
            self.checkers.streams.check_purge(member, low)

    def _check_windows(self, member: "Member") -> None:
        """Check the pointers and the bytes of all windows for messages to everybody."""
        config, layer = member.config, member.multicast
        most = most_sent(config)
        # What comes next may exceed it, too. Over TCP the window itself has no bound.
        # An observer's may hold twice as much.
        room = MOST_ROOM * (1 if layer.observing is None else OBSERVERS_ROOM // ROOM)
        most_received = max(room * config.max_bytes, MAX_DATAGRAM)
        self.check_window(member, "a window", layer.send_window.ring, most)
        most_received += MAX_DATAGRAM
        for window in layer.windows.values():           # of 10 members, after each of their turns
            stream = window.stream
            ring, finished = stream.ring, stream.finished
            low = ring.low
            if low == finished == ring.hd == ring.hr and not ring.nbytes:
                continue                                # it is at rest
            if finished != low and precedes(finished, low):
                self.violated("window", f"{member.name} gave up what it has of {stream.sender} up "
                                        f"to {low}; its application has finished what is up "
                                        f"to {finished}")
            most = ring.max_bytes + MAX_DATAGRAM
            self.check_window(member, "a window", ring,
                              most if most < most_received else most_received)

    def check_window(self, member: "Member", what: str, ring: "Window", most: int) -> None:
        """Check that the pointers are in order, within the capacity, and that there are
        at most so many bytes."""
        low = ring.low
        if ((ring.hd - low) % MODULUS <= (ring.hr - low) % MODULUS <= ring.capacity
                and ring.nbytes <= most):
            return
        self.violated("window", f"{member.name} has {what} with LOW={low} HD={ring.hd} "
                                f"HR={ring.hr} of {ring.capacity} and {ring.nbytes} bytes of at "
                                f"most {most}")

    def _check_queue(self, member: "Member", layer: Nakack2) -> None:
        """Check that the queue of messages without a window is bounded: always in
        bytes, and in messages if they can be asked for again."""
        queue = layer.queue
        if queue.num_bytes > queue.max_bytes or (queue.bound and len(queue) > queue.bound):
            self.violated("memory", f"{member.name} has {len(queue)} messages and "
                                    f"{queue.num_bytes} bytes in its become_server_queue, which is "
                                    f"bounded at {queue.bound} and {queue.max_bytes}")
        if layer.retransmits and queue.bound != member.config.become_server_queue_size or not (
                layer.retransmits or layer.lossless):
            self.violated("mode", f"{member.name} has xmit_interval={layer.interval} and a queue "
                                  f"bounded at {queue.bound}")

    def _check_kept(self, member: "Member", layer: Nakack2) -> None:
        """Check that a receiver with discard_delivered_msgs=False gives up only what
        all members of its view have finished. Over a lossless transport it may make
        room earlier."""
        if member.config.discard_delivered_msgs or layer.lossless:
            return
        for window in layer.windows.values():
            stream = window.stream
            if self._kept_from.get(stream, window.offset) != window.ring.low:
                self._kept_from[stream] = window.ring.low
                self.checkers.streams.check_purge(
                    self.cluster.incarnations[stream.sender.incarnation], window.ring.low, member)

    def sent(self, member: "Member", datagram: bytes) -> None:
        """Check that a member without retransmission asks for nothing and announces no
        last seqno to all. To one that asks it says it (resync.py)."""
        layer = member.multicast
        if isinstance(layer, Nakack2) and not layer.retransmits:
            header = member.stack.open(datagram)
            if header is None or header.kind == XMIT_REQ or (
                    header.kind == HIGHEST and header.dest == EVERYONE):
                self.violated("mode", f"{member.name} does not retransmit, and sent a datagram of "
                                      f"kind {header and header.kind}")
