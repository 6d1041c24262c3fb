"""The target `outsider`: bytes as a program for a sealed group of three (the whole
stacks, in the simulator) and somebody without the key. The first byte says which stack
it is, and whether the group has a secret or trusted keys. The outsider has read the
wire format and hears all that is sent. It says that again, damaged or under another
header; it says datagrams of every kind without a seal, or sealed with a secret or a key
of its own, when it has answered as a member does. Over TCP it rewrites the stream of a
link: what it says comes in frames, under a true length or a false one.

Nothing of it may open, nor change a view, nor be remembered: each datagram is counted
and dropped. The checkers of the simulator look on, and at the end nothing is owed.
"""

from typing import Any

import msgspec
from byte_stream import UNKNOWN, Socket
from hostile import EDGES, Program

from ringcast._core import wire
from ringcast.address import EVERYONE
from ringcast.protocols.security import keyring as keyrings, seal as sealing
from ringcast.protocols.security.identity import Identity
from ringcast.protocols.security.keyring import Keyring
from ringcast.protocols.security.keys import Keys
from ringcast.protocols.security.seal import ENTROPY, HEADER, MAGIC, VERSION, Seal
from ringcast.sim.cluster import Cluster
from ringcast.sim.member import Member
from ringcast.sim.network import MS
from ringcast.stack import group_id
from ringcast.stacks import BULK, CONTROL, OUTSIDE
from ringcast.transport.tcp.link import Link, ReadBuffer

STACKS = ("mcast-udp", "nakack2-udp", "mcast-tcp", "nakack2-tcp")
TRUSTS = 4                              # bit of the first byte
NAMES = "ABC"
MOST = 300                              # datagrams that it remembers
OLD = 100 * MS                          # after which a datagram has arrived everywhere
COUNTED = ("datagrams_unsealed", "datagrams_unopened", "datagrams_replayed",
           "datagrams_of_strangers", "datagrams_of_other_views", "hellos_received",
           "hellos_refused")


