"""Whom to dial, and when. No socket and no clock: `now` comes in, addresses come out.

Until there is a table of routes all candidates are dialed again and again, because one
of them may be somebody. Then members in the table that have no link are dialed, at once
and then ever more rarely, and the candidates now and then: somebody may be there who
belongs to the group and of whom the table does not know yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from ringcast.transport.tcp.handshake import Numbers
from ringcast.transport.tcp.link import Link

Endpoint = tuple[str, int]

MILLISECOND = 1_000_000
SEARCH_FIRST, SEARCH_LAST = 50 * MILLISECOND, 500 * MILLISECOND  # between two rounds while there is
                                                                 # no table
SEARCH_LATER = 5_000 * MILLISECOND                               # and when there is one
AGAIN_FIRST, AGAIN_LAST = 20 * MILLISECOND, 1_000 * MILLISECOND  # between two dials of one member
MOST_PEERS = 4096                                                # of which numbers are remembered
FOREVER = 1 << 63


class Peer:
    """One incarnation, while it is in the table or has a link, and for some time
    after."""

    __slots__ = ("attempts", "due", "host", "link", "numbers")

    def __init__(self) -> None:
        self.numbers = Numbers()
        self.link: Link | None = None
        self.host = ""                  # where that ends
        self.attempts = 0               # dials since a link was of use
        self.due = 0                    # not dialed before

    @property
    def linked(self) -> bool:
        return self.link is not None and self.link.standing


class Dialing:
    """Single owner: the polling thread."""

    def __init__(self, member: int, own: Endpoint, candidates: Sequence[Endpoint]) -> None:
        self.peers: OrderedDict[int, Peer] = OrderedDict()
        self._member = member
        self._candidates = [each for each in dict.fromkeys(candidates) if each != own]
        self._homes: dict[Endpoint, int] = {}           # who was last met at a candidate
        self._routes: dict[int, Endpoint] = {}
        self._search_at, self._search_interval = 0, SEARCH_FIRST

    def set_routes(self, routes: Mapping[int, Endpoint]) -> None:
        """Others in the table mean that the group is found. Who was in it before is
        dialed when it was due."""
        self._routes = {member: endpoint for member, endpoint in routes.items()
                        if member != self._member}
        if self._routes:
            self._search_interval = SEARCH_LATER

    def peer(self, member: int) -> Peer:
        """Its numbers, which are forgotten when too many others came since and it has
        neither link nor route."""
        peer = self.peers.get(member)
        if peer is None:
            self._forget_some()
            peer = self.peers[member] = Peer()
        return peer

    def _forget_some(self) -> None:
        excess = len(self.peers) + 1 - MOST_PEERS
        if excess > 0:
            strangers = [member for member, peer in self.peers.items() if peer.link is None
                         and not peer.numbers.proposed
                         and member not in self._routes]
            for member in strangers[:excess]:
                del self.peers[member]

    def met(self, endpoint: Endpoint, member: int) -> None:
        """Who was found at an endpoint; this member itself too."""
        if endpoint in self._candidates:
            self._homes[endpoint] = member

    def lost(self, member: int, now: int) -> None:
        """A link ended: dial at once, unless links to this member have been of no
        use."""
        peer = self.peer(member)
        peer.due = now + _pause(self._member, member, peer.attempts) if peer.attempts else now

    def dials(self, now: int) -> Iterator[Endpoint]:
        """The endpoints to dial now."""
        for member, endpoint in self._routes.items():
            peer = self.peer(member)
            if not peer.linked and now >= peer.due:
                peer.attempts += 1
                peer.due = now + _pause(self._member, member, peer.attempts)
                yield endpoint
        if now >= self._search_at:
            self._search_at = now + self._search_interval
            if self._search_interval < SEARCH_LAST:
                self._search_interval = min(2 * self._search_interval, SEARCH_LAST)
            yield from (endpoint for endpoint in self._candidates if self._is_unknown(endpoint))

    def _is_unknown(self, endpoint: Endpoint) -> bool:
        member = self._homes.get(endpoint, 0)
        peer = self.peers.get(member)
        return member != self._member and (peer is None or not peer.linked)

    def deadline(self) -> int:
        """When dials() has something to do next."""
        unlinked = (self.peer(member) for member in self._routes)
        first = min((peer.due for peer in unlinked if not peer.linked), default=FOREVER)
        return min(first, self._search_at) if self._candidates else first


def _pause(one: int, other: int, attempts: int) -> int:
    """Doubles; spread by a quarter to either side, so that two that dial each other do
    not keep step."""
    pause = min(AGAIN_FIRST << min(attempts - 1, 16), AGAIN_LAST)
    spread = (one * 0x9E3779B97F4A7C15 + other * 0xC2B2AE3D27D4EB4F + attempts * 0x165667B19E3779F9) >> 32 & 0xFF
    return pause * (192 + spread // 2) // 256
