"""What must hold for messages to single members (UNICAST3)."""

from typing import TYPE_CHECKING

from ringcast._core.batch import Batch
from ringcast.flags import Flag
from ringcast.protocols.seqnos import MODULUS, precedes
from ringcast.protocols.unicast3.delivery import MOST_LEAVING
from ringcast.protocols.unicast3.memory import MOST_EARLY_OF_ALL
from ringcast.protocols.unicast3.sender import SenderEntry
from ringcast.sim.window_checkers import most_sent

if TYPE_CHECKING:
    from ringcast.sim.checkers import Checkers
    from ringcast.sim.member import Member


class UnicastCheckers:
    """The checks of messages to single members, and what they remember."""

    def __init__(self, checkers: "Checkers") -> None:
        self.cluster, self.checkers = checkers.cluster, checkers
        self._freed: dict[tuple[int, int, int], int] = {}   # by sender, receiver and conn-id

    def delivered(self, receiver: "Member", sender: "Member", batch: Batch) -> None:
        """Check that a message is delivered at most once, in order unless it is OOB,
        and that the sender was told of each message that is left out.

        A receiver that remembers no closed connections may get messages again with a
        new one.
        """
        violated = self.checkers.violated
        log = sender.producer.unicast_logs.get(receiver.address)
        if log is None or batch.dest != receiver.address:
            violated("forgery", f"{receiver.name} got {batch}, which nobody sent to it")
            return
        if batch.stream is not log.stream:
            log.stream = batch.stream
            if not receiver.config.max_closed_connections:
                log.allow_again(log.number_of(batch.payloads[0]))
        is_oob = bool(batch.flags & Flag.OOB)
        for payload in batch.payloads:
            number = log.number_of(payload)
            what = f"{receiver.name} got message {number} of {sender.name}"
            if not 0 <= number < len(log.sent) or log.sent[number] != payload:
                violated("content", f"{receiver.name} got {batch} with other payloads than "
                                    f"{sender.name} sent to it")
            if is_oob != (number in log.oob):
                violated("flags", f"{what} as {batch}")
            if number in log.oob_delivered if is_oob else number <= log.last_delivered:
                violated("duplicate", f"{what} again, or late, as {batch}")
            if is_oob:
                log.oob_delivered.add(number)
                continue
            missing = [each for each
                       in range(max(log.last_delivered, log.highest_delivered) + 1, number)
                       if each not in log.failed and each not in log.oob]
            if missing:
                violated("gap", f"{what} without {missing}")
            log.last_delivered = number
            log.highest_delivered = max(log.highest_delivered, number)
        windows = (receiver.unicast.receivers.get(sender.incarnation), *receiver.unicast.leaving)
        conn_id = next((entry.conn_id for entry in windows
                        if entry is not None and entry.stream is batch.stream), 0)
        log.outstanding |= dict.fromkeys([(batch.stream, seqno) for seqno in seqnos(batch)],
                                         conn_id)

    def finished(self, receiver: "Member", batch: Batch) -> None:
        """Note that an application has finished a batch that was for it alone."""
        sender = self.cluster.incarnations[batch.sender.incarnation]
        outstanding = sender.producer.unicast_logs[receiver.address].outstanding
        for seqno in seqnos(batch):
            outstanding.pop((batch.stream, seqno), None)

    def undelivered(self, sender: "Member", batch: Batch) -> None:
        """Check what a sender is told about messages that were not acknowledged: it
        sent them, and their receiver left or refused them."""
        assert batch.dest is not None
        log = sender.producer.unicast_logs[batch.dest]
        what = f"{sender.name} is told that {batch} is undelivered"
        for payload in batch.payloads:
            number = log.number_of(payload)
            if not 0 <= number < len(log.sent) + (log.large is not None):
                self.checkers.violated("forgery", f"{what}, which it did not send")
            if (number < len(log.sent) and not batch.flags & Flag.INCOMPLETE
                    and log.sent[number] != payload):
                self.checkers.violated("content", f"{what}, with other payloads than it sent")
            log.failed.add(number)
        receiver = self.cluster.incarnations[batch.dest.incarnation]
        if receiver.alive and receiver.receiving and sender.view_filter.sees(batch.dest):
            self.checkers.violated("gave up", f"{sender.name} gave up {batch} although "
                                              f"{receiver.name} is there")

    def check_connections(self, member: "Member") -> None:
        """Check that the windows and tables of connections are within their bounds, and
        that nothing was freed that its receiver has not finished."""
        unicast = member.unicast
        for table in (unicast.senders, unicast.receivers):
            for each in table.values():
                self.checkers.windows.check_window(member, "a connection", each.ring,
                                           most_sent(member.config))
        if (unicast.early.size > MOST_EARLY_OF_ALL
                or len(unicast.leaving) > MOST_LEAVING + len(self.cluster.names)
                or len(unicast.closed) > unicast.closed.most):
            self.checkers.violated(
                "memory", f"{member.name} keeps {unicast.early.size} early datagrams, "
                          f"{len(unicast.leaving)} windows of closed connections and "
                          f"{len(unicast.closed)} memories of them")
        for peer, entry in unicast.senders.items():
            key = (member.incarnation, peer, entry.conn_id)
            if entry.highest_acked != self._freed.get(key, member.offset):
                self._freed[key] = entry.highest_acked
                self._check_freed(member, self.cluster.incarnations[peer], entry)

    def _check_freed(self, sender: "Member", receiver: "Member", entry: SenderEntry) -> None:
        """Check that a receiver's layer and its application have finished what the
        sender frees, in this connection (U5)."""
        if not receiver.alive or receiver is sender:
            return
        freed = (f"{sender.name} gave up its messages to {receiver.name} up to "
                 f"{entry.highest_acked}")
        outstanding = self.cluster.unicast_log(sender, receiver.address).outstanding
        for (_, seqno), conn_id in outstanding.items():
            if conn_id == entry.conn_id and not precedes(entry.highest_acked, seqno):
                self.checkers.violated("purge", f"{freed}, whose application has not finished "
                                                f"{seqno}")
        theirs = receiver.unicast.receivers.get(sender.incarnation)
        closed = receiver.unicast.closed.get(sender.incarnation)
        if theirs is not None and theirs.conn_id == entry.conn_id:
            finished = theirs.ring.low
        elif closed is not None and closed.conn_id == entry.conn_id:
            finished = closed.delivered
        else:
            return
        if precedes(finished, entry.highest_acked):
            self.checkers.violated("purge", f"{freed} of connection {entry.conn_id}, which has "
                                            f"finished those up to {finished}")


def seqnos(batch: Batch) -> list[int]:
    """Return the seqnos of the messages in a batch."""
    return [(batch.first + index) % MODULUS for index in range(len(batch))]
