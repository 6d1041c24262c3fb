"""Two views are the same if they have the same id and the same members."""

import operator

import pytest

from ringcast import Address, View
from ringcast.channel.publishing import told

A, B = Address("A", 1), Address("B", 2)


@pytest.mark.parametrize(("other", "is_same"), [
    (View(3, (A, B), joined=(B,), departed={Address("C", 3): 7}), True),
    (View(4, (A, B)), False), (View(3, (B, A)), False), (View(3, (A,)), False), (3, False)])
def test_views_are_equal_if_their_ids_and_members_are(other, is_same):
    view = View(3, (A, B))
    assert operator.eq(view, other) is is_same and operator.ne(view, other) is not is_same


def test_in_knows_addresses_and_names_and_a_loop_goes_over_the_members():
    view = View(3, (A, B))
    assert A in view and "B" in view
    assert Address("A", 2) not in view and "C" not in view and 1 not in view
    assert list(view) == [A, B]


@pytest.mark.parametrize(("view", "words"), [
    (View(3, (A,), joined=(A,), primary=True), "view 3, 1 member, led by A; joined: A"),
    (View(3, (A, B), primary=False), "view 3, 2 members, led by A; not primary"),
])
def test_the_log_and_monitor_tell_a_view_in_words(view, words):
    assert told(view) == words


@pytest.mark.parametrize("incarnation", [1, 0xabcdef0123456789, 2**64 - 1])
@pytest.mark.parametrize("name", ["a", "a#b", "ä b"])
def test_the_text_of_an_address_is_read_back(name, incarnation):
    address = Address(name, incarnation)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", [
    "a", "a#", "#0000000000000001", "a#1", "a#00000000000000001", "a#10000000000000000",
    "a#0x00000000000012", "a#+000000000000012", "a#1_2_3_4_5_6_7_89", "a#            1_2 ",
    "a#ABCDEF0123456789", "a#0000000000000000", "a#000000000000000g", "a#٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١"])
def test_a_text_that_no_address_has_is_refused(text):
    with pytest.raises(ValueError, match="is not a member address"):
        Address.parse(text)
