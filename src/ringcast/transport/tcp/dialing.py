"""Which addresses to dial, and when. No socket and no clock: `now` comes in, addresses
come out.

A candidate is an address where a member may be. Until there is a table of routes, all
candidates are dialed again and again. Then the members of the table that have no link
are dialed, with a backoff; and the candidates now and then, because a member may be
there that the table does not have yet. Candidates come from an option. Places that are
sought come and go while the member runs; each is dialed with a backoff of its own until
a member that is there has a link. Who has dialed a link also dials the connection for
control of that link, until it is there.

If nobody listens where a member of the table listened, or somebody else answers there,
its process seems to be gone. A link that ended proves nothing: whatever is between the
two may have cut it. So the member is dialed at once, which a machine without the
process refuses at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from operator import itemgetter

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
REDIAL_FIRST, REDIAL_LAST = 5 * MILLISECOND, 1_000 * MILLISECOND

# Shortest and longest time between two dials of a place that is sought.
SEEK_FIRST, SEEK_LAST = 50 * MILLISECOND, 5_000 * MILLISECOND

MOST_DIALS = 64                         # at a time
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


class Place:
    """A place that is sought, or where a connection for control is wanted."""

    __slots__ = ("attempts", "due")

    def __init__(self) -> None:
        self.attempts = 0               # dials since a member there had what is wanted
        self.due = 0                    # the instant before which it is not dialed


class Dialing:
    """The peers of `member`, which listens at `own`, and the `candidates` for more.

    Single owner: the polling thread.
    """

    def __init__(self, member: int, own: HostPort, candidates: Sequence[HostPort]) -> None:
        self.peers: OrderedDict[int, Peer] = OrderedDict()
        self._member, self._own = member, own
        self._candidates = [each for each in dict.fromkeys(candidates) if each != own]
        self._places: dict[HostPort, Place] = {}            # that are sought
        self._places_at = FOREVER                           # when to look at them next
        # Members whose links have no connection for control: where it is dialed.
        self._lacking: dict[int, HostPort] = {}
        self._controls: dict[int, Place] = {}               # of all whose links ever lacked one
        self._gone: dict[int, None] = {}                    # members, in order
        self._found_at: dict[HostPort, int] = {}           # who was last found at a candidate
        self._routes: dict[int, HostPort] = {}
        self._search_at, self._search_interval = 0, SEARCH_FIRST
        self.lacks_room = False             # members are due that find no room

    def set_routes(self, routes: Mapping[int, HostPort]) -> None:
        """Take a new table of routes. If it has other members, the group is found, and
        candidates are dialed more rarely."""
        self._routes = {member: endpoint for member, endpoint in routes.items()
                        if member != self._member}
        if self._routes:
            self._search_interval = SEARCH_LATER

    def seek(self, places: Sequence[HostPort]) -> None:
        """Replace the list of places that are sought."""
        self._places = {place: self._places.get(place) or Place() for place in places
                        if place != self._own}
        self._places_at = 0
        self._found_at = {place: member for place, member in self._found_at.items()
                          if place in self._places or place in self._candidates}

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
        if endpoint in self._places or endpoint in self._candidates:
            self._found_at[endpoint] = member

    def on_answer(self, endpoint: HostPort, member: int) -> None:
        """Note which member answered at an address that was dialed; 0: nobody listens
        there, or no member of the group. Members of the table that should be there are
        gone."""
        if member:
            self.on_found(endpoint, member)
        for each, where in self._routes.items():
            if where == endpoint and each != member and not self.peer(each).is_linked:
                self._gone[each] = None

    def on_link(self, member: int) -> None:
        """Note that a member has a new link: it is there."""
        self._gone.pop(member, None)

    @property
    def has_gone(self) -> bool:
        """Return whether there is a member for take_gone()."""
        return bool(self._gone)

    def take_gone(self) -> list[int]:
        """Return the members whose processes seem to be gone, since the last call."""
        gone, self._gone = list(self._gone), {}
        return gone

    def want_control(self, member: int, where: HostPort, has_carried: bool = False) -> None:
        """Dial the connection for control of a link, from now on until it is there: at
        once, or with a backoff if the ones before have carried nothing."""
        place = self._controls.setdefault(member, Place())
        if has_carried:
            place.attempts = place.due = 0
        self._lacking.setdefault(member, where)

    def on_control(self, member: int) -> None:
        """Note that a link has its connection for control, or needs none any more."""
        self._lacking.pop(member, None)

    def due_controls(self, now: int) -> list[tuple[int, HostPort]]:
        """Return the members, and where they are, to dial now for control."""
        due = [(member, where) for member, where in self._lacking.items()
               if now >= self._controls[member].due]
        for member, _ in due:
            place = self._controls[member]
            place.attempts += 1
            place.due = now + self._pause(member, place.attempts)
        return due

    def on_link_lost(self, member: int, now: int) -> None:
        """Plan to dial a member whose link ended: at once, or with a backoff if its
        links have carried nothing."""
        self.on_control(member)
        self._controls.pop(member, None)
        peer = self.peer(member)
        peer.due = now + self._pause(member, peer.attempts) if peer.attempts else now
        self._places_at = 0

    def start_anew(self, now: int) -> None:
        """Plan to dial all members whose links were up, because no connection is there
        any more."""
        for member, peer in self.peers.items():
            peer.numbers.give_up()
            if peer.link is not None:
                peer.link = None
                self.on_link_lost(member, now)
        self._lacking.clear()
        self._controls.clear()

    def due_members(self, now: int, dialed: Collection[HostPort]) -> list[HostPort]:
        """Return the addresses of members to dial now, those first that have waited
        longest. With those that are `dialed` already there are at most MOST_DIALS."""
        due = sorted((peer.due, member, endpoint) for member, endpoint in self._routes.items()
                     if not (peer := self.peer(member)).is_linked and now >= peer.due)
        found: list[HostPort] = []
        self.lacks_room = False
        for _, member, endpoint in due:
            if endpoint not in dialed and endpoint not in found:
                if len(dialed) + len(found) >= MOST_DIALS:
                    self.lacks_room = True
                    continue
                found.append(endpoint)
            peer = self.peer(member)
            peer.attempts += 1
            peer.due = now + self._pause(member, peer.attempts)
        return found

    def due_candidates(self, now: int, most: int) -> list[HostPort]:
        """Return the candidates to dial now, at most so many: those first that have
        waited longest."""
        if now < self._search_at:
            return []
        self._search_at = now + self._search_interval
        if self._search_interval < SEARCH_LAST:
            self._search_interval = min(2 * self._search_interval, SEARCH_LAST)
        dialed = list(islice(filter(self._is_unknown, self._candidates), most))
        self._candidates = [each for each in self._candidates if each not in dialed] + dialed
        return dialed

    def due_places(self, now: int, most: int) -> list[HostPort]:
        """Return the places that are sought to dial now, at most so many: those first
        that have waited longest."""
        if now < self._places_at:
            return []
        unknown = []
        for where, place in self._places.items():
            if self._is_unknown(where):
                unknown.append((place.due, where, place))
            else:
                place.attempts = place.due = 0
        unknown.sort(key=itemgetter(0))
        dialed = [(where, place) for due, where, place in unknown if due <= now][:most]
        for where, place in dialed:
            place.attempts += 1
            place.due = now + _backoff(self._member, where[1], place.attempts, SEEK_FIRST,
                                       SEEK_LAST)
        first = min((place.due for _, _, place in unknown), default=FOREVER)
        self._places_at = max(first, now + SEEK_FIRST)
        return [where for where, _ in dialed]

    def _is_unknown(self, endpoint: HostPort) -> bool:
        """Return whether a member without a link may be at this candidate."""
        member = self._found_at.get(endpoint, 0)
        peer = self.peers.get(member)
        return member != self._member and (peer is None or not peer.is_linked)

    def deadline(self) -> int:
        """Return the instant when there is something to dial next. None is known for
        members while one of them `lacks_room`."""
        unlinked = (self.peer(member) for member in self._routes if not self.lacks_room)
        first = min((peer.due for peer in unlinked if not peer.is_linked), default=FOREVER)
        first = min(first, self._places_at,
                    *(self._controls[member].due for member in self._lacking))
        return min(first, self._search_at) if self._candidates else first

    def _pause(self, member: int, attempts: int) -> int:
        """Return the time until a member is dialed again."""
        return _backoff(self._member, member, attempts, REDIAL_FIRST, REDIAL_LAST)


def _backoff(one: int, other: int, attempts: int, shortest: int, longest: int) -> int:
    """Return the time until the next dial. It doubles with each attempt, and differs by
    up to a quarter, so that two members that dial each other do not keep in step."""
    pause = min(shortest << min(attempts - 1, 16), longest)
    mixed = (one * 0x9E3779B97F4A7C15 + other * 0xC2B2AE3D27D4EB4F
             + attempts * 0x165667B19E3779F9)
    return pause * (192 + (mixed >> 32 & 0xFF) // 2) // 256
