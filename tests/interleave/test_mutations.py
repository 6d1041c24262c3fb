"""The explorer finds faults planted in the shipped ring: so where it finds none, it has
looked."""

import pytest
from explore import WEAK, Change, Program, build, changed, explore, line_of
from mutations import MUTATIONS, judge

pytestmark = pytest.mark.prove


@pytest.mark.parametrize("change, program", [pytest.param(change, program, id=change.name)
                                             for change, program in MUTATIONS])
def test_a_planted_fault_is_found(change, program):
    assert judge(change, program).failure is not None


def test_without_the_faults_their_programs_are_right(shipped):
    assert [change.name for change, program in MUTATIONS if explore(shipped, program).failure] == []


def test_the_lap_that_a_reader_looks_at_and_the_order_of_its_pin_make_up_for_each_other():
    """Without either, a stale LOW and a full bit of the next lap pass for the seqno
    that the reader asked for."""
    blind = build(change=Change("a reader does not look at the lap", "block_ring.pxd",
                                "return load_relaxed(&block.claim) >> 32 == at.lap",
                                "return load_relaxed(&block.claim) >= 0"))
    program = Program(("get 1", "remove; add 2; remove; add 3; remove; add 4; remove; add 5"),
                      before="add 1")
    assert explore(blind, program, WEAK).failure is None
    blind.weaken([(line_of("pin_slot", "fetch_add_acquire"), 0)])
    assert explore(blind, program, WEAK).failure == "an item is not the one that was accepted under this seqno"


def test_a_fault_that_no_longer_fits_the_source_is_an_error():
    with pytest.raises(ValueError, match="has 0 places"):
        changed("one line\n", Change("of another time", "block_ring.pxd", "another line", ""))
    with pytest.raises(ValueError, match="has 0 places"):
        build(change=Change("of another time", "block_ring.pxd", "no such line", ""))
