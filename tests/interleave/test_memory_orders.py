"""Which memory orders of block_ring.pxd are needed, and for what.

Each access with an order is weakened to relaxed (an acq_rel to each of its halves as
well), in the compiled core as shipped, under the weak memory of explorer.c. NEEDED
names a program that fails then. COVERED names an access that makes up for the weakened
one: alone it breaks no program, weakened together they do; the order stays, because
each function then says by itself what it relies on. For FREE no program fails, and the
reason is given. The accesses of ring_buffer.pyx run under the GIL and are not explored:
its load of LOW is the one of in_window(), its store of `bound` publishes nothing.
"""

import pytest
from catalogue import GROUPS
from explore import WEAK, Program, accesses, explore, line_of

pytestmark = pytest.mark.prove

RELAXED, ACQUIRE, RELEASE = 0, 2, 3

ADD_REMOVE = Program(("add 1", "remove"))
ONLOOKER = Program(("look", "add 1; add 2", "remove 2"), capacity=2)
# Seqno 1 lies at the end of a block, and 5 a lap later.
LATER_LAP = Program(("add 4", "stable 2"), capacity=2, used=1, before="add 1; add 2; keep 2")
SEND_A_LAP_LATER = Program(("send; send", "stable 2"), capacity=2, used=1,
                           before="send; send; keep 2")
SLOT_USED_AGAIN = Program(("add 5", "add 1; remove; add 2; remove; add 3; remove; add 4; remove"))
CONSUMER_AND_PURGER = Program(("keep 2; keep", "stable 2; add 3; stable 3; add 4; add 5"),
                              capacity=2, before="add 1; add 2")
TWO_PURGERS = Program(("stable 2", "stable 1"), capacity=2, before="add 1; add 2; keep 2", freed=2)
TWO_DRAINERS = Program(("add 1; drain", "add 2; drain"), capacity=2, accepted=(1, 2), delivered=2)

RACE = "race: an item is read that another thread writes"
REUSED = "race: an item is written that another thread accesses"
REFUSED = "a seqno is refused that is in the window and that nobody has"

# (function, access, what is left of it): a program that then fails, and how
NEEDED = {
    ("in_window", "load_acquire(&r.low)", RELAXED): (LATER_LAP, REFUSED),
    ("room", "load_acquire(&r.low)", RELAXED): (SEND_A_LAP_LATER, REFUSED),
    ("free_to", "store_release(&r.low", RELAXED): (LATER_LAP, REFUSED),
    ("publish", "fetch_or_release", RELAXED): (ADD_REMOVE, RACE),
    ("take_run", "load_acquire", RELAXED): (ADD_REMOVE, RACE),
    ("take_run", "store_release(&r.hd", RELAXED): (ONLOOKER,
                                                   "LOW <= HD <= HR does not hold for an onlooker"),
    ("advance_hd", "store_release(&r.hd", RELAXED): (CONSUMER_AND_PURGER, REUSED),
    ("wanted_to", "load_acquire(&r.hd)", RELAXED): (CONSUMER_AND_PURGER, REUSED),
    ("take_token", "fetch_add_acq_rel", RELAXED): (TWO_PURGERS,
                                                   "an item is freed that was not delivered"),
    ("take_token", "fetch_add_acq_rel", ACQUIRE): (TWO_PURGERS,
                                                   "LOW does not reach what was asked for"),
    ("take_token", "fetch_add_acq_rel", RELEASE): (TWO_PURGERS,
                                                   "an item is freed that was not delivered"),
    ("give_token", "cas_acq_rel_relaxed", RELAXED): (TWO_PURGERS,
                                                     "an item is freed that was not delivered"),
    ("give_token", "cas_acq_rel_relaxed", ACQUIRE): (TWO_PURGERS,
                                                     "an item is freed that was not delivered"),
    ("give_token", "load_acquire", RELAXED): (TWO_DRAINERS,
                                              "something deliverable stays: nobody was woken"),
    ("slots_from", "load_acquire", RELAXED): (Program(("add 1", "get 1")), RACE),
    ("held_bits", "load_acquire", RELAXED): (Program(("add 1", "visit")), RACE),
    ("blocks_held", "load_acquire(&r.low)", RELAXED):
        (Program(("add 1; add 2", "count", "remove 2"), capacity=2),
         "more blocks hold something than there are"),
}

LOW_LOAD = ("in_window", "load_acquire(&r.low)")
READY = ("ready", "load_acquire")
HD_LOAD = ("wanted_to", "load_acquire(&r.hd)")

# (function, access): what makes up for it, a program that fails when all of them are
# weakened, and how
COVERED = {
    ("claim_bits", "cas_acquire_relaxed"): ([LOW_LOAD], SLOT_USED_AGAIN, REUSED),
    ("free_to", "store_release(&r.blocks"): ([LOW_LOAD], SLOT_USED_AGAIN, REUSED),
    ("look_run", "load_acquire"): ([READY], Program(("add 1", "keep")), RACE),
    ("free_block", "load_acquire"): ([HD_LOAD], Program(("add 1; keep", "stable 1")), RACE),
}

FREE = {
    ("ready", "load_acquire", RELAXED):
        "it counts only; take_run() and look_run() load the word again before they touch a slot",
    ("give_token", "cas_acq_rel_relaxed", RELEASE):
        "the acquire half: who has given the token back looks at nothing any more",
}

SMALL = [program for programs in GROUPS.values() for program in programs
         if len(program.threads) == 2 and program.used == 1]


@pytest.fixture
def weakened(shipped):
    """Explores a program with some accesses weakened."""
    def run(program, *places):
        shipped.weaken([(line_of(function, access), order) for function, access, order in places])
        return explore(shipped, program, WEAK)

    yield run
    shipped.weaken([])


def test_every_order_of_the_ring_is_in_the_table():
    listed = {line_of(function, access) for function, access, *_ in [*NEEDED, *COVERED, *FREE]}
    assert sorted(listed) == sorted(line for line, _, _ in accesses())


def named(key):
    function, access, *rest = key
    order = rest[0] if rest else RELAXED
    return f"{function}: {access} -> {('relaxed', '', 'acquire', 'release')[order]}"


@pytest.mark.parametrize("key", NEEDED, ids=named)
def test_an_order_is_needed(weakened, key):
    program, failure = NEEDED[key]
    assert weakened(program).failure is None
    assert weakened(program, key).failure == failure


@pytest.mark.parametrize("key", COVERED, ids=named)
def test_an_order_is_made_up_for_by_another_and_needed_without_that(weakened, key):
    cover, program, failure = COVERED[key]
    assert [small for small in SMALL if weakened(small, (*key, RELAXED)).failure] == []
    assert weakened(program, (*key, RELAXED), *((*other,
                                                 RELAXED) for other in cover)).failure == failure
    assert weakened(program, *((*other, RELAXED) for other in cover)).failure != failure


@pytest.mark.parametrize("key", FREE, ids=named)
def test_no_program_needs_an_order_that_is_kept_for_the_reason_given(weakened, key):
    assert [small for small in SMALL if weakened(small, key).failure] == []
