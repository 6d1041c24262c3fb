"""The catalogue of what an audit must find. Each violation is planted into the trace of
a simulated group in which nothing was wrong, and the audit names its first message."""

import pytest
from planted_help import LEFT, Copy, kept

from ringcast.audit.figures import figures
from ringcast.audit.verdict import audit

pytestmark = pytest.mark.spark

# In the run that is kept A, B, C and D send. C sends something to D alone. D leaves,
# and comes back.
ONE = {"sender": "C", "to_one": True}


def nth(group, member="B", number=12, **stream):
    """Return a delivery in the middle of a stream."""
    return group.find(member, "deliver", **({"sender": "C"} | stream))[number]


def span(row):
    return row["first"], row["last"]


def first_receiver(group, position, members):
    """Return who was the first to get this message or one behind it."""
    return min((each["wall"], member) for member in members
               for each in group.find(member, "deliver", sender="C")
               if each["last"] >= position)[1]


def take_from(group, member, events, first):
    """Remove what the events of one member say of C's messages from `first` on."""
    group.take(member, [each for each in group.find(member, *events, sender="C")
                        if each["last"] >= first])


def lost(group):
    row = nth(group)
    group.take("B", [row])
    return ["ack", "gap"], row["first"], "B"


def lost_at_the_beginning(group):
    row = nth(group, number=0)
    group.take("B", [row])
    return ["ack", "gap"], row["first"], "B"


def twice(group):
    row, later = nth(group), nth(group, number=14)
    group.rows["B"].insert(group.rows["B"].index(later), row | {"wall": later["wall"]})
    return ["duplicate"], row["first"], "B"


def out_of_order(group):
    row, later = nth(group), nth(group, number=14)
    group.take("B", group.find("B", "ack", sender="C", over=span(row)))
    group.move("B", row, before=later)
    group.move("B", later, before=row)
    return ["ack", "order"], row["first"], "B"


def never_sent(group):
    last, end = nth(group, number=-1), group.rows["B"][-1]
    forged = last | {"first": last["last"] + 1, "last": last["last"] + 3, "count": 3}
    group.rows["B"].insert(-1, forged | {"wall": end["wall"], "view_id": end["view_id"]})
    return ["forged"], forged["first"], "B"


def never_sent_though_later_ones_were(group):
    row = nth(group)
    group.take("C", group.find("C", "send", "retransmit", sender="C", over=span(row)))
    return ["forged"], row["first"], first_receiver(group, row["first"], "ABD")


def left_out_by_its_sender(group):
    row = nth(group)
    for member in group.rows:
        rows = group.find(member, "deliver", "send", "retransmit", sender="C")
        group.take(member, [each for each in rows
                            if span(each) == span(row) or each["first"] == row["first"]])
    return ["send"], row["first"], first_receiver(group, row["last"] + 1, "ABCD")


def end_of_a_closed_trace_missing(group):
    row = nth(group, number=-1)
    take_from(group, "C", ["send", "retransmit"], row["first"])
    return ["forged"], row["first"], first_receiver(group, row["first"], "ABD")


def delivered_to_a_member_that_is_not_in_the_view(group):
    for member in "ABC":
        group.find(member, "view")[1]["members"].remove(group.address("B"))
    return ["view"], None, "B"


def of_a_stranger(group):
    row = nth(group, number=0)
    group.move("B", row, before=group.rows["B"][0])
    row["view_id"] = 0
    return ["stranger"], row["first"], "B"


def different_sets_in_one_view(group):
    row = nth(group, number=-2)
    take_from(group, "B", ["deliver", "ack"], row["first"])
    return ["purge", "set", "synchrony"], row["first"], "B"


def purged_and_never_acknowledged(group):
    row = nth(group, number=20)
    take_from(group, "B", ["ack"], row["first"])
    return ["purge"], row["first"], "B"


def purged_before_it_was_acknowledged(group):
    """B acknowledges nothing for a while, in which it gets what C sent after it had
    purged what is before."""
    rows = group.find("B", "deliver", sender="C")
    low, high = rows[8]["first"], rows[24]["last"]
    group.take("B", [each for each in group.find("B", "ack", sender="C")
                     if low <= each["last"] <= high])
    return ["purge"], low, "B"


