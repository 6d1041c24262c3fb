"""Deliveries: from the receive windows to the application, and back as finished.

The application says how many messages it has room for. It gets, in this order: OOB
messages of this turn, whatever it has room for; what was ready in windows that were
replaced; our messages to ourselves; and what is next in order in the other windows,
which take turns.

A window that was replaced (*leaving*) has an older connection of a sender that uses a
newer one now. What is ready there comes before anything of a newer connection, so that
the messages of one sender stay in order. What is behind a gap there can never come: it
is given up when the rest is delivered.

And nothing of a newer connection comes before the application has finished what it was
given of the older one (*former*). Otherwise a sender that begins connection after
connection would fill the memory of a slow application with a window for each.
"""

from collections.abc import Mapping

from ringcast._core.batch import Batch
from ringcast.protocols.incoming import EarlyDeliveries
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3.acks import Acks
from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.loopback import Loopback
from ringcast.protocols.unicast3.receiver import ReceiverEntry
from ringcast.stack import Instant

MOST_LEAVING = 4          # replaced windows that wait for the application; more in a larger group


class Deliveries:
    """What the application can get. `acks` hears of what it has finished."""

    def __init__(self, context: Context, receivers: Mapping[int, ReceiverEntry], acks: Acks,
                 loopback: Loopback) -> None:
        self.context, self.receivers = context, receivers
        self.acks, self.loopback = acks, loopback
        self.oob = EarlyDeliveries(context.config.capacity)
        self.ready: dict[int, ReceiverEntry] = {}   # may have something to deliver
        self.leaving: list[ReceiverEntry] = []      # replaced, and not empty yet
        # Streams of older connections that the application has not finished, by sender.
        self.former: dict[int, Stream] = {}

    def deliver(self, limit: int, now: Instant) -> int:
        """Hand at most `limit` messages in order to the application, besides OOB
        messages (EarlyDeliveries); return how many it got."""
        context = self.context
        handed = self.oob.hand_over(limit, context.effects)
        if context.receiving:
            if self.leaving:
                handed += self._deliver_leaving(limit - handed, now)
            if self.loopback.stream is not None:
                handed += self.loopback.deliver(limit - handed, now)
            if self.ready:
                handed += self._deliver_ready(limit - handed, now)
        context.counters.unicast_msgs_delivered += handed
        return handed

    def _deliver_leaving(self, limit: int, now: Instant) -> int:
        handed = 0
        for entry in self.leaving.copy():               # of each sender the older ones first
            while handed < limit and entry.peer not in self.former:
                taken = self._take_messages(entry, limit - handed, now)
                handed += taken
                if not taken and not entry.has_next:
                    self.leaving.remove(entry)
                    self.give_up(entry)
                    break
        return handed

    def _deliver_ready(self, limit: int, now: Instant) -> int:
        handed = 0
        senders = [sender for sender in self.ready if not self.is_held(sender)]
        while senders and handed < limit:
            sender = senders.pop(0)
            entry = self.ready.pop(sender)
            handed += self._take_messages(entry, limit - handed, now)
            if entry.has_next:
                self.ready[sender] = entry              # behind the others
                senders.append(sender)
            if entry.stream.marks.flags or not entry.stream.outstanding:
                self.acks.note_finished(entry, now)
        return handed

    def is_held(self, sender: int) -> bool:
        """Return whether messages of an older connection of a sender come first, or are
        not finished."""
        return sender in self.former or any(entry.peer == sender for entry in self.leaving)

    def _take_messages(self, entry: ReceiverEntry, limit: int, now: Instant) -> int:
        context = self.context
        return entry.stream.take(limit, context.effects.deliveries, context.view_id, now)

    def finish(self, batch: Batch, now: Instant) -> None:
        """Note that the application has finished a batch: it may be acknowledged, and
        never before."""
        stream, sender = batch.stream, batch.sender.incarnation
        stream.finish(batch)
        if stream is self.loopback.stream:
            self.loopback.free()
            return
        former = self.former.get(sender)
        if former is not None and former is stream and not former.outstanding:
            del self.former[sender]
            self.context.effects.arrived = True         # what waited for it
        entry = self.receivers.get(sender)
        if entry is not None and entry.stream is stream:
            self.acks.note_finished(entry, now)

    def keep_leaving(self, entry: ReceiverEntry) -> None:
        """Deliver what is ready of a connection that was replaced. Too many of these
        windows are not kept."""
        self.leaving.append(entry)
        while len(self.leaving) > max(MOST_LEAVING, len(self.context.members)):
            self.give_up(self.leaving.pop(0))

    def give_up(self, entry: ReceiverEntry) -> None:
        """Drop the messages of a window that the application was not given."""
        self.context.counters.unicast_gone_undelivered += entry.num_stranded
        entry.stream.retire()
        self.await_finished(entry.stream)

    def await_finished(self, stream: Stream) -> None:
        """Deliver nothing of a newer connection before the application has finished
        what it has of this older one."""
        if stream.outstanding:
            self.former[stream.sender.incarnation] = stream
