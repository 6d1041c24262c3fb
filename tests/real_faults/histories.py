"""What the applications of all members were given, read from their logs, and whether
they agree.

A log is that of one name: of several processes, if it was started again, and of several
incarnations, if it was excluded while it lived.
"""

import json
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Interval:
    """What an application was given from one view to the next. `view` is None before
    the first view of a process."""

    view: dict
    at: float
    me: str                                             # own address in the view
    given: dict = field(default_factory=dict)           # sender: [[seqnos], [numbers]] in order


@dataclass
class History:
    """One name's intervals, and what else its log says."""

    name: str
    intervals: list[Interval] = field(default_factory=list)
    undelivered: int = 0

    @property
    def views(self):
        return [each.view for each in self.intervals]

    def count(self):
        """Return how many messages the application was given."""
        return sum(last - first + 1 for interval in self.intervals
                   for ranges in interval.given.values() for (first, last), _ in ranges)


def read(name, text):
    """Read a log. A last line that was not written to its end is left out."""
    history = History(name)
    for line in text[:text.rfind("\n") + 1].splitlines():
        said = json.loads(line)
        if "view" in said and "from" not in said:
            me = [each for each in said["view"]["members"] if name_of(each) == name]
            assert me, f"{name} is not in its own view {said['view']}"
            history.intervals.append(Interval(said["view"], said["at"], me[0]))
        elif "from" in said:
            interval = history.intervals[-1]
            assert said["view"] == interval.view["id"], f"{name}: {said} came in {interval.view}"
            add(interval.given.setdefault(said["from"], []), said["seqnos"], said["numbers"])
        else:
            history.undelivered += said.get("undelivered", 0)
    return history


def add(ranges, seqnos, numbers):
    """Add messages to a sender's, as one range with the last if they follow it."""
    if ranges:
        (_, last), (_, number) = ranges[-1]
        if (last + 1, number + 1) == (seqnos[0], numbers[0]):
            ranges[-1][0][1], ranges[-1][1][1] = seqnos[1], numbers[1]
            return
    ranges.append([list(seqnos), list(numbers)])


def name_of(address):
    return address.rpartition("#")[0]


# ------------------------------------------------------------------------------------------ checks

def check(histories, *parts):
    """Check everything that is promised of any run. `parts` are the names that could
    hear each other all the time: nobody may exclude another one of its own part."""
    for history in histories:
        check_ids_grow(history)
        check_order(history)
        check_departed(history)
        check_nobody_left(history, {name for part in parts if history.name in part
                                    for name in part} - {history.name})
    check_one_view_has_an_id(histories)
    check_same_between_views(histories)


def check_nobody_left(history, names):
    for view in history.views:
        gone = {name_of(each) for each in view["left"]}.intersection(names)
        assert not gone, f"{history.name} has lost {sorted(gone)} without a reason: {view}"


def check_ids_grow(history):
    for before, after in pairwise(history.views):
        assert before["id"] < after["id"], f"{history.name}: {before} and then {after}"


def check_order(history):
    """Nobody's messages come twice or out of order. None of a stream is left out,
    unless its sender had left, or this member is another one now: then others have had
    them."""
    due, latest, me = {}, {}, None
    for interval in history.intervals:
        gone = interval.view["left"] if interval.me == me else list(due)
        for sender in gone:
            due.pop(sender, None)
        me = interval.me
        for sender, ranges in interval.given.items():
            where = f"{history.name} in view {interval.view['id']} from {sender}"
            assert sender in interval.view["members"], f"{where}: it is no member"
            for seqnos, numbers in ranges:
                first = seqnos[0], numbers[0]
                assert due.get(sender, first) == first, f"{where}: {first} came, {due[sender]} due"
                due[sender] = seqnos[1] + 1, numbers[1] + 1
                earlier = latest.get(name_of(sender), -1)
                assert earlier < numbers[0], f"{where}: {numbers[0]} came after {earlier}"
                latest[name_of(sender)] = numbers[1]


def check_departed(history):
    """A stream that has ended ends where the view says."""
    last = {}
    for before, after in pairwise(history.intervals):
        last |= {sender: ranges[-1][0][1] for sender, ranges in before.given.items()}
        for sender in after.view["left"]:
            seqno = last.pop(sender, None)
            if before.me == after.me and seqno is not None:
                said = after.view["departed"].get(sender)
                assert said == seqno, (f"{history.name} was given {sender} up to {seqno}, and view "
                                       f"{after.view['id']} says {said}")


def check_one_view_has_an_id(histories):
    views = {}
    for history in histories:
        for view in history.views:
            members = views.setdefault(view["id"], view["members"])
            assert members == view["members"], f"id {view['id']}: {members}, {view['members']}"


def check_same_between_views(histories):
    """Members that go together from one view to the next were given the same messages
    of every sender, and are told the same of those who left."""
    said = {}
    for history in histories:
        for before, after in pairwise(history.intervals):
            if before.me != after.me:
                continue                # it was excluded, or is another process
            key = before.view["id"], after.view["id"]
            what = before.given, after.view["departed"], sorted(after.view["left"])
            name, first = said.setdefault(key, (history.name, what))
            assert first == what, (f"from view {key[0]} to {key[1]}: "
                                   f"{difference(name, first, history.name, what)}")


def check_same_at_end(histories):
    """Members that were all quiet are in one view, and were given the same in it."""
    assert len({history.intervals[-1].view["id"] for history in histories}) == 1
    given = [history.intervals[-1].given for history in histories]
    for history, each in zip(histories, given, strict=True):
        assert each == given[0], difference(histories[0].name, given[0], history.name, each)


def difference(first_name, first, name, other):
    """Say what differs, and nothing else."""
    pairs = zip(first, other, strict=True) if isinstance(first, tuple) else [(first, other)]
    parts = []
    for one, two in pairs:
        if isinstance(one, dict):
            keys = [key for key in one.keys() | two.keys() if one.get(key) != two.get(key)]
            parts += [f"{key}: {one.get(key)} at {first_name}, {two.get(key)} at {name}"
                      for key in keys]
        elif one != two:
            parts.append(f"{one} at {first_name}, {two} at {name}")
    return "; ".join(parts)
