"""The target `forming`: bytes as a program for a group that forms itself. A and C are
honest, B is hostile: a member of their view, or somebody who is not in it.

B says whatever members say to each other about the group, in anybody's name, damaged or
not, with numbers that mean something or none. The honest ones send, deliver and finish;
the network loses, repeats and reorders; time passes. After every turn nothing has been
raised and all tables are small. At the end B falls silent. Then A and C have one view,
both of them and nobody else, and what they send from then on arrives.

These things are *not* promised, because nothing is authenticated: that a view has the
members that it should while B speaks, that the honest ones go together to it, and that
all is delivered that was sent meanwhile. A member that has no view may be told that its
name is taken, or that the group has other terms; it stops, and then the run is over.
"""

from typing import Any

import msgspec
from honest import INCARNATIONS
from hostile import EDGES, HOSTILE, STRANGER, Program

from ringcast import Address
from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS, configure
from ringcast.endpoint import Endpoint
from ringcast.protocols.membership import coordinator, messages, sense
from ringcast.protocols.membership.messages import Gone, Install, Prepare, Quorum, Seat
from ringcast.protocols.multicast import base, flush
from ringcast.protocols.multicast.windows import MOST_LEAVING
from ringcast.stack import group_id

MS = 1_000_000
OPTIONS = {"capacity": 8, "max_bytes": 1500, "xmit_interval": 3, "max_bundle_size": 600,
           "heartbeat_interval": 20, "suspect_timeout": 100, "seek_interval": 5, "form_margin": 20,
           "stable_interval": 5}
STACKS = ("mcast-udp", "nakack2-udp", "nakack2-tcp")
NAMES = ("A", "C")
LONG = 120_000 * MS                     # after which the honest ones must be one group


class Member:
    """An honest member, and what came to its application."""

    def __init__(self, name: str, stack: str) -> None:
        self.address = Address(name, INCARNATIONS[name])
        config = configure(OPTIONS, stack)
        self.endpoint = Endpoint(stack, self.address, None, config, group="fuzz", physical=name,
                                 receive_budget=1 << 16)
        self.layer, self.multicast = self.endpoint.members, self.endpoint.multicast
        self.arriving: list[bytes] = []
        self.outstanding: list[Any] = []
        self.got: set[tuple[int, bytes]] = set()
        self.members: tuple[Address, ...] = ()          # of the view that it was shown last
        self.num_sent = 0
        self.fault: str | None = None

    @property
    def incarnation(self) -> int:
        return self.address.incarnation


