"""The target `stack`: bytes as a program for a group of three. A and C are honest (the
stacks that are shipped), B is hostile.

The program says what happens next. B, or a stranger, puts datagrams of any kind and
content into what an honest member receives. The honest ones send to everybody and to
each other, deliver and finish. The network loses, repeats and reorders. Time passes.
The promises are checked after every turn. At the end, when B has sent its last and was
excluded, each message must have arrived.

These things are *not* promised, because nothing is authenticated: that B's own messages
make sense; that a member stays in the view when B calls it vacant or replaced; that C's
messages are C's after B has sent something well formed in C's name; that C gets what is
for it after B has acknowledged it or closed C's connection. From there on only those
promises are checked that hold all the same: bounds, answers, what a member sends to
itself, and that each seqno of a stream comes once and in order. And when connections of
B's many incarnations have driven out of a member's memory what it knew of a closed
connection of C's, C's messages in it may come again.
"""

import msgspec
from bounds import (
    GREETING,
    LIMIT,
    SCAN,
    check,
    check_outstanding,
    check_purged,
    note_repeats,
    num_waiting,
)
from honest import DONT_LOOPBACK, HONEST, INCARNATIONS, OOB, Honest
from hostile import HOSTILE, Hostile, runs_of

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.protocols.static_members import HELLO, Hello, Line
from ringcast.stack import Effects, group_id


