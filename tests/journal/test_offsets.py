"""The arithmetic of offsets: fair steps, ranges, partitions, losses."""

import json

import pytest
from hypothesis import given, strategies as st

from ringcast.errors import JournalError
from ringcast.journal.manifest import Extent
from ringcast.journal.offsets import (
    Loss,
    Range,
    advance,
    canonical,
    cut,
    earliest,
    latest,
    losses,
    overtaken,
    ranges,
    refuse,
)

senders = st.sampled_from("ABCDEFG")
offsets = st.dictionaries(senders, st.integers(0, 50))


def total(start, end):
    """Return how many messages are between two offsets."""
    return sum(last - first + 1 for _, first, last in ranges(start, end, {}))


@given(start=offsets, target=offsets, limit=st.none() | st.integers(1, 120))
def test_a_step_is_bounded_makes_progress_and_keeps_every_sender(start, target, limit):
    end = advance(start, target, {}, limit)
    backlog = sum(max(0, target[name] - start.get(name, 0)) for name in target)
    assert total(start, end) == (backlog if limit is None else min(limit, backlog))
    assert list(end) == sorted({*start, *target})
    assert all(start.get(name, 0) <= end[name] <= max(start.get(name, 0), target.get(name, 0))
               for name in end)


@given(start=offsets, target=offsets, limit=st.integers(1, 40))
def test_steps_reach_the_target_and_then_the_text_no_longer_changes(start, target, limit):
    position = canonical(start)
    for _ in range(400):
        following = advance(position, target, {}, limit)
        if json.dumps(following) == json.dumps(position):
            break
        position = following
    assert all(position.get(name, 0) >= seqno for name, seqno in target.items())


def test_a_quiet_sender_does_not_wait_for_a_busy_one():
    end = advance({"A": 0, "B": 0, "C": 0}, {"A": 1000, "B": 3, "C": 500}, {}, 103)
    assert end == {"A": 50, "B": 3, "C": 50}


def test_a_new_sender_begins_at_its_lowest_message():
    extents = {"A": Extent(1, 9), "B": Extent(500, 502)}
    assert advance({"A": 9}, latest(extents), earliest(extents), None) == {"A": 9, "B": 502}
    assert ranges({"A": 9}, {"A": 9, "B": 502}, earliest(extents)) == [Range("B", 500, 502)]
    assert advance({"A": 9}, latest(extents), earliest(extents), 2) == {"A": 9, "B": 501}


def test_the_text_of_an_offset_does_not_depend_on_the_order_of_arrival():
    texts = {json.dumps(canonical(offset)) for offset in ({"B": 1, "A": 2}, {"A": 2, "B": 1})}
    assert texts == {'{"A": 2, "B": 1}'}
    extents = {"B": Extent(3, 4), "A": Extent(1, 1)}
    assert (list(earliest(extents)), list(latest(extents))) == (["A", "B"], ["A", "B"])


@given(lengths=st.dictionaries(senders, st.integers(1, 40), max_size=6), rows=st.integers(1, 50))
def test_a_cut_covers_every_message_once_in_order_in_full_partitions(lengths, rows):
    spans = [Range(name, 10, 9 + length) for name, length in sorted(lengths.items())]
    parts = cut(spans, rows)
    assert [(name, n) for part in parts for name, a, b in part for n in range(a, b + 1)] == [
        (name, n) for name, a, b in spans for n in range(a, b + 1)]
    sizes = [sum(b - a + 1 for _, a, b in part) for part in parts]
    assert all(size == rows for size in sizes[:-1]) and all(0 < size <= rows for size in sizes)


def test_small_senders_share_a_partition_and_a_large_one_is_spread():
    spans = [Range("A", 1, 3), Range("B", 1, 2), Range("C", 1, 9)]
    assert cut(spans, 7) == [[Range("A", 1, 3), Range("B", 1, 2), Range("C", 1, 2)],
                             [Range("C", 3, 9)]]


def test_losses_name_what_was_purged_never_recorded_or_is_gone():
    extents = {"A": Extent(5, 20, [(8, 9), (15, 30)], 3)}
    assert losses([Range("A", 1, 9)], extents) == [
        Loss("A", 1, 2, "not recorded"), Loss("A", 3, 4, "purged"), Loss("A", 8, 9, "lost")]
    assert losses([Range("A", 16, 17)], extents) == [Loss("A", 16, 17, "lost")]
    assert losses([Range("A", 10, 14)], extents) == []
    assert losses([Range("A", 19, 22)], {"A": Extent(5, 20)}) == [Loss("A", 21, 22, "not recorded")]
    assert losses([Range("B", 1, 2)], extents) == [Loss("B", 1, 2, "not recorded")]


def test_an_offset_beyond_the_journal_is_reported():
    beyond = [Loss("A", 6, 6, "not recorded"), Loss("B", 1, 2, "not recorded")]
    assert overtaken({"A": 6, "B": 2, "C": 0}, {"A": 5}) == beyond
    assert overtaken({"A": 5}, {"A": 5}) == []


def test_the_refusal_names_a_few_ranges_and_the_option():
    refuse([], "nothing")
    named = (r"Lost: A 1..2 \(purged\), A 4..5 \(purged\), A 7..8 \(purged\) and 1 more ranges; "
             "set the option failOnDataLoss")
    with pytest.raises(JournalError, match=named):
        refuse([Loss("A", n, n + 1, "purged") for n in (1, 4, 7, 10)], "Lost")
