"""The comparison of what members were given finds what no member may ever see."""

import json

import histories
import pytest

A, B, C, C2 = "A#1", "B#2", "C#3", "C#4"


def view(number, *members, departed=None):
    departed = departed or {}
    return {"view": {"id": number, "members": list(members), "left": list(departed),
                     "departed": departed}, "at": float(number)}


def given(sender, view, first, last, number=None):
    return {"from": sender, "view": view, "seqnos": [first, last],
            "numbers": [number or 100 + first, (number or 100 + first) + last - first]}


def read(name, *lines):
    return histories.read(name, "".join(json.dumps(line) + "\n" for line in lines))


END = view(2, A, B, departed={C: 7})
GOOD = {
    "A": [view(1, A, B, C), given(A, 1, 1, 9), given(C, 1, 1, 7), END, given(A, 2, 10, 12)],
    "B": [view(1, A, B, C), given(C, 1, 1, 3), given(A, 1, 1, 9), given(C, 1, 4, 7), END,
          given(A, 2, 10, 12)],
    "C": [view(1, A, B, C), given(A, 1, 1, 2)],
}
BAD = {
    "the ids shrink": ("B", {4: view(0, A, B, departed={C: 7}), 5: given(A, 0, 10, 12)},
                       "and then"),
    "two views have one id": ("C", {0: view(1, A, C)}, "id 1"),
    "another order of members": ("C", {0: view(1, B, A, C)}, "id 1"),
    "a message less of a member that was killed": ("B", {3: given(C, 1, 4, 6)}, "says 7"),
    "a message less of a member that lives": ("B", {2: given(A, 1, 1, 8), 5: given(A, 2, 9, 12)},
                                              "from view 1 to 2"),
    "a message twice": ("B", {3: given(C, 1, 3, 7)}, "due"),
    "a message left out": ("B", {3: given(C, 1, 5, 7)}, "due"),
    "another message": ("B", {1: given(C, 1, 1, 3, 150)}, "due"),
    "a message of a former process": ("B", {5: given(A, 2, 10, 12, 50)}, "due"),
    "a message of one who left": ("B", {5: given(C, 2, 8, 8)}, "no member"),
    "a message in another view": ("B", {5: given(A, 1, 10, 12)}, "came in"),
    "a view without oneself": ("C", {0: view(1, A, B)}, "not in its own view"),
}


def histories_with(name, changed):
    return [read(each, *(changed.get(place, line) if each == name else line
                         for place, line in enumerate(lines))) for each, lines in GOOD.items()]


def test_what_is_as_it_should_be_passes():
    found = histories_with("A", {})
    histories.check(found, "AB")
    histories.check_same_at_end(found[:2])
    assert [each.count() for each in found] == [19, 19, 2]


@pytest.mark.parametrize("name, changed, said", BAD.values(), ids=BAD)
def test_what_must_never_be_is_found(name, changed, said):
    with pytest.raises(AssertionError, match=said):
        histories.check(histories_with(name, changed), "AB")


def test_a_member_that_was_excluded_without_a_reason_is_found():
    with pytest.raises(AssertionError, match="lost .'C'."):
        histories.check(histories_with("A", {}), "ABC")


def test_members_that_were_given_other_messages_at_the_end_are_found():
    with pytest.raises(AssertionError, match="A#1"):
        histories.check_same_at_end(histories_with("B", {5: given(A, 2, 10, 11)})[:2])


def test_a_stream_may_go_on_further_if_its_sender_had_left():
    """As after a partition: what the other part was given meanwhile is gone for us."""
    lines = [view(1, A, B), given(B, 1, 1, 5), view(2, A, departed={B: 5}), view(3, A, B),
             given(B, 3, 20, 21)]
    histories.check([read("A", *lines)])
    lines[4] = given(B, 3, 5, 6)
    with pytest.raises(AssertionError, match="after"):
        histories.check([read("A", *lines)])


def test_a_process_that_was_started_again_is_another_member():
    lines = [view(1, A, C), given(A, 1, 1, 5), view(2, A, C2), given(A, 2, 9, 10)]
    histories.check([read("C", *lines)])
    lines[3] = given(A, 2, 4, 5)
    with pytest.raises(AssertionError, match="after"):
        histories.check([read("C", *lines)])


def test_a_line_that_was_not_written_to_its_end_is_left_out():
    text = json.dumps(view(1, A, B)) + '\n{"from": "A#1", "vi'
    assert histories.read("A", text).count() == 0