def acknowledged_before_delivery(group):
    row = nth(group)
    acks = [each for each in group.find("B", "ack", sender="C") if each["last"] >= row["first"]]
    group.move("B", acks[0], before=row)
    return ["ack"], row["first"], "B"


def acknowledged_and_never_delivered(group):
    group.take("B", group.find("B", "deliver", sender="C"))
    return ["ack", "set", "synchrony"], 1, "B"


def own_messages_not_delivered(group):
    group.take("C", group.find("C", "deliver", sender="C"))
    return ["purge"], 1, "C"


def one_own_message_not_delivered(group):
    row = nth(group, "C")
    group.take("C", [row])
    return ["gap"], row["first"], "C"


def two_members_with_one_incarnation(group):
    """D's messages count as B's, so nobody was given those that D's end tells of."""
    old, new = group.address("D"), group.address("B").replace("-B#", "-D#")
    for rows in group.rows.values():
        for row in rows:
            for column in ("member", "sender", "peer"):
                row[column] = new if row[column] == old else row[column]
            row["members"] = row["members"] and [new if each == old else each
                                                 for each in row["members"]]
    return ["member", "departed"], None, "D"


def from_before_the_stream_begins(group):
    starts = [each for each in group.find("C", "start", sender="C")
              if each["peer"] == group.address("B")]
    for row in starts:
        row["first"] = 9
    return ["start"], 1, "B"


def view_ids_go_back(group):
    first, second = group.find("B", "view")[:2]
    wrong = second["view_id"]
    for row in group.rows["B"]:
        if row["view_id"] == wrong:
            row["view_id"] = first["view_id"] - 1
    return ["view"], None, "B"


def one_view_of_different_members(group):
    group.find("D", "view")[0]["members"].remove(group.address("A"))
    return ["view", "stranger"], None, "D"


def lost_to_one(group):
    row = nth(group, "D", 3, **ONE)
    group.take("D", [row])
    return ["ack", "gap"], row["first"], "D"


def twice_to_one(group):
    row, later = nth(group, "D", 3, **ONE), nth(group, "D", 5, **ONE)
    group.rows["D"].insert(group.rows["D"].index(later), row | {"wall": later["wall"]})
    return ["duplicate"], row["first"], "D"


def never_sent_to_one(group):
    last = nth(group, "D", -1, **ONE)
    forged = last | {"first": last["last"] + 1, "last": last["last"] + 1, "count": 1}
    group.rows["D"].insert(group.rows["D"].index(last) + 1, forged)
    return ["forged"], forged["first"], "D"


def acknowledged_before_delivery_by_one(group):
    row = nth(group, "D", 3, **ONE)
    acks = [each for each in group.find("D", "ack", **ONE) if each["last"] >= row["first"]]
    group.move("D", acks[0], before=row)
    return ["ack"], row["first"], "D"


PLANTS = (
    lost, lost_at_the_beginning, twice, out_of_order, never_sent,
    never_sent_though_later_ones_were, left_out_by_its_sender, end_of_a_closed_trace_missing,
    delivered_to_a_member_that_is_not_in_the_view, of_a_stranger, different_sets_in_one_view,
    purged_and_never_acknowledged, purged_before_it_was_acknowledged, acknowledged_before_delivery,
    acknowledged_and_never_delivered, own_messages_not_delivered, one_own_message_not_delivered,
    two_members_with_one_incarnation, from_before_the_stream_begins, view_ids_go_back,
    one_view_of_different_members, lost_to_one, twice_to_one, never_sent_to_one,
    acknowledged_before_delivery_by_one)

HOUR = 3600 * 10**9
SKEWED = {  # members whose clocks are wrong: nanoseconds, and nanoseconds for each one that passes
    "ahead": {"B": (HOUR, 0.0)}, "behind": {"A": (-HOUR, 0.0)},
    "both_ways": {"A": (HOUR, 0.0), "B": (-2 * HOUR, 0.0)},
    "drifting": {"C": (HOUR, 0.01)}}
