"""What must hold after every turn of every member, whatever the network and the
processes do.

The checkers know what no member knows: what each application sent, and what each has
finished. They look at the stacks and never change them. A failing run is known by the
name of the check that failed.
"""

from typing import TYPE_CHECKING

from ringcast._core import wire
from ringcast._core.batch import Batch
from ringcast.address import Address
from ringcast.config import MAX_DATAGRAM
from ringcast.protocols.multicast.base import HIGHEST, XMIT_REQ
from ringcast.protocols.multicast.lossless import MOST_ROOM
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.seqnos import MODULUS, later, precedes
from ringcast.protocols.stream import Stream
from ringcast.sim.unicast_checkers import UnicastCheckers
from ringcast.view import View

if TYPE_CHECKING:
    from ringcast._core.window import Window
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member

Pair = tuple[int, int]  # incarnations: (receiver, sender)


class Violation(AssertionError):
    """A promise was broken: the name of the check, what was seen, the event, and the
    simulated time in nanoseconds."""

    def __init__(self, check: str, sentence: str, event: int, now: int) -> None:
        super().__init__(f"{check}: {sentence} (at {now / 1e6:.3f} ms, event {event})")
        self.check, self.sentence, self.event, self.now = check, sentence, event, now


class Checkers:
    """All checks of one cluster, and what they remember."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.unicast = UnicastCheckers(self)
        self._views: dict[int, frozenset[int]] = {}     # the members of a view, by its id
        self._lows: dict[int, int] = {}                 # LOW of each incarnation's send window
        self._starts: dict[Pair, int] = {}              # where the sender said that it begins
        self._all_starts: dict[Pair, set[int]] = {}     # all that it ever said about that
        # An earlier process of the sender's incarnation excluded the receiver.
        self._dropped: set[Pair] = set()
        # By incarnation: the members of the views of its earlier processes.
        self._met: dict[int, set[int]] = {}
        self._all_stay = True                           # no member left or was excluded
        self._kept_from: dict[Stream, int] = {}         # LOW of windows that keep what is finished
        self._states: dict[str, dict[int, int]] = {}    # checksums, by the name of the state
        self._gapless: set[Pair] = set()                # the receiver came back, may miss nothing

    def violated(self, check: str, sentence: str) -> None:
        """Raise Violation."""
        raise Violation(check, sentence, self.cluster.num_done, self.cluster.now)

    def way(self, member: "Member", after: int, to: int) -> list[int]:
        """Return the ids of the views that a member's layers have installed after one
        view, up to another, as far as that is known."""
        return [to]

    def replicated(self, member: "Member", view: View, name: str,
                   checksums: dict[int, int]) -> None:
        """Check that states of one name are the same state (replica.py)."""
        known = self._states.setdefault(name, checksums)
        if known != checksums:
            senders = [sender for sender in known.keys() | checksums.keys()
                       if known.get(sender) != checksums.get(sender)]
            names = sorted(self.cluster.incarnations[sender].name for sender in senders)
            self.violated("state", f"{member.name} has another state than others in {view}: it "
                                   f"differs in the messages of {', '.join(names)}")

    # -------------------------------------------------------------------------------- on delivery

    def delivered(self, receiver: "Member", batch: Batch) -> None:
        """Check that a receiver gets each sender's messages once, in order, without
        gaps, and as they were sent, from where the stream begins for it."""
        sender = self.cluster.incarnations.get(batch.sender.incarnation)
        if sender is None or not batch.payloads:
            self.violated("forgery", f"{receiver.name} got {batch}, which nobody sent")
            return
        if batch.dest is not None:
            self.unicast.delivered(receiver, sender, batch)
            return
        begins = sender.log.begin_of(batch.first)
        expected = self._next_of(receiver, sender, batch, begins)
        if begins != expected:
            what = "duplicate" if precedes(begins, expected) else "gap"
            self.violated(what, f"{receiver.name} got {batch}; the next seqno of {sender.name} is "
                                f"{expected}")
        index = (batch.first - sender.offset - 1) % MODULUS
        sent = sender.log[index:index + len(batch)]
        if sent != batch.payloads:
            self.violated("content", f"{receiver.name} got {batch} with other payloads than "
                                     f"{sender.name} sent")
        # Not the payloads of the batch: a long run would keep a copy for each receiver.
        got = receiver.consumer.got[batch.sender]
        got += [None] * ((batch.first - begins) % MODULUS) + sent

    def _next_of(self, receiver: "Member", sender: "Member", batch: Batch, begins: int) -> int:
        """Return the seqno with which the next message for a receiver begins. Check
        where the stream begins for it, if nothing came before."""
        consumer = receiver.consumer
        got = consumer.got.get(batch.sender)
        if got is None:
            got = consumer.got[batch.sender] = []
            consumer.first[batch.sender] = begins
            self._check_start(receiver, sender, batch)
        expected = (consumer.first[batch.sender] + len(got)) % MODULUS
        key = (receiver.incarnation, sender.incarnation)
        if precedes(expected, begins) and key in self._dropped and (
                (begins - 1) % MODULUS in self._all_starts[key]):
            got.clear()     # an earlier process excluded this member, which never heard of it
            consumer.first[batch.sender] = expected = begins
        return expected

    def _check_start(self, receiver: "Member", sender: "Member", batch: Batch) -> None:
        """Check that the first message follows what the sender declared, or what an
        earlier incarnation of the receiver had finished."""
        key = (receiver.incarnation, sender.incarnation)
        before = (sender.log.begin_of(batch.first) - 1) % MODULUS
        begins = sender.offset if receiver is sender else self.finished(receiver, sender)
        if before != begins:
            self.violated("start", f"{receiver.name} got {batch} first; its stream of "
                                   f"{sender.name} begins after {begins}")
        if key in self._gapless:
            had = receiver.resume[sender.address]
            # A part of a message does not count.
            if before != had and precedes(had, sender.log.end_before(self._starts[key])):
                self.violated("lost", f"{receiver.name} came back with {sender.name}'s messages up "
                                      f"to {had} and got {batch} next, though it was never "
                                      "excluded")

    def undelivered(self, sender: "Member", batch: Batch) -> None:
        """Check what a sender is told about messages that were not acknowledged."""
        self.unicast.undelivered(sender, batch)

    # ----------------------------------------------------------------------------------- on views

    def installed(self, member: "Member", view: View) -> None:
        """Note that the layers of a member install a view. Where the group has a list
        of members, the application is shown it in the same turn."""

    def viewed(self, member: "Member", view: View) -> None:
        """Check that ids grow, that a member is in its own views, and that one id means
        one set of members."""
        if len(member.views) > 1 and view.id <= member.views[-2].id:
            self.violated("view id", f"{member.name} installed {view} after {member.views[-2]}")
        if member.address not in view:
            self.violated("view", f"{member.name} installed {view}, in which it is not")
        incarnations = frozenset(address.incarnation for address in view.members)
        if self._views.setdefault(view.id, incarnations) != incarnations:
            self.violated("view", f"{member.name} installed {view}; another view with this id has "
                                  "other members")
        met = self._met.get(member.incarnation, set())
        self._dropped |= {(receiver, member.incarnation) for receiver in met - incarnations}
        self._note_joiners(member, view)
        strangers = member.multicast.remembered() - member.multicast.members.keys()
        if strangers:
            self.violated("memory", f"{member.name} keeps something of {strangers}, who are not in "
                                    "its view")

    def _note_joiners(self, sender: "Member", view: View) -> None:
        """Note where the sender's stream begins for each new member of its view, and
        which of them may miss nothing."""
        before = sender.views[-2].members if len(sender.views) > 1 else ()
        for address in set(view.members) - set(before):
            start = sender.multicast.start_of(address.incarnation)
            if start is None:
                continue
            key = (address.incarnation, sender.incarnation)
            self._starts[key] = start           # a new one, if it was excluded while it joined
            self._all_starts.setdefault(key, set()).add(start)
            receiver = self.cluster.incarnations[address.incarnation]
            self._check_inheritance(receiver, sender, before, start)
            was_there = address.name in {member.name for member in before}
            if was_there and self._resumes_all(receiver, sender):
                self._gapless.add(key)
            else:
                self._gapless.discard(key)

    def _check_inheritance(self, receiver: "Member", sender: "Member",
                           before: tuple[Address, ...], start: int) -> None:
        """Check that a new incarnation gets what the sender kept for the one before
        it."""
        for address in before:
            former = self.cluster.incarnations[address.incarnation]
            had = self.finished(former, sender)
            if (address.name == receiver.name and former.receiving and had is not None
                    and precedes(had, sender.log.end_before(start))):
                self.violated("lost", f"{receiver.name} came back and gets what follows {start} of "
                                      f"{sender.name}, which kept what follows {had} for it")

    def _resumes_all(self, receiver: "Member", sender: "Member") -> bool:
        """Return whether this incarnation resumes from all that its former ones had
        finished."""
        former = [other for other in self.cluster.incarnations.values()
                  if other.name == receiver.name and other is not receiver]
        if sender.address not in receiver.resume or not former[-1].receiving:
            return False
        resumed = receiver.resume[sender.address]
        had = [self.finished(other, sender) for other in former]
        return not any(seqno is not None and precedes(resumed, seqno) for seqno in had)

    def note_cause(self) -> None:
        """Note that from now on a member that is alive may be suspected."""

    def note_departure(self) -> None:
        """Note that a member leaves, or is to be excluded."""
        self._all_stay = False

    def stopped(self, member: "Member") -> None:
        """Check that a member stops only when its name has a later incarnation, or when
        members left: it may have been excluded, or may not have heard who has its
        name."""
        if self.cluster.members[member.name] is member and self._all_stay:
            self.violated("stopped", f"{member.name} stopped though nobody excluded it: "
                                     f"{member.fault}")

    # ------------------------------------------------------------------------------- after a turn

    def after_turn(self, member: "Member") -> None:
        """Check the windows, the tables and the connections of a member."""
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
        if member.unicast.senders or member.unicast.receivers:
            self.unicast.check_connections(member)
        low, before = ring.low, self._lows.get(member.incarnation, member.offset)
        if low != before:
            if precedes(low, before):
                self.violated("window", f"{member.name} moved LOW of its own messages back from "
                                        f"{before} to {low}")
            self._lows[member.incarnation] = low
            self._check_purge(member, low)

    def _check_windows(self, member: "Member") -> None:
        """Check the pointers and the bytes of all windows for messages to everybody."""
        config, layer = member.config, member.multicast
        # One message may exceed what a window is allowed, else it could never be sent.
        most = most_received = config.max_bytes + MAX_DATAGRAM
        if layer.receive_bytes != config.max_bytes:     # a datagram more, if it comes next
            most_received = max(MOST_ROOM * config.max_bytes, MAX_DATAGRAM) + MAX_DATAGRAM
        elif not config.discard_delivered_msgs:
            # Bounded in messages alone, until it hears what all members have.
            most_received = config.capacity * MAX_DATAGRAM
        self.check_window(member, "a window", layer.send_window.ring, most)
        for window in layer.windows.values():
            finished = window.stream.finished
            if precedes(finished, window.ring.low):
                self.violated("window", f"{member.name} gave up what it has of "
                                        f"{window.stream.sender} up to {window.ring.low}; its "
                                        f"application has finished what is up to {finished}")
            self.check_window(member, "a window", window.ring, most_received)

    def check_window(self, member: "Member", what: str, ring: "Window", most: int) -> None:
        """Check that the pointers are in order, within the capacity, and that there are
        at most so many bytes."""
        low, hd, hr = ring.low, ring.hd, ring.hr
        in_order = (hd - low) % MODULUS <= (hr - low) % MODULUS <= ring.capacity
        if not in_order or ring.nbytes > most:
            self.violated("window", f"{member.name} has {what} with LOW={low} HD={hd} HR={hr} of "
                                    f"{ring.capacity} and {ring.nbytes} bytes of at most {most}")

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
                self._check_purge(self.cluster.incarnations[stream.sender.incarnation],
                                  window.ring.low, member)

    def sent(self, member: "Member", datagram: bytes) -> None:
        """Check that a member without retransmission asks for nothing and announces no
        last seqno."""
        layer = member.multicast
        if isinstance(layer, Nakack2) and not layer.retransmits:
            header = wire.open_datagram(datagram, member.stack.group)
            if header is None or header.kind in (XMIT_REQ, HIGHEST):
                self.violated("mode", f"{member.name} does not retransmit, and sent a datagram of "
                                      f"kind {header and header.kind}")

    def _check_purge(self, sender: "Member", low: int, at: "Member | None" = None) -> None:
        """Check that every member of the view has finished what was purged, by the
        sender or by the member `at`. For a joiner the stream counts from where it
        starts."""
        for incarnation in (at or sender).multicast.members:
            receiver = self.cluster.incarnations[incarnation]
            if not receiver.receiving:
                continue
            finished = self.finished(receiver, sender)
            if finished is None or precedes(finished, sender.log.end_before(low)):
                whose = "its" if at is None else f"{sender.name}'s"
                self.violated("purge", f"{(at or sender).name} gave up {whose} messages up to "
                                       f"{low}, of which {receiver.name} has finished those up to "
                                       f"{finished}")

    def finished(self, receiver: "Member", sender: "Member") -> int | None:
        """Return up to which seqno the receiver has all of the sender's stream that is
        meant for it: what its application has finished, or where the stream begins for
        it, as far as one of them has decided that; None before."""
        finished = receiver.consumer.finished.get(sender.incarnation)
        if receiver is sender:
            return sender.offset if finished is None else finished
        begins = self._starts.get((receiver.incarnation, sender.incarnation))
        if begins is None:
            return finished
        # A message in whose middle it joined is not for it.
        begins = sender.log.end_of(begins)
        return begins if finished is None else later(begins, finished)

    # --------------------------------------------------------------------------------- at the end

    def check_agreement(self) -> None:
        """Check for each member that left in good order that all members of its last
        view have all that it sent.

        Of members that stay, everybody gets everything: the run waits for that. Of a
        member that crashed, everybody has an unbroken beginning of its stream, and at
        least what that member knew to be acknowledged: _check_purge() checks that.
        """
        for sender in self.cluster.incarnations.values():
            if not sender.left or not sender.views or sender.multicast.unacked():
                continue
            for receiver in self.cluster.living():
                if receiver.receiving and receiver.address in sender.views[-1]:
                    finished = self.finished(receiver, sender)
                    if finished is None or sender.log.end_before(finished) != sender.last:
                        self.violated("agreement", f"{receiver.name} has {sender.name}'s messages "
                                                   f"up to {finished}; it sent {sender.last} and "
                                                   "left in good order")
