"""What the explorer itself is worth: it finds what is known to be wrong, and its
reduction loses nothing."""

import pytest
from explore import INTERLEAVED, WEAK, Program, explore, replay

pytestmark = pytest.mark.prove

TEXT_DOUBLE_ACCEPT = Program(("text_add 1", "text_add 1", "text_remove"))


def test_the_texts_ring_accepts_a_seqno_twice_with_two_adders_and_a_remover(shipped):
    """RingBuffer.txt, correctness check #1, fails (decision 1). Should this ever pass,
    the explorer is broken."""
    answer = explore(shipped, TEXT_DOUBLE_ACCEPT)
    assert answer.failure == "a seqno is accepted twice"


def test_the_texts_ring_delivers_a_stale_item_in_the_place_of_another_after_wrap(shipped):
    """Looking at contents only: the item of the late add comes out one lap later, under
    a seqno that is not its own."""
    late = "text_add 1; text_remove; text_add 2; text_remove; text_add 3; text_add 4; text_remove"
    program = Program(("text_add 1", late),
                      capacity=2, contents_only=True)
    failure = "an item is not the one that was accepted under this seqno"
    assert explore(shipped, program).failure == failure


def test_the_texts_ring_of_one_slot_refuses_the_next_seqno_for_ever_after_a_late_add(shipped):
    program = Program(("text_add 1", "text_add 1; text_remove; text_add 2"), capacity=1,
                      contents_only=True, accepted=(2,))
    assert explore(shipped, program).failure == "a seqno is refused that had room"


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_the_texts_ring_is_right_with_one_adder(shipped, capacity):
    adds = "; ".join(f"text_add {number}" for number in (1, 2, 1, 3, 2))
    for memory in (INTERLEAVED, WEAK):
        program = Program((adds, "text_remove; text_remove; text_remove"), capacity=capacity)
        answer = explore(shipped, program, memory)
        assert answer.failure is None, answer


def test_the_texts_ring_is_right_with_late_adds_of_what_was_there_before(shipped):
    """The case that the text's own argument is about."""
    answer = explore(shipped, Program(("text_add 1", "text_add 1", "text_remove"), capacity=2,
                                      before="text_add 1"))
    assert answer.failure is None, answer


def test_a_failing_schedule_is_printed_one_step_a_line_and_can_be_replayed(shipped):
    answer = explore(shipped, TEXT_DOUBLE_ACCEPT)
    first, *steps, last = str(answer).splitlines()
    assert first == answer.failure and last == f"replay: {answer.schedule}"
    assert len(steps) == len(answer.schedule) and all(step[:3] in ("T1 ", "T2 ", "T3 ")
                                                      for step in steps)
    assert replay(shipped, TEXT_DOUBLE_ACCEPT, answer.schedule) == answer


def test_a_failing_schedule_of_the_weak_memory_can_be_replayed_with_what_its_loads_saw(shipped):
    program = Program(("cross 0", "cross 1"))
    answer = explore(shipped, program, WEAK)
    assert any("1 stores ago" in step for step in answer.trace)
    assert replay(shipped, program, answer.schedule, WEAK) == answer


@pytest.mark.parametrize("memory", [INTERLEAVED, WEAK])
@pytest.mark.parametrize("threads, before", [
    (("text_add 1", "text_remove"), ""),
    (("text_add 1; text_remove", "text_add 2"), ""),
    (("tell", "pass_on", "hear 2"), ""),
    (("look", "add 1"), ""),
    (("look", "keep"), "add 1"),
    (("missing", "add 1"), "add 2"),
    (("get 1", "keep"), "add 1"),
])
def test_merging_equal_states_loses_no_schedule_and_no_end(shipped, memory, threads, before):
    """The plain search visits every schedule; the reduced one counts as many, and ends
    in the same states."""
    program = Program(threads, capacity=2, before=before)
    reduced, plain = explore(shipped, program, memory), explore(shipped, program, memory,
                                                                plain=True)
    assert (reduced.failure, reduced.schedules, reduced.ends) == (None, plain.schedules, plain.ends)
    assert reduced.states < plain.states


def test_a_search_that_is_too_large_says_that_it_gave_up(shipped):
    assert explore(shipped, Program(("add 1", "add 1", "remove")), most_states=100).gave_up


# --- the weak memory is C11's ---------------------------------------------------------

def test_a_release_store_and_the_acquire_load_that_sees_it_order_what_is_around_them(shipped):
    assert explore(shipped, Program(("tell", "hear 1")), WEAK).failure is None


def test_an_item_read_without_having_seen_the_flag_is_a_race(shipped):
    failure = "race: an item is read that another thread writes"
    assert explore(shipped, Program(("tell", "hear 0")), WEAK).failure == failure


def test_a_relaxed_read_modify_write_carries_on_what_was_released(shipped):
    assert explore(shipped, Program(("tell", "pass_on", "hear 2")), WEAK).failure is None


def test_release_and_acquire_do_not_order_a_store_with_a_later_load(shipped):
    """Two threads may each miss the other's flag, which no interleaving allows."""
    crossing = Program(("cross 0", "cross 1"))
    assert explore(shipped, crossing, INTERLEAVED).failure is None
    assert explore(shipped, crossing, WEAK).failure == "neither sees the other's flag"
