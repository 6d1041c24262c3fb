"""The targets `mcast-udp`, `mcast-tcp`, `nakack2-udp` and `nakack2-tcp`: bytes as a
program for a group of three that forms itself. A and C are honest (the stacks that are
shipped), B is hostile. The first byte says how the group is set up.

The program says what happens next. B, or a stranger, puts datagrams of any kind and
content into what an honest member receives. The honest ones send to everybody and to
each other, deliver and finish. The network loses, repeats and reorders. Time passes.
Bounds and promises are checked after every turn. At the end, when B has sent its last
and was excluded, A and C are one group, each message has arrived, and so does what they
send from then on.

Over TCP an honest member receives what B sends in B's order, and loses it only when the
connection breaks, which B may cause at any time. Between the honest members nothing is
lost.

These things are *not* promised, because nothing is authenticated:

- that B's own messages make sense;
- when B has said something well formed in C's name, that C's messages are C's, nor that
  C gets what B has acknowledged for it;
- when B has lied about the group, or the honest members were parted, that they go
  together to each view, and so that all arrives that was sent meanwhile;
- when B is the first in the view, that NAKACK2 purges nothing too early: a coordinator
  is trusted with STABILITY;
- that no message of a connection comes again when B's many incarnations have driven out
  of a member's memory what it knew of that connection.

From there on only those promises are checked that hold all the same: bounds, answers,
what a member sends to itself, that each seqno of a stream comes once and in order, and
that the honest ones are one group at the end, unless B misled them about messages. In
about half of all programs B does not lie, or does not use C's name, so that the
promises hold to the end. A member that has no view may be told that its name is taken,
or that the group has other terms; it stops.
"""

from typing import Any

import msgspec
from bounds import (
    LIMIT,
    SCAN,
    check,
    check_outstanding,
    check_purged,
    note_repeats,
    num_waiting,
)
from honest import CONFIG, DONT_LOOPBACK, HONEST, INCARNATIONS, OOB, Honest
from hostile import HOSTILE, Hostile, runs_of
from hostile_member import HostileMember
from hostile_nakack2 import HostileNakack2

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.protocols.membership import messages
from ringcast.protocols.membership.state import NEED
from ringcast.protocols.multicast import base as multicast, stable
from ringcast.protocols.multicast.fetching import HELD
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.multicast.resync import RESYNC
from ringcast.protocols.seqnos import is_seqno, precedes
from ringcast.stack import Effects, group_id
from ringcast.stacks import STACKS
from ringcast.status import by_name

MS = 1_000_000
JOINING = 2_000 * MS                    # in which all find each other
LONG = 120_000 * MS                     # in which the honest ones are one group again
MOST_CHANGES = 100                      # that one of them prepares for that
# bits of the first byte
LEADS, RING_BUFFER, KEEPS, RETRANSMITS, SPOOFS, LIES, IMPATIENT, EARLY = (
    1 << bit for bit in range(8))
MOST_EARLY = 4                          # acts of B before the others have a view


