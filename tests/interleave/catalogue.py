"""The programs of small threads over the shipped ring, by what they bring together.
Verbs: see VERBS in programs.pyx.

`used` puts the first seqno at each place of a block, and near the end of a lap; with
blocks of 2 a lap is 4 or 6 seqnos.
"""

from dataclasses import replace

from explore import Program

USED = (0, 1, 3)            # first of a block; last of it; last of a lap where there are two blocks


def shapes(program: Program, capacities: tuple[int, ...], used: tuple[int, ...] = USED) -> list[
        Program]:
    return [replace(program, capacity=capacity, used=count) for capacity in capacities
            for count in used]


ADD_ADD = [
    *shapes(Program(("add 1", "add 1"), accepted=(1,)), (1, 2, 3)),
    *shapes(Program(("add 1", "add 1", "add 1"), accepted=(1,)), (1, 2, 3)),
    *shapes(Program(("add 1; add 2", "add 2; add 1"), accepted=(1, 2)), (2, 3)),
    *shapes(Program(("add_run 1 2", "add 1", "add 2"), accepted=(1, 2)), (2, 3)),
    *shapes(Program(("add_run 1 2", "add_run 2 2"), accepted=(1, 2, 3)), (3,)),
    *shapes(Program(("add 1", "add 1"), accepted=(1,), offset=2**64 - 3), (1, 2, 3)),
]

ADD_REMOVE = [
    *shapes(Program(("add 1", "remove"), accepted=(1,)), (1, 2, 3)),
    *shapes(Program(("add 1", "add 1", "remove"), accepted=(1,)), (1, 2, 3)),
    *shapes(Program(("add 1; add 2", "add 2; add 1", "remove; remove")), (1, 2)),
    *shapes(Program(("add 2; add 1", "remove 2"), accepted=(1, 2)), (2, 3)),
    *shapes(Program(("add_run 1 2", "add 2", "remove 2"), accepted=(1, 2)), (2, 3)),
    # A late add of a seqno whose slot comes round again, once and twice.
    *shapes(Program(("add 1", "; ".join(f"add {number}; remove" for number in range(1, 10)))),
            (1, 2, 3)),
    *shapes(Program(("add 5", "add 1; remove; add 2; remove; add 3; remove; add 4; remove")), (1,)),
    *shapes(Program(("add 1; add 2", "remove; remove; remove"), offset=2**64 - 3), (1, 2)),
]

REMOVE_STABLE = [
    *shapes(Program(("keep; keep", "stable 1; stable 2"), before="add 1; add 2"), (2, 3)),
    *shapes(Program(("keep", "stable 2", "add 2"), before="add 1"), (2, 3)),
    *shapes(Program(("keep 2; keep", "stable 2; add 3; stable 3; add 4; add 5"),
                    before="add 1; add 2"), (2,)),
    *shapes(Program(("keep", "stable 2; add 3", "stable 1"), before="add 1; add 2; keep"), (2,)),
    *shapes(Program(("stable 2", "stable 1"), before="add 1; add 2; keep 2", freed=2), (2, 3)),
    *shapes(Program(("stable 2", "stable 1", "stable 2"), before="add 1; add 2; keep 2", freed=2),
            (2,)),
    *shapes(Program(("stable 3", "stable 1; stable 2"), before="add_run 1 3; keep 3", freed=3),
            (3,)),
]

GET = [
    *shapes(Program(("add 1; add 2", "get 1; get 2")), (2, 3)),
    *shapes(Program(("get 1; get 2", "add 1; add 2", "keep 2")), (2,)),
    *shapes(Program(("get 1; get 3", "add 3", "keep"), before="add 1; add 2; keep 2; stable 1"),
            (2,)),
]

MISSING_ADD = [
    *shapes(Program(("missing", "add 1", "add 2")), (2, 3)),
    *shapes(Program(("missing", "add 2; add 1; remove 2")), (2, 3)),
    *shapes(Program(("missing", "add 1", "remove 2"), before="add 2"), (2, 3)),
    *shapes(Program(("missing", "add 2; remove 2; add 4; add 3; remove 2; add 6; add 5; remove 2"),
                    before="add 1; add 3"), (3,), (0,)),
]

WAKE_UP = [  # decision 2: what is there to deliver is delivered, whoever looked while it was
             # claimed only
    *shapes(Program(("add 1; drain", "add 1; drain"), accepted=(1,), delivered=1), (1, 2, 3)),
    *shapes(Program(("add 1; drain", "add 2; drain"), accepted=(1, 2), delivered=2), (2, 3)),
    *shapes(Program(("add 1; drain", "add 2; drain", "drain"), accepted=(1, 2), delivered=2), (2,)),
]

SENDERS = [                     # one at a time, beside who makes room
    *shapes(Program(("send; send", "stable 1; stable 2"), before="send; send; keep 2",
                    accepted=(3,)), (3,)),
    *shapes(Program(("send; send", "stable 2"), before="send; send; keep 2"), (2,)),
]

BLOCKED_SENDER = [              # decision 12: a purge that makes room releases whoever waits for it
    *shapes(Program(("send_or_wait", "stable 1"), before="send; keep", accepted=(2,)), (1,)),
    *shapes(Program(("send_or_wait", "stable 1", "stable 2"), before="send; send; keep 2",
                    accepted=(3,)), (2,)),
    *shapes(Program(("send_or_wait", "stable 1", "keep"), before="send; send; keep", accepted=(3,)),
            (2,)),
]

ONLOOKERS = [
    *shapes(Program(("look", "add 1; add 2", "remove 2")), (1, 2)),
    *shapes(Program(("look", "keep 2", "stable 2"), before="add 1; add 2"), (2,)),
    *shapes(Program(("add 1; add 2", "visit")), (2, 3)),
    *shapes(Program(("add 1; add 2", "count", "remove 2")), (2,)),
    *shapes(Program(("add 1", "close")), (1, 2)),
]

GROUPS = {"add/add": ADD_ADD, "add/remove": ADD_REMOVE, "remove/stable": REMOVE_STABLE,
          "get/add": GET, "missing/add": MISSING_ADD, "wake-up of the drainer": WAKE_UP,
          "senders": SENDERS, "blocked sender/purge": BLOCKED_SENDER, "onlookers": ONLOOKERS}

# With blocks of 32, as shipped: across the edge of a block, and of a lap of 64.
AS_SHIPPED = [
    *shapes(Program(("add 1; add 2", "add 1", "remove 2")), (1, 2, 3), (31, 63)),
    *shapes(Program(("add_run 1 3", "add 2", "remove 3"), accepted=(1, 2, 3)), (3,), (30, 62)),
    *shapes(Program(("stable 2", "stable 1"), before="add 1; add 2; keep 2"), (2,), (31, 63)),
    *shapes(Program(("missing", "add 1; add 2", "remove 2")), (2, 3), (31, 63)),
    *shapes(Program(("send_or_wait", "stable 2"), before="send; send; keep 2", accepted=(3,)), (2,),
            (30, 31, 62, 63)),
]
