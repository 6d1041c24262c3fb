"""Faults planted in the ring, each with the program of small threads that shows it.

`python tests/interleave/mutations.py` builds a copy of the sources with each of them in
turn, and prints the first line of what the explorer says; with a name, the whole
schedule. A fault is one place of one source, otherwise written (explore.Change).
"""

import sys

from explore import CORE, Answer, Change, Program, build, explore

RING = "block_ring.pxd"
LATE_ADD = Program(("add 1",
                    "add 1; remove; add 2; remove; add 3; remove; add 4; remove; add 5; remove"))
TWO_PURGERS = Program(("stable 2", "stable 1"), capacity=2, before="add 1; add 2; keep 2", freed=2)
TWO_DRAINERS = Program(("add 1; drain", "add 2; drain"), capacity=2, accepted=(1, 2), delivered=2)

PUBLISH = "    fetch_or_release(&r.blocks[at.block].full, mask)\n"
# what publish() does, as its source has it
SOURCE = (CORE / RING).read_text()
WRITE_AND_PUBLISH = SOURCE[SOURCE.index("    while todo:\n        k = lowest_bit(todo)\n"
                                        "        slots[k] ="):SOURCE.index(PUBLISH)] + PUBLISH

MUTATIONS: list[tuple[Change, Program]] = [
    (Change("an adder claims without looking at the lap", RING,
            "if <uint32_t>(seen >> 32) != at.lap or not unclaimed:", "if not unclaimed:"),
     LATE_ADD),
    (Change("a claim is a store and not a swap", RING,
            "        if cas_acquire_relaxed(word, &seen, seen | unclaimed):\n            return "
            "unclaimed\n",
            "        store_release(word, seen | unclaimed)\n        return unclaimed\n"),
     Program(("add 1", "add 1"))),
    (Change("an item is published before it is written", RING,
            WRITE_AND_PUBLISH, PUBLISH + WRITE_AND_PUBLISH),
     Program(("add 1", "remove"))),
    (Change("HR is raised after the item is published", RING,
            "    raise_to(&r.hr, seqno + highest_bit(todo))\n" + WRITE_AND_PUBLISH,
            WRITE_AND_PUBLISH + "    raise_to(&r.hr, seqno + highest_bit(mask >> at.bit))\n"),
     Program(("add 1", "remove"))),
    (Change("the window reaches one seqno too far", RING,
            "seqno - load_acquire(&r.low) - 1 < load_relaxed(&r.bound)",
            "seqno - load_acquire(&r.low) - 1 <= load_relaxed(&r.bound)"),
     Program(("add 2", "add 1"))),
    (Change("there is no spare block", RING,
            "r.num_blocks = (capacity + BLOCK - 1) // BLOCK + 1",
            "r.num_blocks = (capacity + BLOCK - 1) // BLOCK"),
     Program(("add 1; add 2", "remove; remove"), capacity=2, used=1, accepted=(1, 2))),
    (Change("there is room for one seqno too many", RING,
            "    return bound - used if used < bound else 0\n",
            "    return bound + 1 - used if used <= bound else 0\n"),
     Program(("send", "stable 1"), before="send; keep", capacity=1)),
    (Change("a block begins its next lap when one seqno is left in it", RING,
            "    if at.bit == BLOCK - 1:\n", "    if at.bit >= BLOCK - 2:\n"),
     Program(("add 1; add 2", "remove; remove"), capacity=2)),
    (Change("a get takes a claimed slot for a full one", RING,
            "count[0] = full_run(load_acquire(&r.blocks[at.block].full), at, BLOCK)",
            "count[0] = full_run(load_acquire(&r.blocks[at.block].claim), at, BLOCK)"),
     Program(("add 5", "get 5"),
             before="add 1; remove; add 2; remove; add 3; remove; add 4; remove")),
    (Change("the token goes back without a look at who came meanwhile", RING,
            "    if cas_acq_rel_relaxed(token, asked, 0):",
            "    store_release(token, 0)\n    if asked != NULL:"),
     TWO_DRAINERS),
    (Change("the second of two purgers goes away with its wish", RING,
            "    raise_to(&r.want, hd if ahead(seqno, hd) > 0 else seqno)\n    return "
            "take_token(&r.purging, asked)\n",
            "    if load_relaxed(&r.purging):\n        return False\n    raise_to(&r.want, hd if "
            "ahead(seqno, hd) > 0 else seqno)\n"
            "    return take_token(&r.purging, asked)\n"),
     TWO_PURGERS),
    (Change("a purger may lower what another wants", RING,
            "    raise_to(&r.want, hd if ahead(seqno, hd) > 0 else seqno)\n",
            "    store_release(&r.want, hd if ahead(seqno, hd) > 0 else seqno)\n"),
     TWO_PURGERS),
    (Change("stable() moves LOW back", RING,
            "free_block(r, upto, out, count) if ahead(upto, load_relaxed(&r.low)) > 0 else 0",
            "free_block(r, upto, out, count) if upto != load_relaxed(&r.low) else 0"),
     Program(("stable 1", "add 4"), capacity=3, before="add_run 1 3; remove 3")),
    (Change("a purge goes beyond HD", RING, "    return hd if ahead(want, hd) > 0 else want\n",
            "    return load_relaxed(&r.hr)\n"),
     Program(("stable 2", "add 2"), capacity=2, before="add 1; keep")),
    (Change("removal moves LOW over what was kept", RING, "    if load_relaxed(&r.low) == hd:\n",
            "    if hd == hd:\n"),
     Program(("look", "remove"), capacity=2, before="add 1; add 2; keep")),
    (Change("missing() does not look at the lap", RING,
            "    if later == 0:\n        return <uint32_t>claim\n",
            "    if later == later:\n        return <uint32_t>claim\n"),
     Program(("missing", "add 2; remove 2; add 4; add 3; remove 2; add 6; add 5; remove 2"),
             capacity=3, before="add 1; add 3")),
    (Change("a sender that found no room does not look again", "programs.pyx",
            "        seen = load_acquire(&words.rooms)\n        if room(ring):\n            "
            "break\n",
            "        if room(ring):\n            break\n        seen = "
            "load_acquire(&words.rooms)\n"),
     Program(("send_or_wait", "stable 1"), before="send; keep", accepted=(2,))),
    (Change("a purge does not tell who waits for room", "programs.pyx",
            "    if freed:\n        fetch_add_acq_rel(&words.rooms, 1)\n", ""),
     Program(("send_or_wait", "stable 1"), before="send; keep", accepted=(2,))),
]


def judge(change: Change, program: Program) -> Answer:
    """What the explorer says of a core with this fault."""
    return explore(build(change=change), program)


if __name__ == "__main__":
    for change, program in MUTATIONS:
        if len(sys.argv) == 1 or change.name == sys.argv[1]:
            answer = judge(change, program)
            said = answer if len(sys.argv) > 1 else answer.failure or 'NOT FOUND'
            print(f"{change.name}: {said}", flush=True)
