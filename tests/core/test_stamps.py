"""Send times of a window's messages: what is filled in is taken out, whatever the
order, the growth and the wrap."""

from array import array

import pytest
from hypothesis import given, strategies as st

from ringcast._core.stamps import Stamps


def taken(stamps, first, count):
    return array("q", stamps.take(first, count)).tolist()


def test_times_not_filled_in_are_zero():
    assert taken(Stamps(), 5, 3) == [0, 0, 0]


@given(start=st.sampled_from([0, 1, 2**63 - 5, 2**64 - 30]),
       runs=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60),
                               st.integers(-2**63, 2**63 - 1)), max_size=20))
def test_every_message_has_the_time_that_was_filled_in_last(start, runs):
    stamps, model = Stamps(), {}
    for above, count, time in runs:
        first = (start + above) % 2**64
        stamps.fill(start, first, count, time)
        model |= {above + k: time for k in range(count)}
    for above, time in model.items():
        assert taken(stamps, (start + above) % 2**64, 1) == [time]


def test_a_window_that_moves_on_needs_no_more_room():
    stamps = Stamps()
    for low in range(0, 10_000, 10):
        stamps.fill(low, low + 1, 10, low)
        assert taken(stamps, low + 1, 10) == [low] * 10
    assert len(stamps) == 16


def test_growing_keeps_what_the_window_still_needs():
    stamps = Stamps()
    stamps.fill(2**64 - 8, 2**64 - 7, 12, 1)
    stamps.fill(2**64 - 4, 5, 100, 2)
    assert taken(stamps, 2**64 - 3, 8 + 100) == [1] * 8 + [2] * 100


@pytest.mark.parametrize("low, first, count", [(10, 10, 1), (10, 5, 2), (0, 1, 2**27),
                                               (0, 2**63, 1)])
def test_what_no_window_holds_is_refused(low, first, count):
    with pytest.raises(ValueError, match="are not within"):
        Stamps().fill(low, first, count, 1)
