"""The explorer finds faults planted in the shipped ring: so where it finds none, it has
looked."""

import pytest
from explore import Change, build, changed, explore
from mutations import MUTATIONS, judge

pytestmark = pytest.mark.prove


@pytest.mark.parametrize("change, program", [pytest.param(change, program, id=change.name)
                                             for change, program in MUTATIONS])
def test_a_planted_fault_is_found(change, program):
    assert judge(change, program).failure is not None


def test_without_the_faults_their_programs_are_right(shipped):
    assert [change.name for change, program in MUTATIONS if explore(shipped, program).failure] == []


def test_a_fault_that_no_longer_fits_the_source_is_an_error():
    with pytest.raises(ValueError, match="has 0 places"):
        changed("one line\n", Change("of another time", "block_ring.pxd", "another line", ""))
    with pytest.raises(ValueError, match="has 0 places"):
        build(change=Change("of another time", "block_ring.pxd", "no such line", ""))
