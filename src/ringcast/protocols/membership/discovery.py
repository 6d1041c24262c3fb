"""Discovery: how members find each other, and when a group may form.

A member without a view says SEEK to everybody, again and again. Whoever has a view
lets it in. If nobody has one, one of those who seek forms the first view with all of
them: the lowest of those for whom there are enough (min_members). Observers do not
count, and form no view. It waits until it has heard nothing new for form_margin. So
members that start together form one group and not several. What has come and is not
read yet may be of one who seeks, so it counts as new, but not for ever: anybody can
send, and anybody can come and go.

The lowest may be heard and hear nobody. So two seconds later the next one forms the
view, and so on, unless somebody has begun to: each waits anew when another one does.
Nor may all of those who are needed hear the lowest: then it rests, longer each time.

In a crowd each SEEK to everybody is work for everybody. So the more are heard, the more
rarely it is said, and between to the one alone who would form the group.

Should two groups form all the same, they become one as soon as they hear of each other:
as soon as one hears all members of the other, because otherwise they would part again.
If some stay silent, it does not wait for ever.
"""

from collections.abc import Collection
from typing import NamedTuple

from ringcast.address import EVERYONE
from ringcast.config import MAX_MEMBERS, Config, nanoseconds
from ringcast.protocols.latest import Latest
from ringcast.protocols.membership.detection import WATCH_ALL
from ringcast.protocols.membership.messages import Present, Seat, Seek
from ringcast.protocols.membership.seldom import Seldom
from ringcast.stack import Instant

EAGER = 20              # SEEKs at seek_interval; later ones are rarer
RARER = 4               # times seek_interval
# Of n that seek, each leaves n * n * SHARE nanoseconds between two SEEKs to everybody,
# but not more than CROWDED times seek_interval.
SHARE, CROWDED = 60_000, 20
# For how many times seek_interval a SEEK counts; and in a crowd, of these pauses.
FRESH, FRESH_CROWD = 24, 3
MOST_VIEWS = 8          # other views that are remembered
SHUNNED = nanoseconds(5_000.0)  # for how long one that a member does not trust is not let in
MUTE = nanoseconds(250.0)       # for how long one that did not answer is not let in, at first ...
MOST_MUTE = nanoseconds(10_000.0)       # ... and at most
PATIENCE = 100          # times seek_interval: how long to wait until all of another group are heard
MOST_UNREAD = nanoseconds(5_000.0)      # for how long we wait for what is unread ...
MOST_RESTLESS = nanoseconds(10_000.0)   # ... and while others come and go
# For how long the group is left to the lowest to form, and then to each next one.
LOWEST, NEXT = nanoseconds(2_000.0), nanoseconds(50.0)


class Found(NamedTuple):
    """Somebody who is not in our view, and when it was heard last. With less than
    `min_members`, it would not form a group."""

    seat: Seat
    heard: Instant
    min_members: int = 1


def heard_at(unread_at: Instant, since: Instant) -> Instant:
    """Return when somebody may have been heard last, of whom we wait to hear `since`:
    when something was left unread, but not for ever, because anybody can send."""
    return max(since, min(unread_at, since + MOST_UNREAD))


