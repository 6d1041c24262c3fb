"""Which waits spin before they sleep."""

import pytest

from ringcast._core.spinning import Spinning

SPIN = 100                              # nanoseconds that a spin may take


def waiting(spinning, waits, came=False):
    """Return which of so many waits spin; `came` says whether they succeed."""
    spun = []
    for _ in range(waits):
        spun.append(spinning.begin_wait(SPIN))
        if spun[-1]:
            spinning.end_spin(came)
    return spun


@pytest.fixture
def spinning():
    """Return one whose last sleep was short."""
    spinning = Spinning()
    spinning.begin_wait(SPIN)
    spinning.end_sleep(SPIN, True)
    return spinning


def test_the_first_wait_sleeps():
    assert not Spinning().begin_wait(SPIN)


@pytest.mark.parametrize(("took", "came", "spins"), [
    (2 * SPIN - 1, True, True), (2 * SPIN, True, False), (1, False, False)])
def test_a_wait_spins_if_the_last_sleep_was_short_and_something_came(spinning, took, came, spins):
    spinning.end_sleep(took, came)
    assert spinning.begin_wait(SPIN) is spins


def test_a_wait_that_may_not_spin_does_not_and_leaves_what_is_known(spinning):
    assert not spinning.begin_wait(0)
    spinning.end_sleep(50 * SPIN, True)
    assert spinning.begin_wait(SPIN)


def test_spins_that_succeed_go_on(spinning):
    assert waiting(spinning, 100, came=True) == [True] * 100


def test_after_spins_in_vain_more_and_more_waits_sleep_at_once(spinning):
    spun = waiting(spinning, 350)
    spins = [at for at, spins in enumerate(spun) if spins]
    pauses = [later - sooner - 1 for sooner, later in zip(spins, spins[1:], strict=False)]
    assert pauses == [1, 3, 7, 15, 31, 63, 63, 63, 63]


def test_a_spin_that_succeeds_forgets_those_in_vain(spinning):
    waiting(spinning, 5)                # two in vain
    assert waiting(spinning, 4) == [False, True, False, False]
    while not spinning.begin_wait(SPIN):
        pass
    spinning.end_spin(True)
    assert waiting(spinning, 3) == [True, False, True]
