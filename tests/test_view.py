"""Two views are the same if they have the same id and the same members."""

import operator

import pytest

from ringcast import Address, View

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