class Group(Hostile):
    """One run of a program."""

    leads = False                       # B is the coordinator of every view that it is in
    spoke_early = False                 # B sent before anybody had a view: perhaps nobody has one

    def __init__(self, data: bytes, members: tuple[Honest, ...] | None = None) -> None:
        super().__init__(data, members or (Honest("A"), Honest("C")), group_id("fuzz"))
        self.now = 0
        # an honest member purged too early, because its coordinator B said so
        self.misled = False
        self.apart = False                  # a view without one of the honest members was installed
        self.begin()

    def begin(self) -> None:
        for member in self.members:
            member.endpoint.start(self.now)
            self.turn(member)
        table = {name: Line(1, incarnation) for name, incarnation in INCARNATIONS.items()}
        hello = msgspec.msgpack.encode(Hello("B", "b", table, False, {}))
        for member in self.members:
            member.arriving.append(wire.make_datagram(HELLO, self.id, HOSTILE, EVERYONE, hello))
        for _ in range(4):
            self.before_views()
            for member in self.members:
                self.turn(member, len(member.arriving))
            self.now += GREETING
        for member in self.members:
            has_joined = member.multicast.starts.joiners.keys() == {HOSTILE}
            assert self.spoke_early or (member.view_id and has_joined)

    def before_views(self) -> None:
        """Let B send before anybody has a view."""

    def run(self) -> None:
        while not self.program.is_over():
            act = self.program.choice(self.ACTS)
            act(self, self.program.choice(self.members))
        self.settle()

    # ------------------------------------------------------ what the honest ones and the network do

    def send(self, member: Honest) -> None:
        for _ in range(1 + self.program.byte() % 5):
            member.send(EVERYONE, self.program.byte(), 0, self.now)
        member.flush(EVERYONE, self.now)
        self.turn(member)

    def send_anywhere(self, member: Honest) -> None:
        """Send to one member or all, with any flags."""
        other = self.members[member is self.members[0]]
        dest = self.program.choice((other.incarnation, other.incarnation,
                                    self.incarnation_of(member), EVERYONE, member.incarnation))
        for _ in range(1 + self.program.byte() % 5):
            flags = self.program.choice((0, 0, OOB, DONT_LOOPBACK))
            size = self.program.byte()
            member.send(dest, size if size < 240 else (size - 239) * 200, flags, self.now)
        member.flush(dest, self.now)
        self.turn(member)

    def send_unreliable(self, member: Honest) -> None:
        other = self.members[member is self.members[0]]
        dest = self.program.choice((other.incarnation, EVERYONE, self.incarnation_of(member),
                                    member.incarnation))
        size, flags = self.program.byte(), self.program.choice((0, DONT_LOOPBACK))
        member.send_unreliable(dest, size, flags, self.now)
        self.turn(member)

    def finish(self, member: Honest) -> None:
        if member.outstanding and not member.stopped:
            member.finish(self.now)
        self.turn(member)

    def take_some(self, member: Honest) -> None:
        self.turn(member, 1 + self.program.byte() % 4)

    def take_all(self, member: Honest) -> None:
        self.turn(member, len(member.arriving))

    def lose(self, member: Honest) -> None:
        if member.arriving:
            del member.arriving[self.program.byte() % len(member.arriving)]

    def disorder(self, member: Honest) -> None:
        if member.arriving:
            datagram = member.arriving[self.program.byte() % len(member.arriving)]
            member.arriving.insert(self.program.byte() % len(member.arriving), datagram)

    def wait(self, member: Honest) -> None:
        self.now += self.program.choice((1, SCAN // 3, SCAN, SCAN, 3 * SCAN, 10 * GREETING,
                                         1_000_000_000))
        for each in self.members:
            self.turn(each)

    def slow_down(self, member: Honest) -> None:
        member.limit = self.program.choice((0, 1, 3, LIMIT))

    def exclude(self, member: Honest) -> None:
        if not member.stopped:
            member.members.exclude("B", self.now)
        self.turn(member)

    ACTS = (Hostile.nonsense, Hostile.sealed_nonsense, Hostile.sealed_nonsense,
            Hostile.forged_numbers, Hostile.forged_numbers, Hostile.forged_numbers,
            Hostile.forged_request, Hostile.forged_request, Hostile.forged_hello,
            Hostile.forged_hello, Hostile.forged_data, Hostile.forged_data, Hostile.forged_data,
            Hostile.come_back, send, send, send, finish, finish, take_some, take_all, take_all,
            lose, disorder, wait, wait, slow_down, exclude, send_anywhere, send_anywhere,
            send_anywhere, send_unreliable, Hostile.forged_messages, Hostile.forged_messages,
            Hostile.forged_messages, Hostile.forged_control, Hostile.forged_control,
            Hostile.forged_control, Hostile.acknowledge, Hostile.forged_unreliable)

    # --------------------------------------------------------------------------------------- a turn

    def turn(self, member: Honest, count: int = 0) -> None:
        """Take a turn as the driver does, with `count` datagrams that arrive."""
        if member.stopped:
            member.arriving.clear()
            return
        datagrams = self.read(member, count)
        member.num_turns += 1
        news, member.news = member.news, []
        member.num_links += len(news)
        if datagrams:
            self.count_arrived(member, datagrams)
        member.endpoint.receive(datagrams, news, self.now)
        member.endpoint.tick(self.now)
        member.endpoint.max_undelivered = member.limit
        member.endpoint.deliver(self.now)
        while not self.perform(member, member.endpoint.take()):
            for dest in list(member.large):
                member.continue_large(dest, self.now)
        self.note_forgotten(member)
        check(member, self.now)
        check_outstanding(member)
        if not self.spoofed and not self.apart:
            self.misled |= not check_purged(member, self.members, self.leads)

    def read(self, member: Honest, count: int) -> list[bytes]:
        datagrams, member.arriving = member.arriving[:count], member.arriving[count:]
        return datagrams

    def count_arrived(self, member: Honest, datagrams: list[bytes]) -> None:
        """Count what the stack must refuse, by reason. Note what has flags: it comes
        out of order or in parts."""
        member.num_arrived += len(datagrams)
        num_messages = num_waiting(member)
        for datagram in datagrams:
            header = wire.open_datagram(datagram, self.id)
            if header is None:
                member.refused["malformed"] += 1
            elif header.sender == member.incarnation or header.dest not in (
                    EVERYONE, member.incarnation):
                member.refused["not_for_me"] += 1
            elif header.kind not in member.stack.kinds:
                member.refused["unhandled"] += 1
            else:
                member.arrived[header.kind] += 1
                body = datagram[wire.HEADER_SIZE:]
                for first, flags, payloads in runs_of(header.kind, body) or ():
                    num_messages += len(payloads)
                    if flags and header.sender not in HONEST:
                        seqnos = ((first + step) % 2**64 for step in range(len(payloads)))
                        member.flagged.setdefault(header.sender, set()).update(seqnos)
        member.most_messages = max(member.most_messages, num_messages)

    def perform(self, member: Honest, effects: Effects) -> bool:
        """Perform effects. Return False if a large message may go on."""
        for dest, datagram in effects.packets:
            header = wire.open_datagram(datagram, self.id)
            assert header.sender == member.incarnation and header.dest == dest
            assert len(datagram) <= 65_507
            member.sent[header.kind] += 1
            note_repeats(member, header.kind, dest, datagram, self.now)
            for other in self.members:
                if other is not member and dest in (EVERYONE, other.incarnation):
                    other.arriving.append(datagram)
        for view in effects.views:
            assert view.id > member.view_id and member.address in view
            member.view_id = view.id
            member.num_views += 1
            self.apart |= any(other.address not in view for other in self.members)
        senders = {each.incarnation: each for each in self.members
                   if each is member or not self.spoofed}
        for batch in effects.deliveries:
            member.deliver(batch, senders, self.apart)
        for batch in effects.failures:
            assert self.spoofed or self.apart or batch.dest.incarnation not in HONEST, batch
            member.check_failure(batch)
        if effects.held is not None:
            member.held = effects.held
        if effects.fault is not None:
            self.apart = member.stopped = True
        return member.stopped or not effects.writable or not member.large

    def note_forgotten(self, member: Honest) -> None:
        """Note of which honest members' connections nothing is known any more."""
        unicast = member.unicast
        known = {sender for sender in HONEST if sender in unicast.receivers
                 or unicast.closed.get(sender) is not None}
        member.forgot |= member.remembered - known
        member.remembered = known

    # -------------------------------------------------------------------------------------- the end

    def settle(self) -> None:
        """Exclude B, lose nothing more, and check that the honest members get
        everything and can go on."""
        for member in self.members:
            member.limit = LIMIT
            self.take_all(member)               # what B sent last
        for member in self.members:
            self.exclude(member)
        for _ in range(10 if self.spoofed or self.apart or self.misled else 600):
            for member in self.members:
                self.turn(member, len(member.arriving))
                while member.outstanding and not member.stopped:
                    self.finish(member)
            if not any(member.arriving for member in self.members):
                if self.owed() is None:
                    break
                self.now = max(self.now + 1, min(member.stack.deadline() or self.now + SCAN
                                                 for member in self.members))
        for member in self.members:
            status = member.stack.status()
            assert {name: status[name] for name in member.refused} == member.refused
        if not self.spoofed and not self.apart and not self.misled:
            assert self.owed() is None, self.owed()

    def owed(self) -> str | None:
        """Return a sentence on what is still to come, or None."""
        for member in self.members:
            for sender in self.members:
                if (lacking := member.find_missing(sender)) is not None:
                    return lacking
            if member.multicast.unacked():
                return f"{member.multicast.unacked()} messages of {member.name} are unacknowledged"
            if member.multicast.members.keys() != set(HONEST):
                return f"{member.name} still has another member in its view"
            for peer, entry in member.unicast.senders.items():
                if peer not in HONEST:
                    return f"{member.name} still keeps a connection to {entry.dest}"
                if entry.num_unacked():
                    return f"{entry.num_unacked()} of {member.name} to {entry.dest} unacknowledged"
        return None
