"""Processes that want to be members where keys are trusted, and may not: one whose key
nobody trusts, and one whose key is trusted at first, and then taken out of all folders.

They hear all that is sent, answer challenges as a member does, and try to take names of
members and, with what they were told, to speak for them. Until its key is removed, the
second one may open what members say to everybody who has a key; but it gets no name
that is not its own, and so no place in a view.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from ringcast._core import wire
from ringcast._core.seal import nonce
from ringcast.kinds import Kind
from ringcast.protocols.membership.messages import ALIVE, SEEK, Alive, Seek
from ringcast.protocols.security.identity import Identity
from ringcast.protocols.security.keyring import ENTROPY, Keyring
from ringcast.protocols.security.seal import CONTROL, HEADER, MAGIC, VERSION, Seal
from ringcast.sim.network import MS

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member

SPEAKS = 0.05           # how often one of them tries when it hears something
LATEST = 500 * MS       # until when it says it
REMOVED = 1_500 * MS    # until when the key of the second one is removed


class Pretender:
    """One of them. Over connections it can only hear: its handshakes are refused."""

    def __init__(self, cluster: "Cluster", rng: Random, name: str) -> None:
        sealing = cluster.sealing
        assert sealing is not None and sealing.trusted is not None
        self.cluster, self.rng, self.name, self.sealing = cluster, rng, name, sealing
        self.incarnation = rng.getrandbits(63) + 1
        self.key = sealing.key(name)
        identity = Identity(sealing.private(name), {**sealing.trusted, self.key: frozenset([name])})
        self.keyring = Keyring(sealing.group, self.incarnation, rng.randbytes(ENTROPY), identity,
                               sealing.seals_for)
        self.seal = sealing.seal(self.incarnation, self.keyring)
        # What seals the datagrams of members without a view, by incarnation and epoch.
        self.roots: dict[int, dict[int, bytes | None]] = {}
        self.is_over = False
        self.num_said = 0

    def hear(self, source: "Member", datagram: bytes) -> None:
        """Read what a member says, as a member would; answer it, and perhaps try
        something."""
        if self.is_over:
            return
        now = self.cluster.now
        if self.seal.open([datagram], now) and not self._is_trusted_by(source):
            self._violated(f"reads what {source.name} says, who does not trust its key")
        for sender, known in self.seal.senders.items():
            self.roots.setdefault(sender, {})[known.number] = known.root
        if self.cluster.links is None:
            for hello in self.seal.hellos(now):
                for member in self.cluster.living():
                    self._later(member.arrive, hello)
            if self.rng.random() < SPEAKS:
                self._later(self._speak)
        self._check()

    def end(self) -> None:
        """Say and hear nothing any more."""
        self.is_over = True

    def _later(self, act: Callable[..., None], *args: bytes) -> None:
        self.cluster.at(self.cluster.now + self.rng.randrange(1, LATEST), self._act, act, args)

    def _act(self, act: Callable[..., None], args: tuple[bytes, ...]) -> None:
        if not self.is_over:
            act(*args)

    def _is_trusted_by(self, member: "Member") -> bool:
        identity = seal_of(member).identity
        return identity is not None and self.key in identity.trusted

    def _violated(self, what: str) -> None:
        self.cluster.checkers.violated("trust", f"{self.name}, whose key is not for this, {what}")

    def _check(self) -> None:
        """See that nobody takes this process for a member, or believes it."""
        for member in self.cluster.living():
            layer, seal = member.members, seal_of(member)
            change = layer.coordinator.change
            seats = set(layer.members) | (change.members if change is not None else set())
            if self.incarnation in seats | layer.meeting.discovery.seekers.keys():
                self._violated(f"is let in by {member.name}")
            if self.incarnation in seal.senders and not self._is_trusted_by(member):
                self._violated(f"is heard by {member.name}")

    # ------------------------------------------------------------------------------------- to speak

    def _speak(self) -> None:
        """Seek with the name of a member, or speak for one with what it has told us."""
        targets = self.cluster.living()
        if targets:
            self.num_said += 1
            target = self.rng.choice(targets)
            if self.rng.random() < 0.5:
                self._seek(target, self.rng.choice(self.cluster.names))
            else:
                self._forge(target)

    def _seek(self, target: "Member", name: str) -> None:
        body = Seek(name, self.name, target.members.meeting.terms, 1, 0, self.keyring.public)
        text = self._datagram(target, SEEK, body, self.incarnation)
        for few in self.seal.seal([(0, text)]):
            for _, sealed in few:
                target.arrive(bytes(sealed))

    def _forge(self, target: "Member") -> None:
        """Say something in the name of a member that does not trust our key any more,
        and has told the target so."""
        seal = seal_of(target)
        for sender, known in seal.senders.items():
            for epoch, root in self.roots.get(sender, {}).items():
                if root != known.root:
                    text = self._datagram(target, ALIVE, Alive(0, 0), sender)
                    header = HEADER.pack(MAGIC, VERSION, CONTROL, known.number, sender, 1 << 30)
                    cipher = self.sealing.keys.cipher(known.salt, sender, known.number, root)
                    said = header + cipher.encrypt(nonce(CONTROL, 1 << 30), text, header)
                    if seal.open([said], target.now):
                        self._violated(f"speaks for {sender:016x} to {target.name} with the key "
                                       f"of epoch {epoch}")

    def _datagram(self, target: "Member", kind: Kind, body: Struct, sender: int) -> bytes:
        said = target.stack.control(kind, body).data[wire.HEADER_SIZE:]
        return wire.make_datagram(kind, target.stack.group, sender, 0, bytes(said), checked=False)


class Removed(Pretender):
    """The second one, whose key is removed at a time that the seed draws."""

    def __init__(self, cluster: "Cluster", rng: Random, name: str) -> None:
        super().__init__(cluster, rng, name)
        assert self.sealing.trusted is not None
        self.sealing.trusted[self.key] = frozenset([name])
        cluster.at(rng.randrange(1, REMOVED), self.remove)

    def remove(self) -> None:
        """Take the key out of all folders."""
        trusted = self.sealing.trusted
        assert trusted is not None
        if self.is_over:
            return
        trusted.pop(self.key, None)
        for member in self.cluster.living():
            seal_of(member).retrust(dict(trusted))
            member.request_turn()


def seal_of(member: "Member") -> Seal:
    """Return the seal of a member; it has one."""
    assert member.transport.seal is not None
    return member.transport.seal


def both(cluster: "Cluster", rng: Random) -> list[Pretender]:
    """Return the two pretenders of a cluster."""
    return [Pretender(cluster, rng, "stranger"), Removed(cluster, rng, "removed")]
