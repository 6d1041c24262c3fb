"""Failure detection: who is silent, and who must go.

Any datagram of a member shows that it is alive; if it has nothing else to say, it says
ALIVE every heartbeat_interval. Silence raises suspicion, not loss. After
suspect_timeout a member is probed, and if it does not answer, it is suspected: SUSPECTS
tells everybody. One suspicion is not enough. A member must go if most of those who
watch it and are not suspected themselves suspect it. If a suspicion stays alone, the
path between the two is broken in one direction, and the one who suspects must go; but
if it coordinates the view, the other.

A member may never have had the INSTALL of our view, because its coordinator died. Now
it seeks, or has gone with others: it is alive, and suspects nobody here. So who has not
said for OUTSIDE suspect_timeouts that it has our view does not count among those who
watch, and is suspected itself: if it should coordinate, the others would wait for it
for ever.

A member may say that it has messages, its own or those of a departed sender, and not
give them. Nobody can have what is sent later before it has these. So this is a reason
to suspect it, too (multicast/fetching.py).

In a view of more than FEW members all say ALIVE when the coordinator does. What comes
at one moment takes each of them a few turns; what comes one by one, a turn for each. So
many idle members on few cores cost half as much. If the coordinator is not heard, each
says ALIVE a little later by itself.

A process that is gone refuses datagrams and dials. Then it is probed at once, and
nobody waits for suspect_timeout. Multicasts are never refused, so each member also says
ALIVE to the next one of the view alone, of FEW members several times in
heartbeat_interval. Nobody is suspected by a refusal alone, because anybody can forge
one. A connection that ended shows nothing: if it is not made again, silence decides.

My own lateness is no reason to suspect others. If my turn comes much later than it
should, I was paused: I begin to listen anew, and am more patient for a while.

Up to WATCH_ALL members everybody watches everybody. In a larger view each has WATCHERS,
who follow it in an order that is drawn from the view, so nobody has to be told.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringcast.address import EVERYONE
from ringcast.config import Config, nanoseconds
from ringcast.protocols.membership.messages import PROBE, SUSPECTS, Empty, Suspects
from ringcast.stack import Instant, Notice, sooner
from ringcast.view import listed

if TYPE_CHECKING:
    from ringcast.protocols.membership.layer import Membership

WATCH_ALL = 50          # members of a view in which everybody watches everybody
WATCHERS = 10           # of each member in a larger view
PROBES = 3              # unanswered, before a silent member is suspected ...
PROBES_REFUSED = 2      # ... and before one whose process seems to be gone is
PROBE_SHARE = 20        # of suspect_timeout: the time between two probes
NUDGES = 3              # to the next member, in heartbeat_interval ...
FEW = 10                # ... in a view of so many members; in a larger one with each ALIVE
# In percent of heartbeat_interval: when a member says ALIVE by itself, if the
# coordinator does not, and how soon it does so again if the coordinator does.
LATER, EARLIEST = 125, 70
REFUSED_PAUSE = nanoseconds(20.0)       # between two probes of one that seems to be gone
MOST_PATIENCE = 8       # times suspect_timeout
OUTSIDE = 2             # times suspect_timeout, until who does not say our view is outside
MOST_NAMED = 5          # members in a notice
MOST_NOTICES = 64       # of one turn


@dataclass(slots=True)
class Probing:
    """A member that is probed: what is left, and when the next probe is due."""

    left: int
    due: Instant
    pause: int
    is_refused: bool = False            # a probe was refused


class Detection:
    """Finds out who is silent, and who must go. `layer` sends for it."""

    def __init__(self, layer: "Membership", config: Config) -> None:
        self.layer = layer
        self.interval = nanoseconds(config.heartbeat_interval)
        self.timeout = nanoseconds(config.suspect_timeout)
        self.patience = 1                               # times suspect_timeout
        self.watched: set[int] = set()                  # members that we must hear
        self.watchers: dict[int, set[int]] = {}         # of each member in the view
        self.heard: dict[int, Instant] = {}
        self.inside: dict[int, Instant] = {}            # when each said last that it has our view
        self.outside: set[int] = set()                  # ... and those who have not for long
        self.probing: dict[int, Probing] = {}
        self.refusing: set[int] = set()                 # that were refused, and have not answered
        self.silent: set[int] = set()                   # who do not answer
        self.withholding: set[int] = set()              # who do not give what they have reported
        self.reports: dict[int, set[int]] = {}          # whom others suspect ...
        self.said: dict[int, Instant] = {}              # ... and when each of them said so last
        self.alone: dict[tuple[int, int], Instant] = {}     # (who, whom): since when
        self.departed: set[int] = set()                 # members that must go ...
        self.excluded: set[int] = set()                 # ... those of them that an operator named
        self.judged: set[int] = set()                   # ... and those of whom a notice was given
        self.next_beat: Instant | None = None
        self.next_nudge: Instant | None = None          # of the next member of the view
        self.expected: Instant | None = None            # when our next turn should be
        self.num_suspected = self.num_probes = self.num_pauses = 0

    @property
    def suspected(self) -> set[int]:
        """Return the members that we suspect."""
        return self.silent | self.outside | self.withholding

    # --------------------------------------------------------------------------------------- events

    def begin(self, members: Sequence[int], now: Instant) -> None:
        """Watch the members of a new view."""
        me = self.layer.local.incarnation
        self.watchers = watchers(members, self.layer.view_id)
        self.watched = {member for member, who in self.watchers.items() if me in who}
        self.heard = {member: self.heard.get(member, now) for member in self.watched}
        self._listen_anew(now)
        self.probing = {member: probing for member, probing in self.probing.items()
                        if member in self.watched}
        self.silent &= self.watched
        self.withholding = set()
        self.refusing &= self.watched
        self.reports, self.said = {}, {}
        self.alone = {}
        self.excluded &= set(members) | self.layer.absentees.known.keys()
        self.judged = set()
        self.departed = self.excluded & set(members)
        self._beat(now)
        self._wait_to_nudge(now)
        if self.silent or self.excluded:
            self._tell(now)

    def hear(self, senders: Collection[int], now: Instant) -> None:
        """Note that these members are alive. One that was refused may have died: what
        comes of it may have waited in a socket. So it is probed again if no more
        comes."""
        for sender in senders:
            if sender in self.watched:
                self.heard[sender] = now
                self.probing.pop(sender, None)
                if sender in self.refusing:
                    self.probing[sender] = Probing(PROBES_REFUSED, now + REFUSED_PAUSE,
                                                   REFUSED_PAUSE)
                if sender in self.silent:
                    self.silent.discard(sender)
                    self._tell(now)

    def answer(self, member: int) -> None:
        """Note that a member is there now: it answers, or it made a connection."""
        self.refusing.discard(member)
        self.probing.pop(member, None)

    def hear_inside(self, member: int, now: Instant) -> None:
        """Note that a member has our view, and say ALIVE if it leads and does."""
        if member in self.watched:
            self.inside[member] = now
            self.outside.discard(member)
        if self.next_beat is not None and not self._are_few and (
                self.next_beat - now <= (LATER - EARLIEST) * self.interval // 100
                and member == self.layer.acting(set())):
            self.next_beat = now
            self.tick(now)

    def refuse(self, member: int, now: Instant) -> None:
        """Note that a datagram or a dial to a member was refused. It counts only after
        the last probe: who is there has answered the first one by then."""
        if member not in self.layer.members or member in self.silent:
            return
        self.refusing |= {member} & self.watched
        probing = self.probing.get(member)
        is_refused = probing is not None and probing.is_refused and not probing.left
        if is_refused or any(member in silent for silent in self.reports.values()):
            self._suspect(member, now)
        elif probing is None or not probing.is_refused:
            self.probing[member] = Probing(PROBES_REFUSED, now, REFUSED_PAUSE, True)
            self._probe(now)

    def take(self, sender: int, silent: Collection[int], now: Instant) -> None:
        """Note whom another member suspects, and look for ourselves; again, if it is
        said again: what a member sent before it died may have come only now, and ended
        our probes."""
        suspects = set(silent) & self.layer.members.keys()
        for member in suspects:
            if member not in self.reports.get(sender, ()):
                self._notice("suspects", sender, member, "it says so")
            if member in self.refusing - self.silent:
                self._suspect(member, now)
            self._begin_to_probe(member, PROBES_REFUSED, REFUSED_PAUSE, now)
        self.reports[sender], self.said[sender] = suspects, now
        self._probe(now)

    def depart(self, members: Collection[int], why: str = "") -> None:
        """Note that members must go: they are in another view, or did not answer; or
        for a reason of which notice is given."""
        for member in members if why else ():
            self._judge(member, why)
        self.departed |= set(members) & self.layer.members.keys()

    def misname(self, members: Collection[int]) -> None:
        """Note that members must go whose keys may not have their names any more."""
        self.depart(members, "its key may not have this name any more")

    def contradict(self, member: int, sender: int) -> None:
        """Note that a member must go that reports again and again what the sender
        denies; or the sender, if we are that member."""
        who = sender if member == self.layer.local.incarnation else member
        self.depart([who], f"{self._names([member])} reports again and again messages that "
                           f"{self._names([sender])} says it has not sent")

    def doubt(self, member: int, now: Instant) -> None:
        """Probe a member that may have died. This is no refusal: however often somebody
        makes us doubt, the member is suspected only if it does not answer."""
        self._begin_to_probe(member, PROBES, self.timeout // PROBE_SHARE, now)
        self._probe(now)

    def exclude(self, members: Collection[int], now: Instant) -> None:
        """Note that members must go because an operator says so, and tell everybody."""
        self.excluded |= set(members)
        for member in self.excluded & self.layer.members.keys():
            self._notice("excludes", self.layer.local.incarnation, member, "an operator says so")
        self.depart(members)
        self._tell(now)

    # -------------------------------------------------------------------------------------- verdict

    def gone(self, now: Instant) -> set[int]:
        """Return the members that must go."""
        self._drop_old_reports(now)
        suspected = self.suspected.union(*self.reports.values())
        gone = set(self.departed)
        alone: dict[tuple[int, int], Instant] = {}
        for member in sorted(suspected - gone):
            voters = self._voters(member)
            against = {voter for voter in voters if member in self._silent_of(voter)}
            if 2 * len(against) > len(voters):
                gone.add(member)
                self._judge(member, f"suspected by {self._names(against)}, "
                                    f"{len(against)} of the {len(voters)} that watch it")
            else:
                alone |= {(voter, member): self.alone.get((voter, member), now)
                          for voter in against}
        self.alone = alone
        for (voter, member), since in alone.items():
            if now - since >= self.timeout and not {voter, member} & gone:
                gone.add(member if voter == self.layer.acting(gone) else voter)
                for each in {voter, member} & gone:
                    self._judge(each, f"{self._names([voter])} alone suspects "
                                      f"{self._names([member])}")
        return gone - {self.layer.local.incarnation}

    def _drop_old_reports(self, now: Instant) -> None:
        """Forget suspicions that were not repeated: who has one repeats it with each
        heartbeat. So one SUSPECTS that is forged, or withdrawn by one that was lost,
        does not count until the next view."""
        lasts = max(self.timeout // 2, 3 * self.interval)
        for member, said in list(self.said.items()):
            if now - said > lasts:
                del self.reports[member], self.said[member]

    def _voters(self, member: int) -> set[int]:
        """Return who watches a member, is not suspected by us, and has our view."""
        return self.watchers.get(member, set()) - self.suspected - self.departed - {member}

    def _silent_of(self, voter: int) -> set[int]:
        if voter == self.layer.local.incarnation:
            return self.suspected
        return self.reports.get(voter, set())

    def stop(self) -> None:
        """Say nothing any more, and look for nobody."""
        self.next_beat = self.next_nudge = None
        self.probing.clear()

    # ---------------------------------------------------------------------------------------- timer

    def deadline(self) -> Instant | None:
        """Return when tick has something to do. This is asked in every turn."""
        soonest = sooner(self.next_beat, self.next_nudge)
        if self.probing:
            soonest = sooner(soonest, min(probing.due for probing in self.probing.values()))
        self.expected = soonest
        return soonest

    def tick(self, now: Instant) -> None:
        """Say ALIVE, and look who is silent."""
        if self.expected is not None and now - self.expected > self.timeout // 2:
            self._recover(now)
        self._probe(now)
        if self.next_nudge is not None and self.next_nudge <= now:
            self._nudge(now)
        if self.next_beat is not None and self.next_beat <= now:
            self._look(now)
            self._beat(now)
            if self.suspected or self.excluded:
                self._tell(now)

    def _recover(self, now: Instant) -> None:
        """Begin to listen anew, because this process was paused or is too busy."""
        self.num_pauses += 1
        self.patience = min(2 * self.patience, MOST_PATIENCE)
        self.heard = dict.fromkeys(self.watched, now)
        self._listen_anew(now)
        self.probing.clear()
        self.refusing.clear()
        self.alone = {}

    def _listen_anew(self, now: Instant) -> None:
        self.inside = dict.fromkeys(self.watched, now)
        self.outside.clear()

    def _look(self, now: Instant) -> None:
        """Probe the members that are silent for too long, and look who is outside."""
        for member, heard in self.heard.items():
            if now - heard >= self.timeout * self.patience:
                self._begin_to_probe(member, PROBES, self.timeout // PROBE_SHARE, now)
        lasts = max(OUTSIDE * self.timeout, 3 * self.interval)
        for member, said in self.inside.items():
            if now - said > lasts and member not in self.outside:
                self.outside.add(member)
                self._notice("suspects", self.layer.local.incarnation, member,
                             "it is alive, and does not say that it has our view")
        withholding = self.layer.multicast.withholding() & self.watched
        for member in sorted(withholding - self.withholding):
            self._notice("suspects", self.layer.local.incarnation, member,
                         "it is alive, and does not give what it says it has")
        self.withholding = withholding
        if not self.probing and self.patience > 1:
            self.patience -= 1
        self._probe(now)

    def _begin_to_probe(self, member: int, times: int, pause: int, now: Instant) -> None:
        """Probe a member from now on, unless it is probed or suspected already."""
        if member in self.watched and member not in self.probing and member not in self.silent:
            self.probing[member] = Probing(times, now, pause)

    def _probe(self, now: Instant) -> None:
        """Send the probes that are due; suspect the members that have answered none."""
        for member, probing in list(self.probing.items()):
            if probing.due > now:
                continue
            if not probing.left:
                self._suspect(member, now)
                continue
            probing.left -= 1
            probing.due = now + probing.pause
            self.num_probes += 1
            self.layer.send_control(PROBE, Empty(), member, now)

    def _suspect(self, member: int, now: Instant) -> None:
        probing = self.probing.pop(member, None)
        if member in self.watched:
            silence = (now - self.heard[member]) / 1e9
            refused = probing is not None and probing.is_refused
            self._notice("suspects", self.layer.local.incarnation, member,
                         f"silent for {silence:.2f} s, "
                         + ("its machine refuses datagrams" if refused else "no probe answered"))
            self.num_suspected += 1
            self.silent.add(member)
            self._tell(now)

    def _judge(self, member: int, why: str) -> None:
        """Give notice, once in a view, that a member must go."""
        if member not in self.judged:
            self.judged.add(member)
            self._notice("must go", self.layer.local.incarnation, member, why)

    def _notice(self, kind: str, who: int, whom: int, why: str) -> None:
        """Give notice of something, unless others make us say too much in one turn."""
        notices = self.layer.stack.effects.notices
        if len(notices) < MOST_NOTICES:
            notices.append(Notice(kind, self._names([who]), self._names([whom]), why))

    def _names(self, members: Collection[int]) -> str:
        """Return the names of members of the view, at most a few."""
        seats = self.layer.members
        names = sorted(seats[member].name for member in members if member in seats)
        return listed(names, MOST_NAMED)

    def _tell(self, now: Instant) -> None:
        """Tell everybody whom we suspect, and whom an operator here has excluded."""
        body = Suspects(self.layer.view_id, sorted(self.suspected), sorted(self.excluded))
        self.layer.send_control(SUSPECTS, body, EVERYONE, now)

    def _beat(self, now: Instant) -> None:
        me = self.layer.local.incarnation
        leads = self.layer.acting(set()) == me
        self.next_beat = now + self.interval * (100 if leads or self._are_few else LATER) // 100
        if len(self.watchers) <= WATCH_ALL or leads:
            self.layer.settling.say(EVERYONE, now)
        else:
            for member in sorted(self.watchers[me]):
                self.layer.settling.say(member, now)
        if not self._are_few:
            self._nudge(now)

    @property
    def _are_few(self) -> bool:
        return len(self.layer.members) <= FEW

    def _nudge(self, now: Instant) -> None:
        """Say ALIVE to the next member of the view alone. If its process is gone, that
        is refused, as multicasts never are; and a group may have nothing else to
        send."""
        self._wait_to_nudge(now)
        me, members = self.layer.local.incarnation, list(self.layer.members)
        place = members.index(me)
        for member in members[place + 1:] + members[:place]:
            if member not in self.silent:
                self.layer.settling.say(member, now)
                return

    def _wait_to_nudge(self, now: Instant) -> None:
        has_next = self._are_few and len(self.layer.members) > 1
        self.next_nudge = now + self.interval // NUDGES if has_next else None


def watchers(members: Sequence[int], view_id: int) -> dict[int, set[int]]:
    """Return who watches each member of a view: all others, or in a large view the
    WATCHERS that follow it in an order that is drawn from the view."""
    if len(members) <= WATCH_ALL:
        return {member: set(members) - {member} for member in members}
    drawn = sorted(members, key=lambda member: hashlib.blake2b(
        b"%d %d" % (view_id, member), digest_size=8).digest())
    return {member: {drawn[(place + step) % len(drawn)] for step in range(1, WATCHERS + 1)}
            for place, member in enumerate(drawn)}
