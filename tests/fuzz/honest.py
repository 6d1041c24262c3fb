"""An honest member of the group that is fuzzed: the stack as it is shipped, what its
application sent and received, and what of that is promised. A message carries its
number, counted for each destination of its sender, so that a receiver can tell which
one it is."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringcast import Address, Flag, NotMemberError
from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast.address import EVERYONE
from ringcast.config import configure, own_options
from ringcast.endpoint import Endpoint, Fragments
from ringcast.flags import FRAGMENT
from ringcast.protocols.seqnos import MODULUS

if TYPE_CHECKING:
    from ringcast.sim.sealing import Sealing

NAMES = ("A", "B", "C")
INCARNATIONS = {"A": 0x1111_0000_0001, "B": 0x2222_0000_0002, "C": 0x3333_0000_0003}
HONEST = (INCARNATIONS["A"], INCARNATIONS["C"])
OPTIONS = {"capacity": 8, "max_bytes": 1500, "xmit_interval": 3, "max_bundle_size": 600,
           "heartbeat_interval": 200, "suspect_timeout": 20_000, "seek_interval": 5,
           "form_margin": 20, "ack_threshold": 3, "max_message_size": 4000,
           "conn_expiry_timeout": 500, "conn_close_timeout": 100, "max_closed_connections": 4,
           "stable_interval": 5, "stable_bytes": 1000, "become_server_queue_size": 10,
           "gap_timeout": 6}
CONFIG = configure(OPTIONS, "nakack2-tcp")        # which has all of them
LARGE = 2500                            # bytes of the largest message that B sends in one piece
OOB, DONT_LOOPBACK = int(Flag.OOB), int(Flag.DONT_LOOPBACK)
NO_RELIABILITY = int(Flag.NO_RELIABILITY)


@dataclass(slots=True)
class Accepted:
    """A message that a window accepted."""

    payload: bytes
    flags: int
    window: SendWindow
    seqno: int                          # in that window, of its last fragment


@dataclass(slots=True)
class Received:
    """The numbers of what one honest member sent to all, or to this member."""

    last: int = -1                      # of those in order
    oob: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Seen:
    """The seqnos of a stream that came, of any sender."""

    next: int | None = None             # after the last one in order
    oob: set[int] = field(default_factory=set)


class Honest:
    """A member of a group with `stack` and the `options` besides those of CONFIG. It
    has a seal if the group has a `sealing`."""

    def __init__(self, name: str, stack: str = "mcast-udp", sealing: "Sealing | None" = None,
                 **options: Any) -> None:
        self.name, self.incarnation = name, INCARNATIONS[name]
        self.address = Address(name, self.incarnation)
        config = configure(own_options(OPTIONS | options, stack), stack)
        keyring = sealing.keyring(self.incarnation, name) if sealing is not None else None
        self.seal = sealing.seal(self.incarnation, keyring) if sealing is not None else None
        self.endpoint = Endpoint(stack, self.address, config, group="fuzz", physical=name,
                                 receive_budget=1 << 16, sealed=sealing is not None,
                                 keyring=keyring)
        self.stack, self.members = self.endpoint.stack, self.endpoint.members
        self.multicast, self.unicast = self.endpoint.multicast, self.endpoint.unicast
        self.unreliable = self.endpoint.unreliable

        self.accepted: dict[int, list[Accepted]] = {EVERYONE: []}   # by destination
        self.purged = dict.fromkeys((EVERYONE, *HONEST), 0)         # how many of them all finished
        self.large: dict[int, Fragments] = {}                       # what waits for room
        self.sent_unreliable: set[bytes] = set()
        self.num_unreliable = 0                                     # over the network

        self.received = {(sender, dest): Received() for sender in HONEST
                         for dest in (EVERYONE, self.incarnation)}
        self.seen: dict[Any, Seen] = {}                             # by the stream
        # seqnos that came with flags, by their sender, if that is not honest
        self.flagged: dict[int, set[int]] = {}
        # with the numbers of the messages, if their sender is honest
        self.outstanding: list[tuple[Batch, list[int]]] = []
        self.limit = 100

        self.arriving: list[bytes] = []         # on the network, or in its socket
        self.news: list[int] = []               # to whom there is a new connection
        self.view_id = 0
        self.view: tuple[Address, ...] = ()     # that its application was shown last
        self.stopped = False
        # what its counters must say
        self.refused = {"malformed": 0, "not_for_me": 0, "unhandled": 0}
        self.num_bad_needs = 0                  # of the state's layer, which counts them so
        self.sent: Counter[int] = Counter()             # packets, by kind
        self.arrived: Counter[int] = Counter()          # of those that it must look at
        self.most_messages = 0                          # in the datagrams of one turn
        # (when, to whom, bytes) in the last interval
        self.repeats: list[tuple[int, int, int]] = []
        # the same over connections, since a RESYNC was last answered
        self.resent: list[tuple[int, int, int]] = []
        self.sent_payloads: dict[int, set[bytes]] = {}  # that went out to one member
        # honest members of whose connections something was known after the last turn
        self.remembered: set[int] = set()
        # those of whom nothing is known any more: their messages may come again
        self.forgot: set[int] = set()
        self.num_arrived = self.num_finished = self.num_views = self.num_turns = 0
        self.num_links = self.num_switches = 0
        self.most_peers = len(NAMES) - 1        # other members that its views had at most

    # -------------------------------------------------------------------------------------- sending

    def window(self, dest: int, now: int) -> SendWindow | None:
        """Return the window for what goes to `dest`, when that may be written to."""
        try:
            return self.endpoint.window(self.member(dest), now)
        except NotMemberError:
            return None

    def member(self, dest: int) -> Address | None:
        return None if dest == EVERYONE else self.unicast.members.get(dest, Address("nobody", dest))

    def flush(self, dest: int, now: int, full_only: bool = False) -> None:
        self.endpoint.bundler.flush(self.member(dest), now, full_only)

    def send(self, dest: int, size: int, flags: int, now: int) -> None:
        """Send a message if there is room, or a large one, which waits for room."""
        if self.stopped or dest in self.large:
            return
        accepted = self.accepted.setdefault(dest, [])
        payload = b"%s%d." % (self.name.encode(), len(accepted)) + bytes(size)
        if len(payload) > CONFIG.max_bundle_size:
            self.large[dest] = Fragments(payload, flags, CONFIG)
            self.continue_large(dest, now)
            return
        window = self.window(dest, now)
        if window is not None and window.push_many([payload], 0, flags):
            accepted.append(Accepted(payload, flags, window, window.ring.next_seqno - 1))

    def continue_large(self, dest: int, now: int) -> None:
        """Send of a large message what finds room. A new connection gets all of it."""
        large, window = self.large[dest], self.window(dest, now)
        if window is None:
            del self.large[dest]                                # the application is told
            return
        while not large.is_sent and large.push(window):
            self.flush(dest, now, full_only=True)
        if large.is_sent:
            del self.large[dest]
            message = Accepted(large.payload, large.flags & ~FRAGMENT, window,
                               window.ring.next_seqno - 1)
            self.accepted[dest].append(message)
        self.flush(dest, now)

    def send_unreliable(self, dest: int, size: int, flags: int, now: int) -> None:
        """Send a message without a seqno."""
        if self.stopped or (dest != EVERYONE and dest not in self.unicast.members):
            return
        payload = b"%s!%d" % (self.name.encode(), len(self.sent_unreliable)) + bytes(size)
        self.sent_unreliable.add(payload)
        self.num_unreliable += dest != self.incarnation
        self.endpoint.send_unreliable(payload, self.member(dest), flags, now)

    def check_failure(self, batch: Batch) -> None:
        """Check that messages which their receiver does not get were sent to it: each
        whole, or its end."""
        accepted = self.accepted[batch.dest.incarnation]
        for payload in batch.payloads:
            assert any(each.payload == payload or (batch.flags & Flag.INCOMPLETE
                                                   and each.payload.endswith(payload))
                       for each in accepted)

    # ------------------------------------------------------------------------------------ receiving

    def deliver(self, batch: Batch, senders: "dict[int, Honest]", apart: bool) -> None:
        """Take a batch for the application. `senders` are the honest ones whose
        messages are known to be theirs. When they were `apart`, streams may have begun
        anew."""
        source = batch.sender.incarnation
        dest = EVERYONE if batch.dest is None else batch.dest.incarnation
        assert batch.payloads and dest in (EVERYONE, self.incarnation)
        assert batch.flags in (0, OOB, NO_RELIABILITY)
        numbers: list[int] = []
        if batch.flags & NO_RELIABILITY:
            assert batch.first == 0 and len(batch) == 1
            assert source not in senders or batch.payloads[0] in senders[source].sent_unreliable
        else:
            self.check_seqnos(batch, source)
            if source in senders:
                numbers = [self.check_message(senders[source], dest, payload, batch.flags, apart)
                           for payload in batch.payloads]
        self.outstanding.append((batch, numbers))

    def check_seqnos(self, batch: Batch, source: int) -> None:
        """Check, whoever sends a stream, that each of its seqnos comes once, those in
        order in order, and that none is left out but what had flags."""
        seen = self.seen.setdefault(batch.stream, Seen())
        if batch.flags & OOB:
            seqnos = {(batch.first + step) % MODULUS for step in range(len(batch))}
            assert not seqnos & seen.oob, batch
            seen.oob |= seqnos
            return
        if seen.next is not None:
            skipped = (batch.first - seen.next) % MODULUS
            assert skipped < MODULUS // 2, batch
            if source not in HONEST:
                flagged = self.flagged.get(source, ())
                seqnos = ((seen.next + step) % MODULUS for step in range(skipped))
                assert all(seqno in flagged for seqno in seqnos), batch
        seen.next = (batch.last + 1) % MODULUS

    def check_message(self, sender: "Honest", dest: int, payload: bytes, flags: int,
                      apart: bool) -> int:
        """Check that everything of an honest member comes as it was sent, once, and in
        order unless it is OOB. Return the message's number."""
        number = int(payload[1:].partition(b".")[0])
        message, received = sender.accepted[dest][number], self.received[sender.incarnation, dest]
        assert message.payload == payload and (message.flags ^ flags) & OOB == 0
        may_come_again = apart or (dest != EVERYONE and sender.incarnation in self.forgot)
        if flags & OOB:
            assert number not in received.oob or may_come_again, (self.name, sender.name, number)
            received.oob.add(number)
            return number
        assert number > received.last or may_come_again, (self.name, sender.name, number, received)
        if not apart:
            skipped = [each for each in range(received.last + 1, number)
                       if sender.owes(self, dest, each)]
            assert not skipped, (self.name, number, received)
        received.last = number
        return number

    def owes(self, receiver: "Honest", dest: int, number: int) -> bool:
        """Say whether the receiver must get this member's message in order."""
        flags = self.accepted[dest][number].flags
        return not flags & OOB and not (receiver is self and flags & DONT_LOOPBACK)

    def finish(self, now: int) -> None:
        """Finish the batch that has been outstanding for longest."""
        batch, numbers = self.outstanding.pop(0)
        if numbers:
            dest = EVERYONE if batch.dest is None else self.incarnation
            self.received[batch.sender.incarnation, dest].finished.update(numbers)
        self.num_finished += 1
        self.endpoint.finish((batch,), now)

    def find_missing(self, sender: "Honest") -> str | None:
        """Return a sentence on what this one lacks of an honest member, or None."""
        for dest in (EVERYONE, self.incarnation):
            received = self.received[sender.incarnation, dest]
            for number, message in enumerate(sender.accepted.get(dest, ())):
                is_oob = message.flags & OOB
                has_come = number in received.oob if is_oob else number <= received.last
                if not has_come and not (self is sender and message.flags & DONT_LOOPBACK):
                    return f"{self.name} lacks message {number} of {sender.name} to {dest:#x}"
            if dest in sender.large:
                return f"{sender.name} has no room for the rest of a message to {dest:#x}"
        return None
