"""How connections begin to close, and end: views, reaping, a member that leaves
(UNICAST3.txt, "Retransmission task (reaping)").

`states.py` says which state follows which; this file says when.

- A member is not in the new view: its connections are CLOSING. Its sender's windows
  take no more messages, so that blocked senders are told.
- It has left for good: no ack of it can come any more. What it has not acknowledged is
  reported to the application at once (`fail_unacked`).
- An entry was idle for conn_expiry_timeout: it is CLOSING. An entry with something left
  to do never is (U10).
- An entry has been CLOSING for conn_close_timeout: it is CLOSED and removed, unless it
  is in use again, or its member is in the view and something is left to do.
- A member is back: what was kept of its connection is its window again. So only of
  members that left can be too much kept, and given up (memory.py).
"""

from ringcast.protocols.unicast3.context import Context
from ringcast.protocols.unicast3.receiver import ReceiverEntry
from ringcast.protocols.unicast3.receiving import MOST_GONE, Receivers
from ringcast.protocols.unicast3.sender import SenderEntry
from ringcast.protocols.unicast3.sending import Senders
from ringcast.protocols.unicast3.states import Act, Entry, Event, State
from ringcast.stack import Instant
from ringcast.view import View


class Lifecycle:
    """The life of all connections of a member."""

    def __init__(self, context: Context, senders: Senders, receivers: Receivers) -> None:
        self.context, self.senders, self.receivers = context, senders, receivers

    def install_view(self, view: View, now: Instant) -> None:
        """Let the connections of members that left begin to close, and tell their
        blocked senders. Take what members that came have written already."""
        context = self.context
        before = context.members
        context.members = {member.incarnation: member for member in view.members}
        context.view_id = view.id
        for peer in before.keys() - context.members.keys():
            self._close_leaver(peer, now)
        came = [peer for peer in context.members if peer not in before]
        for peer in came:
            self.receivers.resume(peer, now)            # before others take too much
        self.receivers.bound_gone(max(MOST_GONE, len(before), len(view.members)))
        context.effects.writable = True
        self._arm_reaping()
        for peer in came:
            self.receivers.take_early(peer, now)

    def _close_leaver(self, peer: int, now: Instant) -> None:
        """Let the connections with a member that is not in the view begin to close. If
        it had refused a message once, that refusal was true."""
        sender = self.senders.get(peer)
        if sender is not None:
            sender.window.close()
            sender.on(Event.PEER_LEFT, now)
            if sender.is_doubted:
                self.close_sender(sender, now)
        if peer in self.receivers:
            self.receivers[peer].on(Event.PEER_LEFT, now)
        self.receivers.syncs.clear_flag(peer)
        self.senders.refusing.discard(peer)

    def fail_unacked(self, members: set[int], now: Instant) -> None:
        """Report what these members, which have left, did not acknowledge."""
        for peer in members - self.context.members.keys():
            entry = self.senders.get(peer)
            if entry is not None and entry.num_unacked():
                self.close_sender(entry, now)

    def close_sender(self, entry: SenderEntry, now: Instant) -> None:
        """Close our end of a connection at once."""
        self.senders.perform_act(entry.on(Event.CLOSE, now), entry, now)

    def send_closes(self, now: Instant) -> None:
        """Tell all receivers that our connections end, because this member leaves."""
        for peer, entry in self.senders.items():
            if entry.state is not State.CLOSED and peer != self.context.local.incarnation:
                self.senders.send_close(peer, entry.conn_id, now)

    # -------------------------------------------------------------------------------------- reaping

    def reap_entries(self, now: Instant) -> None:
        """Let entries begin to close, or remove them, if their time has come."""
        for sender in list(self.senders.values()):
            self.senders.perform_act(self._age_entry(sender, now), sender, now)
        for peer, receiver in list(self.receivers.items()):
            if self._is_needed(receiver):
                receiver.touched = now
            elif self._age_entry(receiver, now) & Act.REMOVE:
                self.receivers.time_out(peer)
        self.context.next_reap = None
        self._arm_reaping()

    def _is_needed(self, receiver: ReceiverEntry) -> bool:
        """Return whether a window must stay. The application comes first. And of a
        large message, whose sender may go on with it, a part may be acknowledged."""
        if receiver.stream.outstanding or receiver.has_next:
            return True
        return receiver.peer in self.context.members and not receiver.is_idle

    def _age_entry(self, entry: Entry, now: Instant) -> int:
        """Tell an entry if its time has come, and return what else must be done."""
        due = self.context.reaped_at(entry)
        if due is None or due > now:
            return Act.NOTHING
        if entry.state is not State.OPEN:
            return entry.on(Event.TIMED_OUT if entry.can_end() else Event.USED, now)
        if entry.is_idle:
            return entry.on(Event.EXPIRED, now)
        entry.touched = now
        return Act.NOTHING

    def _arm_reaping(self) -> None:
        entries: list[Entry] = [*self.senders.values(), *self.receivers.values()]
        for entry in entries:
            self.context.arm_reaping(entry)
