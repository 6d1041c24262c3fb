"""Decisions 2 to 7 of the design for every window, each named after its number;
decision 1 is in test_ring_text.py."""

import threading

import pytest

from ringcast._core.ring_buffer import RingBuffer


def test_decision_2_who_publishes_drains_so_nothing_deliverable_stays(native):
    """T1 claims 1. T2 adds 2, looks, and leaves at the claimed slot. T1 publishes and
    must drain both."""
    ring, steps = RingBuffer(8), native.Steps
    assert steps.claim(ring, 1)
    assert ring.add(2, "T2") and ring.remove_many() == []
    steps.publish(ring, 1, "T1")
    assert ring.remove_many() == ["T1", "T2"]


def test_decision_2_whatever_the_schedule_the_last_drain_finds_the_rest(make):
    ring, out, token, passes = make(1024), [], threading.Lock(), [0]

    def add(start):
        for seqno in range(start, 1001, 3):
            ring.add(seqno, seqno)
            with token:
                out.extend(ring.remove_many())
                passes[0] += 1

    threads = [threading.Thread(target=add, args=(start,)) for start in (1, 2, 3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert out == list(range(1, 1001)) and passes == [1000]


def test_decision_3_pointers_keep_their_order_and_only_nullified_slots_are_empty(make):
    ring = make(5, 7)
    for step in (lambda: ring.add(12, "e"), lambda: ring.add(8, "a"), lambda: ring.remove(False),
                 lambda: ring.add(9, "b"), lambda: ring.remove(), lambda: ring.announce(99),
                 lambda: ring.stable(9),
                 lambda: ring.announce(99),
                 lambda: ring.add_many(1, list(range(30))), lambda: ring.remove_many(2),
                 lambda: ring.stable(99)):
        before = ring.low
        step()
        assert before <= ring.low <= ring.hd <= ring.hr <= ring.low + ring.capacity
        assert ring.get(9) is None or ring.hd < 9
    assert (ring.low, ring.hd, ring.hr) == (11, 11, 14)


@pytest.mark.parametrize("low", [0, 1000, 2**63 - 3, 2**64 - 3])
@pytest.mark.parametrize("capacity", [1, 5, 32, 50])
def test_decision_4_bounds_are_low_exclusive_and_low_plus_capacity_inclusive(make, low, capacity):
    def seqno(steps):
        return (low + steps) % 2**64

    for refused in (0, -1, capacity + 1, 2**40, -2**40, 2**63):
        ring = make(capacity, low)
        assert not ring.add(seqno(refused), "x") and ring.add_many(seqno(refused), ["x"]) == 0
        assert (ring.hr, len(ring)) == (low, 0)
    for accepted in (1, capacity):
        assert make(capacity, low).add(seqno(accepted), "x")
        assert make(capacity, low).add_many(seqno(accepted), ["x"]) == 1


def test_decision_5_stable_never_moves_back_nor_beyond_hd(make):
    ring = make(10)
    ring.add_many(1, list("abcdef"))
    ring.remove_many(4, nullify=False)
    assert (ring.stable(2), ring.low) == (2, 2)
    for old in (2, 1, 0, 2**64 - 1, 2**63 + 5):
        assert (ring.stable(old), ring.low) == (0, 2)
    assert (ring.stable(6), ring.low, ring.get(5)) == (2, 4, "e")
    ring.remove_many(nullify=False)
    assert (ring.stable(5), ring.low) == (1, 5)


def test_decision_5_missing_starts_above_the_highest_deliverable_seqno(make):
    ring = make(10)
    ring.add_many(1, list("abc"))
    ring.add(6, "f")
    assert ring.missing() == [(4, 5)]
    ring.remove_many()
    assert ring.missing() == [(4, 5)]


@pytest.mark.parametrize("edge", [2**31, 2**32, 2**53, 2**63, 2**64])
def test_decision_6_seqnos_are_64_bit_and_wrap(make, edge):
    ring, first = make(40, edge - 20), edge - 19
    names = [(first + k) % 2**64 for k in range(40)]
    for seqno in reversed(names[5:]):
        assert ring.add(seqno, seqno)
    assert ring.missing() == [(names[0], names[4])] and ring.num_missing == 5
    assert ring.add_many(names[0], names[:5]) == 5
    assert [ring.get(seqno) for seqno in names] == names
    assert ring.remove_many(nullify=False) == names
    assert ring.stable(names[-1]) == 40 and ring.low == names[-1]
    assert not ring.add(names[0], "old") and not ring.add(names[-1], "old")


def test_decision_7_an_add_beyond_the_bytes_is_refused_but_the_next_in_order_is_not(make):
    ring = make(100, max_bytes=10)
    assert ring.add(2, b"seven77") and not ring.add(3, b"four") and ring.add(4, b"two")
    assert ring.missing() == [(1, 1), (3, 3)] and ring.nbytes == 10
    assert ring.add(1, b"longer than the whole bound")
    assert ring.remove_many() == [b"longer than the whole bound", b"seven77"]
    assert ring.nbytes == 3 and not ring.add(5, b"eight888") and ring.add(3, b"eight888")


def test_decision_7_what_is_kept_leaves_room_for_one_message_beyond_the_bytes(make):
    ring = make(100, max_bytes=10)
    assert ring.add(1, b"ten1234567") and ring.remove_many(nullify=False) == [b"ten1234567"]
    assert ring.add(2, b"two") and ring.remove_many(nullify=False) == [b"two"]
    assert not ring.add(3, b"x") and ring.add_many(3, [b"x", b"y"]) == 0 and ring.nbytes == 13
    assert ring.stable(1) and ring.add(3, b"longer than the whole bound")


def test_decision_7_a_run_is_cut_to_what_fits_and_duplicates_cost_nothing(make):
    ring = make(100, max_bytes=10)
    assert ring.add_many(2, [b"12345", b"1234", b"123", b"1"]) == 3  # 2, 3 and 5; 4 does not fit
    assert ring.missing() == [(1, 1), (4, 4)]
    assert ring.add_many(2, [b"12345", b"1234", b"123", b"1"]) == 0 and ring.nbytes == 10
    assert ring.add_many(1, [b"next", b"12345"]) == 1 and ring.nbytes == 14


def test_decision_7_objects_other_than_bytes_count_nothing(make):
    ring = make(4, max_bytes=1)
    assert ring.add_many(1, [bytearray(9), "text", object()]) == 3 and ring.nbytes == 0
