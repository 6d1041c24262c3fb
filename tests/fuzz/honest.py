"""An honest member of the group that is fuzzed: the stack as it is shipped, what its
application said and heard, and what of that is promised. Every message carries its
number, counted for each of those to whom its sender speaks, so that it can be told what
it is."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ringcast import Address, Flag, NotMemberError
from ringcast._core.batch import Batch
from ringcast._core.send_window import SendWindow
from ringcast.address import EVERYONE
from ringcast.config import configure
from ringcast.endpoint import Endpoint, Fragments
from ringcast.flags import FRAGMENT
from ringcast.protocols.seqnos import MODULUS

NAMES = ("A", "B", "C")
INCARNATIONS = {"A": 0x1111_0000_0001, "B": 0x2222_0000_0002, "C": 0x3333_0000_0003}
HONEST = (INCARNATIONS["A"], INCARNATIONS["C"])
OPTIONS = {"capacity": 8, "max_bytes": 1500, "xmit_interval": 3, "hello_interval": 20,
           "max_bundle_size": 600,
           "ack_threshold": 3, "max_message_size": 4000, "conn_expiry_timeout": 500,
           "conn_close_timeout": 100,
           "max_closed_connections": 4, "stable_interval": 5, "stable_bytes": 1000,
           "become_server_queue_size": 10, "gap_timeout": 6}
CONFIG = configure(OPTIONS)
LARGE = 2500                            # bytes of the largest message that B sends in one piece
OOB, DONT_LOOPBACK, NO_RELIABILITY = int(Flag.OOB), int(Flag.DONT_LOOPBACK), int(Flag.NO_RELIABILITY)


@dataclass(slots=True)
class Said:
    """A message that was accepted."""

    payload: bytes
    flags: int
    window: SendWindow
    seqno: int                          # in that window, of its last fragment


@dataclass(slots=True)
class Heard:
    """What came of what one honest member said to everybody, or to this member:
    numbers."""

    last: int = -1                      # of those in order
    oob: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Seen:
    """What came of a stream, whoever sends it: seqnos."""

    next: int | None = None             # after the last one in order
    oob: set[int] = field(default_factory=set)


class Honest:
    """A member of a group with `stack` and, besides those of CONFIG, `options`. `names`
    is the list of members, in the order that views are to have."""

    def __init__(self, name: str, stack: str = "mcast-udp", names: tuple[str, ...] = NAMES,
                 **options: Any) -> None:
        self.name, self.incarnation = name, INCARNATIONS[name]
        self.address = Address(name, self.incarnation)
        self.endpoint = Endpoint(stack, self.address, names, configure(OPTIONS | options, stack),
                                 group="fuzz", physical=name,
                                 receive_budget=1 << 16)
        self.stack, self.members = self.endpoint.stack, self.endpoint.members
        self.multicast, self.unicast = self.endpoint.multicast, self.endpoint.unicast
        self.unreliable = self.endpoint.unreliable
        # The layer has ordered its table by name, and so B would never be the
        # coordinator.
        self.members.table = {name: self.members.table[name] for name in names}

        self.said: dict[int, list[Said]] = {EVERYONE: []}    # by the one it was said to
        self.purged = dict.fromkeys((EVERYONE, *HONEST), 0)  # how many of these are known to be
                                                             # finished by all
        self.large: dict[int, Fragments] = {}                # what waits for room
        self.shouted: set[bytes] = set()                     # without a seqno
        self.num_shouted = 0                                 # over the network

        self.heard = {(sender, dest): Heard() for sender in HONEST
                      for dest in (EVERYONE, self.incarnation)}
        self.seen: dict[Any, Seen] = {}                       # by the stream
        self.flagged: dict[int, set[int]] = {}                # seqnos that came with flags, by
                                                              # their sender, if that is not honest
        self.outstanding: list[tuple[Batch, list[int]]] = []  # with the numbers of what honest
                                                              # members said
        self.limit = 100

        self.arriving: list[bytes] = []         # on the network, or in its socket
        self.held: set[int] = set()             # whose datagrams it does not read
        self.news: list[int] = []               # to whom there is a new connection
        self.view_id = 0
        self.stopped = False
        # what its counters must say
        self.refused = {"malformed": 0, "not_for_me": 0, "unhandled": 0}
        self.sent: Counter[int] = Counter()            # packets, by kind
        self.arrived: Counter[int] = Counter()         # of those that it must look at
        self.most_messages = 0                         # in the datagrams of one turn
        self.repeats: list[tuple[int, int, int]] = []  # (when, to whom, bytes) in the last interval
        self.resent: list[tuple[int, int, int]] = []   # the same over connections, since RESYNC was
                                                       # last answered
        self.uttered: dict[int, set[bytes]] = {}       # payloads that went out to one member
        self.remembered: set[int] = set()              # honest members of whose connections
                                                       # something was known after the last turn
        self.forgot: set[int] = set()                  # those of whom nothing is known any more:
                                                       # what they say may come again
        self.num_arrived = self.num_finished = self.num_views = self.num_turns = self.num_links = self.num_switches = 0

    # -------------------------------------------------------------------------------------- sending

    def window(self, dest: int, now: int) -> SendWindow | None:
        """For what goes to `dest`, when that may be written to."""
        try:
            return self.endpoint.window(self.member(dest), now)
        except NotMemberError:
            return None

    def member(self, dest: int) -> Address | None:
        return None if dest == EVERYONE else self.unicast.members.get(dest, Address("nobody", dest))

    def flush(self, dest: int, now: int, full_only: bool = False) -> None:
        self.endpoint.bundler.flush(self.member(dest), now, full_only)

    def say(self, dest: int, size: int, flags: int, now: int) -> None:
        """A message that is taken now, if there is room; or a large one, which waits
        for room."""
        if self.stopped or dest in self.large:
            return
        said = self.said.setdefault(dest, [])
        payload = b"%s%d." % (self.name.encode(), len(said)) + bytes(size)
        if len(payload) > CONFIG.max_bundle_size:
            self.large[dest] = Fragments(payload, flags, CONFIG)
            self.go_on(dest, now)
            return
        window = self.window(dest, now)
        if window is not None and window.push_many([payload], 0, flags):
            said.append(Said(payload, flags, window, window.ring.next_seqno - 1))

    def go_on(self, dest: int, now: int) -> None:
        """Send of a large message what finds room; a new connection gets all of it."""
        large, window = self.large[dest], self.window(dest, now)
        if window is None:
            del self.large[dest]                                # the application is told
            return
        while not large.is_sent and large.push(window):
            self.flush(dest, now, full_only=True)
        if large.is_sent:
            del self.large[dest]
            self.said[dest].append(Said(large.payload, large.flags & ~FRAGMENT, window,
                                        window.ring.next_seqno - 1))
        self.flush(dest, now)

    def shout(self, dest: int, size: int, flags: int, now: int) -> None:
        """Without a seqno."""
        if self.stopped or (dest != EVERYONE and dest not in self.unicast.members):
            return
        payload = b"%s!%d" % (self.name.encode(), len(self.shouted)) + bytes(size)
        self.shouted.add(payload)
        self.num_shouted += dest != self.incarnation
        self.endpoint.send_unreliable(payload, self.member(dest), flags, now)

    def failed(self, batch: Batch) -> None:
        """Messages that their receiver does not get: these it was sent, or the end of
        one."""
        said = self.said[batch.dest.incarnation]
        for payload in batch.payloads:
            assert any(each.payload == payload or (batch.flags & Flag.INCOMPLETE
                                                   and each.payload.endswith(payload))
                       for each in said)

    # ------------------------------------------------------------------------------------ receiving

    def take(self, batch: Batch, senders: "dict[int, Honest]", apart: bool) -> None:
        """The application is handed a batch. `senders` are the honest ones whose
        messages are known to be theirs."""
        source, dest = batch.sender.incarnation, EVERYONE if batch.dest is None else batch.dest.incarnation
        assert batch.payloads and dest in (EVERYONE, self.incarnation)
        assert batch.flags in (0, OOB, NO_RELIABILITY)
        numbers: list[int] = []
        if batch.flags & NO_RELIABILITY:
            assert batch.first == 0 and len(batch) == 1
            assert source not in senders or batch.payloads[0] in senders[source].shouted
        else:
            self.follow(batch, source)
            if source in senders:
                numbers = [self.hear(senders[source], dest, payload, batch.flags, apart)
                           for payload in batch.payloads]
        self.outstanding.append((batch, numbers))

    def follow(self, batch: Batch, source: int) -> None:
        """Of anybody: each seqno of a stream once, those in order in order, and nothing
        left out but what had flags."""
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
                assert all((seen.next + step) % MODULUS in self.flagged.get(source,
                                                                            ()) for step in range(skipped)), batch
        seen.next = (batch.last + 1) % MODULUS

    def hear(self, sender: "Honest", dest: int, payload: bytes, flags: int, apart: bool) -> int:
        """Of an honest member: everything, as it was said, once, and in order unless it
        is OOB. Its number."""
        number = int(payload[1:].partition(b".")[0])
        said, heard = sender.said[dest], self.heard[sender.incarnation, dest]
        assert said[number].payload == payload and (said[number].flags ^ flags) & OOB == 0
        may_come_again = dest != EVERYONE and sender.incarnation in self.forgot
        if flags & OOB:
            assert number not in heard.oob or may_come_again, (self.name, sender.name, number)
            heard.oob.add(number)
            return number
        assert number > heard.last or may_come_again, (self.name, sender.name, number, heard.last)
        if dest == EVERYONE or not apart:
            assert not [each for each in range(heard.last + 1,
                                               number) if sender.is_owed(self, dest, each)], (
                self.name, number, heard)
        heard.last = number
        return number

    def is_owed(self, receiver: "Honest", dest: int, number: int) -> bool:
        """Whether this member's message is one that the receiver must get in order."""
        flags = self.said[dest][number].flags
        return not flags & OOB and not (receiver is self and flags & DONT_LOOPBACK)

    def finish(self, now: int) -> None:
        """The application has finished what it has had in its hands for longest."""
        batch, numbers = self.outstanding.pop(0)
        if numbers:
            dest = EVERYONE if batch.dest is None else self.incarnation
            self.heard[batch.sender.incarnation, dest].finished.update(numbers)
        self.num_finished += 1
        self.endpoint.finish((batch,), now)

    def lacks(self, sender: "Honest") -> str | None:
        """What an honest member said and this one has not heard, or None."""
        for dest in (EVERYONE, self.incarnation):
            heard = self.heard[sender.incarnation, dest]
            for number, message in enumerate(sender.said.get(dest, ())):
                has_come = number in heard.oob if message.flags & OOB else number <= heard.last
                if not has_come and not (self is sender and message.flags & DONT_LOOPBACK):
                    return f"{self.name} lacks message {number} of {sender.name} to {dest:#x}"
            if dest in sender.large:
                return f"{sender.name} has no room for the rest of a message to {dest:#x}"
        return None
