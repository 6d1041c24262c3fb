"""What a hostile member of the view or a stranger sends without a pause fills no memory
(decision 24), and the honest members go on when the member is excluded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flooding import EVERYTHING, FLOODS, GROUPS, ROUNDS, size_of
from honest import CONFIG, HONEST, LARGE
from hostile import HOSTILE

import ringcast
from ringcast.protocols.parts import MOST_BYTES
from ringcast.protocols.unicast3.memory import MOST_EARLY_OF_ALL

PACKAGE = str(Path(ringcast.__file__).parents[1])
# bytes of a member: what bounds.py allows of parts, of what comes too early, and in the
# windows of connections and streams; and what a member takes that has heard nothing
MOST = MOST_BYTES + MOST_EARLY_OF_ALL * (LARGE + 200) + 40 * CONFIG.max_bytes + 200_000


@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.parametrize("stack", GROUPS)
def test_a_member_that_floods_the_others_fills_no_memory_and_they_go_on_without_it(stack, lies):
    """bounds.py looks at table by table after each turn; size_of() at all together, so
    also at a table that nobody has thought of."""
    group = GROUPS[stack](stack, lies)
    for _ in range(4):
        group.flood(ROUNDS // 4)
        assert max(map(size_of, group.members)) <= MOST
    assert not any(member.stopped for member in group.members)
    if lies:
        assert group.kinds >= group.members[0].stack.kinds.keys()
    else:
        assert all(HOSTILE in member.multicast.members for member in group.members)
    before = [len(member.accepted[0]) for member in group.members]
    group.end()
    assert group.is_alone()
    assert all(member.multicast.members.keys() == set(HONEST) for member in group.members)
    after = [len(member.accepted[0]) for member in group.members]
    assert all(now >= then + 20 for then, now in zip(before, after, strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and a limit that is kept")
@pytest.mark.parametrize(("stack", "flood"), [
    *((stack, EVERYTHING) for stack in GROUPS),
    *(("mcast-udp", flood) for flood in FLOODS),
    *(("nakack2-tcp", flood) for flood in ("never_low", "of_strangers", "numbers"))])
def test_a_flood_finds_no_memory_without_a_bound(stack, flood):
    """The address space of who is flooded is hardly larger than what it had before."""
    run = subprocess.run([sys.executable, Path(__file__).with_name("flooding.py"), stack, flood],
                         capture_output=True, text=True, env=os.environ | {"PYTHONPATH": PACKAGE})
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.startswith("it had room")
