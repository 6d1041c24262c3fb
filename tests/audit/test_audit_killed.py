"""Real processes form a group, one is killed in the middle of its stream, another one
takes its place: their traces prove that all promises were kept."""

import sys
from pathlib import Path

import pytest
from ports import free_port
from processes import PATIENCE, starting, wait_for

from ringcast.audit.verdict import audit
from ringcast.trace import SUFFIX

MEMBER = Path(__file__).with_name("traced_member.py")


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a member. Kill what is left at the end."""
    with starting() as run:
        yield lambda stack, port, name, members: run(
            [sys.executable, str(MEMBER), stack, str(port), name, str(members), str(tmp_path)])


def until(process, line):
    """Read what a process prints, up to a line."""
    assert any(said.strip() == line for said in process.stdout), line


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.prove
@pytest.mark.parametrize("stack", ["nakack2-tcp", pytest.param("mcast-udp", marks=pytest.mark.udp)])
def test_the_traces_of_a_group_of_which_one_was_killed_pass(spark, tmp_path, start, stack):
    port = free_port()
    members = {name: start(stack, port, name, 3) for name in "ABC"}
    for process in members.values():
        until(process, "3")
    wait_for(lambda: list(tmp_path.glob(f"B_*/*{SUFFIX}")))     # B has written a part
    members["B"].kill()
    for name in "AC":
        until(members[name], "2")
    members["D"] = start(stack, port, "D", 3)
    for name in "ACD":
        until(members[name], "3")
    for name in "ACD":
        members[name].communicate(timeout=PATIENCE)
        assert members[name].returncode == 0
    result, _ = audit(spark, [tmp_path])
    assert result.status == 0, result.verdict
    members = result.groups.members
    assert [name[0] for name, member in members.items() if not member.is_closed] == ["B"]
    assert sorted(name[0] for name in members) == ["A", "B", "C", "D"]
    assert {name[0] for name, _, _ in result.groups.reached} == {"A", "B", "C", "D"}
