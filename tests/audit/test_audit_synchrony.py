"""What an audit must find in the traces of a group that forms itself. Each violation is
planted into a simulated run in which nothing was wrong."""

from types import SimpleNamespace

import pytest
from planted_help import CRASHED, Copy, kept

from ringcast.audit.groups import Groups, Stream
from ringcast.audit.rows import Rows
from ringcast.audit.synchrony import Paths, Step, paths, skips
from ringcast.audit.verdict import audit

pytestmark = pytest.mark.spark

# In the run that is kept A, B and C have view 1. B is cut off: A and C have a view 2,
# and B another one alone. They meet in view 3, in which A crashes. B and C go to view
# 4. A comes back in view 5, and C leaves before view 6.


def view(group, member, number):
    """Return the row of a view of one member, counted from 1."""
    return group.find(member, "view")[number - 1]


def lose_the_last(group, member, sender):
    """Take the last delivery of a sender's stream from a member. Return its first
    position."""
    row = group.find(member, "deliver", sender=sender)[-1]
    group.take(member, [row, *(each for each in group.find(member, "ack", sender=sender)
                               if each["last"] >= row["first"])])
    return row["first"]


def a_survivor_lacks_the_last_of_a_crashed_sender(group):
    return ["departed", "synchrony"], lose_the_last(group, "C", "A"), "C"


def a_survivor_was_given_nothing_of_a_crashed_sender(group):
    """A's stream begins again for B with view 3, in which A crashes."""
    began = view(group, "B", 3)["wall"]
    rows = [each for each in group.find("B", "deliver", sender="A") if each["wall"] > began]
    group.take("B", rows)
    return ["ack", "departed", "set", "synchrony"], rows[0]["first"], "B"


def nothing_was_given_before_the_stream_begins_again(group):
    """B acknowledges what A sent until B was cut off."""
    cut_off = view(group, "B", 2)["wall"]
    rows = [each for each in group.find("B", "deliver", sender="A") if each["wall"] < cut_off]
    group.take("B", rows)
    return ["ack", "departed"], rows[0]["first"], "B"


def the_end_is_the_least_and_not_the_most_that_came(group):
    """C and its view stop where C had got; B has been given more."""
    position = lose_the_last(group, "C", "A")
    (row,) = group.find("C", "depart")[-1:]
    row["last"] = position - 1
    return ["synchrony"], position, "C"


def a_view_tells_too_little_of_a_crashed_sender(group):
    (row,) = group.find("C", "depart")[-1:]
    row["last"] -= 1
    return ["departed"], row["last"] + 1, "C"


def a_message_comes_behind_the_view_that_it_belongs_before(group):
    """C's last message before view 2 comes to A after that view."""
    later = view(group, "A", 2)
    at = group.rows["A"].index(later)
    row = [each for each in group.find("A", "deliver", sender="C")
           if group.rows["A"].index(each) < at][-1]
    behind = group.rows["A"][at + 1]
    group.take("A", [each for each in group.find("A", "ack", sender="C")
                     if row["first"] <= each["last"] and each["wall"] <= later["wall"]])
    group.move("A", row, before=behind)
    row["view_id"] = later["view_id"]
    return ["synchrony"], row["first"], "A"


def the_members_of_a_view_are_in_another_order(group):
    view(group, "C", 4)["members"].reverse()
    return ["view"], None, "C"


def the_first_message_is_lost_to_one_that_was_away(group):
    return lost_to_one_that_was_away(group, 0)


def a_message_is_lost_to_one_that_was_away(group):
    return lost_to_one_that_was_away(group, 1)


def lost_to_one_that_was_away(group, number):
    """Lose a message of A, whose stream begins again for B with view 3."""
    began = view(group, "B", 3)["wall"]
    row = [each for each in group.find("B", "deliver", sender="A") if each["wall"] >= began][number]
    group.take("B", [row, *(each for each in group.find("B", "ack", sender="A")
                            if row["first"] <= each["last"] <= row["last"])])
    return ["gap"], row["first"], "B"


def two_parts_are_primary(group):
    """B alone says that it is primary, and so do A and C. A's trace ends properly."""
    group.rows["A"].append(group.rows["B"][-1] | {"member": group.address("A"), "flags": 0})
    return called_primary(group)


def called_primary(group):
    """Call all views primary. Return what is found: B alone was not."""
    for member in "ABC":
        for row in group.find(member, "install"):
            row["flags"] = 1
    return ["primary"], None, "B"


def dies_before_it_is_shown_the_third_view(group):
    """B's layers have it, and have acknowledged what was sent while B was away."""
    end = next(at for at, row in enumerate(group.rows["B"]) if row is view(group, "B", 3))
    del group.rows["B"][end:]
    assert [row["last"] - row["first"] for row in group.find("B", "ack", sender="A")][-1] > 100


PLANTS = (
    two_parts_are_primary,
    a_survivor_lacks_the_last_of_a_crashed_sender,
    a_survivor_was_given_nothing_of_a_crashed_sender,
    nothing_was_given_before_the_stream_begins_again,
    the_end_is_the_least_and_not_the_most_that_came,
    a_view_tells_too_little_of_a_crashed_sender,
    a_message_comes_behind_the_view_that_it_belongs_before,
    the_members_of_a_view_are_in_another_order, the_first_message_is_lost_to_one_that_was_away,
    a_message_is_lost_to_one_that_was_away)


