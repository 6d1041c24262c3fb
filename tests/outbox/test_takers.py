"""Whose acks count, and up to where the members that take the rows have the stream."""

import pytest

from ringcast import Address, View
from ringcast.outbox.takers import Takers

ME, R, S, R2 = Address("me", 1), Address("r", 2), Address("s", 3), Address("r", 4)


def seen(expect, *views):
    """Return takers that have seen views of these members. One who is gone in between
    and back is named among the second."""
    takers = Takers("me", expect)
    before = ()
    for number, members in enumerate(views, 1):
        left = tuple(member for member in before if member not in members)
        takers.are_over_with(View(number, (ME, *members), left=left))
        before = members
    return takers


def test_without_others_nobody_takes_the_rows():
    takers = seen([], ())
    assert not takers.chosen and takers.missing == ()
    takers.are_over_with(View(2, (ME, R)))
    assert takers.chosen == {R}


def test_an_observer_takes_no_rows():
    takers = seen([], ())
    assert not takers.are_over_with(View(2, (ME, S), observers=(S,))) and not takers.chosen
    takers.are_over_with(View(3, (ME, R, S), observers=(S,)))
    assert takers.chosen == {R}
    assert takers.are_over_with(View(4, (ME, S), left=(R,), observers=(S,)))


def test_all_that_are_expected_must_be_there_first():
    takers = seen(["r", "s"], (), (S,))
    assert not takers.chosen and takers.missing == ("r",)
    takers.are_over_with(View(3, (ME, R, S)))
    assert takers.chosen == {R, S}


@pytest.mark.parametrize(("expect", "after", "are_gone"), [
    (["r"], (R,), False), (["r"], (S,), True), (["r"], (R2, S), True), (["r", "s"], (R,), True),
    ([], (R,), False), ([], (S,), False), ([], (), True), ([], (R2,), True)])
def test_takers_are_gone_when_one_that_is_expected_or_all_have_left(expect, after, are_gone):
    takers = seen(expect, (R, S), after)
    assert takers.are_gone is are_gone


def test_a_taker_that_was_away_between_two_views_is_gone():
    takers = seen(["r"], (R,))
    takers.are_over_with(View(9, (ME, R), left=(R,), joined=(R,)))
    assert takers.are_gone


@pytest.mark.parametrize("expect", [["r"], []])
def test_a_taker_that_is_expected_back_stays_and_so_does_who_comes_in_its_place(expect):
    takers = seen(expect, (R,))
    assert not takers.are_over_with(View(2, (ME,), left=(R,), absent=(R,)))
    assert not takers.are_over_with(View(3, (ME,), absent=(R,)))
    assert not takers.are_over_with(View(4, (ME, R2), joined=(R2,))) and takers.chosen == {R2}
    assert takers.are_over_with(View(5, (ME,), left=(R2,)))


def test_a_taker_that_is_expected_back_no_longer_is_gone():
    takers = seen(["r"], (R,))
    assert not takers.are_over_with(View(2, (ME,), left=(R,), absent=(R,)))
    assert takers.are_over_with(View(3, (ME,)))


def test_takers_that_have_gone_do_not_come_back():
    assert seen(["r"], (R,), (), (R,)).are_gone


@pytest.mark.parametrize(("streams", "reached"), [
    ([], 10),
    ([{R: (0, 30), S: (0, 20)}], 20),
    ([{R: (0, 30)}], 10),                               # S does not know
    ([{R: (10, 30), S: (11, 30)}], 10),                 # S came too late
    ([{R: (0, 30), S: (0, 30)}, {R: (30, 40), S: (20, 35)}], 35),
    ([{R: (0, 30), S: (0, 30)}, {R: (31, 40), S: (31, 40)}], 30),
    ([{R: (0, 8), S: (0, 9)}], 10),                     # acknowledged since
    ([{R2: (0, 30)}], 10)])
def test_all_that_are_expected_have_what_each_of_them_has(streams, reached):
    assert seen(["r", "s"], (R, S)).have(10, streams) == reached


def test_without_names_it_counts_what_one_has():
    assert seen([], (R, S)).have(10, [{R: (0, 30), S: (0, 20)}, {S: (20, 25)}]) == 30
