"""The audit compares clocks by nothing but the messages; without Spark."""

import random
import re

import pytest

from ringcast.audit.clocks import FASTEST, estimate

BEGIN = 1_700_000_000_000_000_000
SECOND = 10**9
HOUR = 3600 * SECOND
NAMES = {1: "A#1", 2: "B#2", 3: "C#3"}


def messages(clocks, pairs, seconds=30, seed=1):
    """Return the rows of a group whose clocks show `clocks[member](true time)`: one a
    second and pair, each 0.2 ms or a little longer on its way."""
    rng = random.Random(seed)
    rows = []
    for second in range(seconds):
        for sender, receiver in pairs:
            left = BEGIN + second * SECOND
            came = left + 200_000 + int(rng.expovariate(1 / 100_000))
            sent_at = clocks.get(sender, int)(left)
            wall = clocks.get(receiver, int)(came)
            rows.append({"member_id": receiver, "sender_id": sender, "slot": second,
                         "delay": wall - sent_at, "wall": wall})
    return rows


ALL = [(one, other) for one in NAMES for other in NAMES if one != other]


def test_clocks_that_may_be_equal_are_taken_as_equal():
    clocks = estimate(messages({}, ALL), NAMES)
    assert not clocks.apart and not list(clocks.sentences())
    assert clocks.true("A#1", BEGIN) == BEGIN


@pytest.mark.parametrize("ahead", [HOUR, -HOUR, 5_000_000, -5_000_000])
def test_a_clock_that_is_wrong_is_reported_and_corrected(ahead):
    clocks = estimate(messages({2: lambda true: true + ahead}, ALL), NAMES)
    assert set(clocks.apart) == {"B#2"}
    assert clocks.true("B#2", BEGIN + ahead) == pytest.approx(BEGIN, abs=300_000)
    (sentence,) = clocks.sentences()
    found = re.match(r"the clock of B#2 is ([\d,.]+) s (ahead of|behind) that of A#1 "
                     r"\(± 0.2", sentence)
    assert found is not None and found[2] == ("ahead of" if ahead > 0 else "behind"), sentence
    assert float(found[1].replace(",", "")) == pytest.approx(abs(ahead) / 1e9, abs=3e-4)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_member_that_only_receives_is_compared_by_the_fastest_message(ahead):
    clocks = estimate(messages({2: lambda true: true + ahead}, [(1, 2), (1, 3)]), NAMES)
    assert clocks.true("B#2", BEGIN + ahead) == pytest.approx(BEGIN, abs=500_000)
    assert clocks.true("C#3", BEGIN) == BEGIN


def test_a_member_that_got_old_messages_only_is_not_blamed():
    rows = messages({}, ALL)
    late = rows[0] | {"member_id": 4, "sender_id": 1, "delay": FASTEST - 1,
                      "wall": rows[0]["wall"] + FASTEST}
    assert not estimate([*rows, late], NAMES | {4: "D#4"}).apart


@pytest.mark.parametrize("rate", [50e-6, -50e-6, 1e-2])
@pytest.mark.parametrize("pairs", [ALL, [(1, 2), (1, 3)]], ids=["both ways", "one way"])
def test_a_clock_that_drifts_is_corrected_from_beginning_to_end(rate, pairs):
    def clock(true):
        return true + HOUR + round(rate * (true - BEGIN))

    clocks = estimate(messages({2: clock}, pairs, seconds=600), NAMES)
    for second in (0, 300, 599):
        true = BEGIN + second * SECOND
        assert clocks.true("B#2", clock(true)) == pytest.approx(true, abs=1_000_000)
    (row,) = clocks.rows()
    assert row["rate_ppm"] == pytest.approx(rate * 1e6, rel=0.1)


@pytest.mark.parametrize("ahead, skew, refuted", [
    (HOUR, 10_000_000, True), (5_000_000, 10_000_000, False), (0, 0, False)])
def test_a_promise_about_clocks_that_messages_refute_does_not_hold(ahead, skew, refuted):
    rows = messages({2: lambda true: true + ahead}, ALL)
    assert bool(estimate(rows, NAMES, skew=skew).loose) == refuted