class FormingGroup:
    """One run of a program. The first byte chooses the stack, and whether B is in the
    view."""

    def __init__(self, data: bytes) -> None:
        self.program, self.id = Program(data), group_id("fuzz")
        first = self.program.byte()
        self.members = [Member(name, STACKS[first % 3]) for name in NAMES]
        self.terms = self.members[0].layer.meeting.terms
        self.now = 1_000 * MS
        self.prepared: Prepare | None = None            # the last view that B was asked for
        self.is_over = False
        for member in self.members:
            member.endpoint.start(self.now)
            self.turn(member)
        if first & 4:
            self.seek(self.members[0])
        if first & 8:
            self.pass_time(200 * MS, self.answer if first & 4 else None)

    def run(self) -> None:
        while not self.program.is_over() and not self.is_over:
            act = self.program.choice(self.ACTS)
            act(self, self.program.choice(self.members))
        self.settle()

    # ------------------------------------------------------------------------------ what B says

    def say(self, target: Member, kind: int, body: object, sender: int = HOSTILE,
            dest: int = EVERYONE) -> None:
        datagram = wire.make_datagram(kind, self.id, sender, dest, msgspec.msgpack.encode(body))
        target.arriving.append(datagram)

    def forge(self, target: Member, kind: int, body: object) -> None:
        """Say it in the name of B, mostly; sometimes in that of another one."""
        other = self.members[target is self.members[0]]
        sender = self.program.choice((HOSTILE, HOSTILE, other.incarnation, STRANGER))
        self.say(target, kind, body, sender)

    def seek(self, target: Member) -> None:
        """Ask to be let in, as an honest member would."""
        for member in self.members:
            self.say(member, messages.SEEK, messages.Seek("B", "b", self.terms))

    def answer(self, target: Member) -> None:
        """Go along with the last PREPARE."""
        if (prepare := self.prepared) is None:
            return
        seat = prepare.seat(HOSTILE)
        digest = {HOSTILE: 0}
        if seat is not None and seat.before:
            digest |= {member.incarnation: member.multicast.send_window.sent
                       for member in self.members}
        for member in self.members:
            self.say(member, messages.REPORT, messages.Report(
                prepare.id, seat.before if seat else 0, digest, []))
            self.say(member, messages.INSTALLED, messages.Installed(prepare.id, True))

    def number(self, target: Member) -> int:
        """Return an edge, or a number that means something to the target."""
        which = self.program.byte()
        if which < 64:
            return max(0, EDGES[which % len(EDGES)])
        window = target.multicast.send_window
        pointers = [window.sent, window.ring.low, *INCARNATIONS.values(), STRANGER,
                    *(each.ring.hr for each in target.multicast.windows.values())]
        return (pointers[which % len(pointers)] + self.program.byte() % 32 - 8) % 2**64

    def view_id(self, target: Member) -> int:
        """Return an id that is known, or one above it, far or near."""
        layer, which = target.layer, self.program.byte()
        known = [layer.view_id, layer.promised, self.prepared.id if self.prepared else 0,
                 target.layer.ceiling.counter << sense.COUNTER]
        steps = (0, 0, 0, 1 << 32, 1 << 33, 1 << 40, 1 << 42, -(1 << 32), 1)
        maker = (0, HOSTILE & 0xFFFFFFFF)[which >> 7]
        return max(0, known[which % 4] + steps[which % len(steps)] + maker) % 2**64

    def incarnation(self) -> int:
        return self.program.choice((*INCARNATIONS.values(), STRANGER, 0, 2**64 - 1))

    def seats(self, target: Member) -> list[Seat]:
        """Return seats of members that exist or not, now and then some of them
        twice."""
        layer = target.layer
        befores = (layer.view_id, layer.view_id, 0, self.view_id(target))
        seats = list(layer.members.values())[:self.program.byte() % 4]
        for _ in range(self.program.byte() % 4):
            incarnation = self.incarnation()
            name = self.program.choice(("A", "B", "C", "D", str(incarnation)))
            seats.append(Seat(name, incarnation, "x", 0))
        seats = seats or [Seat("B", HOSTILE, "b", 0)]
        if self.program.byte() & 3:                     # mostly without the nonsense
            seats = list({seat.name: seat for seat in
                          {seat.incarnation: seat for seat in seats}.values()}.values())
        return [Seat(seat.name, seat.incarnation, seat.physical, self.program.choice(befores),
                     self.number(target)) for seat in seats]

    def install(self, target: Member) -> Install:
        view_id, seats = self.view_id(target), self.seats(target)
        gone = [Gone(self.incarnation(), self.program.choice((target.layer.view_id, 0, view_id)),
                     self.number(target), self.incarnation())
                for _ in range(self.program.byte() % 3)]
        return Install(view_id, seats, gone, self.quorums(target, view_id, seats))

    def quorums(self, target: Member, view_id: int, seats: list[Seat]) -> list[Quorum]:
        """Return what is said of primary views: what the target knows, or other
        things."""
        voters = [seat.incarnation for seat in seats]
        drawn = Quorum(self.program.choice((view_id, self.view_id(target))), voters,
                       [self.view_id(target)][:self.program.byte() & 1],
                       bool(self.program.byte() & 1))
        return [*target.layer.voting.quorums, drawn][self.program.byte() % 3:]

    def body(self, kind: int, target: Member) -> object:
        """Return a body of a kind, with drawn fields."""
        layer, program = target.layer, self.program
        if kind == messages.SEEK:
            name = program.choice(("B", "D", "A", str(program.byte())))
            return messages.Seek(name, "b", self.terms)
        if kind == messages.PRESENT:
            return messages.Present("B", "b", self.terms, self.view_id(target),
                                    1 + program.byte(), self.incarnation(), None, [])
        if kind == messages.ALIVE:
            return messages.Alive(self.view_id(target), self.view_id(target))
        if kind == messages.LEAVE:
            return messages.Leave(self.view_id(target), self.quorums(target, 0, []))
        if kind == messages.SUSPECTS:
            return messages.Suspects(layer.view_id, [self.incarnation() for _ in range(2)],
                                     [self.incarnation()][:program.byte() & 1])
        if kind == messages.PREPARE:
            finish = self.install(target) if program.byte() & 1 else None
            return Prepare(self.view_id(target), self.seats(target), finish,
                           [self.view_id(target)][:program.byte() & 1])
        if kind in (messages.INSTALL, messages.OFFER):
            return self.install(target)
        if kind == messages.REPORT:
            change = layer.coordinator.change
            digest = {self.incarnation(): self.number(target) for _ in range(3)}
            return messages.Report(change.id if change else self.view_id(target), layer.view_id,
                                   digest | {HOSTILE: self.number(target)},
                                   self.quorums(target, layer.view_id, []),
                                   bool(program.byte() & 1),
                                   self.install(target) if program.byte() & 1 else None)
        if kind == messages.REFUSE:
            change = layer.coordinator.change
            return messages.Refuse(change.id if change and program.byte() & 1 else layer.view_id,
                                   self.view_id(target))
        if kind == messages.INSTALLED:
            return messages.Installed(self.view_id(target), bool(program.byte() & 1))
        if kind == flush.FETCH:
            return flush.Fetch(self.incarnation(), [(self.number(target), self.number(target))])
        if kind == base.HIGHEST:
            return base.HighestAndLow(self.number(target), self.number(target),
                                      self.program.choice((layer.view_id, self.view_id(target))))
        return messages.Empty()

    KINDS = (messages.SEEK, messages.PRESENT, messages.ALIVE, messages.LEAVE, messages.SUSPECTS,
             messages.PROBE, messages.PREPARE, messages.PREPARE, messages.INSTALL,
             messages.INSTALL, messages.OFFER, messages.REPORT, messages.REPORT, messages.REFUSE,
             messages.INSTALLED, messages.ASK, messages.WHO, flush.FETCH, base.HIGHEST)

    def forge_word(self, target: Member) -> None:
        kind = self.program.choice(self.KINDS)
        self.forge(target, kind, self.body(kind, target))

    def forge_damaged(self, target: Member) -> None:
        """Say it with a field that is missing, of another type, or too many."""
        kind = self.program.choice(self.KINDS)
        fields = msgspec.to_builtins(self.body(kind, target))
        damage = self.program.byte()
        if fields and damage & 1:
            fields[damage % len(fields)] = self.program.choice(
                (None, "", -1, [], {}, 2**64 - 1, 1.5, [[]], "x" * 300, True))
        elif damage & 2:
            fields = [*fields, 0]
        else:
            fields = fields[:-1]
        self.forge(target, kind, fields)

    def forge_held(self, target: Member) -> None:
        """Say what a departed sender has sent: raw bytes behind its incarnation."""
        kind = self.program.choice((flush.HELD, base.DATA, base.REPEAT))
        body = self.incarnation().to_bytes(8, "little") + self.program.bytes(40)
        target.arriving.append(wire.make_datagram(kind, self.id, HOSTILE, EVERYONE, body))

    def take_in(self, target: Member) -> None:
        """Forge a PREPARE and then its INSTALL: the whole of a view change."""
        install = self.install(target)
        sender = self.program.choice((HOSTILE, self.members[0].incarnation,
                                      self.members[1].incarnation))
        self.say(target, messages.PREPARE, Prepare(install.id, install.seats), sender)
        self.say(target, messages.INSTALL, install, sender)
        self.turn(target)

    # ------------------------------------------------------------- what the honest ones and time do

    def send(self, member: Member) -> None:
        window = member.endpoint.window(None, self.now)
        payload = b"%s%d" % (member.address.name.encode(), member.num_sent)
        if window is not None and window.push_many([payload], 0, 0):
            member.num_sent += 1
            member.endpoint.bundler.flush(None, self.now)
        self.turn(member)

    def take_all(self, member: Member) -> None:
        self.turn(member)

    def finish(self, member: Member) -> None:
        batches, member.outstanding = member.outstanding, []
        if batches and member.fault is None:
            member.endpoint.finish(tuple(batches), self.now)
        self.turn(member)

    def lose(self, member: Member) -> None:
        if member.arriving:
            del member.arriving[self.program.byte() % len(member.arriving)]

    def disorder(self, member: Member) -> None:
        if member.arriving:
            datagram = member.arriving[self.program.byte() % len(member.arriving)]
            member.arriving.insert(self.program.byte() % len(member.arriving), datagram)

    def wait(self, member: Member) -> None:
        self.pass_time(self.program.choice((1, 3 * MS, 20 * MS, 100 * MS, 600 * MS)))

    def pass_time(self, duration: int, do: Any = None) -> None:
        """Let everything happen that is due in this time, and `do` something then."""
        end = self.now + duration
        while self.now < end and not self.is_over:
            for member in self.members:
                self.finish(member)
            if do is not None:
                do(self.members[0])
            due = [member.endpoint.deadline() or end for member in self.members]
            arriving = any(member.arriving for member in self.members)
            self.now = min(end, self.now + MS // 10 if arriving else max(self.now + 1, min(due)))

    ACTS = (*(forge_word,) * 8, forge_damaged, forge_damaged, forge_held, take_in, take_in, seek,
            answer, answer, send, send, take_all, take_all, finish, finish, lose, disorder, wait,
            wait)

    def turn(self, member: Member) -> None:
        """Take a turn as the driver does, with all that has arrived."""
        if member.fault is not None:
            member.arriving.clear()
            return
        datagrams, member.arriving = member.arriving, []
        member.endpoint.receive(datagrams, [], self.now)
        member.endpoint.tick(self.now)
        member.endpoint.deliver(self.now)
        self.perform(member)
        self.check(member)

    def perform(self, member: Member) -> None:
        effects = member.endpoint.take()
        for dest, datagram in effects.packets:
            header = wire.open_datagram(datagram, self.id)
            assert header.sender == member.incarnation
            if header.kind == messages.PREPARE:
                prepare = messages.PREPARE.decode(datagram)
                assert prepare is not None
                self.prepared = prepare if prepare.seat(HOSTILE) else self.prepared
            for other in self.members:
                if other is not member and dest in (EVERYONE, other.incarnation):
                    other.arriving.append(datagram)
        for view in effects.views:
            assert member.address in view
            member.members = view.members
        for batch in effects.deliveries:
            member.outstanding.append(batch)
            member.got |= {(batch.sender.incarnation, payload) for payload in batch.payloads}
        if effects.fault is not None:
            member.fault, self.is_over = effects.fault, True

    def check(self, member: Member) -> None:
        """Check that nothing grows, whatever is said (decision 24)."""
        layer, multicast = member.layer, member.multicast
        discovery, detection = layer.meeting.discovery, layer.detection
        flushing = multicast.flushing
        assert len(layer.members) <= MAX_MEMBERS
        assert len(discovery.seekers) <= MAX_MEMBERS and len(discovery.others) <= MAX_MEMBERS
        assert sum(map(len, discovery.strangers.values())) <= 8 * MAX_MEMBERS
        assert len(layer.coordinator.offered) <= coordinator.MOST_OFFERS
        change = layer.coordinator.change
        assert change is None or (len(change.seats) <= MAX_MEMBERS
                                  and change.reports.keys() <= change.members)
        known = layer.members.keys()
        assert layer.leavers.keys() <= known and detection.reports.keys() <= known
        assert detection.probing.keys() | detection.silent | detection.departed <= known
        assert detection.said.keys() == detection.reports.keys()
        assert len(flushing.departed) <= max(MOST_LEAVING, MAX_MEMBERS)
        assert flushing.fetches.keys() <= flushing.departed.keys() | multicast.windows.keys()
        assert len(flushing.pending) <= flush.MOST_PENDING
        assert not multicast.requests
        assert len(flushing.unsettled) <= MAX_MEMBERS

    # ------------------------------------------------------------------------------------ the end

    def is_one(self) -> bool:
        """Return whether the honest ones, and nobody else, have one view, and prepare
        no other one."""
        both = {member.address for member in self.members}
        return all(set(member.members) == both and member.layer.agreed()
                   and member.multicast.flushing.reported is None
                   and member.layer.view_id == self.members[0].layer.view_id
                   for member in self.members)

    def settle(self) -> None:
        """Let B be silent, and check that the others find each other and can go on."""
        end = self.now + LONG
        self.pass_time(20 * MS)                         # what B said last arrives
        while not self.is_over and not self.is_one():
            assert self.now < end, [(member.members, member.layer.status())
                                    for member in self.members]
            self.pass_time(50 * MS)
        if self.is_over:
            return
        sent = []
        for member in self.members:
            begun = member.num_sent
            for _ in range(40):
                self.send(member)
                self.pass_time(2 * MS)
            assert member.num_sent >= begun + 10, (member.address.name, member.multicast.status())
            sent += [(member.incarnation, b"%s%d" % (member.address.name.encode(), number))
                     for number in range(begun, member.num_sent)]
        self.pass_time(1_000 * MS)
        for member in self.members:
            assert member.got.issuperset(sent), (member.address.name, sent, member.got)


def forming(data: bytes) -> None:
    FormingGroup(data).run()
