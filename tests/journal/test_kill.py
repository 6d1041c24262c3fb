"""A journal keeps what it confirmed when kill -9 hits its recorder at a random point.
test_kill_both.py does the same with a group and a Spark driver."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest
from journals import A, B, seqnos

from ringcast.spark import Journal, JournalReader

pytestmark = [pytest.mark.prove, pytest.mark.kill]

RECORDER = """
import json, sys
from ringcast.spark import Journal

path, senders = sys.argv[1], sys.argv[2:]
journal = Journal(path, group="g", segment_rows=100)
# the group delivers some again
next_seqno = {sender: max(1, journal.digest.get(sender, 0) - 10) for sender in senders}
while True:
    for sender in senders:
        first = next_seqno[sender]
        payloads = [b"%d" % seqno for seqno in range(first, first + 13)]
        journal.append(sender, first, payloads, view_id=1, sent_at=1, delivered_at=1)
        next_seqno[sender] = first + 13
    print(json.dumps(journal.sync()), flush=True)
"""


def kill_group(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_recorder_killed_at_any_point_keeps_once_what_it_confirmed(tmp_path):
    path = tmp_path / "journal"
    chance = random.Random(7)
    for _ in range(6):
        recorder = subprocess.Popen([sys.executable, "-c", RECORDER, str(path), A, B],
                                    stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            lines = [recorder.stdout.readline() for _ in range(chance.randint(1, 60))]
        finally:
            kill_group(recorder)
        # what was confirmed, and printed, before the kill hit
        lines += recorder.stdout.read().splitlines(keepends=True)
        confirmed = json.loads([line for line in lines if line.endswith("\n")][-1])
        digest = JournalReader(path).digest()
        for sender in (A, B):
            assert digest[sender] >= confirmed[sender]
            assert seqnos(path, sender) == list(range(1, digest[sender] + 1))
    with Journal(path, group="g") as journal:
        assert all(journal.digest[sender] >= digest[sender] for sender in digest)
        for sender, high in journal.digest.items():
            assert seqnos(path, sender) == list(range(1, high + 1))
