"""The targets `insider-...`: the programs of group.py in a sealed group. B has the
secret, and the keys of the views that it is in. Whatever it says is sealed with them,
in anybody's name, as a hostile member can do it. What it was not told it cannot seal
with: of views that it is not in, nothing of it may open.

To be heard under a number, B proves it, as any process does that has the secret. It
does so for all numbers but those of the honest members.
"""

from typing import Any

from group import Group, Linked, LinkedNakack2, Nakack2Group
from honest import CONFIG, HONEST, LARGE, Honest
from hostile import HOSTILE, make_run

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.protocols.membership import messages
from ringcast.protocols.membership.messages import Prepare
from ringcast.protocols.multicast import base as multicast, retention
from ringcast.protocols.security import seal as sealing
from ringcast.protocols.security.keyring import Held
from ringcast.sim.sealing import Sealing
from ringcast.stack import HeldKeys
from ringcast.stacks import OUTSIDE


class Process:
    """One of the processes that B has, or says to have."""

    def __init__(self, of: Sealing, incarnation: int) -> None:
        self.ring = of.keyring(incarnation, "B")
        self.seal = of.seal(incarnation, self.ring)
        self.present = 0                # the view with whose key it seals


class Insider(Group):
    """A sealed group, of which B is a member."""

    def __init__(self, data: bytes, *arguments: str) -> None:
        self.sealing = Sealing("fuzz", "aes-256-gcm")
        self.processes: dict[int, Process] = {}
        self.held: dict[int, Held] = {}                 # the keys of views that B has
        self.num_opened = self.num_shut_out = 0         # datagrams of B, in views
        self.most_kept = 0                              # bytes, of what B's window held
        super().__init__(data, *arguments)

    def honest(self, name: str, stack: str, options: dict[str, Any]) -> Honest:
        return Honest(name, stack, self.sealing, **options)

    def run(self) -> None:
        while not self.program.is_over():
            self.program.choice(self.ACTS)(self, self.program.choice(self.members))
        for member in self.members:
            self.fill(member)
        self.settle()

    def fill(self, target: Honest) -> None:
        """Send large messages in order, of which B never says that all have them, so
        that they are kept. The application takes them all."""
        for _ in range(2 * retention.ROOM * CONFIG.capacity):
            incarnation = self.incarnation_of(target)
            window = target.multicast.windows.get(incarnation)
            if target.stopped or window is None:
                return
            run = make_run(window.ring.hr + 1, 0, [bytes(LARGE)])
            target.arriving.append(wire.make_datagram(multicast.DATA, self.id, incarnation,
                                                      EVERYONE, run))
            self.take_all(target)
            while target.outstanding:
                self.finish(target)
            self.most_kept = max(self.most_kept, window.ring.nbytes)

    # ------------------------------------------------------------------------------ to be heard

    def process(self, incarnation: int) -> Process:
        found = self.processes.get(incarnation)
        if found is None:
            found = self.processes[incarnation] = Process(self.sealing, incarnation)
        return found

    def prove(self, process: Process, target: Honest) -> None:
        """Exchange HELLOs until the target has heard the answer to its challenge."""
        process.seal.linked([target.incarnation])
        for _ in range(3):
            target.seal.open(process.seal.hellos(self.now), self.now)
            process.seal.open(self.say_hello(target), self.now)

    def say_hello(self, member: Honest) -> list[bytes]:
        """Let a member say the HELLOs that are due. All hear them."""
        hellos = member.seal.hellos(self.now)
        for hello in hellos:
            super().carry(member, EVERYONE, hello)
        return hellos

    # --------------------------------------------------------------------------- what goes over

    def carry(self, member: Honest, dest: int, datagram: bytes) -> None:
        ((_, sealed),), = member.seal.seal([(dest, datagram)])
        super().carry(member, dest, bytes(sealed))

    def open(self, member: Honest, datagrams: list[bytes]) -> list[bytes]:
        seal, opened = member.seal, []
        seal.end_old(self.now)
        seal.linked(member.news)
        for datagram in datagrams:
            said = self.sealed(member, datagram)
            came = [bytes(each) for each in seal.open([said], self.now)]
            if said is not datagram and datagram[sealing.KIND] not in OUTSIDE:
                self.num_opened += len(came)
                self.num_shut_out += not came
                assert not came or self.knows_a_view_of(member)
            opened += came
        self.say_hello(member)
        member.news = seal.take_linked()
        self.check_seal(member)
        return opened

    def sealed(self, target: Honest, datagram: bytes) -> bytes:
        """Return what B says, sealed with what it knows; all else as it is."""
        header = wire.open_datagram(datagram, self.id)
        if header is None or header.sender == EVERYONE:
            return datagram
        plain = wire.make_datagram(header.kind, self.id, header.sender, header.dest,
                                   datagram[wire.HEADER_SIZE:], checked=False)
        if header.sender in HONEST:
            speaker = next(each for each in self.members if each.incarnation == header.sender)
            if header.kind not in OUTSIDE and speaker.members.view_id not in self.held:
                return datagram                         # with that key B cannot do it
            seal = speaker.seal
        else:
            process = self.process(header.sender)
            if header.sender not in target.seal.senders:
                self.prove(process, target)
            self.rekey(process, target.members.view_id)
            seal = process.seal
        ((_, sealed),), = seal.seal([(header.dest, plain)])
        return bytes(sealed)

    def rekey(self, process: Process, view_id: int) -> None:
        """Seal with the key of this view from now on, if B has it."""
        held = self.held.get(view_id)
        if held is not None and process.present != view_id:
            process.present = view_id
            process.seal.rekey(HeldKeys(view_id, {view_id: held.key},
                                        {view_id: held.members.keys()}), self.now)

    def knows_a_view_of(self, member: Honest) -> bool:
        """Return whether B has the key of a view with which the member opens something
        now."""
        return not member.seal._views.keys().isdisjoint(self.held)

    # -------------------------------------------------------------------------- views, with keys

    def on_prepare(self, maker: int, prepare: Prepare) -> None:
        """Take the key of a view out of the datagram that brings it."""
        super().on_prepare(maker, prepare)
        for seat in prepare.seats:
            if seat.incarnation in self.processes:
                self.take(self.process(seat.incarnation), maker, prepare)

    def take(self, process: Process, maker: int, prepare: Prepare) -> None:
        key = process.ring.opens(prepare.keys.get(process.ring.member, b""), prepare.id,
                                 process.ring.member)
        if key is not None:
            self.held[prepare.id] = Held(key, maker, {
                seat.incarnation: seat.public for seat in prepare.seats})

    def say(self, target: Honest, kind: int, body: object, sender: int = HOSTILE) -> None:
        """Say a word with the public keys, the key of a view, and the chain, that
        belong to it."""
        if isinstance(body, messages.Seek):
            body.public = self.public(sender)
        for view in (body, getattr(body, "finish", None), getattr(body, "install", None)):
            for seat in getattr(view, "seats", ()):
                seat.public = self.public(seat.incarnation)
        if isinstance(body, Prepare):
            ring = self.process(HOSTILE).ring
            for view_id, held in self.held.items():
                ring.hold(view_id, held)
            body.keys, body.chain = ring.make(body.id, body.seats)
            if body.id not in self.held:
                self.take(self.process(HOSTILE), sender, body)
        super().say(target, kind, body, sender)

    def public(self, incarnation: int) -> bytes:
        if incarnation in HONEST:
            return next(each.members.rekeying.public for each in self.members
                        if each.incarnation == incarnation)
        return self.process(incarnation).ring.public

    # ----------------------------------------------------------------------------------- bounds

    def check_seal(self, member: Honest) -> None:
        """Check that tables have the members of a view only, or few others."""
        seal = member.seal
        assert len(seal.senders) <= sealing.MOST_SENDERS
        assert len(seal._strangers) <= sealing.MOST_ASKED + 1
        assert len(seal._answers) <= sealing.BURST + len(self.processes)
        assert len(seal._views) <= sealing.MOST_VIEWS
        assert all(view.senders.keys() <= set(view.members) for view in seal._views.values())
        assert all(len(known.epochs) <= 3 for known in seal.senders.values())


class InsiderLinked(Insider, Linked):
    """The same over TCP."""


class InsiderNakack2(Insider, Nakack2Group):
    """The same with NAKACK2."""


class InsiderLinkedNakack2(Insider, LinkedNakack2):
    """The same with NAKACK2 over TCP."""


INSIDERS: dict[str, type[Insider]] = {
    "mcast-udp": Insider, "mcast-tcp": InsiderLinked, "nakack2-udp": InsiderNakack2,
    "nakack2-tcp": InsiderLinkedNakack2}
