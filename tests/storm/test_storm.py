"""Storms of real processes: what is promised holds. And a storm finds what it must."""

import pytest
from plans import READS, STACKS, draw
from ports import free_port
from storm import Storm, difference

from ringcast.trace.writer import Writer

A, B = "A#1", "B#2"
MEMBERS = [A, B]


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.prove
def test_storm(spark, tmp_path, storm_seed):
    storm = Storm(draw(storm_seed), tmp_path, free_port())
    storm.run()
    storm.check_traces(spark)


# -------------------------------------------------------------------------------- what seeds reach

def test_the_same_seed_is_the_same_plan():
    assert draw(7) == draw(7) != draw(8)


def test_the_seeds_that_are_kept_have_each_stack(kept_seeds):
    assert {draw(seed).stack for seed in kept_seeds} == set(STACKS)


def test_200_seeds_draw_each_trait_and_each_fault():
    plans = [draw(seed) for seed in range(200)]
    traits = [each for plan in plans for each in plan.traits()]
    assert {plan.stack for plan in plans} == set(STACKS)
    assert {len(plan.members) for plan in plans} == {2, 3, 4, 5}
    assert {plan.options["capacity"] for plan in plans} == {4, 64, 1024, 32768}
    assert {plan.secret is None for plan in plans} == {True, False}
    assert {step.what for plan in plans for step in plan.steps} == {
        "kill", "restart", "leave", "join", "pause", "exclude"}
    assert {(each["reads"], each["asyncio"]) for each in traits} == {
        (reads, aio) for reads in READS for aio in (True, False)}
    assert {each["senders"] for each in traits} == {0, 1, 2, 3}
    assert {each["state"] for each in traits} == {True, False}
    assert {name for each in traits for name in each["options"]} == {"slow", "oob_in_order"}
    assert any(not plan.has_cuts and sum(each["state"] for each in plan.traits()) > 2
               for plan in plans)


# --------------------------------------------------------------------------------- storms can fail

def look(**changed):
    return {"view": 5, "members": MEMBERS, "fault": None, "state": {"1": [3, 77]}} | changed


def test_members_that_agree_pass():
    assert difference({"A": look(), "B": look()}, "AB") is None
    assert difference({"A": look(), "B": look(state={})}, "A") is None      # B has no state


@pytest.mark.parametrize("changed, said", [
    ({"view": 6}, "not one view"),
    ({"members": [B, A]}, "not one view"),
    ({"state": {"1": [3, 78]}}, "states differ"),
    ({"state": {"1": [2, 77]}}, "states differ"),
    ({"state": {}}, "states differ"),
    ({"state": {"1": [3, 77], "2": [1, 5]}}, "states differ")])
def test_members_that_differ_are_found(changed, said):
    assert said in difference({"A": look(), "B": look(**changed)}, "AB")
    assert said in difference({"A": look(**changed), "B": look()}, "AB")


def test_a_view_with_a_member_that_is_dead_is_found():
    assert "not one view" in difference({"A": look()}, "A")


def test_a_channel_that_closed_by_itself_is_found():
    with pytest.raises(AssertionError, match="the disk is full"):
        difference({"A": look(), "B": look(fault="the disk is full")}, "AB")


def test_a_member_that_fails_is_found(tmp_path):
    """It cannot begin, because a trait of it is no number."""
    plan = draw(0)
    for traits in plan.members.values():
        traits["senders"] = "many"
    with pytest.raises(AssertionError, match=r"has ended: .*Traceback"):
        Storm(plan, tmp_path, free_port()).run()


@pytest.mark.spark
def test_a_trace_that_lacks_a_delivery_is_found(spark, tmp_path):
    """B is given messages 1 to 4 and 6 to 9 of A."""
    storm = Storm(draw(0), tmp_path, free_port())
    for member, given in (A, [(1, 9)]), (B, [(1, 4), (6, 9)]):
        writer = Writer(tmp_path / "trace", member, threaded=False)
        writer.append(0, 0, "view", 1, members=MEMBERS)
        if member == A:
            writer.append(1, 1, "send", 1, sender=A, first=1, last=9, count=9, nbytes=90, sent_at=1)
        for first, last in given:
            size = last - first + 1
            writer.append(last + 1, last + 1, "deliver", 1, sender=A, first=first, last=last,
                          count=size, ord=min(first - 1, 4), nbytes=10 * size,
                          sent_at=1)
        writer.append(20, 20, "close", 1)
        writer.close()
    with pytest.raises(AssertionError, match="gap"):
        storm.check_traces(spark)
