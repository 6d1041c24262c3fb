"""Where streams begin for a member: as their senders say, but for one that is back
where it stood; and as it says itself, if its views show that this can be."""

import pytest
from audit_help import Group

from ringcast.address import LASTING, Address, Succession
from ringcast.audit.verdict import audit
from ringcast.flags import FRAGMENT
from ringcast.trace import PART

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def comes_back(group):
    """D is durable. It was given 60 messages of A in an earlier life, and A has kept
    what follows 40."""
    group.row("A", "start", peer=group.address("D"))["first"] = 41
    rows = group.rows["D"]
    rows.insert(0, {"wall": 0, "event": "resume", "sender": group.address("A"), "last": 60})
    given = [{"wall": 160_500_000, "event": "ack", "sender": group.address("A"), "first": 61,
              "last": 60, "count": 0}]
    for first in range(61, 101, 10):
        given += [dict(group.row("B", each, first + 9), wall=161_000_000)
                  for each in ("deliver", "ack")]
    rows[2:2] = given


def comes_back_to_another_one_of_a_succession(group):
    """D was given the 60 messages by an earlier one."""
    comes_back(group)
    former = Address.parse(group.address("A"))
    address = Address(former.name, Succession(LASTING).next_incarnation())
    for rows in group.rows.values():
        for row in rows:
            row |= {name: str(address) for name in ("sender", "peer")
                    if row.get(name) == str(former)}
            if "members" in row:
                row["members"] = [str(address) if each == str(former) else each
                                  for each in row["members"]]
    group.row("D", "resume")["sender"] = str(address.origin)
    group.others = {"A": str(address)}


def comes_back_and_lacks_one(group):
    comes_back(group)
    group.row("D", "deliver", 70).update(first=62, count=9)


def begins(group, sender, first):
    """Let D say where a stream begins for it, when it has view 2."""
    row = {"wall": 160_000_000, "event": "start", "view_id": 2, "sender": group.address(sender),
           "peer": group.address("D"), "first": first}
    group.rows["D"].insert(group.find("D", "view"), row)


def meets_one_that_never_has_the_view(group):
    """D was given 60 messages of A in an earlier life. A dies before it has view 2, in
    which its stream begins behind 100 for D."""
    ack = group.row("D", "ack", 110)
    del group.rows["A"][group.find("A", "view", view_id=2):]
    for member in "BD":
        group.rows[member] = [row for row in group.rows[member] if row.get("last", 0) <= 100]
    rows = group.rows["D"]
    rows.insert(0, {"wall": 0, "event": "resume", "sender": group.address("A"), "last": 60})
    rows[2:2] = [ack | {"wall": 161_000_000, "first": 101, "last": 100, "count": 0}]
    begins(group, "A", 101)


def acknowledges_what_is_not_said_to_be_passed_over(group):
    meets_one_that_never_has_the_view(group)
    group.take("D", "start")


def is_given_what_was_kept(group):
    """A and B have kept for D what C sent in view 1."""
    sent = {"wall": 120_000_000, "event": "send", "sender": group.address("C"), "first": 1,
            "last": 10, "count": 10, "nbytes": 1000, "sent_at": 120_000_000}
    given = sent | {"wall": 130_000_000, "event": "deliver"}
    group.rows["C"][-2:-2] = [sent, given]
    for member in "AB":
        group.rows[member].insert(group.find(member, "view", view_id=2), given)
    group.rows["D"].insert(1, given | {"wall": 161_000_000})
    begins(group, "C", 1)


def is_given_what_was_kept_but_one(group):
    is_given_what_was_kept(group)
    group.row("D", "deliver", 10, sender=group.address("C")).update(first=2, count=9)


def is_given_what_is_not_for_it(group):
    is_given_what_was_kept(group)
    group.take("D", "start")


def is_not_shown_a_view(group):
    """A sends its first ten messages to D in view 2, which is void for D."""
    names = [group.address(each) for each in "ABD"]
    group.row("D", "view").update(event="install", members=names)
    at = group.find("D", "deliver", 110)
    del group.rows["D"][at]                         # it acknowledges them all the same
    for member in "ABD":
        group.rows[member].insert(group.find(member, "deliver", 120), {
            "wall": 211_000_000, "event": "view", "view_id": 3, "flags": 1, "members": names})
    group.rows["D"].insert(group.find("D", "view"), {
        "wall": 211_000_000, "event": "start", "view_id": 3, "sender": group.address("A"),
        "peer": group.address("D"), "first": 111})


