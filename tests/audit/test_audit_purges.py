"""Whether a purge came too early is judged by what came before what; without Spark."""

import pyarrow as arrow
import pytest
from audit_help import MS, Group

from ringcast.audit import aggregates
from ringcast.audit.purges import EARLY, Obligations, judge_sender, read_statements
from ringcast.trace import id_of

HOUR_MS = 3_600_000


def judged(group, directory, skew=None, part_rows=10_000):
    """Return what is found of A's purges: (receiver, by clocks, known, position)."""
    parts = sorted(group.write(directory, part_rows).glob("*/*.parquet"))
    obligations = Obligations()
    for event in aggregates.marked(parts):
        obligations.add(event)
    sender = id_of(group.address("A"))
    table = arrow.concat_tables(map(read_statements, parts))
    table = table.filter(arrow.compute.equal(table["sender_id"], sender))
    names = {id_of(group.address(member)): member for member in "ABCD"}
    found = judge_sender(sender, table, obligations, skew)
    rows = [dict(zip(EARLY.names, row, strict=True)) for row in found]
    return [(names[row["receiver_id"]], row["by_clock"], row["known"], row["position"])
            for row in rows]


def late(group):
    """B acknowledges 41 to 50 with 51 to 60, which A sent after it had purged them."""
    group.take("B", "ack", 50)
    group.row("B", "ack", 60)["first"] = 41


@pytest.mark.parametrize("part_rows", [5, 7, 10_000])
@pytest.mark.parametrize("hours", [0, 1, -1])
@pytest.mark.parametrize("plant, found", [(None, []), (late, [("B", 0, 40, 50)])])
def test_an_ack_that_is_sent_after_what_followed_the_purge_is_late_by_any_clock(
        tmp_path, plant, found, hours, part_rows):
    group = Group("late" if plant else "healthy")
    if plant:
        plant(group)
    for row in group.rows["B"]:
        row["wall"] += hours * HOUR_MS * MS
    assert judged(group, tmp_path, part_rows=part_rows) == found


def test_a_purge_that_no_message_judges_is_judged_by_clocks_that_are_close(tmp_path):
    group = Group("clocks")
    group.row("A", "purge", 50)["wall"] -= 4 * MS
    assert judged(group, tmp_path / "no") == [] and judged(group, tmp_path / "5", 5 * MS) == []
    assert judged(group, tmp_path / "0", 0) == [("B", 1, 40, 50), ("C", 1, 40, 50)]


def test_a_member_that_takes_no_messages_is_not_waited_for(tmp_path):
    group = Group("refuses")
    group.rows["B"] = [row for row in group.rows["B"] if row["event"] not in ("deliver", "ack")]
    assert judged(group, tmp_path / "silent")[0][:3] == ("B", 0, 0)
    group.rows["B"].insert(1, {"wall": MS, "event": "refuse"})
    assert judged(group, tmp_path / "refused") == []


def test_the_last_acks_of_a_crashed_member_are_unknown(tmp_path):
    group = Group("crashed")
    del group.rows["B"][group.find("B", "ack", 50):]
    assert judged(group, tmp_path) == []


def test_messages_before_a_start_are_not_waited_for(tmp_path):
    group = Group("joins")
    assert judged(group, tmp_path / "told") == []
    group.take("D", "ack", 110)
    assert judged(group, tmp_path / "late") == [("D", 0, 100, 110)]
    group.row("A", "start", peer=group.address("D"))["first"] = 111
    group.take("D", "deliver", 110)
    assert judged(group, tmp_path / "later") == []