class Discovery:
    """Remembers who seeks, and who has a view that is not ours."""

    def __init__(self, incarnation: int, config: Config, observes: bool) -> None:
        self.incarnation, self.observes = incarnation, observes
        self.min_members = config.min_members
        self.interval = nanoseconds(config.seek_interval)
        self.margin = nanoseconds(config.form_margin)
        self.seekers: Latest[int, Found] = Latest(MAX_MEMBERS)
        self.others: Latest[int, Found] = Latest(MAX_MEMBERS)   # who has a view of its own
        # Who says ALIVE in another view, and since when we hear of that view.
        self.strangers: Latest[int, set[int]] = Latest(MOST_VIEWS)
        self.since: Latest[int, Instant] = Latest(MOST_VIEWS)
        self.shunned: Latest[int, Instant] = Latest(MAX_MEMBERS)        # and until when
        self.mute: Latest[int, int] = Latest(MAX_MEMBERS)       # for how long the next time
        self.next_seek: Instant | None = None
        self.num_seeks = 0
        self.told: Instant | None = None                # when everybody was told last
        self.looked = Seldom(self.interval)             # who is silent
        self.changed: Instant = 0                       # when somebody came or went last ...
        self.restless: Instant = 0                      # ... and since when without a form_margin
        self.began: Instant = 0

    def begin(self, now: Instant) -> None:
        """Look for others from now on."""
        self.wait_anew(now)
        self.began = now

    def disturb(self, now: Instant) -> None:
        """Somebody has come or gone: others may follow."""
        if now - self.changed >= self.margin:
            self.restless = now
        self.changed = now

    def wait_anew(self, now: Instant) -> None:
        """Wait as if nothing had come yet. When another one forms the group, this gives
        it time."""
        self.changed = self.restless = now

    @property
    def pause(self) -> int:
        """Return how many nanoseconds we leave between two SEEKs to everybody."""
        return min((len(self.seekers) + 1) ** 2 * SHARE, CROWDED * self.interval)

    def seek(self, now: Instant) -> int:
        """Note that a SEEK is sent now, and return to whom: to EVERYONE, or in a crowd
        to the lowest alone, who forms the group."""
        self.num_seeks += 1
        self.next_seek = now + self.interval * (1 if self.num_seeks < EAGER else RARER)
        lowest = min((sender for sender, found in self.seekers.items() if not found.seat.observes),
                     default=EVERYONE)
        if self.told is None or now - self.told >= self.pause or self.incarnation < lowest:
            self.told = now
            return EVERYONE
        return lowest

    def hear_seeker(self, sender: int, seek: Seek, now: Instant) -> None:
        """Note who has no view."""
        if sender not in self.seekers:
            self.disturb(now)
        self.others.pop(sender, None)
        self.seekers.remember(sender, Found(
            Seat(seek.name, sender, seek.physical, 0, absence=seek.absence, public=seek.public,
                 observes=seek.observes),
            now, seek.min_members))

    def hear_member(self, sender: int, present: Present, now: Instant) -> None:
        """Note who has a view."""
        self.forget(sender)
        seat = Seat(present.name, sender, present.physical, present.view_id)
        self.others.remember(sender, Found(seat, now))

    def hear_stranger(self, sender: int, view_id: int, now: Instant) -> None:
        """Note who says ALIVE in a view that is not ours. It does not seek any more."""
        self.forget(sender)
        if view_id not in self.strangers:
            self.strangers.remember(view_id, set())
            self.since.remember(view_id, now)
        if len(self.strangers[view_id]) < MAX_MEMBERS:
            self.strangers[view_id].add(sender)

    def hears_all(self, present: Present, now: Instant) -> bool:
        """Return whether we hear all members of another view, or have waited long
        enough for them."""
        heard = self.strangers.get(present.view_id, ())
        since = self.since.get(present.view_id, now)
        return len(heard) >= min(present.size, WATCH_ALL) or (
            now - since >= PATIENCE * self.interval)

    def join(self, members: Collection[int]) -> None:
        """Forget what was known of those who are in our view now, and seek no more."""
        for member in members:
            self.forget(member)
            self.others.pop(member, None)
            self.mute.pop(member, None)
        self.strangers.clear()
        self.since.clear()
        self.next_seek = None

    def forget(self, sender: int) -> None:
        """Forget one who seeks no more."""
        self.seekers.pop(sender, None)

    def shun(self, sender: int, now: Instant) -> bool:
        """Do not let one in for a while. Return whether that is new."""
        is_new = sender not in self.shunned
        self.shunned.remember(sender, now + SHUNNED)
        return is_new

    def shun_mute(self, sender: int, now: Instant) -> None:
        """Do not let in one that wants to come and did not answer: for longer each
        time. It is heard, and most likely does not hear us. While it is waited for,
        nobody is given anything."""
        pause = self.mute.get(sender, MUTE)
        self.mute.remember(sender, min(2 * pause, MOST_MUTE))
        self.shunned.remember(sender, max(self.shunned.get(sender, 0), now + pause))

    def is_shunned(self, sender: int, now: Instant) -> bool:
        """Return whether one is not let in now."""
        return now < self.shunned.get(sender, 0)

    def drop_silent(self, now: Instant) -> None:
        """Forget those who have not been heard for a while."""
        if not self.looked.allows(now):
            return
        lasts = max(FRESH * self.interval, FRESH_CROWD * self.pause)
        for table in (self.seekers, self.others):
            for sender, found in list(table.items()):
                if now - found.heard > lasts:
                    del table[sender]
                    self.disturb(now)

    def candidates(self) -> list[Seat]:
        """Return the seats of those who seek, the lowest first."""
        return [found.seat for _, found in sorted(self.seekers.items())]

    def hears_any(self, members: Collection[int], since: Instant) -> bool:
        """Return whether one of these has said since then that it has no view."""
        return any(member in self.seekers and self.seekers[member].heard >= since
                   for member in members)

    def is_calm_at(self, unread_at: Instant) -> Instant:
        """Return when we have heard nothing new for form_margin, or have waited long
        enough for that. `unread_at` is when something was left unread last."""
        changed = min(self.changed, self.restless + MOST_RESTLESS)
        return max(changed, heard_at(unread_at, self.began)) + self.margin

    def may_form(self, now: Instant, unread_at: Instant) -> bool:
        """Return whether we may form the first view of the group. The lowest does so at
        once. It may not hear us, so another one does it later, if nobody has."""
        since = now - self.is_calm_at(unread_at)
        if self.others or since < 0:
            return False
        needs = {sender: found.min_members for sender, found in self.seekers.items()
                 if not found.seat.observes}
        if not self.observes:
            needs[self.incarnation] = self.min_members
        content = [sender for sender, need in needs.items() if need <= len(needs)]
        rank = sum(each < self.incarnation for each in content)
        return self.incarnation in content and (not rank or since >= LOWEST + rank * NEXT)

    def is_enough(self, seats: list[Seat]) -> bool:
        """Return whether so many may form a group with us as its coordinator."""
        return sum(not seat.observes for seat in seats) >= self.min_members

    def physicals(self, besides: Collection[int]) -> dict[int, str]:
        """Return where those who are not in our view can be reached."""
        return {sender: found.seat.physical for table in (self.others, self.seekers)
                for sender, found in table.items() if sender not in besides}
