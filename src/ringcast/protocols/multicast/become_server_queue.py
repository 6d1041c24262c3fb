"""become_server_queue: messages that come before their window exists
(NAKACK2-no-retransmission.txt).

A joiner is sent messages before it has its first view, and any member may install a
view later than others. What comes meanwhile waits here. With retransmission the queue
is bounded in messages, and the oldest are dropped: they will be asked for. Without
retransmission the queue is bounded only in bytes, far above what a sender may have on
the way; when that is passed, everything of one sender goes. It is asked for it when its
window opens, because then each sender is (decision 20: no silent gap).
"""

from collections import deque

from ringcast.stack import Packet

UNBOUNDED = 0


class BecomeServerQueue:
    """The datagrams of all senders, oldest first. `bound` is in messages (UNBOUNDED:
    any number), `max_bytes` in bytes of datagrams."""

    def __init__(self, bound: int, max_bytes: int) -> None:
        self.bound = bound
        self.max_bytes = max_bytes
        self.num_messages = 0
        self.num_bytes = 0
        self.num_dropped = 0                    # messages, since the beginning
        self._entries: deque[tuple[Packet, int]] = deque()      # with the number of messages

    def __len__(self) -> int:
        """Return how many messages wait."""
        return self.num_messages

    def add(self, packet: Packet, messages: int) -> None:
        """Keep a datagram with so many messages; drop the oldest if there are too
        many."""
        self._entries.append((packet.copy(), messages))
        self.num_messages += messages
        self.num_bytes += len(packet.data)
        self._shrink()

    def take(self, sender: int) -> list[Packet]:
        """Remove the datagrams of a sender and return them, oldest first."""
        return self._remove({sender})

    def rebound(self, bound: int) -> None:
        """Change the bound in messages."""
        self.bound = bound
        self._shrink()

    def retain(self, senders: set[int]) -> None:
        """Forget all senders but these."""
        self._remove({packet.sender for packet, _ in self._entries} - senders)

    def _shrink(self) -> None:
        while self.bound != UNBOUNDED and self.num_messages > self.bound:
            packet, messages = self._entries.popleft()
            self._forget(packet, messages)
            self.num_dropped += messages
        while self.num_bytes > self.max_bytes:
            before = self.num_messages
            self._remove({self._largest()})
            self.num_dropped += before - self.num_messages

    def _largest(self) -> int:
        """Return the sender that has most bytes in the queue."""
        sizes: dict[int, int] = {}
        for packet, _ in self._entries:
            sizes[packet.sender] = sizes.get(packet.sender, 0) + len(packet.data)
        return max(sizes, key=sizes.__getitem__)

    def _remove(self, senders: set[int]) -> list[Packet]:
        removed = [(packet, messages) for packet, messages in self._entries
                   if packet.sender in senders]
        if removed:
            self._entries = deque(entry for entry in self._entries
                                  if entry[0].sender not in senders)
            for packet, messages in removed:
                self._forget(packet, messages)
        return [packet for packet, _ in removed]

    def _forget(self, packet: Packet, messages: int) -> None:
        self.num_messages -= messages
        self.num_bytes -= len(packet.data)
