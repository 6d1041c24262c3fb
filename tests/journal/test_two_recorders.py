"""Two recorders of one group: one is killed and comes back, the other is killed for
good, and a stream has every message once."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from ports import free_port

from ringcast import Channel
from ringcast.journal.merge import Journals
from ringcast.journal.offsets import advance, earliest, latest, losses, ranges
from ringcast.journal.rows import ROWS

pytestmark = pytest.mark.prove

PATIENCE = 60                           # seconds
MEMBERS = "p,r1,r2"


class Follower:
    """Reads as a stream does, step by step, and checks that nothing is missing or there
    twice."""

    def __init__(self, folder):
        self.folder = folder
        self.offset = {}

    def step(self):
        """How many messages have been read so far."""
        journals = Journals(self.folder)
        extents = journals.extents(behind=self.offset)
        end = advance(self.offset, latest(extents), earliest(extents), None)
        spans = ranges(self.offset, end, earliest(extents))
        assert losses(spans, extents) == []
        for sender, first, last in spans:
            found = []
            for batch in journals.read(sender, first, last, ROWS, strict=True):
                found += zip(batch.column("seqno").to_pylist(), batch.column("payload").to_pylist(),
                             strict=True)
            assert found == [(seqno, b"message %d" % seqno) for seqno in range(first, last + 1)]
        self.offset = end
        return sum(end.values())

    def reach(self, goal):
        deadline = time.monotonic() + PATIENCE
        while self.step() < goal:
            assert time.monotonic() < deadline, self.offset
            time.sleep(0.01)


@pytest.mark.udp
@pytest.mark.kill
def test_a_stream_over_two_recorders_has_everything_once_whichever_dies(tmp_path):
    port, count = free_port(), 20_000
    folder = tmp_path / "journals"
    recorders = {}

    def start(name):
        recorders[name] = subprocess.Popen(
            [sys.executable, "-c", "from ringcast.cli import main; main()", "record", str(folder / name), "--group", "g",
             "--name", name, "--members", MEMBERS, "--set", f"port={port}", "--quiet", "--stop-when-alone"], stdout=subprocess.DEVNULL)

    def kill(name):
        os.kill(recorders[name].pid, signal.SIGKILL)
        recorders[name].wait()

    publisher = Channel("g", name="p", members=MEMBERS.split(","), port=port, deliver=False,
                        capacity=2000, max_bundle_size=4000)
    follower = Follower(folder)
    try:
        start("r1")
        start("r2")
        publisher.connect()
        sender = threading.Thread(target=publisher.send_many,
                                  args=([b"message %d" % (k + 1) for k in range(count)],))
        sender.start()
        follower.reach(3_000)
        kill("r1")
        start("r1")
        follower.reach(8_000)
        kill("r2")
        publisher.exclude("r2")
        follower.reach(13_000)
        sender.join(PATIENCE)
        assert publisher.close(timeout=PATIENCE) == 0
        assert recorders["r1"].wait(PATIENCE) == 0
        follower.reach(count)
        assert follower.offset == {str(publisher.address): count}
        assert {journal.recorder for journal in Journals(folder).journals} == {"r1", "r2"}
    finally:
        publisher.close(0)
        for recorder in recorders.values():
            recorder.kill()
            recorder.wait()
