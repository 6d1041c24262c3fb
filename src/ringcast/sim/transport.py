"""The transport of a simulated member: its socket, or its connections."""

from typing import TYPE_CHECKING

from ringcast.address import EVERYONE
from ringcast.stack import HeldKeys

if TYPE_CHECKING:
    from ringcast.sim.member import Member

MAX_DATAGRAMS = 64              # that one turn takes from the socket, as the transports do


class MemberTransport:
    """What has arrived and was not read yet, and what is to leave.

    A socket holds `socket_bytes`, and datagrams that find no room are lost. A
    lossless transport reads its connections in time, so nothing overflows.
    `send_full` is the probability that the end of a turn's datagrams finds the send
    buffer full; it may be changed at any time.
    """

    def __init__(self, member: "Member", socket_bytes: int, is_lossless: bool) -> None:
        self.member = member
        self.socket_bytes = socket_bytes
        self.is_lossless = is_lossless
        self.arrived: list[bytes] = []
        self.num_bytes = 0                      # of the datagrams that have arrived
        self.new_links: list[int] = []          # members with new connections
        self.refused: dict[int, None] = {}      # members that seem to be gone, in order
        self.routes: dict[int, str] = {}        # where members can be reached
        self.send_full = 0.0
        sealing = member.cluster.sealing
        self.seal = None
        if sealing is not None and member.keyring is not None:
            self.seal = sealing.seal(member.incarnation, member.keyring)
        self.num_overflows = 0
        self.num_unsent = 0

    def arrive(self, datagram: bytes) -> bool:
        """Take a datagram into the socket; return whether there was room."""
        if self.num_bytes + len(datagram) > self.socket_bytes and not self.is_lossless:
            self.num_overflows += 1
            return False
        self.arrived.append(datagram)
        self.num_bytes += len(datagram)
        return True

    def read(self) -> list[bytes]:
        """Return the datagrams of one turn, as SealedTransport does."""
        datagrams, self.arrived = self.arrived[:MAX_DATAGRAMS], self.arrived[MAX_DATAGRAMS:]
        self.num_bytes = sum(map(len, self.arrived))
        if self.seal is not None:
            self.seal.end_old(self.member.now)
            datagrams = list(map(bytes, self.seal.open(datagrams, self.member.now)))
            self.say_hello()
        return datagrams

    def sealed(self, dest: int, datagram: bytes) -> bytes:
        """Return a datagram as it is on the wire."""
        if self.seal is not None:
            ((_, view),), = self.seal.seal([(dest, datagram)])
            return bytes(view)
        return datagram

    def rekey(self, held: HeldKeys) -> None:
        """Seal and open with these keys of views from now on."""
        former = self.member.cluster.former
        assert self.seal is not None and former is not None
        self.seal.rekey(held, self.member.now)
        former.learn(self.member, held)

    def say_hello(self) -> None:
        """Ask and answer who is to be asked and answered now."""
        if self.seal is not None and self.member.alive:
            for hello in self.seal.hellos(self.member.now):
                self.member.cluster.send(self.member, EVERYONE, hello)

    @property
    def emptied(self) -> bool:
        """Return whether nothing waits that has arrived."""
        return not self.arrived and not (self.seal is not None and self.seal.was_asked)

    def take_links(self) -> list[int]:
        """Return the members with new connections since the last turn."""
        links, self.new_links = self.new_links, []
        if self.seal is not None:
            self.seal.linked(links)
            self.say_hello()
            return self.seal.take_linked()
        return links

    def take_refused(self) -> list[int]:
        """Return the members that seem to be gone, since the last turn."""
        refused, self.refused = list(self.refused), {}
        return refused

    def put(self, packets: list[tuple[int, bytes]]) -> None:
        """Send the datagrams of a turn, as far as the send buffer takes them. A
        transport with connections cuts one whose queue is full."""
        cluster, links = self.member.cluster, self.member.cluster.links
        unsent: list[tuple[int, bytes]] = []
        if self.send_full and links is not None:
            if cluster.rng.random() < self.send_full / 10 and (
                    partners := links.partners(self.member)):
                links.break_link(self.member.name, cluster.rng.choice(partners).name)
        elif self.send_full and cluster.rng.random() < self.send_full:
            kept = cluster.rng.randrange(len(packets))
            self.num_unsent += len(packets) - kept
            packets, unsent = packets[:kept], packets[kept:]
        cluster.put(self.member, packets)
        if self.member.alive:               # the layers sent them, whatever became of them
            for dest, datagram in unsent:
                cluster.observer.sent(self.member, dest, datagram)
