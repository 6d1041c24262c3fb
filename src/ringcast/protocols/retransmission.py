"""Negative acknowledgement: which gaps a receiver asks for and when, and what a sender
sends again.

A gap is asked for if the scan before had seen it too, because what is on its way is not
lost (decision 9); where messages come out of order, the receiver learns to wait longer,
up to two xmit_intervals. Each gap has an age of its own: it is asked for again when its
repeat should have come, whatever else arrives. The receiver learns how long repeats
take, as TCP learns its retransmission timeout (RFC 6298). Time is counted in scans, so
that a machine that slept has not missed anything. While there are gaps and datagrams
can be lost, there are LOOKS scans in an xmit_interval; otherwise there is one.

A sender repeats what is asked for, if it was sent and is not purged. Repeats are paced:
they may take as many bytes as got through since, as acks and requests show, and a
little in each interval, so that no request costs more than it should (decision 24).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta

from ringcast._core import wire
from ringcast._core.marks import Marks
from ringcast._core.stamps import Stamps
from ringcast._core.window import Window
from ringcast.address import EVERYONE
from ringcast.protocols.seqnos import (
    HALF,
    MODULUS,
    Range,
    Seqno,
    ahead,
    count,
    in_two,
    is_seqno,
    later,
    precedes,
    united,
    without,
)
from ringcast.stack import Instant

LOOKS = 12              # scans for gaps in an xmit_interval
MANY_GAPS = 32          # with twice as many, looks are half as frequent, and so on
MAX_RANGES = 2048       # in the requests of one scan
MOST_LOOKED = 2 * MAX_RANGES    # in one turn, of all members
MOST_NOTED = 4 * MAX_RANGES     # that are remembered of all members, in one interval
RANGE_BYTES = 19        # of one range in a request, at most: two numbers of 64 bits
REQUEST_BYTES = 64      # of a request besides, at most: header, conn-id, timestamp
MIN_PATIENCE = 2        # scans until a gap is asked for again, at least
MAX_PATIENCE = 32       # intervals, at most, when nothing new comes from the sender ...
MAX_ROUND_TRIP = 512    # ... and when it does: then repeats wait in a long queue
CALM = 64               # scans in order until the allowance for disorder is made smaller
MAX_SILENCE = 64        # scans between two repeats of a thing while nothing changes
SHARES = 32             # an interval may repeat this part of a window, even if nothing gets through


Ranges = Annotated[list[Range], Meta(max_length=MAX_RANGES)]    # of a request


class Gaps:
    """The gaps of one receive window, from one scan to the next. An xmit_interval has
    `looks` scans."""

    __slots__ = ("allowance", "answered", "asked", "calm", "flowed", "looks", "moved",
                 "num_missing", "patience", "scans", "seen")

    def __init__(self, offset: Seqno, looks: int = 1) -> None:
        self.looks = looks
        self.allowance = 1              # scans that must have seen a gap before it is asked for
        self.answered = 0               # the last scan whose requests brought anything
        self.calm = 0                   # scans since a message came late, or since allowance fell
        self.seen = offset              # HR at the last scan: only gaps up to here are asked for
        self.asked: Sequence[Ask] = ()  # oldest seqno first, as they were missing at the last scan
        self.patience = Patience(looks)
        self.scans = 0                  # how many there were
        self.flowed = 0                 # the last one that saw something new
        self.moved = 0                  # the last one that saw anything new, repeats too
        self.num_missing = 0            # at the last scan

    def scan(self, ring: Window) -> list[Range]:
        """Return what to ask for now: gaps that the last scan had seen too, except
        those whose repeats may be on the way."""
        self.scans += 1
        ranges = ring.missing(MAX_RANGES, self.seen)
        self._note_progress(ring)
        if not ranges and not self.asked:
            return []
        missing = split(ranges, self.asked, (ring.hd + 1) % MODULUS, self.scans - 1)
        self._calm_down()
        self._learn(missing)
        served = self._served(missing)
        patience, longest = self._patience()
        wanted: list[Range] = []
        asked: list[Ask] = []
        again = False
        for ask in missing:
            if ask.times and ask.at in served:
                ask = ask._replace(served=self.scans)
            age = self.scans - (ask.at if ask.times else ask.seen)
            is_old_enough = age >= (patience if ask.times else self.allowance)
            is_passed_over = ask.times > 0 and (ask.at + self.allowance <= self.answered or (
                ask.served > 0 and self.scans - ask.served >= MIN_PATIENCE))
            if is_old_enough or is_passed_over:
                again |= is_old_enough and ask.times > 0
                wanted.append((ask.first, ask.last))
                ask = ask._replace(at=self.scans, times=ask.times + 1, served=0)
            asked.append(ask)
        self.asked = asked or ()
        if again:
            self.patience.fail(self.scans, longest)
        return united(wanted, ring.hd)

    def _note_progress(self, ring: Window) -> None:
        """Note whether anything has come since the last scan."""
        if ring.hr != self.seen:
            self.seen, self.flowed, self.moved = ring.hr, self.scans, self.scans
        if ring.num_missing != self.num_missing:
            self.num_missing, self.moved = ring.num_missing, self.scans

    def _patience(self) -> tuple[int, int]:
        """Return how many scans to wait for a repeat now, and at most."""
        patience, longest = self.patience.scans, MAX_ROUND_TRIP * self.looks
        if self.scans - self.flowed > MAX_PATIENCE * self.looks:
            longest = MAX_PATIENCE * self.looks
            patience = min(patience, longest)
        if self.scans - self.moved >= self.patience.pause:
            patience = min(patience, self.patience.short)
        return patience, longest

    def note_late(self, first: Seqno) -> None:
        """Note that a message came which nobody had repeated, and filled a gap: others
        overtook it. So wait longer before gaps are asked for."""
        place = bisect_left(self.asked, 0, key=lambda ask: behind(ask.last, first))
        if place == len(self.asked) or precedes(first, self.asked[place].first):
            return
        age = self.scans - self.asked[place].seen + 1
        self.allowance, self.calm = min(max(self.allowance, age), 2 * self.looks), 0

    def _calm_down(self) -> None:
        """Wait a little less if all has come in order for long."""
        self.calm += 1
        if self.calm >= CALM * self.looks and self.allowance > 1:
            self.allowance, self.calm = self.allowance - 1, 0

    def _served(self, missing: "list[Ask]") -> set[int]:
        """Return the scans of those requests of which a part came since the last scan.
        If no more of one comes, its other parts were lost again, or their sender had to
        pause: they are asked for again at once."""
        before, after = sizes_of(self.asked), sizes_of(missing)
        return {at for at, size in after.items() if size < before[at]}

    def _learn(self, missing: "list[Ask]") -> None:
        """Learn how long repeats take, from what was asked for once and has come. What
        was asked for before that and has not come was lost."""
        still = asked_once(missing)
        for at, size in asked_once(self.asked).items():
            if still.get(at, 0) < size:
                self.answered = max(self.answered, at)
                self.patience.learn(self.scans - at, self.scans)


class Tail:
    """The end of a stream, up to a seqno that was announced. An announcement (HIGHEST,
    STABILITY) may overtake messages, which then wait in the socket. So what has not
    come is a gap only if nothing new of the sender came from one look to the next, and
    the socket was empty meanwhile. A stranger can keep it from being empty; so it is a
    gap, too, if nothing new came for MAX_PATIENCE intervals."""

    __slots__ = ("seen", "seqno", "stood")

    def __init__(self, seqno: Seqno) -> None:
        self.seqno = seqno
        self.seen: Seqno | None = None  # HR at the last look
        self.stood = 0                  # looks since that rose

    def is_over(self, ring: Window, gaps: Gaps, was_emptied: bool) -> bool:
        """Return whether nothing is expected any more: all has come, or what has not
        is a gap now."""
        if not precedes(ring.hr, self.seqno):
            return True
        self.stood = self.stood + 1 if self.seen == ring.hr else 0
        self.seen = ring.hr
        is_missing = self.stood >= (1 if was_emptied else MAX_PATIENCE * gaps.looks)
        if is_missing:
            ring.announce(self.seqno)
            gaps.seen = ring.hr
        return is_missing


class Ask(NamedTuple):
    """A range that is missing, since scan number `seen`. It was asked for `times`
    times, the last time at scan number `at`. If `served` is not 0, other parts of that
    request came at that scan."""

    first: Seqno
    last: Seqno
    at: int = 0
    times: int = 0
    served: int = 0
    seen: int = 0

    @property
    def size(self) -> int:
        return (self.last - self.first) % MODULUS + 1


def sizes_of(asks: Iterable[Ask]) -> dict[int, int]:
    """Return how many seqnos were asked for at each scan."""
    sizes: dict[int, int] = {}
    for ask in asks:
        if ask.times:
            sizes[ask.at] = sizes.get(ask.at, 0) + ask.size
    return sizes


def asked_once(asks: Iterable[Ask]) -> dict[int, int]:
    """Return how many seqnos were asked for at each scan, and only then."""
    return sizes_of(ask for ask in asks if ask.times == 1)


def split(ranges: list[Range], asked: Sequence[Ask], base: Seqno, seen: int = 0) -> list[Ask]:
    """Return the ranges, cut where earlier requests begin and end. Both ascend, counted
    from `base`. New ones were `seen` at that scan."""
    parts: list[Ask] = []
    places = [(behind(ask.first, base), behind(ask.last, base)) for ask in asked]
    known = 0
    new = Ask(0, 0, seen=seen)
    for first, last in ranges:
        start, end = (first - base) % MODULUS, (last - base) % MODULUS
        while start <= end:
            while known < len(asked) and places[known][1] < start:
                known += 1
            if known == len(asked) or places[known][0] > end:
                upto, ask = end, new
            elif places[known][0] > start:
                upto, ask = places[known][0] - 1, new
            else:
                upto, ask = min(end, places[known][1]), asked[known]
            if ask is new or (start, upto) != places[known]:
                ask = ask._replace(first=(base + start) % MODULUS, last=(base + upto) % MODULUS)
            parts.append(ask)
            start = upto + 1
    return parts


def behind(seqno: Seqno, base: Seqno) -> int:
    """Return how many steps a seqno is behind `base`; less than 0 when it is before
    it."""
    return (seqno - base + HALF) % MODULUS - HALF


class Patience:
    """How many scans to wait for a repeat: the smoothed time that repeats take, and
    four times its variation (RFC 6298). It doubles when no repeat came in that time,
    until one comes that was asked for only once. As long as it is less than an
    xmit_interval, it doubles only every second time: on a line that loses much, the
    request or the repeat was lost as well. When nothing else comes, the variation once
    is enough, for one request."""

    __slots__ = ("is_sure", "looks", "mean", "moved", "num_failed", "scans", "variation")

    def __init__(self, looks: int = 1) -> None:
        self.looks = looks              # scans in an interval
        self.scans = MIN_PATIENCE * looks
        self.mean = self.variation = 0.0
        self.is_sure = False            # nothing was asked for again since it was learned
        self.moved = 0                  # the last scan at which it failed, or a repeat came
        self.num_failed = 0             # since a repeat came

    @property
    def short(self) -> int:
        """Return how many scans are enough when nothing else comes: then nobody pays
        for a repeat too many."""
        return math.ceil(self.mean + self.variation) if self.is_sure else self.scans

    @property
    def pause(self) -> int:
        """Return how many scans without anything show that nothing else comes."""
        return max(MIN_PATIENCE, math.ceil(self.mean / 4))

    def learn(self, scans: int, scan: int) -> None:
        """Note that a repeat came at this scan, after so many scans."""
        self.moved, self.is_sure, self.num_failed = scan, True, 0
        if self.mean:
            self.variation += (abs(scans - self.mean) - self.variation) / 4
            self.mean += (scans - self.mean) / 8
        else:
            self.mean, self.variation = float(scans), scans / 2
        self.scans = min(max(MIN_PATIENCE, math.ceil(self.mean + 4 * self.variation)),
                         MAX_ROUND_TRIP * self.looks)

    def fail(self, scan: int, most: int) -> None:
        """Note that something had to be asked for again at this scan; wait for it
        `most` scans at most."""
        self.is_sure = False
        if scan - self.moved >= self.scans or self.scans > most:
            self.moved = scan
            self.num_failed += 1
            doubles = self.scans >= self.looks or self.num_failed % 2 == 0
            self.scans = min(2 * self.scans if doubles else self.scans, most)


def requests(ranges: list[Range], datagram: int) -> list[list[Range]]:
    """Return the ranges in portions that fit one request each."""
    most = min(MAX_RANGES, (datagram - REQUEST_BYTES) // RANGE_BYTES)
    return [ranges[start:start + most] for start in range(0, len(ranges), most)]


class Backoff:
    """When to repeat something, or to report it: ever more rarely while nothing
    changes.

    Time is counted in scans, so that a machine that slept has not missed anything.
    After a change the scans 0, 1, 2, 4, 8 ... are due, and later every 64th; with
    `first`, its multiples by these.
    """

    __slots__ = ("first", "scans", "state")

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self.scans = 0                  # since the state changed
        self.state: object = None

    def scan(self, state: object) -> bool:
        """Note the state, and return whether this scan is due."""
        self.scans = self.scans + 1 if state == self.state else 0
        self.state = state
        times, rest = divmod(self.scans, self.first)
        return not rest and (times & (times - 1) == 0 or times % MAX_SILENCE == 0)

    def stalls(self, state: object) -> bool:
        """Note the state, and return whether this scan is due because nothing
        changed."""
        return self.scan(state) and self.scans > 0


def clipped(ranges: list[Range], low: Seqno, sent: Seqno) -> list[Range] | None:
    """Return what of a request can be repeated: what was sent and is not purged. Return
    None if the request makes no sense."""
    if len(ranges) > MAX_RANGES or not all(is_seqno(each) for pair in ranges for each in pair):
        return None
    return between((each for each in ranges if not precedes(each[1], each[0])), low, sent)


def between(ranges: Iterable[Range], low: Seqno, last: Seqno) -> list[Range]:
    """Return what of these ranges comes after `low`, and not after `last`."""
    found = []
    most = ahead(low, last)
    for begin, end in ranges:
        # Count from low: serial arithmetic cannot order three seqnos all around the
        # circle.
        start, stop = max(1, ahead(low, begin)), min(ahead(low, end), most)
        if start <= stop:
            found.append(((low + start) % MODULUS, (low + stop) % MODULUS))
    return found


class Repeatable(Protocol):
    """Messages that can be repeated: a SendWindow, or what a receiver holds."""

    @property
    def ring(self) -> Window: ...
    @property
    def marks(self) -> Marks: ...
    @property
    def stamps(self) -> Stamps: ...
    @property
    def bundle(self) -> int: ...


class Pace:
    """How much a sender may repeat: a bucket of as many bytes as its window may hold.
    What is acknowledged fills it, because that got through; so does what a member does
    not ask for any more, and a part of the window in each interval. Within a sixth of
    an interval nothing is repeated twice to the same members: nobody asks again so
    soon."""

    __slots__ = ("budget", "came", "low", "most", "noted", "reached", "repeated", "since")

    def __init__(self, most: int = 0) -> None:
        self.most = most                        # bytes in the bucket at most; 0: as in the window
        self.budget = 0                         # bytes in the bucket
        self.came = 0                           # messages that got through, as requests show
        self.reached: dict[int, Seqno] = {}     # what each member asked for first, at last
        self.low: Seqno | None = None           # LOW when it was filled last; None: fill it whole
        self.since: Instant = 0                 # when the interval began
        self.noted: Instant = 0                 # since when it is noted what is repeated
        self.repeated: dict[bytes, list[Range]] | None = None   # since then, by prefix

    def pack(self, window: "Repeatable", wanted: list[Range], prefix: bytes, interval: int,
             now: Instant) -> tuple[list[bytes], int]:
        """Return datagrams with the messages of `wanted` that may be repeated now, and
        how many messages those are. `prefix` comes before the messages: header and
        conn-id."""
        self._fill(window, interval, now)
        if (now - self.noted) * LOOKS >= interval * MIN_PATIENCE:
            self.noted, self.repeated = now, None
        ring = window.ring
        repeated = self.repeated or {}
        done = united(repeated.get(prefix, []), ring.low)
        wanted = without(united(wanted, ring.low), done, ring.low)
        datagrams, messages = wire.pack(ring, window.marks, window.stamps, wanted, window.bundle,
                                        prefix, self.budget)
        self.budget -= sum(map(len, datagrams))
        if messages:
            repeated[prefix] = united([*done, *first_of(wanted, messages)], ring.low)
            self.repeated = repeated
        return datagrams, messages

    def note_first(self, member: int, first: Seqno) -> None:
        """Note that a member misses nothing before `first`: what it asked for before
        that got through. It may acknowledge that much later, when it is back after it
        was absent."""
        before = self.reached.get(member, first)
        self.came += ahead(before, first)
        self.reached[member] = later(before, first)

    def _fill(self, window: "Repeatable", interval: int, now: Instant) -> None:
        """Add to the bucket what was acknowledged, and a share for each interval that
        has passed."""
        ring = window.ring
        most = self.most or ring.max_bytes
        if self.low is None:
            self.budget = most
        else:
            mean = ring.nbytes // max(1, (ring.hr - ring.low) % MODULUS)
            self.budget += ((ring.low - self.low) % MODULUS + self.came) * max(1, mean)
        self.low, self.came = ring.low, 0
        if now - self.since >= interval:
            passed, self.since = (now - self.since) // interval, now
            share = max(window.bundle, most // SHARES)
            self.budget = max(self.budget, 0) + min(passed, SHARES) * share
        self.budget = min(self.budget, most)


class Quota:
    """Bounds the ranges that are looked at in one turn: of each member as many as a
    scan asks for, and of all together MOST_LOOKED, beyond which each has only its part
    of these. The rest counts as lost, so a flood of requests, in whatever names, keeps
    nobody from its turns."""

    __slots__ = ("num_ranges", "total", "turn")

    def __init__(self) -> None:
        self.turn: Instant | None = None
        self.num_ranges: dict[int, int] = {}        # in this turn, by member
        self.total = 0

    def take(self, member: int, ranges: list[Range], num_members: int,
             now: Instant) -> list[Range]:
        """Return what to look at of these ranges, for which one of so many members
        asks."""
        if now != self.turn:
            self.turn, self.num_ranges, self.total = now, {}, 0
        before = self.num_ranges.get(member, 0)
        room = max(MOST_LOOKED - self.total, MOST_LOOKED // max(1, num_members) - before)
        taken = ranges[:max(0, min(room, MAX_RANGES - before))]
        self.num_ranges[member] = before + len(taken)
        self.total += len(taken)
        return taken


class Requests(dict[int, list[Range]]):
    """Holds what members have asked for in this turn, and lately: in this interval and
    in the one before.

    What several miss goes once to everybody, although they ask one after the other.
    Where most is missed by several, everything goes to everybody at once: then it is
    lost on the way that all have in common."""

    __slots__ = ("before", "lately", "num_asked", "num_new", "num_noted", "since")

    def __init__(self) -> None:
        super().__init__()
        self.since: Instant = 0                     # when the interval began
        # What was asked for since then, by member; by EVERYONE, what went to everybody.
        self.lately: dict[int, list[Range]] = {}
        self.before: dict[int, list[Range]] = {}    # the same of the interval before
        self.num_noted = 0                          # ranges in `lately`
        # Seqnos that were asked for, once by each member, and those that nobody else
        # had asked for; older ones count less.
        self.num_asked = self.num_new = 0

    def add(self, member: int, wanted: list[Range]) -> None:
        """Add ranges that a member asks for."""
        if wanted:
            self.setdefault(member, []).extend(wanted)

    def take(self, low: Seqno, now: Instant, interval: int) -> dict[int, list[Range]]:
        """Return what to send to whom, and forget it. The window that has the messages
        begins after `low`."""
        self._forget_old(now, interval)
        known = self._recall(low)
        told = known.pop(EVERYONE, [])
        before = united(chain.from_iterable(known.values()), low)
        new: list[Range] = []
        answers: dict[int, list[Range]] = {}
        for member, ranges in self.items():
            wanted, mine = united(ranges, low), known.get(member, [])
            first = without(wanted, mine, low)
            self.num_asked += count(first)
            new += first
            answers[member] = without(wanted, without(told, mine, low), low)    # or on its way
            known[member] = united([*mine, *wanted], low)
            self._note(member, wanted)
        self.clear()
        self.num_new += count(without(united(new, low), before, low))
        together = united(chain.from_iterable(answers.values()), low)
        if self.num_asked * 2 <= self.num_new * 3:
            by_one = without(together, in_two(known.values(), low), low)
            together = without(together, by_one, low)
        self._note(EVERYONE, together)
        alone = {member: without(due, together, low) for member, due in answers.items()}
        return {dest: ranges for dest, ranges in {EVERYONE: together, **alone}.items() if ranges}

    def _forget_old(self, now: Instant, interval: int) -> None:
        """Begin another interval, if it is time."""
        if (passed := now - self.since) >= interval:
            self.before = self.lately if passed < 2 * interval else {}
            self.lately, self.since, self.num_noted = {}, now, 0
            self.num_asked, self.num_new = self.num_asked // 2, self.num_new // 2

    def _recall(self, low: Seqno) -> dict[int, list[Range]]:
        """Return what was asked for lately and is still there, by member."""
        known = {}
        for member in self.before.keys() | self.lately.keys():
            ranges = self.before.get(member, []) + self.lately.get(member, [])
            known[member] = united(clipped(ranges, low, (low + HALF - 1) % MODULUS) or [], low)
        return known

    def _note(self, member: int, ranges: list[Range]) -> None:
        """Note what was asked for now; no more than is asked for in one scan, and not
        too much of all members."""
        noted = self.lately.setdefault(member, [])
        room = min(MAX_RANGES // 2 - len(noted), MOST_NOTED - self.num_noted)
        before = len(noted)
        noted += ranges[:max(0, room)]
        self.num_noted += len(noted) - before


def first_of(ranges: list[Range], most: int) -> list[Range]:
    """Return the first `most` seqnos of the ranges."""
    taken = []
    for first, last in ranges:
        if most <= 0:
            break
        last = last if (last - first) % MODULUS < most else (first + most - 1) % MODULUS
        most -= (last - first) % MODULUS + 1
        taken.append((first, last))
    return taken
