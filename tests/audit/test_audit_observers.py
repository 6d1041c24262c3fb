"""The audit knows observers: they owe no completeness, but order, once, and the truth
about what they missed."""

import pytest
from audit_help import Group

from ringcast.audit.verdict import audit
from ringcast.sim.runs.draw import draw
from ringcast.sim.runs.run import Run
from ringcast.sim.runs.settings import Settings
from ringcast.sim.trace import Trace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def observed(name):
    """Return a group in whose trace B is an observer that missed messages 41 to 60."""
    group = Group(name)
    for row in [row for row in group.rows["B"] if row["event"] == "ack"]:
        group.rows["B"].remove(row)
    for first in (41, 51):
        group.take("B", "deliver", first + 9)
    skip = {"wall": group.row("B", "deliver", 70)["wall"], "event": "skip",
            "sender": group.address("A"), "first": 41, "last": 60, "count": 20}
    group.rows["B"].insert(group.find("B", "deliver", 70), skip)
    group.rows["B"].insert(0, {"wall": 0, "event": "observe"})
    for row in group.rows["B"]:
        if row["event"] == "view":
            row["flags"] = 0
    return group, skip


def judged(spark, directory, group):
    group.write(directory)
    return audit(spark, [directory], skew_ms=0)[0]


def test_what_an_observer_was_told_that_it_missed_is_no_gap(spark, tmp_path):
    group, _ = observed("told")
    result = judged(spark, tmp_path, group)
    assert result.status == 0, result.verdict


@pytest.mark.parametrize(("kind", "position", "change"), [
    ("gap", 41, {"first": 51, "count": 10}),            # told of less
    ("skipped", 61, {"last": 65, "count": 25})])        # told of more
def test_an_observer_that_is_told_something_else_is_found(spark, tmp_path, kind, position, change):
    group, skip = observed(kind)
    skip.update(change)
    result = judged(spark, tmp_path, group)
    assert [(each.kind, each.position) for each in result.violations] == [(kind, position)]


def test_who_does_not_observe_may_miss_nothing(spark, tmp_path):
    group, _ = observed("other")
    group.rows["B"] = [row for row in group.rows["B"] if row["event"] != "observe"]
    result = judged(spark, tmp_path, group)
    assert "purge" in {each.kind for each in result.violations}


def test_simulated_groups_with_slow_observers_pass(spark, tmp_path):
    skipped = 0
    for number, stack in enumerate(("mcast-udp", "nakack2-udp", "nakack2-tcp", "mcast-tcp")):
        for seed in range(3000 + 4 * number, 3004 + 4 * number):    # as they draw the incarnations
            run = Run(draw(seed, Settings(stack=stack, observers=1, members=3, duration=0.5)))
            with Trace(run.cluster, tmp_path / stack / str(seed)):
                outcome = run.outcome()
            assert not outcome.check
            skipped += outcome.counters["num_skipped"]
    result = audit(spark, [tmp_path], skew_ms=0)[0]
    assert result.status == 0 and skipped, result.verdict
    assert sum(last - first + 1 for ranges in result.groups.skipped.values()
               for first, last, _ in ranges) == skipped
