"""What must hold after every turn of every member, whatever the network and the
processes do.

The checkers know what no member knows: what each application was given to send, and
what each has finished. They look at the stacks and never touch them. The names of the
checks are the words by which a failing run is told apart from another.
"""

from typing import TYPE_CHECKING

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.config import MAX_DATAGRAM, MAX_MEMBERS
from ringcast.flags import Flag
from ringcast.protocols.multicast.base import HIGHEST, XMIT_REQ
from ringcast.protocols.multicast.lossless import MOST_ROOM
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.multicast.windows import MOST_DEPARTED, MOST_LEAVING
from ringcast.protocols.seqnos import MODULUS, later, precedes
from ringcast.protocols.stream import Stream
from ringcast.protocols.unicast3.memory import MOST_EARLY_OF_ALL
from ringcast.protocols.unicast3.sender import SenderEntry
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member




class Violation(AssertionError):
    """A promise that was broken: the name of the check, what was seen, and when (the
    event, and nanoseconds of simulated time)."""

    def __init__(self, check: str, sentence: str, event: int, now: int) -> None:
        super().__init__(f"{check}: {sentence} (at {now / 1e6:.3f} ms, event {event})")
        self.check, self.sentence, self.event, self.now = check, sentence, event, now


class Checkers:
    """All checks of one cluster, and what they remember."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self._views: dict[int, frozenset[int]] = {}        # who is in the view of an id
        self._lows: dict[int, int] = {}                    # LOW of each incarnation's send window
        self._starts: dict[tuple[int, int], int] = {}      # (receiver, sender): where the sender
                                                           # said that it begins
        self._said: dict[tuple[int, int], set[int]] = {}   # all that it ever said about that
        self._dropped: set[tuple[int, int]] = set()        # (receiver, sender): a process of that
                                                           # incarnation took it out
        self._met: dict[int, set[int]] = {}                # whom the processes of an incarnation
                                                           # that came back had in their views
        self._all_stay = True                              # nobody left or was taken out
        self._freed: dict[tuple[int, int, int], int] = {}  # (sender, receiver, conn-id): what was
                                                           # freed of it
        self._kept_from: dict[Stream, int] = {}            # LOW of windows that keep what is
                                                           # finished
        self._kept: set[tuple[int, int]] = set()           # (receiver, sender): nothing between two
                                                           # incarnations may be missing

    def violated(self, check: str, sentence: str) -> None:
        raise Violation(check, sentence, self.cluster.num_done, self.cluster.now)

    def came_back(self, member: "Member") -> None:
        """An incarnation goes on in another process, with what was acknowledged by all
        at some time."""
        former = self.cluster.incarnations[member.incarnation]
        low = former.multicast.send_window.ring.low  # it may have died in the turn that raised it
        met = self._met.setdefault(member.incarnation, set())
        met |= {address.incarnation for view in former.views for address in view.members}
        if former.multicast.members:
            self._dropped |= {(receiver, member.incarnation)
                              for receiver in met - former.multicast.members.keys()}
        if precedes(low, member.base):
            self.violated("plan",
                          f"{member.name} is to come back with {member.base}; no more than {low} "
                          f"was acknowledged")
        self._lows[member.incarnation] = member.base

    # ---------------------------------------------------------------------------------- on delivery

    def delivered(self, receiver: "Member", batch: Batch) -> None:
        """FIFO, once, without a gap, and what was sent: per sender and receiver, from
        where the stream begins for it."""
        sender = self.cluster.incarnations.get(batch.sender.incarnation)
        if sender is None or not batch.payloads:
            self.violated("forgery", f"{receiver.name} got {batch}, which nobody sent")
            return
        if batch.dest is not None:
            self._heard(receiver, sender, batch)
            return
        got = receiver.consumer.got.get(batch.sender)
        if got is None:
            got = receiver.consumer.got[batch.sender] = []
            receiver.consumer.first[batch.sender] = sender.log.begin_of(batch.first)
            self._begins(receiver, sender, batch)
        expected = (receiver.consumer.first[batch.sender] + len(got)) % MODULUS
        begins = sender.log.begin_of(batch.first)
        key = (receiver.incarnation, sender.incarnation)
        if precedes(expected, begins) and key in self._dropped and (begins - 1) % MODULUS in self._said[key]:
            got.clear()     # a process of it had taken this member out, who did not hear of that
            receiver.consumer.first[batch.sender] = expected = begins
        if begins != expected:
            what = "duplicate" if precedes(begins, expected) else "gap"
            self.violated(what,
                          f"{receiver.name} got {batch}; the next seqno of {sender.name} is "
                          f"{expected}")
        index = (batch.first - sender.offset - 1) % MODULUS
        sent = sender.log[index:index + len(batch)]
        if sent != batch.payloads:
            self.violated("content",
                          f"{receiver.name} got {batch} with other payloads than {sender.name} "
                          f"sent")
        # Not its copies: a long run would keep each message once for each receiver.
        got += [None] * ((batch.first - begins) % MODULUS) + sent

    def _heard(self, receiver: "Member", sender: "Member", batch: Batch) -> None:
        """Messages to one member: each at most once (by one window, when the receiver
        is to remember nothing of those before it); in order, but for OOB messages; and
        what is passed over was reported to the sender as undelivered."""
        log = sender.producer.unicast_logs.get(receiver.address)
        if log is None or batch.dest != receiver.address:
            self.violated("forgery", f"{receiver.name} got {batch}, which nobody sent to it")
            return
        if batch.stream is not log.stream:
            log.stream = batch.stream
            if not receiver.config.max_closed_connections:  # a new window may bring again what the
                                                            # one before it brought
                log.allow_again(log.number_of(batch.payloads[0]))
        for payload in batch.payloads:
            number = log.number_of(payload)
            if not 0 <= number < len(log.sent) or log.sent[number] != payload:
                self.violated("content",
                              f"{receiver.name} got {batch} with other payloads than {sender.name} "
                              f"sent to it")
            is_oob = bool(batch.flags & Flag.OOB)
            if is_oob != (number in log.oob):
                self.violated("flags",
                              f"{receiver.name} got message {number} of {sender.name} as {batch}")
            if number in log.oob_delivered if is_oob else number <= log.last_delivered:
                self.violated("duplicate",
                              f"{receiver.name} got message {number} of {sender.name} again, or "
                              f"late, as {batch}")
            if is_oob:
                log.oob_delivered.add(number)
                continue
            missing = [each for each in range(max(log.last_delivered, log.highest_delivered) + 1, number)
                       if each not in log.failed and each not in log.oob]
            if missing:
                self.violated("gap",
                              f"{receiver.name} got message {number} of {sender.name} without "
                              f"{missing}")
            log.last_delivered = number
            log.highest_delivered = max(log.highest_delivered, number)
        windows = (receiver.unicast.receivers.get(sender.incarnation), *receiver.unicast.leaving)
        conn_id = next((entry.conn_id for entry in windows if entry is not None and entry.stream is batch.stream), 0)
        log.outstanding |= dict.fromkeys([(batch.stream, seqno) for seqno in seqnos(batch)],
                                          conn_id)

    def finished_unicast(self, receiver: "Member", batch: Batch) -> None:
        """An application has finished a batch that was for it alone."""
        log = self.cluster.incarnations[batch.sender.incarnation].producer.unicast_logs[receiver.address]
        for seqno in seqnos(batch):
            log.outstanding.pop((batch.stream, seqno), None)

    def undelivered(self, sender: "Member", batch: Batch) -> None:
        """A sender is told that messages to one member were not acknowledged: that
        member left, or refused them."""
        assert batch.dest is not None
        log = sender.producer.unicast_logs[batch.dest]
        for payload in batch.payloads:
            number = log.number_of(payload)
            if not 0 <= number < len(log.sent) + (log.large is not None):
                self.violated("forgery",
                              f"{sender.name} is told that {batch} is undelivered, which it did "
                              f"not send")
            if number < len(log.sent) and not batch.flags & Flag.INCOMPLETE and log.sent[number] != payload:
                self.violated("content",
                              f"{sender.name} is told that {batch} is undelivered, with other "
                              f"payloads than it sent")
            log.failed.add(number)
        receiver = self.cluster.incarnations[batch.dest.incarnation]
        if receiver.alive and receiver.receiving and sender.view_filter.sees(batch.dest):
            self.violated("gave up",
                          f"{sender.name} gave up {batch} although {receiver.name} is there")

    def _begins(self, receiver: "Member", sender: "Member", batch: Batch) -> None:
        """The first message is the one behind what the sender declared, or behind what
        an earlier incarnation had finished."""
        before = (sender.log.begin_of(batch.first) - 1) % MODULUS
        begins = sender.offset if receiver is sender else self.finished(receiver, sender)
        if sender.epoch and before in self._said.get((receiver.incarnation, sender.incarnation),
                                                     ()):
            return                                  # an earlier process of its incarnation said so
        if before != begins:
            self.violated("start",
                          f"{receiver.name} got {batch} first; its stream of {sender.name} begins "
                          f"after {begins}")
        key = (receiver.incarnation, sender.incarnation)
        if key in self._kept and before != receiver.resume[sender.address] and precedes(
                # more than a part of a message
                receiver.resume[sender.address], sender.log.end_before(self._starts[key])):
            self.violated("lost", f"{receiver.name} came back with {sender.name}'s messages up to "
                                  f"{receiver.resume[sender.address]} and got {batch} next, though "
                                  f"it was never taken out")

    # ------------------------------------------------------------------------------------- on views

    def viewed(self, member: "Member", view: View) -> None:
        """Ids only grow, everybody is in its own views, and one id means one set of
        members."""
        if len(member.views) > 1 and view.id <= member.views[-2].id:
            self.violated("view id", f"{member.name} installed {view} after {member.views[-2]}")
        if member.address not in view:
            self.violated("view", f"{member.name} installed {view}, which it is not in")
        incarnations = frozenset(address.incarnation for address in view.members)
        if self._views.setdefault(view.id, incarnations) != incarnations:
            self.violated("view",
                          f"{member.name} installed {view}; another view with this id has other "
                          f"members")
        met = self._met.get(member.incarnation, set())
        self._dropped |= {(receiver, member.incarnation) for receiver in met - incarnations}
        self._note_comers(member, view)
        layer = member.multicast
        strangers = layer.remembered() - layer.members.keys()
        if strangers:
            self.violated("memory",
                          f"{member.name} keeps something of {strangers}, who are not in its view")

    def _note_comers(self, sender: "Member", view: View) -> None:
        """Where the stream starts for those who came; who came back without having been
        taken out may miss nothing."""
        before = sender.views[-2].members if len(sender.views) > 1 else ()
        for address in set(view.members) - set(before):
            key = (address.incarnation, sender.incarnation)
            start = sender.multicast.start_of(address.incarnation)
            if start is not None:
                self._starts[key] = start           # anew, when it was taken out while it joined
                self._said.setdefault(key, set()).add(start)
                receiver = self.cluster.incarnations[address.incarnation]
                self._inherits(receiver, sender, before, start)
                if address.name in {member.name for member in before} and self._brings_all(receiver,
                                                                                           sender):
                    self._kept.add(key)
                else:
                    self._kept.discard(key)

    def _inherits(self, receiver: "Member", sender: "Member", before: tuple[Address, ...],
                  start: int) -> None:
        """Check that an incarnation gets what was kept for the one in whose place it
        came."""
        for address in before:
            former = self.cluster.incarnations[address.incarnation]
            had = self.finished(former, sender)
            if (address.name == receiver.name and former.receiving and had is not None
                    and precedes(had, sender.log.end_before(start))):
                self.violated("lost", f"{receiver.name} came back and gets what follows {start} of "
                                      f"{sender.name}, which kept what follows {had} for it")

    def _brings_all(self, receiver: "Member", sender: "Member") -> bool:
        """Whether this incarnation goes on from all that was meant for its former ones
        and that they had finished."""
        former = [other for other in self.cluster.incarnations.values()
                  if other.name == receiver.name and other is not receiver]
        if sender.address not in receiver.resume or not former[-1].receiving:
            return False
        resumed = receiver.resume[sender.address]
        had = [self.finished(other, sender) for other in former]
        return not any(seqno is not None and precedes(resumed, seqno) for seqno in had)

    def note_departure(self) -> None:
        """Somebody was asked to take a member out, or one leaves."""
        self._all_stay = False

    def stopped(self, member: "Member") -> None:
        """A member gives up only when its name has a later incarnation, or when views
        were formed without somebody: it may have been taken out, or have formed a view
        without those who knew better who has its name."""
        if self.cluster.members[member.name] is member and self._all_stay:
            self.violated("stopped",
                          f"{member.name} stopped though nobody took it out: {member.fault}")

    # --------------------------------------------------------------------------------- after a turn

    def after_turn(self, member: "Member") -> None:
        layer = member.multicast
        ring = layer.send_window.ring
        most = member.config.max_bytes + MAX_DATAGRAM
        most_received = most
        if layer.receive_bytes != member.config.max_bytes:  # and a datagram more, when it is what
                                                            # comes next
            most_received = max(MOST_ROOM * member.config.max_bytes, MAX_DATAGRAM) + MAX_DATAGRAM
        elif not member.config.discard_delivered_msgs:  # bounded in messages alone, until it hears
                                                        # what all have
            most_received = member.config.capacity * MAX_DATAGRAM
        for window in layer.windows.values():
            if precedes(window.stream.finished, window.ring.low):
                self.violated("window",
                              f"{member.name} gave up what it has of {window.stream.sender} up to "
                              f"{window.ring.low}; its "
                              f"application has finished what is up to "
                              f"{window.stream.finished}")
        for each in (ring, *[window.ring for window in layer.windows.values()]):
            low, bound = each.low, most if each is ring else most_received
            if not (each.hd - low) % MODULUS <= (each.hr - low) % MODULUS <= each.capacity or each.nbytes > bound:
                self.violated("window",
                              f"{member.name} has a window with LOW={low} HD={each.hd} "
                              f"HR={each.hr} of {each.capacity} "
                              f"and {each.nbytes} bytes of {member.config.max_bytes}")
        if len(layer.windows) >= max(1, len(layer.members)) or layer.requests or (
                len(layer.starts.deferred) > MAX_MEMBERS or len(layer.windows.leaving) > MOST_LEAVING + len(self.cluster.names)) or (
                len(layer.windows.departed) > MOST_DEPARTED):
            self.violated("memory",
                          f"{member.name} has {len(layer.windows)} windows, {len(layer.windows.leaving)} "
                          f"of those who left, "
                          f"{len(layer.requests)} open requests and {len(layer.starts.deferred)} "
                          f"early STARTs in a view of "
                          f"{len(layer.members)}")
        if isinstance(layer, Nakack2):
            self._check_queue(member, layer)
            self._check_held(member, layer)
            self._check_kept(member, layer)
        if member.unicast.senders or member.unicast.receivers:
            self._check_connections(member, most)
        low, before = ring.low, self._lows.get(member.incarnation, member.offset)
        if low != before:
            if precedes(low, before):
                self.violated("window",
                              f"{member.name} moved LOW of its own messages back from {before} to "
                              f"{low}")
            self._lows[member.incarnation] = low
            self._check_purge(member, low)

    def _check_queue(self, member: "Member", layer: Nakack2) -> None:
        """What waits for windows is bounded: in messages where all can be asked for
        again, and always in bytes."""
        queue = layer.queue
        if queue.num_bytes > queue.max_bytes or (queue.bound and len(queue) > queue.bound):
            self.violated("memory",
                          f"{member.name} has {len(queue)} messages and {queue.num_bytes} bytes in "
                          f"its become_server_queue, "
                          f"which is bounded at {queue.bound} and {queue.max_bytes}")
        if layer.retransmits and queue.bound != member.config.become_server_queue_size or not (
                layer.retransmits or layer.lossless):
            self.violated("mode",
                          f"{member.name} has xmit_interval={layer.interval} and a queue bounded "
                          f"at {queue.bound}")

    def _check_held(self, member: "Member", layer: Nakack2) -> None:
        """Where nothing may be lost nothing is dropped for want of room, and who has no
        room is not read (decision 20)."""
        if layer.intake.held.keys() != member.transport.held:
            self.violated("held",
                          f"{member.name} holds datagrams of {set(layer.intake.held)} and its transport "
                          f"does not read {member.transport.held}")
        if layer.lossless and layer.counters.num_out_of_window:
            self.violated("dropped",
                          f"{member.name} had no room for {layer.counters.num_out_of_window} "
                          f"messages")

    def _check_kept(self, member: "Member", layer: Nakack2) -> None:
        """With discard_delivered_msgs=False a receiver, too, gives up only what all
        members of its view have finished, unless there would be no room else for what
        nobody would repeat."""
        if member.config.discard_delivered_msgs or layer.lossless:
            return
        for window in layer.windows.values():
            stream = window.stream
            if self._kept_from.get(stream, window.offset) != window.ring.low:
                self._kept_from[stream] = window.ring.low
                self._check_purge(self.cluster.incarnations[stream.sender.incarnation],
                                  window.ring.low, member)

    def sent(self, member: "Member", datagram: bytes) -> None:
        """Without retransmission nothing is asked for, and no last seqno is
        announced."""
        layer = member.multicast
        if isinstance(layer, Nakack2) and not layer.retransmits:
            header = wire.open_datagram(datagram, member.stack.group)
            if header is None or header.kind in (XMIT_REQ, HIGHEST):
                self.violated("mode",
                              f"{member.name} does not retransmit, and sent a datagram of kind "
                              f"{header and header.kind}")

    def _check_connections(self, member: "Member", most: int) -> None:
        """Windows within their bounds; one entry for each side of a peer; nothing freed
        that its receiver has not finished."""
        unicast = member.unicast
        for ring in [entry.ring for table in (unicast.senders, unicast.receivers)
                     for entry in table.values()]:
            if not (ring.hd - ring.low) % MODULUS <= (ring.hr - ring.low) % MODULUS <= ring.capacity or ring.nbytes > most:
                self.violated("window",
                              f"{member.name} has a connection with LOW={ring.low} HD={ring.hd} "
                              f"HR={ring.hr} of "
                              f"{ring.capacity} and {ring.nbytes} bytes")
        if unicast.early.size > MOST_EARLY_OF_ALL or len(unicast.leaving) > MOST_LEAVING + len(self.cluster.names) or (
                len(unicast.closed) > unicast.closed.most):
            self.violated("memory",
                          f"{member.name} keeps {unicast.early.size} early datagrams, "
                          f"{len(unicast.leaving)} windows of "
                          f"closed connections and {len(unicast.closed)} memories of "
                          f"them")
        for peer, entry in unicast.senders.items():
            key = (member.incarnation, peer, entry.conn_id)
            low = entry.highest_acked
            if low != self._freed.get(key, member.offset):
                self._freed[key] = low
                self._check_freed(member, self.cluster.incarnations[peer], entry)

    def _check_freed(self, sender: "Member", receiver: "Member", entry: SenderEntry) -> None:
        """What a sender frees was finished, in this connection (U5): by what the
        receiver's layer says, and by its application."""
        theirs = receiver.unicast.receivers.get(sender.incarnation)
        closed = receiver.unicast.closed.get(sender.incarnation)
        if not receiver.alive or receiver is sender:
            return
        for (_, seqno), conn_id in sender.producer.unicast_logs[receiver.address].outstanding.items():
            if conn_id == entry.conn_id and not precedes(entry.highest_acked, seqno):
                self.violated("purge",
                              f"{sender.name} gave up its messages to {receiver.name} up to "
                              f"{entry.highest_acked}, whose "
                              f"application has not finished {seqno}")
        if theirs is not None and theirs.conn_id == entry.conn_id:
            finished = theirs.ring.low
        elif closed is not None and closed.conn_id == entry.conn_id:
            finished = closed.delivered
        else:
            return
        if precedes(finished, entry.highest_acked):
            self.violated("purge",
                          f"{sender.name} gave up its messages to {receiver.name} up to "
                          f"{entry.highest_acked} of connection "
                          f"{entry.conn_id}, which has finished those up to {finished}")

    def _check_purge(self, sender: "Member", low: int, at: "Member | None" = None) -> None:
        """Only what every member of the view has finished is purged, by the sender or
        by the member `at`; who came counts from where its stream starts."""
        for incarnation in (at or sender).multicast.members:
            receiver = self.cluster.incarnations[incarnation]
            if not receiver.receiving:
                continue
            finished = self.finished(receiver, sender)
            if finished is None or precedes(finished, sender.log.end_before(low)):
                whose = "its" if at is None else f"{sender.name}'s"
                self.violated("purge",
                              f"{(at or sender).name} gave up {whose} messages up to {low}, of "
                              f"which {receiver.name} "
                              f"has finished those up to {finished}")

    def finished(self, receiver: "Member", sender: "Member") -> int | None:
        """Up to where the receiver has all of the sender's stream that is meant for it:
        what its application has finished, or where the stream begins for it as far as
        either of them has decided; None before that."""
        if receiver is sender:
            return receiver.consumer.finished.get(sender.incarnation, sender.offset)
        begins = self._starts.get((receiver.incarnation, sender.incarnation))
        if begins is not None:
            begins = sender.log.end_of(begins)          # one in whose middle it came is not for it
        finished = receiver.consumer.finished.get(sender.incarnation)
        if sender.epoch and begins is not None and (window := receiver.multicast.windows.get(sender.incarnation)) is not None:
            begins = later(begins, window.offset)  # as an earlier process of its incarnation had
                                                   # said, or as it was before
        if begins is None or finished is None:
            return finished if begins is None else begins
        return later(begins, finished)

    # ----------------------------------------------------------------------------------- at the end

    def agreed(self) -> None:
        """Of a member that left in good order, all who were with it to the end have the
        same messages: all that it sent.

        (Of those who stay, everybody gets everything, which is what is owed; of one
        that crashed, everybody has an unbroken beginning of its stream, and at least
        what it knew to be acknowledged: that is checked when it purges.)
        """
        for sender in self.cluster.incarnations.values():
            if sender.left and sender.views and sender.multicast.unacked() == 0:
                for receiver in self.cluster.living():
                    if receiver.receiving and receiver.address in sender.views[-1]:
                        finished = self.finished(receiver, sender)
                        if finished is None or sender.log.end_before(finished) != sender.last:
                            self.violated("agreement",
                                          f"{receiver.name} has {sender.name}'s messages up to "
                                          f"{finished}; it sent "
                                          f"{sender.last} and left in good order")


def seqnos(batch: Batch) -> list[int]:
    """Of the messages in a batch."""
    return [(batch.first + index) % MODULUS for index in range(len(batch))]