class Group(HostileMember):
    """One run of a program."""

    def __init__(self, data: bytes, stack: str = "mcast-udp") -> None:
        modes = data[0] if data else 0
        self.leads, self.speaks_early = bool(modes & LEADS), bool(modes & EARLY)
        self.may_spoof, self.may_lie = bool(modes & SPOOFS), bool(modes & LIES)
        options: dict[str, Any] = {
            "use_ring_buffer": bool(modes & RING_BUFFER),
            "discard_delivered_msgs": not modes & KEEPS,
            "gap_timeout": CONFIG.gap_timeout if modes & IMPATIENT else 1000}
        if STACKS[stack].is_lossless and STACKS[stack].votes:
            options["xmit_interval"] = 3 if modes & RETRANSMITS else 0
        members = (self.honest("A", stack, options), self.honest("C", stack, options))
        super().__init__(data[1:], members, group_id("fuzz"))
        self.now = 1_000 * MS
        # an honest member purged too early, because its coordinator B said so
        self.misled = False
        self.apart = True                   # a view without one of the honest members was installed
        self.begin()

    def honest(self, name: str, stack: str, options: dict[str, Any]) -> Honest:
        return Honest(name, stack, **options)

    def begin(self) -> None:
        """Let all come into one view, which B or A has formed."""
        for member in self.members:
            member.endpoint.start(self.now)
            self.turn(member)
        if self.speaks_early:
            for member in self.members:
                for _ in range(self.program.byte() % (MOST_EARLY + 1)):
                    self.program.choice(self.EARLY_ACTS)(self, member)
        if self.leads:
            self.form()
        else:
            self.pass_time(100 * MS)
            self.seek(self.members[0])
        end = self.now + JOINING
        while self.now < end and not self.is_whole():
            if not self.leads:
                self.answer(self.members[0])
            self.pass_time(5 * MS)
        assert self.speaks_early or self.is_whole(), [
            (member.view, member.stack.status()) for member in self.members]
        self.apart = not self.is_one()

    def is_whole(self) -> bool:
        """Return whether all three are in one settled view."""
        return self.is_one() and all(HOSTILE in each.multicast.members for each in self.members)

    def is_one(self) -> bool:
        """Return whether the honest ones have one settled view, and prepare no other
        one."""
        return all(member.members.agreed() and member.multicast.flushing.reported is None
                   and member.multicast.members.keys() >= set(HONEST)
                   and member.members.view_id == self.members[0].members.view_id
                   for member in self.members)

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
        """Let time pass, in which nothing arrives."""
        self.now += self.program.choice((1, SCAN // 3, SCAN, SCAN, 3 * SCAN, 20 * MS, 600 * MS))
        for each in self.members:
            self.turn(each)

    def wait_in_peace(self, member: Honest) -> None:
        self.pass_time(self.program.choice((1, 3 * MS, 20 * MS, 100 * MS)))

    def pass_time(self, duration: int) -> None:
        """Let everything arrive and happen that is due in this time; the applications
        finish all."""
        end = self.now + duration
        while self.now < end:
            for member in self.members:
                deadline = member.endpoint.deadline()
                if member.arriving or (deadline is not None and deadline <= self.now):
                    self.turn(member, len(member.arriving))
                while member.outstanding and not member.stopped:
                    self.finish(member)
            if any(member.arriving for member in self.members):
                self.now = min(end, self.now + MS // 10)
            else:
                due = [member.endpoint.deadline() or end for member in self.members
                       if not member.stopped]
                self.now = min([end, *(max(self.now + 1, each) for each in due)])

    def slow_down(self, member: Honest) -> None:
        member.limit = self.program.choice((0, 1, 3, LIMIT))

    def exclude(self, member: Honest) -> None:
        """Exclude B, whoever that is now."""
        if not member.stopped and "B" in {seat.name for seat in member.members.members.values()}:
            member.members.exclude("B", self.now)
        self.turn(member)

    ACTS = (Hostile.nonsense, Hostile.sealed_nonsense, Hostile.sealed_nonsense,
            *(Hostile.forged_numbers,) * 3, Hostile.forged_request, Hostile.forged_request,
            HostileMember.seek, HostileMember.answer, *(Hostile.forged_data,) * 3,
            HostileMember.come_back, *(send,) * 3, finish, finish, take_some, take_all, take_all,
            lose, disorder, wait, wait_in_peace, slow_down, exclude, *(send_anywhere,) * 3,
            send_unreliable, *(Hostile.forged_messages,) * 3, *(Hostile.forged_control,) * 3,
            Hostile.acknowledge, Hostile.forged_unreliable, HostileMember.answer,
            *HostileMember.LIES)
    EARLY_ACTS = (Hostile.forged_data, Hostile.forged_numbers, HostileMember.come_back,
                  Hostile.sealed_nonsense, *HostileMember.LIES)

    # --------------------------------------------------------------------------------------- a turn

    def turn(self, member: Honest, count: int = 0) -> None:
        """Take a turn as the driver does, with `count` datagrams that arrive."""
        if member.stopped:
            member.arriving.clear()
            return
        datagrams, member.arriving = member.arriving[:count], member.arriving[count:]
        member.num_turns += 1
        datagrams = self.open(member, datagrams)
        news, member.news = member.news, []
        member.num_links += len(news)
        if datagrams:
            self.count_arrived(member, datagrams)
        member.endpoint.receive(datagrams, news, self.now)
        member.endpoint.tick(self.now)
        member.endpoint.max_undelivered = member.limit
        member.endpoint.deliver(self.now)
        while not self.perform(member, member.endpoint.take(self.now)):
            for dest in list(member.large):
                member.continue_large(dest, self.now)
        self.note_forgotten(member)
        self.check(member)
        if not self.is_loose():
            trusts = self.leads and self.votes()
            self.misled |= not check_purged(member, self.members, trusts)

    def check(self, member: Honest) -> None:
        check(member, self.now)
        check_outstanding(member)

    def open(self, member: Honest, datagrams: list[bytes]) -> list[bytes]:
        """Return what is in the datagrams that a member takes."""
        return datagrams

    def on_prepare(self, maker: int, prepare: messages.Prepare) -> None:
        """Note a view that B is asked for."""
        if any(seat.name == "B" for seat in prepare.seats):
            self.prepared = prepare

    def carry(self, member: Honest, dest: int, datagram: bytes) -> None:
        """Let what a member sends arrive."""
        for other in self.members:
            if other is not member and dest in (EVERYONE, other.incarnation):
                other.arriving.append(datagram)

    def is_loose(self) -> bool:
        """Return whether it is not promised any more that all arrives."""
        return self.spoofed or self.lied or self.apart

    def count_arrived(self, member: Honest, datagrams: list[bytes]) -> None:
        """Count what the stack must refuse, by reason. Note what has flags: it comes
        out of order or in parts."""
        member.num_arrived += len(datagrams)
        num_messages = num_waiting(member)
        for datagram in datagrams:
            header = member.stack.open(datagram)
            if header is None:
                member.refused["malformed"] += 1
            elif header.sender == member.incarnation or header.dest not in (
                    EVERYONE, member.incarnation):
                member.refused["not_for_me"] += 1
            elif header.kind not in member.stack.kinds:
                member.refused["unhandled"] += 1
            else:
                member.arrived[header.kind] += 1
                need = NEED.decode(datagram) if header.kind == NEED else None
                member.num_bad_needs += header.kind == NEED and (
                    need is None or not is_seqno(need.view_id))
                sender, body = header.sender, datagram[wire.HEADER_SIZE:]
                if header.kind == HELD:
                    sender = HELD.origin(datagram) or 0
                for first, flags, payloads in runs_of(header.kind, body) or ():
                    num_messages += len(payloads)
                    if flags and sender not in HONEST:
                        seqnos = ((first + step) % 2**64 for step in range(len(payloads)))
                        member.flagged.setdefault(sender, set()).update(seqnos)
        member.most_messages = max(member.most_messages, num_messages)

    def perform(self, member: Honest, effects: Effects) -> bool:
        """Perform effects. Return False if a large message may go on."""
        if effects.keys is not None:
            member.seal.rekey(effects.keys, self.now)
        for dest, datagram in effects.packets:
            header = member.stack.open(datagram)
            assert header.sender == member.incarnation and header.dest == dest
            assert len(datagram) <= 65_507
            member.sent[header.kind] += 1
            note_repeats(member, header.kind, dest, datagram, self.now)
            if header.kind == messages.PREPARE:
                prepare = messages.PREPARE.decode(datagram)
                assert prepare is not None
                self.on_prepare(header.sender, prepare)
            self.carry(member, dest, datagram)
        for view in effects.views:
            assert view.id > member.view_id and member.address in view
            member.view_id, member.view = view.id, view.members
            member.num_views += 1
            member.most_peers = max(member.most_peers, len(view) - 1)
            self.apart |= any(other.address not in view for other in self.members)
        senders = {each.incarnation: each for each in self.members
                   if each is member or not self.spoofed}
        for batch in effects.deliveries:
            member.deliver(batch, senders, self.apart or self.lied)
        for batch in effects.failures:
            assert self.is_loose() or batch.dest.incarnation not in HONEST, batch
            if batch.dest is not None:
                member.check_failure(batch)
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
        if self.waits_for_the_unsent():
            assert (self.leads and self.votes()) or self.is_loose()
            self.misled = True
        for member in self.members:
            self.exclude(member)
        end = self.now + LONG
        begun = {member: member.members.coordinator.num_changes for member in self.members}
        while self.now < end and not any(member.stopped for member in self.members) and not (
                self.is_alone() and (self.is_loose() or self.misled or self.owed() is None)):
            self.pass_time(20 * MS)
            assert all(member.members.coordinator.num_changes < number + MOST_CHANGES
                       for member, number in begun.items())
            if self.spoofed or self.misled:
                break
        for member in self.members:
            status = member.stack.status()
            status.wire.malformed -= member.num_bad_needs
            assert {name: by_name(status)[name] for name in member.refused} == member.refused
        if any(member.stopped for member in self.members) or self.spoofed or self.misled:
            return
        assert self.is_alone(), [(each.view, each.stack.status()) for each in self.members]
        if not self.is_loose():
            assert self.owed() is None, self.owed()
        self.go_on()

    def go_on(self) -> None:
        """Check that what the honest members send from now on arrives."""
        end = self.now + LONG
        while any(EVERYONE in member.large for member in self.members):
            assert self.now < end, "there is no room for the rest of a message"
            self.pass_time(20 * MS)
        begun = {member: len(member.accepted[EVERYONE]) for member in self.members}
        for member in self.members:
            end = self.now + LONG
            while len(member.accepted[EVERYONE]) < begun[member] + 20:
                assert self.now < end, (member.name, member.stack.status())
                member.send(EVERYONE, 10, 0, self.now)
                member.flush(EVERYONE, self.now)
                self.pass_time(2 * MS)
        self.pass_time(1_000 * MS)
        for sender, first in begun.items():
            numbers = range(first, len(sender.accepted[EVERYONE]))
            for receiver in self.members:
                finished = receiver.received[sender.incarnation, EVERYONE].finished
                assert finished.issuperset(numbers), (receiver.name, sender.name)

    def is_alone(self) -> bool:
        """Return whether the honest ones, and nobody else, have one view, and have seen
        it."""
        both = {member.address for member in self.members}
        return self.is_one() and all(set(member.view) == both for member in self.members)

    def votes(self) -> bool:
        return isinstance(self.members[0].multicast, Nakack2)

    def waits_for_the_unsent(self) -> bool:
        """Say whether an honest member expects more than another has sent."""
        sent = {each.incarnation: each.multicast.send_window.sent for each in self.members}
        return any(precedes(sent[sender], window.ring.hr) for each in self.members
                   for sender, window in each.multicast.windows.items() if sender in sent)

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
                if peer not in HONEST and entry.num_unacked():
                    return f"{member.name} still keeps messages for {entry.dest}"
                if entry.num_unacked():
                    return f"{entry.num_unacked()} of {member.name} to {entry.dest} unacknowledged"
        return None


class Nakack2Group(HostileNakack2, Group):
    """A group whose stack has NAKACK2 and STABLE."""

    def ask_repeatedly(self, member: Honest) -> None:
        """Let B ask for everything again and again, in turns of their own."""
        ring = member.multicast.send_window.ring
        words = [(RESYNC, [ring.low]), (multicast.XMIT_REQ, [[(ring.low, ring.hr)]]),
                 (stable.VOTE, [member.view_id, True, 1500, {}])]
        first, step = self.program.byte(), self.program.byte()
        for number in range(1 + self.program.byte() % 24):
            kind, fields = words[(first + step * number) % 3]
            self.put_last(member, kind, msgspec.msgpack.encode(fields))
            self.turn(member, len(member.arriving))

    EARLY_ACTS = (*Group.EARLY_ACTS, *HostileNakack2.ACTS)
    ACTS = (*Group.ACTS, *HostileNakack2.ACTS, ask_repeatedly)


class Linked(Group):
    """A group over TCP connections."""

    def begin(self) -> None:
        for member in self.members:
            others = [other.incarnation for other in self.members if other is not member]
            member.news = [*others, HOSTILE]
        super().begin()

    def put(self, target: Honest, datagram: bytes) -> None:
        self.program.byte()
        target.arriving.append(datagram)

    def break_link(self, member: Honest) -> None:
        """Lose the last of what B has sent. There is a new connection at once, or
        nobody notices before it is used."""
        incarnation, most = self.incarnation_of(member), self.program.byte()
        for at in range(len(member.arriving) - 1, -1, -1):
            header = wire.open_datagram(member.arriving[at], self.id)
            if most and header is not None and header.sender == incarnation:
                del member.arriving[at]
                most -= 1
        member.news.append(incarnation)

    def link_event(self, member: Honest) -> None:
        """Report new connections to any member, often."""
        other = self.members[member is self.members[0]]
        whom = self.program.choice((self.incarnation_of(member), other.incarnation,
                                    self.program.choice((*INCARNATIONS.values(), 0, 2**64 - 1))))
        member.news += [whom] * (1 + self.program.byte() % 9)

    def take_one(self, member: Honest) -> None:
        """Take one datagram, so that there is time for it."""
        self.turn(member, 1)

    TALK = (break_link, break_link, link_event, take_one)
    ACTS = (*(act for act in Group.ACTS if act not in (Group.lose, Group.disorder)), *TALK)


class LinkedNakack2(Linked, Nakack2Group):
    """The same with NAKACK2."""

    def switch_interval(self, member: Honest) -> None:
        member.num_switches += 1
        member.multicast.change_interval(self.program.choice((0, 3 * MS)), self.now)

    ACTS = (*(act for act in Nakack2Group.ACTS if act not in (Group.lose, Group.disorder)),
            *Linked.TALK, switch_interval)


GROUPS: dict[str, type[Group]] = {"mcast-udp": Group, "mcast-tcp": Linked,
                                  "nakack2-udp": Nakack2Group, "nakack2-tcp": LinkedNakack2}
