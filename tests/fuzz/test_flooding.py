"""What a hostile member of the view sends without a pause fills no memory (decision
24), and the honest members go on when it is excluded."""

import subprocess
import sys
from pathlib import Path

import pytest
from flooding import FLOODS, size_of
from honest import CONFIG, HONEST, LARGE
from hostile import HOSTILE

from ringcast.protocols.parts import MOST_BYTES
from ringcast.protocols.unicast3.memory import MOST_EARLY_OF_ALL

ROUNDS = 200                            # of 5 ms each
# bytes of a member: what bounds.py allows of parts, of what comes too early, and in the
# windows of connections and streams; and what a member takes that has heard nothing
MOST = MOST_BYTES + MOST_EARLY_OF_ALL * (LARGE + 200) + 40 * CONFIG.max_bytes + 200_000
ROOM = 32 << 20                         # for two honest members and the test itself

UNDER_A_LIMIT = """
import resource, sys
sys.path[:0] = %r
import group
from flooding import FLOODS
from pathlib import Path

group.check = lambda member, now: None      # here the system looks after the bounds
flood = FLOODS[%r](%r, lies=False)
flood.flood(20)                             # so that all is loaded, and has begun
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + %d
resource.setrlimit(resource.RLIMIT_AS, (most, most))
flood.flood(%d)
flood.end()
print("it had room")
"""


@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.parametrize("stack", FLOODS)
def test_a_member_that_floods_the_others_fills_no_memory_and_they_go_on_without_it(stack, lies):
    """bounds.py looks at table by table after each turn; size_of() at all together, so
    also at a table that nobody has thought of."""
    group = FLOODS[stack](stack, lies)
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
@pytest.mark.parametrize("stack", FLOODS)
def test_a_member_that_floods_the_others_does_not_use_up_the_memory_they_may_have(stack):
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    program = UNDER_A_LIMIT % (paths, stack, stack, ROOM, 2 * ROUNDS)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "it had room\n", run.stderr[-2000:]