PLANTED_AND_SKEWED = (lost, twice, never_sent, purged_and_never_acknowledged,
                      purged_before_it_was_acknowledged)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Write each plant in a group of its own, some of them again with wrong clocks, and
    groups as they should be."""
    directory, expected, rows = tmp_path_factory.mktemp("planted"), {}, kept(LEFT)
    groups = [("untouched", None, {}), *((name, None, skews) for name, skews in SKEWED.items()),
              *((plant.__name__, plant, {}) for plant in PLANTS),
              *((f"skewed_{plant.__name__}", plant, {"B": (HOUR, 0.0), "C": (-HOUR, 0.0)})
                for plant in PLANTED_AND_SKEWED)]
    for name, plant, skews in groups:
        group = Copy(rows, name)
        if plant is not None:
            kinds, position, member = plant(group)
            expected[name] = kinds, position, group.address(member)
        for member, skew in skews.items():
            group.skew(member, *skew)
        group.write(directory)
    untraced = Copy(rows, "untraced")
    del untraced.rows["D'"]
    untraced.write(directory)
    return directory, expected, untraced


@pytest.fixture(scope="module")
def result(spark, planted):
    """Audit all of them at once."""
    return audit(spark, [planted[0]])


def found_in(violations, name):
    """Return the violations that were found in the group of this name."""
    return [each for each in violations if each.member.startswith(name + "-")]


@pytest.mark.parametrize("name", [*(plant.__name__ for plant in PLANTS),
                                  *(f"skewed_{plant.__name__}" for plant in PLANTED_AND_SKEWED)])
def test_a_planted_violation_is_found_and_its_first_message_named(result, planted, name):
    kinds, position, member = planted[1][name]
    found = found_in(result[0].violations, name)
    assert {violation.kind for violation in found} == set(kinds), found
    first = found[0]
    assert (first.kind, first.position, first.member) == (kinds[0], position, member), found
    assert position is None or f"message {position} of {name}-C" in str(first)


@pytest.mark.parametrize("name", ["untouched", "untraced", *SKEWED])
def test_nothing_is_found_where_nothing_was_planted(result, name):
    """Acks that come an hour after the purges that they allowed, by clocks an hour
    apart, are no violation."""
    assert found_in([*result[0].violations, *result[0].unproven], name) == []


@pytest.mark.parametrize("name", SKEWED)
def test_wrong_clocks_are_reported_as_clocks(result, name):
    found = {row["member"][len(name) + 1:].partition("#")[0]: row
             for row in result[0].clocks.rows() if row["member"].startswith(name + "-")}
    assert found.keys() == SKEWED[name].keys()
    for member, (ahead, rate) in SKEWED[name].items():
        assert found[member]["ahead_s"] == pytest.approx(ahead / 1e9, abs=0.1)
        assert found[member]["rate_ppm"] == pytest.approx(rate * 1e6, rel=0.2, abs=2000)
    (sentence, *_) = [each for each in result[0].remarks() if f"clock of {name}-" in each]
    assert "ahead of that of" in sentence or "behind that of" in sentence


def test_latencies_are_taken_by_one_clock(result):
    """A member whose clock is an hour behind or ahead has the same latencies."""
    audit_, rows = result
    wanted = " or ".join(f"member like '{name}-%'" for name in ("untouched", "ahead", "behind"))
    numbers = figures(rows.where(wanted), audit_.groups, audit_.clocks)
    members = {row["member"] for row in numbers.latency}
    right = {name.partition("#")[0].removeprefix("untouched-"): name for name in members
             if name.startswith("untouched-")}
    assert numbers.duration < 600 and len(members) > 10
    for name in members:
        letter = name.partition("#")[0].rpartition("-")[2]
        medians = [numbers.percentile(0.5, each) for each in (name, right[letter])]
        assert medians[0] == pytest.approx(medians[1], rel=0.2, abs=0.02), name


def test_a_member_of_a_view_without_a_trace_is_named(result, planted):
    (missing,) = [name for name in result[0].untraced if name.startswith("untraced-")]
    assert missing.startswith("untraced-D#") and missing != planted[2].address("D")
    (doubt,) = [each for each in result[0].doubts() if "no trace of untraced-" in each]
    assert doubt.endswith("or it died before it had written anything, in its first second")
    assert missing in doubt and "in view" in doubt and not result[0].is_complete
