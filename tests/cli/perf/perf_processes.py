"""Help for the tests of `ringcast perf`: its figures and its processes."""

import multiprocessing
import os
import threading
import time
from functools import partial
from pathlib import Path

from processes import ringcast

FIGURES = {"sent_per_second", "delivered_per_second", "delivered_from_others_per_second",
           "megabytes_per_second", "messages_sent", "retransmitted", "requests", "blockings",
           "discarded_datagrams", "sender_cpu_per_million", "receiver_cpu_per_million", "cores",
           "cores_others", "p50_us", "p99_us", "p999_us"}
perf = partial(ringcast, "perf")


def signal_member(name, number, sending):
    """Send a signal to the member `name` of a run in this process, after it has used
    `sending` hundredths of a second of CPU time."""
    def act():
        for _ in range(6000):
            for process in multiprocessing.active_children():
                if process.name == name and cpu_ticks(process.pid) > sending:
                    os.kill(process.pid, number)
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def cpu_ticks(pid):
    """Return the CPU time of a process in hundredths of a second. It shows that the
    process is past its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def left_over(plan):
    """Return the members of a run in this process that still run."""
    return [process for process in multiprocessing.active_children()
            if process.name in plan.processes]
