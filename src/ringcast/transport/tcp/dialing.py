"""Which addresses to dial, and when. No socket and no clock: `now` comes in, addresses
come out.

A candidate is an address where a member may be. Until there is a table of routes, all
candidates are dialed again and again. Then the members of the table that have no link
are dialed, with a backoff; and the candidates now and then, because a member may be
there that the table does not have yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from ringcast.transport.ipv4 import HostPort
from ringcast.transport.tcp.handshake import LinkNumbers
from ringcast.transport.tcp.link import Link

MILLISECOND = 1_000_000
FOREVER = 1 << 63

# Shortest and longest time between two rounds of candidates without a table, and time
# with one.
SEARCH_FIRST, SEARCH_LAST = 50 * MILLISECOND, 500 * MILLISECOND
SEARCH_LATER = 5_000 * MILLISECOND

# Shortest and longest time between two dials of one member.
REDIAL_FIRST, REDIAL_LAST = 20 * MILLISECOND, 1_000 * MILLISECOND

MOST_PEERS = 4096                       # whose numbers of links are remembered


class Peer:
    """What is known of one incarnation: while it is in the table or has a link, and for
    some time after."""

    __slots__ = ("attempts", "due", "host", "link", "numbers")

    def __init__(self) -> None:
        self.numbers = LinkNumbers()
        self.link: Link | None = None
        self.host = ""                  # the other end of the link
        self.attempts = 0               # dials since a link carried anything
        self.due = 0                    # the instant before which it is not dialed

    @property
    def is_linked(self) -> bool:
        """Return whether the peer has a link that is up."""
        return self.link is not None and self.link.is_up


class Dialing:
    """The peers of `member`, which listens at `own`, and the `candidates` for more.

    Single owner: the polling thread.
    """

    def __init__(self, member: int, own: HostPort, candidates: Sequence[HostPort]) -> None:
        self.peers: OrderedDict[int, Peer] = OrderedDict()
        self._member = member
        self._candidates = [each for each in dict.fromkeys(candidates) if each != own]
        self._found_at: dict[HostPort, int] = {}           # who was last found at a candidate
        self._routes: dict[int, HostPort] = {}
        self._search_at, self._search_interval = 0, SEARCH_FIRST

    def set_routes(self, routes: Mapping[int, HostPort]) -> None:
        """Take a new table of routes. If it has other members, the group is found, and
        candidates are dialed more rarely."""
        self._routes = {member: endpoint for member, endpoint in routes.items()
                        if member != self._member}
        if self._routes:
            self._search_interval = SEARCH_LATER

    def peer(self, member: int) -> Peer:
        """Return what is known of a member. Peers without link and route are forgotten
        when there are more than MOST_PEERS."""
        peer = self.peers.get(member)
        if peer is None:
            self._forget_some()
            peer = self.peers[member] = Peer()
        return peer

    def _forget_some(self) -> None:
        excess = len(self.peers) + 1 - MOST_PEERS
        if excess > 0:
            strangers = [member for member, peer in self.peers.items()
                         if peer.link is None and not peer.numbers.proposed
                         and member not in self._routes]
            for member in strangers[:excess]:
                del self.peers[member]

    def on_found(self, endpoint: HostPort, member: int) -> None:
        """Note which member was found at an address; it may be this member itself."""
        if endpoint in self._candidates:
            self._found_at[endpoint] = member

    def on_link_lost(self, member: int, now: int) -> None:
        """Plan to dial a member whose link ended: at once, or with a backoff if its
        links have carried nothing."""
        peer = self.peer(member)
        peer.due = now + _backoff(self._member, member, peer.attempts) if peer.attempts else now

    def due_endpoints(self, now: int) -> Iterator[HostPort]:
        """Yield the addresses to dial now."""
        for member, endpoint in self._routes.items():
            peer = self.peer(member)
            if not peer.is_linked and now >= peer.due:
                peer.attempts += 1
                peer.due = now + _backoff(self._member, member, peer.attempts)
                yield endpoint
        if now >= self._search_at:
            self._search_at = now + self._search_interval
            if self._search_interval < SEARCH_LAST:
                self._search_interval = min(2 * self._search_interval, SEARCH_LAST)
            yield from (endpoint for endpoint in self._candidates if self._is_unknown(endpoint))

    def _is_unknown(self, endpoint: HostPort) -> bool:
        """Return whether a member without a link may be at this candidate."""
        member = self._found_at.get(endpoint, 0)
        peer = self.peers.get(member)
        return member != self._member and (peer is None or not peer.is_linked)

    def deadline(self) -> int:
        """Return the instant when there is something to dial next."""
        unlinked = (self.peer(member) for member in self._routes)
        first = min((peer.due for peer in unlinked if not peer.is_linked), default=FOREVER)
        return min(first, self._search_at) if self._candidates else first


def _backoff(one: int, other: int, attempts: int) -> int:
    """Return the time until the next dial. It doubles with each attempt, and differs by
    up to a quarter, so that two members that dial each other do not keep in step."""
    pause = min(REDIAL_FIRST << min(attempts - 1, 16), REDIAL_LAST)
    mixed = (one * 0x9E3779B97F4A7C15 + other * 0xC2B2AE3D27D4EB4F
             + attempts * 0x165667B19E3779F9)
    return pause * (192 + (mixed >> 32 & 0xFF) // 2) // 256
