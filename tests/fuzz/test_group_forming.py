"""A hostile member of a group that forms itself, or a stranger: nobody raises, nothing
grows, and once it is silent the others are one group."""

import random

import pytest
from group_forming import FormingGroup

# Programs that broke a promise once.
FOUND = {
    "members whose ids were driven up unequally met no more":
        "ac20349ee07b041a7931b15a8e2fd4dbb5994a2f5b90faafd6cdcfdf2fceffec05bd477e4dcc539c20694a1412"
        "d0ff",
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_a_bug_that_was_found_once_stays_repaired(program):
    FormingGroup(bytes.fromhex(program)).run()


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.prove)
                                               for seed in range(4, 40))])
def test_whatever_a_hostile_member_says_the_others_are_one_group_when_it_is_silent(seed):
    rng = random.Random(f"forming {seed}")
    for _ in range(5):
        FormingGroup(rng.randbytes(rng.randrange(1, 200))).run()


def test_programs_reach_what_they_are_about():
    """B is let in, the honest ones are given views that B made, and deliver."""
    rng, met, sent = random.Random("reach"), False, False
    for _ in range(20):
        group = FormingGroup(bytes([12]) + rng.randbytes(60))
        met |= any(len(member.members) == 3 for member in group.members)
        group.run()
        sent |= all(member.num_sent > 10 for member in group.members)
    assert met and sent