class Overheard(Cluster):
    """A group in which somebody hears all that is sent, and for whom it is."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.heard: list[tuple[int, int, bytes]] = []
        super().__init__(*arguments, **options)

    def send(self, source: Member, dest: int, datagram: bytes) -> None:
        self.heard = [*self.heard[-MOST:], (self.now, dest, datagram)]
        super().send(source, dest, datagram)


class Outsider:
    """One run of a program."""

    def __init__(self, data: bytes) -> None:
        self.program = Program(data)
        first = self.program.byte()
        self.stack, self.trusts = STACKS[first % len(STACKS)], bool(first & TRUSTS)
        self.cluster = Overheard(NAMES, stack=self.stack, sealed=True, trusted=self.trusts, seed=1,
                                 form_margin=20, heartbeat_interval=50, suspect_timeout=1000)
        self.cluster.stranger = None                    # the simulator's own
        for pretender in self.cluster.pretenders:
            pretender.end()
        self.cluster.former.hear = lambda *_: None
        self.cluster.start()
        self.cluster.settle(20_000)
        # What came before its sender had answered was dropped. It would open once.
        self.cluster.heard.clear()
        self.views = self.view_ids()
        self.num_said = self.num_framed = 0

    def view_ids(self) -> list[list[int]]:
        return [[view.id for view in member.views] for member in self.cluster.living()]

    def run(self) -> None:
        while not self.program.is_over():
            self.program.choice(self.ACTS)(self)
        self.cluster.settle(20_000)
        assert self.views == self.view_ids()
        members = {member.incarnation for member in self.cluster.living()}
        for member in self.cluster.living():
            seal = member.transport.seal
            assert not member.stack.malformed and set(seal.senders) <= members
            assert len(seal._strangers) <= sealing.MOST_ASKED + 1

    # ------------------------------------------------------------------ what the group does

    def work(self) -> None:
        """Let the members send, and time pass."""
        for member in self.cluster.living():
            member.offer(self.program.byte() % 8, self.program.byte())
        self.cluster.run(1 + self.program.byte())

    # ------------------------------------------------------------------- what nobody takes

    def say(self, datagram: bytes, dest: int = EVERYONE) -> None:
        """Say a datagram to a member. Check that it is counted, and no more."""
        target = self.cluster.incarnations[dest] if dest else self.member()
        seal = target.transport.seal
        came = [datagram] if self.cluster.links is None else self.framed(datagram)
        before = seal.status()
        assert seal.open(came, self.cluster.now) == []
        counted = [getattr(seal.status(), name) - getattr(before, name) for name in COUNTED]
        own = datagram[8:16] == seal.member.to_bytes(8, "little")       # a HELLO of its own
        assert sum(counted) == len(came) or (own and not any(counted)), counted
        self.num_said += 1

    def framed(self, datagram: bytes) -> list[memoryview]:
        """Return what a link reads if somebody puts a datagram into its stream twice.
        Often it is in a frame of the one who is at the other end."""
        peer = int.from_bytes(datagram[8:16].ljust(8, b"\0"), "little")
        peer = peer if self.program.byte() & 7 else self.name()
        size = len(datagram) if self.program.byte() & 7 else self.number() % 2**10
        socket, frames = Socket(), []
        socket.arrivals.append(2 * (size.to_bytes(4, "little") + datagram))
        link = Link(socket, peer, ("127.0.0.1", 7700), None, 1)         # type: ignore[arg-type]
        link.read(frames, [ReadBuffer()])
        self.num_framed += len(frames)
        return frames

    def member(self) -> Member:
        return self.program.choice(self.cluster.living())

    def recorded(self) -> tuple[int, bytes]:
        """Return a datagram that has arrived long ago, and for whom it was."""
        old = [(dest, datagram) for at, dest, datagram in self.cluster.heard
               if at < self.cluster.now - OLD]
        return self.program.choice(old) if old else (EVERYONE, b"")

    def say_again(self) -> None:
        dest, datagram = self.recorded()
        self.say(datagram, dest)

    def say_damaged(self) -> None:
        _, datagram = self.recorded()
        damaged = bytearray(datagram)
        for _ in range(1 + self.program.byte() % 3 if damaged else 0):
            at = self.program.byte() << 8 | self.program.byte()
            damaged[at % len(damaged)] ^= self.program.byte()
        keep = len(damaged) if self.program.byte() & 3 else self.program.byte()
        self.say_other(bytes(damaged[:keep]) + self.program.bytes(20))

    def say_other(self, datagram: bytes) -> None:
        """Say what no member has said."""
        if datagram not in {heard for _, _, heard in self.cluster.heard}:
            self.say(datagram)

    def say_under_another_header(self) -> None:
        """Put a body that was heard, or any, under a header that may be true."""
        header = HEADER.pack(MAGIC, VERSION, self.program.byte() % 6, self.number() % 2**32,
                             self.name(), self.number() % 2**64)
        _, datagram = self.recorded()
        body = datagram[HEADER.size:] if self.program.byte() & 1 else self.program.bytes(99)
        self.say_other(header + body)

    def say_without_a_seal(self) -> None:
        self.say(self.plain())

    def say_with_another_secret(self) -> None:
        """Seal it as a member does, whose number it has, but with another secret, or a
        key that nobody trusts. It has read what the members ask, and answers."""
        seal, plain = self.another_seal(self.name() or 1), self.plain()
        if self.program.byte() & 1:
            members = self.cluster.living()
            seal._answers = {each.incarnation: each.transport.seal.challenge for each in members}
            seal._publics = {each.incarnation: each.keyring.public for each in members}
            for hello in seal.hellos(0):
                self.say(hello)
            plain = plain[:8] + seal.member.to_bytes(8, "little") + plain[16:]
        ((_, sealed),), = seal.seal([(EVERYONE, plain)])
        self.say(bytes(sealed))

    def another_seal(self, number: int) -> Seal:
        """Return a seal that has not what members have."""
        of = self.cluster.sealing
        if not self.trusts:
            keys = Keys(bytes([1]) * 32, of.group, "aes-256-gcm")
            return Seal(keys, number, bytes(ENTROPY), BULK, CONTROL, OUTSIDE)
        ring = Keyring(of.group, number, bytes(keyrings.ENTROPY),
                       Identity(UNKNOWN, dict(of.trusted)))
        return Seal(of.keys, number, bytes(ENTROPY), BULK, CONTROL, OUTSIDE, ring)

    def plain(self) -> bytes:
        """Return a datagram of any kind in a member's name, with the fields that its
        kind has, if these are numbers or empty."""
        member = self.member()
        kind = member.stack.kinds[self.program.choice(sorted(member.stack.kinds))]
        body = msgspec.msgpack.encode([self.number() for _ in range(self.program.byte() % 4)])
        return wire.make_datagram(kind, group_id(self.cluster.sealing.group), self.name(),
                                  EVERYONE, body, checked=bool(self.program.byte() & 1))

    def name(self) -> int:
        return self.program.choice([*self.cluster.incarnations, 77, 0, 2**64 - 1])

    def number(self) -> int:
        """Return an edge, or a number that a member counts with now."""
        which = self.program.byte()
        if which < 64:
            return EDGES[which % len(EDGES)] % 2**64
        seal = self.member().transport.seal
        unders = [seal._without_view, seal._in_view]
        return unders[which & 1].tag | (unders[which & 1].numbers[1 + which % 4] + which % 16)

    ACTS = (work, work, say_again, say_damaged, say_damaged, say_under_another_header,
            say_under_another_header, say_without_a_seal, say_with_another_secret)


def run(data: bytes) -> None:
    """Let a stranger say what the data has it say."""
    Outsider(data).run()