def is_given_an_oob_message_of_a_void_view(group):
    """The stream in order begins behind it."""
    is_not_shown_a_view(group)
    given = dict(group.row("D", "deliver", 120), first=105, last=105, count=1, flags=1, view_id=0)
    group.rows["D"].insert(group.find("D", "install") + 1, given | {"wall": 205_000_000})


def says_that_it_was_not_shown_a_view(group):
    is_not_shown_a_view(group)
    row = group.row("D", "install")
    group.rows["D"].insert(1, row | {"event": "view"})


def hears_of_a_member_first(group):
    """D is given an OOB message before it is shown its first view."""
    view = group.row("D", "view")
    group.rows["D"].insert(0, dict(group.row("D", "deliver", 110), first=105, last=105, count=1,
                                   flags=1, view_id=0))
    group.rows["D"].insert(0, view | {"event": "install"})
    group.rows["D"][group.find("D", "deliver", 110)].update(last=104, count=4)
    rest = dict(group.row("D", "deliver", 104), first=106, last=110, count=5)
    group.rows["D"].insert(group.find("D", "deliver", 104) + 1, rest)


def hears_of_a_stranger(group):
    """D is given an OOB message of C, which has left."""
    sent = {"wall": 120_000_000, "event": "send", "sender": group.address("C"), "first": 1,
            "last": 1, "count": 1, "flags": 1, "nbytes": 1000, "sent_at": 120_000_000}
    group.rows["C"].insert(-2, sent)
    group.rows["D"].insert(1, sent | {"wall": 161_000_000, "event": "deliver"})


def is_back_before_all_is_given(group):
    """A and B part. In view 3 A is back for B, which says to it that its stream begins
    behind 100; but A never has this view. B is given 91 to 100 only then."""
    a, b = group.rows["A"], group.rows["B"]
    for member in "ABD":
        group.row(member, "view", view_id=2)["view_id"] = 9
    for member, event in (("B", "deliver"), ("B", "ack"), ("D", "deliver"), ("D", "ack")):
        group.take(member, event, 110)                  # which A has sent to itself alone
    alone = [group.take("A", "purge", 100), *(group.take("A", each, 110)
                                              for each in ("send", "deliver", "purge"))]
    at = group.find("A", "view", view_id=9)
    start = group.row("A", "start", peer=group.address("D"))
    start["first"] = 111
    a.insert(at + 1, start | {"peer": group.address("B")})
    view = {"event": "view", "flags": 0, "wall": 152_000_000}
    a[at:at] = [view | {"view_id": 5, "members": [group.address("A")]},
                *(dict(row, wall=153_000_000) for row in alone)]
    ours, both = [group.address("B")], [group.address("A"), group.address("B")]
    given, ack = group.take("B", "deliver", 100), group.take("B", "ack", 100)
    departs = {"wall": 155_000_000, "event": "depart", "sender": group.address("A"), "last": 100}
    at = group.find("B", "view", view_id=9)
    b[at:at] = [
        view | {"event": "install", "view_id": 2, "members": ours},
        view | {"event": "install", "view_id": 3, "members": both},
        ack | {"wall": 154_000_000, "view_id": 1},
        given | {"wall": 155_000_000, "view_id": 1},
        departs | {"view_id": 1}, view | {"view_id": 2, "members": ours},
        view | {"view_id": 3, "members": both}, departs | {"view_id": 3},
        view | {"view_id": 4, "members": ours}]


def is_back_in_the_middle_of_a_large_message(group):
    """A and B part, and meet again where they were: at 100. 91 to 101 are the parts of
    one message, of which A has kept the rest for B."""
    group.row("A", "send", 100)["flags"] = FRAGMENT | PART
    for member in "ABC":
        group.take(member, "deliver", 100)
    for member, event in (("A", "send"), ("A", "deliver"), ("B", "deliver"), ("D", "deliver")):
        row = group.row(member, event, 110)
        end = dict(row, last=101, count=1, flags=FRAGMENT, ord=91 if event == "send" else 90)
        if member == "A":
            group.rows["A"].insert(group.find("A", event, 110), end)
        row.update(first=102, count=9)
    view = {"event": "view", "flags": 1, "wall": 152_000_000, "view_id": 9}
    for member, other in ("AB", "BA"):
        departs = {"wall": 152_000_000, "event": "depart", "sender": group.address(other),
                   "last": 100 if other == "A" else 0}
        at = group.find(member, "view", view_id=2)
        group.rows[member][at:at] = [departs, view | {"members": [group.address(member)]}]
        group.row(member, "view", view_id=2)["view_id"] = 10
    at = group.find("A", "start", peer=group.address("D"))
    kept = {"peer": group.address("B"), "first": 91}
    group.rows["A"].insert(at, group.rows["A"][at] | kept)
    group.row("D", "view", view_id=2)["view_id"] = 10


