"""A stream over two recorders has every message once, although one is killed and comes
back and the other is killed for good."""

import os
import signal
import subprocess
import threading

import pytest
from ports import free_port
from processes import PATIENCE, RINGCAST, wait_for

from ringcast import Channel
from ringcast.journal.merge import Journals
from ringcast.journal.offsets import advance, earliest, latest, losses, ranges
from ringcast.journal.rows import ROWS

pytestmark = pytest.mark.prove

LEAD = 2000     # messages that the publisher is ahead of the reader, at most

class Follower:
    """Reads as a stream does, step by step, and checks each message."""

    def __init__(self, folder):
        self.folder = folder
        self.offset = {}
        self.reached = 0                # messages that have been read

    def step(self):
        """Read what is new."""
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
        self.offset, self.reached = end, sum(end.values())

    def reach(self, goal):
        wait_for(lambda: self.step() or self.reached >= goal)


@pytest.mark.udp
@pytest.mark.kill
def test_a_stream_over_two_recorders_has_each_message_once_although_both_die(tmp_path):
    port, count = free_port(), 20_000
    folder = tmp_path / "journals"
    recorders = {}

    def start(name):
        recorders[name] = subprocess.Popen(
            [*RINGCAST, "record", folder / name, "--group", "g", "--name", name,
             "--set", f"port={port}", "--set", "capacity=2000", "--quiet", "--stop-when-alone"],
            stdout=subprocess.DEVNULL)

    def kill(name):
        os.kill(recorders[name].pid, signal.SIGKILL)
        recorders[name].wait()

    def send():
        for first in range(1, count + 1, 100):
            wait_for(lambda first=first: first <= follower.reached + LEAD)
            publisher.send_many([b"message %d" % number for number in range(first, first + 100)])

    publisher = Channel("g", name="p", min_members=3, port=port, deliver=False,
                        capacity=2000, max_bundle_size=4000)
    follower = Follower(folder)
    try:
        start("r1")
        start("r2")
        publisher.connect()
        sender, members = threading.Thread(target=send), publisher.view.members
        sender.start()
        follower.reach(3_000)
        kill("r1")
        start("r1")
        wait_for(lambda: len({*publisher.view.members} - {*members}) == 1)
        follower.reach(8_000)
        kill("r2")
        publisher.exclude("r2")
        follower.reach(count - LEAD)
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