@pytest.fixture(scope="module")
def planted(spark, tmp_path_factory):
    """Audit each plant in a group of its own, and the run as it is: return the result,
    and what must be found."""
    directory, expected, rows = tmp_path_factory.mktemp("formed"), {}, kept(CRASHED)
    for plant in (None, *PLANTS):
        name = "untouched" if plant is None else plant.__name__
        group = Copy(rows, name)
        if plant is not None:
            kinds, position, member = plant(group)
            expected[name] = kinds, position, group.address(member)
        group.write(directory)
    group = Copy(rows, "doubtful")
    called_primary(group)
    group.write(directory)
    group = Copy(rows, "dying")
    dies_before_it_is_shown_the_third_view(group)
    group.write(directory)
    return audit(spark, [directory])[0], expected


def found_in(violations, name):
    return [each for each in violations if each.member.startswith(name + "-")]


@pytest.mark.parametrize("name", [plant.__name__ for plant in PLANTS])
def test_a_planted_violation_is_found_and_its_first_message_named(planted, name):
    result, expected = planted
    kinds, position, member = expected[name]
    found = found_in(result.violations, name)
    assert {violation.kind for violation in found} == set(kinds), found
    assert (found[0].kind, found[0].position, found[0].member) == (kinds[0], position, member)


def test_nothing_is_found_where_nothing_was_planted(planted):
    """B was away while A and C went on, and what B sent meanwhile came to nobody."""
    result, _ = planted
    assert found_in([*result.violations, *result.unproven], "untouched") == []
    groups, (name,) = result.groups, [name for name in result.groups.members
                                      if name.startswith("untouched-B#")]
    assert len(groups.members[name].views) == 6


def test_a_member_may_die_with_a_view_that_it_was_not_shown(planted):
    """The last acks of B say where the streams begin for it in this view."""
    result, _ = planted
    assert [each for each in found_in(result.violations, "dying") if each.kind == "ack"] == []


def test_an_ack_may_come_before_what_is_fetched_of_a_sender_that_is_back():
    """Its stream goes on for D where it stood. But of A's messages up to 33 others tell
    D, since A departed; to A it acknowledges them when it is back."""
    found = Paths()
    found.steps["D"] = [Step(1, 0, ("A", "D"), {}, receiving=True),
                        Step(2, 0, ("D",), {"A": 33}, receiving=True),
                        Step(3, 0, ("A", "D"), {}, receiving=True)]
    found.starts["D", "A"], found.installs["D", 3] = [(1, 1), (3, 1)], 77
    rows = SimpleNamespace(_skips={("D", 0): skips(Groups(), found)["D", Stream("A")]})

    def left(kind, low, high, ev):
        hole = {"kind": kind, "member": "D", "stream": 0, "begin": 1, "low": low, "high": high,
                "ev": ev}
        return [(piece["low"], piece["high"]) for piece in Rows._without_skips(rows, hole)]
    assert left("ack", 18, 33, 78) == []
    assert left("ack", 18, 33, 76) == left("gap", 18, 33, 78) == [(18, 33)]
    assert left("ack", 18, 34, 78) == [(34, 34)]


def test_what_a_sender_has_not_kept_is_skipped_behind_what_others_had():
    """D was given by others what B had sent up to 10. B waited for D no longer: when
    they meet, its stream begins at 12."""
    found, groups = Paths(), Groups()
    found.steps["D"] = [Step(1, 0, ("D",), {}, receiving=True),
                        Step(2, 0, ("A", "D"), {}, receiving=True),
                        Step(3, 0, ("A", "B", "D"), {}, receiving=True)]
    found.starts["D", "B"], found.installs["D", 3] = [(2, 6), (3, 12)], 77
    assert skips(groups, found) == {}
    groups.reached["D", Stream("B"), 2] = 10
    assert skips(groups, found) == {("D", Stream("B")): [(11, 11, 77)]}


def event(event, number, members=(), **columns):
    """Return an event of D, about the view with this number."""
    return {"member": "D", "event": event, "ev": number, "wall": number, "view_id": number,
            "members": members, "flags": 1} | columns


def starts(*places):
    """Return where A's stream begins for D: events, each for a view and a position."""
    return [event("start", view, member="A", sender="A", peer="D", first=first)
            for view, first in places]


def test_an_ack_may_count_from_a_view_that_the_member_died_without_being_shown():
    """A was excluded and is back, and D's layers know. D dies before it is shown the
    view without A. A's messages from 243 to 360 are not for D."""
    found = paths([event("install", 1, "AD"), event("view", 1, "AD"), event("install", 2, "D"),
                   event("install", 3, "AD"), *starts((1, 1), (3, 361))])
    assert [step.view_id for step in found.steps["D"]] == [1, 2, 3]
    groups = Groups(reached={("D", Stream("A"), 1): 242})
    assert skips(groups, found) == {("D", Stream("A")): [(243, 360, 3)]}


def test_an_ack_may_count_from_a_view_that_is_over_when_the_member_is_shown_the_next():
    """A was excluded, was back, and left. D is shown the views without it alone."""
    before = [event("view", 1, "AD"), event("depart", 2, sender="A", last=242),
              event("view", 2, "D")]
    met = [event("install", 3, "AD"), event("install", 4, "D"), event("view", 4, "D")]
    skipped = [skips(Groups(), paths([*before, *rows, *starts((1, 1), (3, 361))]))
               for rows in (met, met[1:])]
    assert skipped == [{("D", Stream("A")): [(243, 360, 3)]}, {}]


def test_what_a_crashed_member_may_explain_is_not_proven(planted):
    """A crashed, and may have installed a view that nobody else has."""
    result, _ = planted
    assert {each.kind for each in found_in(result.unproven, "doubtful")} == {"primary"}
    assert found_in(result.violations, "doubtful") == []
