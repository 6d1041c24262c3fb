"""The acts of B about the group: it comes, goes along, coordinates, and lies. It says
whatever members say to each other, in anybody's name, damaged or not, with numbers that
mean something or none."""

import msgspec
from honest import INCARNATIONS, Honest
from hostile import HOSTILE, STRANGER, Hostile, make_run

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.protocols.membership import messages, sense
from ringcast.protocols.membership.messages import Gone, Install, Prepare, Quorum, Report, Seat
from ringcast.protocols.multicast import base as multicast, fetching
from ringcast.protocols.multicast.keeping import Part
from ringcast.protocols.unicast3 import control


class HostileMember(Hostile):
    """B as a member, or as one who wants to be one. `prepared` is the last view that it
    was asked for."""

    prepared: Prepare | None = None

    def say(self, target: Honest, kind: int, body: object, sender: int = HOSTILE) -> None:
        """Put a word behind the rest of what the target receives."""
        target.arriving.append(wire.make_datagram(kind, self.id, sender, EVERYONE,
                                                  msgspec.msgpack.encode(body)))

    # ------------------------------------------------------------------------------- what is no lie

    def seek(self, target: Honest, sender: int = HOSTILE) -> None:
        """Ask to be let in, as an honest member would."""
        for member in self.members:
            terms = member.members.meeting.terms
            self.say(member, messages.SEEK, messages.Seek("B", "b", terms, 1), sender)

    def answer(self, target: Honest) -> None:
        """Go along with the last PREPARE, in the name of each B that has a seat."""
        if (prepare := self.prepared) is None:
            return
        for seat in [seat for seat in prepare.seats if seat.name == "B"]:
            report = self.report(prepare, seat)
            for member in self.members:
                self.say(member, messages.REPORT, report, seat.incarnation)
                self.say(member, messages.INSTALLED, messages.Installed(prepare.id, True),
                         seat.incarnation)

    def report(self, prepare: Prepare, seat: Seat) -> Report:
        """Return what a B that has everything answers to a PREPARE."""
        come = [each.multicast.windows[seat.incarnation].come_up_to for each in self.members
                if seat.incarnation in each.multicast.windows]
        digest = {seat.incarnation: max(come, default=0)}
        if seat.before:
            digest |= {each.incarnation: each.multicast.send_window.sent for each in self.members}
        return Report(prepare.id, seat.before, digest, [])

    def form(self) -> None:
        """Coordinate the first view, as an honest member would, with B before the
        others."""
        view_id = (1 << sense.COUNTER) | (HOSTILE & 0xFFFFFFFF)
        seats = [Seat("B", HOSTILE, "b", 0)] + [
            Seat(member.name, member.incarnation, member.name, 0) for member in self.members]
        for kind, body in ((messages.PREPARE, Prepare(view_id, seats)),
                           (messages.INSTALL, Install(view_id, seats, [], [])),
                           (messages.ALIVE, messages.Alive(view_id, view_id, view_id))):
            for member in self.members:
                self.say(member, kind, body)
                self.turn(member, len(member.arriving))

    def turn(self, member: Honest, count: int = 0) -> None:
        raise NotImplementedError

    def come_back(self, target: Honest) -> None:
        """Let B come back as another incarnation, open its streams, fill the window."""
        incarnation = HOSTILE + (self.program.byte() << 32)
        self.seek(target, incarnation)
        body = make_run(1, 0, [bytes(100)])
        first = (1).to_bytes(8, "little") + body
        for kind, content in ((multicast.DATA, body), (control.FIRST, first)):
            datagram = wire.make_datagram(kind, self.id, incarnation, EVERYONE, content)
            target.arriving.append(datagram)

    # ----------------------------------------------------------------------------------------- lies

    def lie(self, target: Honest, kind: int, body: object) -> None:
        """Say a word in the name of B, mostly; sometimes in that of another one."""
        other = self.members[target is self.members[0]]
        sender = self.program.choice((HOSTILE, self.incarnation_of(target), other.incarnation,
                                      STRANGER))
        if self.may_lie:
            self.lied = True
            self.say(target, kind, body, sender)

    def view_number(self, target: Honest) -> int:
        """Return an id that is known, or one above it, far or near."""
        layer, which = target.members, self.program.byte()
        known = [layer.view_id, layer.promised, self.prepared.id if self.prepared else 0,
                 layer.ceiling.counter << sense.COUNTER]
        steps = (0, 0, 0, 1 << 32, 1 << 33, 1 << 40, 1 << 42, -(1 << 32), 1)
        maker = (0, HOSTILE & 0xFFFFFFFF)[which >> 7]
        return max(0, known[which % 4] + steps[which % len(steps)] + maker) % 2**64

    def place(self, target: Honest) -> int:
        """Return a number that can be a seqno."""
        return max(0, self.number(target))

    def anybody(self) -> int:
        return self.program.choice((*INCARNATIONS.values(), STRANGER, 0, 2**64 - 1))

    def seats(self, target: Honest) -> list[Seat]:
        """Return seats of members that exist or not, now and then some of them
        twice."""
        layer = target.members
        befores = (layer.view_id, layer.view_id, 0, self.view_number(target))
        seats = list(layer.members.values())[:self.program.byte() % 4]
        for _ in range(self.program.byte() % 4):
            incarnation = self.anybody()
            name = self.program.choice(("A", "B", "C", "D", str(incarnation)))
            seats.append(Seat(name, incarnation, "x", 0))
        seats = seats or [Seat("B", HOSTILE, "b", 0)]
        if self.program.byte() & 3:                     # mostly without the nonsense
            seats = list({seat.name: seat for seat in
                          {seat.incarnation: seat for seat in seats}.values()}.values())
        return [Seat(seat.name, seat.incarnation, seat.physical, self.program.choice(befores),
                     self.place(target)) for seat in seats]

    def install(self, target: Honest) -> Install:
        view_id, seats = self.view_number(target), self.seats(target)
        gone = [self.gone(target, view_id) for _ in range(self.program.byte() % 3)]
        back = [self.anybody()][:self.program.byte() & 1]
        return Install(view_id, seats, gone, self.quorums(target, view_id, seats), back=back)

    def gone(self, target: Honest, view_id: int) -> Gone:
        """Return a departed sender, now and then with what members have of it."""
        before = self.program.choice((target.members.view_id, 0, view_id))
        parts = [Part(self.anybody(), self.place(target), self.place(target))
                 for _ in range(self.program.byte() % 4)]
        return Gone(self.anybody(), before, self.place(target), self.anybody(),
                    self.program.choice((None, "D")), parts)

    def quorums(self, target: Honest, view_id: int, seats: list[Seat]) -> list[Quorum]:
        """Return what is said of primary views: what the target knows, or other
        things."""
        voters = [seat.incarnation for seat in seats]
        drawn = Quorum(self.program.choice((view_id, self.view_number(target))), voters,
                       [self.view_number(target)][:self.program.byte() & 1],
                       bool(self.program.byte() & 1))
        return [*target.members.voting.quorums, drawn][self.program.byte() % 3:]

    def body(self, kind: int, target: Honest) -> object:
        """Return a body of a kind, with drawn fields."""
        layer, program = target.members, self.program
        change = layer.coordinator.change
        if kind == messages.SEEK:
            name = program.choice(("B", "D", "A", str(program.byte())))
            return messages.Seek(name, "b", layer.meeting.terms, 1 + program.byte())
        if kind == messages.PRESENT:
            return messages.Present("B", "b", layer.meeting.terms, self.view_number(target),
                                    1 + program.byte(), self.anybody(), None, [])
        if kind == messages.ALIVE:
            return messages.Alive(self.view_number(target), self.view_number(target))
        if kind == messages.LEAVE:
            return messages.Leave(self.view_number(target), self.quorums(target, 0, []))
        if kind == messages.SUSPECTS:
            return messages.Suspects(layer.view_id, [self.anybody() for _ in range(2)],
                                     [self.anybody()][:program.byte() & 1])
        if kind == messages.PREPARE:
            finish = self.install(target) if program.byte() & 1 else None
            return Prepare(self.view_number(target), self.seats(target), finish,
                           [self.view_number(target)][:program.byte() & 1])
        if kind in (messages.INSTALL, messages.OFFER):
            return self.install(target)
        if kind == messages.REPORT:
            digest = {self.anybody(): self.place(target) for _ in range(3)}
            return Report(change.id if change else self.view_number(target),
                          layer.view_id, digest | {HOSTILE: self.place(target)},
                          self.quorums(target, layer.view_id, []), bool(program.byte() & 1),
                          self.install(target) if program.byte() & 1 else None)
        if kind == messages.REFUSE:
            return messages.Refuse(change.id if change and program.byte() & 1 else layer.view_id,
                                   self.view_number(target))
        if kind == messages.INSTALLED:
            return messages.Installed(self.view_number(target), bool(program.byte() & 1))
        if kind == fetching.FETCH:
            return fetching.Fetch(self.anybody(), [(self.place(target), self.place(target))])
        if kind == multicast.HIGHEST:
            return multicast.Highest(self.place(target), self.place(target),
                                     program.choice((layer.view_id, self.view_number(target))))
        return messages.Empty()

    KINDS = (messages.SEEK, messages.PRESENT, messages.ALIVE, messages.LEAVE, messages.SUSPECTS,
             messages.PROBE, messages.PREPARE, messages.PREPARE, messages.INSTALL,
             messages.INSTALL, messages.OFFER, messages.REPORT, messages.REPORT, messages.REFUSE,
             messages.INSTALLED, messages.ASK, messages.WHO, fetching.FETCH, multicast.HIGHEST)

    def tell_lie(self, target: Honest) -> None:
        kind = self.program.choice(self.KINDS)
        self.lie(target, kind, self.body(kind, target))

    def tell_damaged(self, target: Honest) -> None:
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
        self.lie(target, kind, fields)

    def tell_held(self, target: Honest) -> None:
        """Say what a departed sender has sent: raw bytes behind its incarnation."""
        kind = self.program.choice((fetching.HELD, multicast.DATA, multicast.REPEAT))
        body = self.anybody().to_bytes(8, "little") + self.program.bytes(40)
        if self.may_lie:
            self.lied = True
            target.arriving.append(wire.make_datagram(kind, self.id, HOSTILE, EVERYONE, body))

    def take_in(self, target: Honest) -> None:
        """Say a PREPARE and then its INSTALL: the whole of a view change."""
        install = self.install(target)
        sender = self.program.choice((HOSTILE, self.members[0].incarnation,
                                      self.members[1].incarnation))
        if self.may_lie:
            self.lied = True
            self.say(target, messages.PREPARE, Prepare(install.id, install.seats), sender)
            self.say(target, messages.INSTALL, install, sender)
            self.turn(target, len(target.arriving))

    def misreport(self, target: Honest) -> None:
        """Have the target prepare a view again, if it coordinates. Then answer each
        PREPARE with a report that is false in some fields, until it stops asking, or
        the lies are over."""
        if not self.may_lie:
            return
        self.lied = True
        self.say(target, messages.REFUSE,
                 messages.Refuse(target.members.view_id, target.members.promised))
        asked = 0
        for _ in range(1 + self.program.byte() % 16):
            for member in (target, *self.members):
                self.turn(member, len(member.arriving))
            if self.prepared is None or self.prepared.id == asked:
                return
            asked = self.prepared.id
            for seat in [seat for seat in self.prepared.seats if seat.name == "B"]:
                self.say(target, messages.REPORT, self.false_report(target, self.prepared, seat),
                         seat.incarnation)

    def false_report(self, target: Honest, prepare: Prepare, seat: Seat) -> Report:
        """Return a report that is false in about half of what it says."""
        report, which = self.report(prepare, seat), self.program.byte()
        if which & 3:
            report.install = self.made_up(target, prepare)
            report.view_id = report.install.id
        if which & 12 == 12:
            report.view_id = self.program.choice((prepare.id - 1, 0, self.view_number(target)))
        if which & 48 == 48:
            report.digest[self.anybody()] = self.place(target)
        if which & 48 == 16:
            report.lacking = dict.fromkeys((*INCARNATIONS.values(), STRANGER), which)
        if which & 192 == 192:
            report.quorums = self.quorums(target, report.view_id, prepare.seats)
            report.is_leaving, report.low = bool(which & 1), self.place(target)
        return report

    def made_up(self, target: Honest, prepare: Prepare) -> Install:
        """Return a view that those whom a PREPARE asks could come from, or nearly."""
        which = self.program.byte()
        seats = [seat.moved(self.program.choice((target.members.view_id, seat.before)))
                 for seat in prepare.seats]
        if which & 1:
            seats[which % len(seats)].name = self.program.choice(("D", "E", "A"))
        if which & 4:
            seats.append(Seat("F", self.anybody(), "x", self.view_number(target)))
        if which & 24 == 24:
            del seats[which % len(seats)]
        number = self.program.choice((prepare.id - 1, target.members.view_id + 1,
                                      self.view_number(target)))
        return Install(number, seats, [], [])

    LIES = (*(tell_lie,) * 4, misreport, misreport, tell_damaged, tell_damaged, tell_held,
            take_in, take_in)