def begins_in_the_middle_of_a_message_with_another_one_between(group):
    """91 to 100 and 102 are the parts of one message. D, whose stream begins behind
    100, is given 101, and not that one. All are shown the next view there."""
    group.row("A", "send", 100)["flags"] = FRAGMENT | PART
    for member in "ABC":
        group.take(member, "deliver", 100)
    names = [group.address(each) for each in "ABD"]
    for member, event in (("A", "send"), ("A", "deliver"), ("B", "deliver"), ("D", "deliver")):
        at, row = group.find(member, event, 110), group.row(member, event, 110)
        rows = [dict(row, last=101, count=1)]
        if member != "D":
            rows.append(dict(row, first=102, last=102, count=1, flags=FRAGMENT)
                        | ({"ord": 91} if event == "send" else {}))
        if event == "deliver":
            rows.append({"wall": row["wall"], "event": "view", "view_id": 3, "flags": 1,
                         "members": names})
        group.rows[member][at:at] = rows
        row.update(first=103, count=8)


def ends_before_it_is_shown_that_a_sender_is_back(group):
    """A and B part, and meet again. B is shown neither view: it has 91 to 100, which
    A has kept for it, and has not given them to its application when it is killed. It
    has said that the stream goes on behind them."""
    a, b = group.rows["A"], group.rows["B"]
    address = group.address("A")
    ours, alone, both = [group.address("B")], [address], [address, group.address("B")]
    view = {"event": "view", "flags": 1, "wall": 152_000_000}
    departs = {"event": "depart", "wall": 152_000_000, "sender": group.address("B"), "last": 0}
    start = group.row("A", "start", peer=group.address("D"))
    for member in "AD":
        group.row(member, "view", view_id=2).update(
            view_id=9, members=[address, group.address("D")])
    at = group.find("A", "view", view_id=9)
    kept = start | {"peer": group.address("B"), "first": 91, "view_id": 4}
    a[at:at] = [departs, view | {"view_id": 2, "members": alone}, kept,
                view | {"view_id": 4, "members": both}, departs]
    a.insert(group.find("A", "purge", 110), group.take("A", "purge", 100))
    ack = group.row("B", "ack", 100)
    del b[group.find("B", "deliver", 100):]
    b += [view | {"event": "install", "view_id": 3, "members": ours},
          view | {"event": "install", "view_id": 4, "members": both},
          kept | {"first": 101}, ack | {"view_id": 1, "wall": 153_000_000}]


HEALTHY = (comes_back, is_back_before_all_is_given, is_back_in_the_middle_of_a_large_message,
           begins_in_the_middle_of_a_message_with_another_one_between,
           ends_before_it_is_shown_that_a_sender_is_back,
           comes_back_to_another_one_of_a_succession, meets_one_that_never_has_the_view,
           is_given_what_was_kept,
           is_not_shown_a_view, is_given_an_oob_message_of_a_void_view, hears_of_a_member_first)
VIOLATIONS = {comes_back_and_lacks_one: ("gap", 61),
              acknowledges_what_is_not_said_to_be_passed_over: ("ack", 61),
              is_given_what_was_kept_but_one: ("gap", 1),
              is_given_what_is_not_for_it: ("stranger", 1),
              says_that_it_was_not_shown_a_view: ("gap", 101),
              hears_of_a_stranger: ("stranger", 1)}


@pytest.fixture(scope="module")
def found(spark, tmp_path_factory):
    """Audit each plant, in a group of its own: return what is found, by group."""
    directory = tmp_path_factory.mktemp("begins")
    for plant in (*HEALTHY, *VIOLATIONS):
        group = Group(plant.__name__)
        plant(group)
        group.write(directory)
    result, _ = audit(spark, [directory], skew_ms=0)
    return {plant: [each for each in [*result.violations, *result.unproven]
                    if each.member.startswith(plant.__name__ + "-")]
            for plant in (*HEALTHY, *VIOLATIONS)}


@pytest.mark.parametrize("plant", HEALTHY)
def test_what_may_be_is_no_violation(found, plant):
    assert found[plant] == []


@pytest.mark.parametrize("plant", VIOLATIONS)
def test_what_may_not_be_is_found(found, plant):
    assert VIOLATIONS[plant] in [(each.kind, each.position) for each in found[plant]], found[plant]
    assert {each.member for each in found[plant]} == {Group(plant.__name__).address("D")}
