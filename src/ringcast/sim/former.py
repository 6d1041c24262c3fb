"""Former members of a sealed group: whoever was a member once, or is one in another
view, knows the secret, all that it was told, and all that is sent. With that it tries
to open what is said in views that it is not in, to be heard there, and to make a view
of the others whose key it knows.

Nothing of it may succeed. The keys that it may still use for a moment are those of
views that the one it speaks to has just left.
"""

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag

from ringcast._core import wire
from ringcast._core.seal import nonce
from ringcast.protocols.membership.coordinator import MAKER
from ringcast.protocols.membership.messages import PREPARE, Prepare
from ringcast.protocols.membership.sense import COUNTER
from ringcast.protocols.security.keyring import ENTROPY, Held, Keyring
from ringcast.protocols.security.seal import (
    CONTROL,
    COUNT,
    HEADER,
    HEADER_SIZE,
    KIND,
    MAGIC,
    OLD_KEY,
    VERSION,
    ViewSeal,
)
from ringcast.sim.network import MS
from ringcast.stack import HeldKeys, Instant
from ringcast.stacks import OUTSIDE

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member
    from ringcast.sim.sealing import Sealing

MOST = 100                              # datagrams that they remember
LISTENS, SPEAKS = 0.03, 0.01            # how often one of them tries
LATEST_KEYS = 4                         # that it tries
LATEST = 8_000 * MS                     # until when they say something


class Former:
    """All former members of a cluster."""

    def __init__(self, cluster: "Cluster", sealing: "Sealing", rng: Random) -> None:
        self.cluster, self.sealing, self.rng = cluster, sealing, rng
        self.keys: dict[int, dict[int, bytes]] = {}             # of views, by who knows them
        self.given_up: dict[int, dict[int, Instant]] = {}       # and when it did so, by its clock
        self.heard: deque[bytes] = deque(maxlen=MOST)           # and could be read
        self.num_heard = self.num_said = 0

    def learn(self, member: "Member", held: HeldKeys) -> None:
        """Note the keys that a member holds now."""
        known = self.keys.setdefault(member.incarnation, {})
        given_up = self.given_up.setdefault(member.incarnation, {})
        known |= held.keys
        for view_id in known.keys() - held.keys:
            given_up.setdefault(view_id, member.now)

    # ------------------------------------------------------------------------------------ to listen

    def hear(self, source: "Member", datagram: bytes, sealed: bytes) -> None:
        """Try to open what a member says in its view, with all that others know."""
        install, rng = source.members.install, self.rng
        if install is None:
            return
        if datagram[KIND] == PREPARE and rng.random() < 5 * LISTENS:
            self._open_keys(source, datagram)
        if datagram[KIND] in OUTSIDE or rng.random() >= LISTENS:
            return
        self.heard.append(datagram)
        outsiders = [outsider for outsider in self.keys if outsider not in source.members.members]
        if outsiders:
            self.num_heard += 1
            outsider = rng.choice(outsiders)
            keys = list(self.keys[outsider].items())[-LATEST_KEYS:]
            roots = [self.sealing.keys.of_view(as_id, key) for view_id, key in keys
                     for as_id in (view_id, install.id)]
            if any(self._opens(source, sealed, root) for root in (None, *roots)):
                self.cluster.checkers.violated("secrecy", f"{outsider:016x} is not in the view of "
                                               f"{source.name} and can read what it says")
        if rng.random() < SPEAKS / LISTENS:
            self.cluster.at(self.cluster.now + rng.randrange(LATEST), self._speak)

    def _opens(self, source: "Member", sealed: bytes, root: bytes | None) -> bool:
        seal = source.transport.seal
        assert seal is not None
        _, _, channel, epoch, sender, number = HEADER.unpack_from(sealed)
        cipher = self.sealing.keys.cipher(seal.salt, sender, epoch, root)
        try:
            cipher.decrypt(nonce(channel, number), sealed[HEADER_SIZE:], sealed[:HEADER_SIZE])
        except InvalidTag:
            return False
        return True

    def _open_keys(self, source: "Member", datagram: bytes) -> None:
        """Try to open the keys of a view that is prepared, as somebody who is not to be
        in it."""
        prepare = source.stack.kind(PREPARE).decode(datagram)
        seats = {seat.incarnation for seat in prepare.seats}
        outsider = self.rng.choice(list(self.cluster.incarnations.values()))
        ring = outsider.members.rekeying.keyring
        assert ring is not None
        if outsider.incarnation not in seats and any(
                ring.opens(sealed, prepare.id, whose) for whose, sealed in prepare.keys.items()):
            self.cluster.checkers.violated("secrecy", f"{outsider.name} has got the key of a view "
                                           f"that {source.name} prepares without it")

    # ------------------------------------------------------------------------------------- to speak

    def _speak(self) -> None:
        """Say something to a member in the name of another one, as somebody who is not
        in its view."""
        targets = [member for member in self.cluster.living() if member.members.install]
        if not targets:
            return
        target = self.rng.choice(targets)
        seal, members = target.transport.seal, target.members.members
        assert seal is not None
        names = sorted(members.keys() & seal.senders.keys())
        outsiders = [outsider for outsider in self.keys if outsider not in members]
        if names and outsiders and self.heard:
            self.num_said += 1
            outsider, name = self.rng.choice(outsiders), self.rng.choice(names)
            self._forge_datagrams(target, outsider, name)
            self._forge_view(target, outsider, name)

    def _forge_datagrams(self, target: "Member", outsider: int, name: int) -> None:
        """Say what was said once, sealed with the secret, and with each key that the
        target must have given up by now."""
        seal, given_up = target.transport.seal, self.given_up[target.incarnation]
        assert seal is not None
        known, heard = seal.senders[name], self.rng.choice(self.heard)
        text = wire.make_datagram(heard[KIND], target.stack.group, name, 0,
                                  heard[wire.HEADER_SIZE:])
        old = [(view_id, key) for view_id, key in self.keys[outsider].items()
               if target.now > given_up.get(view_id, target.now) + OLD_KEY][-LATEST_KEYS:]
        views = [ViewSeal(self.sealing.keys.of_view(*each), ()) for each in old]
        for root, tag, epoch in ((None, 0, known.number),
                                 *((view.root, view.tag, 0) for view in views)):
            cipher = self.sealing.keys.cipher(known.salt, name, epoch, root)
            header = HEADER.pack(MAGIC, VERSION, CONTROL, epoch, name, tag | COUNT)
            said = header + cipher.encrypt(nonce(CONTROL, tag | COUNT), text, header)
            if seal.open([said], target.now):
                self.cluster.checkers.violated(
                    "secrecy", f"{target.name} hears {outsider:016x}, who is not in its view, and "
                    f"takes it for {target.members.members[name].name}")

    def _forge_view(self, target: "Member", outsider: int, name: int) -> None:
        """Prepare a view of the target and its members in the name of one of them."""
        layer = target.members
        seats = list(layer.members.values())
        ring = Keyring(self.sealing.group, name, self.rng.randbytes(ENTROPY),
                       seals_for=self.sealing.seals_for)
        for known, key in self.keys[outsider].items():
            ring.hold(known, Held(key, name, {}))
        view_id = (layer.promised >> COUNTER) + 1 << COUNTER | name & MAKER
        keys, chain = ring.make(view_id, seats)
        if layer.rekeying.take(name, Prepare(view_id, seats, None, [], keys, chain)):
            self.cluster.checkers.violated(
                "secrecy", f"{target.name} promises a view to {outsider:016x}, who is not in its "
                "view, and whom it takes for another one")
