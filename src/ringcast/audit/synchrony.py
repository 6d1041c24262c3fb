"""Virtual synchrony in traces: members that go together from one view to the next have
been given the same messages before it, also those of senders that crashed.

This holds for members that take messages (`flags` of the view). A view says of each
member that has left, or that has parted and is back, where its stream ends (`depart`).
From that follows who goes together:

- The stream of a sender *goes on* if the sender is in both views and has not departed.
  All for whom it goes on to a view have been given the same of it before that view.
- A departed sender's stream has ended. All that come from the same view, and for whom
  the same others stay, have been given the same of it.

What a member has been given of a stream before a view is the last position in order; it
comes from the aggregates. If that differs for two members, the one with less misses a
message. A stream begins for a member where the sender's `start` says. That may be in
the middle of a large message, which others were given and which is not for this member.
So if the member was given nothing, the rows of the sender must show a message that is;
otherwise they may show that what it misses is not.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from ringcast.address import Address
from ringcast.audit.groups import Groups, Skip, Stream
from ringcast.audit.rows import FOREVER, Hole
from ringcast.flags import Flag

DONT_LOOPBACK = int(Flag.DONT_LOOPBACK)


class Step(NamedTuple):
    """A view of one member, and where streams ended for it before."""

    view_id: int
    wall: int
    members: tuple[str, ...]
    departed: dict[str, int]
    receiving: bool


NOTHING = Step(-1, 0, (), {}, receiving=False)      # before the first view


# (member, view): the last position in order that it was given in it, by sender
Reached = dict[tuple[str, int], dict[str, int]]


class Place(NamedTuple):
    """The place of a member in a stream, which begins for it behind `begin`, if that is
    known. With `is_begin` it was given nothing yet, and that is its place."""

    position: int
    is_begin: bool
    begin: int | None


@dataclass
class Paths:
    """The views of each member, and where the streams of senders begin for it: as they
    say, but not before what it has from an earlier life."""

    steps: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    # (member, sender): (view, first position)
    starts: dict[tuple[str, str], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list))
    # (member, sender): the last position that it has from an earlier life
    resumed: dict[tuple[str, str], int] = field(default_factory=dict)
    # (member, view): the number of the event in which its layers installed the view
    installs: dict[tuple[str, int], int] = field(default_factory=dict)


def believed(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events without the starts that a member says of streams of others, if
    it need not say them: a sender that has the view says it itself. A member says it if
    it was never shown a view with a sender that it fetches from others; or of the views
    with a sender, up to this one, there is one that its layers installed and that it
    was not shown."""
    views: dict[tuple[str, str], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for event in events:
        if event["event"] in ("install", "view"):
            for sender in event["members"]:
                views[event["member"], sender][event["view_id"]].add(event["event"])

    def is_believed(event: Mapping[str, Any]) -> bool:
        if event["event"] != "start" or event["member"] != event["peer"]:
            return True
        met, this = views[event["member"], event["sender"]], event["view_id"]
        if this in met:
            return this not in views[event["sender"], event["sender"]] or any(
                view_id <= this and "view" not in how for view_id, how in met.items())
        return not any(view_id < this and "view" in how for view_id, how in met.items())

    return [*filter(is_believed, events), *resumed_by_succession(events)]


def resumed_by_succession(events: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the `resume` of each stream that a member knows from an earlier member of
    the same Succession."""
    resumes = {(event["member"], event["sender"]): event
               for event in events if event["event"] == "resume"}
    for event in events if resumes else ():
        if event["event"] == "start":
            origin = str(Address.parse(event["sender"]).origin)
            known = resumes.get((event["peer"], origin))
            if known is not None and origin != event["sender"]:
                yield {**known, "sender": event["sender"]}


def paths(events: Iterable[Mapping[str, Any]]) -> Paths:
    """Collect the paths from the events that aggregates.marked read. A member may have
    ended before it was shown views that its layers installed: those are its last steps,
    to which it takes nothing."""
    found, departed = Paths(), {}
    unseen: dict[str, list[Step]] = defaultdict(list)
    for event in events:
        if event["event"] == "depart":
            departed[event["sender"]] = event["last"]
        elif event["event"] == "start":
            found.starts[event["peer"], event["sender"]].append((event["view_id"], event["first"]))
        elif event["event"] == "resume":
            found.resumed[event["member"], event["sender"]] = event["last"]
        elif event["event"] == "install":
            found.installs[event["member"], event["view_id"]] = event["ev"]
            unseen[event["member"]].append(Step(event["view_id"], event["wall"],
                                                tuple(event["members"]), {}, receiving=False))
        elif event["event"] == "view":
            unseen[event["member"]] = [step for step in unseen[event["member"]]
                                       if step.view_id > event["view_id"]]
            found.steps[event["member"]].append(Step(
                event["view_id"], event["wall"], tuple(event["members"]), departed,
                bool(event["flags"])))
            departed = {}
    for member, steps in unseen.items():
        found.steps[member] += steps
    return found


def holes(groups: Groups, found: Paths, trusted: Sequence[str]) -> Iterator[Hole]:
    """Yield what members miss of streams of which others were given more, and of
    departed streams of which a view tells more."""
    cuts: dict[tuple[Any, ...], list[tuple[str, Place, Step]]] = defaultdict(list)
    reached: Reached = defaultdict(dict)
    for (member, stream, view_id), last in groups.reached.items():
        if stream.conn_id is None:
            reached[member, view_id][stream.sender] = last
    for member in trusted:
        for sender, key, place, step in _places(groups, found, reached, member):
            cuts[key].append((member, place, step))
            said = step.departed.get(sender)
            if said is not None:
                yield from _unlike(member, sender, place, said, step)
    for (*_, sender), found_at in cuts.items():
        most = max((place.position for _, place, _ in found_at if not place.is_begin), default=None)
        for member, place, step in found_at:
            if most is not None and place.position < most:
                kind = "begun" if place.is_begin else "synchrony"
                yield _hole(kind, member, sender, place, most, step)


def _unlike(member: str, sender: str, place: Place, said: int, step: Step) -> Iterator[Hole]:
    """Yield what was given to a member, or not, against what its view says of the end
    of a stream. A stream may begin for a member behind its end."""
    if place.position < said:
        yield _hole("departed", member, sender, place, said, step)
    elif place.position > said and not place.is_begin:
        yield _hole("beyond", member, sender, Place(said, is_begin=False, begin=place.begin),
                    place.position, step)


def _hole(kind: str, member: str, sender: str, place: Place, high: int, step: Step) -> Hole:
    begin = None if place.begin is None else place.begin + 1
    return (kind, member, Stream(sender), begin, place.position + 1, high, None, step.wall,
            step.view_id)


def _places(groups: Groups, found: Paths, reached: Reached,
            member: str) -> Iterator[tuple[str, tuple[Any, ...], Place, Step]]:
    """Yield how far a member is in each stream before each view to which it takes
    messages. The same key stands for members that must be equally far."""
    places: dict[str, Place] = {}
    had: dict[str, int] = {}                # the same without is_begin, also of streams that ended
    before = NOTHING
    for step in found.steps[member]:
        for sender, last in reached.get((member, before.view_id), {}).items():
            begin = places[sender].begin if sender in places else None
            places[sender], had[sender] = Place(last, is_begin=False, begin=begin), last
        for sender in before.members:
            if step.receiving and sender in places and not _is_deaf(groups, member, sender):
                yield sender, _key(before, step, sender), places[sender], step
        for sender in step.members:
            if not _goes_on(before, step, sender):
                places.pop(sender, None)
                begin = _begin(found, member, sender, before, step)
                if begin is not None:       # of a member that is back, perhaps where it stood
                    had[sender] = max(begin - 1, had.get(sender, begin - 1))
                    places[sender] = Place(had[sender], is_begin=True, begin=had[sender])
        before = step


def _goes_on(before: Step, step: Step, sender: str) -> bool:
    """Return whether the stream of a sender goes on from one view to the next."""
    return (sender in before.members and sender in step.members
            and sender not in step.departed)


def _key(before: Step, step: Step, sender: str) -> tuple[Any, ...]:
    if _goes_on(before, step, sender):
        return step.view_id, sender
    stay = frozenset(name for name in step.members if _goes_on(before, step, name))
    return before.view_id, step.view_id, stay, sender


def _is_deaf(groups: Groups, member: str, sender: str) -> bool:
    """Return whether a member is not given all of its own messages."""
    sent = groups.sent.get(Stream(sender))
    return member == sender and sent is not None and bool(sent.flags & DONT_LOOPBACK)


def _begin(found: Paths, member: str, sender: str, before: Step, step: Step) -> int | None:
    """Return where a stream begins for a member that meets its sender in a view; None
    if the sender's trace does not tell."""
    said = max((first for view_id, first in found.starts.get((member, sender), ())
                if before.view_id < view_id <= step.view_id), default=None)
    resumed = found.resumed.get((member, sender))
    return said if said is None or resumed is None else max(said, resumed + 1)


def first_begins(found: Paths) -> dict[tuple[str, Stream], int]:
    """Return, for each member and stream, where the stream begins for it in the first
    view with the sender, if the sender's trace tells."""
    begins: dict[tuple[str, Stream], int] = {}
    for member, steps in found.steps.items():
        met = {member}
        for before, step in zip([NOTHING, *steps], steps, strict=False):
            for sender in set(step.members) - met:
                begin = _begin(found, member, sender, before, step)
                if begin is not None:
                    begins[member, Stream(sender)] = begin
            met |= set(step.members)
    return begins


def skips(groups: Groups, found: Paths) -> dict[tuple[str, Stream], list[Skip]]:
    """Return, for each member and stream, the positions between the end of a stream in
    one view and its beginning in a later one, in which the member acknowledges what
    came before. There may be none between them."""
    ranges: dict[tuple[str, Stream], list[Skip]] = defaultdict(list)
    for member, steps in found.steps.items():
        ends = [(index, sender, last) for index, step in enumerate(steps)
                for sender, last in step.departed.items()]
        for index, sender, last in [*ends, *_ends_of_fetched(groups, found, member),
                                    *_ends_unseen(groups, found, member)]:
            for begin, ev in _begins_again(groups, found, member, sender, last, index):
                # One that goes on where it stood skips nothing, and fetches it.
                ranges[member, Stream(sender)].append((last + 1, max(last, begin - 1), ev))
    return ranges


def _ends_of_fetched(groups: Groups, found: Paths, member: str) -> Iterator[tuple[int, str, int]]:
    """Yield where streams end that a member has fetched from others, of senders that it
    had not met: the view that comes next, the sender, and the last position given. The
    sender may be back, and have kept nothing for it."""
    steps = found.steps[member]
    senders = [sender for peer, sender in found.starts if peer == member]
    for index, step in enumerate(steps):
        for sender in senders:
            starts = found.starts[member, sender]
            if sender not in step.members and step.view_id in dict(starts):
                last = _last_given(groups, steps[:index + 1], member, sender)
                if last is not None:
                    yield index + 1, sender, last


def _ends_unseen(groups: Groups, found: Paths, member: str) -> Iterator[tuple[int, str, int]]:
    """Yield where streams end of senders that left a view which a member was not shown:
    as `_ends_of_fetched` does. What such a view says of them nobody has traced."""
    steps = found.steps[member]
    for index, (before, step) in enumerate(pairwise(steps), 1):
        if not (step.receiving or step.departed):
            for sender in set(before.members) - set(step.members):
                yield index, sender, _last_given(groups, steps[:index], member, sender) or 0


def _begins_again(groups: Groups, found: Paths, member: str, sender: str, last: int,
                  index: int) -> list[tuple[int, int]]:
    """Return where a stream that ended before the view `index` of a member begins again
    for it, and the event with which it does. If the member is shown no view with the
    sender any more, its layers may have installed some: they part from the sender
    before it is shown them."""
    before, *later = [NOTHING, *found.steps[member]][index:]
    begin = _next_begin(groups, found, member, sender, last, index)
    if begin is None:
        return [(first, found.installs[member, view_id])
                for view_id, first in found.starts.get((member, sender), ())
                if view_id > before.view_id and (member, view_id) in found.installs]
    met = next((step.view_id for step in later if sender in step.members), None)
    return [(begin, -1 if met is None else found.installs.get((member, met), -1))]


def _last_given(groups: Groups, steps: Sequence[Step], member: str, sender: str) -> int | None:
    """Return the last position of a sender that a member was given in these views."""
    given = (groups.reached.get((member, Stream(sender), step.view_id)) for step in steps)
    return max((last for last in given if last is not None), default=None)


def _next_begin(groups: Groups, found: Paths, member: str, sender: str, last: int,
                index: int) -> int | None:
    """Return where a stream that ended before the view `index` of a member begins again
    for it: as its sender said, or else (its trace may have lost that) with what the
    member was given next. If that is nothing, the stream does not begin."""
    steps = [NOTHING, *found.steps[member]]
    before, later = steps[index], [step for step in steps[index + 1:] if sender in step.members]
    said = _begin(found, member, sender, before, later[0]) if later else None
    given = (groups.heard.get((member, Stream(sender), step.view_id)) for step in later)
    begin = said or min((first for first in given if first is not None and first > last),
                        default=None)
    return FOREVER if begin is None and later else begin
