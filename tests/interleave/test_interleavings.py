"""Every schedule of two and three threads over the shipped ring, a step being one
access to a shared word or slot.

What must hold is in programs.pyx: after every step LOW <= HD <= HR, HR-LOW <= capacity,
nothing moves back, and a slot is full only inside the window and with its winner's item
(R1, R3, R5); each seqno is accepted once and delivered once, in order, with its own
content (R2, R4); a get finds what is there, missing() names nothing that is there (R8);
no thread waits for ever (R6); and afterwards the window works for one more lap."""

from itertools import combinations_with_replacement

import pytest
from catalogue import AS_SHIPPED, GROUPS
from explore import INTERLEAVED, WEAK, Program, explore

pytestmark = pytest.mark.prove

ALL = [pytest.param(program, id=f"{group}: {program}") for group, programs in GROUPS.items()
       for program in programs]
# Where in a lap the seqnos lie makes no difference to what is seen late; at the edge of
# a block it does.
FOR_WEAK = [case for case in ALL if case.values[0].used < 3]


@pytest.mark.parametrize("program", ALL)
def test_every_schedule_is_right(shipped, program):
    answer = explore(shipped, program)
    assert answer.failure is None, answer
    assert not answer.gave_up and answer.schedules > 1


@pytest.mark.parametrize("program", FOR_WEAK)
def test_every_schedule_is_right_where_a_load_may_see_an_older_store(shipped, program):
    answer = explore(shipped, program, WEAK)
    assert answer.failure is None, answer
    assert not answer.gave_up and answer.schedules > 1


@pytest.mark.parametrize("program", AS_SHIPPED, ids=str)
def test_every_schedule_is_right_with_blocks_of_32(with_full_blocks, program):
    for memory in (INTERLEAVED, WEAK):
        answer = explore(with_full_blocks, program, memory)
        assert answer.failure is None, answer
        assert not answer.gave_up and answer.schedules > 1


@pytest.mark.parametrize("capacity, before", [(2, "add 1; add 2")])
def test_removal_that_frees_must_not_run_beside_a_purge(shipped, capacity, before):
    """Why block_ring.pxd says that one thread frees: the purger stores a LOW that the
    remover has left behind."""
    answer = explore(shipped, Program(("remove; remove", "stable 2"), capacity=capacity,
                                      before=before))
    assert answer.failure == "LOW, HD or HR moved back"


ADDERS = ["add 1", "add 2", "add_run 1 2"]
READERS = ["missing", "look", "count"]


def combinations(alone, others, size):
    """All ways to let `size` calls run beside each other: at most one of `alone`, and
    of the others any, also twice."""
    yield from combinations_with_replacement(others, size)
    for call in alone:
        yield from ((call, *rest) for rest in combinations_with_replacement(others, size - 1))


@pytest.mark.parametrize("memory", [INTERLEAVED, WEAK])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("before, alone, others", [
    pytest.param("", ["remove 2"], ADDERS + READERS, id="removing"),
    pytest.param("add 1", ["remove 2"], ["add 2", *READERS], id="removing what is there"),
    pytest.param("add 1; add 2; keep", ["keep"], ["stable 1", "stable 2", *READERS], id="keeping"),
    pytest.param("send; keep", ["send"], ["stable 1", *READERS], id="sending"),
])
def test_every_pair_and_triple_of_calls_is_right(shipped, memory, size, before, alone, others):
    wrong = []
    for threads in combinations(alone, others, size):
        answer = explore(shipped, Program(threads, capacity=2, used=1, before=before), memory)
        if answer.failure or answer.gave_up:
            wrong.append(str(answer))
    assert wrong == []
